//! What of a fleet's sync changed a count, for the log: one sentence for the fleet, and one for each member in which bounds
//! or replicas were written. It refuses to tell what children do by themselves: their own cluster has that.

use super::{Planned, apply::Done};
use crate::{
    controller::{apply::HpaChange, child_hpa::as_child},
    domain::{Replicas, federate::MemberDecision},
};

/// Bounds of an autoscaler; zero where there is none.
type Bounds = (Replicas, Replicas);

/// What changed, if anything did. `told` is the fleet's count as it was decided last; where nobody shall act a new one
/// is none of ours.
pub(super) fn change<M>(
    planned: &Planned<M>,
    done: &[Done],
    told: &mut Option<Replicas>,
) -> Option<String> {
    let whole = &planned.hub.planned.decision;
    let before = told.replace(whole.desired).unwrap_or(whole.current);
    let due = &planned.due;
    let acts = !due.is_previewed() && due.rivals.older.is_none();
    let members = done.iter().filter_map(|done| {
        let decided = planned.decision.member(&done.part.name)?;
        of_member(done, decided)
    });
    let members: Vec<_> = members.collect();
    let is_new = acts && before != whole.desired;
    (is_new || !members.is_empty()).then(|| {
        let parts = std::iter::once(whole.message()).chain(members);
        parts.collect::<Vec<_>>().join("; ")
    })
}

/// What was written in one member, and why.
fn of_member(done: &Done, decided: &MemberDecision) -> Option<String> {
    let effect = done.outcome.as_ref().ok()?;
    let planned = done.part.planned.as_ref()?;
    let bounds = |hpa: &_| {
        let child = as_child(hpa);
        (child.min, child.max)
    };
    let stood = planned.sighting.siblings.acting();
    let before = stood.map(|hpa| bounds(hpa)).unwrap_or_default();
    let is_gone = |deed: &HpaChange| matches!(deed, HpaChange::Removed | HpaChange::GivenBack);
    let after = match &effect.child {
        Some(child) => bounds(child),
        None if effect.deeds.iter().any(is_gone) => Bounds::default(),
        None => before,
    };
    let written = written((before, after), done.scaled())?;
    let why = if decided.action.writes() {
        let reason = decided.reasons.first().map_or("", |reason| reason.as_str());
        format!("{reason}: {}", decided.cause())
    } else {
        // Its share stands: what was written is how its own autoscaler gets to where its metrics want it.
        planned.decision.message()
    };
    Some(format!("{}: {written}: {why}", decided.name))
}

/// The counts that differ, such as `minReplicas 8 -> 24, replicas 3 -> 5`; none if all of them are as they were.
fn written(
    (before, after): (Bounds, Bounds),
    scaled: Option<(Replicas, Replicas)>,
) -> Option<String> {
    let counts = [
        ("minReplicas", Some((before.0, after.0))),
        ("maxReplicas", Some((before.1, after.1))),
        ("replicas", scaled),
    ];
    let changed = counts.into_iter().filter_map(|(what, counts)| {
        let (from, to) = counts.filter(|(from, to)| from != to)?;
        Some(format!("{what} {from} -> {to}"))
    });
    let changed: Vec<_> = changed.collect();
    (!changed.is_empty()).then(|| changed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_told_by_field_and_nothing_where_nothing_was() {
        let n = Replicas::new;
        let (few, more) = ((n(1), n(4)), (n(2), n(4)));
        for (bounds, scaled, expected) in [
            ((few, few), None, None),
            ((few, few), Some((n(3), n(3))), None),
            ((few, more), None, Some("minReplicas 1 -> 2")),
            (
                (Bounds::default(), few),
                Some((n(0), n(1))),
                Some("minReplicas 0 -> 1, maxReplicas 0 -> 4, replicas 0 -> 1"),
            ),
        ] {
            assert_eq!(written(bounds, scaled).as_deref(), expected);
        }
    }
}
