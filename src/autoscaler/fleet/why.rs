//! Why a member has what it has, as status says it: what is the matter now, or else why it was moved last.
//!
//! A move is decided in one sync, and nothing is the matter in the next; whoever looks then wants to know about the move.
//! It refuses to remember what is not true any more: bounds that differ from those that a reason led to.

use foretide_crds::ClusterStatus;

use crate::domain::{
    Replicas,
    federate::{MemberDecision, Reason},
};

/// What separates the word from the sentence.
const COLON: &str = ": ";

/// Why one member was moved last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Why(Option<Moved>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Moved {
    /// The bounds that it led to.
    bounds: (Replicas, Replicas),
    /// The word and the sentence.
    text: String,
}

// === impl Why ===

impl Why {
    /// What a status remembers.
    pub(super) fn remembered(cluster: &ClusterStatus) -> Self {
        let text = cluster.reason.clone().unwrap_or_default();
        let word = text.split(COLON).next().unwrap_or_default();
        let reason = Reason::ALL.iter().find(|reason| reason.as_str() == word);
        let count = |n: Option<i32>| n.map(Replicas::from_i32);
        let bounds = count(cluster.min).zip(count(cluster.max));
        let moved = reason.is_some_and(|reason| is_move(*reason, text.contains("->")));
        Self(
            bounds
                .filter(|_| moved)
                .map(|bounds| Moved { bounds, text }),
        )
    }

    /// The reason to show with this decision.
    pub(super) fn told(&mut self, decided: &MemberDecision, is_previewed: bool) -> String {
        let bounds = (decided.min, decided.max);
        let Some(reason) = decided.reasons.first().copied() else {
            return String::new();
        };
        let text = format!("{}{COLON}{}", reason.as_str(), decided.sentence());
        let changes = decided.before.is_some_and(|(_, max)| max != decided.max);
        if is_move(reason, changes) {
            let text = text.clone();
            self.0 = Some(Moved { bounds, text });
        }
        // Nobody brings back what is only shown.
        let nothing = reason == Reason::Steady || is_previewed && reason == Reason::Restored;
        let last = self.0.as_ref().filter(|last| last.bounds == bounds);
        match last.filter(|_| nothing) {
            Some(last) => last.text.clone(),
            None => text,
        }
    }
}

/// Whether a reason is that of a move, and not of how things stand; `changes` says whether a maximum does.
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
mod tests {
    use super::*;
    use crate::domain::federate::Action;

    fn decided(reason: Reason, before: (u32, u32), after: (u32, u32)) -> MemberDecision {
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
            before: Some((n(before.0), n(before.1))),
            floor: n(0),
            replicas: None,
            hold: false,
            capacity: None,
            reasons: vec![reason],
            because: String::new(),
        }
    }

    #[test]
    fn a_move_is_told_until_the_next_one_or_until_it_is_not_so_any_more() {
        use Reason::{Blocked, Donor, Foreign, Relief, Restored, Steady};
        let (a, b, c) = ((1, 6), (1, 8), (1, 5));
        let mut why = Why::default();
        for (reason, before, after, shown) in [
            (Steady, a, a, "Steady: nothing"),
            (Relief, a, b, "Relief: max 6 -> 8"),
            (Steady, b, b, "Relief: max 6 -> 8"),
            (Foreign, b, b, "Foreign: somebody"),
            (Blocked, b, b, "Blocked: its"),
            (Restored, c, b, "Restored: max 5 -> 8"),
            (Steady, b, b, "Relief: max 6 -> 8"),
            (Donor, b, a, "Donor: max 8 -> 6"),
            (Steady, a, a, "Donor: max 8 -> 6"),
            (Blocked, a, c, "Blocked: max 6 -> 5"),
            (Steady, c, c, "Blocked: max 6 -> 5"),
            (Steady, b, b, "Steady: nothing"),
        ] {
            let text = why.told(&decided(reason, before, after), false);
            assert!(text.starts_with(shown), "{text}, expected {shown}");
        }
        let shown = why.told(&decided(Reason::Assigned, a, b), true);
        let still = why.told(&decided(Restored, b, b), true);
        assert_eq!(shown, still, "a preview brings nothing back");
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
            ("Relief: max 6 -> 8: m2 has no room", true),
            ("Blocked: max 9 -> 8: 1 pod unschedulable", true),
            ("Blocked: 1 pod unschedulable", false),
            ("Unknown: it does not answer", false),
            ("Steady: nothing to change", false),
            ("", false),
        ] {
            let mut why = Why::remembered(&cluster(reason));
            let shown = why.told(&decided(Reason::Steady, (1, 8), (1, 8)), false);
            assert_eq!(
                shown == reason,
                kept || reason.starts_with("Steady"),
                "{reason}"
            );
        }
    }
}
