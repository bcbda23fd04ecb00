//! The checks that every sample of a history passes: a sample that cannot be a measurement is removed and leaves a gap.
//!
//! Only short outliers are rejected: a level that lasts is the new level of the series.

use foretide_domain::words;
use foretide_models::{Sample, outlier_runs};
use jiff::{SignedDuration, Timestamp};

/// Number of positive samples from which on outliers are judged: five of them do not move the 95th percentile of 600.
const MIN_POSITIVE_SAMPLES: usize = 600;
/// Longest time by which a sample may be ahead of the controller's clock.
const MAX_AHEAD: SignedDuration = SignedDuration::from_secs(30);

words! {
    /// Reasons why a sample was rejected.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Rejection {
        /// Not a number, or infinite.
        NotFinite,
        /// Below zero.
        Negative,
        /// Before the queried span, or ahead of the controller's clock.
        OutOfTime,
        /// Not later than the sample before it.
        NotMonotone,
        /// A hundred times above the usual, gone after five samples, and not recurring.
        Absurd,
    }
}

/// Removes from `samples`, oldest first, what cannot be a measurement; returns the time and the reason of each.
///
/// `from` is the start of the queried span. `highest_accepted` is the highest value of this series that was ever
/// accepted; no value up to twice that is absurd. It is updated.
///
/// # Guarantees
/// The samples that stay are finite, not negative, in strictly increasing order of time, and within `[from, now + 30
/// s]`.
pub fn gate(
    samples: &mut Vec<Sample>,
    from: Timestamp,
    now: Timestamp,
    highest_accepted: &mut f64,
) -> Vec<(Timestamp, Rejection)> {
    let until = now.saturating_add(MAX_AHEAD).unwrap_or(Timestamp::MAX);
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
            // Only of samples that stay: one from the future must not exclude all that follow.
            last = Some(sample.at);
            None
        };
        rejected.extend(verdict.map(|verdict| (sample.at, verdict)));
        verdict.is_none()
    });
    reject_absurd(samples, &mut rejected, highest_accepted);
    rejected
}

fn reject_absurd(
    samples: &mut Vec<Sample>,
    rejected: &mut Vec<(Timestamp, Rejection)>,
    highest_accepted: &mut f64,
) {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    if values.iter().filter(|value| **value > 0.0).count() < MIN_POSITIVE_SAMPLES {
        return;
    }
    let mut absurd = outlier_runs(&values, *highest_accepted)
        .into_iter()
        .flatten();
    let mut next = absurd.next();
    let mut at = 0..;
    samples.retain(|sample| {
        let here = at.next();
        let is_absurd = next.is_some() && next == here;
        if is_absurd {
            rejected.push((sample.at, Rejection::Absurd));
            next = absurd.next();
        } else {
            *highest_accepted = highest_accepted.max(sample.value);
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
        let rejected = gate(&mut samples, from, NOW, &mut 0.0);
        (
            samples.len(),
            rejected.into_iter().map(|(_, why)| why).collect(),
        )
    }

    #[test]
    fn samples_that_are_no_measurements_are_removed_with_their_reason() {
        use Rejection::{Negative, NotFinite};
        let values = [1.0, f64::NAN, -1.0, f64::INFINITY, 0.0, 2.0];
        let want = (3, vec![NotFinite, Negative, NotFinite]);
        assert_eq!(gated(minutes(&values)), want);
    }

    #[test]
    fn samples_out_of_time_or_out_of_order_are_removed() {
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
    fn a_short_outlier_is_removed_and_a_lasting_level_is_accepted() {
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
        // With few samples nothing is an outlier.
        let few: Vec<f64> = (0..60).map(|i| if i == 30 { 1e6 } else { 2.0 }).collect();
        assert_eq!(gated(minutes(&few)), (60, vec![]));
    }

    #[test]
    fn a_recurring_burst_is_accepted_even_when_only_its_last_occurrence_is_kept() {
        // Two minutes of two cores a day, on an idle service.
        let daily = |days: usize| -> Vec<f64> {
            let burst = |i| if i % 1440 / 2 == 350 { 2.0 } else { 0.01 };
            (0..days * 1440).map(burst).collect()
        };
        let from = NOW - SignedDuration::from_hours(24 * 30);
        let mut highest_accepted = 0.0;
        let mut passed = |days| gate(&mut minutes(&daily(days)), from, NOW, &mut highest_accepted);
        assert_eq!(passed(1).len(), 2);
        assert_eq!(passed(14), []);
        assert_eq!(passed(1), []);
    }
}
