//! Events of an object: one for each change, and a warning for what went wrong, once for as long as it lasts.

use foretide_domain::{autoscale::ConditionKind, observation::Status, proposal::Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::conditions::{self, INVALID_SPEC, TARGET_CONFLICT};
use crate::apply::{Applied, Effect, HpaChange};
use foretide_api::ports::EventNote;
use foretide_api::validation::Invalid;

/// The event about a condition while that is False.
pub struct Warning {
    /// The type of the condition.
    pub condition: &'static str,
    /// The event; none while there is nothing to warn of.
    pub event: Option<EventNote>,
    /// True if what was warned of before is known to be over, which is not known of a forecast after a restart.
    pub is_over: bool,
}

/// Events about changes of HPAs and workloads.
pub fn events(applied: &Applied) -> Vec<EventNote> {
    let effect = applied.outcome.as_ref().ok();
    effect.map_or_else(Vec::new, effect_events)
}

/// The warnings that the conditions of a sync give: for each condition that has one, its event or none. `more` are the
/// conditions that only this kind of object has.
pub fn warnings(
    applied: &Applied,
    invalid: Option<&Invalid>,
    more: &[Condition],
) -> impl Iterator<Item = Warning> {
    let contested = more
        .iter()
        .find(|known| known.reason == TARGET_CONFLICT)
        .map(|known| (TARGET_CONFLICT, known.message.clone()));
    let trouble = conditions::trouble(applied, invalid).or(contested);
    let not_ready = trouble.map(|(reason, note)| {
        let is_spec = [INVALID_SPEC, TARGET_CONFLICT].contains(&reason);
        warning(reason, if is_spec { "Decide" } else { "Scale" }, note)
    });
    let of_decision = [ConditionKind::PredictionReady, ConditionKind::CronReady].map(|kind| {
        let mut conditions = applied.decided.decision.conditions.iter();
        let own = conditions.find(|own| own.kind == kind);
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

fn effect_events(effect: &Effect) -> Vec<EventNote> {
    let name = effect
        .child
        .as_ref()
        .map_or("", |child| child.name.as_str());
    let changes = effect.changes.iter();
    changes.map(|change| change.event(name)).collect()
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
