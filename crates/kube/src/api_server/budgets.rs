//! Limits of the requests in flight for each dependency: a request does not wait for those that hang at another
//! dependency.
//!
//! One API server forwards requests to many dependencies: aggregated APIs, webhooks, storage. Slots are therefore
//! counted separately for reads and writes of each API group, so that metrics, the scales of each kind, HPAs, statuses
//! and events have separate slots. Within a group each namespace has a limited number of slots. After a timeout a
//! namespace has a single one, until one of its requests is answered. A namespace may have fast requests beside those
//! that hang; an answer therefore does not end the penalty of a timeout: the slot stays in use for as long again as its
//! request waited. Reads of a metrics API that does not answer fail at once ([`Circuits`]).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use super::error::CallError;
use foretide_base::{
    circuits::{Circuits, Open},
    clock::{Clock, Monotonic},
    shared_map::SharedMap,
};

/// The most slots of one namespace in a group.
const NAMESPACE_SLOTS: usize = 8;
/// Time that a request must have waited for its answer before its cancellation counts as a timeout.
const COUNTS_AS_TIMEOUT_AFTER: Duration = Duration::from_secs(1);
/// The longest penalty. The deadline of a request is shorter, but a suspended machine may measure more.
const MAX_PENALTY: Duration = Duration::from_secs(10);
/// Maximum number of groups, and of namespaces of a group, that are remembered. Both come from objects that users
/// write.
const MAX_KNOWN: usize = 256;

/// The API group that answers a request, separately for reads and writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Dependency {
    /// API group; empty for the core group.
    group: String,
    writes: bool,
}

/// The slots of one API server.
#[derive(Debug)]
pub struct Budgets {
    /// The slots of each group.
    slots: usize,
    groups: SharedMap<Dependency, Budget>,
    clock: Clock,
}

/// The slots of one API group.
#[derive(Debug)]
struct Budget {
    slots: Arc<Semaphore>,
    /// Circuits, for reads of a metrics API only.
    circuits: Option<Mutex<Circuits>>,
    namespaces: SharedMap<String, NamespaceBudget>,
    clock: Clock,
}

/// The slots of a group that one namespace may use.
#[derive(Debug)]
struct NamespaceBudget {
    slots: Arc<Semaphore>,
    /// The only slot while requests of the namespace time out.
    single: Arc<Semaphore>,
    times_out: AtomicBool,
    /// Permits for penalties, for all slots but one.
    penalties: Arc<Semaphore>,
    /// Acquired by the slot whose penalty runs; penalties run one after the other.
    running_penalty: Semaphore,
}

/// The right to send one request.
#[derive(Debug)]
pub struct Slot {
    budget: Arc<Budget>,
    namespace: Option<NamespaceSlot>,
    /// The time at which the request was sent; none after its outcome is recorded.
    since: Option<Monotonic>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// One of the slots of a namespace.
#[derive(Debug)]
struct NamespaceSlot {
    name: String,
    budget: Arc<NamespaceBudget>,
    permit: Option<OwnedSemaphorePermit>,
    _single: Option<OwnedSemaphorePermit>,
}

/// True if an aggregated API answers requests to this path, rather than the API server itself.
pub fn is_aggregated(path: &str) -> bool {
    Dependency::of(path, false).0.is_aggregated()
}

// === impl Dependency ===

impl Dependency {
    /// The dependency that answers a request to a path, and the namespace in the path, if any.
    fn of(path: &str, writes: bool) -> (Self, Option<&str>) {
        let (path, _query) = path.split_once('?').unwrap_or((path, ""));
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

    /// True if requests may fail at once: only reads of metrics, because a decision does not require them.
    fn has_circuit(&self) -> bool {
        !self.writes && self.is_aggregated()
    }

    /// True if an aggregated API answers: a metrics server or a metric adapter.
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
    /// Budgets with this many slots for each group; the clock measures the answers.
    pub fn new(slots: usize, clock: Clock) -> Self {
        Self {
            slots,
            clock,
            groups: SharedMap::new(MAX_KNOWN).evicting_first(Budget::is_like_new),
        }
    }

    /// Waits for a slot for a request to this path.
    ///
    /// # Errors
    /// [`CallError::NoSlot`] after `queue`; [`CallError::CircuitOpen`] at once while the dependency hangs.
    pub async fn slot(&self, path: &str, writes: bool, queue: Duration) -> Result<Slot, CallError> {
        let (dependency, namespace) = Dependency::of(path, writes);
        let budget = self.budget(&dependency);
        // The slot of the namespace first: a request that waits for it must not hold one of the group meanwhile. The
        // semaphores are never closed.
        let acquire = async {
            let slot = match namespace {
                Some(name) => Some(budget.namespace(name, self.slots).acquire(name).await),
                None => None,
            };
            let permit = Arc::clone(&budget.slots).acquire_owned().await.ok();
            (slot, permit)
        };
        // Before the queue, so that nothing waits for a slot while the circuit is open.
        budget.ask_circuits(&dependency, namespace, |it, now| it.check(namespace, now))?;
        let Ok((slot, permit)) = timeout(queue, acquire).await else {
            return Err(CallError::NoSlot {
                dependency: dependency.name().to_owned(),
                queue,
            });
        };
        // Again: the circuit may have opened while the request waited for its slot.
        budget.ask_circuits(&dependency, namespace, |it, now| it.admit(namespace, now))?;
        Ok(Slot {
            budget: Arc::clone(&budget),
            namespace: slot,
            since: Some(self.clock.monotonic()),
            _permit: permit,
        })
    }

    /// The metrics APIs that have not responded to their last requests, even if only one namespace sent them.
    pub fn open_circuits(&self) -> Vec<String> {
        let hanging = self.groups.keys_where(|budget| {
            budget.circuits(|circuits, now| circuits.is_hanging(now)) == Some(true)
        });
        hanging.iter().map(|it| it.name().to_owned()).collect()
    }

    fn budget(&self, dependency: &Dependency) -> Arc<Budget> {
        self.groups
            .get_or_insert_with(dependency.clone(), || Budget {
                slots: Arc::new(Semaphore::new(self.slots)),
                circuits: dependency.has_circuit().then(Mutex::default),
                namespaces: SharedMap::new(MAX_KNOWN).evicting_first(NamespaceBudget::is_like_new),
                clock: self.clock.clone(),
            })
    }
}

// === impl Budget ===

impl Budget {
    /// Asks the circuits whether a request may be sent; a dependency without circuits permits all.
    fn ask_circuits(
        &self,
        dependency: &Dependency,
        namespace: Option<&str>,
        ask: impl FnOnce(&mut Circuits, Monotonic) -> Result<(), Open>,
    ) -> Result<(), CallError> {
        let allowed = self.circuits(ask).unwrap_or(Ok(()));
        allowed.map_err(|open| CallError::circuit_open(dependency.name(), namespace, open))
    }

    fn circuits<T>(&self, run: impl FnOnce(&mut Circuits, Monotonic) -> T) -> Option<T> {
        let circuits = self.circuits.as_ref()?;
        let mut circuits = circuits.lock();
        Some(run(&mut circuits, self.clock.monotonic()))
    }

    fn is_like_new(&self) -> bool {
        let forgettable = self.circuits(|circuits, now| circuits.is_forgettable(now));
        let known = self.namespaces.keys_where(|it| !it.is_like_new());
        forgettable.unwrap_or(true) && known.is_empty()
    }

    fn namespace(&self, namespace: &str, slots: usize) -> Arc<NamespaceBudget> {
        self.namespaces
            .get_or_insert_with(namespace.to_owned(), || NamespaceBudget {
                slots: Arc::new(Semaphore::new(slots.min(NAMESPACE_SLOTS))),
                single: Arc::new(Semaphore::new(1)),
                times_out: AtomicBool::new(false),
                penalties: Arc::new(Semaphore::new(slots.min(NAMESPACE_SLOTS).saturating_sub(1))),
                running_penalty: Semaphore::new(1),
            })
    }
}

// === impl NamespaceBudget ===

impl NamespaceBudget {
    async fn acquire(self: Arc<Self>, name: &str) -> NamespaceSlot {
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok();
        let mut single = None;
        // Read after the wait for a slot: a request that timed out may have returned it.
        if self.times_out.load(Ordering::Relaxed) {
            single = Arc::clone(&self.single).acquire_owned().await.ok();
        }
        NamespaceSlot {
            name: name.to_owned(),
            budget: self,
            permit,
            _single: single,
        }
    }

    /// True if the last request of the namespace was answered. A slot with a penalty keeps the namespace in the map.
    fn is_like_new(&self) -> bool {
        !self.times_out.load(Ordering::Relaxed)
    }
}

// === impl NamespaceSlot ===

impl NamespaceSlot {
    fn record(&mut self, answered: bool, waited: Duration, group: &Arc<Budget>) {
        self.budget.times_out.store(!answered, Ordering::Relaxed);
        if !answered {
            self.penalize(waited.min(MAX_PENALTY), group);
        }
    }

    /// Keeps the slot in use for as long as the request waited, after the penalties of other slots have ended.
    fn penalize(&mut self, waited: Duration, group: &Arc<Budget>) {
        let penalty = Arc::clone(&self.budget.penalties).try_acquire_owned();
        // No penalty is left for the last slot of a namespace. There is no runtime if the slot is dropped at shutdown.
        let (Ok(runtime), Ok(penalty)) = (Handle::try_current(), penalty) else {
            return;
        };
        let permit = self.permit.take();
        let (namespace, group) = (Arc::clone(&self.budget), Arc::clone(group));
        runtime.spawn(async move {
            // The maps of groups and namespaces do not evict values that are held.
            let _held = (permit, penalty, group);
            let _running = namespace.running_penalty.acquire().await;
            sleep(waited).await;
        });
    }
}

// === impl Slot ===

impl Slot {
    /// Records the outcome of the request.
    pub fn record<T>(mut self, outcome: &Result<T, CallError>) {
        let now = self.budget.clock.monotonic();
        let sent = self.since.take().unwrap_or(now);
        self.record_answer(!matches!(outcome, Err(CallError::Timeout(_))), sent);
    }

    /// Waits before the request is sent again after a response. The pause does not count as waiting for an answer.
    pub async fn pause(&mut self, pause: Duration) {
        self.since = None;
        sleep(pause).await;
        self.since = Some(self.budget.clock.monotonic());
    }

    fn record_answer(&mut self, answered: bool, sent: Monotonic) {
        let now = self.budget.clock.monotonic();
        if let Some(namespace) = &mut self.namespace {
            namespace.record(answered, now.since(sent), &self.budget);
        }
        let namespace = self.namespace.as_ref().map(|slot| &*slot.name);
        self.budget.circuits(|circuits, now| {
            if answered {
                circuits.answered(namespace, now);
            } else {
                circuits.timed_out(namespace, sent, now);
            }
        });
    }
}

/// A request that its caller canceled counts as a timeout if the server had time to answer: the deadline of a caller
/// may be shorter than that of the request.
impl Drop for Slot {
    fn drop(&mut self) {
        let Some(sent) = self.since.take() else {
            return;
        };
        if self.budget.clock.monotonic().since(sent) >= COUNTS_AS_TIMEOUT_AFTER {
            self.record_answer(false, sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretide_base::breaker;

    const SCALE: &str = "/apis/apps/v1/namespaces/shop/deployments/web/scale";
    const METRICS: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces";
    const QUEUE: Duration = Duration::from_secs(10);

    #[test]
    fn a_request_belongs_to_its_group_and_namespace() {
        for (path, group, namespace) in [
            ("/api/v1/namespaces/shop/pods", "", Some("shop")),
            ("/api/v1/nodes?limit=5", "", None),
            (SCALE, "apps", Some("shop")),
            ("/apis/custom.metrics.k8s.io", "custom.metrics.k8s.io", None),
            ("/readyz", "", None),
            ("", "", None),
        ] {
            let (dependency, found) = Dependency::of(path, false);
            assert_eq!((&*dependency.group, found), (group, namespace), "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_without_free_slots_delays_no_other_group_and_no_write() {
        let budgets = Budgets::new(2, Clock::system());
        let slot = |path: &'static str, writes| budgets.slot(path, writes, QUEUE);
        let _held = [
            slot(SCALE, false).await.unwrap(),
            slot(SCALE, false).await.unwrap(),
        ];
        let error = slot(SCALE, false).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "timed out after 10s waiting for a request slot of apps"
        );
        assert!(slot(SCALE, true).await.is_ok());
        assert!(slot("/api/v1/namespaces/shop/pods", false).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_requests_time_out_has_one_slot_until_one_is_answered() {
        let budgets = Budgets::new(32, Clock::system());
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
        assert!(
            slot(&bank).await.is_err(),
            "more slots than a namespace may use"
        );
        single.record(&Ok(()));
        assert!(slot(&shop).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn only_reads_of_a_metrics_api_that_hangs_fail_at_once() {
        let budgets = Budgets::new(32, Clock::system());
        for n in 0..5 {
            let path = format!("{METRICS}/team-{n}/pods/*/queue");
            let slot = budgets.slot(&path, false, QUEUE).await.unwrap();
            slot.record::<()>(&Err(CallError::Timeout(QUEUE)));
        }
        let slot = async |namespace| {
            let path = format!("{METRICS}/{namespace}/pods/*/queue");
            budgets.slot(&path, false, QUEUE).await
        };
        let _attempt = slot("shop").await.unwrap();
        slot("bank").await.unwrap_err();
        let error = slot("team-0").await.unwrap_err();
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
    async fn a_canceled_request_counts_as_a_timeout_only_if_the_server_had_time_to_answer() {
        let path = format!("{METRICS}/shop/pods/*/queue");
        let long_ago = Monotonic::after_origin(Duration::ZERO);
        for (since, is_open) in [(None, false), (Some(long_ago), true)] {
            let budgets = Budgets::new(32, Clock::system());
            for _request in 0..breaker::FAILURES {
                let mut canceled = budgets.slot(&path, false, QUEUE).await.unwrap();
                canceled.since = since.or(canceled.since);
            }
            assert_eq!(!budgets.open_circuits().is_empty(), is_open, "{since:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_metrics_api_that_answers_again_is_read_again() {
        let budgets = Budgets::new(32, Clock::system());
        let path = format!("{METRICS}/shop/pods/*/queue");
        let slot = || budgets.slot(&path, false, QUEUE);
        for _request in 0..breaker::FAILURES {
            let hangs = slot().await.unwrap();
            hangs.record::<()>(&Err(CallError::Timeout(QUEUE)));
        }
        tokio::time::advance(Duration::from_secs(6)).await;
        let attempt = slot().await.unwrap();
        assert!(slot().await.is_err(), "only one attempt at a time");
        attempt.record(&Ok(()));
        assert!(slot().await.is_ok());
        assert_eq!(budgets.open_circuits(), Vec::<String>::new());
    }

    /// The slots of as many requests to this path as a namespace may send at once, after they have waited for five
    /// seconds.
    async fn waiting(budgets: &Budgets, path: &str) -> Vec<Slot> {
        let mut slots = Vec::new();
        for _request in 0..NAMESPACE_SLOTS {
            slots.push(budgets.slot(path, false, QUEUE).await.unwrap());
        }
        sleep(Duration::from_secs(5)).await;
        slots
    }

    fn time_out(slots: Vec<Slot>) {
        for slot in slots {
            slot.record::<()>(&Err(CallError::Timeout(Duration::from_secs(5))));
        }
    }

    /// Number of requests to this path that can be sent at once.
    async fn free(budgets: &Budgets, path: &str) -> usize {
        let mut slots = Vec::new();
        while let Ok(slot) = budgets.slot(path, false, Duration::ZERO).await {
            slots.push(slot);
        }
        slots.len()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_does_not_end_the_penalties_of_timeouts() {
        let budgets = Budgets::new(32, Clock::system());
        time_out(waiting(&budgets, SCALE).await);
        let answered = budgets.slot(SCALE, false, QUEUE).await.unwrap();
        answered.record(&Ok(()));
        let mut slots = Vec::new();
        sleep(Duration::from_secs(1)).await;
        for _period in 0..NAMESPACE_SLOTS {
            slots.push(free(&budgets, SCALE).await);
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(slots, [1, 2, 3, 4, 5, 6, 7, 8]);
        let bank = SCALE.replace("shop", "bank");
        assert_eq!(free(&budgets, &bank).await, NAMESPACE_SLOTS);
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_users_invent_are_evicted_before_those_that_time_out() {
        let budgets = Budgets::new(32, Clock::system());
        let shop = format!("{METRICS}/shop/pods/*/queue");
        for path in [&*shop, SCALE] {
            for _request in 0..breaker::FAILURES {
                time_out(vec![budgets.slot(path, false, QUEUE).await.unwrap()]);
            }
        }
        // All penalties have ended.
        sleep(Duration::from_secs(1)).await;
        for n in 0..2 * MAX_KNOWN {
            for path in [
                &SCALE.replace("shop", &format!("team-{n}")),
                &shop.replace("shop", &format!("team-{n}")),
                &format!("/apis/made-up-{n}/v1"),
            ] {
                let slot = budgets.slot(path, false, QUEUE).await.unwrap();
                slot.record(&Ok(()));
            }
        }
        assert!(budgets.groups.keys_where(|_| true).len() <= MAX_KNOWN);
        assert_eq!(free(&budgets, SCALE).await, 1);
        assert_eq!(free(&budgets, &shop).await, 0, "its circuit is open");
    }
}
