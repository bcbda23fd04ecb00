//! The table of forecasts: the forecaster fills it and every sync reads it. With it, the two tables that syncs fill for
//! the forecaster: [`DemandHistory`] and [`DemandShares`].
//!
//! A forecast stays in force until it expires, even while it cannot be refreshed; after that, a reader gets the reason
//! why it was not.

use std::{collections::HashMap, sync::Arc};

use foretide_domain::{
    forecast::{Predicted, Refused},
    lead_time::LeadTime,
    proposal::{ForecastDetails, Reason},
};
use foretide_models::Forecast;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;

use super::{demand_history::DemandHistory, series_key::SeriesKey, shares::DemandShares};

#[derive(Debug, Clone, Default)]
struct ForecastEntry {
    forecast: Option<Arc<Forecast>>,
    lead_time: Option<LeadTime>,
    failure: Option<Refused>,
    /// The note on each forecast.
    note: Option<Arc<str>>,
    /// The query of its history.
    query: Option<Arc<str>>,
}

/// The forecasts in force, by series.
#[derive(Debug, Default)]
pub struct Forecasts {
    entries: RwLock<HashMap<SeriesKey, ForecastEntry>>,
    demand_history: DemandHistory,
    shares: DemandShares,
}

// === impl Forecasts ===

impl Forecasts {
    /// The demand that syncs measured.
    pub fn demand_history(&self) -> &DemandHistory {
        &self.demand_history
    }

    /// The members whose demand adds up to that of each fleet.
    pub fn shares(&self) -> &DemandShares {
        &self.shares
    }

    /// Replaces the forecast of a series.
    pub fn replace(&self, key: SeriesKey, forecast: Forecast, lead_time: LeadTime) {
        let forecast = Arc::new(forecast);
        self.write(|entries| {
            let entry = entries.entry(key).or_default();
            entry.lead_time = Some(lead_time);
            entry.failure = None;
            entry.forecast.replace(forecast)
        });
    }

    /// Sets the note on each forecast of a series, and the query of its history.
    pub fn annotate(&self, key: SeriesKey, note: Option<Arc<str>>, query: Option<Arc<str>>) {
        self.write(|entries| {
            let entry = entries.entry(key).or_default();
            (entry.note, entry.query) = (note, query);
        });
    }

    /// The query of the history of a series, if one is asked.
    pub fn query(&self, key: &SeriesKey) -> Option<Arc<str>> {
        let entries = self.entries.read();
        entries.get(key)?.query.clone()
    }

    /// Removes the forecast of a series, because its history allows none.
    pub fn withdraw(&self, key: SeriesKey, refused: Refused) {
        self.write(|entries| {
            let entry = entries.entry(key).or_default();
            entry.failure = Some(refused);
            entry.lead_time = None;
            entry.forecast.take()
        });
    }

    /// Records why a forecast could not be refreshed; the one in force stays until it expires.
    pub fn record_failure(&self, key: SeriesKey, refused: Refused) {
        self.write(|entries| entries.entry(key).or_default().failure = Some(refused));
    }

    /// Drops every series that `keep` refuses.
    pub fn retain(&self, keep: impl Fn(&SeriesKey) -> bool) {
        self.write(|entries| entries.retain(|key, _| keep(key)));
    }

    /// The forecast in force at `now`.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn in_force(&self, key: &SeriesKey, now: Timestamp) -> Result<Arc<Forecast>, Refused> {
        self.with_details(key, now).map(|(forecast, _)| forecast)
    }

    /// The prediction of the forecast in force for `[now, now + window]` and replicas that carry `target` each, with
    /// the details of that forecast.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn predicted(
        &self,
        key: &SeriesKey,
        now: Timestamp,
        window: SignedDuration,
        target: f64,
    ) -> Result<(Predicted, ForecastDetails), Refused> {
        let (forecast, details) = self.with_details(key, now)?;
        let predicted = Predicted::by(&forecast, now, window, target);
        // The forecast is still valid, but ends within the window: it should have been refreshed before.
        Ok((predicted.ok_or_else(|| missing(true))?, details))
    }

    /// The forecast in force at `now`, and its details.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn with_details(
        &self,
        key: &SeriesKey,
        now: Timestamp,
    ) -> Result<(Arc<Forecast>, ForecastDetails), Refused> {
        let entries = self.entries.read();
        let entry = entries.get(key).cloned().unwrap_or_default();
        // Released before the details, which take another lock.
        drop(entries);
        match (entry.forecast, entry.lead_time) {
            (Some(forecast), Some(lead_time)) if now <= forecast.valid_until() => {
                let censored = self.demand_history.censored_percent(key);
                let details = ForecastDetails::of(&forecast, lead_time, censored);
                let note = entry.note.as_deref();
                Ok((forecast, details.with_note(note)))
            }
            // Why the last refresh failed says more than that the forecast has expired.
            (expired, _) => Err(entry.failure.unwrap_or_else(|| missing(expired.is_some()))),
        }
    }

    fn write<T>(&self, change: impl FnOnce(&mut HashMap<SeriesKey, ForecastEntry>) -> T) {
        drop(change(&mut self.entries.write()));
    }
}

fn missing(expired: bool) -> Refused {
    if expired {
        return Refused::new(
            Reason::Expired,
            "the forecast has expired and was not refreshed",
        );
    }
    Refused::new(Reason::Pending, "the first forecast is being computed")
}
