//! The kinds of writes at which a leader is stopped: how each shows in objects and in the audit log.

use kube::core::GroupVersionKind;
use rig::AuditEvent;
use serde_json::{Value, json};

/// What a leader writes when objects change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    Scale,
    Status,
    /// An HPA in a member.
    NewHpa,
    /// The ledger of a fleet, before its members are written.
    Ledger,
    FleetStatus,
}

impl Write {
    /// The objects in which it shows.
    pub(super) fn kind(self) -> GroupVersionKind {
        let [group, version, kind] = match self {
            Self::Scale => ["apps", "v1", "Deployment"],
            Self::NewHpa => ["autoscaling", "v2", "HorizontalPodAutoscaler"],
            Self::Status => [
                "autoscaling.crane.io",
                "v1alpha1",
                "EffectiveHorizontalPodAutoscaler",
            ],
            Self::Ledger | Self::FleetStatus => {
                ["autoscaling.foretide.io", "v1alpha1", "FederatedHPA"]
            }
        };
        GroupVersionKind::gvk(group, version, kind)
    }

    /// Whether a changed object shows the write that follows a change to this count.
    pub(super) fn shows_in(self, object: &Value, count: i32) -> bool {
        let has_count = object["spec"]["maxReplicas"] == count;
        match self {
            Self::Scale => object["spec"]["replicas"] == count,
            Self::Status | Self::FleetStatus => has_count && is_reported(object),
            Self::Ledger => has_count && has_ledger(object) && !is_reported(object),
            Self::NewHpa => has_count,
        }
    }

    /// Whether an object has been written.
    pub(super) fn is_done_in(self, object: &Value) -> bool {
        match self {
            Self::Status | Self::FleetStatus => is_reported(object),
            Self::Ledger => has_ledger(object),
            Self::Scale | Self::NewHpa => true,
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
            Self::NewHpa => ["patch", "horizontalpodautoscalers", ""],
            Self::Status => ["patch", "effectivehorizontalpodautoscalers", "status"],
            Self::Ledger | Self::FleetStatus => ["patch", "federatedhpas", "status"],
        }
    }
}

/// The fields of a spec that allow this count only.
pub(super) fn counts_of(count: i32) -> Value {
    json!({ "minReplicas": count, "maxReplicas": count })
}

/// Whether the status is of the present spec.
fn is_reported(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

fn has_ledger(object: &Value) -> bool {
    object["status"]["ledger"].is_string()
}
