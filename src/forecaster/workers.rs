//! Where refreshes are made: a few at a time, those that need a query apart from those that do not, so that a reader
//! who does not answer holds up nobody else. It refuses to say whose turn it is.

use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::{
    Source,
    forecasts::{Forecasts, SeriesKey},
    history::HistoryCache,
    plan::{Refreshed, Refresher},
};
use crate::{clock::Clock, ports::HistoryReader};
use std::sync::Arc;

/// How many series ask the reader at once; each keeps its place until it is computed, so that read histories do not
/// pile up.
const CONCURRENT_QUERIES: usize = 4;
/// How many series that need no query are computed at once.
const CONCURRENT_COMPUTATIONS: usize = 4;

/// What all refreshes share.
#[derive(Debug)]
pub(super) struct Workers<H, Q> {
    pub(super) source: Option<Source<H, Q>>,
    pub(super) forecasts: Arc<Forecasts>,
    pub(super) histories: HistoryCache,
    clock: Clock,
    asking: Semaphore,
    computing: Semaphore,
}

// === impl Workers ===

impl<H, Q> Workers<H, Q> {
    pub(super) fn new(
        source: Option<Source<H, Q>>,
        clock: Clock,
        forecasts: Arc<Forecasts>,
    ) -> Self {
        Self {
            source,
            forecasts,
            histories: HistoryCache::default(),
            clock,
            asking: Semaphore::new(CONCURRENT_QUERIES),
            computing: Semaphore::new(CONCURRENT_COMPUTATIONS),
        }
    }
}

impl<H: HistoryReader, Q> Workers<H, Q> {
    /// Refreshes one series when there is room, for the time that it is then: nothing is known to be over before it
    /// was made.
    pub(super) async fn refresh(
        &self,
        key: &SeriesKey,
        mut refresher: Box<Refresher>,
    ) -> Option<Refreshed> {
        let reader = &self.source.as_ref()?.reader;
        let minutes = |now: Timestamp| self.forecasts.feed().minutes(key, now);
        {
            let _place = self.computing.acquire().await.ok()?;
            let now = self.clock.now();
            if let Some(samples) = refresher.known(&self.histories, &minutes(now), now) {
                return Some(refresher.conclude(Ok(samples), now).await);
            }
        }
        let _place = self.asking.acquire().await.ok()?;
        let now = self.clock.now();
        let read = (refresher.read(reader, &self.histories, &minutes(now), now)).await;
        Some(refresher.conclude(read, now).await)
    }
}
