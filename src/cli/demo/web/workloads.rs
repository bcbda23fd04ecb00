//! The simulated autoscalers of one cluster, each with a demand that shows something: a rush, a surge, a bound that is
//! too low, a short history.

use std::sync::Arc;

use foretide_backtest::{
    Error, inputs,
    manifest::{self, Document},
    runs::Runs,
    setup::{EvaluationOptions, Setup},
    validate::Validator,
};
use foretide_crds::EffectiveHorizontalPodAutoscalerStatus;
use foretide_domain::{
    Replicas,
    autoscale::{ConditionKind, Decision},
    lead_time::LeadTime,
    sim::{Environment, MINUTE, Minute, Run},
    workload::{Strategy, Workload},
};
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{LENGTH, StatusTrack, replay_begin};
use crate::cli::{
    context::CommandContext,
    demo::scenario::{Scenario, minute, setup},
    output::Failure,
};
use foretide_api::{
    autoscaler::{FleetStatus, Status},
    status::condition,
};
use foretide_page::{Decided, DecisionLog, MetricRecord, Record};

/// The autoscalers.
const AUTOSCALERS: &str = include_str!("autoscalers.yaml");
/// Horizon of the forecasts that are shown.
const AHEAD: SignedDuration = SignedDuration::from_hours(4);
/// Minutes of a day.
const DAY: i64 = 1440;
/// The day of the present, as scenarios count days.
const TODAY: i64 = 9;

/// A workload's demand, and its autoscaler.
#[derive(Clone, Copy, Debug)]
struct Script {
    /// The autoscaler.
    name: &'static str,
    /// The metric of the demand.
    metric: &'static str,
    scenario: Scenario,
    /// Factor and delay in minutes of the scenario's demand.
    times: f64,
    later: i64,
    /// Days of history before the present.
    days: i64,
    scaled_by: ScaledBy,
}

/// Autoscaler that scales a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScaledBy {
    /// Foretide.
    Foretide,
    /// A plain HPA; Foretide only previews.
    Hpa,
    /// A plain HPA, although Foretide is asked to act.
    ForeignHpa,
}

const CPU: &str = "resource.cpu";

const fn script(name: &'static str, scenario: Scenario, times: f64, later: i64) -> Script {
    Script {
        name,
        metric: CPU,
        scenario,
        times,
        later,
        days: TODAY,
        scaled_by: ScaledBy::Foretide,
    }
}

const SCRIPTS: [Script; 11] = [
    // A rush at nine that the forecast expects.
    script("web", Scenario::Shop, 1.0, 0),
    // A surge just before the present that the forecast does not expect.
    script("checkout", Scenario::Surge, 1.2, 450),
    // A window for a campaign, in the zone of London.
    script("search", Scenario::Shop, 1.1, 0),
    // Neither forecasts nor crons.
    script("images", Scenario::Shop, 0.5, -90),
    script("reports", Scenario::Batch, 1.0, 0),
    // Jobs of every hour that the forecast expects, and two windows, in the zone of Berlin.
    script("etl", Scenario::Batch, 0.4, 20),
    // Too short a history for its algorithm.
    Script {
        metric: "external.queue_length",
        days: 1,
        ..script("ingest", Scenario::Shop, 250.0, 30)
    },
    // A window in the zone of New York.
    script("transcode", Scenario::Shop, 0.4, -240),
    Script {
        scaled_by: ScaledBy::Hpa,
        ..script("thumbnails", Scenario::Shop, 0.8, 0)
    },
    Script {
        scaled_by: ScaledBy::ForeignHpa,
        ..script("api", Scenario::Shop, 1.1, 15)
    },
    // Pods that take long to start, and a maxReplicas that is too low for the rush at nine.
    script("auth", Scenario::Shop, 1.0, 0),
];

/// The data that the runs borrow.
#[derive(Debug)]
pub struct Workloads(Vec<(Script, Setup)>);

/// The simulated parts of one workload.
#[derive(Debug)]
pub struct WorkloadRun<'a> {
    script: Script,
    setup: &'a Setup,
    workload: Arc<Workload>,
    ours: Run<'a>,
    /// The HPA that scales the workload instead of Foretide, if there is one.
    other: Option<Run<'a>>,
    targets: Vec<Option<f64>>,
    lead_time: LeadTime,
    before: Option<Replicas>,
    track: StatusTrack,
}

// === impl Workloads ===

impl Workloads {
    /// The examples with their demand.
    pub fn new(context: &CommandContext) -> Result<Self, Failure> {
        let documents = manifest::parse("demo", AUTOSCALERS).map_err(Error::from)?;
        let validator = context.validator();
        SCRIPTS
            .iter()
            .map(|script| Ok((*script, script.setup(&documents, &validator)?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The runs at the beginning of the replay.
    pub fn runs(&self) -> Vec<WorkloadRun<'_>> {
        self.0
            .iter()
            .map(|(script, setup)| WorkloadRun::new(*script, setup))
            .collect()
    }
}

// === impl Script ===

impl Script {
    fn setup(&self, documents: &[Document], validator: &Validator<'_>) -> Result<Setup, Error> {
        let chosen = inputs::chosen_one(documents, Some(self.name), validator)?;
        let options = EvaluationOptions {
            from: Some(self.begin()),
            // Nothing depends on the warm-up, because the first evaluated minute is set.
            warm_up: Some(SignedDuration::ZERO),
            ..EvaluationOptions::default()
        };
        setup(chosen, self.metric, self.samples(), options)
    }

    /// The first minute of the run.
    fn begin(&self) -> Timestamp {
        replay_begin().max(minute(self.first()))
    }

    /// The first minute of the demand, as scenarios count them.
    fn first(&self) -> i64 {
        (TODAY - self.days) * DAY
    }

    fn samples(&self) -> Vec<Sample> {
        let last = TODAY * DAY + LENGTH.as_hours() * 60;
        (self.first()..=last)
            .map(|index: i64| Sample {
                at: minute(index),
                value: self.times * self.scenario.noisy_demand(index + self.later),
            })
            .collect()
    }
}

// === impl WorkloadRun ===

impl<'a> WorkloadRun<'a> {
    fn new(script: Script, setup: &'a Setup) -> Self {
        let mut run = Self::of(script, setup);
        for _ in 0..Runs::of(setup).lead_in() {
            run.ours.minute();
            if let Some(other) = &mut run.other {
                other.minute();
            }
        }
        run
    }

    /// A run of a set-up alone, from its first minute on.
    #[cfg(test)]
    pub fn from_the_beginning(setup: &'a Setup) -> Self {
        Self::of(script("web", Scenario::Shop, 1.0, 0), setup)
    }

    fn of(script: Script, setup: &'a Setup) -> Self {
        let runs = Runs::of(setup);
        Self {
            script,
            setup,
            workload: Arc::new(setup.workload.clone()),
            ours: runs.ours().with_forecast_span(AHEAD),
            other: (script.scaled_by != ScaledBy::Foretide).then(|| runs.plain()),
            targets: setup.environment.targets(),
            lead_time: runs.lead_time(),
            before: None,
            track: StatusTrack::default(),
        }
    }

    /// Simulates and records the minute that begins now, unless the workload is younger.
    pub fn minute(&mut self, now: Timestamp, log: &DecisionLog) {
        if now >= self.script.begin() {
            self.record(log);
        }
    }

    /// Simulates, records and returns the next minute.
    pub fn record(&mut self, log: &DecisionLog) -> Minute {
        let (ours, mut decision) = self.ours.minute();
        let actual = match &mut self.other {
            Some(other) => other.minute().0,
            None => ours,
        };
        let from = self.before.replace(actual.asked).unwrap_or(actual.asked);
        // The count of the autoscaler that scales the workload, which may be the other HPA.
        decision.current = from;
        if self.workload.strategy == Strategy::Preview {
            preview(&mut decision);
        }
        let status = Status {
            common: self.status(&decision, (from, actual.asked)),
            fleet: FleetStatus::default(),
        };
        log.record(Record {
            at: actual.at,
            autoscaler: &self.setup.autoscaler,
            status: &status,
            decided: Some(self.decided(&decision, &actual)),
        });
        actual
    }

    fn status(
        &mut self,
        decision: &Decision,
        counts: (Replicas, Replicas),
    ) -> EffectiveHorizontalPodAutoscalerStatus {
        let foreign = self.script.scaled_by == ScaledBy::ForeignHpa;
        let conflict = foreign.then(|| conflict(self.script.name));
        self.track.status(decision, counts, conflict)
    }

    fn decided<'d>(&'d self, decision: &'d Decision, actual: &Minute) -> Decided<'d> {
        let environment = &self.setup.environment;
        Decided {
            workload: &self.workload,
            decision,
            current: actual.asked,
            ready: actual.ready,
            metrics: self.metrics(environment, actual.at),
            template: Some(environment.template.clone()),
            start_up: Some(environment.start_up),
        }
    }

    fn metrics(&self, environment: &Environment, at: Timestamp) -> Vec<MetricRecord> {
        let end = at.checked_add(MINUTE).unwrap_or(at);
        let forecast = self
            .ours
            .forecast()
            .filter(|forecast| at <= forecast.valid_until());
        let all = environment.metrics.iter().zip(&self.targets);
        all.map(|(recorded, target)| MetricRecord {
            name: recorded.metric.identifier(),
            demand: recorded.recording.minute_to(end),
            per_replica: *target,
            forecast: forecast.map(|forecast| (Arc::new(forecast.clone()), self.lead_time)),
        })
        .collect()
    }
}

/// Changes a decision to that of an autoscaler that does not act: simulations always act.
fn preview(decision: &mut Decision) {
    for condition in &mut decision.conditions {
        if condition.kind == ConditionKind::Ready {
            condition.reason = "Preview";
        }
    }
}

/// The condition of an autoscaler whose target another HPA scales.
fn conflict(name: &str) -> Condition {
    let message = format!(
        "not acting: horizontalpodautoscaler {name} scales the same target and is not changed; delete it, or annotate this \
         object with {}: \"true\" to take it over (mode Delegated or Metric)",
        foretide_api::ownership::ADOPT
    );
    condition(
        ConditionKind::Ready.as_str(),
        "False",
        "TargetConflict",
        &message,
    )
}
