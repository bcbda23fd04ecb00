//! A crowd of autoscalers with pods, a metric, a forecast and two windows, decided about and recorded for the page: shared
//! by its bench and by the test of its sizes.

use std::sync::Arc;

use foretide_api::validation;
use foretide_crds::{
    DecisionStatus, EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus,
    ProposalStatus, WindowStatus,
};
use foretide_domain::{
    Observation, Replicas, Scale,
    autoscale::{Decision, Inputs, decide, history::History},
    cron::Zone,
    forecast::{ForecastReading, Predicted},
    hpa::Settings,
    lead_time::LeadTime,
    observation::Container,
    sim::{PodTemplate, measure},
    workload::Workload,
};
use foretide_models::Forecast;
use foretide_page::{
    Autoscaler, Decided, DecisionLog, FleetStatus, Host, MetricRecord, Record, Status,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;

/// The time of all views: a Tuesday, 10 March 2026, 08:50 UTC.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_773_132_600, 0);
/// Cores that a replica carries, and minutes of a forecast.
const TARGET: f64 = 0.1;
const FORECAST_MINUTES: u32 = 24 * 60;
/// Every so manieth is short of replicas.
const SHORT_EVERY: u32 = 20;

/// A process whose clock stands still.
#[derive(Debug)]
pub(crate) struct StandingClock;

/// One autoscaler with what a decision about it is made from, and what a sync reports of it.
#[derive(Debug)]
pub(crate) struct Member {
    number: u32,
    autoscaler: Autoscaler,
    workload: Arc<Workload>,
    inputs: Inputs,
    history: History,
    forecast: Arc<Forecast>,
    template: PodTemplate,
    decision: Decision,
    status: Status,
}

// === impl StandingClock ===

impl Host for StandingClock {
    fn now(&self) -> Timestamp {
        NOW
    }
}

// === impl Member ===

impl Member {
    /// The autoscaler of this number, decided about [`NOW`] after a stabilization window of syncs.
    pub(crate) fn new(number: u32) -> Self {
        let object = object(number);
        let workload = validation::workload(&object, &Zone::utc()).expect("a valid autoscaler");
        let template = PodTemplate {
            containers: Arc::new([Container {
                name: "app".into(),
                requests: [("cpu", 200)].into_iter().collect(),
            }]),
            pod_level: None,
        };
        let inputs = inputs(number, &workload, &template);
        let settings = Settings::default();
        let mut history = History::default();
        for ago in (1..=20).rev() {
            let at = NOW - SignedDuration::from_secs(15) * ago;
            history = decide(&workload, &inputs, &history, &settings, at).1;
        }
        let decision = decide(&workload, &inputs, &history, &settings, NOW).0;
        Self {
            number,
            status: status(&decision),
            autoscaler: Autoscaler::Effective(Arc::new(object)),
            workload: Arc::new(workload),
            inputs,
            history,
            forecast: Arc::new(forecast(number)),
            template,
            decision,
        }
    }

    /// Decides once more.
    pub(crate) fn decide(&self) -> Decision {
        let settings = Settings::default();
        decide(&self.workload, &self.inputs, &self.history, &settings, NOW).0
    }

    /// Records a sync of so many minutes ago: then there were other counts and another demand.
    pub(crate) fn record(&mut self, log: &DecisionLog, minutes_ago: u32) {
        let at = NOW - SignedDuration::from_mins(minutes_ago.into());
        let count = Replicas::new(3 + hash(self.number, minutes_ago / 7) % 25);
        (
            self.decision.at,
            self.decision.current,
            self.decision.desired,
        ) = (at, count, count);
        self.status.common.current_replicas = Some(count.as_i32());
        let carried = if self.number.is_multiple_of(SHORT_EVERY) {
            1.5
        } else {
            0.9
        };
        let noise = f64::from(hash(self.number, minutes_ago) % 1000) / 20_000.0;
        let demand = (carried + noise) * count.as_f64() * TARGET;
        let decided = Decided {
            workload: &self.workload,
            decision: &self.decision,
            current: count,
            ready: count,
            metrics: vec![MetricRecord {
                name: "resource.cpu".to_owned(),
                demand: Some(demand),
                per_replica: Some(TARGET),
                forecast: Some((Arc::clone(&self.forecast), LeadTime::of(None, None))),
            }],
            template: Some(self.template.clone()),
            start_up: None,
        };
        log.record(Record {
            at,
            autoscaler: &self.autoscaler,
            status: &self.status,
            decided: Some(decided),
        });
    }
}

/// A number that follows from these two alone, without a pattern.
fn hash(one: u32, other: u32) -> u32 {
    let mixed = (u64::from(one) << 32 | u64::from(other)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    u32::try_from(mixed >> 40).unwrap_or(0)
}

fn object(number: u32) -> EffectiveHorizontalPodAutoscaler {
    let name = format!("service-{:06x}", hash(number, 1));
    let object = json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {"namespace": format!("team-{}", number % 40), "name": format!("{name}-{number}"), "generation": 3},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 2,
            "maxReplicas": 100,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
            "prediction": {"leadTimeSeconds": 120},
            "crons": [
                {"name": "office", "start": "0 8 * * 1-5", "end": "0 18 * * *", "targetReplicas": 4},
                {"name": "night-load", "start": "30 1 * * *", "end": "0 4 * * *", "targetReplicas": 30},
            ],
        },
    });
    serde_json::from_value(object).expect("an autoscaler")
}

fn inputs(number: u32, workload: &Workload, template: &PodTemplate) -> Inputs {
    let count = 3 + hash(number, 2) % 40;
    let pods = (0..count).map(|pod| template.serving(&format!("app-{pod}"), NOW));
    let pods: Vec<_> = pods.collect();
    let replicas = Replicas::new(count);
    let load = 0.7 + f64::from(hash(number, 3) % 100) / 200.0;
    let demand = load * replicas.as_f64() * TARGET;
    let readings = workload.metrics.iter();
    let readings = readings.map(|metric| measure::reading(metric, Some(demand), &pods, NOW));
    Inputs {
        observation: Observation {
            scale: Scale {
                spec: replicas,
                status: replicas,
            },
            readings: readings.collect(),
            pods,
            ..Observation::default()
        },
        forecasts: vec![ForecastReading::new(
            "resource.cpu".into(),
            Ok(Predicted::of(demand * 1.1, TARGET)),
        )],
        child: None,
        share: None,
    }
}

/// Of a day, by the minute.
fn forecast(number: u32) -> Forecast {
    let minute = SignedDuration::from_mins(1);
    let value = |ahead: u32| 1.0 + f64::from(hash(number, ahead) % 1000) / 1000.0;
    let values: Vec<_> = (0..FORECAST_MINUTES).map(value).collect();
    let upper = values.iter().map(|value| value * 1.3).collect();
    let valid = NOW + minute * 2000;
    let made = Forecast::new("dsp", NOW, minute, values, valid).expect("a forecast");
    made.with_upper(upper).expect("an upper end for each value")
}

/// As a sync reports it.
fn status(decision: &Decision) -> Status {
    let own = decision.conditions.iter();
    let own = own.map(|own| Condition {
        type_: own.kind.as_str().to_owned(),
        status: own.status.as_str().to_owned(),
        reason: own.reason.to_owned(),
        message: own.message.clone(),
        last_transition_time: Time(NOW),
        observed_generation: Some(3),
    });
    let count = |replicas: Replicas| Some(replicas.as_i32());
    let proposals = decision.proposals.iter().map(|proposal| ProposalStatus {
        source: proposal.source,
        name: proposal.name.clone(),
        replicas: proposal.replicas.and_then(count),
        value: proposal.value.map(|value| value.to_string()),
        target: proposal.target.map(|target| target.to_string()),
        reason: Some(proposal.reason.as_str().to_owned()),
        forecast: None,
        query: None,
    });
    let windows = decision.windows.iter().map(|window| WindowStatus {
        name: window.name.clone(),
        active: window.state.active,
        next_transition: window.state.next_transition.map(Time),
    });
    let common = EffectiveHorizontalPodAutoscalerStatus {
        expect_replicas: count(decision.desired),
        current_replicas: count(decision.current),
        conditions: Some(own.collect()),
        observed_generation: Some(3),
        decision: Some(DecisionStatus {
            time: Some(Time(decision.at)),
            current_replicas: count(decision.current),
            proposals: Some(proposals.collect()),
            winner: decision.winner.as_ref().map(|winner| winner.source),
            maximum: decision.maximum.and_then(count),
            stabilized: count(decision.stabilized),
            limited: count(decision.limited),
            desired: count(decision.desired),
            floor: decision.floor.and_then(count),
            limit: decision.limit.map(|limit| limit.as_str().to_owned()),
            message: Some(decision.message()),
            ..DecisionStatus::default()
        }),
        windows: Some(windows.collect()),
        ..EffectiveHorizontalPodAutoscalerStatus::default()
    };
    Status {
        common,
        fleet: FleetStatus::default(),
    }
}
