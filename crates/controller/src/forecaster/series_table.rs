//! The series that autoscalers need, each with everything that the forecaster keeps of it from one pass to the next.

use std::collections::{BTreeMap, HashSet};

use foretide_domain::{forecast::Refused, proposal::Reason};
use foretide_models::Forecaster;
use tokio::task::Id;

use super::history::CacheKey;
use super::refresh::SeriesRefresh;
use super::request::{RefreshRequest, RequestInputs};
use super::series_key::SeriesKey;
use foretide_base::clock::Monotonic;

/// The series in use, in the order of their keys; a series that is no longer needed is dropped as a whole.
///
/// Not part of an entry:
///
/// - the forecast in force, the demand history and the members of a fleet, which syncs read or fill at any time: they
///   have locks, and their entries come with a sync, before or after those here;
/// - the cached samples, which belong to a query that several series may share, and are locked by query;
/// - the series that memory does not suffice for: a set that every pass makes anew from the series of all namespaces;
/// - the price of a namespace, which is that of all of its series.
#[derive(Debug, Default)]
pub struct SeriesTable(BTreeMap<SeriesKey, SeriesEntry>);

/// The state of one series.
#[derive(Debug)]
pub struct SeriesEntry {
    /// The time at which the series was first asked for.
    pub first_seen: Monotonic,
    /// The inputs that its request was last built from, also where it was refused.
    pub inputs: Option<RequestInputs>,
    /// The refresh; absent where the request was refused.
    pub refresh: Option<SeriesRefresh>,
}

// === impl SeriesTable ===

impl SeriesTable {
    /// The entry of a series, which is new if the series is asked for the first time.
    pub fn ask(&mut self, key: &SeriesKey, now: Monotonic) -> &mut SeriesEntry {
        self.0.entry(key.clone()).or_insert(SeriesEntry {
            first_seen: now,
            inputs: None,
            refresh: None,
        })
    }

    /// The entry of a series whose refresh runs in a task; `None` if it was replaced or dropped since.
    pub fn running(&mut self, key: &SeriesKey, task: Id) -> Option<&mut SeriesEntry> {
        (self.0.get_mut(key)).filter(|entry| entry.is_running_as(task))
    }

    /// Drops the request of a series; the next pass that asks for it builds a new one.
    pub fn reset(&mut self, key: &SeriesKey) {
        if let Some(entry) = self.0.get_mut(key) {
            entry.reset();
        }
    }

    /// Drops the request of the series whose refresh runs in a task. A task that was aborted with its refresh is not
    /// found, and nothing is dropped.
    pub fn reset_running(&mut self, task: Id) {
        for entry in self.0.values_mut() {
            if entry.is_running_as(task) {
                entry.reset();
            }
        }
    }

    /// Drops every other series.
    pub fn retain(&mut self, needed: &HashSet<SeriesKey>) {
        self.0.retain(|key, _| needed.contains(key));
    }

    /// The refresh of a series.
    pub fn refresh(&self, key: &SeriesKey) -> Option<&SeriesRefresh> {
        self.0.get(key)?.refresh.as_ref()
    }

    /// The series with a refresh.
    pub fn refreshes(&self) -> impl Iterator<Item = (&SeriesKey, &SeriesRefresh)> {
        (self.0.iter()).filter_map(|(key, entry)| Some((key, entry.refresh.as_ref()?)))
    }

    /// The series with a refresh, to be changed.
    pub fn refreshes_mut(&mut self) -> impl Iterator<Item = (&SeriesKey, &mut SeriesRefresh)> {
        (self.0.iter_mut()).filter_map(|(key, entry)| Some((key, entry.refresh.as_mut()?)))
    }

    /// The cache entries that the series read.
    pub fn cache_keys(&self) -> HashSet<CacheKey> {
        (self.refreshes())
            .flat_map(|(_, refresh)| refresh.cache_keys())
            .collect()
    }
}

// === impl SeriesEntry ===

impl SeriesEntry {
    /// Replaces the refresh by one for a request, unless that is the same but for its lead time: then its due time, its
    /// failures and what its forecaster has learned stay.
    ///
    /// # Errors
    /// The reason to withdraw the forecast in force: there is no refresh, or one of another query.
    pub fn update(
        &mut self,
        request: Result<(RefreshRequest, Box<dyn Forecaster>), Refused>,
        now: Monotonic,
    ) -> Result<(), Refused> {
        let before = self.refresh.take();
        let (request, forecaster) = request?;
        match before {
            Some(mut refresh) if refresh.serves(&request) => {
                refresh.update(request);
                self.refresh = Some(refresh);
            }
            before => {
                let refresh = SeriesRefresh::new(request, forecaster, now)?;
                let refresh = self.refresh.insert(refresh);
                match before {
                    None => {}
                    Some(before) if before.has_same_queries(refresh) => {
                        refresh.take_trade_offs(before);
                    }
                    // A forecast from another query may be about something else.
                    Some(_) => {
                        let message = "the history query has changed, and no forecast from the new query has been computed yet";
                        return Err(Refused::new(Reason::Pending, message));
                    }
                }
            }
        }
        Ok(())
    }

    fn is_running_as(&self, task: Id) -> bool {
        (self.refresh.as_ref()).is_some_and(|refresh| refresh.is_running_as(task))
    }

    /// Drops the request.
    pub fn reset(&mut self) {
        (self.inputs, self.refresh) = (None, None);
    }
}
