//! How many requests may be in flight, by what answers them: none waits behind one that hangs elsewhere.
//!
//! One API server forwards requests to many: aggregated APIs, webhooks, storage. Slots are therefore counted separately
//! for reads and writes of each API group, so that metrics, the scales of each kind, HPAs, statuses and events have their
//! own. Within a group a namespace has a part of the slots; after a request of it timed out, a single one, until a
//! request is answered. Reads of a metrics API that does not answer at all fail at once, by a [`Breaker`].

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::error::CallError;
use crate::{
    adapters::breaker::Breaker,
    clock::{Clock, Monotonic},
    shared_map::SharedMap,
};

/// The slots of one namespace, if its group has as many.
const NAMESPACE_SLOTS: usize = 8;
/// How long a request must have waited for its answer before its cancellation counts as a timeout.
const COUNTS_AS_TIMEOUT_AFTER: Duration = Duration::from_secs(1);
/// How many groups, and namespaces of one, are known at once. Both come from objects that users write.
const MAX_KNOWN: usize = 256;

/// What answers a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Dependency {
    /// API group; empty for the core group.
    group: String,
    writes: bool,
}

/// The slots of one API server.
#[derive(Debug)]
pub(super) struct Budgets {
    /// The slots of each group.
    slots: usize,
    groups: SharedMap<Dependency, Budget>,
}

/// The slots of one API group.
#[derive(Debug)]
struct Budget {
    slots: Arc<Semaphore>,
    breaker: Mutex<Breaker>,
    namespaces: SharedMap<String, NamespaceBudget>,
}

/// The part of a group's slots that one namespace may use.
#[derive(Debug)]
struct NamespaceBudget {
    slots: Arc<Semaphore>,
    /// The slot of a namespace in which requests time out.
    single: Arc<Semaphore>,
    times_out: AtomicBool,
}

/// The right to send one request.
#[derive(Debug)]
pub(super) struct Slot {
    budget: Arc<Budget>,
    namespace: Option<Arc<NamespaceBudget>>,
    has_circuit: bool,
    /// Since when the request has been in flight; none once its outcome is recorded.
    since: Option<Monotonic>,
    _permits: Vec<OwnedSemaphorePermit>,
}

/// Whether an aggregated API answers requests to this path, and not the API server itself.
pub(super) fn is_aggregated(path: &str) -> bool {
    Dependency::of(path, false).0.is_aggregated()
}

// === impl Dependency ===

impl Dependency {
    /// What answers a request to a path, and the namespace of the path if it has one.
    fn of(path: &str, writes: bool) -> (Self, Option<&str>) {
        let path = path.split('?').next().unwrap_or_default();
        let mut segments = path.split('/').skip(1);
        let group = match segments.next() {
            Some("apis") => segments.next().unwrap_or_default(),
            _ => "",
        };
        let namespace = segments
            .skip_while(|segment| *segment != "namespaces")
            .nth(1);
        let group = group.to_owned();
        (Self { group, writes }, namespace)
    }

    /// Whether reads may fail at once: only metrics, without which there still is a decision.
    fn has_circuit(&self) -> bool {
        !self.writes && self.is_aggregated()
    }

    /// Whether an aggregated API answers: a metrics server or an adapter.
    fn is_aggregated(&self) -> bool {
        self.group.ends_with("metrics.k8s.io")
    }

    fn name(&self) -> &str {
        match &*self.group {
            "" => "the core API",
            group => group,
        }
    }
}

// === impl Budgets ===

impl Budgets {
    /// Budgets with this many slots for each group.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots,
            groups: SharedMap::new(MAX_KNOWN),
        }
    }

    /// Waits for a slot for a request to this path.
    ///
    /// # Errors
    /// [`CallError::NoSlot`] after `queue`; [`CallError::CircuitOpen`] at once while what answers the path hangs.
    pub(super) async fn slot(
        &self,
        path: &str,
        writes: bool,
        queue: Duration,
    ) -> Result<Slot, CallError> {
        let (dependency, namespace) = Dependency::of(path, writes);
        let budget = self.budget(&dependency);
        let acquire = async {
            let mut permits = Vec::new();
            let namespace = namespace.map(|namespace| budget.namespace(namespace, self.slots));
            if let Some(namespace) = &namespace {
                permits.extend(namespace.acquire().await);
            }
            permits.extend(Arc::clone(&budget.slots).acquire_owned().await.ok());
            (namespace, permits)
        };
        budget.circuit(&dependency, |breaker, now| breaker.check(now))?;
        let Ok((namespace, permits)) = timeout(queue, acquire).await else {
            return Err(CallError::NoSlot {
                dependency: dependency.name().to_owned(),
                queue,
            });
        };
        // Again: what answers it may have hung while it waited.
        budget.circuit(&dependency, Breaker::admit)?;
        Ok(Slot {
            budget: Arc::clone(&budget),
            namespace,
            has_circuit: dependency.has_circuit(),
            since: Some(Clock::system().monotonic()),
            _permits: permits,
        })
    }

    /// The metrics APIs whose reads fail at once.
    pub(super) fn open_circuits(&self) -> Vec<String> {
        let open = self.groups.keys_where(|budget| budget.breaker().is_open());
        let names = open.iter().map(Dependency::name);
        names.map(str::to_owned).collect()
    }

    fn budget(&self, dependency: &Dependency) -> Arc<Budget> {
        self.groups
            .get_or_insert_with(dependency.clone(), || Budget {
                slots: Arc::new(Semaphore::new(self.slots)),
                breaker: Mutex::default(),
                namespaces: SharedMap::new(MAX_KNOWN),
            })
    }
}

// === impl Budget ===

impl Budget {
    /// Asks the circuit of a dependency about a request. One without a circuit has no objection.
    fn circuit(
        &self,
        dependency: &Dependency,
        ask: impl FnOnce(&mut Breaker, Monotonic) -> Result<(), Duration>,
    ) -> Result<(), CallError> {
        if !dependency.has_circuit() {
            return Ok(());
        }
        let answer = ask(&mut self.breaker(), Clock::system().monotonic());
        answer.map_err(|retry_in| CallError::CircuitOpen {
            dependency: dependency.name().to_owned(),
            retry_in,
        })
    }

    fn namespace(&self, namespace: &str, slots: usize) -> Arc<NamespaceBudget> {
        self.namespaces
            .get_or_insert_with(namespace.to_owned(), || NamespaceBudget {
                slots: Arc::new(Semaphore::new(slots.min(NAMESPACE_SLOTS))),
                single: Arc::new(Semaphore::new(1)),
                times_out: AtomicBool::new(false),
            })
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl NamespaceBudget ===

impl NamespaceBudget {
    async fn acquire(&self) -> Vec<OwnedSemaphorePermit> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
        let mut permits: Vec<_> = slot.into_iter().collect();
        if self.times_out.load(Ordering::Relaxed) {
            permits.extend(Arc::clone(&self.single).acquire_owned().await.ok());
        }
        permits
    }
}

// === impl Slot ===

impl Slot {
    /// Records what became of the request.
    pub(super) fn record<T>(mut self, outcome: &Result<T, CallError>) {
        self.since = None;
        self.record_answer(!matches!(outcome, Err(CallError::Timeout(_))));
    }

    /// Waits before the request is sent again, after a response: this is not time without an answer.
    pub(super) async fn pause(&mut self, pause: Duration) {
        self.since = None;
        tokio::time::sleep(pause).await;
        self.since = Some(Clock::system().monotonic());
    }

    fn record_answer(&self, answered: bool) {
        if let Some(namespace) = &self.namespace {
            namespace.times_out.store(!answered, Ordering::Relaxed);
        }
        if self.has_circuit {
            let now = Clock::system().monotonic();
            self.budget.breaker().record(answered, now);
        }
    }
}

/// A request that its caller gave up is one without an answer, if the server had time for it: deadlines of callers may
/// be shorter than that of the request.
impl Drop for Slot {
    fn drop(&mut self) {
        let waited = |since| Clock::system().monotonic().since(since);
        if self
            .since
            .is_some_and(|since| waited(since) >= COUNTS_AS_TIMEOUT_AFTER)
        {
            self.record_answer(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::breaker;

    const METRICS: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces";
    const QUEUE: Duration = Duration::from_secs(10);

    #[test]
    fn a_request_belongs_to_its_group_and_namespace() {
        for (path, group, namespace) in [
            ("/api/v1/namespaces/shop/pods", "", Some("shop")),
            ("/api/v1/nodes?limit=5", "", None),
            (
                "/apis/apps/v1/namespaces/shop/deployments/web/scale",
                "apps",
                Some("shop"),
            ),
            ("/apis/custom.metrics.k8s.io", "custom.metrics.k8s.io", None),
            ("/readyz", "", None),
            ("", "", None),
        ] {
            let (dependency, found) = Dependency::of(path, false);
            assert_eq!((&*dependency.group, found), (group, namespace), "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_whose_slots_are_in_use_delays_no_other_group_and_no_write() {
        let budgets = Budgets::new(2);
        let slot = |path: &'static str, writes| budgets.slot(path, writes, QUEUE);
        let apps = "/apis/apps/v1/namespaces/shop/deployments/web/scale";
        let _held = [
            slot(apps, false).await.unwrap(),
            slot(apps, false).await.unwrap(),
        ];
        let error = slot(apps, false).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "timed out after 10s waiting for a request slot of apps"
        );
        assert!(slot(apps, true).await.is_ok());
        assert!(slot("/api/v1/namespaces/shop/pods", false).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_requests_time_out_has_one_slot_until_one_is_answered() {
        let budgets = Budgets::new(32);
        let shop = format!("{METRICS}/shop/pods/*/queue");
        let bank = format!("{METRICS}/bank/pods/*/queue");
        let slot = |path| budgets.slot(path, false, QUEUE);
        let first = slot(&shop).await.unwrap();
        first.record::<()>(&Err(CallError::Timeout(QUEUE)));
        let single = slot(&shop).await.unwrap();
        assert!(slot(&shop).await.is_err(), "a second one");
        let mut others = Vec::new();
        for _request in 0..NAMESPACE_SLOTS {
            others.push(slot(&bank).await.unwrap());
        }
        assert!(slot(&bank).await.is_err(), "more than its part");
        single.record(&Ok(()));
        assert!(slot(&shop).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn reads_of_a_metrics_api_that_hangs_fail_at_once_and_no_others_do() {
        let budgets = Budgets::new(32);
        for n in 0..5 {
            let path = format!("{METRICS}/team-{n}/pods/*/queue");
            let slot = budgets.slot(&path, false, QUEUE).await.unwrap();
            slot.record::<()>(&Err(CallError::Timeout(QUEUE)));
        }
        let path = format!("{METRICS}/shop/pods/*/queue");
        let error = budgets.slot(&path, false, QUEUE).await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("custom.metrics.k8s.io has not responded to 5 requests in a row"),
            "{error}"
        );
        assert_eq!(budgets.open_circuits(), ["custom.metrics.k8s.io"]);
        let lease = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/foretide";
        for _read in 0..10 {
            let slot = budgets.slot(lease, false, QUEUE).await.unwrap();
            slot.record::<()>(&Err(CallError::Timeout(QUEUE)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_counts_only_if_the_server_had_time_for_it() {
        let path = format!("{METRICS}/shop/pods/*/queue");
        let long_ago = Monotonic::after_origin(Duration::ZERO);
        for (since, is_open) in [(None, false), (Some(long_ago), true)] {
            let budgets = Budgets::new(32);
            for _request in 0..breaker::FAILURES {
                let mut given_up = budgets.slot(&path, false, QUEUE).await.unwrap();
                given_up.since = since.or(given_up.since);
            }
            assert_eq!(!budgets.open_circuits().is_empty(), is_open, "{since:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_metrics_api_that_answers_again_is_read_again() {
        let budgets = Budgets::new(32);
        let path = format!("{METRICS}/shop/pods/*/queue");
        let slot = || budgets.slot(&path, false, QUEUE);
        let (dependency, _) = Dependency::of(&path, false);
        let budget = budgets.budget(&dependency);
        *budget.breaker() = Breaker::Open(Clock::system().monotonic());
        let attempt = slot().await.unwrap();
        assert!(slot().await.is_err(), "only one attempt at a time");
        attempt.record(&Ok(()));
        assert!(slot().await.is_ok());
        assert_eq!(budgets.open_circuits(), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn groups_that_users_make_up_are_forgotten() {
        let budgets = Budgets::new(2);
        for n in 0..3 * MAX_KNOWN {
            let path = format!("/apis/made-up-{n}/v1");
            drop(budgets.slot(&path, false, QUEUE).await.unwrap());
        }
        assert!(budgets.groups.keys_where(|_| true).len() <= MAX_KNOWN);
    }
}
