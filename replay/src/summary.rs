//! Summaries over a set of workloads: [`Means`], and [`Curve`] for under-provisioning at equal cost.

use crate::Score;
use crate::average::{geometric_mean, mean, median};

/// The results of a candidate on a set of workloads, at one tuning setting.
///
/// # Shape
/// Means over the workloads, in the units of [`Score`]; `against` the replay without a forecast of the same workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Means {
    /// Replica-hours against those without a forecast: geometric mean of the ratios.
    pub replicas: f64,
    /// Under-provisioned minutes, mean.
    pub under: f64,
    /// Under-provisioned minutes, median.
    pub under_median: f64,
    /// Unmet demand, mean.
    pub unmet: f64,
    /// Overloaded minutes, mean.
    pub over: f64,
    /// Changes a day, mean.
    pub actions: f64,
    /// Geometric mean of `(cost + 0.01) / (cost without a forecast + 0.01)`.
    pub cost: f64,
}

/// Under-provisioning against replica-hours: one point per tuning setting, with straight lines between them.
///
/// ```
/// use foretide_replay::Curve;
///
/// let curve = Curve::through([(1.0, 5.0), (1.2, 1.0)]);
/// assert!((curve.at(1.1).unwrap() - 3.0).abs() < 1e-9);
/// assert_eq!(curve.at(2.0), None);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve {
    /// Ascending in replica-hours.
    points: Vec<(f64, f64)>,
}

// === impl Means ===

impl Means {
    /// The means of pairs of a score and that of the same workload without a forecast; `None` without values.
    pub fn of(pairs: &[(Score, Score)]) -> Option<Self> {
        let scores = || pairs.iter().map(|(score, _)| score);
        let ratio = |of: fn(&Score) -> f64| {
            geometric_mean(pairs.iter().map(|(score, alone)| of(score) / of(alone)))
        };
        let under: Vec<f64> = scores().map(|score| score.under).collect();
        Some(Self {
            replicas: ratio(|score| score.replicas)?,
            under: mean(under.iter().copied())?,
            under_median: median(under)?,
            unmet: mean(scores().map(|score| score.unmet))?,
            over: mean(scores().map(|score| score.over))?,
            actions: mean(scores().map(|score| score.actions))?,
            cost: ratio(|score| score.cost + 0.01)?,
        })
    }
}

// === impl Curve ===

impl Curve {
    /// The curve through these pairs of replica-hours and under-provisioning, in any order.
    pub fn through(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut points: Vec<_> = points.into_iter().collect();
        points.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        Self { points }
    }

    /// Under-provisioning at this cost; `None` outside the range of the points.
    pub fn at(&self, replicas: f64) -> Option<f64> {
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        let between = |&((left, _), (right, _)): &(&(f64, f64), &(f64, f64))| {
            (*left..=*right).contains(&replicas)
        };
        let ((left, above), (right, below)) = pairs.into_iter().find(between)?;
        let part = if right > left {
            (replicas - left) / (right - left)
        } else {
            1.0
        };
        Some(above + part * (below - above))
    }

    /// Like [`at`](Self::at), with the nearest point outside the range. `None` without points.
    pub fn at_or_nearest(&self, replicas: f64) -> Option<f64> {
        let (least, most) = (self.points.first()?.0, self.points.last()?.0);
        let tried = replicas.clamp(least, most);
        let only = || self.points.first().map(|point| point.1);
        self.at(tried).or_else(only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_settings_the_curve_is_straight() {
        let curve = Curve::through([(1.2, 1.0), (1.0, 5.0), (1.1, 2.0)]);
        let cases = [
            (1.0, Some(5.0)),
            (1.05, Some(3.5)),
            (1.1, Some(2.0)),
            (1.175, Some(1.25)),
            (1.2, Some(1.0)),
            (0.99, None),
            (1.21, None),
        ];
        for (replicas, expected) in cases {
            let rounded = curve.at(replicas).map(|under| (under * 1e9).round() / 1e9);
            assert_eq!(rounded, expected, "{replicas}");
        }
        assert_eq!(Curve::default().at(1.0), None);
        let nearest = [0.5, 1.0, 1.2, 9.0].map(|replicas| curve.at_or_nearest(replicas));
        assert_eq!(nearest, [5.0, 5.0, 1.0, 1.0].map(Some));
        assert_eq!(Curve::through([(1.0, 5.0)]).at_or_nearest(2.0), Some(5.0));
        assert_eq!(Curve::default().at_or_nearest(1.0), None);
    }

    #[test]
    fn means_of_a_set_compare_with_the_replay_without_a_forecast() {
        let score = |under, replicas, cost| Score {
            under,
            unmet: 2.0 * under,
            over: 3.0 * under,
            unmet_hard: 0.0,
            replicas,
            actions: 10.0 * under,
            cost,
        };
        let pairs = [
            (score(1.0, 2.0, 0.09), score(8.0, 1.0, 0.39)),
            (score(4.0, 2.0, 0.39), score(8.0, 4.0, 0.39)),
        ];
        let Means {
            replicas,
            under,
            under_median,
            unmet,
            over,
            actions,
            cost,
        } = Means::of(&pairs).unwrap();
        let seen = [replicas, under, under_median, unmet, over, actions, cost];
        let expected = [1.0, 2.5, 2.5, 5.0, 7.5, 25.0, 0.5];
        for (seen, expected) in seen.into_iter().zip(expected) {
            assert!(
                (seen - expected).abs() < 1e-12,
                "{seen}, expected {expected}"
            );
        }
        assert_eq!(Means::of(&[]), None);
    }
}
