//! What the owner of a fleet may want to hear about: what was done in members, who was lost, and what was moved. It refuses
//! to repeat what a status says all the time.

use std::collections::BTreeMap;

use super::{Planned, apply::Done, state::MemberRecord};
use crate::{
    domain::federate::{Action, MemberDecision},
    ports::EventNote,
};

/// What became of one sync: deeds in members, members that were lost or came back, and what was moved.
pub(super) fn events<M>(
    planned: &Planned<M>,
    done: &[Done],
    memories: &mut BTreeMap<String, MemberRecord>,
) -> Vec<EventNote> {
    let mut events: Vec<EventNote> = done.iter().flat_map(deeds).collect();
    let lost = planned.observed.iter().filter_map(|member| {
        let memory = memories.get_mut(&member.profile.name)?;
        let is_lost = memory.is_lost(member.health, planned.decision.at);
        let was_lost = std::mem::replace(&mut memory.lost, is_lost);
        let seen = planned.seen.members.get(&member.profile.name)?;
        let name = &member.profile.name;
        let problem = seen.problem().unwrap_or("it does not answer");
        (is_lost != was_lost).then(|| gone_or_back(name, is_lost.then_some(problem)))
    });
    events.extend(lost);
    if planned.due.is_previewed() {
        return events;
    }
    let moved = planned.decision.members.iter().filter_map(moved);
    events.extend(moved);
    events
}

fn gone_or_back(member: &str, problem: Option<&str>) -> EventNote {
    let (reason, note) = match problem {
        Some(why) => (
            "MemberLost",
            format!("member {member} cannot be seen, so it keeps what it has: {why}"),
        ),
        None => ("MemberBack", format!("member {member} can be seen again")),
    };
    EventNote {
        warning: problem.is_some(),
        reason,
        action: "Observe",
        note,
    }
}

/// Budget that moved, and members that fall asleep or wake.
fn moved(decided: &MemberDecision) -> Option<EventNote> {
    let (_, before) = decided.before?;
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

fn deeds(done: &Done) -> Vec<EventNote> {
    let Ok(effect) = &done.outcome else {
        return Vec::new();
    };
    let child = effect.child.as_ref().map_or("", |child| &*child.name);
    let deeds = effect.deeds.iter().filter_map(|deed| deed.event(child));
    let scaled = done.scaled().map(|(before, to)| EventNote {
        warning: false,
        reason: "Scaled",
        action: "Scale",
        note: format!("scaled from {before} to {to}"),
    });
    let in_member = |event: EventNote| EventNote {
        note: format!("{} in member {}", event.note, done.part.name),
        ..event
    };
    let told = deeds.chain(scaled).chain(not_copied(done));
    told.map(in_member).collect()
}

/// What a new workload refers to has to be there as well, and others see to that.
fn not_copied(done: &Done) -> Option<EventNote> {
    let placing = done.part.placing.as_ref()?;
    let references = &placing.template.references;
    (placing.start.is_some() && !references.is_empty()).then(|| {
        let names: Vec<_> = references.iter().map(String::as_str).collect();
        EventNote {
            warning: false,
            reason: "ReferencesNotCopied",
            action: "Place",
            note: format!(
                "the workload refers to {}, which are not copied",
                names.join(", ")
            ),
        }
    })
}
