//! When the workload that the hub places is written to a member, and when it is removed there. Pure.

use foretide_domain::{
    Replicas,
    federate::{Action, MemberDecision},
};

use super::{observe::MemberObservation, state::MemberRecord, template::Template};

/// A workload that is to be written to one member.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placement {
    /// What to apply.
    pub(super) template: Template,
    /// The count that a new workload starts with.
    pub(super) start: Option<Replicas>,
}

/// The workload that is to be written to a member that has a share: where it is missing, or where another version was
/// written last.
pub(super) fn placement(
    template: &Template,
    decided: &MemberDecision,
    observed: &MemberObservation,
    record: &MemberRecord,
) -> Option<Placement> {
    let leaves = matches!(
        decided.action,
        Action::Hold | Action::Drain | Action::Delete
    );
    if leaves || decided.max == Replicas::ZERO {
        return None;
    }
    let start = match observed {
        MemberObservation::Unknown { .. } => return None,
        MemberObservation::Absent { .. } => Some(decided.replicas.unwrap_or(decided.min)),
        // The hub is a member of this fleet, and this is the template itself.
        MemberObservation::Present(present) if present.observed.scale.uid == template.uid => {
            return None;
        }
        MemberObservation::Present(_) if record.placed == Some(template.version) => return None,
        MemberObservation::Present(_) => None,
    };
    Some(Placement {
        template: template.clone(),
        start,
    })
}

/// Identity of a workload that is to be deleted: drained, from the hub, and not the hub's own object.
pub(super) fn removal(
    template: &Template,
    decided: &MemberDecision,
    observed: &MemberObservation,
) -> Option<String> {
    match observed {
        MemberObservation::Present(present) if decided.action == Action::Delete => {
            let uid = &present.observed.scale.uid;
            (*uid != template.uid && !present.foreign).then(|| uid.clone())
        }
        _ => None,
    }
}
