//! The members as they come and go.
//!
//! Follows the Secrets, and keeps one [`Link`] per member: a new kubeconfig opens a new one, which takes over once its
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

use jiff::SignedDuration;
use tokio::{sync::Notify, task::JoinSet};

use super::{
    Settings,
    connect::connect,
    kubeconfig::Access,
    link::Link,
    secret::{MemberSecret, Tags},
};
use crate::{
    adapters::kube::{
        Changes, ConnectError, Connection, KubeMember, Limits, Pace, Resource, Store, Watched,
        WriteGate,
    },
    clock::Clock,
    domain::federate::{Health, Taint},
    ports::{Fleet, MemberView},
    validate::chain,
};

/// How often a link that waits to take over is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How often the first list is looked for: one without Secrets tells nobody that it came.
const FIRST_LOOK: Duration = Duration::from_millis(200);

/// Makes a connection of what a kubeconfig says.
type Dial = dyn Fn(&Access) -> Result<Connection, ConnectError> + Send + Sync;

/// The member clusters of a fleet.
pub struct Members {
    connection: Connection,
    settings: Settings,
    dial: Box<Dial>,
    gate: WriteGate,
    clock: Clock,
    secrets: Arc<Store<MemberSecret>>,
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
    /// Whether it answers.
    pub health: Health,
    /// How long ago it last said anything; absent without a connection.
    pub silence: Option<SignedDuration>,
    /// Whether its Secret can be used.
    pub usable: bool,
}

/// What an inventory says about one member.
pub(super) struct Wanted {
    tags: Tags,
    access: Result<Access, String>,
}

/// One member as it is kept.
struct Entry {
    tags: Tags,
    problem: Option<String>,
    link: Option<Link>,
    /// A link with newer credentials, which takes over when its stores are full.
    next: Option<Link>,
}

// === impl Members ===

impl Members {
    /// The members of a hub: none until [`Members::run`]. Writes to them go through `gate`.
    #[must_use]
    pub fn new(connection: Connection, settings: Settings, gate: WriteGate, clock: Clock) -> Self {
        let events = Arc::new(Changes::default());
        let scope = [Some(settings.namespace.clone())];
        let secrets = Store::new(Resource::SECRET, &scope)
            .narrowed(settings.label.clone())
            .telling(events.clone());
        Self {
            connection,
            settings,
            dial: Box::new(connect),
            gate,
            clock,
            secrets: Arc::new(secrets),
            events,
            roster: RwLock::default(),
            followed: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Follows the Secrets and keeps the links, until it is dropped.
    pub async fn run(&self) {
        let mut tasks = JoinSet::new();
        let secrets: Arc<dyn Watched> = self.secrets.clone();
        secrets.watch(&self.connection, Pace::default(), &mut tasks);
        loop {
            let look = if self.is_synced() { LOOK } else { FIRST_LOOK };
            tokio::select! {
                _keys = self.events.next() => self.follow(),
                () = tokio::time::sleep(look) => self.look(),
                Some(Err(error)) = tasks.join_next() => {
                    tracing::error!(%error, "the watch of the members died");
                    return;
                }
            }
        }
    }

    /// How every member is doing, by name.
    #[must_use]
    pub fn reports(&self) -> Vec<MemberReport> {
        let roster = self.read();
        let report = |(name, entry): (&String, &Entry)| {
            let serving = entry.serving();
            MemberReport {
                name: name.clone(),
                health: entry.health().0,
                silence: serving.map(Link::silence),
                usable: serving.is_some(),
            }
        };
        roster.iter().map(report).collect()
    }

    /// Makes the roster what the inventory says.
    fn follow(&self) {
        let listed = self.secrets.is_synced();
        let wanted = self.wanted();
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

    fn wanted(&self) -> BTreeMap<String, Wanted> {
        let Settings {
            key,
            allow_loopback,
            ..
        } = &self.settings;
        let wanted = |secret: &Arc<MemberSecret>| {
            let access = secret.access(key, *allow_loopback);
            let wanted = Wanted {
                tags: secret.tags(&secret.name),
                access: access.map_err(|refusal| refusal.to_string()),
            };
            (secret.name.clone(), wanted)
        };
        self.secrets.all().iter().map(wanted).collect()
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
        match wanted.access {
            Ok(access) if entry.uses(&access) => {}
            Ok(access) => self.reconnect(name, &mut entry, access),
            Err(problem) => entry.fail(name, problem),
        }
        entry
    }

    fn reconnect(&self, name: &str, entry: &mut Entry, access: Access) {
        let server = access.host();
        match (self.dial)(&access) {
            Ok(connection) => {
                tracing::info!(member = name, server, "connecting to a member");
                entry.take(self.link(access, connection));
            }
            Err(error) => entry.fail(name, chain(&error)),
        }
    }

    fn link(&self, access: Access, connection: Connection) -> Link {
        let cluster = KubeMember::member(
            connection,
            &self.settings.namespaces,
            self.gate.clone(),
            (Limits::of_a_member(), Pace::default(), self.clock.clone()),
        );
        Link::open(
            access,
            Arc::new(cluster),
            self.settings.patience,
            &self.clock,
        )
    }

    /// Taints with the time they appeared; those of a member that is new have been there for ever.
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
        if !self.is_synced() && self.secrets.is_synced() {
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
            .map(|entry| Arc::new(entry.view()))
            .collect()
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
            problem: None,
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
    fn take(&mut self, link: Link) {
        self.problem = None;
        if self.link.is_some() {
            self.next = Some(link);
        } else {
            self.link = Some(link);
        }
    }

    /// The credentials were taken away or cannot be used: nothing is asked of the member any more.
    fn fail(&mut self, name: &str, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(
                member = name,
                problem,
                "the Secret of a member cannot be used"
            );
        }
        self.problem = Some(problem);
        (self.link, self.next) = (None, None);
    }

    fn promote(&mut self) {
        if self.next.as_ref().is_some_and(Link::is_synced) {
            self.link = self.next.take();
        }
    }

    /// The link that answers for the member: the newer one as soon as it can, or if the older one cannot.
    fn serving(&self) -> Option<&Link> {
        let ready = |link: &&Link| link.is_synced();
        let works = |link: &Link| link.health().0 == Health::Ready;
        match (&self.link, &self.next) {
            (Some(old), Some(new)) if !ready(&new) && works(old) => Some(old),
            (_, Some(new)) => Some(new),
            (old, None) => old.as_ref(),
        }
    }

    fn health(&self) -> (Health, Option<String>) {
        match self.serving() {
            Some(link) => link.health(),
            None => (
                Health::Unknown {
                    since: jiff::Timestamp::UNIX_EPOCH,
                },
                self.problem.clone(),
            ),
        }
    }

    fn view(&self) -> MemberView<KubeMember> {
        let (health, problem) = self.health();
        MemberView {
            profile: self.tags.profile.clone(),
            taints: self.tags.taints.clone(),
            prometheus: self.tags.prometheus.clone(),
            health,
            cluster: self.serving().map(|link| link.cluster.clone()),
            problem: problem.or_else(|| self.tags.problem.clone()),
        }
    }
}
