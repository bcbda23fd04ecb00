//! The forecasts of one metric on the virtual clock: made at the refresh period of the forecaster, from the past only,
//! and in force until they expire.

use std::{collections::VecDeque, sync::Arc};

use foretide_models::{Forecast, Forecaster, Prediction, Series, TradeOffs};
use jiff::{SignedDuration, Timestamp};

use super::{MINUTE, RecordedMetric};
use crate::{
    demand,
    forecast::{ForecastReading, Predicted, Refused, forecast_length},
    lead_time::LeadTime,
    observation::{Container, Pod},
    proposal::{ForecastDetails, Reason},
};

/// A forecaster and its latest forecast of one metric.
#[derive(Debug)]
pub(super) struct MetricForecaster<'a> {
    recorded: &'a RecordedMetric,
    window: SignedDuration,
    lead_time: LeadTime,
    /// The least length of the path, for drawing.
    ahead: SignedDuration,
    forecaster: Option<Box<dyn Forecaster>>,
    series: Series,
    next: Timestamp,
    latest: Result<Forecast, Refused>,
    /// The forecasts for the minutes within the next lead time, ordered by the beginning of the minutes.
    upcoming: VecDeque<Prediction>,
}

// === impl MetricForecaster ===

impl<'a> MetricForecaster<'a> {
    /// A forecaster without a forecast yet; `forecaster` may be the reason why there is none.
    pub(super) fn new(
        recorded: &'a RecordedMetric,
        forecaster: Result<Box<dyn Forecaster>, Refused>,
        window: SignedDuration,
        lead_time: LeadTime,
        begin: Timestamp,
    ) -> Self {
        let (forecaster, refused) = match forecaster {
            Ok(forecaster) => (Some(forecaster), None),
            Err(refused) => (None, Some(refused)),
        };
        let series = forecaster.as_ref().map_or_else(
            || Series::from_values(begin, SignedDuration::ZERO, Vec::new()),
            |f| {
                recorded
                    .recording
                    .series(f.sample_interval(), f.history_length(), begin)
            },
        );
        Self {
            recorded,
            window,
            lead_time,
            ahead: SignedDuration::ZERO,
            forecaster,
            series,
            next: begin,
            latest: Err(refused.unwrap_or_else(|| {
                Refused::new(Reason::Pending, "no forecast has been computed yet")
            })),
            upcoming: VecDeque::new(),
        }
    }

    /// The forecast that was made last, if one could be made.
    pub(super) fn latest(&self) -> Option<&Forecast> {
        self.latest.as_ref().ok()
    }

    /// Reports this lead time, which must be the one that the forecaster was built with.
    pub(super) fn with_lead_time(&mut self, lead_time: LeadTime) {
        self.lead_time = lead_time;
    }

    /// Asks for paths of at least this length.
    pub(super) fn set_least_length(&mut self, ahead: SignedDuration) {
        self.ahead = ahead;
    }

    /// Hypothetical results of each quantile so far, if the forecaster measures them.
    pub(super) fn trade_offs(&self) -> Option<TradeOffs> {
        self.forecaster.as_ref()?.trade_offs()
    }

    /// Changes the price at which the forecaster buys replicas, if it was configured with one.
    pub(super) fn set_price(&mut self, price: f64) {
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.set_price(price);
        }
    }

    /// The forecast at `now` for these pods.
    pub(super) fn reading(
        &mut self,
        pods: &[Arc<Pod>],
        template: &[Container],
        now: Timestamp,
    ) -> ForecastReading {
        self.refresh(now);
        self.remember_forecast(now);
        let grounds = self
            .latest()
            .map(|forecast| ForecastDetails::of(forecast, self.lead_time, 0.0));
        ForecastReading {
            name: self.recorded.metric.identifier(),
            outcome: self.predicted(pods, template, now),
            details: grounds,
            query: None,
        }
    }

    fn refresh(&mut self, now: Timestamp) {
        let Some(forecaster) = self.forecaster.as_mut().filter(|_| now >= self.next) else {
            return;
        };
        let step = forecaster.sample_interval();
        let recording = &self.recorded.recording;
        recording.extend(&mut self.series, forecaster.history_length(), now);
        let horizon = forecast_length(self.window, step).max(self.ahead);
        let made = forecaster.forecast(&self.series, horizon);
        self.latest = made.map_err(|refusal| Refused::from(&refusal));
        self.next = now
            .checked_add(forecaster.refresh_period())
            .unwrap_or(Timestamp::MAX);
    }

    /// The forecast, made a lead time before, for the minute that begins at `at`, in the unit of the metric.
    pub(super) fn forecast_for(&self, at: Timestamp) -> Option<Prediction> {
        self.upcoming.front().copied().filter(|made| made.at == at)
    }

    /// Stores the forecast for the minute that begins a lead time from now, and drops past minutes.
    fn remember_forecast(&mut self, now: Timestamp) {
        while self.upcoming.pop_front_if(|made| made.at < now).is_some() {}
        let Some(at) = now.checked_add(self.lead_time.span).ok() else {
            return;
        };
        let end = at.checked_add(MINUTE).unwrap_or(Timestamp::MAX);
        let made = self
            .latest()
            .filter(|made| now <= made.valid_until())
            .and_then(|made| made.samples().take_while(|p| p.at <= end).last());
        self.upcoming
            .extend(made.map(|made| Prediction { at, ..made }));
    }

    fn predicted(
        &self,
        pods: &[Arc<Pod>],
        template: &[Container],
        now: Timestamp,
    ) -> Result<Predicted, Refused> {
        let forecast = self.latest.as_ref().map_err(Clone::clone)?;
        let target = demand::target(&self.recorded.metric, pods, Some(template))
            .map_err(|error| Refused::new(Reason::NotForecastable, error.to_string()))?;
        Predicted::by(forecast, now, self.window, target).ok_or_else(|| {
            let message = "the forecast has expired and was not refreshed";
            Refused::new(Reason::Expired, message)
        })
    }
}
