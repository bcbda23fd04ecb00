//! [`History`]: what forecasters know of the demand. The autoscaler reads minutes; a metric such as `rate(...[3m])` shows
//! a forecaster the mean of the last three.

/// The history of one workload.
#[derive(Debug, Clone)]
pub struct History<'a> {
    minutes: &'a [f64],
    /// The mean of each minute and those before it; `None` for the minutes themselves.
    means: Option<Vec<f64>>,
}

/// What is known at the start of a minute.
///
/// # Shape
/// Two slices of the same length: one value for each minute before, the newest last.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The demand of each minute, as the autoscaler reads it.
    pub minutes: &'a [f64],
    /// The history to forecast from.
    pub history: &'a [f64],
    /// Whether the history is the minutes themselves.
    pub is_raw: bool,
}

// === impl History ===

impl<'a> History<'a> {
    /// The history in which every value is the mean of the last `minutes` minutes; at the start, of those there are.
    pub fn new(demand: &'a [f64], minutes: usize) -> Self {
        let mean = |at: usize| {
            let last = demand.get((at + 1).saturating_sub(minutes)..=at);
            crate::average::mean(last.unwrap_or_default().iter().copied()).unwrap_or(f64::NAN)
        };
        let means = (minutes > 1).then(|| (0..demand.len()).map(mean).collect());
        Self {
            minutes: demand,
            means,
        }
    }

    /// What is known at the start of minute `t`.
    pub fn before(&self, t: usize) -> Known<'_> {
        let minutes = self.minutes.get(..t).unwrap_or_default();
        let means = self.means.as_deref().and_then(|means| means.get(..t));
        Known {
            minutes,
            history: means.unwrap_or(minutes),
            is_raw: means.is_none(),
        }
    }
}

// === impl Known ===

impl Known<'_> {
    /// How many minutes are known, which is the minute that is to be decided.
    pub fn len(&self) -> usize {
        self.minutes.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.minutes.is_empty()
    }
}

/// The minutes themselves.
impl<'a> From<&'a [f64]> for Known<'a> {
    fn from(minutes: &'a [f64]) -> Self {
        let history = minutes;
        let is_raw = true;
        Self {
            minutes,
            history,
            is_raw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_has_means_of_the_minutes_before_and_nothing_of_those_after() {
        let demand = [3.0, 6.0, 9.0, 0.0];
        let smoothed = History::new(&demand, 3);
        let known = smoothed.before(4);
        assert_eq!(known.minutes, demand);
        assert_eq!(known.history, [3.0, 4.5, 6.0, 5.0]);
        assert_eq!(smoothed.before(2).history, [3.0, 4.5]);
        assert_eq!((smoothed.before(2).len(), known.is_raw), (2, false));
        let plain = History::new(&demand, 1);
        assert_eq!(plain.before(3).history, &demand[..3]);
        assert!(plain.before(3).is_raw);
        assert!(plain.before(0).is_empty());
    }
}
