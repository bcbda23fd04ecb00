//! The schedule of one series: the time of its next refresh, and the refresh that is running.
//!
//! [`SeriesRefresh`] stays with the forecaster's loop; the [`Refresher`] goes to a task and comes back with its result:
//!
//! ```text
//! Idle --start_if_due--> Starting --> Running(task) --set_idle--> Idle
//! ```

use std::sync::Arc;

use foretide_domain::forecast::Refused;
use foretide_models::{Forecast, Forecaster, TradeOffs};
use jiff::SignedDuration;
use tokio::task::{AbortHandle, Id};

use super::history::{CacheKey, RangeQuery};
use super::refresher::{RefreshError, Refresher};
use super::request::RefreshRequest;
use foretide_api::validation::is_priced;
use foretide_base::clock::Monotonic;

/// The wait after a failed query; it doubles up to the refresh period.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(15);

/// The schedule of one series.
#[derive(Debug)]
pub struct SeriesRefresh {
    pub request: RefreshRequest,
    /// The namespace of the object that it forecasts for.
    pub namespace: Arc<str>,
    /// The queries of its refresher.
    queries: Vec<RangeQuery>,
    due_at: Monotonic,
    failures: u32,
    refresh_period: SignedDuration,
    /// The price in its namespace, for the refreshes to come.
    pub price: Option<f64>,
    /// Cost and saving that each quantile would have had up to the last refresh, if the series shares a budget.
    pub trade_offs: Option<TradeOffs>,
    /// The memory that its forecaster and its history took after the last refresh that read it.
    pub bytes: Option<usize>,
    state: RefreshState,
}

/// State of the refresh of a series.
#[derive(Debug)]
enum RefreshState {
    /// Not running: the refresher waits here.
    Idle(Box<Refresher>),
    /// Running in this task.
    Running(AbortOnDrop),
    /// Between `Idle` and `Running`.
    Starting,
}

/// A task that ends with its schedule: the samples of a query that was edited are not needed.
#[derive(Debug)]
struct AbortOnDrop(AbortHandle);

// === impl SeriesRefresh ===

impl SeriesRefresh {
    /// A series that is due now.
    ///
    /// # Errors
    /// The settings ask for a range that cannot be read.
    pub fn new(
        request: RefreshRequest,
        forecaster: Box<dyn Forecaster>,
        now: Monotonic,
    ) -> Result<Self, Refused> {
        let refresh_period = forecaster.refresh_period();
        let refresher = Refresher::new(&request, forecaster)?;
        Ok(Self {
            request,
            namespace: Arc::clone(&refresher.plan.namespace),
            queries: refresher.plan.queries().cloned().collect(),
            due_at: now,
            failures: 0,
            refresh_period,
            price: None,
            trade_offs: None,
            bytes: None,
            state: RefreshState::Idle(Box::new(refresher)),
        })
    }

    /// True if this schedule can go on for `request`: only the lead time and the idle members may differ.
    pub fn serves(&self, request: &RefreshRequest) -> bool {
        let own = RefreshRequest {
            lead_time: request.lead_time,
            idle: request.idle.clone(),
            ..self.request.clone()
        };
        own == *request
    }

    /// Takes over the lead time and the idle members.
    pub fn update(&mut self, request: RefreshRequest) {
        self.request.lead_time = request.lead_time;
        self.request.idle = request.idle;
    }

    /// Takes over what the forecaster before an edit has measured, until its own has measured it. Without this, the
    /// series would have no trade-offs for a while, and the price of its namespace would change twice.
    pub fn take_trade_offs(&mut self, before: Self) {
        self.trade_offs = (before.trade_offs).filter(|_| is_priced(&self.request.algorithm));
    }

    /// True if `other` reads the same history.
    pub fn has_same_queries(&self, other: &Self) -> bool {
        self.request.parts == other.request.parts
    }

    /// The cache entries that it reads.
    pub fn cache_keys(&self) -> impl Iterator<Item = CacheKey> {
        self.queries.iter().flat_map(RangeQuery::cache_keys)
    }

    /// The time at which the next refresh is due.
    #[cfg(test)]
    pub fn due_at(&self) -> Monotonic {
        self.due_at
    }

    /// Makes the next refresh due at once: the forecast in force was made for another time of day.
    pub fn expedite(&mut self, now: Monotonic) {
        self.due_at = self.due_at.min(now);
    }

    /// Starts a refresh if one is due and none is running.
    pub fn start_if_due(
        &mut self,
        now: Monotonic,
        spawn: impl FnOnce(Box<Refresher>) -> AbortHandle,
    ) {
        if self.due_at > now {
            return;
        }
        self.state = match std::mem::replace(&mut self.state, RefreshState::Starting) {
            RefreshState::Idle(mut refresher) => {
                refresher.prepare(&self.request.idle, self.price);
                RefreshState::Running(AbortOnDrop(spawn(refresher)))
            }
            running => running,
        };
    }

    /// True if this task runs its refresh.
    pub fn is_running_as(&self, task: Id) -> bool {
        matches!(&self.state, RefreshState::Running(running) if running.0.id() == task)
    }

    /// Ends a refresh: its refresher is back, and what the series takes is measured anew if it was read.
    pub fn set_idle(&mut self, refresher: Box<Refresher>, bytes: Option<usize>) {
        self.bytes = bytes.or(self.bytes);
        self.trade_offs =
            (refresher.fit.forecaster.trade_offs()).filter(|_| is_priced(&self.request.algorithm));
        self.state = RefreshState::Idle(refresher);
    }

    /// Sets the next due time: after the refresh period, or sooner after failures, with a growing wait.
    pub fn schedule_next(&mut self, outcome: &Result<Forecast, RefreshError>, now: Monotonic) {
        self.failures = match outcome {
            Err(RefreshError::Unread(_)) => self.failures.saturating_add(1),
            // A refusal is a result: the same history would be refused again.
            Ok(_) | Err(RefreshError::Refused(_)) => 0,
        };
        let wait = match self.failures {
            0 => self.refresh_period,
            n => (FIRST_RETRY * 2_i32.saturating_pow((n - 1).min(8))).min(self.refresh_period),
        };
        // Counted from due time to due time: passes are seconds apart, and that delay must not add up.
        let wait = wait.unsigned_abs();
        // Periods that were missed as a whole are not made up for.
        let is_on_time = self.due_at <= now && now.since(self.due_at) < wait;
        let from = if is_on_time { self.due_at } else { now };
        self.due_at = from + wait;
    }
}

// === impl AbortOnDrop ===

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use foretide_domain::lead_time::LeadTime;
    use foretide_models::{Algorithm, auto};
    use jiff::Timestamp;
    use tokio::task::JoinSet;

    use super::*;
    use crate::forecaster::request::tests::request;
    use foretide_api::ports::HistoryError;

    const MINUTE: SignedDuration = SignedDuration::from_mins(1);

    fn reading(second: u64) -> Monotonic {
        Monotonic::after_origin(Duration::from_secs(1_000 + second))
    }

    fn refresh_of(request: RefreshRequest) -> SeriesRefresh {
        let forecaster = request.algorithm.clone().build().unwrap();
        SeriesRefresh::new(request, forecaster, reading(0)).unwrap()
    }

    fn refresh() -> SeriesRefresh {
        refresh_of(request())
    }

    #[tokio::test(start_paused = true)]
    async fn a_refresh_that_is_replaced_ends_its_task() {
        let mut refresh = refresh();
        let mut tasks = JoinSet::new();
        refresh.start_if_due(reading(0), |_| tasks.spawn(std::future::pending::<()>()));
        drop(refresh);
        let ended = tokio::time::timeout(Duration::from_secs(1), tasks.join_next());
        let ended = ended.await.unwrap().unwrap();
        assert!(ended.unwrap_err().is_cancelled());
    }

    #[test]
    fn due_times_do_not_drift_and_failures_are_retried_sooner() {
        let mut refresh = refresh();
        let start = Timestamp::UNIX_EPOCH;
        let fine = Forecast::new("any", start, MINUTE, vec![1.0], Timestamp::MAX).unwrap();
        let fine = Ok(fine);
        for (now, due_at) in [(4, 60), (64, 120), (121, 180), (300, 360)] {
            refresh.schedule_next(&fine, reading(now));
            assert_eq!(refresh.due_at(), reading(due_at), "at {now}");
        }
        for (now, wait) in [(360, 15), (380, 30), (410, 60), (470, 60)] {
            refresh.schedule_next(
                &Err(RefreshError::Unread(HistoryError::Empty)),
                reading(now),
            );
            let due_in = refresh.due_at().since(reading(now)).as_secs();
            assert!((wait - 10..=wait).contains(&due_in), "at {now}: {due_in}");
        }
    }

    #[test]
    fn a_refresh_is_due_at_once_after_a_step_of_the_clock() {
        let mut refresh = refresh();
        let empty = Err(RefreshError::Unread(HistoryError::Empty));
        refresh.schedule_next(&empty, reading(0));
        refresh.expedite(reading(3));
        assert_eq!(refresh.due_at(), reading(3));
        refresh.expedite(reading(5));
        assert_eq!(
            refresh.due_at(),
            reading(3),
            "what is overdue keeps its turn"
        );
    }

    #[test]
    fn only_the_lead_time_may_differ_in_an_unchanged_request() {
        let mut refresh = refresh();
        let measured = RefreshRequest {
            lead_time: LeadTime::of(None, Some(MINUTE * 2)),
            ..request()
        };
        assert!(refresh.serves(&measured));
        let lead_time = measured.lead_time;
        refresh.update(measured);
        assert_eq!(refresh.request.lead_time, lead_time);
        let longer = RefreshRequest {
            algorithm: Algorithm::Auto(auto::Config {
                lead_time: MINUTE * 5,
                ..auto::Config::default()
            }),
            ..request()
        };
        assert!(!refresh.serves(&longer));
    }
}
