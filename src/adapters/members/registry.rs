//! The members as they come and go.
//!
//! Follows the Secrets, and keeps one [`MemberConnection`] per member: a new kubeconfig opens a new one, which takes over once its
//! stores are full, so that a rotated token is no outage; other labels and annotations change what is said of the
//! member and leave its link alone. A Secret that cannot be used is a member without a cluster.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use super::{
    Settings,
    connect::connect,
    connection::{Condition, MemberConnection},
    inventory::{Inventory, Wanted},
    kubeconfig::Access,
    secret::Tags,
};
use crate::{
    adapters::{
        api_server::{ConnectError, Connection, Limits, WriteGate},
        kube::{Changes, KubeMember, Options, WatchTimeouts},
    },
    clock::Clock,
    domain::federate::{Health, Taint},
    error::chain,
    ports::{Fleet, MemberView},
};

/// How often a link that waits to take over is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How often the first list is looked for: one without Secrets tells nobody that it came.
const FIRST_LOOK: Duration = Duration::from_millis(200);

/// Makes a connection of what a kubeconfig says.
type Dial = dyn Fn(&Access) -> Result<Connection, ConnectError> + Send + Sync;

/// The member clusters of a fleet.
pub struct Members {
    inventory: Inventory,
    settings: Settings,
    dial: Box<Dial>,
    gate: WriteGate,
    clock: Clock,
    events: Arc<Changes>,
    roster: RwLock<BTreeMap<String, Entry>>,
    followed: AtomicBool,
    changed: Notify,
}

/// How one member is doing: data for metrics and people.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// Whether it answers, accepts our credentials, and says that it is ready.
    pub ready: bool,
    /// How long ago it last said anything; absent without a connection.
    pub silence: Option<SignedDuration>,
    /// Whether its Secret can be used.
    pub usable: bool,
}

/// One member as it is kept.
struct Entry {
    tags: Tags,
    /// Since when its manager says that it is not healthy.
    unhealthy: Option<Timestamp>,
    /// Why there is no link, and since when.
    failed: Option<(Timestamp, String)>,
    link: Option<MemberConnection>,
    /// A link with newer credentials, which takes over when its stores are full.
    next: Option<MemberConnection>,
}

// === impl Members ===

impl Members {
    /// The members of a hub: none until [`Members::run`]. Writes to them go through `gate`.
    #[must_use]
    pub fn new(connection: Connection, settings: Settings, gate: WriteGate, clock: Clock) -> Self {
        let events = Arc::new(Changes::default());
        Self {
            inventory: Inventory::new(connection, &settings, &events),
            settings,
            dial: Box::new(connect),
            gate,
            clock,
            events,
            roster: RwLock::default(),
            followed: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Follows the inventories and keeps the links, until it is dropped; returns only when a watch has died.
    pub async fn run(&self) {
        let mut inventory = std::pin::pin!(self.inventory.run());
        loop {
            let look = if self.is_synced() { LOOK } else { FIRST_LOOK };
            tokio::select! {
                _keys = self.events.next() => self.follow(),
                () = tokio::time::sleep(look) => self.look(),
                () = &mut inventory => return,
            }
        }
    }

    /// How every member is doing, by name.
    #[must_use]
    pub fn reports(&self) -> Vec<MemberReport> {
        let roster = self.read();
        let report = |(name, entry): (&String, &Entry)| {
            let serving = entry.serving();
            let condition = entry.condition(self.settings.patience.answer);
            MemberReport {
                name: name.clone(),
                ready: condition.health == Health::Ready && !condition.refused,
                silence: serving.map(MemberConnection::silence),
                usable: serving.is_some(),
            }
        };
        roster.iter().map(report).collect()
    }

    /// Makes the roster what the inventory says.
    fn follow(&self) {
        let listed = self.inventory.is_listed();
        let wanted = self.inventory.wanted(&self.settings);
        let mut roster = self.write();
        roster.retain(|name, _| wanted.contains_key(name));
        for (name, wanted) in wanted {
            let entry = roster.remove(&name);
            let entry = self.updated(&name, entry, wanted);
            roster.insert(name, entry);
        }
        drop(roster);
        self.followed.fetch_or(listed, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// The entry of a member after its inventory changed.
    fn updated(&self, name: &str, before: Option<Entry>, wanted: Wanted) -> Entry {
        let known = before.is_some();
        let mut entry = before.unwrap_or_else(|| Entry::empty(&wanted.tags));
        let tags = Tags {
            taints: self.dated(wanted.tags.taints, known.then_some(&entry.tags.taints)),
            ..wanted.tags
        };
        entry.tags = tags;
        entry.unhealthy = wanted.unhealthy.map(|at| self.clock.from_wall(at));
        match wanted.access {
            Ok(access) if entry.uses(&access) => {}
            Ok(access) => self.reconnect(name, &mut entry, access),
            Err(problem) => entry.fail(problem, self.clock.now()),
        }
        entry
    }

    fn reconnect(&self, name: &str, entry: &mut Entry, access: Access) {
        let server = access.host();
        match (self.dial)(&access) {
            Ok(connection) => {
                tracing::info!(member = name, server, "connecting to a member");
                entry.take(self.link(name, access, connection));
            }
            Err(error) => entry.fail(chain(&error), self.clock.now()),
        }
    }

    fn link(&self, name: &str, access: Access, connection: Connection) -> MemberConnection {
        let options = Options {
            namespaces: &self.settings.namespaces,
            limits: Limits::for_member(),
            timeouts: WatchTimeouts::default().with_max_staleness(self.settings.patience.watch),
            gate: self.gate.clone(),
            clock: self.clock.clone(),
        };
        let cluster = KubeMember::member(connection, options);
        let of = (self.settings.patience, &self.clock);
        MemberConnection::open(name, access, Arc::new(cluster), of)
    }

    /// Taints with the time they appeared; those of a member that is new have no known one.
    fn dated(&self, taints: Vec<Taint>, before: Option<&Vec<Taint>>) -> Vec<Taint> {
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
        let dated = |taint: Taint| Taint {
            since: since(&taint),
            ..taint
        };
        taints.into_iter().map(dated).collect()
    }

    /// Lets links take over whose stores are full, and notices the first list.
    fn look(&self) {
        if !self.is_synced() && self.inventory.is_listed() {
            self.follow();
        }
        let waits = self.read().values().any(|entry| entry.next.is_some());
        if waits {
            self.write().values_mut().for_each(Entry::promote);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Entry>> {
        self.roster.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Entry>> {
        self.roster.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members")
            .field("settings", &self.settings)
            .field("members", &self.reports())
            .finish_non_exhaustive()
    }
}

impl Fleet for Members {
    type Member = KubeMember;

    fn is_synced(&self) -> bool {
        self.followed.load(Ordering::Acquire)
    }

    fn members(&self) -> Vec<Arc<MemberView<KubeMember>>> {
        let roster = self.read();
        roster
            .values()
            .map(|entry| Arc::new(entry.view(self.settings.patience.answer)))
            .collect()
    }

    fn lost_after(&self) -> SignedDuration {
        self.settings.patience.answer
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

// === impl Entry ===

impl Entry {
    fn empty(tags: &Tags) -> Self {
        Self {
            tags: tags.clone(),
            unhealthy: None,
            failed: None,
            link: None,
            next: None,
        }
    }

    /// The newest credentials in use are these.
    fn uses(&self, access: &Access) -> bool {
        let newest = self.next.as_ref().or(self.link.as_ref());
        newest.is_some_and(|link| link.access == *access)
    }

    /// A link with new credentials; the one before goes on until the new one is ready to take over.
    fn take(&mut self, link: MemberConnection) {
        self.failed = None;
        if self.link.is_some() {
            self.next = Some(link);
        } else {
            self.link = Some(link);
        }
    }

    /// The credentials were taken away or cannot be used: nothing is asked of the member any more.
    fn fail(&mut self, problem: String, now: Timestamp) {
        let since = self.failed.as_ref().map_or(now, |(since, _)| *since);
        if self
            .failed
            .as_ref()
            .is_none_or(|(_, known)| *known != problem)
        {
            let member = &self.tags.profile.name;
            tracing::warn!(member, problem, "the Secret of a member cannot be used");
        }
        self.failed = Some((since, problem));
        (self.link, self.next) = (None, None);
    }

    fn promote(&mut self) {
        if self.next.as_ref().is_some_and(MemberConnection::is_synced) {
            self.link = self.next.take();
        }
    }

    /// The link that answers for the member: the newer one as soon as it can, or if the older one cannot.
    fn serving(&self) -> Option<&MemberConnection> {
        let ready = |link: &&MemberConnection| link.is_synced();
        match (&self.link, &self.next) {
            (Some(old), Some(new)) if !ready(&new) && old.is_ready() => Some(old),
            (_, Some(new)) => Some(new),
            (old, None) => old.as_ref(),
        }
    }

    /// How the member is doing. One whose Secret cannot be used counts as lost as late as one that does not answer.
    fn condition(&self, lost_after: SignedDuration) -> Condition {
        let condition = self.serving().map(MemberConnection::condition);
        match (condition, self.unhealthy) {
            (Some(known), Some(since)) if known.health == Health::Ready && !known.refused => {
                let says = "its ClusterProfile says ControlPlaneHealthy=False";
                Condition {
                    health: Health::NotReady { since },
                    problem: Some(says.to_owned()),
                    refused: false,
                }
            }
            (Some(known), _) => known,
            (None, _) => {
                let (since, problem) = self.failed.clone().unzip();
                let since = since.unwrap_or(Timestamp::UNIX_EPOCH);
                let since = since.saturating_add(lost_after).unwrap_or(since);
                Condition {
                    health: Health::Unknown { since },
                    problem,
                    refused: false,
                }
            }
        }
    }

    fn view(&self, lost_after: SignedDuration) -> MemberView<KubeMember> {
        let Condition {
            health,
            problem,
            refused,
        } = self.condition(lost_after);
        MemberView {
            profile: self.tags.profile.clone(),
            taints: self.tags.taints.clone(),
            prometheus: self.tags.prometheus.clone(),
            health,
            refused,
            cluster: self.serving().map(|link| link.cluster.clone()),
            // Why a member is lost must not be mistaken for what is wrong with its annotations.
            problem: match health {
                Health::Unknown { .. } => problem,
                _ => problem.or_else(|| self.tags.problem.clone()),
            },
        }
    }
}

#[cfg(test)]
impl Members {
    /// Members of the given Secrets, with connections from `dial`.
    pub(super) fn dialling(
        connection: Connection,
        settings: Settings,
        dial: impl Fn(&Access) -> Result<Connection, ConnectError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            dial: Box::new(dial),
            ..Self::new(connection, settings, WriteGate::default(), Clock::system())
        }
    }

    /// Follows a complete list of Secrets.
    pub(super) fn listed(&self, secrets: Vec<serde_json::Value>) {
        self.inventory.list(&self.settings, secrets);
        self.follow();
    }

    /// As often as the time says in [`Members::run`].
    pub(super) fn later(&self) {
        self.look();
    }
}
