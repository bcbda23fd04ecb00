//! The story of a fleet: one sync over every federated autoscaler that is due.
//!
//! ```text
//! due -> gather (all members at once) -> total -> divide -> the part of each member -> apply, in order -> report
//! ```
//!
//! An autoscaler of one cluster is the fleet of one: the fleet is decided as one workload, and each member by the
//! pipeline of a cluster of its own, with its part of bounds and floor. It has a loop of its own, so that nothing else
//! waits for members. It refuses to divide: `domain::federate` does.

mod apply;
mod farewell;
mod gather;
pub(crate) mod ledger;
mod member;
mod placement;
mod report;
mod total;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use self::{apply::Done, gather::Seen, member::Part, total::Hub};
use super::{
    FIRST_LOOK, Setup,
    gather::Due as Question,
    memory::{Memory, Track},
    plan::Desk,
    rivals::{self, Rivals},
    schedule::{Entry, Schedule},
};
use crate::{
    clock::Clock,
    domain::{
        Replicas,
        federate::{self, FleetDecision, Kind, Ledger},
        history::History,
        hpa::Behavior,
        lead_time::LeadTimes,
        workload::{Mode, Strategy, Workload},
    },
    forecaster::{fleets::FleetMember, forecasts::Forecasts},
    owned::{HUB, Kin},
    ports::{Cluster, ClusterError, Fleet, ObjectKey},
    telemetry::Telemetry,
    validate::{self, FleetSpec},
};

/// How often members are searched for what was left behind.
const SWEEP_PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// The autoscaler of a fleet of clusters.
#[derive(Debug)]
pub struct FleetAutoscaler<C, F> {
    hub: Arc<C>,
    fleet: Arc<F>,
    clock: Clock,
    setup: Setup,
    told: Told,
    schedule: Schedule,
    memories: HashMap<String, FleetMemory>,
    identity: Option<String>,
    swept: Option<Timestamp>,
    /// Since when objects are on their way out, by UID.
    leaving: HashMap<String, Timestamp>,
}

/// Whom decisions are told, besides the objects: forecasters and metrics.
#[derive(Debug, Clone)]
pub struct Told {
    /// The forecasts in force, and the feed of what syncs see.
    pub forecasts: Arc<Forecasts>,
    /// The metrics.
    pub telemetry: Arc<Telemetry>,
}

/// A federated autoscaler whose turn it is, with what its spec means.
#[derive(Debug, Clone)]
struct Due {
    /// The object as the user wrote it.
    fdhpa: Arc<FederatedHPA>,
    /// The fleet as one object.
    whole: Arc<EffectiveHorizontalPodAutoscaler>,
    /// The same with the spec that counts.
    valid: Arc<EffectiveHorizontalPodAutoscaler>,
    /// What that spec means.
    spec: Arc<FleetSpec>,
    /// What members are asked.
    question: Arc<Workload>,
    /// Who else acts on the same target.
    rivals: Rivals,
    /// The members that have a share already, and the replicas that are expected there.
    known: BTreeMap<String, Option<Replicas>>,
}

/// What is remembered of one fleet.
#[derive(Debug)]
struct FleetMemory {
    /// The fleet as one object.
    told: Memory,
    /// The last spec that could be acted on.
    spec: Option<(Arc<FleetSpec>, Arc<Workload>)>,
    /// What the fleet's own metrics asked for.
    asking: History,
    /// The last answer of them.
    asked: Option<Replicas>,
    /// The members that the fleet's readings were about.
    counted: Option<BTreeSet<String>>,
    /// What rebalancing remembers.
    ledger: Ledger,
    /// By member.
    members: BTreeMap<String, MemberMemory>,
}

/// What is remembered of one member.
#[derive(Debug, Default)]
struct MemberMemory {
    /// The workload there.
    track: Track,
    /// As it was seen last.
    last: Option<federate::Member>,
    /// Whether all that is known of it comes from status: what its track held is lost.
    restored: bool,
    /// How long its pods took to start.
    lead_times: LeadTimes,
    /// The `minReplicas` that its child was left with, and the one that was decided then: in between, the child is
    /// shaped so that it gets there by itself.
    shaped: Option<(Replicas, Replicas)>,
    /// Whether it was lost then, as far as anybody was told.
    lost: bool,
    /// Changes of the replicas by others: when, and by whom.
    hands: Vec<(Timestamp, String)>,
    /// The version of the workload that was applied last.
    placed: Option<u64>,
    /// The count that a workload starts with which was just created.
    start: Option<Replicas>,
}

/// What one sync made of one fleet.
struct Planned<M> {
    due: Due,
    seen: Seen<M>,
    hub: Hub,
    observed: Vec<federate::Member>,
    decision: FleetDecision,
    parts: Vec<Part>,
}

// === impl FleetAutoscaler ===

impl<C: Cluster, F: Fleet> FleetAutoscaler<C, F> {
    /// An autoscaler that remembers nothing yet.
    #[must_use]
    pub fn new(hub: Arc<C>, fleet: Arc<F>, clock: Clock, setup: Setup, told: Told) -> Self {
        let schedule = Schedule::new(setup.sync_period);
        Self {
            hub,
            fleet,
            clock,
            setup,
            told,
            schedule,
            memories: HashMap::new(),
            identity: None,
            swept: None,
            leaving: HashMap::new(),
        }
    }

    /// Syncs, for ever.
    pub async fn run(mut self) {
        loop {
            let synced = self.hub.is_synced() && self.fleet.is_synced();
            if synced {
                self.sync().await;
            }
            let wait = if synced {
                self.schedule.until_next(self.clock.now())
            } else {
                FIRST_LOOK
            };
            let (hub, fleet) = (Arc::clone(&self.hub), Arc::clone(&self.fleet));
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                changed = hub.federated_changed() => self.expedite(|key| changed.contains(key)),
                () = fleet.changed() => self.expedite(|_| true),
            }
        }
    }

    /// One sync: every fleet that is due is seen, decided, carried out and reported.
    pub async fn sync(&mut self) {
        self.tidy().await;
        let due = self.due().await;
        if due.is_empty() {
            return;
        }
        let started = self.clock.now();
        let members = self.fleet.members();
        let (nobody, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|_| members.is_empty());
        for due in nobody {
            self.report_nobody(&due).await;
        }
        let when = (self.clock.now(), self.setup.member_deadline);
        let seen = gather::gather(&*self.hub, &members, &due, when).await;
        let fleets = due.into_iter().zip(seen);
        let planned: Vec<_> = fleets.map(|(due, seen)| self.plan(due, seen)).collect();
        let carried = planned.into_iter().map(|planned| self.carry_out(planned));
        let carried = join_all(carried).await;
        for (planned, done) in carried {
            self.take_in(&planned, done.as_deref().unwrap_or_default());
            self.report(planned, done).await;
        }
        let elapsed = self.clock.now().duration_since(started).as_secs_f64();
        self.told.telemetry.fleets_synced(elapsed);
    }

    /// Lets go what is to be deleted, and once in a while removes what was left behind.
    async fn tidy(&mut self) {
        let mut all = self.hub.federated();
        let existing = all.iter().filter_map(|fdhpa| fdhpa.uid()).collect();
        all.retain(|fdhpa| fdhpa.metadata.deletion_timestamp.is_some());
        self.see_off(&all).await;
        let now = self.clock.now();
        let waits = |last: Timestamp| now.duration_since(last).abs() < SWEEP_PERIOD;
        if self.swept.is_some_and(waits) {
            return;
        }
        self.swept = Some(now);
        if self.identity.is_none() {
            self.identity = self.hub.identity().await.ok();
        }
        self.sweep(&existing).await;
    }

    /// Makes fleets due at once.
    fn expedite(&mut self, is_meant: impl Fn(&ObjectKey) -> bool) {
        let now = self.clock.now();
        for fdhpa in self.hub.federated() {
            let key = ObjectKey {
                namespace: fdhpa.namespace().unwrap_or_default(),
                name: fdhpa.name_any(),
            };
            if is_meant(&key) {
                let uid = fdhpa.uid().unwrap_or_default();
                self.schedule.again(&uid, now, SignedDuration::ZERO);
            }
        }
    }

    /// The fleets whose turn it is, validated; forgets the ones that are gone.
    async fn due(&mut self) -> Vec<Due> {
        let mut staying = self.hub.federated();
        staying.retain(|fdhpa| fdhpa.metadata.deletion_timestamp.is_none());
        let uids: HashSet<String> = staying.iter().filter_map(|fdhpa| fdhpa.uid()).collect();
        for (_, gone) in self.memories.extract_if(|uid, _| !uids.contains(uid)) {
            let Memory {
                labels, foreseen, ..
            } = &gone.told;
            self.told.telemetry.forget(labels, foreseen);
        }
        let identity = self.identity.as_deref();
        let wholes = staying
            .iter()
            .map(|fdhpa| Arc::new(as_one(fdhpa, identity)));
        let wholes: Vec<_> = wholes.collect();
        let entries: Vec<Entry<'_>> = staying
            .iter()
            .map(|fdhpa| Entry {
                uid: fdhpa.metadata.uid.as_deref().unwrap_or_default(),
                namespace: fdhpa.metadata.namespace.as_deref().unwrap_or_default(),
                generation: fdhpa.metadata.generation.unwrap_or_default(),
            })
            .collect();
        let due = self.schedule.due(&entries, self.clock.now());
        let mut rivals = rivals::among(&wholes);
        let mut validated = Vec::with_capacity(due.len());
        for position in due {
            let (Some(fdhpa), Some(whole)) = (staying.get(position), wholes.get(position)) else {
                continue;
            };
            let uid = fdhpa.metadata.uid.as_deref().unwrap_or_default();
            let rivals = rivals.remove(uid).unwrap_or_default();
            validated.extend(self.understand((fdhpa, whole), rivals).await);
        }
        validated
    }

    /// What a fleet's object asks for; one that cannot be understood keeps what it last asked for.
    async fn understand(
        &mut self,
        (fdhpa, whole): (&Arc<FederatedHPA>, &Arc<EffectiveHorizontalPodAutoscaler>),
        rivals: Rivals,
    ) -> Option<Due> {
        let Setup {
            local_zone,
            sync_period,
            settings,
            ..
        } = &self.setup;
        let understood = validate::fleet(fdhpa, local_zone, *sync_period, settings);
        let uid = fdhpa.uid().unwrap_or_default();
        let memory = self
            .memories
            .entry(uid)
            .or_insert_with(|| FleetMemory::new(fdhpa, whole));
        match understood {
            Ok(spec) => {
                memory.told.workload = Some(Arc::new(spec.workload.clone()));
                memory.told.valid = Some(Arc::clone(whole));
                memory.told.invalid = None;
                let question = Arc::new(gather::question(&spec));
                memory.spec = Some((Arc::new(spec), question));
            }
            Err(invalid) if memory.spec.is_some() => memory.told.invalid = Some(invalid),
            Err(invalid) => {
                let board = report::Board::as_it_stands(&*self.hub, fdhpa);
                let reporter = board.reporter(&self.told.telemetry, self.clock.now());
                reporter.invalid(&mut memory.told, whole, &invalid).await;
            }
        }
        let (spec, question) = memory.spec.clone()?;
        Some(Due {
            fdhpa: Arc::clone(fdhpa),
            whole: Arc::clone(whole),
            valid: Arc::clone(memory.told.valid.as_ref().unwrap_or(whole)),
            spec,
            question,
            rivals,
            known: memory.known(),
        })
    }

    fn plan(&mut self, due: Due, seen: Seen<F::Member>) -> Planned<F::Member> {
        let now = self.clock.now();
        let desk = Desk {
            settings: &self.setup.settings,
            telemetry: &self.told.telemetry,
            now,
        };
        let uid = due.fdhpa.uid().unwrap_or_default();
        let memory = self
            .memories
            .entry(uid)
            .or_insert_with(|| FleetMemory::new(&due.fdhpa, &due.whole));
        let forecasts = &self.told.forecasts;
        let hub = total::decide(&desk, forecasts, memory, &due, &seen);
        let feed = forecasts.feed();
        let told = (&due.spec.workload, &hub.planned);
        super::glimpse::tell(feed, due.uid(), &mut memory.told.lead_times, told);
        forecasts
            .fleets()
            .report(due.uid(), of_history(&due, &seen));
        let observed = seen.members.iter().map(|(name, member)| {
            let memory = memory.members.entry(name.clone()).or_default();
            member::observed(&due, member, memory, now)
        });
        let observed: Vec<_> = observed.collect();
        let policy = due.policy();
        let (decision, ledger) =
            federate::decide(&policy, &hub.total, &observed, &memory.ledger, now);
        memory.ledger = ledger;
        let parts = decision.members.iter().filter_map(|decided| {
            let entry = memory.ledger.members.get(&decided.name);
            let memory = memory.members.entry(decided.name.clone()).or_default();
            let member = seen.members.get(&decided.name)?;
            member::part(
                &desk,
                (&due, &seen, forecasts),
                (decided, entry),
                (member, memory),
            )
        });
        let parts = parts.collect();
        Planned {
            due,
            seen,
            hub,
            observed,
            decision,
            parts,
        }
    }

    /// Writes one fleet's members; none of them before the object is held for the day that it goes.
    async fn carry_out(
        &self,
        mut planned: Planned<F::Member>,
    ) -> (Planned<F::Member>, Result<Vec<Done>, ClusterError>) {
        let held = self.keep_hold(&planned).await;
        let parts = std::mem::take(&mut planned.parts);
        if let Err(error) = held {
            return (planned, Err(error));
        }
        let members = &planned.seen.members;
        let parts = parts.into_iter().filter_map(|part| {
            let cluster = members.get(&part.name)?.view.cluster.as_deref()?;
            Some((cluster, part))
        });
        let pen = apply::Pen {
            telemetry: &self.told.telemetry,
            deadline: self.setup.member_deadline,
        };
        let done = pen.apply(&planned.decision, parts.collect()).await;
        (planned, Ok(done))
    }

    /// Remembers what was applied.
    fn take_in(&mut self, planned: &Planned<F::Member>, done: &[Done]) {
        let now = self.clock.now();
        let uid = planned.due.fdhpa.uid().unwrap_or_default();
        let Some(memory) = self.memories.get_mut(&uid) else {
            return;
        };
        let behavior = planned.due.spec.workload.behavior.as_ref();
        let (mut before, mut after) = (Replicas::ZERO, Replicas::ZERO);
        let mut again = false;
        for done in done {
            let of_member = memory.members.entry(done.part.name.clone()).or_default();
            again |= of_member.take_in(behavior, done, now);
            if let (Some((from, to)), true) = (done.scaled(), done.outcome.is_ok()) {
                (before, after) = (total::plus(before, from), total::plus(after, to));
            }
        }
        if before != after {
            let from = planned.hub.planned.decision.current;
            let to = (from.get() + after.get()).saturating_sub(before.get());
            let change = (from, Replicas::new(to));
            memory.told.track.changed(behavior, change, now);
        }
        if again {
            self.schedule.again(&uid, now, super::AFTER_CONFLICT);
        }
    }
}

/// The members whose history makes up that of the fleet.
fn of_history<M>(due: &Due, seen: &Seen<M>) -> Vec<FleetMember> {
    let counts = |member: &&gather::MemberSeen<M>| {
        let candidate = due.spec.policy.affinity.matches(&member.view.profile);
        let acting = member
            .whole()
            .and_then(|whole| whole.sighting.siblings.acting());
        candidate || acting.is_some()
    };
    let members = seen.members.values().filter(counts);
    members
        .map(|member| FleetMember {
            name: member.view.profile.name.as_str().into(),
            prometheus: member.view.prometheus.as_deref().map(Into::into),
            idle: member.is_idle(),
        })
        .collect()
}

/// A fleet's object as that of one workload.
fn as_one(fdhpa: &FederatedHPA, hub: Option<&str>) -> EffectiveHorizontalPodAutoscaler {
    let mut metadata = fdhpa.metadata.clone();
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.extend(hub.map(|hub| (HUB.to_owned(), hub.to_owned())));
    EffectiveHorizontalPodAutoscaler {
        metadata,
        spec: fdhpa.spec.autoscaling.clone(),
        status: fdhpa.status.as_ref().map(|status| status.fleet.clone()),
    }
}

// === impl Due ===

impl Due {
    /// The policy as it is carried out: a previewed count is divided as one that the hub writes.
    fn policy(&self) -> federate::Policy {
        let pinned = self.is_previewed() && self.spec.workload.specific_replicas.is_some();
        let mut policy = self.spec.policy.clone();
        if pinned {
            policy.mode = Mode::Direct;
        }
        policy
    }

    fn uid(&self) -> &str {
        self.fdhpa.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Whether each member is a fleet of its own, with all of the bounds, windows and forecasts.
    fn is_duplicated(&self) -> bool {
        self.spec.policy.kind == Kind::Duplicated
    }

    /// Whether nothing but a given count is written.
    fn is_previewed(&self) -> bool {
        self.spec.workload.strategy == Strategy::Preview
    }

    /// The fleet as the pipeline of one cluster takes it.
    fn as_one(&self, workload: Workload) -> Question {
        self.part(&Arc::new(workload))
    }

    /// One member's part, as the pipeline of one cluster takes it.
    fn part(&self, workload: &Arc<Workload>) -> Question {
        Question {
            ehpa: Arc::clone(&self.whole),
            valid: Arc::clone(&self.valid),
            kin: Kin::Fleet,
            workload: Arc::clone(workload),
            rivals: self.rivals.clone(),
        }
    }
}

// === impl FleetMemory ===

impl FleetMemory {
    /// The memory of a fleet that is seen for the first time: what its status kept.
    fn new(fdhpa: &FederatedHPA, whole: &EffectiveHorizontalPodAutoscaler) -> Self {
        let status = fdhpa.status.as_ref();
        let ledger = status.and_then(|status| ledger::read(status.ledger.as_deref()?));
        let clusters = status.and_then(|status| status.clusters.as_deref());
        let members = clusters.into_iter().flatten().map(|cluster| {
            let last = member::remembered(cluster);
            let memory = MemberMemory {
                last: Some(last),
                restored: true,
                ..MemberMemory::default()
            };
            (cluster.name.clone(), memory)
        });
        Self {
            told: Memory::new(whole),
            spec: None,
            asking: History::default(),
            asked: None,
            counted: None,
            ledger: ledger.unwrap_or_default(),
            members: members.collect(),
        }
    }

    /// The members that have a share, or had one, with the replicas that are expected there.
    fn known(&self) -> BTreeMap<String, Option<Replicas>> {
        let shared = self.ledger.members.keys().map(|name| (name.clone(), None));
        let mut known: BTreeMap<_, _> = shared.collect();
        for (name, memory) in &self.members {
            let pods = memory.last.as_ref().and_then(|last| last.pods);
            known.insert(name.clone(), pods.map(|pods| pods.replicas));
        }
        known
    }
}

// === impl MemberMemory ===

impl MemberMemory {
    /// Remembers what was applied; whether it should be decided again at once.
    fn take_in(&mut self, behavior: Option<&Behavior>, done: &Done, now: Timestamp) -> bool {
        let effect = match &done.outcome {
            Ok(effect) => effect,
            Err(error) => return matches!(error, ClusterError::Conflict { .. }),
        };
        if let Some(placing) = &done.part.placing {
            self.placed = Some(placing.template.version);
            self.start = placing.start;
        }
        if done.part.planned.is_some() {
            self.track.delegated(effect);
            let decided = done.part.min;
            self.shaped = self.track.child_min.map(|left| (left, decided));
        }
        if let Some((from, to)) = done.scaled() {
            self.track.changed(behavior, (from, to), now);
            let pods = self.last.as_mut().and_then(|last| last.pods.as_mut());
            if let Some(pods) = pods {
                pods.replicas = to;
            }
        }
        done.part.planned.is_none()
    }
}
