//! The reason in a member's row of a fleet's status, `Word: sentence. Note. Note`: written and read back here alone.
//!
//! Users see one text; the controller needs its parts, to restore after a restart why a member was moved, and to find
//! what of it is worth a write.

use std::fmt;

use foretide_federate::{MemberDecision, Reason};

/// Separator of the word from the sentence, and the clauses of a sentence.
const COLON: &str = ": ";

/// Separator of the sentence from the notes.
const FULL_STOP: &str = ". ";

/// The reason of a member's share, with notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberReason {
    /// The word of a [`Reason`].
    word: String,
    sentence: String,
    notes: Vec<String>,
}

// === impl MemberReason ===

impl MemberReason {
    /// The first reason of a decision, with its numbers.
    pub fn of(decided: &MemberDecision) -> Option<(Reason, Self)> {
        let reason = decided.reasons.first().copied()?;
        let text = Self {
            word: reason.as_str().to_owned(),
            sentence: decided.sentence(),
            notes: Vec::new(),
        };
        Some((reason, text))
    }

    /// The parts of a text of a status.
    pub fn parse(text: &str) -> Self {
        let (word, rest) = text.split_once(COLON).unwrap_or((text, ""));
        let mut parts = rest.split(FULL_STOP).map(str::to_owned);
        Self {
            word: word.to_owned(),
            sentence: parts.next().unwrap_or_default(),
            notes: parts.collect(),
        }
    }

    /// The reason that the word names.
    pub fn reason(&self) -> Option<Reason> {
        Reason::ALL
            .iter()
            .copied()
            .find(|reason| reason.as_str() == self.word)
    }

    /// True if the bounds changed: a status does not have the former ones, but the sentence has an arrow then.
    pub fn names_a_change(&self) -> bool {
        self.sentence.contains("->")
    }

    /// The same reason with these notes alone.
    #[must_use]
    pub fn with_notes(self, notes: impl IntoIterator<Item = String>) -> Self {
        Self {
            notes: notes.into_iter().collect(),
            ..self
        }
    }

    /// The part of a text of a status whose change is worth a write: the word, the problem if the member is
    /// unavailable, and the notes; not the numbers in a sentence, nor the error text of a server.
    pub fn gist(text: &str) -> String {
        let Self {
            word,
            sentence,
            notes,
        } = Self::parse(text);
        let unavailable = [Reason::Unknown.as_str(), Reason::Failed.as_str()];
        let problem = if unavailable.contains(&&*word) {
            first_clause(&sentence)
        } else {
            ""
        };
        let mut parts = vec![&*word, problem];
        parts.extend(notes.iter().map(|note| first_clause(note)));
        parts.join(COLON)
    }
}

impl fmt::Display for MemberReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{COLON}{}", self.word, self.sentence)?;
        for note in &self.notes {
            write!(f, "{FULL_STOP}{note}")?;
        }
        Ok(())
    }
}

fn first_clause(text: &str) -> &str {
    text.split(COLON).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let is_same = MemberReason::gist(one) == MemberReason::gist(other);
            assert_eq!(is_same, same, "{one} | {other}");
        }
        let notes = ["Not ready".to_owned(), "minReplicas is 2".to_owned()];
        let reason = MemberReason::parse("Steady: nothing. Ready").with_notes(notes);
        let text = "Steady: nothing. Not ready. minReplicas is 2";
        assert_eq!(reason.to_string(), text);
        assert_eq!(MemberReason::parse(text), reason);
    }
}
