//! Mode Metric: forecasts and cron windows as External metrics that the child HPA reads.
//!
//! ```text
//! forecast proposal with a count -> total demand, target per pod   --+
//!                                                                    +-> the HPA algorithm, with the user's metrics
//! cron windows                   -> a count, target 1 per pod      --+
//! ```
//!
//! The values are those that the metric adapter serves from the status, so the observed lane computes what the child
//! will: its tolerance applies to forecasts and cron windows too. An HPA counts in thousandths and rounds targets up to
//! them, and so do forecast proposals here.

use crate::Replicas;
use crate::forecast::{ForecastReading, Predicted, Refused};
use crate::hpa::{MetricSpec, Target};
use crate::observation::Measured;
use crate::proposal::{Proposal, Reason};
use crate::quantity::{Format, Quantity};

const MILLI_IN_NANOS: i128 = 1_000_000;

/// A metric that the child HPA reads in addition to those of the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedMetric {
    /// Identifier of the metric that is forecast, such as `resource.cpu`; absent for the cron windows.
    pub forecast: Option<String>,
    /// Value and target of the metric.
    pub amounts: Amounts,
}

/// The value of a published metric, and the part of it that one pod carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Amounts {
    /// The total of all pods.
    pub total: Quantity,
    /// The target of one pod, in the same unit; above zero.
    pub per_pod: Quantity,
}

/// Inputs of the count of cron windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CronInputs {
    /// The largest target of the windows that are open.
    pub open: Option<Replicas>,
    /// `minReplicas`.
    pub min: Replicas,
    /// The count now, if it is known.
    pub current: Option<Replicas>,
    /// True if the spec has metrics too.
    pub has_metrics: bool,
}

// === impl Amounts ===

impl Amounts {
    /// The amounts of a forecast, to a billionth; `None` if they are no numbers that an HPA can divide.
    ///
    /// An HPA rounds up to a thousandth and then to a replica. A total that is above a whole number of targets by an
    /// error of the arithmetic only ([`Replicas::for_demand`]) is that number of targets.
    ///
    /// ```
    /// use foretide_domain::autoscale::published::Amounts;
    ///
    /// let amounts = Amounts::of(1.2, 0.2).map(|of| (of.total.to_string(), of.per_pod.to_string()));
    /// assert_eq!(amounts, Some(("1200m".to_owned(), "200m".to_owned())));
    /// assert_eq!(Amounts::of(f64::NAN, 0.2), None);
    /// ```
    pub fn of(total: f64, per_pod: f64) -> Option<Self> {
        let replicas = Replicas::for_demand(total / per_pod);
        let (total, per_pod) = (Quantity::nearest(total)?, Quantity::nearest(per_pod)?);
        let milli = per_pod.milli_value().value;
        let whole = milli
            .checked_mul(i64::from(replicas.get()))
            .filter(|whole| *whole > 0 && total.milli_value().value > *whole);
        let total = match whole {
            // At the maximum the division may have saturated, and `whole` would not be the total.
            Some(whole) if replicas < Replicas::MAX => {
                Quantity::from_milli(whole, Format::DecimalSi)
            }
            _ => total,
        };
        (per_pod.nanos() > 0).then_some(Self { total, per_pod })
    }

    fn of_count(count: Replicas) -> Self {
        let milli = i64::from(count.get()) * 1000;
        Self {
            total: Quantity::from_milli(milli, Format::DecimalSi),
            per_pod: Quantity::from_milli(1000, Format::DecimalSi),
        }
    }
}

// === impl CronInputs ===

impl CronInputs {
    /// The count that cron windows ask for as a metric: the largest target that is open. With none open it is the
    /// minimum if there are metrics too, so that they alone decide; otherwise the current count, which is then kept.
    ///
    /// ```
    /// use foretide_domain::Replicas;
    /// use foretide_domain::autoscale::published::CronInputs;
    ///
    /// let closed = CronInputs {
    ///     open: None,
    ///     min: Replicas::new(2),
    ///     current: Some(Replicas::new(5)),
    ///     has_metrics: true,
    /// };
    /// assert_eq!(closed.count(), Replicas::new(2));
    /// assert_eq!(CronInputs { has_metrics: false, ..closed }.count(), Replicas::new(5));
    /// ```
    pub fn count(self) -> Replicas {
        match (self.open, self.current) {
            (Some(open), _) => open.max(self.min),
            (None, Some(current)) if !self.has_metrics => current,
            (None, _) => self.min,
        }
    }
}

// === impl PublishedMetric ===

impl PublishedMetric {
    /// The metric of a forecast; `None` while the forecast asks for no count.
    pub(super) fn of_forecast(proposal: &Proposal) -> Option<Self> {
        proposal.replicas?;
        Some(Self {
            forecast: Some(proposal.name.clone()),
            amounts: Amounts::of(proposal.value?, proposal.target?)?,
        })
    }

    /// The metric of the cron windows.
    pub(super) fn of_crons(crons: CronInputs) -> Self {
        Self {
            forecast: None,
            amounts: Amounts::of_count(crons.count()),
        }
    }

    /// The entry of `spec.metrics`, as the algorithm reads it.
    pub(super) fn spec(&self) -> MetricSpec {
        MetricSpec::External {
            metric: self.forecast.clone().unwrap_or_default(),
            selector: None,
            target: Target::AverageValue(self.amounts.per_pod.milli_value().value),
        }
    }

    /// The reading of the child.
    pub(super) fn measured(&self) -> Measured {
        Measured::Total(vec![self.amounts.total.milli_value().value])
    }
}

/// A forecast as an HPA counts with it: its target in thousandths, rounded up. A target below a thousandth would be
/// rounded up by far, so there is no such metric.
pub(super) fn as_read_by_hpa(reading: &ForecastReading) -> ForecastReading {
    ForecastReading {
        outcome: reading.outcome.clone().and_then(rounded),
        ..reading.clone()
    }
}

fn rounded(predicted: Predicted) -> Result<Predicted, Refused> {
    let target = Quantity::nearest(predicted.target).filter(|_| predicted.target > 0.0);
    let Some(target) = target.filter(|target| !target.milli_value().saturated) else {
        // The proposal names the problem with this target.
        return Ok(predicted);
    };
    if target.nanos() < MILLI_IN_NANOS {
        let message = format!(
            "the target is {target} per pod, and a HorizontalPodAutoscaler has none below 1m: use mode Delegated, or a \
             metric in a smaller unit"
        );
        return Err(Refused::new(Reason::SmallTarget, message));
    }
    let target = base_units(target.milli_value().value);
    Ok(Predicted {
        target,
        ..predicted
    })
}

/// Thousandths as the nearest double.
#[expect(
    clippy::cast_precision_loss,
    reason = "rounding to the nearest double is the point"
)]
pub(super) fn base_units(milli: i64) -> f64 {
    milli as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_rounded_up_to_thousandths_and_none_is_below_one() {
        for (target, want) in [
            (0.1, Ok(0.1)),
            (0.0125, Ok(0.013)),
            (0.001, Ok(0.001)),
            (0.1 * 3.0, Ok(0.3)),
            (536_870_912.0, Ok(536_870_912.0)),
            (1e300, Ok(1e300)),
            (0.000_999, Err(Reason::SmallTarget)),
            (1e-12, Err(Reason::SmallTarget)),
            // The proposal refuses these.
            (0.0, Ok(0.0)),
            (-1.0, Ok(-1.0)),
        ] {
            let reading =
                ForecastReading::new("resource.cpu".to_owned(), Ok(Predicted::of(1.0, target)));
            let read = as_read_by_hpa(&reading).outcome;
            let found = read.map(|predicted| predicted.target.to_bits());
            let want = want.map(f64::to_bits);
            assert_eq!(found.map_err(|refused| refused.reason), want, "{target}");
        }
    }

    #[test]
    fn amounts_are_exact_to_a_billionth() {
        for (total, per_pod, want) in [
            (0.9, 0.1, Some(("900m", "100m"))),
            (0.1 + 0.2, 0.1 * 3.0, Some(("300m", "300m"))),
            (1.9, 0.05, Some(("1900m", "50m"))),
            (0.0, 1.0, Some(("0", "1"))),
            (
                1_073_741_824.0,
                536_870_912.0,
                Some(("1073741824", "536870912")),
            ),
            (1.0 / 3.0, 1e-9, Some(("333333333n", "1n"))),
            // Three targets and an error of the arithmetic, which an HPA would round up to a fourth.
            (
                1_610_612_736.000_000_2,
                536_870_912.0,
                Some(("1610612736", "536870912")),
            ),
            (300.000_000_1, 60.0, Some(("300", "60"))),
            (300.001, 60.0, Some(("300001m", "60"))),
            (1.0, 1e-12, None),
            (1.0, -1.0, None),
            (f64::NAN, 1.0, None),
            (f64::INFINITY, 1.0, None),
        ] {
            let amounts = Amounts::of(total, per_pod);
            let found = amounts.map(|found| (found.total.to_string(), found.per_pod.to_string()));
            let want = want.map(|(total, per_pod)| (total.to_owned(), per_pod.to_owned()));
            assert_eq!(found, want, "{total} {per_pod}");
        }
    }

    #[test]
    fn crons_ask_for_the_open_window_else_the_minimum_else_the_current_count() {
        let n = Replicas::new;
        for (open, current, has_metrics, want) in [
            (Some(10), Some(7), true, 10),
            (Some(10), Some(7), false, 10),
            (Some(1), Some(7), false, 2),
            (None, Some(7), true, 2),
            (None, Some(7), false, 7),
            (None, None, false, 2),
        ] {
            let crons = CronInputs {
                open: open.map(n),
                min: n(2),
                current: current.map(n),
                has_metrics,
            };
            assert_eq!(crons.count(), n(want), "{crons:?}");
        }
    }
}
