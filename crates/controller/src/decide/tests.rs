//! Decisions about one autoscaler by what was observed of its target and what its status holds.

use std::collections::BTreeMap;

use foretide_api::{
    autoscaler::Autoscaler,
    ownership::Owner,
    ports::{HpaView, ScaleView},
    published::{KedaSource, keda_metric_name, label_value},
    validation,
};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_domain::{
    Scale,
    cron::Zone,
    forecast::{ForecastReading, Predicted},
    observation::{Measured, Observation},
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::*;
use crate::{
    child_hpa::{
        ChildSpec,
        tests::{child, stored},
    },
    conflicts::TargetConflicts,
    target::{StoredHistory, kept},
};

/// The metric of the autoscaler.
pub const QUEUE: &str = "external.queue|size";

/// An autoscaler of a queue whose replicas take five messages each, with more in its `spec`.
pub fn part(more: &Value) -> Part {
    let metric = json!({"metric": {"name": "queue|size"}, "target": {"type": "AverageValue", "averageValue": "5"}});
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "ours"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 20, "mode": "Direct", "metrics": [{"type": "External", "external": metric}],
        },
    });
    let spec = object["spec"].as_object_mut().unwrap();
    spec.extend(more.as_object().cloned().unwrap_or_default());
    let ehpa: EffectiveHorizontalPodAutoscaler = serde_json::from_value(object).unwrap();
    Part {
        owner: Arc::new(Owner::effective(&ehpa)),
        child: Arc::new(ChildSpec::of(&ehpa.spec)),
        workload: Arc::new(validation::workload(&ehpa, &Zone::utc()).unwrap()),
        permission: Permission::AllUnlessContested,
        conflicts: TargetConflicts::default(),
        floor_share: None,
        known_child: None,
        autoscaler: Autoscaler::Effective(Arc::new(ehpa)),
    }
}

/// A target with this count and this many messages in its queue.
pub fn observed(count: u32, messages: i64, foreign: Option<HpaView>) -> TargetObservation {
    let replicas = Replicas::new(count);
    let scale = Scale {
        spec: replicas,
        status: replicas,
    };
    TargetObservation {
        workload: WorkloadObservation {
            observation: Observation {
                scale,
                unseen: Replicas::ZERO,
                undelivered: Replicas::ZERO,
                owned: Replicas::ZERO,
                pods: Vec::new(),
                readings: vec![Ok(Measured::Total(vec![1_000 * messages]))],
            },
            forecasts: Vec::new(),
            template: None,
        },
        target: TargetView {
            scale: ScaleView {
                scale,
                uid: "target".to_owned(),
                ..ScaleView::default()
            },
            hpas: RelatedHpas {
                foreign: foreign.map(Arc::new),
                ..RelatedHpas::default()
            },
            keda_pause: KedaPause::Off,
        },
    }
}

/// The decision about an autoscaler this many seconds after the start.
pub fn decide(
    state: &mut TargetState,
    part: &Part,
    seen: TargetObservation,
    second: i64,
) -> Decided {
    let context = DecideContext {
        settings: &Settings::default(),
        now: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second),
    };
    context.decide(state, part.clone(), seen)
}

#[test]
fn an_hpa_that_says_it_scaled_to_zero_leaves_a_workload_that_wakes() {
    for (says, min) in [("True", 0), ("True", 2), ("False", 0), ("False", 2)] {
        let mut theirs = stored(&child(None));
        theirs.status = json!({"conditions": [{"type": "ScaledToZero", "status": says}]});
        let (mut state, part) = (TargetState::default(), part(&json!({"minReplicas": min})));
        let decided = decide(&mut state, &part, observed(0, 20, Some(theirs)), 0);
        let wakes = says == "True";
        let count = Replicas::new(if wakes { 4 } else { 0 });
        assert_eq!(decided.decision.desired, count, "{says} {min}");
        assert!(!decided.is_carried_out, "the target is theirs");
        // The owner deletes it; the process, or its successor that has the status alone, goes on.
        let kept = kept(&state.history);
        assert_eq!(kept.scaled_to_zero, wakes.then_some(true));
        let successor = TargetState {
            stored: StoredHistory::Kept {
                history: kept,
                winner: None,
                forecast_held: BTreeMap::new(),
                division: BTreeMap::new(),
            },
            ..TargetState::default()
        };
        for mut state in [state, successor] {
            let decided = decide(&mut state, &part, observed(0, 20, None), 15);
            let is_scaled =
                matches!(decided.decision.action, Action::Scale { to, .. } if to == count);
            assert_eq!(is_scaled, wakes, "{says} {min}");
        }
    }
}

#[test]
fn the_count_of_a_forecast_stays_over_a_restart() {
    let part = part(&json!({"prediction": {}}));
    let forecast = |replicas: f64| {
        let mut seen = observed(9, 0, None);
        seen.workload.forecasts = vec![ForecastReading {
            name: QUEUE.to_owned(),
            outcome: Ok(Predicted::of(replicas, 1.0)),
            details: None,
            query: None,
        }];
        seen
    };
    let decision = json!({"proposals": [{
        "source": "forecast", "name": QUEUE, "replicas": 10, "reason": "ForecastReady",
    }]});
    let status = json!({"decision": decision, "history": {}});
    let status = serde_json::from_value(status).unwrap();
    let mut before = TargetState::default();
    decide(&mut before, &part, forecast(9.5), 0);
    let restarted = TargetState {
        stored: StoredHistory::of(Some(&status)),
        ..TargetState::default()
    };
    // 10 replicas carry 9.5; 10.9 alone would need 11, but are less than a tenth more.
    for (mut state, count) in [(before, 10), (restarted, 10), (TargetState::default(), 11)] {
        let decided = decide(&mut state, &part, forecast(10.9), 15);
        assert_eq!(decided.decision.desired, Replicas::new(count));
    }
}

#[test]
fn a_trigger_of_each_source_counts_and_that_of_another_autoscaler_does_not() {
    let of_metric = |metric: &str| keda_metric_name(KedaSource::Forecast, "web", Some(metric));
    for (name, is_served) in [
        ("foretide-floor-web".to_owned(), true),
        ("foretide-cron-web".to_owned(), true),
        // A trigger for a forecast has its metric in the name.
        ("foretide-forecast-web".to_owned(), false),
        (of_metric(QUEUE), true),
        (of_metric(&label_value(QUEUE)), true),
        (of_metric("resource.memory"), false),
        ("foretide-floor-web-two".to_owned(), false),
        ("foretide-floor-api".to_owned(), false),
    ] {
        let mut kedas = stored(&child(None));
        kedas.controller = Some(OwnerReference {
            kind: "ScaledObject".to_owned(),
            api_version: "keda.sh/v1alpha1".to_owned(),
            ..OwnerReference::default()
        });
        let metric = json!({"metric": {"name": format!("s0-{name}")}});
        kedas.spec["metrics"] = json!([{"type": "External", "external": metric}]);
        let seen = observed(3, 0, Some(kedas));
        let trigger = part(&json!({})).keda_trigger(&seen.target.hpas).is_some();
        assert_eq!(trigger, is_served, "{name}");
    }
}
