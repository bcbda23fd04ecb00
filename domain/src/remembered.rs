//! The times that a history or a ledger holds, and what becomes of them when the wall clock was changed.
//!
//! While the controller runs it knows every step of its clock, and shifts all of them by it. After a restart it knows
//! none: a time that is ahead can only have been noted before the clock was put back.

use jiff::{SignedDuration, Timestamp};

/// A time further ahead of now than this was noted before the clock was put back. Clocks of different machines differ
/// by less.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// A time that is remembered between two decisions.
#[derive(Debug)]
pub enum Remembered<'a> {
    /// When something happened or began.
    Since(&'a mut Timestamp),
    /// When something ends.
    Until {
        /// When.
        at: &'a mut Timestamp,
        /// How long it lasts in all, if that is known.
        span: Option<SignedDuration>,
    },
}

impl Remembered<'_> {
    /// Moves it by a step of the wall clock.
    pub fn shift(self, step: SignedDuration) {
        let (Self::Since(at) | Self::Until { at, .. }) = self;
        *at = at.saturating_add(step).unwrap_or(*at);
    }

    /// Brings a time that is ahead of `now` back: what has begun began now at the latest, and what ends does so after
    /// its whole span at the latest.
    pub fn put_back(self, now: Timestamp) {
        let (at, latest) = match self {
            Self::Since(at) => (at, Some(now)),
            Self::Until { at, span } => (at, span.and_then(|span| now.saturating_add(span).ok())),
        };
        if let Some(latest) = latest.filter(|latest| at.duration_since(*latest) > AHEAD) {
            *at = latest;
        }
    }
}
