//! When the workload that the hub places is written to a member, and when it is removed there. Pure. It
//! refuses to say who has a share.

use super::{observe::MemberObservation, state::MemberRecord, template::Template};
use crate::domain::{
    Replicas,
    federate::{Action, MemberDecision},
};

/// What is to be written of a workload in one member.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placing {
    /// What to apply.
    pub(super) template: Template,
    /// The count that a new workload starts with.
    pub(super) start: Option<Replicas>,
}

/// What is to be written of the workload in a member that has a share: all of it where it is missing, or where
/// another version was written last.
pub(super) fn placing(
    template: &Template,
    decided: &MemberDecision,
    sight: &MemberObservation,
    memory: &MemberRecord,
) -> Option<Placing> {
    let leaves = matches!(
        decided.action,
        Action::Skip | Action::Drain | Action::Delete
    );
    if leaves || decided.max == Replicas::ZERO {
        return None;
    }
    let start = match sight {
        MemberObservation::Unknown { .. } => return None,
        MemberObservation::Absent { .. } => Some(decided.replicas.unwrap_or(decided.min)),
        MemberObservation::Whole(whole) if whole.sighting.scale.uid == template.uid => return None,
        MemberObservation::Whole(_) if memory.placed == Some(template.version) => return None,
        MemberObservation::Whole(_) => None,
    };
    Some(Placing {
        template: template.clone(),
        start,
    })
}

/// Identity of a workload that is to be deleted: drained, from the hub, and not the hub's own object.
pub(super) fn removing(
    template: &Template,
    decided: &MemberDecision,
    sight: &MemberObservation,
) -> Option<String> {
    match sight {
        MemberObservation::Whole(whole) if decided.action == Action::Delete => {
            let uid = &whole.sighting.scale.uid;
            (*uid != template.uid && !whole.foreign).then(|| uid.clone())
        }
        _ => None,
    }
}
