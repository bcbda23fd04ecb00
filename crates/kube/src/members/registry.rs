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

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use foretide_federate::{Health, Membership, Taint};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use super::{
    connect::connect,
    connection::{HealthReport, MemberConnection},
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
use foretide_base::{
    clock::{Clock, ClockReading},
    error::chain,
};

/// Period of checking a pending connection.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// Period of checking the inventory until its first list, which causes no event when it has no Secrets.
const FIRST_CHECK_PERIOD: Duration = Duration::from_millis(200);

/// Opens a connection with the access of a kubeconfig; tests replace it.
type Connect = dyn Fn(&Access) -> Result<Connection, ConnectError> + Send + Sync;

/// The member clusters of a fleet.
pub struct MemberRegistry {
    inventory: Inventory,
    settings: MemberSettings,
    connect: Box<Connect>,
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

/// One member.
struct RegistryEntry {
    info: MemberInfo,
    /// The report of its `ClusterProfile` that it is not healthy.
    unhealthy: Option<Unhealthy>,
    /// Time since when the Secret cannot be used, and the reason.
    failed: Option<(ClockReading, String)>,
    /// Restarts of the parts of all its connections.
    restarts: Arc<AtomicU64>,
    connection: Option<MemberConnection>,
    /// A connection with newer credentials, which replaces the other when its stores are complete.
    pending: Option<MemberConnection>,
}

/// The report of a `ClusterProfile` that its member is not healthy.
#[derive(Debug, Clone, Copy)]
struct Unhealthy {
    /// The time of the report, by another clock.
    reported: Timestamp,
    /// The time of the report on our clock, as it was then.
    since: Timestamp,
    /// Readings of our clocks when the report was seen first.
    seen: ClockReading,
}

// === impl MemberRegistry ===

impl MemberRegistry {
    /// The members of a hub; empty until [`MemberRegistry::run`]. Writes to them go through `gate`.
    #[must_use]
    pub fn new(connection: Connection, settings: MemberSettings, gate: WriteGate) -> Self {
        let changes = Arc::new(Changes::default());
        let machine = connection.machine.clone();
        Self {
            inventory: Inventory::new(connection, &settings, &changes),
            settings,
            gate,
            clock: machine.clock().clone(),
            connect: Box::new(move |access| connect(access, &machine)),
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
    #[must_use]
    pub fn reports(&self) -> Vec<MemberReport> {
        let (now, lost_after) = (self.clock.reading(), self.settings.timeouts.lost_after);
        let entries = self.read();
        let report = |(name, entry): (&String, &RegistryEntry)| {
            let serving = entry.serving();
            let report = entry.report(lost_after, now);
            MemberReport {
                name: name.clone(),
                ready: report.health == Health::Ready && !report.unauthorized,
                silence: serving.map(MemberConnection::silence),
                usable: entry.secret_problem(now).is_none() || entry.info.leaving,
                restarts: entry.restarts.load(Ordering::Relaxed),
            }
        };
        entries.iter().map(report).collect()
    }

    /// Number of objects that are excluded in all members, by kind.
    #[must_use]
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
        let before = entry.unhealthy;
        entry.unhealthy = member.unhealthy.map(|reported| {
            let known = before.filter(|known| known.reported == reported);
            known.unwrap_or_else(|| Unhealthy {
                reported,
                // A report does not come from the future.
                since: reported.min(now.wall()),
                seen: now,
            })
        });
        match member.access {
            Ok(access) if entry.keeps(&access) => {}
            Ok(access) => self.reconnect(name, &mut entry, access),
            Err(problem) => entry.fail(problem, now),
        }
        entry
    }

    fn reconnect(&self, name: &str, entry: &mut RegistryEntry, access: Access) {
        let server = access.host();
        match (self.connect)(&access) {
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
    fn with_times(&self, taints: Vec<Taint>, before: Option<&Vec<Taint>>) -> Vec<Taint> {
        let Some(before) = before else {
            return taints;
        };
        let since = |taint: &Taint| {
            let same = |old: &&Taint| {
                (&old.key, &old.value, old.effect) == (&taint.key, &taint.value, taint.effect)
            };
            match before.iter().find(same) {
                Some(old) => old.since,
                None => Some(self.clock.now()),
            }
        };
        let with_time = |taint: Taint| Taint {
            since: since(&taint),
            ..taint
        };
        taints.into_iter().map(with_time).collect()
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
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, RegistryEntry>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for MemberRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemberRegistry")
            .field("settings", &self.settings)
            .field("members", &self.reports())
            .finish_non_exhaustive()
    }
}

impl Fleet for MemberRegistry {
    type Member = KubeMember;

    fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    fn members(&self) -> Vec<Arc<MemberView<KubeMember>>> {
        let entries = self.read();
        let (now, lost_after) = (self.clock.reading(), self.settings.timeouts.lost_after);
        let views = entries.values().map(|entry| entry.view(lost_after, now));
        views.map(Arc::new).collect()
    }

    fn lost_after(&self) -> SignedDuration {
        self.settings.timeouts.lost_after
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

// === impl Unhealthy ===

impl Unhealthy {
    /// Time since when the member is not healthy, on the wall clock as it is now.
    fn since(self, now: ClockReading) -> Timestamp {
        after_steps(self.since, self.seen, now)
    }
}

/// A time of our wall clock that was noted `then`, on the clock as it is now.
fn after_steps(at: Timestamp, then: ClockReading, now: ClockReading) -> Timestamp {
    at.saturating_add(now.step_since(then)).unwrap_or(at)
}

// === impl RegistryEntry ===

impl RegistryEntry {
    fn new(info: &MemberInfo) -> Self {
        Self {
            info: info.clone(),
            unhealthy: None,
            failed: None,
            restarts: Arc::default(),
            connection: None,
            pending: None,
        }
    }

    /// True if these credentials are in use or are tried already. Newer ones that are tried are dropped if the Secret
    /// is back at those in use.
    fn keeps(&mut self, access: &Access) -> bool {
        let is_of = |connection: &MemberConnection| connection.access == *access;
        let is_in_use = self.connection.as_ref().is_some_and(is_of);
        if is_in_use {
            self.pending = None;
        }
        let is_kept = is_in_use || self.pending.as_ref().is_some_and(is_of);
        if is_kept && self.failed.take().is_some() {
            let member = &self.info.profile.name;
            tracing::info!(member, "the Secret of a member can be used again");
        }
        is_kept
    }

    /// Adds a connection with new credentials. One that has read the member stays in use until the new one has.
    fn replace(&mut self, connection: MemberConnection) {
        self.failed = None;
        self.promote();
        if self.has_been_read() {
            self.pending = Some(connection);
        } else {
            self.connection = Some(connection);
        }
    }

    /// Records that the credentials are gone or cannot be used. A connection with the former ones stays in use, unless
    /// it has never read the member.
    fn fail(&mut self, problem: String, now: ClockReading) {
        let since = self.failed.as_ref().map_or(now, |(since, _)| *since);
        self.promote();
        let serves = self.has_been_read();
        let is_new = |(_, known): &(ClockReading, String)| *known != problem;
        if self.failed.as_ref().is_none_or(is_new) {
            let member = &self.info.profile.name;
            tracing::warn!(
                member,
                problem,
                serves,
                "the Secret of a member cannot be used"
            );
        }
        self.failed = Some((since, problem));
        if !serves {
            (self.connection, self.pending) = (None, None);
        }
    }

    /// True if the member stays although it is no longer listed: nobody said that it leaves, and the connection serves.
    fn outlives_its_secret(&mut self, now: ClockReading) -> bool {
        if self.info.leaving {
            return false;
        }
        let remove = &self.info.profile.name;
        self.fail(
            format!(
                "its Secret is missing; restore it, or remove the member with foretide members remove {remove}"
            ),
            now,
        );
        self.connection.is_some()
    }

    /// True if the connection in use has read everything that a sync needs, now or before.
    fn has_been_read(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(MemberConnection::is_synced)
    }

    fn promote(&mut self) {
        if let Some(synced) = self.pending.take_if(|new| new.is_synced()) {
            self.connection = Some(synced);
        }
    }

    /// The connection in use: the newer one as soon as it has read the member. Until then the older one stays, also
    /// when it is not ready: it knows since when.
    fn serving(&self) -> Option<&MemberConnection> {
        let newer = self.pending.as_ref().filter(|new| new.is_synced());
        newer.or(self.connection.as_ref())
    }

    /// Reason why the credentials in the Secret cannot be used.
    fn secret_problem(&self, now: ClockReading) -> Option<String> {
        if let Some((since, problem)) = &self.failed {
            let since = after_steps(since.wall(), *since, now);
            return Some(format!("{problem} (since {since:.0})"));
        }
        let HealthReport {
            health,
            problem,
            unauthorized,
        } = self.pending.as_ref()?.report();
        let is_lost = matches!(health, Health::Unknown { since } if since <= now.wall());
        let problem = problem.filter(|_| unauthorized || is_lost)?;
        Some(format!("the new credentials are not used: {problem}"))
    }

    /// Health of the member. A member whose Secret cannot be used is lost `lost_after` later, like one that does not
    /// answer.
    fn report(&self, lost_after: SignedDuration, now: ClockReading) -> HealthReport {
        let report = self.serving().map(MemberConnection::report);
        match (report, self.unhealthy) {
            // Only where the connection is well. If it is not, its own problem says more.
            (Some(known), Some(reported))
                if known.health == Health::Ready && !known.unauthorized =>
            {
                let problem = "its ClusterProfile reports ControlPlaneHealthy=False";
                HealthReport {
                    health: Health::NotReady {
                        since: reported.since(now),
                    },
                    problem: Some(problem.to_owned()),
                    unauthorized: false,
                }
            }
            (Some(known), _) => known,
            (None, _) => {
                let (failed_at, problem) = self.failed.clone().unzip();
                // Without a connection and without a failure nothing is known: lost from the beginning.
                let failed = failed_at.map_or(Timestamp::UNIX_EPOCH, |then| {
                    after_steps(then.wall(), then, now)
                });
                let since = failed.saturating_add(lost_after).unwrap_or(failed);
                HealthReport {
                    health: Health::Unknown { since },
                    problem,
                    unauthorized: false,
                }
            }
        }
    }

    fn view(&self, lost_after: SignedDuration, now: ClockReading) -> MemberView<KubeMember> {
        let HealthReport {
            health,
            problem,
            unauthorized,
        } = self.report(lost_after, now);
        let cluster = self.serving().map(|connection| connection.cluster.clone());
        // Without a connection it is the problem of the member.
        let secret_problem = self.secret_problem(now).filter(|_| cluster.is_some());
        let membership = if self.info.leaving {
            Membership::Leaving
        } else {
            Membership::Listed
        };
        MemberView {
            profile: self.info.profile.clone(),
            membership,
            taints: self.info.taints.clone(),
            prometheus: self.info.prometheus.clone(),
            health,
            refused: unauthorized,
            cluster,
            // The problem is shown as the reason why a member is lost, so a problem with its annotations must not take
            // its place.
            problem: match health {
                Health::Unknown { .. } => with(problem, secret_problem.as_deref()),
                _ => problem.or_else(|| self.info.problem.clone()),
            },
            secret_problem,
        }
    }
}

/// A problem and that of the Secret, which may be its cause.
fn with(problem: Option<String>, secret_problem: Option<&str>) -> Option<String> {
    match (problem, secret_problem) {
        (Some(problem), Some(of_secret)) => Some(format!("{problem}; {of_secret}")),
        (problem, _) => problem,
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
            connect: Box::new(connect),
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
