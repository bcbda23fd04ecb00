//! What the owner of an object may want to hear about: one event per deed, none without a change.

use crate::{
    autoscaler::apply::{Applied, Deed, Effect},
    ports::{ClusterError, EventNote},
};

use super::conditions::failure;

pub(super) fn events(applied: &Applied) -> Vec<EventNote> {
    match &applied.outcome {
        Ok(effect) => effect_events(applied, effect),
        Err(ClusterError::Conflict { .. }) => Vec::new(),
        Err(error) => vec![EventNote {
            warning: true,
            reason: failure(applied),
            action: "Scale",
            note: error.to_string(),
        }],
    }
}

fn effect_events(applied: &Applied, effect: &Effect) -> Vec<EventNote> {
    let scaled = effect.scaled.map(|to| EventNote {
        warning: false,
        reason: "Scaled",
        action: "Scale",
        note: format!(
            "scaled from {} to {to}: {}",
            applied.planned.decision.current,
            applied.planned.decision.message()
        ),
    });
    let name = effect
        .child
        .as_ref()
        .map_or("", |child| child.name.as_str());
    let deeds = effect.deeds.iter().map(|deed| deed.event(name));
    deeds.chain(scaled).collect()
}

// === impl Deed ===

impl Deed {
    fn event(self, name: &str) -> EventNote {
        let (reason, note) = match self {
            Self::Created => (
                "HPACreated",
                format!("created horizontalpodautoscaler {name}"),
            ),
            Self::Restored => (
                "HPARestored",
                format!("horizontalpodautoscaler {name} was not as written; put right"),
            ),
            Self::Adopted => (
                "HPAAdopted",
                format!("took over horizontalpodautoscaler {name}"),
            ),
            Self::GivenBack => (
                "HPAGivenBack",
                "gave the adopted horizontalpodautoscaler back".to_owned(),
            ),
            Self::Removed => (
                "HPARemoved",
                "removed the child horizontalpodautoscaler".to_owned(),
            ),
        };
        EventNote {
            warning: false,
            reason,
            action: "Delegate",
            note,
        }
    }
}
