//! Conditions for writing the workload that the hub places to a member, and for removing it there. Pure.

use foretide_domain::Replicas;
use foretide_federate::{Action, MemberDecision};
use serde_json::Value;

use super::{observation::MemberObservation, state::MemberRecord, template::Template};
use foretide_api::ownership;

/// A workload that is to be written to one member.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The template to apply.
    pub template: Template,
    /// The count that a new workload starts with.
    pub start: Option<Replicas>,
    /// UID of the workload that it is applied to; absent if there is none.
    pub over: Option<String>,
}

// === impl Placement ===

impl Placement {
    /// The manifest, which is applied only to the workload that was seen, or only if there is none.
    ///
    /// The version does not matter: the status of a workload whose pods crash changes all the time, and a new template
    /// is what mends that.
    pub fn manifest(&self) -> Value {
        let manifest = &*self.template.manifest;
        let Some(uid) = &self.over else {
            return ownership::if_absent(manifest);
        };
        let mut manifest = manifest.clone();
        if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("uid".into(), uid.clone().into());
        }
        manifest
    }
}

/// The workload that is to be written to a member that has a share: where it is missing, or where another version was
/// written last.
pub fn placement(
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
    let (start, over) = match observed {
        MemberObservation::Unknown { .. } => return None,
        MemberObservation::Absent { .. } => (Some(decided.replicas.unwrap_or(decided.min)), None),
        // The hub is a member of this fleet, and this is the template itself.
        MemberObservation::Present(present)
            if present.observed.target.scale.uid == template.uid =>
        {
            return None;
        }
        MemberObservation::Present(_) if record.placed == Some(template.version) => return None,
        MemberObservation::Present(present) => {
            (None, Some(present.observed.target.scale.uid.clone()))
        }
    };
    Some(Placement {
        template: template.clone(),
        start,
        over,
    })
}

/// Identity of a workload that is to be deleted: drained, from the hub, and not the hub's own object.
pub fn removal(
    template: &Template,
    decided: &MemberDecision,
    observed: &MemberObservation,
) -> Option<String> {
    match observed {
        MemberObservation::Present(present) if decided.action == Action::Delete => {
            let uid = &present.observed.target.scale.uid;
            (*uid != template.uid && !present.foreign).then(|| uid.clone())
        }
        _ => None,
    }
}
