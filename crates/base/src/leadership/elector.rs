//! The rules of client-go's leader election, as a state machine without I/O.
//!
//! ```text
//! start ─► request ─► answer ─► request ─► answer ─► done
//! ```
//!
//! A candidate takes a lease that is absent, that nobody holds, or whose record did not change for as long as it says.
//! That time is measured by the candidate's own monotonic clock from the moment it saw the record change, so that
//! clocks may differ by any amount. Clocks may run at different rates as long as the ratio of the rates is below that
//! of [`Timing::lease_duration`] to [`Timing::renew_deadline`]: the holder's [`Token`] ends before that of another
//! candidate begins. Every write is conditional on the version of the lease that it was made from, and none is forced.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{ClockReading, Monotonic};
use foretide_api::ports::{LeaseRecord, StoredLease};

/// Time that other candidates wait before they take a released lease; client-go writes the same.
const RELEASED: Duration = Duration::from_secs(1);
/// The longest time between two reads of the lease by a standby. It counts the lease duration from the read in which it
/// saw the last renewal, up to this much after the renewal itself. With another second for its own requests, it leads
/// within the lease duration and two seconds.
const LONGEST_READ_PERIOD: Duration = Duration::from_secs(1);
/// The least by which two renewals differ, so that every one changes the record, also with a wall clock that stands.
const RENEWAL_STEP: Duration = Duration::from_micros(1);

/// The durations of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time after the last change of the lease for which candidates wait before they take it.
    pub lease_duration: Duration,
    /// Time for which a leader may act after the start of its last successful renewal.
    pub renew_deadline: Duration,
    /// Time from the start of one attempt of a leader to that of the next. A standby reads the lease twice in that time,
    /// and at least once per second.
    pub retry_period: Duration,
}

/// The right to write, which ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Number of changes of the leader before this token: `leaseTransitions` of the lease.
    pub epoch: i32,
    /// Monotonic reading from which nothing may be written.
    pub valid_until: Monotonic,
}

/// Request of an attempt to the API server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Request {
    /// Read the lease.
    Read,
    /// Create the lease.
    Create(LeaseRecord),
    /// Replace the lease, if it still has the version that was seen.
    Replace(StoredLease, LeaseRecord),
}

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// The lease, as it was read or written.
    Lease(StoredLease),
    /// There is no lease.
    Absent,
    /// The lease is not the version that was seen, or was created meanwhile.
    Conflict,
    /// No answer, or an error: whether a write took effect is not known.
    Failed,
}

/// Knowledge of one candidate about the lease.
#[derive(Debug)]
pub(super) struct Elector {
    identity: String,
    timing: Timing,
    seen: Option<Seen>,
    token: Option<Token>,
    attempt: Attempt,
}

/// The last version of the lease that was seen.
#[derive(Debug)]
struct Seen {
    lease: StoredLease,
    /// Reading at which the version was first seen.
    at: Monotonic,
}

/// The attempt that is under way.
#[derive(Debug, Clone, Copy, Default)]
struct Attempt {
    /// Reading at which the last write was sent, from which the token is counted.
    sent: Monotonic,
    /// An answer to a write is awaited.
    writes: bool,
    /// The lease was read in this attempt, which therefore ends after a conflict.
    has_read: bool,
}

// === impl Timing ===

impl Default for Timing {
    /// Returns the durations of client-go.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// The deadline of one request about the lease: a leader can be refused an answer once and still renew in time.
    pub fn request_deadline(&self) -> Duration {
        self.renew_deadline / 2
    }
}

// === impl Elector ===

impl Elector {
    /// A candidate that has seen nothing yet. No two processes may have the same identity.
    pub(super) fn new(identity: String, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            seen: None,
            token: None,
            attempt: Attempt::default(),
        }
    }

    /// The right to write. The caller compares [`Token::valid_until`] with the clock: it may have passed.
    pub(super) fn token(&self) -> Option<Token> {
        self.token
    }

    /// Returns the holder of the lease when it was last seen.
    pub(super) fn holder(&self) -> Option<&str> {
        self.seen.as_ref().map(|seen| &*seen.lease.record.holder)
    }

    /// Returns the start of a standby's next attempt after one that began at `began`: at the latest when the lease that
    /// it has seen expires, so that a takeover is not delayed by another period.
    pub(super) fn next_attempt(&self, began: Monotonic) -> Monotonic {
        let next = began + (self.timing.retry_period / 2).min(LONGEST_READ_PERIOD);
        match &self.seen {
            Some(seen) if self.expiry(seen) > began => next.min(self.expiry(seen)),
            _ => next,
        }
    }

    /// Begins an attempt to take or to renew the lease.
    pub(super) fn start(&mut self, now: ClockReading) -> Request {
        self.attempt.has_read = false;
        self.attempt.writes = false;
        // A leader knows the version that it wrote last, and skips the read.
        let known = self.token.and(self.seen.as_ref());
        match known.map(|seen| seen.lease.clone()) {
            Some(lease) => self.replace(lease, now),
            None => self.read(),
        }
    }

    /// Returns the request that follows an answer; absent when the attempt is over.
    pub(super) fn answer(&mut self, answer: Answer, now: ClockReading) -> Option<Request> {
        let wrote = std::mem::take(&mut self.attempt.writes);
        match answer {
            Answer::Lease(lease) if wrote => {
                self.token = Some(Token {
                    epoch: lease.record.transitions,
                    valid_until: self.attempt.sent + self.timing.renew_deadline,
                });
                self.see(lease, now.monotonic());
                None
            }
            Answer::Lease(lease) => {
                self.see(lease, now.monotonic());
                self.take(now)
            }
            Answer::Absent if wrote => self.read_again(),
            Answer::Absent => self.create(now),
            Answer::Conflict => self.read_again(),
            // The write may have taken effect, so the next attempt reads first.
            Answer::Failed => None,
        }
    }

    /// Returns the record that gives the lease back, if this process holds it.
    pub(super) fn released(&self, lease: &StoredLease, now: Timestamp) -> Option<LeaseRecord> {
        // A lease that another holder has taken meanwhile must stay.
        let held = lease.record.holder == self.identity;
        held.then(|| LeaseRecord {
            holder: String::new(),
            duration: Some(RELEASED),
            acquired: Some(now),
            renewed: Some(now),
            transitions: lease.record.transitions,
        })
    }

    fn read(&mut self) -> Request {
        self.attempt.has_read = true;
        Request::Read
    }

    fn read_again(&mut self) -> Option<Request> {
        (!self.attempt.has_read).then(|| self.read())
    }

    /// Remembers a version of the lease; only a change restarts its time.
    fn see(&mut self, lease: StoredLease, at: Monotonic) {
        if lease.record.holder != self.identity {
            // The token ends early: the other holder may write.
            self.token = None;
        }
        match &self.seen {
            Some(seen) if seen.lease.version == lease.version => {}
            _ => self.seen = Some(Seen { lease, at }),
        }
    }

    /// Returns whether another process may still be the leader.
    fn is_held_by_another(&self, now: Monotonic) -> bool {
        self.seen.as_ref().is_some_and(|seen| {
            let holder = &seen.lease.record.holder;
            let by_another = !holder.is_empty() && *holder != self.identity;
            by_another && now < self.expiry(seen)
        })
    }

    /// Returns the reading from which an unchanged lease may be taken.
    fn expiry(&self, seen: &Seen) -> Monotonic {
        let duration = seen.lease.record.duration;
        seen.at + duration.unwrap_or(self.timing.lease_duration)
    }

    fn take(&mut self, now: ClockReading) -> Option<Request> {
        if self.is_held_by_another(now.monotonic()) {
            return None;
        }
        let lease = self.seen.as_ref().map(|seen| seen.lease.clone())?;
        Some(self.replace(lease, now))
    }

    /// Creates a lease that is gone, once the time that its last holder had stated is over: that holder may still act.
    fn create(&mut self, now: ClockReading) -> Option<Request> {
        if self.is_held_by_another(now.monotonic()) {
            return None;
        }
        // Every change of the leader raises the number of transitions, also if the lease was deleted.
        let before = self.seen.as_ref().map(|seen| &seen.lease.record);
        let transitions = before.map_or(0, |record| record.transitions.saturating_add(1));
        self.sends(now.monotonic());
        Some(Request::Create(LeaseRecord {
            holder: self.identity.clone(),
            duration: Some(self.timing.lease_duration),
            acquired: Some(now.wall()),
            renewed: Some(now.wall()),
            transitions,
        }))
    }

    fn replace(&mut self, lease: StoredLease, now: ClockReading) -> Request {
        let before = &lease.record;
        let held = before.holder == self.identity;
        // A write that changes nothing leaves the version, and other candidates would take the lease for not renewed.
        let renewed = match before.renewed {
            Some(last) if last == now.wall() => now.wall().saturating_add(RENEWAL_STEP),
            _ => Ok(now.wall()),
        };
        let record = LeaseRecord {
            holder: self.identity.clone(),
            duration: Some(self.timing.lease_duration),
            acquired: before.acquired.filter(|_| held).or(Some(now.wall())),
            renewed: renewed.ok().or(Some(now.wall())),
            transitions: if held {
                before.transitions
            } else {
                before.transitions.saturating_add(1)
            },
        };
        self.sends(now.monotonic());
        Request::Replace(lease, record)
    }

    fn sends(&mut self, now: Monotonic) {
        self.attempt.sent = now;
        self.attempt.writes = true;
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
