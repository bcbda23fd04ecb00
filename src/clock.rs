//! The controller's clock: the only place that reads the wall clock.
//!
//! The shipped binary runs on [`Clock::system`]. Another clock may be set to any instant and rate, also while it runs,
//! so that a test runs through a day in a minute against real servers. Times that come from other machines are
//! wall-clock times: [`Clock::from_wall`] converts them by their age.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

/// The wall clock, or one that can be set; clones share the setting.
#[derive(Debug, Clone)]
pub struct Clock(Option<Arc<Settable>>);

#[derive(Debug)]
struct Settable {
    setting: RwLock<Setting>,
    set: Notify,
}

/// How a settable clock runs since it was last set.
#[derive(Debug, Clone, Copy)]
struct Setting {
    wall: Timestamp,
    shown: Timestamp,
    rate: f64,
}

// === impl Clock ===

impl Clock {
    /// The wall clock.
    #[must_use]
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that reads `start` now and runs `rate` times as fast as the wall clock.
    ///
    /// # Units
    /// `rate` is a ratio; at 0 the clock stands still until it is set. A rate that is negative or not finite is taken
    /// as 1.
    #[must_use]
    pub fn starting_at(start: Timestamp, rate: f64) -> Self {
        let setting = RwLock::new(Setting::new(start, rate));
        Self(Some(Arc::new(Settable {
            setting,
            set: Notify::new(),
        })))
    }

    /// Sets a settable clock, and wakes all sleepers; the wall clock cannot be set.
    pub fn set(&self, to: Timestamp, rate: f64) {
        if let Some(settable) = &self.0 {
            *settable
                .setting
                .write()
                .unwrap_or_else(PoisonError::into_inner) = Setting::new(to, rate);
            settable.set.notify_waiters();
        }
    }

    /// The time on this clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let wall = wall_now();
        self.setting().map_or(wall, |setting| setting.at(wall))
    }

    /// Whether this is the wall clock, on which times of other machines need no conversion.
    #[must_use]
    pub fn is_wall(&self) -> bool {
        self.0.is_none()
    }

    /// A wall-clock time of another machine, converted to this clock by its age.
    ///
    /// # Guarantees
    /// The identity for [`Clock::system`]; an age of a minute is a minute on every clock.
    #[must_use]
    pub fn from_wall(&self, foreign: Timestamp) -> Timestamp {
        let Some(setting) = self.setting() else {
            return foreign;
        };
        let wall = wall_now();
        setting
            .at(wall)
            .checked_sub(wall.duration_since(foreign))
            .unwrap_or(foreign)
    }

    /// How long ago a wall-clock time was, on the wall clock.
    #[must_use]
    pub fn wall_age(&self, foreign: Timestamp) -> SignedDuration {
        wall_now().duration_since(foreign)
    }

    /// Waits for `span` of this clock, or until it is set.
    pub async fn sleep(&self, span: SignedDuration) {
        let rate = self.setting().map_or(1.0, |setting| setting.rate);
        let wall = Duration::try_from_secs_f64((span.as_secs_f64() / rate).max(0.0));
        let wait = tokio::time::sleep(wall.unwrap_or(Duration::MAX));
        match &self.0 {
            None => wait.await,
            Some(settable) => tokio::select! {
                () = wait => {}
                () = settable.set.notified() => {}
            },
        }
    }

    fn setting(&self) -> Option<Setting> {
        let settable = self.0.as_deref()?;
        Some(
            *settable
                .setting
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

// === impl Setting ===

impl Setting {
    fn new(shown: Timestamp, rate: f64) -> Self {
        let rate = if rate.is_finite() && rate >= 0.0 {
            rate
        } else {
            1.0
        };
        Self {
            wall: wall_now(),
            shown,
            rate,
        }
    }

    fn at(&self, wall: Timestamp) -> Timestamp {
        let elapsed = wall.duration_since(self.wall).as_secs_f64() * self.rate;
        self.shown
            .saturating_add(SignedDuration::from_secs_f64(elapsed))
            .unwrap_or(self.shown)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one reading of the wall clock"
)]
fn wall_now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    #[test]
    fn a_fast_clock_runs_by_its_rate() {
        let setting = Setting {
            wall: at(0),
            shown: at(5_000),
            rate: 60.0,
        };
        assert_eq!(setting.at(at(0)), at(5_000));
        assert_eq!(setting.at(at(10)), at(5_600));
    }

    #[test]
    fn a_clock_without_a_rate_stands_still() {
        let setting = Setting::new(at(5_000), 0.0);
        assert_eq!(
            setting.at(setting.wall + SignedDuration::from_hours(1)),
            at(5_000)
        );
    }

    #[test]
    fn a_clone_shares_the_setting_of_the_original() {
        let clock = Clock::starting_at(at(0), 1.0);
        let clone = clock.clone();
        clock.set(at(86_400), 1.0);
        assert!(clone.now() >= at(86_400));
    }

    #[test]
    fn times_of_other_machines_are_converted_by_their_age() {
        let clock = Clock::starting_at(at(0), 1.0);
        let age = |shown: Timestamp| clock.now().duration_since(shown).as_secs();
        let foreign = wall_now() - SignedDuration::from_secs(90);
        assert_eq!(age(clock.from_wall(foreign)), 90);
        assert_eq!(Clock::system().from_wall(foreign), foreign);
    }

    #[test]
    fn an_invalid_rate_is_taken_as_one() {
        for rate in [-1.0, f64::NAN, f64::INFINITY] {
            assert!((Setting::new(at(0), rate).rate - 1.0).abs() < f64::EPSILON);
        }
    }
}
