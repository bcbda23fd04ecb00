//! The reason in a member's status row: its present problem, or why its share was moved last.
//!
//! A move is decided in one sync, and the next sync has no reason to report, but status still shows that of the move.
//! It is forgotten when the bounds are no longer those that it led to.

use foretide_crds::ClusterStatus;
use foretide_domain::{
    ReplicaBounds, Replicas,
    federate::{MemberDecision, Reason},
};

/// What separates the word from the sentence.
const COLON: &str = ": ";

/// What separates the sentence from the notes.
const FULL_STOP: &str = ". ";

/// The reason that [`LastMove::shown`] gives, followed by `notes` on the member.
pub(super) fn with_notes(mut reason: String, notes: impl IntoIterator<Item = String>) -> String {
    for note in notes {
        reason.push_str(FULL_STOP);
        reason.push_str(&note);
    }
    reason
}

/// The part of a reason whose change is worth a write: the word, the problem if the member is unavailable, and the
/// notes; not the numbers in a sentence, nor the error text of a server.
pub(in crate::controller) fn gist(reason: &str) -> String {
    let (word, sentence) = reason.split_once(COLON).unwrap_or((reason, ""));
    let clause = |text: &str| text.split(COLON).next().unwrap_or_default().to_owned();
    let is_unavailable = [Reason::Unknown, Reason::Failed]
        .iter()
        .any(|reason| reason.as_str() == word);
    let why = if is_unavailable {
        clause(sentence)
    } else {
        String::new()
    };
    let notes = sentence.split(FULL_STOP).skip(1).map(clause);
    let parts = [word.to_owned(), why].into_iter().chain(notes);
    parts.collect::<Vec<_>>().join(COLON)
}

/// Why one member was moved last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LastMove(Option<Moved>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Moved {
    /// The bounds that it led to.
    bounds: ReplicaBounds,
    /// The word and the sentence.
    text: String,
}

// === impl LastMove ===

impl LastMove {
    /// What a status row says.
    pub(super) fn restored(cluster: &ClusterStatus) -> Self {
        let reason = cluster.reason.as_deref().unwrap_or_default();
        // The notes may no longer be true.
        let text = reason
            .split(FULL_STOP)
            .next()
            .unwrap_or_default()
            .to_owned();
        let word = text.split(COLON).next().unwrap_or_default();
        let reason = Reason::ALL.iter().find(|reason| reason.as_str() == word);
        let count = |n: Option<i32>| n.map(Replicas::from_i32);
        let bounds = count(cluster.min).zip(count(cluster.max));
        // A status does not have the former bounds, but the sentence has an arrow where they changed.
        let has_changed = text.contains("->");
        let is_of_move = reason.is_some_and(|reason| is_move(*reason, has_changed));
        let moved = bounds.filter(|_| is_of_move).map(|(min, max)| Moved {
            bounds: ReplicaBounds::new(min, max),
            text,
        });
        Self(moved)
    }

    /// The reason to show with this decision.
    pub(super) fn shown(&mut self, decided: &MemberDecision, is_previewed: bool) -> String {
        let bounds = ReplicaBounds::new(decided.min, decided.max);
        let Some(reason) = decided.reasons.first().copied() else {
            return String::new();
        };
        let text = format!("{}{COLON}{}", reason.as_str(), decided.sentence());
        let changes = decided
            .before
            .is_some_and(|bounds| bounds.max != decided.max);
        if is_move(reason, changes) {
            let text = text.clone();
            self.0 = Some(Moved { bounds, text });
        }
        // A preview restores nothing.
        let is_uneventful = reason == Reason::Steady || is_previewed && reason == Reason::Restored;
        let last = self.0.as_ref().filter(|last| last.bounds == bounds);
        match last.filter(|_| is_uneventful) {
            Some(last) => last.text.clone(),
            None => text,
        }
    }
}

/// Whether a reason is that of a move, not of a state; `changes` says whether the maximum changes.
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
    use foretide_domain::federate::Action;

    use super::*;

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
            let text = last.shown(&decided(reason, before, after), false);
            assert!(text.starts_with(shown), "{text}, expected {shown}");
        }
        let shown = last.shown(&decided(Reason::Assigned, a, b), true);
        let still = last.shown(&decided(Restored, b, b), true);
        assert_eq!(shown, still, "a preview corrects no drift");
    }

    #[test]
    fn a_change_of_what_is_wrong_is_worth_a_write_and_one_of_numbers_is_not() {
        for (one, other, same) in [
            ("Blocked: 2 pods for 75 s", "Blocked: 3 pods for 90 s", true),
            ("Steady: nothing", "Floor: nothing", false),
            (
                "Unknown: no answer since T: reset; it keeps",
                "Unknown: no answer since T: refused; it keeps",
                true,
            ),
            (
                "Unknown: no answer since T: reset; it keeps",
                "Unknown: credentials rejected (HTTP 401); it keeps",
                false,
            ),
            ("Steady: nothing. Not ready", "Steady: nothing", false),
            (
                "Floor: min 1 -> 2. minReplicas is 24",
                "Floor: min 2 -> 3. minReplicas is 24",
                true,
            ),
            (
                "Floor: min 1 -> 2. minReplicas is 24",
                "Floor: min 1 -> 2. minReplicas is 23",
                false,
            ),
        ] {
            assert_eq!(gist(one) == gist(other), same, "{one} | {other}");
        }
        let notes = ["Not ready".to_owned(), "minReplicas is 2".to_owned()];
        let text = with_notes("Steady: nothing".to_owned(), notes);
        assert_eq!(text, "Steady: nothing. Not ready. minReplicas is 2");
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
                shown == reason,
                kept || reason.starts_with("Steady"),
                "{reason}"
            );
        }
    }
}
