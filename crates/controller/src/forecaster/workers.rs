//! Runs refreshes with bounded concurrency: those that need a query separately from those that do not, and by the
//! servers that they query, so that a slow Prometheus delays only the series that need it. Namespaces share all slots
//! ([`FairSlots`]), so that slow queries of one delay no series of another. When each series is due is `refresh`'s.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use tokio::time::timeout;

use super::{
    HistorySource,
    forecasts::Forecasts,
    history::{HistoryCache, Servers},
    minutes::SeriesSamples,
    refresher::{RefreshResult, Refresher},
    series_key::SeriesKey,
};
use foretide_api::ports::{HistoryError, HistoryReader};
use foretide_base::{
    fair_slots::{FairSlots, PROMPT, Slot},
    machine::Machine,
    shared_map::SharedMap,
};

/// Number of series that query the same servers at once, and as many more whose queries are slow: four of one
/// namespace, and one that is kept for another. A Prometheus runs 20 queries at once by default. Each series keeps its
/// slot until its forecast is computed, so that histories do not pile up in memory.
const CONCURRENT_QUERIES: usize = 5;
/// Maximum number of sets of servers that are known at once.
const MAX_KNOWN: usize = 64;
/// Number of forecasts that are computed at once: four of one namespace, and one that is kept for another.
const CONCURRENT_COMPUTATIONS: usize = 5;
/// Number of forecasters that learn a whole history at once: one of one namespace, and one of another. Each takes some
/// ten times the memory that it keeps.
const CONCURRENT_LEARNING: usize = 2;

/// State that all refreshes share.
#[derive(Debug)]
pub struct Workers<H, Q> {
    pub source: Option<HistorySource<H, Q>>,
    pub forecasts: Arc<Forecasts>,
    pub history: HistoryCache,
    machine: Machine,
    queries: SharedMap<Servers, FairSlots>,
    computations: FairSlots,
    learning: FairSlots,
}

// === impl Workers ===

impl<H, Q> Workers<H, Q> {
    pub fn new(
        source: Option<HistorySource<H, Q>>,
        machine: Machine,
        forecasts: Arc<Forecasts>,
    ) -> Self {
        Self {
            source,
            forecasts,
            history: HistoryCache::default(),
            queries: SharedMap::new(MAX_KNOWN),
            computations: FairSlots::new(CONCURRENT_COMPUTATIONS, machine.clock().clone()),
            learning: FairSlots::new(CONCURRENT_LEARNING, machine.clock().clone()),
            machine,
        }
    }

    /// The namespaces whose queries, or computations, are slow.
    pub fn slow_namespaces(&self) -> BTreeSet<Arc<str>> {
        let of_servers = self.queries.values().into_iter();
        let slow = of_servers.flat_map(|slots| slots.slow_tenants());
        let computing = [&self.computations, &self.learning].into_iter();
        slow.chain(computing.flat_map(FairSlots::slow_tenants))
            .collect()
    }
}

impl<H: HistoryReader, Q> Workers<H, Q> {
    /// Refreshes one series as soon as a slot is free; `now` is taken after the wait.
    pub async fn refresh(
        &self,
        key: &SeriesKey,
        mut refresher: Box<Refresher>,
    ) -> Option<RefreshResult> {
        let reader = &self.source.as_ref()?.reader;
        let namespace = refresher.namespace();
        let minutes = |now: Timestamp| self.forecasts.demand_history().minutes(key, now);
        {
            let computation = self.computations.acquire(&namespace).await;
            let (now, history) = (self.machine.clock().now(), &self.history);
            // Otherwise the slot is given back first: a series that waits for a query must not hold one for
            // computations.
            if let Some(samples) = refresher.cached_samples(history, &minutes(now), now) {
                return Some(self.finish(refresher, Ok(samples), computation, now).await);
            }
        }
        let clock = self.machine.clock().clone();
        let new = || FairSlots::new(CONCURRENT_QUERIES, clock.clone());
        let queries = self.queries.get_or_insert_with(refresher.servers(), new);
        let query = queries.acquire(&namespace).await;
        let now = self.machine.clock().now();
        let live = minutes(now);
        let began = clock.monotonic();
        let read = query.run(refresher.read(reader, &self.history, &live.values, now));
        let values = read.await;
        if values.is_ok() && refresher.needs_raw(now) {
            // The forecast does not wait longer for raw values than for the values.
            let limit = clock.monotonic().since(began).max(PROMPT);
            let raw = refresher.query_raw(reader, &self.history, now);
            // Not an error: `begin` has recorded a query that may not return, and the values are used without raw
            // ones.
            let _timed_out = query.run(timeout(limit, raw)).await;
        }
        let slots = if refresher.is_learning(now) {
            &self.learning
        } else {
            &self.computations
        };
        let computation = slots.acquire(&namespace).await;
        let samples = values.map(|values| refresher.with_raw(&values, &self.history, &live, now));
        Some(self.finish(refresher, samples, computation, now).await)
    }

    /// Forecasts, and drops the samples that are learned before another series gets the slot.
    async fn finish(
        &self,
        refresher: Box<Refresher>,
        samples: Result<SeriesSamples, HistoryError>,
        slot: Slot,
        now: Timestamp,
    ) -> RefreshResult {
        let result = refresher.finish(samples, &self.machine, slot, now).await;
        if let Some(refresher) = &result.refresher {
            refresher.drop_learned(&self.history, now);
        }
        result
    }
}

#[cfg(test)]
mod tests;
