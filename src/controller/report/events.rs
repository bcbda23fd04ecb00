//! Events of an object: one for each change, and a warning for what went wrong, once for as long as it lasts.

use crate::{
    api::validation::Invalid,
    controller::apply::{Applied, Effect, HpaChange},
    ports::{ClusterError, EventNote},
};

use super::conditions::{EXTERNAL_WRITER, INVALID_SPEC, failure, kept_in_force};

pub(super) fn events(applied: &Applied) -> Vec<EventNote> {
    let effect = applied.outcome.as_ref().ok();
    effect.map_or_else(Vec::new, |effect| effect_events(applied, effect))
}

/// What went wrong, if anything did: a write that was not accepted, or a spec that cannot be acted on.
pub(super) fn warning(applied: &Applied, invalid: Option<&Invalid>) -> Option<EventNote> {
    let warning = |reason, action, note| EventNote {
        warning: true,
        reason,
        action,
        note,
    };
    match &applied.outcome {
        Err(ClusterError::Conflict { .. }) | Ok(_) => {
            let invalid =
                invalid.map(|invalid| warning(INVALID_SPEC, "Decide", kept_in_force(invalid)));
            let foreign = applied.decided.replica_conflict.clone();
            invalid.or_else(|| foreign.map(|note| warning(EXTERNAL_WRITER, "Scale", note)))
        }
        Err(error) => Some(warning(failure(applied), "Scale", error.to_string())),
    }
}

fn effect_events(applied: &Applied, effect: &Effect) -> Vec<EventNote> {
    let scaled = effect.scaled.map(|to| EventNote {
        warning: false,
        reason: "Scaled",
        action: "Scale",
        note: format!(
            "scaled from {} to {to}: {}",
            applied.decided.decision.current,
            applied.decided.decision.message()
        ),
    });
    let name = effect
        .child
        .as_ref()
        .map_or("", |child| child.name.as_str());
    let changes = effect.changes.iter();
    let changes = changes.filter_map(|change| change.event(name));
    changes.chain(scaled).collect()
}

// === impl HpaChange ===

impl HpaChange {
    /// Its event, if it has one; `name` is that of the HPA.
    pub(in crate::controller) fn event(self, name: &str) -> Option<EventNote> {
        let (reason, note) = match self {
            // The user changed the spec and knows.
            Self::Updated => return None,
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
        Some(EventNote {
            warning: false,
            reason,
            action: "Delegate",
            note,
        })
    }
}
