//! A metric's past and its forecast, from a recorded history.
//!
//! The recording is read as the controller reads Prometheus: at every step the latest value, if it is
//! not too old. Nothing is interpolated.

use std::path::Path;
use std::sync::Arc;

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_models::{Forecast, Forecaster, OUTLIVES_HISTORY, Sample, Series};
use jiff::{SignedDuration, Timestamp};

use super::Failure;
use crate::{
    cli::{csv, manifest},
    domain::{
        demand,
        forecast::{ForecastReading, Predicted, Refused},
        hpa::MetricSpec,
        observation::Pod,
        proposal::Reason,
        workload::Workload,
    },
    forecaster,
    validate::{self, chain},
};

/// For how long a value stands where nothing newer was recorded: Prometheus' own lookback.
const LOOKBACK: SignedDuration = SignedDuration::from_mins(5);
/// How far ahead a forecast is shown, if the prediction window is shorter.
const AHEAD: SignedDuration = SignedDuration::from_hours(12);

/// A recorded history.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) metric: String,
    file: String,
    samples: Vec<Sample>,
}

/// A metric's past up to the moment of the decision, and its forecast from there.
#[derive(Debug)]
pub(super) struct Outlook {
    pub(super) metric: MetricSpec,
    pub(super) file: String,
    /// What was recorded until then.
    pub(super) past: Vec<Sample>,
    /// The total demand then; absent if the last value is too old.
    pub(super) demand: Option<f64>,
    /// Absent without a prediction in the spec.
    pub(super) forecast: Option<Result<Forecast, Refused>>,
    /// The highest value forecast for the prediction window.
    pub(super) peak: Option<f64>,
}

// === impl History ===

impl History {
    pub(super) fn read(metric: &str, file: &str) -> Result<Self, Failure> {
        let text = manifest::text(Path::new(file)).map_err(|e| Failure::invalid(chain(&e)))?;
        let samples = csv::parse(file, &text).map_err(Failure::invalid)?;
        Ok(Self {
            metric: metric.to_owned(),
            file: file.to_owned(),
            samples,
        })
    }

    pub(super) fn first(&self) -> Option<Timestamp> {
        self.samples.first().map(|sample| sample.at)
    }

    pub(super) fn last(&self) -> Option<Timestamp> {
        self.samples.last().map(|sample| sample.at)
    }
}

// === impl Outlook ===

impl Outlook {
    /// What the forecaster would say of this metric; `None` without a prediction.
    pub(super) fn reading(&self, pods: &[Arc<Pod>]) -> Option<ForecastReading> {
        let outcome = match self.forecast.as_ref()? {
            Err(refused) => Err(refused.clone()),
            Ok(_) => self.predicted(pods),
        };
        Some(ForecastReading {
            name: self.metric.identifier(),
            outcome,
            grounds: None,
        })
    }

    fn predicted(&self, pods: &[Arc<Pod>]) -> Result<Predicted, Refused> {
        let refused = |message: String| Refused::new(Reason::NotForecastable, message);
        let target =
            demand::target(&self.metric, pods, None).map_err(|error| refused(error.to_string()))?;
        let value = self.peak.ok_or_else(|| {
            Refused::new(
                Reason::Expired,
                "the forecast does not reach over the prediction window",
            )
        })?;
        Ok(Predicted { value, target })
    }
}

/// The outlook of every metric that has a history.
pub(super) fn look(
    ehpa: &EffectiveHorizontalPodAutoscaler,
    workload: &Workload,
    histories: Vec<History>,
    at: Timestamp,
) -> Vec<Outlook> {
    let window = workload
        .prediction
        .as_ref()
        .map(|prediction| prediction.window);
    let mut outlooks = Vec::new();
    for history in histories {
        let metric = workload
            .metrics
            .iter()
            .find(|m| m.identifier() == history.metric);
        let Some(metric) = metric.cloned() else {
            continue;
        };
        let mut past = history.samples;
        past.retain(|sample| sample.at <= at);
        let forecast = ehpa.spec.prediction.as_ref().map(|prediction| {
            let mut forecaster = validate::forecaster(prediction)
                .map_err(|violation| Refused::new(Reason::InvalidSpec, violation.to_string()))?;
            forecast(&mut *forecaster, &past, at, window.unwrap_or_default())
        });
        let made = forecast
            .as_ref()
            .and_then(|forecast| forecast.as_ref().ok());
        outlooks.push(Outlook {
            demand: last_value(&past, at),
            peak: made
                .zip(window)
                .and_then(|(made, window)| made.demand(at, window)),
            metric,
            file: history.file,
            past,
            forecast,
        });
    }
    outlooks
}

fn forecast(
    forecaster: &mut dyn Forecaster,
    past: &[Sample],
    at: Timestamp,
    window: SignedDuration,
) -> Result<Forecast, Refused> {
    let step = forecaster.sample_interval();
    let series = series(past, step, forecaster.history_length(), at);
    let reach = [window, OUTLIVES_HISTORY, step]
        .into_iter()
        .fold(SignedDuration::ZERO, |a, b| {
            a.checked_add(b).unwrap_or(SignedDuration::MAX)
        });
    forecaster
        .forecast(&series, reach.max(AHEAD))
        .map_err(|refusal| forecaster::refused(&refusal))
}

/// The recording on the forecaster's grid: at each step the latest value not older than the lookback.
fn series(past: &[Sample], step: SignedDuration, span: SignedDuration, at: Timestamp) -> Series {
    let seconds = step.as_secs().max(1);
    let floor = |at: Timestamp| at.as_second().div_euclid(seconds) * seconds;
    let oldest = past
        .first()
        .map_or_else(|| floor(at), |first| floor(first.at));
    let start = floor(at).saturating_sub(span.as_secs()).max(oldest);
    let start = start.div_euclid(seconds) * seconds;
    let lookback = lookback(past);
    let mut values = Vec::new();
    let mut next = 0;
    let mut second = start;
    while second <= at.as_second() && values.len() < foretide_models::MAX_SLOTS {
        let slot = Timestamp::from_second(second).unwrap_or(at);
        while past.get(next).is_some_and(|sample| sample.at <= slot) {
            next += 1;
        }
        let latest = next.checked_sub(1).and_then(|index| past.get(index));
        let fresh = latest.filter(|sample| slot.duration_since(sample.at) < lookback);
        values.push(fresh.map_or(f64::NAN, |sample| sample.value));
        second = second.saturating_add(seconds);
    }
    Series::from_values(Timestamp::from_second(start).unwrap_or(at), step, values)
}

/// How old a value may be: as in Prometheus, and as long as two samples usually are apart.
fn lookback(past: &[Sample]) -> SignedDuration {
    let mut steps: Vec<SignedDuration> = past
        .iter()
        .zip(past.iter().skip(1))
        .map(|(a, b)| b.at.duration_since(a.at))
        .collect();
    steps.sort();
    let usual = steps.get(steps.len() / 2).copied().unwrap_or_default();
    usual.checked_mul(2).unwrap_or(LOOKBACK).max(LOOKBACK)
}

fn last_value(past: &[Sample], at: Timestamp) -> Option<f64> {
    let last = past.last()?;
    (at.duration_since(last.at) <= lookback(past)).then_some(last.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(pairs: &[(i64, f64)]) -> Vec<Sample> {
        let sample = |&(second, value): &(i64, f64)| Sample {
            at: Timestamp::from_second(second).unwrap(),
            value,
        };
        pairs.iter().map(sample).collect()
    }

    #[test]
    fn a_recording_is_read_as_a_range_query_reads_it() {
        let past = samples(&[(0, 1.0), (300, 2.0), (600, 3.0), (1800, 4.0)]);
        let (step, hour) = (
            SignedDuration::from_secs(300),
            SignedDuration::from_hours(1),
        );
        let at = Timestamp::from_second(1850).unwrap();
        let series = series(&past, step, hour, at);
        let nan = f64::NAN;
        let expected = Series::from_values(
            Timestamp::UNIX_EPOCH,
            step,
            vec![1.0, 2.0, 3.0, 3.0, nan, nan, 4.0],
        );
        assert_eq!(series, expected);
    }

    #[test]
    fn a_long_recording_is_cut_to_what_the_forecaster_wants() {
        let past = samples(&[(0, 1.0), (300, 2.0), (600, 3.0)]);
        let step = SignedDuration::from_secs(300);
        let at = Timestamp::from_second(600).unwrap();
        let series = series(&past, step, step, at);
        let from = Timestamp::from_second(300).unwrap();
        assert_eq!(series, Series::from_values(from, step, vec![2.0, 3.0]));
    }

    #[test]
    fn an_old_value_is_no_demand() {
        let past = samples(&[(0, 1.0), (60, 2.0)]);
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(last_value(&past, at(60)), Some(2.0));
        assert_eq!(last_value(&past, at(360)), Some(2.0));
        assert_eq!(last_value(&past, at(361)), None);
        assert_eq!(last_value(&[], at(0)), None);
    }
}
