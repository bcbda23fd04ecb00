//! The kinds of writes at which a leader is stopped: how each shows in objects and in the audit log.

use kube::core::GroupVersionKind;
use rig::AuditEvent;
use serde_json::Value;

/// What a leader writes when objects change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    Scale,
    Status,
    /// A new HPA in a member.
    Hpa,
    /// The ledger of a fleet, before its members are written.
    Ledger,
}

impl Write {
    /// The objects in which it shows.
    pub(super) fn kind(self) -> GroupVersionKind {
        let [group, version, kind] = match self {
            Self::Scale => ["apps", "v1", "Deployment"],
            Self::Hpa => ["autoscaling", "v2", "HorizontalPodAutoscaler"],
            Self::Status => [
                "autoscaling.crane.io",
                "v1alpha1",
                "EffectiveHorizontalPodAutoscaler",
            ],
            Self::Ledger => ["autoscaling.foretide.io", "v1alpha1", "FederatedHPA"],
        };
        GroupVersionKind::gvk(group, version, kind)
    }

    /// Whether a changed object shows the write that follows a change to this count.
    pub(super) fn shows_in(self, object: &Value, count: i32) -> bool {
        let has_count = object["spec"]["maxReplicas"] == count;
        match self {
            Self::Scale => object["spec"]["replicas"] == count,
            Self::Status => has_count && is_reported(object),
            Self::Ledger => {
                has_count && object["status"]["ledger"].is_string() && !is_reported(object)
            }
            Self::Hpa => has_count,
        }
    }

    /// Fails unless the old leader had written some of this kind, and not all: then it had more to write.
    pub(super) fn assert_unfinished(self, of_old: &[AuditEvent], all: usize) {
        let [verb, resource, subresource] = self.request();
        let is_of_kind = |event: &&AuditEvent| {
            [&*event.verb, &event.resource, &event.subresource] == [verb, resource, subresource]
        };
        let written = of_old.iter().filter(is_of_kind).count();
        assert!(
            (1..all).contains(&written),
            "{self:?}: the old leader wrote {written} of {all}"
        );
    }

    const fn request(self) -> [&'static str; 3] {
        match self {
            Self::Scale => ["patch", "deployments", "scale"],
            Self::Hpa => ["patch", "horizontalpodautoscalers", ""],
            Self::Status => ["patch", "effectivehorizontalpodautoscalers", "status"],
            Self::Ledger => ["patch", "federatedhpas", "status"],
        }
    }
}

/// Whether the status is of the present spec.
pub(super) fn is_reported(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}
