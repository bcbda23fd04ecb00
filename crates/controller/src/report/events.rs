//! Events of an object: one for each change, and a warning for what went wrong, once for as long as it lasts.

use foretide_domain::{autoscale::ConditionKind, observation::Status, proposal::Reason};
use jiff::Timestamp;

use super::{
    ReportState,
    conditions::{INVALID_SPEC, TARGET_CONFLICT},
};
use crate::apply::{Applied, HpaChange};
use foretide_api::ports::EventNote;

/// The event about a condition while that is False.
#[derive(Debug)]
pub struct Warning {
    /// The type of the condition.
    pub condition: &'static str,
    /// The event; none while there is nothing to warn of.
    pub event: Option<EventNote>,
    /// True if what was warned of before is known to be over, which is not known of a forecast after a restart.
    pub is_over: bool,
}

/// The events of one sync: changes of HPAs and workloads, changes of the count, and warnings by `trouble`, the reason
/// why the object is not ready, and by the decision's conditions. `is_recounted` says that the count is of other
/// workloads than before.
pub fn of(
    state: &mut ReportState,
    applied: &Applied,
    trouble: Option<(&'static str, String)>,
    is_recounted: bool,
    now: Timestamp,
) -> Vec<EventNote> {
    let mut events = effect_events(applied);
    events.extend(state.changes.follow(applied, is_recounted, now));
    let warnings = warnings(applied, trouble);
    events.extend(warnings.filter_map(|warning| state.first_of(warning)));
    events
}

/// The events about changes of HPAs and workloads.
fn effect_events(applied: &Applied) -> Vec<EventNote> {
    let name = applied.child().map_or("", |child| &*child.name);
    let changes = applied.effect().into_iter().flat_map(|it| &it.changes);
    changes.map(|change| change.event(name)).collect()
}

/// The warnings that the conditions of a sync give: for each condition that has one, its event or none.
fn warnings(
    applied: &Applied,
    trouble: Option<(&'static str, String)>,
) -> impl Iterator<Item = Warning> {
    let not_ready = trouble.map(|(reason, note)| {
        let is_spec = [INVALID_SPEC, TARGET_CONFLICT].contains(&reason);
        warning(reason, if is_spec { "Decide" } else { "Scale" }, note)
    });
    let of_decision = [ConditionKind::PredictionReady, ConditionKind::CronReady].map(|kind| {
        let conditions = &applied.decided.decision.conditions;
        let own = conditions.iter().find(|own| own.kind == kind);
        // Nothing was lost where there is too little history yet, or no forecast yet.
        let nothing_lost = [Reason::InsufficientHistory, Reason::Pending].map(Reason::as_str);
        let failed = own
            .filter(|own| own.status == Status::False)
            .filter(|own| !nothing_lost.contains(&own.reason));
        Warning {
            condition: kind.as_str(),
            event: failed.map(|own| warning(own.reason, "Decide", own.message.clone())),
            is_over: own.is_some_and(|own| own.status == Status::True),
        }
    });
    let ready = Warning {
        condition: ConditionKind::Ready.as_str(),
        is_over: not_ready.is_none(),
        event: not_ready,
    };
    std::iter::once(ready).chain(of_decision)
}

pub const fn warning(reason: &'static str, action: &'static str, note: String) -> EventNote {
    EventNote {
        warning: true,
        reason,
        action,
        note,
    }
}

// === impl ReportState ===

impl ReportState {
    /// The warning about a condition, unless the last one had the same reason. A problem that returns is worth another
    /// event.
    pub fn first_of(&mut self, warning: Warning) -> Option<EventNote> {
        if warning.is_over {
            self.warned.remove(warning.condition);
        }
        let event = warning.event?;
        let before = (self.warned).insert(warning.condition, event.reason.to_owned());
        (before.as_deref() != Some(event.reason)).then_some(event)
    }
}

// === impl HpaChange ===

impl HpaChange {
    /// The event of the change; `name` is that of the HPA.
    pub fn event(self, name: &str) -> EventNote {
        let (reason, note) = match self {
            Self::Created => (
                "HPACreated",
                format!("created horizontalpodautoscaler {name}"),
            ),
            Self::Restored => (
                "HPARestored",
                format!("horizontalpodautoscaler {name} drifted from its spec; restored"),
            ),
            Self::Adopted => (
                "HPAAdopted",
                format!("took over horizontalpodautoscaler {name}"),
            ),
            Self::GivenBack => (
                "HPAGivenBack",
                "released the adopted horizontalpodautoscaler; restored as it was before adoption"
                    .to_owned(),
            ),
            Self::Removed => (
                "HPARemoved",
                "removed the child horizontalpodautoscaler".to_owned(),
            ),
            Self::Placed => ("WorkloadPlaced", "applied the hub's workload".to_owned()),
            Self::Displaced => ("WorkloadRemoved", "deleted the workload".to_owned()),
        };
        EventNote {
            warning: false,
            reason,
            action: "Delegate",
            note,
        }
    }
}
