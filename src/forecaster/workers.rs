//! Runs refreshes with bounded concurrency: those that need a query separately from those that do not, and by the
//! servers that they query, so that a slow Prometheus delays only the series that need it. When each series is due is
//! `refresh`'s.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::{
    HistorySource,
    forecasts::Forecasts,
    history::{HistoryCache, Servers},
    refresh::{RefreshResult, Refresher},
    series_key::SeriesKey,
};
use crate::{clock::Clock, ports::HistoryReader, shared_map::SharedMap};

/// How many series query the same servers at once. Each keeps its permit until its forecast is computed, so that
/// histories do not pile up in memory.
const CONCURRENT_QUERIES: usize = 4;
/// How many sets of servers are known at once.
const MAX_KNOWN: usize = 64;
/// How many forecasts are computed at once for series that need no query.
const CONCURRENT_COMPUTATIONS: usize = 4;

/// What all refreshes share.
#[derive(Debug)]
pub(super) struct Workers<H, Q> {
    pub(super) source: Option<HistorySource<H, Q>>,
    pub(super) forecasts: Arc<Forecasts>,
    pub(super) history: HistoryCache,
    clock: Clock,
    queries: SharedMap<Servers, Semaphore>,
    computations: Semaphore,
}

// === impl Workers ===

impl<H, Q> Workers<H, Q> {
    pub(super) fn new(
        source: Option<HistorySource<H, Q>>,
        clock: Clock,
        forecasts: Arc<Forecasts>,
    ) -> Self {
        Self {
            source,
            forecasts,
            history: HistoryCache::default(),
            clock,
            queries: SharedMap::new(MAX_KNOWN),
            computations: Semaphore::new(CONCURRENT_COMPUTATIONS),
        }
    }
}

impl<H: HistoryReader, Q> Workers<H, Q> {
    /// Refreshes one series as soon as a permit is free; `now` is taken after the wait.
    pub(super) async fn refresh(
        &self,
        key: &SeriesKey,
        mut refresher: Box<Refresher>,
    ) -> Option<RefreshResult> {
        let reader = &self.source.as_ref()?.reader;
        let minutes = |now: Timestamp| self.forecasts.demand_history().minutes(key, now);
        {
            let _permit = self.computations.acquire().await.ok()?;
            let now = self.clock.now();
            if let Some(samples) = refresher.cached_samples(&self.history, &minutes(now), now) {
                return Some(refresher.finish(Ok(samples), now).await);
            }
        }
        let new = || Semaphore::new(CONCURRENT_QUERIES);
        let queries = self.queries.get_or_insert_with(refresher.servers(), new);
        let _permit = queries.acquire().await.ok()?;
        let now = self.clock.now();
        let read = (refresher.read(reader, &self.history, &minutes(now), now)).await;
        Some(refresher.finish(read, now).await)
    }
}
