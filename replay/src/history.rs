//! [`History`]: what forecasters know of the demand. The autoscaler reads minutes; a metric such as `rate(...[3m])` shows
//! a forecaster the mean of the last three.

/// Which values a forecaster that calibrates itself compares its forecasts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Targets {
    /// The minutes, as the autoscaler reads them.
    Raw,
    /// The values of the history.
    #[default]
    History,
}

/// The history of one workload.
#[derive(Debug, Clone)]
pub struct History<'a> {
    minutes: &'a [f64],
    /// The mean of each minute and those before it; `None` for the minutes themselves.
    means: Option<Vec<f64>>,
    targets: Targets,
}

/// What is known at the start of a minute.
///
/// # Shape
/// Three slices of the same length: one value for each minute before, the newest last.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The demand of each minute, as the autoscaler reads it.
    pub minutes: &'a [f64],
    /// The history to forecast from.
    pub history: &'a [f64],
    /// What a forecast is compared with to calibrate it.
    pub targets: &'a [f64],
}

// === impl History ===

impl<'a> History<'a> {
    /// The history in which every value is the mean of the last `minutes` minutes; at the start, of those there are.
    #[must_use]
    pub fn new(demand: &'a [f64], minutes: usize, targets: Targets) -> Self {
        let mean = |at: usize| {
            let last = demand.get((at + 1).saturating_sub(minutes)..=at);
            crate::mean(last.unwrap_or_default().iter().copied()).unwrap_or(f64::NAN)
        };
        let means = (minutes > 1).then(|| (0..demand.len()).map(mean).collect());
        Self {
            minutes: demand,
            means,
            targets,
        }
    }

    /// The history of the minutes themselves.
    #[must_use]
    pub fn of_minutes(demand: &'a [f64]) -> Self {
        Self::new(demand, 1, Targets::History)
    }

    /// What is known at the start of minute `t`.
    #[must_use]
    pub fn before(&self, t: usize) -> Known<'_> {
        let minutes = self.minutes.get(..t).unwrap_or_default();
        let means = self.means.as_deref().and_then(|means| means.get(..t));
        let history = means.unwrap_or(minutes);
        let targets = match self.targets {
            Targets::Raw => minutes,
            Targets::History => history,
        };
        Known {
            minutes,
            history,
            targets,
        }
    }
}

// === impl Known ===

impl Known<'_> {
    /// How many minutes are known, which is the minute that is to be decided.
    #[must_use]
    pub fn len(&self) -> usize {
        self.minutes.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.minutes.is_empty()
    }
}

/// The minutes themselves.
impl<'a> From<&'a [f64]> for Known<'a> {
    fn from(minutes: &'a [f64]) -> Self {
        Self {
            minutes,
            history: minutes,
            targets: minutes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_has_means_of_the_minutes_before_and_nothing_of_those_after() {
        let demand = [3.0, 6.0, 9.0, 0.0];
        let smoothed = History::new(&demand, 3, Targets::Raw);
        let known = smoothed.before(4);
        assert_eq!(known.minutes, demand);
        assert_eq!(known.history, [3.0, 4.5, 6.0, 5.0]);
        assert_eq!(known.targets, demand);
        assert_eq!(smoothed.before(2).history, [3.0, 4.5]);
        assert_eq!(smoothed.before(2).len(), 2);
        let alike = History::new(&demand, 3, Targets::History);
        assert_eq!(alike.before(4).targets, alike.before(4).history);
        let plain = History::of_minutes(&demand);
        assert_eq!(plain.before(3).history, &demand[..3]);
        assert!(plain.before(0).is_empty());
    }
}
