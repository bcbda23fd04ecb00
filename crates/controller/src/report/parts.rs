//! Parts of the report of one object, which are all computed before the first is written.

use foretide_crds::EffectiveHorizontalPodAutoscalerStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{Extras, ReportInput, conditions, events};
use crate::{
    apply::Applied,
    target::{self, TargetState},
};
use foretide_api::ports::EventNote;
use foretide_api::{
    autoscaler::Status,
    status::{decision_status, window_status},
};

/// Parts of the report of one object.
#[derive(Debug)]
pub struct Parts {
    /// The status as it is now.
    pub status: Status,
    /// The events, in the order in which they happened.
    pub events: Vec<EventNote>,
    /// True if others read forecasts, cron windows or floor from the status.
    pub publishes: bool,
}

// === impl Parts ===

impl Parts {
    /// The parts after a decision was carried out, or not.
    pub fn of(
        input: &mut ReportInput<'_>,
        applied: &Applied,
        mut extras: Extras,
        now: Timestamp,
    ) -> Self {
        let shown = conditions::of(applied, input.invalid, extras.conditions, now);
        let is_recounted = extras.is_recounted;
        let events = events::of(input.state, applied, shown.trouble, is_recounted, now);
        extras.events.extend(events);
        Self {
            status: Status {
                common: EffectiveHorizontalPodAutoscalerStatus {
                    changes: input.state.changes.status(),
                    ..status(input.target, applied, shown.all)
                },
                fleet: extras.status,
            },
            events: extras.events,
            publishes: applied.decided.publishes,
        }
    }
}

/// The status after a decision was carried out, or not.
fn status(
    state: &TargetState,
    applied: &Applied,
    conditions: Vec<Condition>,
) -> EffectiveHorizontalPodAutoscalerStatus {
    let decision = &applied.decided.decision;
    let by_child = applied.child().and_then(|child| child.last_scale);
    EffectiveHorizontalPodAutoscalerStatus {
        expect_replicas: Some(decision.desired.as_i32()),
        current_replicas: Some(applied.count().as_i32()),
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
