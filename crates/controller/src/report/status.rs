//! The status of an autoscaler after a sync: pure rendering.

use foretide_crds::EffectiveHorizontalPodAutoscalerStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{
    apply::Applied,
    target::{self, TargetState},
};
use foretide_api::status::{decision_status, window_status};

/// The status after a decision was carried out, or not.
pub fn status(
    state: &TargetState,
    applied: &Applied,
    conditions: Vec<Condition>,
) -> EffectiveHorizontalPodAutoscalerStatus {
    let decision = &applied.decided.decision;
    let effect = applied.outcome.as_ref().ok();
    let scaled = effect.and_then(|effect| effect.scaled);
    let child = effect.and_then(|effect| effect.child.as_ref());
    let by_child = child.and_then(|child| child.last_scale);
    EffectiveHorizontalPodAutoscalerStatus {
        expect_replicas: Some(decision.desired.as_i32()),
        current_replicas: Some(scaled.unwrap_or(decision.current).as_i32()),
        last_scale_time: state.last_scale.max(by_child).map(Time),
        conditions: Some(conditions),
        observed_generation: applied.decided.part.autoscaler.generation(),
        decision: Some(decision_status(decision)),
        windows: (!decision.windows.is_empty()).then(|| window_status(decision)),
        history: Some(target::kept(&state.history)),
        // The changes are the object's, not the target's.
        changes: None,
    }
}
