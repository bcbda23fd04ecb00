//! How far the clock of an API server is from ours, by the `Date` of its responses.
//!
//! Nothing is judged by it: spans are measured by our own monotonic clock. But cron windows open by our wall clock, and
//! whoever reads both clocks should know that they differ.

use std::sync::atomic::{AtomicI64, Ordering};

use http::{HeaderMap, header::DATE};
use jiff::{Timestamp, fmt::rfc2822};

/// Differences up to this many seconds are not told from none: `Date` has whole seconds, and a response takes time.
const RESOLUTION: i64 = 2;

/// The difference that was seen last; positive where the server is ahead.
#[derive(Debug, Default)]
pub(super) struct ClockSkew(AtomicI64);

// === impl ClockSkew ===

impl ClockSkew {
    /// Measures the difference by the headers of a response that came at `now`; without a usable `Date` it stays.
    pub(super) fn observe(&self, headers: &HeaderMap, now: Timestamp) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| rfc2822::parse(date).ok()) else {
            return;
        };
        let seconds = date.timestamp().as_second() - now.as_second();
        let is_none = seconds.abs() <= RESOLUTION;
        self.0
            .store(if is_none { 0 } else { seconds }, Ordering::Relaxed);
    }

    /// In seconds.
    pub(super) fn seconds(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_date_of_a_response_gives_the_difference() {
        let skew = ClockSkew::default();
        let now = "1994-11-06T08:49:37.9Z".parse().unwrap();
        for (date, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:35 GMT", 0),
            ("Sun, 06 Nov 1994 08:59:37 GMT", 600),
            ("not a date", 600),
            ("Sun, 06 Nov 1994 07:49:37 GMT", -3600),
        ] {
            let date = HeaderValue::from_static(date);
            skew.observe(&HeaderMap::from_iter([(DATE, date)]), now);
            assert_eq!(skew.seconds(), seconds);
        }
    }
}
