//! Events of a fleet: what was done in members, which were lost or came back, and which shares were moved. A state that
//! lasts is in status, not in an event.

use std::collections::BTreeMap;

use foretide_federate::{Action, MemberDecision};

use super::{apply::MemberApplied, decided::FleetDecided, state::MemberRecord};
use foretide_api::ports::EventNote;

/// The events of one sync.
pub fn events<M>(
    fleet: &FleetDecided<M>,
    applied: &[MemberApplied],
    records: &mut BTreeMap<String, MemberRecord>,
) -> Vec<EventNote> {
    let mut events: Vec<EventNote> = applied.iter().flat_map(changes).collect();
    let lost = fleet.members.iter().filter_map(|member| {
        let name = &member.profile.name;
        let record = records.get_mut(name)?;
        let is_lost = record.is_lost(member.health, fleet.decision.at);
        let was_lost = std::mem::replace(&mut record.lost, is_lost);
        let problem = fleet.observed.members.get(name)?.problem();
        let problem = problem.unwrap_or("no answer");
        (is_lost != was_lost).then(|| lost_or_back(name, is_lost.then_some(problem)))
    });
    events.extend(lost);
    // In Preview no share is written.
    if !fleet.item.fleet_spec().course.previewed {
        events.extend(fleet.decision.members.iter().filter_map(moved));
    }
    events
}

fn lost_or_back(member: &str, problem: Option<&str>) -> EventNote {
    let (reason, note) = match problem {
        Some(why) => (
            "MemberLost",
            format!(
                "member {member} cannot be observed: {why}; its share and bounds stay unchanged"
            ),
        ),
        None => (
            "MemberBack",
            format!("member {member} can be observed again"),
        ),
    };
    EventNote {
        warning: problem.is_some(),
        reason,
        action: "Observe",
        note,
    }
}

/// Shares that moved, and members that were put to sleep or woken.
fn moved(decided: &MemberDecision) -> Option<EventNote> {
    let before = decided.before?.max;
    let sleeps = matches!(decided.action, Action::Wake | Action::Sleep | Action::Drain);
    let transferred = decided.action.writes() && before != decided.max;
    let reason = decided.reasons.first()?.as_str();
    (sleeps || transferred).then(|| EventNote {
        warning: false,
        reason,
        action: "Divide",
        note: format!("member {}: {}", decided.name, decided.sentence()),
    })
}

fn changes(applied: &MemberApplied) -> Vec<EventNote> {
    let Ok(effect) = &applied.outcome else {
        return Vec::new();
    };
    let child = effect.child.as_ref().map_or("", |child| &*child.name);
    let changes = effect.changes.iter().map(|change| change.event(child));
    let scaled = applied.scaled().map(|(before, to)| EventNote {
        warning: false,
        reason: "Scaled",
        action: "Scale",
        note: format!("scaled from {before} to {to}"),
    });
    let mut events: Vec<_> = changes.chain(scaled).chain(not_copied(applied)).collect();
    for event in &mut events {
        event.note = format!("{} in member {}", event.note, applied.plan.name);
    }
    events
}

/// The objects that a new workload refers to must exist in the member; they are not copied.
fn not_copied(applied: &MemberApplied) -> Option<EventNote> {
    let placement = applied.plan.placement.as_ref()?;
    placement.start?;
    let names = placement.template.reference_names()?;
    Some(EventNote {
        warning: false,
        reason: "ReferencesNotCopied",
        action: "Place",
        note: format!("the workload refers to {names}, which are not copied"),
    })
}
