//! The member clusters of a fleet, as their Secrets and `ClusterProfile`s say.
//!
//! Keeps one [`MemberConnection`] per member. A new kubeconfig opens a second connection, which replaces the first once
//! its stores are complete, so that a rotated token causes no outage. Other labels and annotations change the
//! description of the member and leave its connection alone.
//!
//! ```text
//! the Secret             the connection
//! new kubeconfig         the old one serves until the new one is complete
//! cannot be used, gone   stays open and serves for as long as its credentials work
//! gone while leaving     is closed: the member was removed on purpose
//! ```
//!
//! A member that was never read has no connection worth keeping: while its Secret cannot be used, it is a member
//! without a cluster. That fleets still have shares of a member that is not in the registry is left to the controller.

mod entry;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use foretide_federate::Taint;
use jiff::SignedDuration;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;

use self::entry::RegistryEntry;
use super::{
    connect::connect,
    connection::MemberConnection,
    inventory::{Inventory, InventoryEntry},
    kubeconfig::Access,
    secret::MemberInfo,
    settings::MemberSettings,
};
use crate::{
    api_server::{ConnectError, Connection, Limits, WriteGate},
    cluster::{Changes, KubeMember, Options, WatchTimeouts},
};
use foretide_api::ports::{Fleet, MemberView};
use foretide_base::{clock::Clock, error::chain, opaque::Opaque};

/// Period of checking a pending connection.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// Period of checking the inventory until its first list, which causes no event when it has no Secrets.
const FIRST_CHECK_PERIOD: Duration = Duration::from_millis(200);

/// Opens a connection with the access of a kubeconfig; tests replace it.
type Connect = dyn Fn(&Access) -> Result<Connection, ConnectError> + Send + Sync;

/// The member clusters of a fleet.
#[derive(Debug)]
pub struct MemberRegistry {
    inventory: Inventory,
    settings: MemberSettings,
    connect: Opaque<Box<Connect>>,
    gate: WriteGate,
    clock: Clock,
    changes: Arc<Changes>,
    entries: RwLock<BTreeMap<String, RegistryEntry>>,
    synced: AtomicBool,
    changed: Notify,
}

/// The state of one member, for metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberReport {
    /// The name.
    pub name: String,
    /// True if it answers, accepts the credentials, and reports that it is ready.
    pub ready: bool,
    /// Time since its last answer; none without a connection.
    pub silence: Option<SignedDuration>,
    /// True if its Secret can be used. That of a member that leaves is not needed.
    pub usable: bool,
    /// Number of times that a part of its connection exited unexpectedly and was started again.
    pub restarts: u64,
}

// === impl MemberRegistry ===

impl MemberRegistry {
    /// The members of a hub; empty until [`MemberRegistry::run`]. Writes to them go through `gate`.
    pub fn new(connection: Connection, settings: MemberSettings, gate: WriteGate) -> Self {
        let changes = Arc::new(Changes::default());
        let machine = connection.machine.clone();
        Self {
            inventory: Inventory::new(connection, &settings, &changes),
            settings,
            gate,
            clock: machine.clock().clone(),
            connect: Opaque(Box::new(move |access| connect(access, &machine))),
            changes,
            entries: RwLock::default(),
            synced: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// True if the API server forbids to read the Secrets. Only a hub of fleets has that permission.
    pub async fn is_refused(&self) -> bool {
        self.inventory.is_refused(&self.settings).await
    }

    /// Watches the inventory and keeps the connections until it is dropped; returns only when a watch exits.
    pub async fn run(&self) {
        let mut inventory = std::pin::pin!(self.inventory.run());
        loop {
            let period = if self.is_synced() {
                CHECK_PERIOD
            } else {
                FIRST_CHECK_PERIOD
            };
            tokio::select! {
                biased;
                () = &mut inventory => return,
                _keys = self.changes.next() => self.update(),
                () = tokio::time::sleep(period) => self.check(),
            }
        }
    }

    /// The state of every member, by name.
    pub fn reports(&self) -> Vec<MemberReport> {
        let (now, lost_after) = (self.clock.reading(), self.settings.timeouts.lost_after);
        self.read()
            .iter()
            .map(|(name, entry)| entry.member_report(name, lost_after, now))
            .collect()
    }

    /// Number of objects that are excluded in all members, by kind.
    pub fn unreadable(&self) -> BTreeMap<&'static str, usize> {
        let mut by_kind = BTreeMap::new();
        for connection in self.read().values().filter_map(RegistryEntry::serving) {
            for watch in connection.cluster.watches() {
                *by_kind.entry(watch.kind).or_default() += watch.unreadable;
            }
        }
        by_kind
    }

    /// Makes the entries match the inventory.
    fn update(&self) {
        // Before the members: a list that becomes complete in between has not been read.
        let listed = self.inventory.is_listed();
        let listed_members = self.inventory.members(&self.settings);
        let now = self.clock.reading();
        let mut entries = self.write();
        entries.retain(|name, entry| {
            listed_members.contains_key(name) || entry.outlives_its_secret(now)
        });
        for (name, member) in listed_members {
            let entry = entries.remove(&name);
            let entry = self.updated(&name, entry, member);
            entries.insert(name, entry);
        }
        // Before the notification, because the tasks that it wakes take the lock.
        drop(entries);
        // Stays set: an interrupted watch does not undo the first list.
        self.synced.fetch_or(listed, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// The entry of a member after the inventory changed.
    fn updated(
        &self,
        name: &str,
        before: Option<RegistryEntry>,
        member: InventoryEntry,
    ) -> RegistryEntry {
        let known = before.is_some();
        let mut entry = before.unwrap_or_else(|| RegistryEntry::new(&member.info));
        // The labels of a profile's Secret are part of the description: without them no fleet might select the member.
        if !known || member.secret.is_some() {
            let taints = self.with_times(member.info.taints, known.then_some(&entry.info.taints));
            entry.info = MemberInfo {
                taints,
                ..member.info
            };
        }
        let now = self.clock.reading();
        entry.set_unhealthy(member.unhealthy, now);
        match member.access {
            Ok(access) if entry.keeps(&access) => {}
            Ok(access) => self.reconnect(name, &mut entry, access),
            Err(problem) => entry.fail(problem, now),
        }
        entry
    }

    fn reconnect(&self, name: &str, entry: &mut RegistryEntry, access: Access) {
        let server = access.host();
        match (self.connect.0)(&access) {
            Ok(connection) => {
                let connection = self.inventory.of_member(name, connection);
                tracing::info!(member = name, server, "connecting to a member");
                let connection = self.open(name, access, connection, &entry.restarts);
                entry.replace(connection);
            }
            Err(error) => entry.fail(chain(&error), self.clock.reading()),
        }
    }

    fn open(
        &self,
        name: &str,
        access: Access,
        connection: Connection,
        restarts: &Arc<AtomicU64>,
    ) -> MemberConnection {
        let timeouts = self.settings.timeouts;
        let options = Options {
            namespaces: &self.settings.namespaces,
            limits: Limits::default(),
            timeouts: WatchTimeouts::default(),
            gate: self.gate.clone(),
        };
        let cluster = Arc::new(KubeMember::member(connection, options));
        let clock = self.clock.clone();
        let connection = MemberConnection::new(access, cluster, timeouts, clock);
        connection.started(name, restarts)
    }

    /// The taints with the time at which each appeared, which is unknown for those that a new member has already.
    fn with_times(&self, mut taints: Vec<Taint>, before: Option<&Vec<Taint>>) -> Vec<Taint> {
        let Some(before) = before else {
            return taints;
        };
        for taint in &mut taints {
            let same = before.iter().find(|old| {
                (&old.key, &old.value, old.effect) == (&taint.key, &taint.value, taint.effect)
            });
            taint.since = same.map_or_else(|| Some(self.clock.now()), |old| old.since);
        }
        taints
    }

    /// Notices the first list, and promotes pending connections whose stores are complete.
    fn check(&self) {
        if !self.is_synced() && self.inventory.is_listed() {
            self.update();
        }
        let is_pending = self.read().values().any(|entry| entry.pending.is_some());
        // Takes the write lock only when needed, because every sync reads.
        if is_pending {
            self.write().values_mut().for_each(RegistryEntry::promote);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, RegistryEntry>> {
        self.entries.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, RegistryEntry>> {
        self.entries.write()
    }
}

impl Fleet for MemberRegistry {
    type Member = KubeMember;

    fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    fn members(&self) -> Vec<Arc<MemberView<KubeMember>>> {
        let (now, lost_after) = (self.clock.reading(), self.settings.timeouts.lost_after);
        self.read()
            .values()
            .map(|entry| Arc::new(entry.view(lost_after, now)))
            .collect()
    }

    fn lost_after(&self) -> SignedDuration {
        self.settings.timeouts.lost_after
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
impl MemberRegistry {
    /// A registry that opens connections by `connect`.
    pub fn with_connect(
        connection: Connection,
        settings: MemberSettings,
        connect: impl Fn(&Access) -> Result<Connection, ConnectError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            connect: Opaque(Box::new(connect)),
            ..Self::new(connection, settings, WriteGate::default())
        }
    }

    /// Takes over a complete list of Secrets.
    pub fn set_secrets(&self, secrets: Vec<serde_json::Value>) {
        self.inventory.set_secrets(&self.settings, secrets);
        self.update();
    }

    /// One period of [`MemberRegistry::run`].
    pub fn check_once(&self) {
        self.check();
    }
}
