//! The forecaster and the syncs together: its queries, the reports of syncs to it, and the status.

use foretide_api::ports::{
    Demand, DemandQueries, HistoryError, HistoryQuery, HistoryReader, Resolution,
};
use foretide_api::validation::CostLimits;
use foretide_base::{machine::Machine, memory::Memory};
use foretide_controller::forecaster::{Forecaster, ForecasterSetup, HistorySource, SeriesKey};
use foretide_crds::{ForecastStatus, PredictionMetricStatus, ProposalStatus};
use foretide_domain::forecast::Refused;
use foretide_domain::proposal::Source;
use foretide_models::Sample;

use super::*;

mod budgets;
mod memory;
mod minutes;
mod tenants;

/// Total demand in cores: a daily wave between 0.4 and 1.2.
#[expect(clippy::cast_precision_loss, reason = "seconds of a few days")]
fn demand(second: i64) -> f64 {
    let day = second.rem_euclid(86_400) as f64 / 86_400.0;
    0.8 - 0.4 * (day * std::f64::consts::TAU).cos()
}

/// A Prometheus with three days of history; it counts its queries.
#[derive(Clone, Default)]
struct FakePrometheus(Arc<Mutex<u32>>, Arc<Mutex<FailingQueries>>);

/// The queries that never return, and those that fail; and the texts of all.
#[derive(Default)]
struct FailingQueries {
    texts: Vec<Arc<str>>,
    silent: Vec<&'static str>,
    broken: Vec<&'static str>,
}

impl FakePrometheus {
    fn asked(&self) -> u32 {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn silence(&self, query: &'static str) {
        self.1.lock().unwrap().silent.push(query);
    }

    fn fail(&self, query: &'static str) {
        self.1.lock().unwrap().broken.push(query);
    }

    /// Returns the number of times that a query was asked since the last call.
    fn asked_for(&self, query: &str) -> usize {
        let texts = std::mem::take(&mut self.1.lock().unwrap().texts);
        texts.iter().filter(|text| ***text == *query).count()
    }

    fn failure_of(&self, query: &str) -> (bool, bool) {
        let mut failing = self.1.lock().unwrap();
        failing.texts.push(query.into());
        (
            failing.silent.contains(&query),
            failing.broken.contains(&query),
        )
    }
}

/// The query of a history with bursts.
const BURSTS: &str = "bursts";

/// The part of the demand that a burst adds: up to twice the demand, in one minute of thirty.
fn burst(second: i64) -> f64 {
    let minute = second.div_euclid(60).rem_euclid(1 << 20);
    let noise = minute * minute * 31 % 1009 * 97 % 1009;
    let size = u16::try_from(noise).map_or(0.0, f64::from) / 504.0;
    if noise % 30 == 0 { size } else { 0.0 }
}

impl HistoryReader for FakePrometheus {
    async fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        let (silent, broken) = self.failure_of(&query.text);
        if silent {
            std::future::pending::<()>().await;
        }
        if broken {
            return Err(HistoryError::Unavailable {
                status: 503,
                message: String::new(),
            });
        }
        *self.0.lock().unwrap() += 1;
        let first = from.as_second().max(START - 3 * 86_400);
        let times = (first..=to.as_second()).step_by(usize::try_from(step.as_secs()).unwrap());
        let has_bursts = *query.text == *BURSTS;
        let sample = |second| Sample {
            at: Timestamp::from_second(second).unwrap(),
            value: demand(second) * if has_bursts { 1.0 + burst(second) } else { 1.0 },
        };
        let samples: Vec<Sample> = times.map(sample).collect();
        if samples.is_empty() {
            return Err(HistoryError::Empty);
        }
        Ok(samples)
    }
}

/// Queries by the written text, or by the name of the target.
#[derive(Clone, Copy, Default)]
struct ByName {
    /// The values are means, and the query of minutes is `NAME by minute`.
    of_means: bool,
}

impl DemandQueries for ByName {
    fn query(&self, demand: &Demand<'_>) -> Result<HistoryQuery, Refused> {
        Ok(HistoryQuery {
            namespace: demand.target.namespace.as_str().into(),
            endpoint: None,
            text: demand.written.unwrap_or(&demand.target.name).into(),
        })
    }

    fn resolution(&self, query: &HistoryQuery) -> Resolution {
        if !self.of_means {
            return Resolution::Unknown;
        }
        Resolution::Mean(HistoryQuery {
            text: format!("{} by minute", query.text).into(),
            ..query.clone()
        })
    }

    fn version(&self) -> u64 {
        0
    }
}

const START: i64 = 1_767_225_600;

/// A world with a forecaster.
struct ForecastWorld {
    world: World,
    forecaster: Forecaster<FakeCluster, FakePrometheus, ByName>,
    prometheus: FakePrometheus,
    forecasts: Arc<Forecasts>,
    telemetry: Arc<Telemetry>,
}

impl ForecastWorld {
    /// Returns a world of three pods with this prediction.
    fn new(prediction: &str) -> Self {
        Self::with(prediction, ByName::default(), CostLimits::default(), None)
    }

    /// Returns a world like [`new`](Self::new), with these queries.
    fn with_queries(prediction: &str, queries: ByName) -> Self {
        Self::with(prediction, queries, CostLimits::default(), None)
    }

    /// Returns a world like [`new`](Self::new), with limits on the costs of forecasts.
    fn with_limits(prediction: &str, cost_limits: CostLimits) -> Self {
        Self::with(prediction, ByName::default(), cost_limits, None)
    }

    fn with(
        prediction: &str,
        queries: ByName,
        cost_limits: CostLimits,
        memory: Option<Memory>,
    ) -> Self {
        let fake = FakeCluster::default();
        fake.put(
            "web",
            3,
            &format!(
                "mode: Direct, minReplicas: 3, maxReplicas: 50, {CPU}, prediction: {prediction}"
            ),
        );
        let mut world = World::new(fake);
        let prometheus = FakePrometheus::default();
        let (forecasts, telemetry) = (Arc::<Forecasts>::default(), Arc::<Telemetry>::default());
        world.controller = World::controller(&world.fake, &world.clock, &forecasts);
        let source = HistorySource {
            reader: prometheus.clone(),
            queries,
        };
        let forecaster = Forecaster::new(
            Arc::new(world.fake.clone()),
            Some(source),
            Arc::clone(&forecasts),
            ForecasterSetup {
                machine: Machine::system()
                    .with_clock(world.clock.clone())
                    .with_memory(memory),
                local_zone: Zone::utc(),
                targets: targets(),
                cost_limits,
                telemetry: Arc::clone(&telemetry),
            },
        );
        Self {
            world,
            forecaster,
            prometheus,
            forecasts,
            telemetry,
        }
    }

    /// Runs a sync and then a pass of the forecaster.
    async fn step(&mut self, second: i64) {
        #[expect(clippy::cast_possible_truncation, reason = "a thousand")]
        let milli = (demand(START + second) * 1000.0).round() as i64;
        self.world.fake.state().millicores = milli;
        self.world.sync(second).await;
        self.pass().await;
    }

    /// Runs a pass of the forecaster, until its results are written.
    async fn pass(&mut self) {
        self.forecaster.pass().await;
        self.forecaster.delivered().await;
    }

    fn proposal(&self) -> ProposalStatus {
        let decision = self.world.fake.status("web").decision.unwrap();
        let proposals = decision.proposals.unwrap();
        let forecast = |p: &ProposalStatus| p.source == Source::Forecast;
        proposals.into_iter().find(forecast).unwrap()
    }

    fn forecast(&self) -> ForecastStatus {
        self.proposal().forecast.unwrap()
    }

    fn predicted(&self) -> PredictionMetricStatus {
        let status = self.world.fake.state().predicted.clone().unwrap();
        status.prediction_metrics.unwrap().remove(0)
    }
}

fn number(text: Option<&String>) -> f64 {
    text.unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_unset_algorithm_defaults_to_auto_and_status_shows_its_accuracy() {
    let mut world = ForecastWorld::new("{}");
    world.step(0).await;
    world.step(15).await;
    let proposal = world.proposal();
    assert!(proposal.replicas.is_some(), "{proposal:?}");
    let forecast = world.forecast();
    assert_eq!(forecast.algorithm.as_deref(), Some("auto"));
    assert_eq!(forecast.quantile.as_deref(), Some("0.94"));
    assert!(number(forecast.coverage.as_ref()) > 0.5, "{forecast:?}");
    assert!(number(forecast.skill.as_ref()) > 0.0, "{forecast:?}");
    assert!(forecast.learnt_from.is_some() && forecast.known_until.is_some());
    let predicted = world.predicted();
    assert!(predicted.ready, "{predicted:?}");
    assert_eq!(
        predicted.forecast.unwrap().algorithm.as_deref(),
        Some("auto")
    );
    let series = predicted.prediction.unwrap().remove(0);
    let samples = series.samples.unwrap();
    assert!(samples.len() > 60, "{}", samples.len());
    for sample in samples {
        let (value, upper) = (number(sample.value.as_ref()), number(sample.upper.as_ref()));
        assert!(value <= upper && upper < 2.0, "{value} {upper}");
    }
}

#[tokio::test]
async fn every_write_of_a_prediction_is_counted_with_its_result() {
    let mut world = ForecastWorld::new("{}");
    let counted = |world: &ForecastWorld| {
        let text = world.telemetry.encode();
        ["ok", "error"].map(|result| {
            let series =
                format!(r#"foretide_writes_total{{kind="prediction",result="{result}"}} "#);
            let count = text.lines().find_map(|line| line.strip_prefix(&series));
            count.unwrap().parse::<u32>().unwrap()
        })
    };
    assert_eq!(counted(&world), [0, 0]);
    world.world.fake.state().refuses = true;
    world.step(0).await;
    assert_eq!(counted(&world), [0, 1], "the spec was refused");
    world.world.fake.state().refuses = false;
    world.step(15).await;
    assert_eq!(
        counted(&world),
        [2, 1],
        "the spec and the status were written"
    );
}

#[tokio::test]
async fn the_demand_of_a_target_that_is_not_scaled_is_not_read() {
    let mut world = ForecastWorld::new("{}");
    world.world.fake.edit("web", |ehpa| {
        ehpa.spec.scale_target_ref.kind = "StatefulSet".into();
    });
    for second in [0, 15, 30, 45] {
        world.step(second).await;
    }
    assert_eq!(world.prometheus.asked(), 0);
}

#[tokio::test]
async fn a_standby_keeps_forecasts_and_publishes_them_when_it_leads() {
    let mut world = ForecastWorld::new("{}");
    let leadership = Leadership::standby(world.world.clock.clone());
    world.forecaster = world.forecaster.led_by(leadership.clone());
    world.step(0).await;
    world.step(15).await;
    let published = |world: &ForecastWorld| world.world.fake.state().predicted.is_some();
    assert!(world.proposal().replicas.is_some() && !published(&world));
    assert!(world.world.fake.state().prediction.is_null());
    leadership.set(Some(Token {
        epoch: 1,
        valid_until: world.world.clock.monotonic() + Duration::from_secs(10),
    }));
    world.pass().await;
    assert!(published(&world));
}

#[tokio::test]
async fn the_lead_time_defaults_to_the_measured_pod_startup_time() {
    for (prediction, source, seconds) in [
        ("{}", "measured", 240),
        ("{leadTimeSeconds: 45}", "spec", 45),
    ] {
        let mut world = ForecastWorld::new(prediction);
        world.world.fake.state().start_up = 200;
        world.step(0).await;
        world.step(15).await;
        let forecast = world.forecast();
        assert_eq!(forecast.lead_time_source.as_deref(), Some(source));
        assert_eq!(forecast.lead_time_seconds, Some(seconds));
        assert!(forecast.window_seconds > Some(seconds), "{forecast:?}");
    }
}

#[tokio::test]
async fn demand_measured_by_syncs_keeps_a_forecast_fresh_without_another_query() {
    let mut world = ForecastWorld::new("{}");
    let mut asked = Vec::new();
    for quarter in 0..4 * 75 {
        world.step(quarter * 15).await;
        if quarter % 4 == 3 {
            asked.push(world.prometheus.asked());
        }
    }
    // A query a minute until half an hour can be compared, then one an hour.
    let (before, after) = asked.split_at(32);
    assert!(before.iter().sum::<u32>() >= 28, "{asked:?}");
    assert_eq!(after.iter().sum::<u32>(), 0, "{asked:?}");
    for minute in 75..100 {
        world.step(minute * 60).await;
    }
    assert_eq!(world.prometheus.asked(), 1);
    let proposal = world.proposal();
    assert!(proposal.replicas.is_some(), "{proposal:?}");
}

#[tokio::test]
async fn an_autoscaler_that_cannot_be_decoded_keeps_its_forecasts() {
    let mut world = ForecastWorld::new("{}");
    world.step(0).await;
    world.step(15).await;
    assert!(world.proposal().replicas.is_some());
    world.prometheus.asked();
    let undecoded = |world: &ForecastWorld, uids: &[&str]| {
        let uids = uids.iter().map(|uid| (*uid).to_owned());
        world.world.fake.state().undecoded = uids.collect();
    };
    undecoded(&world, &["uid-web"]);
    world.step(20).await;
    world.step(25).await;
    undecoded(&world, &[]);
    world.step(35).await;
    let proposal = world.proposal();
    assert!(proposal.replicas.is_some(), "{proposal:?}");
    assert_eq!(world.prometheus.asked(), 0);
}

#[tokio::test]
async fn a_forecast_from_an_old_query_is_not_used_while_the_new_query_fails() {
    for (query, replicas) in [("web", true), ("broken", false)] {
        let mut world = ForecastWorld::new("{}");
        world.step(0).await;
        world.step(15).await;
        assert!(world.proposal().replicas.is_some());
        world.prometheus.fail("broken");
        world.prometheus.fail("web");
        let annotation = "metric-query.autoscaling.crane.io/resource.cpu";
        world.world.fake.edit("web", |ehpa| {
            let annotations = ehpa.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation.to_owned(), query.to_owned());
        });
        world.step(30).await;
        world.step(45).await;
        let proposal = world.proposal();
        assert_eq!(proposal.replicas.is_some(), replicas, "{proposal:?}");
    }
}
