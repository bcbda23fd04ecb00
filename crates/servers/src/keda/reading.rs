//! The value of a trigger in the status of its autoscaler. Pure.
//!
//! | source | target | value | active while |
//! |---|---|---|---|
//! | `floor` | 1 | the floor, or 0 | a forecast or a cron window asks for a replica |
//! | `forecast` | of one pod | the predicted total | the total is above 0 |
//! | `cron` | 1 | the largest open window, or 0 | a window is open that asks for a replica |

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_domain::quantity::Quantity;
use jiff::Timestamp;
use tonic::{Code, Status};

use super::{
    proto::{MetricSpec, MetricValue},
    trigger::{InvalidTrigger, Trigger},
};
use foretide_api::published::{KedaSource, Published, Unpublished, keda_metric_name};

const NANO: i128 = 1_000_000_000;
/// KEDA rounds targets to thousandths, and Kubernetes refuses a target of zero.
const SMALLEST_TARGET: i128 = NANO / 1000;

/// One trigger and the autoscaler that it names.
pub struct Reading<'a> {
    trigger: &'a Trigger,
    object: &'a EffectiveHorizontalPodAutoscaler,
    published: Published<'a>,
}

/// Reason for which a trigger has no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Trigger(#[from] InvalidTrigger),
    #[error("the EffectiveHorizontalPodAutoscalers have not been read yet; try again")]
    NotSynced,
    #[error(
        "no EffectiveHorizontalPodAutoscaler {namespace}/{name}: expected one of that name in the namespace of the \
         ScaledObject"
    )]
    NotFound { namespace: String, name: String },
    /// The status is too old. The message of [`Unpublished::Stale`] ends by asking whether the controller runs, and this
    /// one goes on with what is wrong if it does.
    ///
    /// The controller writes a status every five minutes, even without a change, only if other processes read it: in mode
    /// Metric, or if a `ScaledObject` has the same target as the autoscaler. It does not know of a `ScaledObject` with
    /// another target, whose trigger therefore finds an old status.
    #[error(
        "{0} If it does: the status is kept up to date for a ScaledObject of the same target, and in mode Metric, but not for \
         a ScaledObject of another target"
    )]
    Stale(Unpublished),
    #[error(transparent)]
    Unpublished(Unpublished),
    #[error(
        "EffectiveHorizontalPodAutoscaler {name} forecasts no metric: expected spec.prediction in it, or another source in \
         the trigger metadata"
    )]
    NoForecasts { name: String },
    #[error(
        "EffectiveHorizontalPodAutoscaler {name} forecasts {metrics}: set metric in the trigger metadata to one of them"
    )]
    SeveralForecasts { name: String, metrics: String },
    #[error(
        "the target of {metric} is {target} per pod, and KEDA has no values below 1m: use source floor, or a metric in a \
         smaller unit"
    )]
    SmallTarget { metric: String, target: String },
    #[error("metric {asked:?} is not the metric of the trigger: expected {expected:?}")]
    OtherMetric { asked: String, expected: String },
}

// === impl Reading ===

impl<'a> Reading<'a> {
    /// The reading of `object` by `trigger` at `now`.
    pub const fn new(
        trigger: &'a Trigger,
        object: &'a EffectiveHorizontalPodAutoscaler,
        now: Timestamp,
    ) -> Self {
        Self {
            trigger,
            object,
            published: Published::of(object, now),
        }
    }

    /// Returns whether the trigger is active.
    pub fn is_active(&self) -> Result<bool, Refusal> {
        Ok(match self.trigger.source {
            KedaSource::Floor => self.published.required()?.is_some(),
            KedaSource::Forecast => self.total()?.nanos() > 0,
            KedaSource::Cron => self
                .published
                .open_windows()?
                .is_some_and(|count| count > 0),
        })
    }

    /// Name and target of the metric, also from a status that is too old: KEDA needs them to create its
    /// `HorizontalPodAutoscaler`.
    pub fn spec(&self) -> Result<MetricSpec, Refusal> {
        let metric_name = self.metric_name()?;
        if self.trigger.source != KedaSource::Forecast {
            // With a target of 1, the quotient that the HPA computes is the count itself.
            return Ok(MetricSpec {
                metric_name,
                target_size: 1,
                target_size_float: 1.0,
            });
        }
        let metric = self.identifier()?;
        let target = self.published.forecast_target(metric)?;
        if target.nanos() < SMALLEST_TARGET {
            return Err(Refusal::SmallTarget {
                metric: metric.to_owned(),
                target: target.to_string(),
            });
        }
        Ok(MetricSpec {
            metric_name,
            target_size: rounded_up(&target),
            target_size_float: nearest_f64(&target),
        })
    }

    /// The value of the metric that KEDA asks for by its name.
    pub fn value(&self, asked: &str) -> Result<MetricValue, Refusal> {
        let metric_name = self.metric_name()?;
        if asked != metric_name {
            return Err(Refusal::OtherMetric {
                // Shortened, because the client chooses the length.
                asked: asked.chars().take(256).collect(),
                expected: metric_name,
            });
        }
        let count = match self.trigger.source {
            KedaSource::Floor => self.published.required()?,
            KedaSource::Cron => self.published.open_windows()?,
            KedaSource::Forecast => {
                let total = self.total()?;
                return Ok(MetricValue {
                    metric_name,
                    metric_value: rounded_up(&total),
                    metric_value_float: nearest_f64(&total),
                });
            }
        };
        Ok(MetricValue {
            metric_name,
            metric_value: count.unwrap_or_default().into(),
            metric_value_float: count.unwrap_or_default().into(),
        })
    }

    fn metric_name(&self) -> Result<String, Refusal> {
        let source = self.trigger.source;
        let metric = match source {
            KedaSource::Forecast => Some(self.identifier()?),
            KedaSource::Floor | KedaSource::Cron => None,
        };
        Ok(keda_metric_name(source, &self.trigger.autoscaler, metric))
    }

    fn total(&self) -> Result<Quantity, Refusal> {
        Ok(self.published.forecast(self.identifier()?)?.total)
    }

    /// The metric of the forecast: the one named, or the only one.
    fn identifier(&self) -> Result<&str, Refusal> {
        if let Some(metric) = &self.trigger.metric {
            return Ok(metric);
        }
        let metrics: Vec<&str> = self.published.identifiers().collect();
        match metrics[..] {
            [metric] => Ok(metric),
            [] => {
                // Without a decision, this error is more precise.
                self.published.floor()?;
                Err(Refusal::NoForecasts { name: self.name() })
            }
            _ => Err(Refusal::SeveralForecasts {
                name: self.name(),
                metrics: metrics.join(", "),
            }),
        }
    }

    fn name(&self) -> String {
        let name = self.object.metadata.name.as_deref().unwrap_or_default();
        format!("{}/{name}", self.trigger.namespace)
    }
}

// === impl Refusal ===

impl From<Unpublished> for Refusal {
    fn from(unpublished: Unpublished) -> Self {
        match unpublished {
            Unpublished::Stale { .. } => Self::Stale(unpublished),
            _ => Self::Unpublished(unpublished),
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Trigger(_)
            | Refusal::SeveralForecasts { .. }
            | Refusal::OtherMetric { .. } => Code::InvalidArgument,
            Refusal::NotFound { .. } => Code::NotFound,
            Refusal::NoForecasts { .. }
            | Refusal::SmallTarget { .. }
            | Refusal::Unpublished(Unpublished::NoCrons { .. }) => Code::FailedPrecondition,
            Refusal::NotSynced | Refusal::Stale(_) | Refusal::Unpublished(_) => Code::Unavailable,
        };
        Self::new(code, refusal.to_string())
    }
}

/// A whole number that is not below the amount.
fn rounded_up(amount: &Quantity) -> i64 {
    let nanos = amount.nanos();
    let up = nanos.div_euclid(NANO) + i128::from(nanos.rem_euclid(NANO) > 0);
    i64::try_from(up.max(0)).unwrap_or(i64::MAX)
}

/// The double nearest to the amount up to nine million; above, the error is below a thousandth of KEDA's precision.
#[expect(
    clippy::cast_precision_loss,
    reason = "rounding to the nearest double is the point"
)]
fn nearest_f64(amount: &Quantity) -> f64 {
    // Dividing by a power of ten rounds once; multiplying by a negative one would round twice.
    amount.nanos().max(0) as f64 / 1e9
}
