//! Metrics of forecasts, in the same registry: those that were refused, and the quality of those in use.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::{Metrics, ObjectLabels, Telemetry};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SeriesLabels {
    kind: &'static str,
    namespace: String,
    name: String,
    metric: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: String,
}

/// Metrics of the forecasts of all series.
#[derive(Debug)]
pub(super) struct Forecasts {
    refusals: Family<ReasonLabels, Counter>,
    rejections: Family<ReasonLabels, Counter>,
    left_out: Gauge,
    skill: Family<SeriesLabels, Gauge<f64, AtomicU64>>,
    coverage: Family<SeriesLabels, Gauge<f64, AtomicU64>>,
    quantile: Family<SeriesLabels, Gauge<f64, AtomicU64>>,
    minute_readings: Family<SeriesLabels, Gauge<f64, AtomicU64>>,
    model_age_seconds: Family<SeriesLabels, Gauge<f64, AtomicU64>>,
}

/// The quality of the forecast of one metric; all values are absent without a forecast.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ForecastQuality {
    /// Improvement over repeating the current level: 0 is none, 1 is a perfect forecast.
    pub skill: Option<f64>,
    /// The fraction of forecasts that were high enough.
    pub coverage: Option<f64>,
    /// The fraction that is asked for, if the algorithm has a quantile.
    pub quantile: Option<f64>,
    /// The fraction of the last day's minutes that were learned from readings of one minute.
    pub minute_readings: Option<f64>,
    /// Age of the newest sample that the forecast was made from.
    pub model_age_seconds: Option<f64>,
}

// === impl Forecasts ===

impl Forecasts {
    pub(super) fn new(metrics: &mut Metrics) -> Self {
        Self {
            refusals: metrics.add(
                "forecast_refusals",
                "Forecasts that were refused, by reason",
            ),
            rejections: metrics.add(
                "forecast_rejected",
                "Invalid samples of histories that were dropped, by reason",
            ),
            left_out: metrics.add(
                "forecasts_left_out",
                "Series without a forecast because the memory limit does not hold those of all",
            ),
            skill: metrics.add(
                "forecast_skill",
                "How much better the forecasts of the last three days were than repeating the \
                 current level: 0 no better, 1 perfect",
            ),
            coverage: metrics.add(
                "forecast_coverage",
                "Fraction of the forecasts of the last three days that were high enough",
            ),
            quantile: metrics.add(
                "forecast_quantile",
                "Fraction of the forecasts that is meant to be high enough",
            ),
            minute_readings: metrics.add(
                "forecast_minute_readings",
                "Fraction of the last day's minutes that were learned from readings of one \
                 minute",
            ),
            model_age_seconds: metrics.add_seconds(
                "forecast_model_age",
                "Age of the newest sample that the forecast in use was made from",
            ),
        }
    }
}

impl Telemetry {
    /// Counts one refused forecast.
    pub fn refused(&self, reason: &str) {
        let reason = reason.to_owned();
        let labels = ReasonLabels { reason };
        self.forecasts.refusals.get_or_create(&labels).inc();
    }

    /// Publishes how many series go without a forecast because the memory limit does not hold those of all.
    pub fn set_forecasts_left_out(&self, series: usize) {
        let series = i64::try_from(series).unwrap_or(i64::MAX);
        self.forecasts.left_out.set(series);
    }

    /// Counts one sample that was left out.
    pub fn rejected(&self, reason: &str) {
        let reason = reason.to_owned();
        let labels = ReasonLabels { reason };
        self.forecasts.rejections.get_or_create(&labels).inc();
    }

    /// Publishes the quality of the forecast of one metric; a value that is not known has no series.
    pub fn set_forecast_quality(
        &self,
        object: &ObjectLabels,
        metric: &str,
        quality: &ForecastQuality,
    ) {
        let labels = SeriesLabels {
            kind: object.kind,
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            metric: metric.to_owned(),
        };
        let forecasts = &self.forecasts;
        for (family, value) in [
            (&forecasts.skill, quality.skill),
            (&forecasts.coverage, quality.coverage),
            (&forecasts.quantile, quality.quantile),
            (&forecasts.minute_readings, quality.minute_readings),
            (&forecasts.model_age_seconds, quality.model_age_seconds),
        ] {
            match value.filter(|_| !self.hides_objects()) {
                Some(value) => {
                    family.get_or_create(&labels).set(value);
                }
                None => {
                    family.remove(&labels);
                }
            }
        }
    }
}
