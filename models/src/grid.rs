//! [`Grid`]: converts minutes and days to steps of a series. The calibrated forecasters configure spans in minutes and
//! count in steps.

use jiff::SignedDuration;

/// Minutes in a day.
const DAY_MINUTES: i64 = 1440;

/// A grid whose step divides a day.
///
/// ```text
/// step 60 s: 15 minutes are 15 steps, a day is 1440
/// step 300 s: 15 minutes are 3 steps, 2 minutes are 1
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Seconds between two values, at least one.
    seconds: i64,
}

// === impl Grid ===

impl Grid {
    /// The grid with this step; a step below a second counts as one.
    pub fn new(step: SignedDuration) -> Self {
        let seconds = step.as_secs().max(1);
        Self { seconds }
    }

    /// The number of steps in these minutes: rounded, at least one.
    pub fn minutes(self, minutes: i64) -> usize {
        let steps = minutes
            .saturating_mul(60)
            .saturating_add(self.seconds / 2)
            .div_euclid(self.seconds);
        usize::try_from(steps.max(1)).unwrap_or(usize::MAX)
    }

    /// The number of steps in a day.
    pub fn day(self) -> usize {
        self.minutes(DAY_MINUTES)
    }

    /// The distance between two values.
    pub fn step(self) -> SignedDuration {
        SignedDuration::from_secs(self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_counted_in_steps_and_never_vanish() {
        let steps =
            |seconds, minutes| Grid::new(SignedDuration::from_secs(seconds)).minutes(minutes);
        let cases = [
            (60, 5, 5),
            (60, 1440, 1440),
            (300, 5, 1),
            (300, 8, 2),
            (300, 7, 1),
            (3600, 5, 1),
            (15, 5, 20),
        ];
        for (seconds, minutes, expected) in cases {
            assert_eq!(
                steps(seconds, minutes),
                expected,
                "{minutes} min at {seconds} s"
            );
        }
    }
}
