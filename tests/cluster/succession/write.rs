//! The kinds of writes of a leader: what makes it write, and how the write shows in objects and in the audit log.

use kube::core::GroupVersionKind;
use rig::AuditEvent;
use serde_json::{Value, json};

/// What a leader writes when objects change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    Scale,
    Hpa,
    NewHpa,
    /// The removal of a field that a user added.
    RestoredHpa,
    HpaDeletion,
    Status,
    Event,
    Prediction,
    PredictionStatus,
    PredictionDeletion,
    Finalizer,
    /// Of a deleted fleet, which ends with it.
    FinalizerRemoval,
    /// The ledger of a fleet, before its members are written.
    Ledger,
    FleetStatus,
    /// A workload that the hub places in a member.
    Workload,
}

impl Write {
    /// The objects in which it shows.
    pub(super) fn kind(self) -> GroupVersionKind {
        let [group, version, kind] = match self {
            Self::Scale | Self::Workload => ["apps", "v1", "Deployment"],
            Self::Hpa | Self::NewHpa | Self::RestoredHpa | Self::HpaDeletion => {
                ["autoscaling", "v2", "HorizontalPodAutoscaler"]
            }
            Self::Status => [
                "autoscaling.crane.io",
                "v1alpha1",
                "EffectiveHorizontalPodAutoscaler",
            ],
            Self::Event => ["events.k8s.io", "v1", "Event"],
            Self::Prediction | Self::PredictionStatus | Self::PredictionDeletion => {
                ["prediction.crane.io", "v1alpha1", "TimeSeriesPrediction"]
            }
            Self::Finalizer | Self::FinalizerRemoval | Self::Ledger | Self::FleetStatus => {
                ["autoscaling.foretide.io", "v1alpha1", "FederatedHPA"]
            }
        };
        GroupVersionKind::gvk(group, version, kind)
    }

    /// The spec of an autoscaler that makes the leader write it; none if it is another object that changes.
    pub(super) fn change(self, count: i32) -> Value {
        match self {
            Self::NewHpa => json!({ "mode": "Delegated" }),
            Self::HpaDeletion => json!({ "mode": "Direct" }),
            Self::Prediction | Self::PredictionStatus => json!({
                "metrics": [{ "type": "Resource", "resource": {
                    "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 },
                }}],
                "prediction": { "predictionWindowSeconds": 3600 },
            }),
            Self::PredictionDeletion => json!({ "prediction": null }),
            _ => json!({ "minReplicas": count, "maxReplicas": count }),
        }
    }

    /// Whether the change that makes the leader write it is one of the count.
    pub(super) fn follows_a_count(self) -> bool {
        matches!(self, Self::Scale | Self::Hpa | Self::Status | Self::Event)
    }

    /// Whether syncs write it, and not the passes of the forecaster, which take seconds.
    pub(super) fn is_of_a_sync(self) -> bool {
        !matches!(
            self,
            Self::Prediction | Self::PredictionStatus | Self::PredictionDeletion
        )
    }

    pub(super) fn deletes(self) -> bool {
        matches!(
            self,
            Self::HpaDeletion | Self::PredictionDeletion | Self::FinalizerRemoval
        )
    }

    /// Whether a changed object shows the write that follows a change to this count.
    pub(super) fn shows_in(self, object: &Value, count: i32) -> bool {
        let has_count = object["spec"]["maxReplicas"] == count;
        match self {
            Self::Scale => object["spec"]["replicas"] == count,
            Self::Hpa => has_count,
            Self::Status | Self::FleetStatus | Self::Finalizer => {
                has_count && self.is_done_in(object)
            }
            Self::Ledger => has_count && self.is_done_in(object) && !is_reported(object),
            // It was created just now.
            Self::Workload => object["status"]["observedGeneration"].is_null(),
            _ => !self.deletes() && self.is_done_in(object),
        }
    }

    /// Whether an object has been written.
    pub(super) fn is_done_in(self, object: &Value) -> bool {
        match self {
            Self::Status | Self::FleetStatus => is_reported(object),
            Self::Event => object["reportingController"] == "foretide",
            Self::RestoredHpa => {
                let is_edited = object["metadata"]["annotations"]["edited"] == "true";
                is_edited && object["spec"]["behavior"].is_null()
            }
            Self::PredictionStatus => object["status"]["predictionMetrics"].is_array(),
            Self::Finalizer => object["metadata"]["finalizers"].is_array(),
            Self::Ledger => object["status"]["ledger"].is_string(),
            _ => true,
        }
    }

    /// Fails if the old leader had written all of this kind: then it had nothing left to write.
    pub(super) fn assert_unfinished(self, of_old: &[AuditEvent], all: usize) {
        let [verb, resource, subresource] = self.request();
        let is_of_kind = |event: &&AuditEvent| {
            [&*event.verb, &event.resource, &event.subresource] == [verb, resource, subresource]
        };
        let written = of_old.iter().filter(is_of_kind).count();
        assert!(
            written < all,
            "{self:?}: the old leader wrote {written} of {all}"
        );
    }

    const fn request(self) -> [&'static str; 3] {
        match self {
            Self::Scale => ["patch", "deployments", "scale"],
            Self::Workload => ["patch", "deployments", ""],
            Self::Hpa | Self::NewHpa | Self::RestoredHpa => {
                ["patch", "horizontalpodautoscalers", ""]
            }
            Self::HpaDeletion => ["delete", "horizontalpodautoscalers", ""],
            Self::Status => ["patch", "effectivehorizontalpodautoscalers", "status"],
            Self::Event => ["create", "events", ""],
            Self::Prediction => ["patch", "timeseriespredictions", ""],
            Self::PredictionStatus => ["patch", "timeseriespredictions", "status"],
            Self::PredictionDeletion => ["delete", "timeseriespredictions", ""],
            Self::Finalizer | Self::FinalizerRemoval => ["patch", "federatedhpas", ""],
            Self::Ledger | Self::FleetStatus => ["patch", "federatedhpas", "status"],
        }
    }
}

/// Whether the status is of the present spec.
fn is_reported(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}
