//! The reason in a member's status row: its present problem, or the reason of the last move of its share.
//!
//! A move is decided in one sync, and the next sync has no reason to report, but status still shows that of the move.
//! It is forgotten when the bounds are no longer those that it led to.

use foretide_crds::ClusterStatus;
use foretide_domain::{ReplicaBounds, Replicas};
use foretide_federate::{MemberDecision, Reason};

use foretide_api::member_reason::MemberReason;

/// Last move of one member, and its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastMove(Option<Moved>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Moved {
    /// The bounds that it led to.
    bounds: ReplicaBounds,
    reason: MemberReason,
}

// === impl LastMove ===

impl LastMove {
    /// The move that a status row shows.
    pub fn restored(cluster: &ClusterStatus) -> Self {
        let text = cluster.reason.as_deref().unwrap_or_default();
        // The notes may no longer be true.
        let reason = MemberReason::parse(text).with_notes([]);
        let has_changed = reason.names_a_change();
        let is_of_move = matches!(reason.reason(), Some(word) if is_move(word, has_changed));
        let bounds = bounds_of(cluster).filter(|_| is_of_move);
        Self(bounds.map(|bounds| Moved { bounds, reason }))
    }

    /// The reason to show with this decision.
    pub fn shown(&mut self, decided: &MemberDecision, is_previewed: bool) -> Option<MemberReason> {
        let bounds = ReplicaBounds::new(decided.min, decided.max);
        let (word, reason) = MemberReason::of(decided)?;
        let changes = (decided.before).is_some_and(|bounds| bounds.max != decided.max);
        if is_move(word, changes) {
            let reason = reason.clone();
            self.0 = Some(Moved { bounds, reason });
        }
        // A preview restores nothing.
        let is_uneventful = word == Reason::Steady || is_previewed && word == Reason::Restored;
        let last = self.0.as_ref().filter(|_| is_uneventful);
        match last.filter(|last| last.bounds == bounds) {
            Some(last) => Some(last.reason.clone()),
            None => Some(reason),
        }
    }
}

/// The bounds of a member as its status row shows them.
pub fn bounds_of(cluster: &ClusterStatus) -> Option<ReplicaBounds> {
    let [min, max] = [cluster.min?, cluster.max?].map(Replicas::from_i32);
    Some(ReplicaBounds::new(min, max))
}

/// True if a reason is that of a move, not of a state; `changes` says whether the maximum changes.
const fn is_move(reason: Reason, changes: bool) -> bool {
    match reason {
        Reason::Floor
        | Reason::Assigned
        | Reason::Landed
        | Reason::Relief
        | Reason::Saturated
        | Reason::Donor
        | Reason::FloorLifted
        | Reason::Starved
        | Reason::Optimized
        | Reason::ShrinkOrder
        | Reason::Slept
        | Reason::Woken => true,
        Reason::Blocked => changes,
        _ => false,
    }
}

#[cfg(test)]
pub mod tests {
    use foretide_federate::Action;

    use super::*;

    pub fn decided(reason: Reason, before: (u32, u32), after: (u32, u32)) -> MemberDecision {
        let n = Replicas::new;
        MemberDecision {
            name: "m1".to_owned(),
            action: if before == after {
                Action::Keep
            } else {
                Action::Update
            },
            min: n(after.0),
            max: n(after.1),
            before: Some(ReplicaBounds::new(n(before.0), n(before.1))),
            floor: n(0),
            replicas: None,
            hold: false,
            capacity: None,
            reasons: vec![reason],
            because: String::new(),
        }
    }

    #[test]
    fn a_move_is_shown_until_the_next_one_or_until_the_bounds_change() {
        use Reason::{Blocked, Donor, Foreign, Relief, Restored, Steady};
        let (a, b, c) = ((1, 6), (1, 8), (1, 5));
        let mut last = LastMove::default();
        for (reason, before, after, shown) in [
            (Steady, a, a, "Steady: nothing"),
            (Relief, a, b, "Relief: max 6 -> 8"),
            (Steady, b, b, "Relief: max 6 -> 8"),
            (Foreign, b, b, "Foreign: another"),
            (Blocked, b, b, "Blocked: its"),
            (Restored, c, b, "Restored: max 5 -> 8"),
            (Steady, b, b, "Relief: max 6 -> 8"),
            (Donor, b, a, "Donor: max 8 -> 6"),
            (Steady, a, a, "Donor: max 8 -> 6"),
            (Blocked, a, c, "Blocked: max 6 -> 5"),
            (Steady, c, c, "Blocked: max 6 -> 5"),
            (Steady, b, b, "Steady: nothing"),
        ] {
            let reason = last.shown(&decided(reason, before, after), false).unwrap();
            let text = reason.to_string();
            assert!(text.starts_with(shown), "{text}, expected {shown}");
        }
        let shown = last.shown(&decided(Reason::Assigned, a, b), true);
        let still = last.shown(&decided(Restored, b, b), true);
        assert_eq!(shown, still, "a preview corrects no drift");
    }

    #[test]
    fn a_restart_knows_the_last_move_and_no_state() {
        let cluster = |reason: &str| ClusterStatus {
            name: "m1".to_owned(),
            min: Some(1),
            max: Some(8),
            reason: Some(reason.to_owned()),
            ..ClusterStatus::default()
        };
        for (reason, kept) in [
            ("Relief: max 6 -> 8: m2 has no capacity", true),
            ("Blocked: max 9 -> 8: 1 pod unschedulable", true),
            ("Blocked: 1 pod unschedulable", false),
            ("Unknown: no answer", false),
            ("Steady: nothing to change", false),
            ("", false),
        ] {
            let mut last = LastMove::restored(&cluster(&format!("{reason}. Not ready")));
            let shown = last.shown(&decided(Reason::Steady, (1, 8), (1, 8)), false);
            assert_eq!(
                shown.unwrap().to_string() == reason,
                kept || reason.starts_with("Steady"),
                "{reason}"
            );
        }
    }
}
