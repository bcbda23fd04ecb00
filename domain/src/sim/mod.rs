//! A simulated workload on a virtual clock: the controller's own decisions, minute by minute over a recorded history.
//!
//! ```text
//!  Recording --the past only--> forecaster --+
//!      |                                     v
//!      +--demand of the last minute--> decide() --count--> SimulatedPods (pods take time to start)
//!      |                                                     |
//!      +--demand of the next minute-------------------> enough of them? --> Score
//! ```
//!
//! Pure: no I/O and no clock. Pods are simulated in [`SimulatedPods`], readings in [`measure`]; every decision is
//! [`decide`]'s. The workload acts in Direct mode, in which the controller reaches the same counts as in Delegated
//! mode.

mod ahead;
pub mod measure;
mod metric_forecaster;
mod pods;
mod recording;
mod score;

use foretide_models::{Forecast, Forecaster, Prediction, TradeOffs};
use jiff::{SignedDuration, Timestamp};

pub use ahead::{Ahead, ExpectedMinute, ForecastAhead};
pub use pods::{PodTemplate, SimulatedPods};
pub use recording::Recording;
pub use score::{Score, TOLERATED};

use self::metric_forecaster::MetricForecaster;
use crate::{
    Observation, Replicas, Scale,
    autoscale::action::Action,
    autoscale::history::History,
    autoscale::{Decision, Inputs, decide},
    demand,
    forecast::Refused,
    hpa::{MetricSpec, Settings},
    lead_time::LeadTime,
    workload::{FloorSources, Mode, Strategy, Workload},
};

/// The period of decisions, and of the evaluation.
pub const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// A metric and the demand that was recorded of it.
#[derive(Clone, Debug)]
pub struct RecordedMetric {
    /// The metric.
    pub metric: MetricSpec,
    /// Total demand of the metric.
    pub recording: Recording,
}

/// Common part of all runs of a simulation.
#[derive(Clone, Debug)]
pub struct Environment {
    /// One per metric of the workload, in its order.
    pub metrics: Vec<RecordedMetric>,
    /// Properties of the pods.
    pub template: PodTemplate,
    /// Time from the request for a pod until it serves.
    pub start_up: SignedDuration,
    /// The first decision.
    pub begin: Timestamp,
}

/// A forecaster that was built from a spec, or the reason why it could not be.
pub type BuiltForecaster = Result<Box<dyn Forecaster>, Refused>;

/// One run of a workload in an environment.
///
/// ```
/// use foretide_domain::hpa::{MetricSpec, Target};
/// use foretide_domain::sim::{Environment, PodTemplate, RecordedMetric, Recording, Run, Score};
/// use foretide_domain::workload::{Mode, Workload};
/// use foretide_domain::{ReplicaBounds, Replicas};
/// use foretide_models::Sample;
/// use jiff::{SignedDuration, Timestamp};
///
/// let queue = MetricSpec::External {
///     metric: "queue".into(),
///     selector: None,
///     target: Target::AverageValue(4_000),
/// };
/// let workload = Workload {
///     bounds: ReplicaBounds::new(Replicas::new(1), Replicas::new(20)),
///     mode: Mode::Direct,
///     metrics: vec![queue.clone()],
///     ..Workload::default()
/// };
/// // A sample each minute: 8 messages, and 40 from the fifth minute on.
/// let at = |minute: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute);
/// let messages = |minute: i64| if minute < 5 { 8.0 } else { 40.0 };
/// let samples = (0..30).map(|minute| Sample { at: at(minute), value: messages(minute) });
/// let environment = Environment {
///     metrics: vec![RecordedMetric { metric: queue, recording: Recording::new(samples.collect()) }],
///     template: PodTemplate { containers: Vec::new().into(), pod_level: None },
///     start_up: SignedDuration::from_mins(2),
///     begin: at(2),
/// };
/// let mut run = Run::new(&environment, workload, vec![]);
/// let mut score = Score::default();
/// for _ in 0..10 {
///     let (minute, decision) = run.minute();
///     score.add(&minute, &decision);
/// }
/// // A reactive autoscaler is short of replicas until the new ones have started.
/// assert_eq!(score.minutes, 10);
/// assert!(score.under > 0);
/// ```
#[derive(Debug)]
pub struct Run<'a> {
    environment: &'a Environment,
    workload: Workload,
    forecasters: Vec<MetricForecaster<'a>>,
    targets: Vec<Option<f64>>,
    settings: Settings,
    pods: SimulatedPods,
    history: History,
    now: Timestamp,
}

/// One minute of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Minute {
    /// Beginning of the minute: the instant of the decision.
    pub at: Timestamp,
    /// Demand to be served in the minute; `None` where nothing was recorded, or no metric has a target per replica.
    pub load: Option<Load>,
    /// Number of replicas that were asked for.
    pub asked: Replicas,
    /// Number of replicas that served.
    pub ready: Replicas,
    /// Number of replicas that the forecast in force asked for, before rounding.
    pub forecast_replicas: Option<f64>,
    /// True if the count was changed.
    pub changed: bool,
}

/// The demand of a minute; of several metrics the one that needs the most replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The index of the metric in the environment.
    pub track: usize,
    /// The total, in the metric's base unit.
    pub demand: f64,
    /// Demand that one replica carries, in the same unit.
    pub target: f64,
}

// === impl Load ===

impl Load {
    /// Number of replicas that carry the demand at their target: `demand / target`.
    ///
    /// ```
    /// use foretide_domain::sim::Load;
    ///
    /// let load = Load { track: 0, demand: 12.0, target: 5.0 };
    /// assert_eq!(load.replicas(), 2.4);
    /// ```
    pub fn replicas(&self) -> f64 {
        self.demand / self.target
    }
}

// === impl Environment ===

impl Environment {
    /// Demand of each metric that a replica of the template carries; `None` for a metric without a target per replica.
    pub fn targets(&self) -> Vec<Option<f64>> {
        let one = [self.template.serving("one", self.begin)];
        self.metrics
            .iter()
            .map(|recorded| demand::target(&recorded.metric, &one, None).ok())
            .collect()
    }

    /// The demand of the minute that begins at `at`.
    fn load(&self, targets: &[Option<f64>], at: Timestamp) -> Option<Load> {
        let end = at.checked_add(MINUTE).ok()?;
        self.metrics
            .iter()
            .zip(targets)
            .enumerate()
            .filter_map(|(track, (of, target))| {
                Some(Load {
                    track,
                    demand: of.recording.minute_to(end)?,
                    target: (*target)?,
                })
            })
            .max_by(|a, b| a.replicas().total_cmp(&b.replicas()))
    }

    /// Number of pods that the demand before the first decision needs, within the bounds and at least one.
    fn first_count(&self, workload: &Workload) -> Replicas {
        let before = self.begin.checked_sub(MINUTE).unwrap_or(self.begin);
        let load = self.load(&self.targets(), before);
        let demanded = load.map_or(0.0, |load| load.replicas());
        // Zero pods would be a pause, in which nothing is decided.
        let needed = Replicas::for_demand(demanded).max(Replicas::new(1));
        workload.bounds.clamp(needed)
    }
}

// === impl Run ===

impl<'a> Run<'a> {
    /// A run at the beginning of its environment.
    ///
    /// A workload in Preview is scaled, too. `forecasters` belong to the metrics, in their order; without a prediction
    /// in the workload they are not used. The lead time is the start-up of the environment, as if measured, unless
    /// [`with_lead_time`](Self::with_lead_time) sets another one.
    pub fn new(
        environment: &'a Environment,
        workload: Workload,
        forecasters: Vec<BuiltForecaster>,
    ) -> Self {
        let workload = acting(workload);
        let lead_time = LeadTime::of(None, Some(environment.start_up));
        let begin = environment.begin;
        let forecasters = match &workload.floor.prediction {
            Some(prediction) => environment
                .metrics
                .iter()
                .zip(forecasters)
                .map(|(recorded, built)| {
                    MetricForecaster::new(recorded, built, prediction.window, lead_time, begin)
                })
                .collect(),
            None => Vec::new(),
        };
        let pods = SimulatedPods::new(
            &workload.target.name,
            environment.template.clone(),
            environment.start_up,
            environment.first_count(&workload),
            begin,
        );
        Self {
            environment,
            workload,
            forecasters,
            targets: environment.targets(),
            settings: Settings::default(),
            pods,
            history: History::default(),
            now: begin,
        }
    }

    /// The same run with this lead time of the forecasters.
    #[must_use]
    pub fn with_lead_time(mut self, lead_time: LeadTime) -> Self {
        for forecaster in &mut self.forecasters {
            forecaster.with_lead_time(lead_time);
        }
        self
    }

    /// The same run with forecasts of at least this length, for drawing; decisions stay the same.
    #[must_use]
    pub fn with_forecast_span(mut self, ahead: SignedDuration) -> Self {
        for forecaster in &mut self.forecasters {
            forecaster.set_least_length(ahead);
        }
        self
    }

    /// The decision of the next minute, and its result.
    ///
    /// The decision is made at the beginning of the minute, from the demand of the one before. The returned [`Minute`]
    /// tells how the replicas that serve at that time fare during the minute.
    pub fn minute(&mut self) -> (Minute, Decision) {
        let now = self.now;
        self.pods.advance(now);
        let seen = self.seen();
        let (decision, history) = decide(&self.workload, &seen, &self.history, &self.settings, now);
        self.history = history;
        let before = self.pods.count();
        self.act(decision.action);
        let minute = Minute {
            at: now,
            load: self.environment.load(&self.targets, now),
            asked: self.pods.count(),
            ready: self.pods.ready(),
            forecast_replicas: forecast_replicas(&seen),
            changed: self.pods.count() != before,
        };
        self.now = now.checked_add(MINUTE).unwrap_or(Timestamp::MAX);
        (minute, decision)
    }

    /// Hypothetical results of each quantile so far, for each metric whose forecaster measures them.
    pub fn trade_offs(&self) -> impl Iterator<Item = TradeOffs> + '_ {
        self.forecasters
            .iter()
            .filter_map(MetricForecaster::trade_offs)
    }

    /// Changes the price at which forecasters buy replicas, of those that were configured with one.
    pub fn set_price(&mut self, price: f64) {
        for forecaster in &mut self.forecasters {
            forecaster.set_price(price);
        }
    }

    /// The forecast of the first metric that was made last.
    pub fn forecast(&self) -> Option<&Forecast> {
        self.forecasters.first().and_then(MetricForecaster::latest)
    }

    /// The forecast, made a lead time before, for the minute that begins at `at`, in replicas; of several metrics the
    /// one that asked for the most.
    ///
    /// `None` for every minute but the last decided one, and if no forecast was in force.
    pub fn forecast_for(&self, at: Timestamp) -> Option<Prediction> {
        self.forecasters
            .iter()
            .zip(&self.targets)
            .filter_map(|(forecaster, target)| {
                let (made, target) = (forecaster.forecast_for(at)?, (*target)?);
                Some(Prediction {
                    at,
                    value: made.value / target,
                    upper: made.upper.map(|upper| upper / target),
                })
            })
            .max_by(|a, b| highest(a).total_cmp(&highest(b)))
    }

    /// The observation at the beginning of the minute: the demand of the previous minute, over the pods that served it.
    fn seen(&mut self) -> Inputs {
        let now = self.now;
        let count = self.pods.count();
        let since = now.checked_sub(MINUTE).unwrap_or(now);
        // A pod that became ready within the minute carried only a part of it.
        let served = self.pods.serving_since(since);
        let readings = self.environment.metrics.iter().map(|recorded| {
            let demand = recorded.recording.minute_to(now);
            measure::reading(&recorded.metric, demand, served, now)
        });
        let observation = Observation {
            scale: Scale {
                spec: count,
                status: count,
            },
            readings: readings.collect(),
            pods: self.pods.pods().to_vec(),
            ..Observation::default()
        };
        let pods = &observation.pods;
        let containers = &self.environment.template.containers;
        let forecasts = self.forecasters.iter_mut();
        Inputs {
            forecasts: forecasts
                .map(|forecaster| forecaster.reading(pods, containers, now))
                .collect(),
            observation,
            child: None,
            share: None,
        }
    }

    fn act(&mut self, action: Action) {
        let (Action::Scale { to, .. } | Action::Pin { to }) = action else {
            return;
        };
        let from = self.pods.count();
        let behavior = self.workload.behavior.as_ref();
        self.history = std::mem::take(&mut self.history).applied(behavior, from, to, self.now);
        self.pods.scale_to(to, self.now);
    }
}

fn highest(prediction: &Prediction) -> f64 {
    prediction.upper.unwrap_or(prediction.value)
}

/// The same workload in strategy Auto and mode Direct.
fn acting(mut workload: Workload) -> Workload {
    workload.strategy = Strategy::Auto;
    workload.mode = Mode::Direct;
    workload
}

/// The same workload without forecasts and cron windows, as for a plain autoscaler.
pub fn plain(mut workload: Workload) -> Workload {
    workload.floor = FloorSources::default();
    workload.problems.clear();
    workload
}

/// The most replicas that a forecast asks for.
fn forecast_replicas(seen: &Inputs) -> Option<f64> {
    seen.forecasts
        .iter()
        .filter_map(|forecast| forecast.outcome.as_ref().ok()?.pods().ok())
        .reduce(f64::max)
}

#[cfg(test)]
mod tests;
