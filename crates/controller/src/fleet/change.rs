//! Changes of counts in a fleet's sync, for the log: one sentence for the fleet, and one for each member in which
//! bounds or replicas were written. What children do by themselves is in the logs of their own clusters.

use foretide_domain::{ReplicaBounds, Replicas};
use foretide_federate::MemberDecision;

use super::{apply::MemberApplied, decided::FleetDecided};
use crate::{apply::HpaChange, child_hpa::as_child};
use foretide_api::ports::HpaView;

/// The changes of one sync, if there are any. `desired` is the fleet's count as it was decided last; where the fleet
/// may not act, a new one changes nothing.
pub fn change<M>(
    fleet: &FleetDecided<M>,
    applied: &[MemberApplied],
    desired: &mut Option<Replicas>,
) -> Option<String> {
    let whole = fleet.whole_decision();
    let before = desired.replace(whole.desired).unwrap_or(whole.current);
    let item = &fleet.item;
    let acts = !item.fleet_spec().course.previewed && item.conflicts.older.is_none();
    let mut sentences = Vec::new();
    for applied in applied {
        let share = fleet.decision.member(&applied.plan.name);
        sentences.extend(share.and_then(|share| of_member(applied, share)));
    }
    let is_new = acts && before != whole.desired;
    (is_new || !sentences.is_empty()).then(|| {
        sentences.insert(0, whole.message());
        sentences.join("; ")
    })
}

/// The changes that were written in one member, and their reason.
fn of_member(applied: &MemberApplied, share: &MemberDecision) -> Option<String> {
    let effect = applied.outcome.as_ref().ok()?;
    let decided = applied.plan.decided.as_ref()?;
    let child = decided.acting_hpa();
    let before = child.map(|hpa| bounds(hpa)).unwrap_or_default();
    let mut ends = [HpaChange::Removed, HpaChange::GivenBack].into_iter();
    let after = match &effect.child {
        Some(child) => bounds(child),
        None if ends.any(|end| effect.changes.contains(&end)) => ReplicaBounds::default(),
        None => before,
    };
    let written = written(before, after, applied.scaled())?;
    let why = if share.action.writes() {
        let reason = share.reasons.first().map_or("", |reason| reason.as_str());
        format!("{reason}: {}", share.cause())
    } else {
        // The share is unchanged: what was written leads its child to where its metrics want it.
        decided.decision.message()
    };
    Some(format!("{}: {written}: {why}", share.name))
}

/// The bounds of an HPA.
fn bounds(hpa: &HpaView) -> ReplicaBounds {
    let child = as_child(hpa);
    ReplicaBounds::new(child.min, child.max)
}

/// The counts that differ, such as `minReplicas 8 -> 24, replicas 3 -> 5`; none if all of them are as they were.
fn written(
    before: ReplicaBounds,
    after: ReplicaBounds,
    scaled: Option<(Replicas, Replicas)>,
) -> Option<String> {
    let counts = [
        ("minReplicas", Some((before.min, after.min))),
        ("maxReplicas", Some((before.max, after.max))),
        ("replicas", scaled),
    ];
    let mut changed = Vec::new();
    for (what, counts) in counts {
        if let Some((from, to)) = counts.filter(|(from, to)| from != to) {
            changed.push(format!("{what} {from} -> {to}"));
        }
    }
    (!changed.is_empty()).then(|| changed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_listed_by_field_and_none_where_nothing_changed() {
        let n = Replicas::new;
        let (few, more) = (
            ReplicaBounds::new(n(1), n(4)),
            ReplicaBounds::new(n(2), n(4)),
        );
        for ((before, after), scaled, expected) in [
            ((few, few), None, None),
            ((few, few), Some((n(3), n(3))), None),
            ((few, more), None, Some("minReplicas 1 -> 2")),
            (
                (ReplicaBounds::default(), few),
                Some((n(0), n(1))),
                Some("minReplicas 0 -> 1, maxReplicas 0 -> 4, replicas 0 -> 1"),
            ),
        ] {
            assert_eq!(written(before, after, scaled).as_deref(), expected);
        }
    }
}
