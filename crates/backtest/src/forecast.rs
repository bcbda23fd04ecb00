//! The forecast of one series, as an autoscaler with `prediction: {}` would make it.

use foretide_crds::Prediction as PredictionSpec;
use foretide_domain::{
    forecast::Refused,
    proposal::Reason,
    sim::{BuiltForecaster, Recording},
};
use foretide_models::{Forecast, Forecaster, Prediction};
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

use crate::data::ForecastData;
use foretide_api::validation::{self, WorkloadFacts};

/// A series and its forecast.
#[derive(Debug, Serialize)]
pub struct ForecastReport {
    /// Query or file of the series.
    pub query: String,
    /// Samples of the series.
    #[serde(rename = "samples", serialize_with = "count")]
    pub recording: Recording,
    /// End of the history.
    pub at: Timestamp,
    /// Length of the forecast.
    #[serde(skip)]
    pub ahead: SignedDuration,
    /// The forecast, or the reason for its absence.
    #[serde(skip)]
    pub made: Result<Forecast, Refused>,
    forecast: ForecastData,
}

// === impl ForecastReport ===

impl ForecastReport {
    /// Forecasts a series from its end, or from `now` if it is empty.
    pub fn new(query: String, recording: Recording, ahead: SignedDuration, now: Timestamp) -> Self {
        let at = recording.last().unwrap_or(now);
        let made = forecaster(&PredictionSpec::default(), WorkloadFacts::default())
            .and_then(|mut forecaster| forecast(&mut *forecaster, &recording, at, ahead));
        Self {
            forecast: ForecastData::new(&made, path(&made, at, ahead)),
            query,
            recording,
            at,
            ahead,
            made,
        }
    }

    /// The forecast from the end of the history on, over its length.
    pub fn path(&self) -> Vec<Prediction> {
        path(&self.made, self.at, self.ahead)
    }
}

fn path(made: &Result<Forecast, Refused>, at: Timestamp, ahead: SignedDuration) -> Vec<Prediction> {
    let until = at.saturating_add(ahead).unwrap_or(Timestamp::MAX);
    let samples = made.iter().flat_map(Forecast::samples);
    samples.filter(|it| (at..=until).contains(&it.at)).collect()
}

/// The forecaster of a spec, or the problem of the spec.
pub(crate) fn forecaster(prediction: &PredictionSpec, facts: WorkloadFacts) -> BuiltForecaster {
    validation::algorithm(prediction, facts)
        .and_then(validation::build)
        .map_err(|violation| Refused::new(Reason::InvalidSpec, violation.to_string()))
}

/// The forecast of a series at a moment, from what was recorded until then.
pub(crate) fn forecast(
    forecaster: &mut dyn Forecaster,
    recording: &Recording,
    at: Timestamp,
    length: SignedDuration,
) -> Result<Forecast, Refused> {
    let step = forecaster.sample_interval();
    let series = recording.series(step, forecaster.history_length(), at);
    forecaster
        .forecast(&series, length)
        .map_err(|refusal| Refused::from(&refusal))
}

/// Writes a recording as the number of its samples.
fn count<S: Serializer>(recording: &Recording, to: S) -> Result<S::Ok, S::Error> {
    recording.samples().len().serialize(to)
}
