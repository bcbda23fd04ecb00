//! Reviews by an API server, whose results are used for some seconds.
//!
//! Requests about the same share one review. A review that fails or takes too long has no result, and the next request
//! is reviewed again.
//!
//! ```text
//! FairReviews: one queue of slots ──► Reviews of 10.0.0.1    each with results of its own
//!                                └──► Reviews of 10.0.0.2
//! ```

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ring::digest::{SHA256, digest};
use tokio::{
    sync::{Mutex, Semaphore},
    time::timeout,
};

use crate::{
    clock::{Clock, Monotonic},
    error::chain,
    fair_slots::FairSlots,
    shared_map::SharedMap,
};
use foretide_api::ports::ClusterError;

/// Time for which a result is used, as by the API servers of Kubernetes: repeated requests cost one review.
const RESULT_LASTS: Duration = Duration::from_secs(10);
/// Time for which a request waits for a review: less than the default `scrape_timeout` of Prometheus, 10 s.
pub const REVIEW_DEADLINE: Duration = Duration::from_secs(5);

/// SHA-256 of the subject of a review, so that no token is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// Reviews of one kind, and their last results.
#[derive(Debug)]
pub struct Reviews<T> {
    about: &'static str,
    clock: Clock,
    results: SharedMap<Digest, LastResult<T>>,
    slots: Semaphore,
    /// A review waits for a slot; without this, it is not made if there is none.
    waits: bool,
    /// The last review failed; a row of failures is logged once.
    fails: Arc<AtomicBool>,
}

/// Reviews of one kind that tenants, such as peers or users, ask for. No tenant has all slots, and the results of one
/// do not replace those of another.
#[derive(Debug)]
pub struct FairReviews<T> {
    about: &'static str,
    clock: Clock,
    of_tenants: SharedMap<Arc<str>, Reviews<T>>,
    /// Number of results of one tenant that are kept.
    results_max: usize,
    slots: FairSlots,
    /// The last review of any tenant failed.
    fails: Arc<AtomicBool>,
}

/// Limits of the reviews of one kind.
#[derive(Debug, Clone, Copy)]
pub struct ReviewLimits {
    /// Tenants that are known.
    pub tenants: usize,
    /// Results that are kept of one tenant: clients choose what is reviewed.
    pub results: usize,
    /// Reviews in flight, and as many more that are slow; for one tenant one less.
    pub in_flight: usize,
}

/// Reason for which there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreviewed {
    /// The largest number of reviews is in flight, and this one does not wait.
    Busy,
    /// The review failed or took too long.
    Failed,
}

/// The last result of one subject. It is locked while it is being reviewed.
#[derive(Debug)]
struct LastResult<T>(Mutex<Option<(Monotonic, T)>>);

// === impl Digest ===

impl Digest {
    /// SHA-256 of a text.
    pub fn of(text: &str) -> Self {
        let digest = digest(&SHA256, text.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

// === impl Reviews ===

impl<T: Clone> Reviews<T> {
    /// Returns reviews that log records name by `about`. At most `results_max` results are kept, because clients choose
    /// the subjects, and at most `reviews_max` reviews are in flight.
    pub fn new(about: &'static str, clock: Clock, results_max: usize, reviews_max: usize) -> Self {
        Self {
            about,
            clock,
            results: SharedMap::new(results_max),
            slots: Semaphore::new(reviews_max),
            waits: true,
            fails: Arc::default(),
        }
    }

    /// Returns the same reviews without a queue: a review for which there is no slot is not made, so that clients
    /// without rights hold no request.
    #[must_use]
    pub fn without_queue(self) -> Self {
        Self {
            waits: false,
            ..self
        }
    }

    /// The result of a review, or the last one of the same subject.
    ///
    /// # Errors
    /// [`Unreviewed`]
    pub async fn get(
        &self,
        about: Digest,
        review: impl Future<Output = Result<T, ClusterError>>,
    ) -> Result<T, Unreviewed> {
        let result = timeout(REVIEW_DEADLINE, self.last_or(about, review)).await;
        result.unwrap_or_else(|_| self.unknown("no result in time"))
    }

    async fn last_or(
        &self,
        about: Digest,
        review: impl Future<Output = Result<T, ClusterError>>,
    ) -> Result<T, Unreviewed> {
        let results = &self.results;
        let cached = results.get_or_insert_with(about, || LastResult(Mutex::default()));
        let mut last = cached.0.lock().await;
        if let Some((at, result)) = &*last
            && self.clock.monotonic().since(*at) < RESULT_LASTS
        {
            return Ok(result.clone());
        }
        let slot = if self.waits {
            self.slots.acquire().await.ok()
        } else {
            self.slots.try_acquire().ok()
        };
        let _slot = slot.ok_or(Unreviewed::Busy)?;
        match review.await {
            Ok(result) => {
                self.fails.store(false, Ordering::Relaxed);
                *last = Some((self.clock.monotonic(), result.clone()));
                Ok(result)
            }
            Err(error) => self.unknown(&chain(&error)),
        }
    }

    /// Logs the reason for which there is no result: the first time as a warning, because any client that reaches the
    /// port can repeat it.
    #[expect(
        clippy::cognitive_complexity,
        reason = "the branches are those of the log macros"
    )]
    fn unknown(&self, error: &str) -> Result<T, Unreviewed> {
        let about = self.about;
        if self.fails.swap(true, Ordering::Relaxed) {
            tracing::debug!(error, "{about} not reviewed");
        } else {
            tracing::warn!(
                error,
                "{about} not reviewed; further failures are logged at level debug until a review succeeds"
            );
        }
        Err(Unreviewed::Failed)
    }
}

// === impl FairReviews ===

impl<T: Clone + Default + PartialEq> FairReviews<T> {
    /// Returns reviews that log records name by `about`. Among the results of a tenant, the default, which refuses, is
    /// evicted first.
    pub fn new(about: &'static str, clock: Clock, limits: ReviewLimits) -> Self {
        let ReviewLimits {
            tenants,
            results,
            in_flight,
        } = limits;
        Self {
            about,
            of_tenants: SharedMap::new(tenants),
            results_max: results,
            slots: FairSlots::new(in_flight, clock.clone()),
            fails: Arc::default(),
            clock,
        }
    }

    /// The result of a review that a tenant asks for, or the tenant's last one of the same subject.
    ///
    /// # Errors
    /// [`Unreviewed`]
    pub async fn get(
        &self,
        tenant: &Arc<str>,
        about: Digest,
        review: impl Future<Output = Result<T, ClusterError>>,
    ) -> Result<T, Unreviewed> {
        let tenants = &self.of_tenants;
        let reviews = tenants.get_or_insert_with(Arc::clone(tenant), || self.of_a_tenant());
        let in_turn = async { self.slots.acquire(tenant).await.run(review).await };
        reviews.get(about, in_turn).await
    }

    /// Subjects with a result.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<Digest> {
        let reviews = self.of_tenants.values().into_iter();
        reviews
            .flat_map(|it| it.results.keys_where(|_| true))
            .collect()
    }

    fn of_a_tenant(&self) -> Reviews<T> {
        // The slots of all tenants are limit enough.
        let unlimited = Semaphore::MAX_PERMITS;
        let clock = self.clock.clone();
        Reviews {
            results: SharedMap::new(self.results_max).evicting_first(LastResult::refuses),
            fails: Arc::clone(&self.fails),
            ..Reviews::new(self.about, clock, self.results_max, unlimited)
        }
    }
}

// === impl LastResult ===

impl<T: Default + PartialEq> LastResult<T> {
    /// Returns whether the result helps no one: there is none, or it is the default.
    fn refuses(&self) -> bool {
        let last = self.0.try_lock();
        last.is_ok_and(|last| {
            last.as_ref()
                .is_none_or(|(_, result)| *result == T::default())
        })
    }
}
