//! The controller's clock: the only place that reads the wall clock.
//!
//! The shipped binary runs on [`Clock::system`]. A clock may also start at another instant and run at
//! another rate, so that a test lives through a day in a minute against real servers. Times that come
//! from other machines are wall-clock times: [`Clock::from_wall`] carries them over by their age.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A clock with an origin and a rate, both fixed at creation.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started_wall: Timestamp,
    started: Timestamp,
    rate: f64,
}

// === impl Clock ===

impl Clock {
    /// The wall clock.
    #[must_use]
    pub fn system() -> Self {
        let wall = wall_now();
        Self { started_wall: wall, started: wall, rate: 1.0 }
    }

    /// A clock that reads `start` now and runs `rate` times as fast as the wall clock.
    ///
    /// # Units
    /// `rate` is a ratio; values that are not finite and positive are taken as 1.
    #[must_use]
    pub fn starting_at(start: Timestamp, rate: f64) -> Self {
        let rate = if rate.is_finite() && rate > 0.0 { rate } else { 1.0 };
        Self { started_wall: wall_now(), started: start, rate }
    }

    /// The time on this clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let wall = wall_now();
        if self.is_wall() {
            return wall;
        }
        let elapsed = wall.duration_since(self.started_wall).as_secs_f64() * self.rate;
        self.started.saturating_add(SignedDuration::from_secs_f64(elapsed)).unwrap_or(self.started)
    }

    /// Whether this clock reads the wall clock, so that foreign times need no carrying over.
    #[must_use]
    pub fn is_wall(&self) -> bool {
        self.started == self.started_wall && (self.rate - 1.0).abs() < f64::EPSILON
    }

    /// A wall-clock time of another machine, carried over to this clock by its age.
    ///
    /// # Guarantees
    /// The identity for [`Clock::system`]; an age of a minute is a minute on every clock.
    #[must_use]
    pub fn from_wall(&self, foreign: Timestamp) -> Timestamp {
        if self.is_wall() {
            return foreign;
        }
        let age = wall_now().duration_since(foreign);
        self.now().checked_sub(age).unwrap_or(foreign)
    }

    /// How long ago a wall-clock time was, on the wall clock.
    #[must_use]
    pub fn wall_age(&self, foreign: Timestamp) -> SignedDuration {
        wall_now().duration_since(foreign)
    }

    /// How long the wall clock takes for `span` of this clock.
    #[must_use]
    pub fn wall_span(&self, span: SignedDuration) -> Duration {
        let seconds = (span.as_secs_f64() / self.rate).max(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Waits for `span` of this clock.
    pub async fn sleep(&self, span: SignedDuration) {
        tokio::time::sleep(self.wall_span(span)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the one reading of the wall clock")]
fn wall_now() -> Timestamp {
    Timestamp::now()
}
