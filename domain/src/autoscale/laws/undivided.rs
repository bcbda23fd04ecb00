//! Totals that do not divide among pods: each pod has the same value, whatever the load is. An HPA at its target keeps
//! the count; a forecast must not raise it without end.

use std::sync::Arc;

use foretide_models::{Forecaster, Series, auto};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::world::{Scenario, at, n};
use crate::autoscale::{Inputs, decide, history::History};
use crate::demand;
use crate::division::has_surplus;
use crate::forecast::{ForecastReading, Predicted, Refused};
use crate::hpa::{MetricSpec, Settings};
use crate::observation::examples::{self, busy, memory};
use crate::observation::{ContainerUsage, Measured, PodSample, PodUsage, Status};
use crate::proposal::{Reason, Source};
use crate::workload::{Mode, Prediction, Workload};
use crate::{Observation, Replicas};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// The count at which every pod is at its target.
const START: u32 = 10;
const HOURS: i64 = 48;

/// Changes of pods and their values while the load stays the same.
#[derive(Clone, Copy, Debug)]
struct Habits {
    /// Largest deviation of the value of a pod from the target, as a fraction.
    noise: f64,
    /// The minutes that a pod needs to become ready.
    startup: i64,
    /// The hours between two rolling updates, each with a quarter more pods for ten minutes.
    updates: i64,
}

/// A workload whose pods each have a value near the target, and the forecaster of its total.
struct World {
    workload: Workload,
    habits: Habits,
    count: u32,
    pods: Vec<(u32, i64)>,
    names: u32,
    history: History,
    totals: Vec<f64>,
    forecaster: auto::Auto,
}

impl World {
    fn new(metric: MetricSpec, habits: Habits) -> Self {
        let mut world = Self {
            workload: workload(metric),
            habits,
            count: START,
            pods: Vec::new(),
            names: 0,
            history: History::default(),
            totals: Vec::new(),
            forecaster: auto::Auto::new(auto::Config::default()).unwrap(),
        };
        world.scale(START, -1000);
        world
    }

    fn metric(&self) -> &MetricSpec {
        self.workload.metrics.first().unwrap()
    }

    /// Starts and ends pods; the newest go first.
    fn scale(&mut self, pods: u32, minute: i64) {
        while self.pods.len() < pods as usize {
            self.names += 1;
            self.pods.push((self.names, minute));
        }
        self.pods.truncate(pods as usize);
    }

    fn is_ready(&self, started: i64, minute: i64) -> bool {
        minute - started >= self.habits.startup
    }

    /// The value of every pod in a minute: the target, with noise that all pods share.
    fn value(&self, minute: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a few thousand minutes")]
        let phase = (minute as f64 * 12.9898).sin() * 43_758.545;
        1.0 + self.habits.noise * (2.0 * phase.rem_euclid(1.0) - 1.0)
    }

    fn measured(&self, pods: &[Arc<str>], value: i64, now: Timestamp) -> Measured {
        let usage = |pod: &Arc<str>| {
            let containers = vec![ContainerUsage {
                name: "app".into(),
                usage: [("memory", value), ("cpu", value)].into_iter().collect(),
            }];
            Arc::new(PodUsage {
                pod: Arc::clone(pod),
                at: now,
                window: MINUTE,
                containers,
            })
        };
        let sample = |pod: &Arc<str>| PodSample {
            pod: Arc::clone(pod),
            value,
            at: now,
            window: MINUTE,
        };
        match self.metric() {
            MetricSpec::Resource { .. } => Measured::Usage(pods.iter().map(usage).collect()),
            _ => Measured::Samples(pods.iter().map(sample).collect()),
        }
    }

    fn observe(&self, minute: i64) -> Observation {
        let now = at(minute * 60);
        let value = milli(self.value(minute));
        let running = self
            .pods
            .iter()
            .filter(|(_, started)| self.is_ready(*started, minute));
        let names: Vec<Arc<str>> = running
            .map(|(name, _)| format!("web-{name}").into())
            .collect();
        let measured = self.measured(&names, value, now);
        let pod = |(name, started): &(u32, i64)| {
            let is_ready = self.is_ready(*started, minute);
            let status = if is_ready {
                Status::True
            } else {
                Status::False
            };
            Arc::new(examples::pod(
                &format!("web-{name}"),
                at(started * 60),
                status,
            ))
        };
        examples::observation(self.count, self.pods.iter().map(pod).collect(), measured)
    }

    /// The forecast from the minutes so far.
    fn forecast(&mut self, now: Timestamp) -> ForecastReading {
        let first = at(-60 * 60 * 24);
        let series = Series::from_values(first, MINUTE, self.totals.clone());
        let forecast = self.forecaster.forecast(&series, MINUTE * 130);
        let outcome = match forecast {
            Ok(forecast) => Predicted::by(&forecast, now, MINUTE * 60, 1.0)
                .ok_or_else(|| Refused::new(Reason::Expired, "the forecast has expired")),
            Err(error) => Err(Refused::from(&error)),
        };
        ForecastReading::new(self.metric().identifier(), outcome)
    }

    /// Runs one minute: the pods of an update come and go, then a decision is made.
    fn minute(&mut self, minute: i64) {
        let now = at(minute * 60);
        let since_update = minute.rem_euclid(self.habits.updates * 60);
        let surge = if since_update < 10 { self.count / 4 } else { 0 };
        self.scale(self.count + surge, minute);
        let observation = self.observe(minute);
        let reading = observation.readings.first().unwrap().as_ref().unwrap();
        let total = demand::total(self.metric(), reading, &observation.pods, now);
        let learned = total.filter(|_| !has_surplus(&observation));
        self.totals.push(learned.unwrap_or(f64::NAN));
        let forecasts = vec![self.forecast(now)];
        let inputs = Inputs {
            observation,
            forecasts,
            child: None,
            share: None,
        };
        let (decision, history) = decide(
            &self.workload,
            &inputs,
            &self.history,
            &Settings::default(),
            now,
        );
        self.history = history;
        self.count = decision.desired.get();
    }

    /// The highest count of two days, after a day of history.
    fn highest(mut self) -> u32 {
        self.totals = (-24 * 60..0)
            .map(|minute| f64::from(START) * self.value(minute))
            .collect();
        let counts = (0..HOURS * 60).map(|minute| {
            self.minute(minute);
            self.count
        });
        counts.max().unwrap_or_default()
    }
}

fn workload(metric: MetricSpec) -> Workload {
    let scenario = Scenario {
        bounds: (1, 1000),
        ..Scenario::default()
    };
    let prediction = Prediction {
        window: MINUTE * 60,
        algorithm: "auto".into(),
    };
    let mut workload = scenario.workload(Mode::Direct);
    workload.metrics = vec![metric];
    workload.floor.prediction = Some(prediction);
    workload
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "thousandths of small numbers"
)]
fn milli(value: f64) -> i64 {
    (value * 1000.0).round() as i64
}

#[test]
fn memory_with_noise_at_its_target_raises_nothing_in_two_days() {
    for updates in [1000, 12] {
        let habits = Habits {
            noise: 0.08,
            startup: 1,
            updates,
        };
        assert_eq!(World::new(memory(), habits).highest(), START, "{habits:?}");
    }
}

#[test]
fn while_more_pods_run_than_the_spec_asks_for_a_forecast_keeps_its_count() {
    let decided = |pods: u32, held: Option<u32>| {
        let mut world = World::new(
            busy(),
            Habits {
                noise: 0.0,
                startup: 0,
                updates: 1000,
            },
        );
        world.scale(pods, -100);
        let name = busy().identifier();
        let reading = |value| ForecastReading::new(name.clone(), Ok(Predicted::of(value, 1.0)));
        let held = held.map(|held| (name.clone(), n(held)));
        let history = History {
            forecast_held: held.into_iter().collect(),
            ..History::default()
        };
        let inputs = Inputs {
            observation: world.observe(0),
            forecasts: vec![reading(13.0)],
            child: None,
            share: None,
        };
        let (decision, _) = decide(
            &world.workload,
            &inputs,
            &history,
            &Settings::default(),
            at(0),
        );
        let forecast = decision
            .proposals
            .into_iter()
            .find(|proposal| proposal.source == Source::Forecast);
        forecast.map(|forecast| (forecast.replicas.map(Replicas::get), forecast.reason))
    };
    let (ready, waits) = (Reason::ForecastReady, Reason::PodsChanging);
    assert_eq!(decided(10, Some(11)), Some((Some(13), ready)));
    assert_eq!(decided(13, Some(11)), Some((Some(11), waits)));
    assert_eq!(decided(13, Some(15)), Some((Some(13), ready)));
    assert_eq!(decided(13, None), Some((None, waits)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Each raise is a vote, so after a few of them the total is known not to divide.
    #[test]
    fn a_count_at_a_constant_load_is_bounded_whatever_pods_do(
        noise in 0.0..0.08_f64, startup in 0_i64..5, updates in 1_i64..48,
    ) {
        let habits = Habits { noise, startup, updates };
        let highest = World::new(busy(), habits).highest();
        prop_assert!(highest <= 12 * START, "{highest}");
    }
}
