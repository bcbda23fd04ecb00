//! The forecaster of one series, and what it knows of the series from earlier forecasts.
//!
//! Times are aligned to a fixed grid, so that a forecaster can go on from the samples that it has learned from.

use foretide_domain::{forecast::Refused, proposal::Reason};
use foretide_models::{Algorithm, Forecast, ForecastError, Forecaster};
use jiff::{SignedDuration, Timestamp};

use super::ingest::{self, Rejection};
use super::minutes::{SeriesSamples, aligned};
use super::read_plan::Learned;
use super::request::RefreshRequest;
use super::unit_change::{PastLevels, UnitChange, unit_change};

/// The forecaster of a series with its memory: a function from samples to a forecast.
#[derive(Debug)]
pub struct Fit {
    pub forecaster: Box<dyn Forecaster>,
    pub learned: Learned,
    algorithm: Algorithm,
    horizon: SignedDuration,
    /// The levels of the series, including those of samples that are no longer kept.
    levels: PastLevels,
    /// The highest value that ever passed the checks.
    highest_accepted: f64,
    /// The time up to which rejected samples have been counted.
    checked_until: Timestamp,
}

// === impl Fit ===

impl Fit {
    pub fn new(request: &RefreshRequest, forecaster: Box<dyn Forecaster>) -> Self {
        Self {
            forecaster,
            learned: Learned::nothing(&request.algorithm),
            algorithm: request.algorithm.clone(),
            horizon: request.horizon,
            levels: PastLevels::default(),
            highest_accepted: 0.0,
            checked_until: Timestamp::MIN,
        }
    }

    /// Forecasts from samples, and adds the reasons why some were rejected, each counted once.
    ///
    /// # Errors
    /// The samples allow no forecast.
    pub fn forecast(
        &mut self,
        mut samples: SeriesSamples,
        now: Timestamp,
        rejected: &mut Vec<Rejection>,
    ) -> Result<Forecast, Refused> {
        if let Some(refused) = samples.refused {
            return Err(refused);
        }
        let step = self.forecaster.sample_interval();
        let span = self.forecaster.history_length();
        let start = now.saturating_sub(span).unwrap_or(now);
        let start = samples.since.map_or(start, |since| since.max(start));
        let (from, highest) = (aligned(start, step), &mut self.highest_accepted);
        for (at, reason) in ingest::gate(&mut samples.values, from, now, highest) {
            // Histories of two refreshes overlap.
            if at > self.checked_until {
                rejected.push(reason);
            }
        }
        self.checked_until = now;
        let mut series = samples.binned(step, start, now);
        if let Some(change) = unit_change(&series, &self.levels) {
            self.start_over(Some(change));
            series = samples.binned(step, change.at, now);
        }
        self.levels.record(&series);
        let forecast = self.forecaster.forecast(&series, self.horizon);
        // From an idle series, too, the forecaster has learned all there is.
        let has_learned = matches!(forecast, Ok(_) | Err(ForecastError::ZeroSeries));
        // The first fit decides about raw values; the next one adds to it.
        if has_learned
            && self.learned.is_incremental
            && self.learned.fitted_at.replace(now).is_none()
        {
            self.learned.from_raw = samples.minutes_are_usable;
        }
        forecast.map_err(|refusal| match (&refusal, self.learned.unit_change) {
            (ForecastError::StaleHistory { .. }, _) if samples.ends_left_out => {
                let message = "more pods run than the spec asks for, as in a rolling update: these minutes are not learned";
                Refused::new(Reason::PodsChanging, message)
            }
            (ForecastError::InsufficientHistory { .. }, Some(UnitChange { at, factor })) => {
                let message = format!(
                    "the unit of the series changed at {at} by a factor of {factor}; earlier samples are not used: {refusal}"
                );
                Refused::new(Reason::SeriesChanged, message)
            }
            _ => Refused::from(&refusal),
        })
    }

    /// Forgets what was learned, from another tenant or before a change of unit.
    pub fn start_over(&mut self, unit_change: Option<UnitChange>) {
        self.learned.unit_change = unit_change;
        self.levels = PastLevels::default();
        self.highest_accepted = 0.0;
        self.renew_forecaster();
    }

    /// Replaces the forecaster by one that has learned nothing; the next refresh reads the whole history.
    pub fn renew_forecaster(&mut self) {
        self.learned.fitted_at = None;
        // A forecaster was built from the same settings before, so there is no error to handle.
        if let Ok(forecaster) = self.algorithm.clone().build() {
            self.forecaster = forecaster;
        }
    }
}
