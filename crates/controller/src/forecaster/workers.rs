//! Runs refreshes with bounded concurrency: those that need a query separately from those that do not, and by the
//! servers that they query, so that a slow Prometheus delays only the series that need it. Namespaces share all slots
//! ([`FairSlots`]), so that slow queries of one delay no series of another. When each series is due is `refresh`'s.

use std::{collections::BTreeSet, sync::Arc};

use foretide_models::Sample;
use jiff::Timestamp;
use tokio::time::timeout;

use super::{
    HistorySource,
    demand_history::LiveMinutes,
    forecasts::Forecasts,
    history::{HistoryCache, Servers},
    minutes::SeriesSamples,
    read_plan::ReadPlan,
    refresher::{RefreshError, RefreshResult, Refresher},
    series_key::SeriesKey,
};
use foretide_api::ports::{HistoryError, HistoryReader};
use foretide_base::{
    error::chain,
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

/// The history of one series as it was read.
struct Read {
    values: Result<Vec<Sample>, HistoryError>,
    live: LiveMinutes,
    /// The time of the read, after the wait for a slot.
    now: Timestamp,
    /// The slot of the queries, which is held until the forecast is computed.
    slot: Option<Slot>,
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
        let queries = self.queries.values();
        (queries.iter().map(|slots| &**slots))
            .chain([&self.computations, &self.learning])
            .flat_map(FairSlots::slow_tenants)
            .collect()
    }
}

impl<H: HistoryReader, Q> Workers<H, Q> {
    /// Refreshes one series as soon as a slot is free.
    pub async fn refresh(
        &self,
        key: &SeriesKey,
        mut refresher: Box<Refresher>,
    ) -> Option<RefreshResult> {
        let reader = &self.source.as_ref()?.reader;
        let Refresher { plan, fit } = &mut *refresher;
        let computation = self.computations.acquire(&plan.namespace).await;
        let (read, computation) = if let Some(read) = self.cached(key, plan) {
            (read, computation)
        } else {
            // A series that waits for a query must not hold a slot for computations.
            drop(computation);
            let read = self.query(reader, key, plan).await;
            if plan.is_other_tenant {
                fit.start_over(None);
            }
            let slots = if plan.is_learning(read.now) {
                &self.learning
            } else {
                &self.computations
            };
            (read, slots.acquire(&plan.namespace).await)
        };
        // Histories that wait for their computation with a slot of their servers do not pile up in memory.
        let Read {
            values,
            live,
            now,
            slot: _held,
        } = read;
        let samples = values.map(|values| {
            let queried = plan.minutes(now).map(|read| self.history.queried(&read));
            plan.samples(&values, &queried.unwrap_or_default(), &live, now)
        });
        Some(self.forecast(refresher, samples, computation, now).await)
    }

    /// The history, if no query is needed for it.
    fn cached(&self, key: &SeriesKey, plan: &ReadPlan) -> Option<Read> {
        let now = self.machine.clock().now();
        let live = self.forecasts.demand_history().minutes(key, now);
        let values = (self.history).cached_samples(&plan.values(&live.values, now))?;
        Some(Read {
            values: Ok(values),
            live,
            now,
            slot: None,
        })
    }

    /// The history, queried where it is missing as soon as a slot for that is free.
    async fn query(&self, reader: &H, key: &SeriesKey, plan: &mut ReadPlan) -> Read {
        let clock = self.machine.clock();
        let slots = self.queries.get_or_insert_with(plan.servers.clone(), || {
            FairSlots::new(CONCURRENT_QUERIES, clock.clone())
        });
        let slot = slots.acquire(&plan.namespace).await;
        let now = clock.now();
        let live = self.forecasts.demand_history().minutes(key, now);
        let began = clock.monotonic();
        let values = slot.run(self.read(reader, plan, &live.values, now)).await;
        if values.is_ok()
            && let Some(minutes) = plan.begin_minutes(now)
        {
            // The forecast does not wait longer for raw values than for the values.
            let limit = clock.monotonic().since(began).max(PROMPT);
            let query = timeout(limit, self.history.query(reader, &minutes));
            match slot.run(query).await {
                Ok(Ok(_)) => plan.end_minutes(),
                Ok(Err(error)) => {
                    tracing::debug!(error = %chain(&error), "could not read raw values");
                }
                // Not an error: the plan knows that the query may not return, and the values are used without raw
                // ones.
                Err(_timed_out) => {}
            }
        }
        Read {
            values,
            live,
            now,
            slot: Some(slot),
        }
    }

    /// Reads the values, and again if the tenant changed meanwhile: only a part of the history was asked for, and a new
    /// tenant needs all of it. A further change is seen next time.
    async fn read(
        &self,
        reader: &H,
        plan: &mut ReadPlan,
        live: &[Sample],
        now: Timestamp,
    ) -> Result<Vec<Sample>, HistoryError> {
        plan.keep_versions(plan.query.versions(reader));
        let values = self.read_once(reader, plan, live, now).await;
        if plan.keep_versions(plan.query.versions(reader)) {
            return self.read_once(reader, plan, live, now).await;
        }
        values
    }

    async fn read_once(
        &self,
        reader: &H,
        plan: &mut ReadPlan,
        live: &[Sample],
        now: Timestamp,
    ) -> Result<Vec<Sample>, HistoryError> {
        let mut context = plan.values(live, now);
        let values = self.history.read(reader, &mut context).await;
        plan.live_match = context.live_match;
        values
    }

    /// Forecasts, or passes on why the history could not be read. Drops the samples that are learned before another
    /// series gets the slot, which is held until the computation has ended, also if the refresh is dropped before.
    async fn forecast(
        &self,
        refresher: Box<Refresher>,
        samples: Result<SeriesSamples, HistoryError>,
        slot: Slot,
        now: Timestamp,
    ) -> RefreshResult {
        let slot = Arc::new(slot);
        let result = match samples {
            Ok(samples) => {
                let held = Arc::clone(&slot);
                // A forecast is pure computation and would block the other tasks: fitting two weeks takes longer than
                // an async task may block. A panic ends this task only.
                let work = self.machine.run_blocking(move || {
                    let _held = held;
                    refresher.forecast(samples, now)
                });
                slot.run(work)
                    .await
                    .unwrap_or_else(|_| RefreshResult::panicked())
            }
            Err(error) => RefreshResult {
                refresher: Some(refresher),
                outcome: Err(RefreshError::Unread(error)),
                rejected: Vec::new(),
            },
        };
        // A forecaster that learns has most samples in its own form.
        if let Some(Refresher { plan, fit }) = result.refresher.as_deref()
            && let Some(since) = fit.learned.since(now)
        {
            for query in plan.queries() {
                self.history.drop_before(query, since);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests;
