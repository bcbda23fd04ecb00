//! Requests of one namespace to a Prometheus or to the API server do not age the forecasts of another.
//!
//! The forecaster runs by itself, in virtual time. No sync reports demand, so every refresh needs a query.

use super::*;

/// Minutes of a measurement: the default forecaster refreshes every minute.
const MINUTES: i64 = 4;
const OTHERS: [&str; 4] = ["bank", "blog", "mail", "shop"];
/// Duration of a query of the other namespaces.
const QUICK: Duration = Duration::from_millis(200);
/// Duration of the heaviest query, after which client and server give up.
const DEADLINE: Duration = Duration::from_secs(10);

/// A Prometheus on which queries of the namespace `heavy`, and all to the endpoint `east`, take so long that they fail.
#[derive(Clone, Default)]
struct Loaded(FakePrometheus);

impl HistoryReader for Loaded {
    async fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        if &*query.namespace == "heavy" || query.endpoint.is_some() {
            tokio::time::sleep(DEADLINE).await;
            return Err(HistoryError::Timeout {
                endpoint: "http://prometheus".to_owned(),
                message: "query timed out".to_owned(),
            });
        }
        tokio::time::sleep(QUICK).await;
        self.0.range(query, from, to, step).await
    }
}

/// Queries as of [`ByName`]; targets named `far` are queried at the endpoint `east`.
struct ByEndpoint;

impl DemandQueries for ByEndpoint {
    fn query(&self, demand: &Demand<'_>) -> Result<HistoryQuery, Refused> {
        let is_far = demand.target.name.starts_with("far");
        Ok(HistoryQuery {
            endpoint: is_far.then(|| "east".into()),
            ..ByName::default().query(demand)?
        })
    }

    fn version(&self) -> u64 {
        0
    }
}

/// A forecaster that runs, and the series whose age is measured.
struct Running {
    fake: FakeCluster,
    clock: Clock,
    forecasts: Arc<Forecasts>,
    leadership: Leadership,
    measured: Vec<SeriesKey>,
}

/// The ages of the measured forecasts, in seconds; without a forecast, the time since the start.
#[derive(Debug)]
struct Ages {
    /// The second at which every series had a forecast for the first time.
    complete: f64,
    /// Each age of each series, once per second, in order.
    all: Vec<f64>,
}

impl Running {
    /// Starts three autoscalers in each of four namespaces, and these before them.
    fn start(others: impl FnOnce(&FakeCluster)) -> Self {
        let fake = FakeCluster::default();
        others(&fake);
        let mut measured = Vec::new();
        for namespace in OTHERS {
            for n in 0..3 {
                let name = format!("{namespace}-{n}");
                put(&fake, namespace, &name);
                measured.push(SeriesKey {
                    uid: format!("uid-{name}"),
                    metric: "resource.cpu".to_owned(),
                });
            }
        }
        let start = Timestamp::from_second(START).unwrap();
        let clock = Clock::simulated(start);
        let forecasts = Arc::<Forecasts>::default();
        let source = HistorySource {
            reader: Loaded::default(),
            queries: ByEndpoint,
        };
        let setup = ForecasterSetup {
            machine: Machine::system().with_clock(clock.clone()),
            local_zone: Zone::utc(),
            targets: targets(),
            cost_limits: CostLimits::default(),
            telemetry: Arc::default(),
        };
        let leadership = Leadership::default();
        let cluster = Arc::new(fake.clone());
        let forecaster = Forecaster::new(cluster, Some(source), Arc::clone(&forecasts), setup);
        tokio::spawn(forecaster.led_by(leadership.clone()).run());
        Self {
            fake,
            clock,
            forecasts,
            leadership,
            measured,
        }
    }

    /// The ages over some minutes, while `disturb` is called every five seconds.
    async fn ages(&self, disturb: impl Fn(&FakeCluster, i64)) -> Ages {
        let mut ages = Ages {
            complete: f64::NAN,
            all: Vec::new(),
        };
        for second in 1..=MINUTES * 60 {
            if second % 5 == 0 {
                disturb(&self.fake, second);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.clock.now();
            let since = |from: Timestamp| now.duration_since(from).as_secs_f64();
            let ages_now = self.measured.iter().map(|key| {
                let forecast = self.forecasts.in_force(key, now);
                forecast.ok().map(|forecast| since(forecast.start()))
            });
            let ages_now: Vec<Option<f64>> = ages_now.collect();
            let elapsed = since(Timestamp::from_second(START).unwrap());
            if ages.complete.is_nan() && ages_now.iter().all(Option::is_some) {
                ages.complete = elapsed;
            }
            let ages_now = ages_now.into_iter().map(|age| age.unwrap_or(elapsed));
            ages.all.extend(ages_now);
        }
        ages.all.sort_by(f64::total_cmp);
        ages
    }
}

impl Ages {
    fn oldest(&self) -> f64 {
        *self.all.last().unwrap()
    }

    fn p99(&self) -> f64 {
        self.all[self.all.len() * 99 / 100]
    }

    /// Checks that no age is more than a tenth above that of `undisturbed`.
    fn check(&self, undisturbed: &Self) {
        for (what, disturbed, alone) in [
            ("complete", self.complete, undisturbed.complete),
            ("p99", self.p99(), undisturbed.p99()),
            ("oldest", self.oldest(), undisturbed.oldest()),
        ] {
            assert!(
                disturbed <= 1.1 * alone,
                "{what}: {disturbed:.1} s, undisturbed {alone:.1} s"
            );
        }
    }
}

fn put(fake: &FakeCluster, namespace: &str, name: &str) {
    let spec = format!("mode: Direct, minReplicas: 3, maxReplicas: 50, {CPU}, prediction: {{}}");
    fake.put_in(namespace, name, 3, &spec);
}

fn heavy(fake: &FakeCluster) {
    for n in 0..200 {
        put(fake, "heavy", &format!("heavy-{n}"));
    }
}

fn leave(_: &FakeCluster, _: i64) {}

#[tokio::test(start_paused = true)]
async fn queries_that_are_edited_again_and_again_age_no_forecast_of_another_namespace() {
    let undisturbed = Running::start(|_| {}).ages(leave).await;
    assert!(undisturbed.oldest() < 130.0, "{:.1}", undisturbed.oldest());
    let edit = |fake: &FakeCluster, second: i64| {
        let query = format!("sum(heavy) + {second}");
        for n in 0..200 {
            fake.edit(&format!("heavy-{n}"), |ehpa| {
                let annotations = ehpa.metadata.annotations.get_or_insert_default();
                let name = "metric-query.autoscaling.crane.io/resource.cpu";
                annotations.insert(name.to_owned(), query.clone());
            });
        }
    };
    let beside = Running::start(heavy).ages(edit).await;
    beside.check(&undisturbed);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_ages_no_forecast_from_another_server() {
    let undisturbed = Running::start(|_| {}).ages(leave).await;
    let far = |fake: &FakeCluster| {
        for namespace in OTHERS {
            for n in 0..20 {
                put(fake, namespace, &format!("far-{namespace}-{n}"));
            }
        }
    };
    let beside = Running::start(far).ages(leave).await;
    beside.check(&undisturbed);
}

#[tokio::test(start_paused = true)]
async fn forecasts_stay_fresh_while_no_prediction_can_be_written() {
    let undisturbed = Running::start(|_| {}).ages(leave).await;
    let hanging = Running::start(|fake| {
        let hang = &mut fake.state().predictions_hang;
        hang.extend(OTHERS.map(str::to_owned));
    });
    hanging.ages(leave).await.check(&undisturbed);
    assert!(hanging.fake.state().published.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_predictions_cannot_be_written_delays_no_other() {
    let running = Running::start(|fake| {
        fake.state().predictions_hang.insert("heavy".to_owned());
        heavy(fake);
    });
    tokio::time::sleep(Duration::from_mins(2)).await;
    let published = running.fake.state().published.clone();
    assert_eq!(published.len(), running.measured.len());
    // The fake shows no prediction to the forecaster, so each pass writes all of them.
    let rarest = published.into_values().min();
    assert!(rarest >= Some(20), "{rarest:?}");
}

/// Lets writes of predictions wait for a slot, changes something, and lets them start.
async fn written_after(change: impl FnOnce(&Running)) -> std::collections::BTreeMap<String, u32> {
    let running = Running::start(|fake| {
        fake.state().predictions_hang.insert("shop".to_owned());
        for n in 3..6 {
            put(fake, "shop", &format!("shop-{n}"));
        }
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    change(&running);
    tokio::time::sleep(Duration::from_secs(5)).await;
    running.fake.state().predictions_hang.clear();
    running.fake.state().published.clear();
    tokio::time::sleep(Duration::from_secs(30)).await;
    running.fake.state().published.clone()
}

#[tokio::test(start_paused = true)]
async fn a_prediction_that_waited_is_written_only_by_the_leader_and_from_current_copies() {
    // Only the running writes; the others waited for a slot.
    let published = written_after(|running| running.leadership.set(None)).await;
    assert_eq!(published.len(), 4, "{published:?}");
    let published = written_after(|running| {
        running.fake.state().stale_predictions = true;
    });
    let published = published.await;
    assert_eq!(published.len(), 4, "{published:?}");
}
