//! Runs refreshes with bounded concurrency: those that need a query separately from those that do not, and by the
//! servers that they query, so that a slow Prometheus delays only the series that need it. Namespaces share all slots
//! ([`FairSlots`]), so that slow queries of one delay no series of another. When each series is due is `refresh`'s.

use std::{collections::BTreeSet, sync::Arc};

use foretide_models::Sample;
use tokio::time::timeout;

use super::{
    HistorySource,
    forecasts::Forecasts,
    history::{HistoryCache, Servers},
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
    /// Refreshes one series as soon as a slot is free. The slot of its queries is held until its forecast is computed.
    pub async fn refresh(
        &self,
        key: &SeriesKey,
        mut refresher: Box<Refresher>,
    ) -> Option<RefreshResult> {
        let reader = &self.source.as_ref()?.reader;
        let Refresher { plan, fit } = &mut *refresher;
        let mut query_slot = None;
        let mut slot = self.computations.acquire(&plan.namespace).await;
        self.begin(key, plan);
        let cached = self.history.cached_samples(&plan.values());
        let values = if let Some(values) = cached {
            Ok(values)
        } else {
            // A series that waits for a query must not hold a slot for computations.
            drop(slot);
            let slots = self.queries.get_or_insert_with(plan.servers.clone(), || {
                FairSlots::new(CONCURRENT_QUERIES, self.machine.clock().clone())
            });
            let query_slot = query_slot.insert(slots.acquire(&plan.namespace).await);
            self.begin(key, plan);
            let values = self.query(reader, plan, query_slot).await;
            slot = if plan.is_learning() {
                self.learning.acquire(&plan.namespace).await
            } else {
                self.computations.acquire(&plan.namespace).await
            };
            values
        };
        let samples = values.map(|values| {
            let queried = plan.minutes().map(|read| self.history.queried(&read));
            plan.samples(&values, &queried.unwrap_or_default())
        });
        if plan.is_other_tenant {
            fit.start_over(None);
        }
        let now = plan.now;
        let result = match samples {
            Ok(samples) => self
                .compute(slot, move || {
                    let mut rejected = Vec::new();
                    let outcome = refresher.fit.forecast(samples, now, &mut rejected);
                    RefreshResult {
                        refresher: Some(refresher),
                        outcome: outcome.map_err(RefreshError::Refused),
                        rejected,
                    }
                })
                .await
                .unwrap_or_else(|| RefreshResult::failed(None, RefreshError::panicked())),
            Err(error) => RefreshResult::failed(Some(refresher), RefreshError::Unread(error)),
        };
        // A forecaster that learns has most samples in its own form.
        if let Some(Refresher { plan, fit }) = result.refresher.as_deref()
            && let Some(since) = fit.learned.since(now)
        {
            for query in plan.queries() {
                self.history.drop_before(query, since);
            }
        }
        Some(result)
    }

    /// Begins the reads of a series now.
    fn begin(&self, key: &SeriesKey, plan: &mut ReadPlan) {
        let now = self.machine.clock().now();
        plan.begin(now, self.forecasts.demand_history().minutes(key, now));
    }

    /// Queries what is missing of the values and of the raw values, and returns the values.
    async fn query(
        &self,
        reader: &H,
        plan: &mut ReadPlan,
        slot: &Slot,
    ) -> Result<Vec<Sample>, HistoryError> {
        let clock = self.machine.clock();
        let began = clock.monotonic();
        let values = slot.run(self.read(reader, plan)).await?;
        if let Some(minutes) = plan.begin_minutes() {
            // The forecast does not wait longer for raw values than for the values.
            let limit = clock.monotonic().since(began).max(PROMPT);
            let query = timeout(limit, self.history.query(reader, &minutes));
            let queried = slot.run(query).await;
            match queried {
                Ok(Ok(_)) => plan.end_minutes(),
                Ok(Err(error)) => {
                    tracing::debug!(error = %chain(&error), "could not read raw values");
                }
                // Not an error: the plan knows that the query may not return, and does without raw values.
                Err(_timed_out) => {}
            }
        }
        Ok(values)
    }

    async fn read(&self, reader: &H, plan: &mut ReadPlan) -> Result<Vec<Sample>, HistoryError> {
        let mut is_repeated = false;
        plan.keep_versions(|query| reader.version(query));
        loop {
            let mut context = plan.values();
            let values = self.history.read(reader, &mut context).await;
            plan.live_match = context.live_match;
            // The tenant changed during the read: only a part of the history was asked for, and a new tenant needs all
            // of it. A further change is seen next time.
            if is_repeated || !plan.keep_versions(|query| reader.version(query)) {
                return values;
            }
            is_repeated = true;
        }
    }

    /// The result of a computation, or `None` if it panics, which ends nothing else. It would block the other tasks,
    /// because fitting two weeks takes longer than an async task may block. The slot is held until it has ended, also if
    /// the refresh is dropped before.
    async fn compute<T: Send + 'static>(
        &self,
        slot: Slot,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let slot = Arc::new(slot);
        let held = Arc::clone(&slot);
        let work = self.machine.run_blocking(move || {
            let _held = held;
            work()
        });
        slot.run(work).await.ok()
    }
}

#[cfg(test)]
mod tests;
