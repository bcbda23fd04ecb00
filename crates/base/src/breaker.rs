//! A circuit breaker: requests to a server that hangs fail at once, until a single one is answered again.
//!
//! ```text
//!  closed ──(5 timeouts in a row)──► open ──(5 s)──► half-open: one request
//!    ▲                                ▲                 │         │
//!    └────────────────────────────────┼──(answered)─────┘         │
//!                                     └──(timed out)──────────────┘
//! ```
//!
//! Only a request without an answer counts: an error response frees its slot at once.

use std::time::Duration;

use crate::clock::Monotonic;

/// Timeouts in a row that open a circuit.
pub const FAILURES: u32 = 5;
/// Time for which a circuit stays open before the next attempt.
const OPEN_FOR: Duration = Duration::from_secs(5);

/// The circuit of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// Requests are sent; this many have timed out since the last answer.
    Closed(u32),
    /// Requests fail at once, until this reading.
    Open(Monotonic),
    /// One request was let through at this reading; the others fail at once.
    HalfOpen(Monotonic),
}

// === impl Breaker ===

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed(0)
    }
}

impl Breaker {
    /// Lets a request through, which is the attempt if the circuit is not closed.
    pub fn attempt(&mut self, now: Monotonic) {
        if self.is_open() {
            *self = Self::HalfOpen(now);
        }
    }

    /// Permits a request now, or returns the time until the next attempt.
    ///
    /// # Errors
    /// The time until the next attempt, while the circuit is open.
    pub fn check(self, now: Monotonic) -> Result<(), Duration> {
        let next = match self {
            Self::Closed(_) => return Ok(()),
            Self::Open(until) => until,
            // The request may have been given up without an outcome.
            Self::HalfOpen(since) => since + OPEN_FOR,
        };
        if now < next {
            return Err(next.since(now));
        }
        Ok(())
    }

    /// Records that a request was answered, or that it was not in time.
    pub fn record(&mut self, answered: bool, now: Monotonic) {
        *self = match *self {
            _ if answered => Self::Closed(0),
            Self::Closed(before) if before.saturating_add(1) < FAILURES => Self::Closed(before + 1),
            Self::Closed(_) | Self::HalfOpen(_) => Self::Open(now + OPEN_FOR),
            // A request that was sent before the circuit opened.
            Self::Open(until) => Self::Open(until),
        };
    }

    /// Records a timeout that must not open the circuit itself. It counts when a later one may open it.
    pub fn count(&mut self) {
        if let Self::Closed(before) = self {
            *before = before.saturating_add(1);
        }
    }

    /// True if requests are refused.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Closed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::after_origin(Duration::from_secs(seconds))
    }

    impl Breaker {
        fn admit(&mut self, now: Monotonic) -> Result<(), Duration> {
            self.check(now)?;
            self.attempt(now);
            Ok(())
        }
    }

    fn opened(now: Monotonic) -> Breaker {
        let mut breaker = Breaker::default();
        for _failure in 0..FAILURES {
            assert_eq!(breaker.admit(now), Ok(()));
            breaker.record(false, now);
        }
        breaker
    }

    #[test]
    fn timeouts_in_a_row_open_a_circuit_and_an_answer_in_between_does_not() {
        let mut breaker = Breaker::default();
        for n in 0..20 {
            breaker.record(n % 5 == 4, at(n));
            assert!(!breaker.is_open(), "{n}");
        }
        assert!(opened(at(0)).is_open());
    }

    #[test]
    fn an_attempt_without_an_outcome_is_followed_by_another() {
        let mut breaker = opened(at(0));
        assert_eq!(breaker.admit(at(5)), Ok(()));
        assert_eq!(breaker.admit(at(9)), Err(Duration::from_secs(1)));
        assert_eq!(breaker.admit(at(10)), Ok(()));
    }
}
