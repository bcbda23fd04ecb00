//! The times that a history or a ledger holds, and their correction after a change of the wall clock.
//!
//! A running controller knows every step of its clock and shifts all times by it. After a restart it knows none: a time
//! that is ahead can only have been noted before the clock was put back.

use jiff::{SignedDuration, Timestamp};

/// A time further ahead of now than this was noted before the clock was put back. Clocks of different machines differ
/// by less.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// A time that is remembered between two decisions.
///
/// ```
/// use foretide_domain::remembered::Remembered;
/// use jiff::{SignedDuration, Timestamp};
///
/// let mut began = Timestamp::UNIX_EPOCH;
/// // The clock of a running controller was set forward by an hour.
/// Remembered::Since(&mut began).shift(SignedDuration::from_hours(1));
/// assert_eq!(began, Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1));
/// // After a restart with the old time, the stored one is an hour ahead.
/// Remembered::Since(&mut began).put_back(Timestamp::UNIX_EPOCH);
/// assert_eq!(began, Timestamp::UNIX_EPOCH);
/// ```
#[derive(Debug)]
pub enum Remembered<'a> {
    /// Time at which something happened or began.
    Since(&'a mut Timestamp),
    /// Time at which something ends.
    Until {
        /// Time of the end.
        at: &'a mut Timestamp,
        /// Time from the beginning to the end, if it is known.
        span: Option<SignedDuration>,
    },
}

impl Remembered<'_> {
    /// Moves the time by a step of the wall clock; saturates at the ends of the range of [`Timestamp`].
    pub fn shift(self, step: SignedDuration) {
        let (Self::Since(at) | Self::Until { at, .. }) = self;
        *at = at.saturating_add(step).unwrap_or(*at);
    }

    /// Brings a time that is ahead of `now` back: a beginning to now at the latest, and an end to now plus its whole
    /// span at the latest.
    ///
    /// An end whose span is not known stays as it is, and so does a time that is at most a minute ahead, by which the
    /// clocks of two machines may differ.
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
