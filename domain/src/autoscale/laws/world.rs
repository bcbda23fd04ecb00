//! A simulated workload to check the laws on: pods that take time to start, demand, outages, edits, and a
//! model HPA with its own log, which is the observed lane's algorithm run as the child.

use std::sync::Arc;

use foretide_models::{DemandBounds, Forecast};
use jiff::{SignedDuration, Timestamp};

use crate::autoscale::action::Action;
use crate::autoscale::history::History;
use crate::autoscale::published::PublishedMetric;
use crate::autoscale::{Child, Decision, Inputs, decide};
use crate::cron::{Window, WindowText, Zone};
use crate::forecast::{ForecastReading, Predicted, Refused};
use crate::hpa::{
    Behavior, Hpa, Log, MetricSpec, PolicyKind, Reconciliation, ScalingPolicy, ScalingRules,
    Settings, Target, reconcile, record_scale,
};
use crate::lead_time::LeadTime;
use crate::observation::{
    Cause, Container, Measured, Pod, PodSample, Requests, Status, Unavailable, examples,
};
use crate::proposal::{ForecastDetails, Reason};
use crate::workload::{FloorSources, Mode, Prediction, Workload};
use crate::{Observation, ReplicaBounds, Replicas, Scale, ScaleTarget};

/// Seconds between two decisions, and between two passes of the child.
pub(super) const TICK: i64 = 15;

/// Metrics of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metrics {
    None,
    Pods,
    External,
    Both,
}

/// A change by a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    Bounds(u32, u32),
    Scale(u32),
}

/// Inputs of one run; the series have one value per tick, and the last value is repeated.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) metrics: Metrics,
    pub(super) bounds: (u32, u32),
    pub(super) start: u32,
    pub(super) behavior: Option<Behavior>,
    pub(super) demand: Vec<f64>,
    pub(super) forecast: Vec<Option<f64>>,
    /// Distance of the bound that raises a count below the forecast, as a fraction of it; the bound that holds a count
    /// is the forecast itself.
    pub(super) slack: f64,
    /// The sources besides the metrics; a prediction stands in `forecast`.
    pub(super) floor: FloorSources,
    pub(super) outage: Vec<bool>,
    pub(super) edits: Vec<(usize, Edit)>,
    /// Seconds until a pod has samples.
    pub(super) startup: i64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            metrics: Metrics::External,
            bounds: (2, 60),
            start: 2,
            behavior: None,
            demand: vec![2.0],
            forecast: Vec::new(),
            slack: 0.0,
            floor: FloorSources::default(),
            outage: Vec::new(),
            edits: Vec::new(),
            startup: 0,
        }
    }
}

/// Cron windows of each hour: minute of start, minute of end, target.
pub(super) fn crons(windows: &[(u8, u8, u32)]) -> FloorSources {
    let window = |(i, (start, end, target_replicas)): (usize, &(u8, u8, u32))| {
        let text = WindowText {
            name: &format!("cron-{i}"),
            start: &format!("{start} * * * *"),
            end: &format!("{end} * * * *"),
            timezone: "",
            target_replicas: *target_replicas,
        };
        Window::parse(&text, &Zone::utc()).unwrap()
    };
    FloorSources {
        windows: windows.iter().enumerate().map(window).collect(),
        prediction: None,
    }
}

/// Rules with one policy: at most this many or this percentage in these seconds.
pub(super) fn policy(kind: PolicyKind, value: i32, seconds: i64) -> ScalingRules {
    let policy = ScalingPolicy {
        kind,
        value,
        period: SignedDuration::from_secs(seconds),
    };
    ScalingRules {
        policies: Some(vec![policy]),
        ..ScalingRules::default()
    }
}

/// Rules with a window of these seconds.
pub(super) fn window(seconds: i64) -> ScalingRules {
    ScalingRules {
        window: Some(SignedDuration::from_secs(seconds)),
        ..ScalingRules::default()
    }
}

pub(super) fn up(scale_up: ScalingRules) -> Behavior {
    Behavior {
        scale_up,
        ..Behavior::default()
    }
}

pub(super) fn down(scale_down: ScalingRules) -> Behavior {
    Behavior {
        scale_down,
        ..Behavior::default()
    }
}

/// `n` replicas.
pub(super) fn n(count: u32) -> Replicas {
    Replicas::new(count)
}

/// Second `s` of every world.
pub(super) fn at(s: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + s).unwrap()
}

/// The beginning of a tick.
pub(super) fn tick_at(tick: usize) -> Timestamp {
    at(i64::try_from(tick).unwrap() * TICK)
}

fn at_tick<T: Copy>(series: &[T], tick: usize) -> Option<T> {
    series.get(tick).or(series.last()).copied()
}

impl Scenario {
    pub(super) fn workload(&self, mode: Mode) -> Workload {
        let target = Target::AverageValue(1000);
        let pods = MetricSpec::Pods {
            metric: "load".into(),
            selector: None,
            target,
        };
        let external = MetricSpec::External {
            metric: "queue".into(),
            selector: None,
            target,
        };
        Workload {
            target: ScaleTarget {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                namespace: "shop".into(),
                name: "web".into(),
            },
            bounds: ReplicaBounds::new(n(self.bounds.0), n(self.bounds.1)),
            mode,
            metrics: match self.metrics {
                Metrics::None => vec![],
                Metrics::Pods => vec![pods],
                Metrics::External => vec![external],
                Metrics::Both => vec![pods, external],
            },
            behavior: self.behavior.clone(),
            floor: FloorSources {
                prediction: (!self.forecast.is_empty()).then(|| Prediction {
                    window: SignedDuration::from_mins(60),
                    algorithm: "auto".into(),
                }),
                ..self.floor.clone()
            },
            ..Workload::default()
        }
    }

    pub(super) fn is_out(&self, tick: usize) -> bool {
        self.outage.get(tick).copied().unwrap_or(false)
    }

    fn details() -> Option<ForecastDetails> {
        let minute = SignedDuration::from_mins(1);
        let path = Forecast::new("auto", at(0), minute, vec![0.0; 90], Timestamp::MAX).ok()?;
        Some(ForecastDetails::of(&path, LeadTime::of(None, None), 0.0))
    }

    fn forecasts(&self, tick: usize) -> Vec<ForecastReading> {
        let Some(value) = at_tick(&self.forecast, tick) else {
            return vec![];
        };
        let target = 1.0;
        let outcome = value
            .map(|value| Predicted {
                bounds: DemandBounds {
                    raise: value * (1.0 - self.slack),
                    hold: value,
                },
                ..Predicted::of(value, target)
            })
            .ok_or_else(|| Refused::new(Reason::NoData, "the query returned no samples"));
        let details = outcome.as_ref().ok().and(Self::details());
        vec![ForecastReading {
            name: "pods.load".into(),
            outcome,
            details,
            query: None,
        }]
    }
}

/// A model of the child HPA, with a log of its own.
#[derive(Clone, Debug)]
pub(super) struct ModelChild {
    pub(super) bounds: ReplicaBounds,
    pub(super) log: Log,
    last_scale: Option<Timestamp>,
    desired: Option<Replicas>,
}

/// One workload under one mode, with its pods, its child and its history.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) workload: Workload,
    pub(super) count: Replicas,
    pub(super) history: History,
    pub(super) child: Option<ModelChild>,
    /// Metrics that the adapter serves for the child, in mode Metric.
    published: Vec<PublishedMetric>,
    pub(super) settings: Settings,
    /// Number of writes of the child's bounds or of the scale so far.
    pub(super) writes: usize,
    pods: Vec<Arc<Pod>>,
    names: u32,
}

impl World {
    pub(super) fn new(scenario: &Scenario, mode: Mode) -> Self {
        let mut world = Self {
            workload: scenario.workload(mode),
            count: n(0),
            history: History::default(),
            child: None,
            published: vec![],
            settings: Settings::default(),
            writes: 0,
            pods: vec![],
            names: 0,
            scenario: scenario.clone(),
        };
        world.scale_to(n(scenario.start), at(-3600));
        world
    }

    /// Sets the count; the newest pods go first.
    pub(super) fn scale_to(&mut self, count: Replicas, now: Timestamp) {
        self.count = count;
        while self.pods.len() < count.get() as usize {
            self.names += 1;
            let app = Container {
                name: "app".into(),
                requests: Requests::default(),
            };
            self.pods.push(Arc::new(Pod {
                containers: Arc::new([app]),
                ..examples::pod(&format!("web-{}", self.names), now, Status::True)
            }));
        }
        self.pods.truncate(count.get() as usize);
    }

    /// Applies the user's changes at the beginning of `tick`.
    pub(super) fn edit(&mut self, tick: usize) {
        let due: Vec<_> = self
            .scenario
            .edits
            .iter()
            .filter(|(t, _)| *t == tick)
            .collect();
        for edit in due.into_iter().map(|(_, edit)| *edit).collect::<Vec<_>>() {
            match edit {
                Edit::Bounds(min, max) => self.workload.bounds = ReplicaBounds::new(n(min), n(max)),
                Edit::Scale(count) => self.scale_to(n(count), tick_at(tick)),
            }
        }
    }

    pub(super) fn observe(&self, now: Timestamp) -> Observation {
        let tick = tick_of(now);
        let demand = at_tick(&self.scenario.demand, tick).unwrap_or(0.0);
        let out = self.scenario.is_out(tick);
        let reading = |metric: &MetricSpec| match metric {
            MetricSpec::External { .. } => Ok(Measured::Total(vec![milli(demand)])),
            _ if out => Err(Unavailable::new(Cause::NotRead, "connection refused")),
            _ => Ok(self.samples(demand, now)),
        };
        let all_out = out && self.scenario.metrics == Metrics::External;
        let refused = || Err(Unavailable::new(Cause::NotRead, "connection refused"));
        let readings = self.workload.metrics.iter();
        let readings = readings.map(|m| if all_out { refused() } else { reading(m) });
        Observation {
            scale: Scale {
                spec: self.count,
                status: self.count,
            },
            pods: self.pods.clone(),
            readings: readings.collect(),
            ..Observation::default()
        }
    }

    fn samples(&self, demand: f64, now: Timestamp) -> Measured {
        let up = |pod: &&Arc<Pod>| {
            now.duration_since(pod.started.unwrap()).as_secs() >= self.scenario.startup
        };
        let up: Vec<_> = self.pods.iter().filter(up).collect();
        let value = milli(demand / f64::from(u32::try_from(up.len().max(1)).unwrap()));
        let window = SignedDuration::from_secs(60);
        let sample = |pod: &&Arc<Pod>| PodSample {
            pod: pod.name.clone(),
            value,
            at: now,
            window,
        };
        Measured::Samples(up.iter().map(sample).collect())
    }

    pub(super) fn inputs(&self, now: Timestamp) -> Inputs {
        Inputs {
            observation: self.observe(now),
            forecasts: self.scenario.forecasts(tick_of(now)),
            child: self.child.as_ref().map(|child| Child {
                min: child.bounds.min,
                max: child.bounds.max,
                desired: child.desired,
                last_scale: child.last_scale,
            }),
            share: None,
        }
    }

    /// Decides, and applies the action.
    pub(super) fn decide(&mut self, now: Timestamp) -> Decision {
        let inputs = self.inputs(now);
        let (decision, history) =
            decide(&self.workload, &inputs, &self.history, &self.settings, now);
        self.history = history;
        self.published.clone_from(&decision.published);
        match decision.action {
            Action::Hold { .. } => {}
            Action::Pin { to } => self.scale_to(to, now),
            Action::Scale { from, to } => {
                let behavior = self.workload.behavior.as_ref();
                self.history = self.history.clone().applied(behavior, from, to, now);
                self.scale_to(to, now);
                self.writes += 1;
            }
            Action::Child { min, max } => self.set_child(ReplicaBounds::new(min, max)),
        }
        decision
    }

    fn set_child(&mut self, bounds: ReplicaBounds) {
        let child = self.child.get_or_insert_with(|| {
            let bounds = ReplicaBounds::new(n(0), n(0));
            ModelChild {
                bounds,
                log: Log::default(),
                last_scale: None,
                desired: None,
            }
        });
        self.writes += usize::from(child.bounds != bounds);
        child.bounds = bounds;
    }

    /// The child's pass, if there is a child; returns its recommendation.
    pub(super) fn child_pass(&mut self, now: Timestamp) -> Option<Replicas> {
        let child = self.child.as_ref()?;
        let mut metrics = self.workload.metrics.clone();
        metrics.extend(self.published.iter().map(PublishedMetric::spec));
        let hpa = Hpa {
            bounds: child.bounds,
            metrics: &metrics,
            behavior: self.workload.behavior.as_ref(),
        };
        let mut observation = self.observe(now);
        let served = self.published.iter().map(|metric| Ok(metric.measured()));
        observation.readings.extend(served);
        let pass = reconcile(&hpa, &observation, &child.log, &self.settings, now);
        let (desired, recommended) = (pass.desired, pass.recommended);
        let rescales = desired != pass.current;
        let log = log_after(&hpa, pass, now);
        if let Some(child) = &mut self.child {
            child.log = log;
            child.desired = Some(desired);
            child.last_scale = if rescales {
                Some(now)
            } else {
                child.last_scale
            };
        }
        if rescales {
            self.scale_to(desired, now);
        }
        recommended
    }

    /// A tick in lock-step: the user's changes, the decision, and the child's pass on the same reading.
    pub(super) fn tick(&mut self, tick: usize) -> Decision {
        self.edit(tick);
        let now = tick_at(tick);
        let decision = self.decide(now);
        self.child_pass(now);
        decision
    }

    /// The counts after each of the first `ticks` ticks in lock-step.
    pub(super) fn run(&mut self, ticks: usize) -> Vec<u32> {
        let step = |tick| {
            self.tick(tick);
            self.count.get()
        };
        (0..ticks).map(step).collect()
    }
}

fn tick_of(now: Timestamp) -> usize {
    usize::try_from(now.duration_since(at(0)).as_secs().max(0) / TICK).unwrap()
}

#[expect(clippy::cast_possible_truncation, reason = "demands are small")]
fn milli(value: f64) -> i64 {
    (value * 1000.0).round() as i64
}

/// The log of an HPA after it wrote the scale, if the count changed.
pub(super) fn log_after(hpa: &Hpa<'_>, pass: Reconciliation, now: Timestamp) -> Log {
    if pass.desired == pass.current {
        return pass.log;
    }
    let mut log = record_scale(pass.log, hpa.behavior, pass.current, pass.desired, now);
    log.scaled_to_zero &= hpa.bounds.min == Replicas::ZERO && hpa.reads_beyond_pods();
    log
}
