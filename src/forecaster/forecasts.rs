//! The forecasts in force: one table that the forecaster fills and every sync reads. Beside it, the [`DemandHistory`] and the
//! [`Fleets`]: what syncs have to tell in return.
//!
//! An entry outlives the query that could not refresh it, until the forecast itself expires; only
//! then is the reason for its absence what a reader gets. It refuses to fetch or to compute anything.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use foretide_models::Forecast;
use jiff::{SignedDuration, Timestamp};

use super::{demand_history::DemandHistory, shares::Fleets};
use crate::domain::{
    forecast::Refused,
    lead_time::LeadTime,
    proposal::{ForecastDetails, Reason},
};

/// Which series a forecast is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesKey {
    /// UID of the autoscaler; with the name of a member where each is a fleet of its own ([`SeriesKey::of_member`]).
    pub uid: String,
    /// Identifier of the metric, such as `resource.cpu`.
    pub metric: String,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    forecast: Option<Arc<Forecast>>,
    lead_time: Option<LeadTime>,
    trouble: Option<Refused>,
}

/// The forecasts in force, by series.
#[derive(Debug, Default)]
pub struct Forecasts {
    entries: RwLock<HashMap<SeriesKey, Entry>>,
    feed: DemandHistory,
    fleets: Fleets,
}

// === impl SeriesKey ===

impl SeriesKey {
    /// The UID under which one member of a `Duplicated` fleet has series of its own: `<uid>/<member>`. What syncs tell
    /// of that member, and ask for it, goes by it; while they tell of none, the fleet has the series of the total.
    #[must_use]
    pub fn of_member(uid: &str, member: &str) -> String {
        format!("{uid}/{member}")
    }
}

// === impl Forecasts ===

impl Forecasts {
    /// What syncs tell forecasters.
    #[must_use]
    pub fn feed(&self) -> &DemandHistory {
        &self.feed
    }

    /// Whose series make up the demand of each fleet, as syncs tell it.
    #[must_use]
    pub fn fleets(&self) -> &Fleets {
        &self.fleets
    }

    /// Puts a fresh forecast in force.
    pub fn renew(&self, key: SeriesKey, forecast: Forecast, lead_time: LeadTime) {
        let entry = Entry {
            forecast: Some(Arc::new(forecast)),
            lead_time: Some(lead_time),
            trouble: None,
        };
        self.write(|entries| entries.insert(key, entry));
    }

    /// Withdraws a forecast: the history itself says that there is none to be had.
    pub fn withdraw(&self, key: SeriesKey, refused: Refused) {
        let entry = Entry {
            forecast: None,
            lead_time: None,
            trouble: Some(refused),
        };
        self.write(|entries| entries.insert(key, entry));
    }

    /// Notes that a forecast could not be refreshed; what is in force stays until it expires.
    pub fn trouble(&self, key: SeriesKey, refused: Refused) {
        self.write(|entries| entries.entry(key).or_default().trouble = Some(refused));
    }

    /// Forgets every series that `keep` does not want.
    pub fn retain(&self, keep: impl Fn(&SeriesKey) -> bool) {
        self.write(|entries| entries.retain(|key, _| keep(key)));
    }

    /// The forecast in force at `now`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn in_force(&self, key: &SeriesKey, now: Timestamp) -> Result<Arc<Forecast>, Refused> {
        self.founded(key, now).map(|(forecast, _)| forecast)
    }

    /// The highest value that a forecast in force predicts for `[now, now + window]`, and what that very forecast stands
    /// on.
    ///
    /// # Errors
    /// Why there is none.
    pub fn outlook(
        &self,
        key: &SeriesKey,
        now: Timestamp,
        window: SignedDuration,
    ) -> Result<(f64, ForecastDetails), Refused> {
        let (forecast, grounds) = self.founded(key, now)?;
        let demand = forecast.demand(now, window);
        Ok((demand.ok_or_else(|| missing(true))?, grounds))
    }

    /// The forecast in force at `now`, and what it stands on.
    ///
    /// # Errors
    /// Why there is none.
    pub fn founded(
        &self,
        key: &SeriesKey,
        now: Timestamp,
    ) -> Result<(Arc<Forecast>, ForecastDetails), Refused> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(key).cloned().unwrap_or_default();
        drop(entries);
        match (entry.forecast, entry.lead_time) {
            (Some(forecast), Some(lead_time)) if now <= forecast.valid_until() => {
                let censored = self.feed.censored_percent(key);
                let grounds = ForecastDetails::of(&forecast, lead_time, censored);
                Ok((forecast, grounds))
            }
            (expired, _) => Err(entry.trouble.unwrap_or_else(|| missing(expired.is_some()))),
        }
    }

    fn write<T>(&self, change: impl FnOnce(&mut HashMap<SeriesKey, Entry>) -> T) {
        drop(change(
            &mut self.entries.write().unwrap_or_else(PoisonError::into_inner),
        ));
    }
}

fn missing(expired: bool) -> Refused {
    if expired {
        return Refused::new(
            Reason::Expired,
            "the forecast has expired and no newer one came",
        );
    }
    Refused::new(Reason::Pending, "no forecast has been computed yet")
}
