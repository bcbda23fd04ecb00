//! The gate that every sample of a history passes: what cannot have been measured becomes a gap, never a zero.
//!
//! It can only reject. It refuses to judge a change that lasts: a level that stays is the new level, whatever it is.

use foretide_models::{Sample, outlier_runs};
use jiff::{SignedDuration, Timestamp};

/// Below so many positive samples nothing is usual yet: five absurd ones do not move the 95th percentile of 600.
const USUAL_FROM: usize = 600;
/// How far ahead of our clock a sample may be.
const AHEAD: SignedDuration = SignedDuration::from_secs(30);

/// Why a sample was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Rejection {
    /// Not a number, or infinite.
    NotFinite,
    /// Below zero: no demand is.
    Negative,
    /// Before the span that was asked for, or ahead of our clock.
    OutOfTime,
    /// Not later than the sample before it.
    NotMonotone,
    /// A hundred times above what is usual, gone after five samples, and not seen again and again.
    Absurd,
}

// === impl Rejection ===

impl Rejection {
    /// The word used as a label.
    #[must_use]
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::NotFinite => "NotFinite",
            Self::Negative => "Negative",
            Self::OutOfTime => "OutOfTime",
            Self::NotMonotone => "NotMonotone",
            Self::Absurd => "Absurd",
        }
    }
}

/// Takes out of `samples`, oldest first, what cannot be: returns when each was, and why.
///
/// `from` is the earliest instant that was asked for; `believed`, the highest value that passed earlier gates of this
/// series, whose samples may be gone by now: nothing up to twice of it is absurd.
///
/// # Guarantees
/// What stays is finite, not negative, strictly later than the one before, and within `[from, now + 30 s]`.
pub(super) fn gate(
    samples: &mut Vec<Sample>,
    (from, now): (Timestamp, Timestamp),
    believed: &mut f64,
) -> Vec<(Timestamp, Rejection)> {
    let until = now.saturating_add(AHEAD).unwrap_or(Timestamp::MAX);
    let mut rejected = Vec::new();
    let mut last = None;
    samples.retain(|sample| {
        let verdict = if !sample.value.is_finite() {
            Some(Rejection::NotFinite)
        } else if sample.value < 0.0 {
            Some(Rejection::Negative)
        } else if sample.at < from || sample.at > until {
            Some(Rejection::OutOfTime)
        } else if last.is_some_and(|last| sample.at <= last) {
            Some(Rejection::NotMonotone)
        } else {
            last = Some(sample.at);
            None
        };
        rejected.extend(verdict.map(|verdict| (sample.at, verdict)));
        verdict.is_none()
    });
    reject_absurd(samples, &mut rejected, believed);
    rejected
}

fn reject_absurd(
    samples: &mut Vec<Sample>,
    rejected: &mut Vec<(Timestamp, Rejection)>,
    believed: &mut f64,
) {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    if values.iter().filter(|value| **value > 0.0).count() < USUAL_FROM {
        return;
    }
    let mut absurd = outlier_runs(&values, *believed).into_iter().flatten();
    let mut next = absurd.next();
    let mut at = 0..;
    samples.retain(|sample| {
        let here = at.next();
        let is_absurd = next.is_some() && next == here;
        if is_absurd {
            rejected.push((sample.at, Rejection::Absurd));
            next = absurd.next();
        } else {
            *believed = believed.max(sample.value);
        }
        !is_absurd
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

    fn minutes(values: &[f64]) -> Vec<Sample> {
        let first = i64::try_from(values.len()).unwrap();
        let at = |i: i64| NOW - SignedDuration::from_mins(first - 1 - i);
        let sample = |(i, value): (i64, &f64)| Sample {
            at: at(i),
            value: *value,
        };
        (0..).zip(values).map(sample).collect()
    }

    fn gated(mut samples: Vec<Sample>) -> (usize, Vec<Rejection>) {
        let from = NOW - SignedDuration::from_hours(24);
        let rejected = gate(&mut samples, (from, NOW), &mut 0.0);
        (
            samples.len(),
            rejected.into_iter().map(|(_, why)| why).collect(),
        )
    }

    #[test]
    fn what_cannot_have_been_measured_is_taken_out_and_named() {
        use Rejection::{Negative, NotFinite};
        let values = [1.0, f64::NAN, -1.0, f64::INFINITY, 0.0, 2.0];
        let want = (3, vec![NotFinite, Negative, NotFinite]);
        assert_eq!(gated(minutes(&values)), want);
    }

    #[test]
    fn samples_of_another_time_or_in_another_order_are_taken_out() {
        use Rejection::{NotMonotone, OutOfTime};
        let at = |seconds| Sample {
            at: NOW + SignedDuration::from_secs(seconds),
            value: 1.0,
        };
        let samples = vec![
            at(-90_000),
            at(-60),
            at(-60),
            at(-120),
            at(0),
            at(30),
            at(31),
        ];
        let want = vec![OutOfTime, NotMonotone, NotMonotone, OutOfTime];
        assert_eq!(gated(samples), (3, want));
    }

    #[test]
    fn an_absurd_moment_is_taken_out_and_an_absurd_level_is_believed() {
        for (run, rejected) in [(0, 0), (1, 1), (5, 5), (6, 0), (60, 0)] {
            let level = |i| {
                if (500..500 + run).contains(&i) {
                    1e308
                } else {
                    2.0
                }
            };
            let values: Vec<f64> = (0..1000).map(level).collect();
            let (kept, why) = gated(minutes(&values));
            assert_eq!(kept, 1000 - rejected, "{run}");
            assert_eq!(why, vec![Rejection::Absurd; rejected], "{run}");
        }
        // Of few samples none is usual.
        let few: Vec<f64> = (0..60).map(|i| if i == 30 { 1e6 } else { 2.0 }).collect();
        assert_eq!(gated(minutes(&few)), (60, vec![]));
    }

    #[test]
    fn a_burst_that_recurs_passes_also_once_only_the_last_of_it_is_left() {
        // Two minutes of two cores a day, on an idle service.
        let daily = |days: usize| -> Vec<f64> {
            let burst = |i| if i % 1440 / 2 == 350 { 2.0 } else { 0.01 };
            (0..days * 1440).map(burst).collect()
        };
        let from = NOW - SignedDuration::from_hours(24 * 30);
        let mut believed = 0.0;
        let mut passed = |days| gate(&mut minutes(&daily(days)), (from, NOW), &mut believed);
        assert_eq!(passed(1).len(), 2);
        assert_eq!(passed(14), []);
        assert_eq!(passed(1), []);
    }
}
