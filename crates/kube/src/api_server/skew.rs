//! Difference between the clock of an API server and ours, by the `Date` of its responses.
//!
//! Spans are measured by our own monotonic clock. But cron windows open by our wall clock, so a large difference is
//! reported, and the age of what a server dates is measured by the server's clock.

use http::{HeaderMap, header::DATE};
use jiff::{SignedDuration, fmt::rfc2822};
use parking_lot::Mutex;

use foretide_base::clock::ClockReading;

/// Differences up to this many seconds count as none: `Date` has whole seconds, and a response takes time.
const RESOLUTION: i64 = 2;

/// The `Date` that was seen last, and our monotonic reading then: a step of our wall clock changes the difference at
/// once, and not with the next response.
#[derive(Debug, Default)]
pub struct ClockSkew(Mutex<Option<ClockReading>>);

// === impl ClockSkew ===

impl ClockSkew {
    /// Measures the difference by the headers of a response that came at `now`; without a usable `Date` it stays.
    pub fn observe(&self, headers: &HeaderMap, now: ClockReading) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| rfc2822::parse(date).ok()) else {
            return;
        };
        let seen = ClockReading::new(date.timestamp(), now.monotonic());
        *self.0.lock() = Some(seen);
    }

    /// Lead of the server's clock over ours at `now`, in whole seconds; zero before the first response.
    pub fn at(&self, now: ClockReading) -> SignedDuration {
        let Some(seen) = *self.0.lock() else {
            return SignedDuration::ZERO;
        };
        let then = now.wall_at(seen.monotonic());
        let seconds = seen.wall().as_second() - then.as_second();
        let is_none = seconds.abs() <= RESOLUTION;
        SignedDuration::from_secs(if is_none { 0 } else { seconds })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;
    use foretide_base::clock::Monotonic;

    fn reading(wall: &str, second: u64) -> ClockReading {
        let monotonic = Monotonic::after_origin(Duration::from_secs(second));
        ClockReading::new(wall.parse().unwrap(), monotonic)
    }

    fn seen(skew: &ClockSkew, date: &'static str, now: ClockReading) -> i64 {
        let date = HeaderValue::from_static(date);
        skew.observe(&HeaderMap::from_iter([(DATE, date)]), now);
        skew.at(now).as_secs()
    }

    #[test]
    fn the_date_of_a_response_gives_the_difference() {
        let skew = ClockSkew::default();
        let now = reading("1994-11-06T08:49:37.9Z", 5);
        assert_eq!(skew.at(now), SignedDuration::ZERO);
        for (date, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:35 GMT", 0),
            ("Sun, 06 Nov 1994 08:59:37 GMT", 600),
            ("not a date", 600),
            ("Sun, 06 Nov 1994 07:49:37 GMT", -3600),
        ] {
            assert_eq!(seen(&skew, date, now), seconds);
        }
    }

    #[test]
    fn a_step_of_our_clock_changes_the_difference_before_the_next_response() {
        let skew = ClockSkew::default();
        let now = reading("1994-11-06T08:49:37Z", 5);
        assert_eq!(seen(&skew, "Sun, 06 Nov 1994 08:49:37 GMT", now), 0);
        let later = reading("1994-11-06T08:50:37Z", 65);
        assert_eq!(skew.at(later).as_secs(), 0);
        let ahead = reading("1994-11-06T09:50:37Z", 65);
        assert_eq!(skew.at(ahead).as_secs(), -3_600);
    }
}
