//! The outline of a status: what of it is worth a write when it changes. It writes nothing.

use foretide_crds::EffectiveHorizontalPodAutoscalerStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

/// The part of a status whose change is worth a write.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::controller) struct StatusFingerprint(EffectiveHorizontalPodAutoscalerStatus, Value);

// === impl StatusFingerprint ===

impl StatusFingerprint {
    pub(in crate::controller) fn of(status: &EffectiveHorizontalPodAutoscalerStatus) -> Self {
        let mut outline = status.clone();
        outline.history = None;
        outline.last_scale_time = None;
        if let Some(decision) = &mut outline.decision {
            decision.time = None;
            decision.message = None;
            for proposal in decision.proposals.iter_mut().flatten() {
                proposal.value = None;
                proposal.target = None;
                proposal.forecast = None;
            }
        }
        for condition in outline.conditions.iter_mut().flatten() {
            condition.message = String::new();
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        Self(outline, Value::Null)
    }

    /// The same of a status that has this besides.
    pub(in crate::controller) fn beside(self, more: Value) -> Self {
        Self(self.0, more)
    }
}
