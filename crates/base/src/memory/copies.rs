//! The budget of copies of objects.
//!
//! ```text
//! limit:  | the process | page | copies        half of the rest, and      | forecasts | a tenth |
//!                                              what forecasts do not want               kept free
//! ```
//!
//! Each store opens an account for the copies that it keeps. While all accounts together are beyond the budget, the newest
//! copy of the namespace that holds most gives way ([`FairShares`]): its store leaves the object out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::fair_shares::{FairShares, Item};
use crate::clock::{Clock, LogPace, Monotonic};

/// Memory of a process without any object: 22 MiB, and the lists and answers that are being read.
const PROCESS: usize = 64 << 20;

/// The budget of the copies of one process.
#[derive(Debug)]
pub struct CopyBudget {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Memory of copies and forecasts together, in bytes.
    room: usize,
    budget: usize,
    shares: FairShares<Tenant, CopyKey>,
    /// Number of objects that an account has left out of a namespace.
    left_out: BTreeMap<(u64, Tenant), usize>,
    keepers: BTreeMap<u64, Weak<dyn Keeper>>,
    opened: u64,
    log_pace: LogPace,
}

/// A namespace of a cluster.
type Tenant = (Arc<str>, Arc<str>);

/// The account and the name of an object.
type CopyKey = (u64, Arc<str>);

/// A copy that gives way.
struct Displaced {
    keeper: Weak<dyn Keeper>,
    namespace: Arc<str>,
    copy: Item<Arc<str>>,
}

/// Keeps copies, and can do without any of them.
pub trait Keeper: Send + Sync {
    /// Leaves out an object, unless another copy of it was charged since.
    fn leave_out(&self, namespace: &Arc<str>, copy: &Item<Arc<str>>);
}

/// The account of a store for the copies that it keeps. They are released when it is dropped.
#[derive(Debug)]
pub struct Account {
    budget: Arc<CopyBudget>,
    cluster: Arc<str>,
    number: u64,
    clock: Clock,
}

// === impl CopyBudget ===

impl CopyBudget {
    /// The budget within a limit of the process, in bytes.
    pub(super) fn within(limit: usize) -> Self {
        let room = (limit / 10 * 9).saturating_sub(PROCESS);
        let state = State {
            room,
            budget: room,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Sets aside the memory of the page, and half of the rest for forecasts until their need is known. Returns the
    /// parts of copies and of forecasts, in bytes.
    pub(super) fn set_aside(&self, page: usize) -> [usize; 2] {
        let mut state = self.state.lock();
        state.room = state.room.saturating_sub(page);
        state.budget = state.room / 2;
        [state.budget, state.room - state.budget]
    }

    /// Returns the current budget of copies, in bytes.
    pub(super) fn budget(&self) -> usize {
        self.state.lock().budget
    }

    /// Gives forecasts the memory that they want, up to half, and the rest to copies.
    pub fn share_with_forecasts(&self, wanted: usize) {
        let mut state = self.state.lock();
        state.budget = state.room.saturating_sub(wanted).max(state.room / 2);
        drop(state);
        self.settle();
    }

    /// Returns the number of objects left out of each namespace of each cluster; namespaces without any are absent. The
    /// hub has no name.
    pub fn left_out(&self) -> BTreeMap<Tenant, usize> {
        self.state.lock().left_out_by_tenant()
    }

    /// Opens an account for the copies that `keeper` has of the objects of a cluster.
    pub fn open(
        self: &Arc<Self>,
        cluster: Arc<str>,
        keeper: Weak<dyn Keeper>,
        clock: Clock,
    ) -> Account {
        let mut state = self.state.lock();
        state.opened += 1;
        let number = state.opened;
        state.keepers.insert(number, keeper);
        Account {
            budget: Arc::clone(self),
            cluster,
            number,
            clock,
        }
    }

    /// Makes copies give way until the rest fits. The caller must not have locked a store.
    fn settle(&self) {
        while let Some(Displaced {
            keeper,
            namespace,
            copy,
        }) = self.pop_beyond()
        {
            if let Some(keeper) = keeper.upgrade() {
                keeper.leave_out(&namespace, &copy);
            }
        }
    }

    /// The copy that gives way, if all copies together are beyond the budget.
    fn pop_beyond(&self) -> Option<Displaced> {
        let mut state = self.state.lock();
        let budget = state.budget;
        let ((_, namespace), item) = state.shares.pop_beyond(budget)?;
        let keeper = state.keepers.get(&item.key.0)?.clone();
        Some(Displaced {
            keeper,
            namespace,
            copy: item.map_key(|(_, name)| name),
        })
    }
}

// === impl State ===

impl State {
    fn left_out_by_tenant(&self) -> BTreeMap<Tenant, usize> {
        let mut by_tenant = BTreeMap::new();
        for ((_, tenant), objects) in &self.left_out {
            *by_tenant.entry(tenant.clone()).or_default() += objects;
        }
        by_tenant
    }

    fn log(&mut self, now: Monotonic) {
        if self.left_out.is_empty() || !self.log_pace.admits(now) {
            return;
        }
        let left_out = self.left_out_by_tenant();
        let most = left_out.iter().max_by_key(|(_, objects)| **objects);
        let Some(((cluster, namespace), most)) = most else {
            return;
        };
        tracing::warn!(
            objects = left_out.values().sum::<usize>(),
            %namespace,
            member = %cluster,
            of_namespace = most,
            "the memory limit has no room for the copies of all objects; this namespace holds most, and its newest are left \
             out (docs/operations.md, Memory)"
        );
    }
}

// === impl Account ===

impl Account {
    /// Charges a copy.
    pub fn charge(&self, namespace: &Arc<str>, copy: Item<Arc<str>>) {
        let (tenant, item) = self.named(namespace, copy);
        self.budget.state.lock().shares.insert(&tenant, item);
    }

    /// Releases a copy that is no longer kept.
    pub fn release(&self, namespace: &Arc<str>, copy: Item<Arc<str>>) {
        let (tenant, item) = self.named(namespace, copy);
        self.budget.state.lock().shares.remove(&tenant, &item);
    }

    /// Makes copies give way until the rest fits. The caller must not have locked a store.
    pub fn settle(&self) {
        self.budget.settle();
    }

    /// Returns whether a copy of `bytes` bytes that gave way would stay now; logs once a minute that objects are left
    /// out.
    pub fn has_room(&self, namespace: &Arc<str>, bytes: usize) -> bool {
        let mut state = self.budget.state.lock();
        state.log(self.clock.monotonic());
        let (tenant, budget) = (self.tenant(namespace), state.budget);
        state.shares.would_stay(&tenant, bytes, budget)
    }

    /// Changes the number of objects that are left out of a namespace.
    pub fn count_left_out(&self, namespace: &Arc<str>, change: isize) {
        let key = (self.number, self.tenant(namespace));
        let mut state = self.budget.state.lock();
        let objects = state.left_out.entry(key.clone()).or_default();
        *objects = objects.saturating_add_signed(change);
        if *objects == 0 {
            state.left_out.remove(&key);
        }
    }

    fn named(&self, namespace: &Arc<str>, copy: Item<Arc<str>>) -> (Tenant, Item<CopyKey>) {
        let item = copy.map_key(|name| (self.number, name));
        (self.tenant(namespace), item)
    }

    fn tenant(&self, namespace: &Arc<str>) -> Tenant {
        (self.cluster.clone(), namespace.clone())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.keepers.remove(&self.number);
        let number = self.number;
        state.shares.remove_all(|(account, _)| *account == number);
        state.left_out.retain(|(account, _), _| *account != number);
    }
}
