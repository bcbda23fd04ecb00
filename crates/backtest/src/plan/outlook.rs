//! The past and the forecast of a metric, from a recorded history up to the time of the decision.

use std::sync::Arc;

use foretide_domain::{
    demand,
    forecast::{ForecastReading, Predicted, Refused, forecast_length},
    hpa::MetricSpec,
    lead_time::LeadTime,
    observation::Pod,
    proposal::{ForecastDetails, Reason},
    sim::{ForecastAhead, Recording},
    workload::Workload,
};
use foretide_models::Forecast;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::{
    data::ForecastData,
    forecast::{forecast, forecaster},
    recording::History,
};
use foretide_api::{
    autoscaler::Autoscaler,
    validation::{self, WorkloadFacts},
};

/// Horizon of a forecast that is shown, if the prediction window is shorter.
pub const AHEAD: SignedDuration = SignedDuration::from_hours(12);

/// A metric's past up to a moment, and its forecast from there.
#[derive(Debug)]
pub struct Outlook {
    /// The metric.
    pub metric: MetricSpec,
    /// File or server of the history.
    pub file: String,
    /// The recorded demand up to the decision and later; only the former is input of the forecast.
    pub recording: Recording,
    /// The total demand at the decision; absent if the last value is too old.
    pub demand: Option<f64>,
    /// Absent without a prediction in the spec.
    pub forecast: Option<Result<Forecast, Refused>>,
    /// Time of the decision.
    pub at: Timestamp,
    /// The span whose peak is provided for; none without a prediction.
    pub window: Option<SignedDuration>,
    /// The lead time that the forecast assumes.
    pub lead_time: LeadTime,
}

/// A forecast of a metric as JSON has it.
#[derive(Debug, Serialize)]
pub(super) struct OutlookData {
    metric: String,
    #[serde(flatten)]
    peak: Option<Peak>,
    #[serde(flatten)]
    forecast: ForecastData,
}

/// The peak of a forecast as JSON has it.
#[derive(Debug, Serialize)]
struct Peak {
    peak: Option<f64>,
}

// === impl Outlook ===

impl Outlook {
    /// The forecast reading of this metric; `None` without a prediction.
    pub fn reading(&self, pods: &[Arc<Pod>]) -> Option<ForecastReading> {
        let forecast = self.forecast.as_ref()?.as_ref();
        let grounds = forecast.map(|forecast| ForecastDetails::of(forecast, self.lead_time, 0.0));
        Some(ForecastReading {
            name: self.metric.identifier(),
            outcome: match forecast {
                Err(refused) => Err(refused.clone()),
                Ok(forecast) => self.predicted(forecast, pods),
            },
            details: grounds.ok(),
            query: None,
        })
    }

    /// The forecast for later decisions; `None` without a prediction. Later pods are assumed to be like `pods`.
    pub fn ahead(&self, pods: &[Arc<Pod>]) -> Option<ForecastAhead> {
        let forecast = self.forecast.clone()?;
        Some(ForecastAhead {
            name: self.metric.identifier(),
            made: forecast.and_then(|forecast| Ok((forecast, self.target(pods)?))),
            lead_time: self.lead_time,
        })
    }

    /// Amount that one replica carries.
    ///
    /// # Errors
    /// The metric has no target per replica.
    pub fn target(&self, pods: &[Arc<Pod>]) -> Result<f64, Refused> {
        demand::target(&self.metric, pods, None)
            .map_err(|error| Refused::new(Reason::NotForecastable, error.to_string()))
    }

    /// The forecast with its peak, or the reason for its absence, as JSON has it.
    pub(super) fn data(&self) -> Option<OutlookData> {
        let made = self.forecast.as_ref()?;
        let samples = made.iter().flat_map(Forecast::samples);
        Some(OutlookData {
            metric: self.metric.identifier(),
            peak: made.is_ok().then(|| Peak { peak: self.peak() }),
            forecast: ForecastData::new(made, samples),
        })
    }

    /// The highest value forecast for the prediction window.
    pub fn peak(&self) -> Option<f64> {
        let forecast = self.forecast.as_ref()?.as_ref().ok()?;
        forecast.demand(self.at, self.window?)
    }

    fn predicted(&self, forecast: &Forecast, pods: &[Arc<Pod>]) -> Result<Predicted, Refused> {
        let window = self.window.unwrap_or_default();
        Predicted::by(forecast, self.at, window, self.target(pods)?).ok_or_else(|| {
            Refused::new(
                Reason::Expired,
                "the forecast does not cover the prediction window",
            )
        })
    }
}

/// The outlook of every metric that has a history, with forecasts that reach at least `ahead`.
pub fn outlooks(
    autoscaler: &Autoscaler,
    workload: &Workload,
    histories: Vec<History>,
    at: Timestamp,
    ahead: SignedDuration,
) -> Vec<Outlook> {
    let window = workload
        .floor
        .prediction
        .as_ref()
        .map(|prediction| prediction.window);
    let asked = autoscaler.spec().prediction.as_ref();
    // A lead time out of range is reported by the forecaster, which cannot be built.
    let lead_time = asked
        .map(|asked| validation::lead_time(asked, WorkloadFacts::default()))
        .and_then(Result::ok)
        .unwrap_or_else(|| LeadTime::of(None, None));
    let mut outlooks = Vec::new();
    for history in histories {
        let metric = workload
            .metrics
            .iter()
            .find(|m| m.identifier() == history.metric);
        let Some(metric) = metric.cloned() else {
            continue;
        };
        let recording = history.recording;
        let forecast = asked.map(|prediction| {
            let mut forecaster = forecaster(prediction, WorkloadFacts::default())?;
            let window = window.unwrap_or_default();
            let length = forecast_length(window, forecaster.sample_interval()).max(ahead);
            forecast(&mut *forecaster, &recording, at, length)
        });
        outlooks.push(Outlook {
            demand: recording.value_at(at),
            at,
            window,
            recording,
            metric,
            file: history.file,
            forecast,
            lead_time,
        });
    }
    outlooks
}
