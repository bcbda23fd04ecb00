//! The story: one sync over everything due.
//!
//! ```text
//! due -> gather -> decide -> apply -> report
//! ```
//!
//! Only `gather`, `apply` and `report` touch the cluster, and only through its port; `decide` is the
//! domain's. One object's trouble stays its own. Read `schedule` for who is due, `memory` for what
//! is remembered between two syncs, `child` for the autoscaler that acts for us.

mod apply;
pub mod child_hpa;
mod conflicts;
mod conformance;
mod demand_sample;
pub mod fleet;
mod observe;
mod plan;
mod report;
mod state;
mod work_queue;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

pub(crate) use self::report::{decided, windows};
use self::{
    apply::{Applied, Planned},
    conflicts::TargetConflicts,
    observe::{Due, Seen, TargetObservation},
    plan::DecideContext,
    report::Reporter,
    state::StateStore,
    work_queue::{Entry, Schedule},
};
use crate::{
    api::ownership::OwnerKind,
    api::spec,
    clock::Clock,
    domain::{cron::Zone, hpa::Settings},
    forecaster::forecasts::Forecasts,
    ports::{Cluster, ClusterError, ObjectKey},
    telemetry::Telemetry,
};

/// How often the loop looks whether the cluster has been seen for the first time.
const FIRST_LOOK: SignedDuration = SignedDuration::from_millis(200);
/// How soon an object is decided again after a write that somebody else got in before.
const AFTER_CONFLICT: SignedDuration = SignedDuration::from_secs(1);

/// An object whose scale could not be read.
type Unreadable = (Arc<EffectiveHorizontalPodAutoscaler>, ClusterError);

/// What an autoscaler of a whole cluster is made from.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Time between two decisions about one object.
    pub sync_period: SignedDuration,
    /// The zone that `Local` names.
    pub local_zone: Zone,
    /// The algorithm's constants.
    pub settings: Settings,
    /// How long one member of a fleet may take to answer everything that one sync asks of it, and then to
    /// take everything that it writes.
    pub member_deadline: Duration,
}

impl Setup {
    /// `member_deadline` of the controller.
    pub const MEMBER_DEADLINE: Duration = Duration::from_secs(4);
}

/// The autoscaler of one cluster.
#[derive(Debug)]
pub struct Autoscaler<C> {
    cluster: Arc<C>,
    clock: Clock,
    setup: Setup,
    forecasts: Arc<Forecasts>,
    telemetry: Arc<Telemetry>,
    schedule: Schedule,
    memories: StateStore,
}

// === impl Autoscaler ===

impl<C: Cluster> Autoscaler<C> {
    /// An autoscaler that remembers nothing yet.
    #[must_use]
    pub fn new(
        cluster: Arc<C>,
        clock: Clock,
        setup: Setup,
        forecasts: Arc<Forecasts>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        let schedule = Schedule::new(setup.sync_period);
        Self {
            cluster,
            clock,
            setup,
            forecasts,
            telemetry,
            schedule,
            memories: StateStore::default(),
        }
    }

    /// Syncs, for ever.
    pub async fn run(mut self) {
        loop {
            let synced = self.cluster.is_synced();
            self.telemetry.set_ready(synced);
            if synced {
                self.sync().await;
            }
            let wait = if synced {
                self.schedule.until_next(self.clock.now())
            } else {
                FIRST_LOOK
            };
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                changed = self.cluster.changed() => self.expedite(&changed),
            }
        }
    }

    /// One sync: everything due is seen, decided, carried out and reported.
    pub async fn sync(&mut self) {
        let due = self.due().await;
        if due.is_empty() {
            return;
        }
        let started = self.clock.now();
        let when = (started, None);
        let seen = observe::gather(&*self.cluster, &self.forecasts, due, when).await;
        let (planned, unreadable) = self.decide(seen);
        let applied = apply::apply(&*self.cluster, &self.telemetry, planned).await;
        self.take_in(&applied);
        self.report(&applied, &unreadable).await;
        let elapsed = self.clock.now().duration_since(started).as_secs_f64();
        self.telemetry.synced(elapsed);
    }

    /// Makes changed objects due at once.
    fn expedite(&mut self, changed: &BTreeSet<ObjectKey>) {
        let now = self.clock.now();
        for ehpa in self.cluster.autoscalers() {
            let key = ObjectKey {
                namespace: ehpa.namespace().unwrap_or_default(),
                name: ehpa.name_any(),
            };
            if changed.contains(&key) {
                self.schedule
                    .again(&ehpa.uid().unwrap_or_default(), now, SignedDuration::ZERO);
            }
        }
    }

    /// The objects whose turn it is, validated; forgets the ones that are gone.
    async fn due(&mut self) -> Vec<Due> {
        let mut staying = self.cluster.autoscalers();
        staying.retain(|ehpa| ehpa.metadata.deletion_timestamp.is_none());
        let uids: HashSet<String> = staying.iter().filter_map(|ehpa| ehpa.uid()).collect();
        for gone in self.memories.retain(|uid| uids.contains(uid)) {
            self.telemetry.forget(&gone.labels, &gone.foreseen);
        }
        self.telemetry
            .knows(OwnerKind::Owner.resource(), uids.len());
        self.give_back_orphans(&uids).await;
        let entries: Vec<Entry<'_>> = staying
            .iter()
            .map(|ehpa| Entry {
                uid: ehpa.metadata.uid.as_deref().unwrap_or_default(),
                namespace: ehpa.metadata.namespace.as_deref().unwrap_or_default(),
                generation: ehpa.metadata.generation.unwrap_or_default(),
            })
            .collect();
        let due = self.schedule.due(&entries, self.clock.now());
        let due: Vec<_> = due
            .into_iter()
            .filter_map(|position| staying.get(position))
            .collect();
        let mut rivals = conflicts::among(&staying);
        let mut validated = Vec::with_capacity(due.len());
        for ehpa in due {
            let uid = ehpa.metadata.uid.as_deref().unwrap_or_default();
            let rivals = rivals.remove(uid).unwrap_or_default();
            validated.extend(self.understand(ehpa, rivals).await);
        }
        validated
    }

    /// What an object asks for; one that cannot be understood keeps what it last asked for.
    async fn understand(
        &mut self,
        ehpa: &Arc<EffectiveHorizontalPodAutoscaler>,
        rivals: TargetConflicts,
    ) -> Option<Due> {
        let understood = spec::workload(ehpa, &self.setup.local_zone);
        let memory = self.memories.of(ehpa);
        match understood {
            Ok(workload) => {
                memory.workload = Some(Arc::new(workload));
                memory.valid = Some(Arc::clone(ehpa));
                memory.invalid = None;
            }
            Err(invalid) if memory.workload.is_some() => memory.invalid = Some(invalid),
            Err(invalid) => {
                let now = self.clock.now();
                let (board, telemetry) = (&*self.cluster, &*self.telemetry);
                Reporter {
                    board,
                    telemetry,
                    now,
                }
                .invalid(memory, ehpa, &invalid)
                .await;
            }
        }
        let workload = memory.workload.clone()?;
        let valid = memory.valid.as_ref().unwrap_or(ehpa);
        Some(Due {
            ehpa: Arc::clone(ehpa),
            valid: Arc::clone(valid),
            kin: OwnerKind::Owner,
            workload,
            rivals,
            left: None,
        })
    }

    /// Adopted autoscalers whose adopter is gone become what they were.
    async fn give_back_orphans(&self, uids: &HashSet<String>) {
        let orphans = self
            .cluster
            .every_hpa()
            .into_iter()
            .filter(|hpa| !child_hpa::is_adopted_by_a_fleet(hpa))
            .filter(|hpa| child_hpa::adopted_by(hpa).is_some_and(|uid| !uids.contains(uid)));
        for orphan in orphans {
            if let Err(error) = apply::give_back(&*self.cluster, &self.telemetry, &orphan).await {
                let (namespace, name) = (&orphan.namespace, &orphan.name);
                tracing::warn!(%namespace, %name, %error, "adopted autoscaler not given back");
            }
        }
    }

    /// Decides every object whose scale could be read.
    fn decide(&mut self, seen: Vec<Seen>) -> (Vec<Planned>, Vec<Unreadable>) {
        let now = self.clock.now();
        let mut planned = Vec::with_capacity(seen.len());
        let mut unreadable = Vec::new();
        for (due, sighting) in seen {
            match sighting {
                Ok(sighting) => planned.push(self.plan(due, sighting, now)),
                Err(error) => unreadable.push((due.ehpa, error)),
            }
        }
        (planned, unreadable)
    }

    fn plan(&mut self, due: Due, sighting: TargetObservation, now: Timestamp) -> Planned {
        let desk = DecideContext {
            settings: &self.setup.settings,
            telemetry: &self.telemetry,
            now,
        };
        let memory = self.memories.of(&due.ehpa);
        let workload = Arc::clone(&due.workload);
        let planned = desk.plan(&mut memory.track, due, sighting, None);
        let uid = planned.ehpa.metadata.uid.as_deref().unwrap_or_default();
        let (feed, lead_times) = (self.forecasts.feed(), &mut memory.lead_times);
        demand_sample::tell(feed, uid, lead_times, (&workload, &planned));
        planned
    }

    /// Remembers what was applied: changes of our own count as scale events.
    fn take_in(&mut self, applied: &[Applied]) {
        let now = self.clock.now();
        for applied in applied {
            let Some(uid) = applied.planned.ehpa.uid() else {
                continue;
            };
            match &applied.outcome {
                Ok(effect) => {
                    let memory = self.memories.of(&applied.planned.ehpa);
                    memory.track.delegated(effect);
                    if let Some(to) = effect.scaled {
                        let behavior = memory.workload.as_ref().and_then(|w| w.behavior.as_ref());
                        let change = (applied.planned.decision.current, to);
                        memory.track.changed(behavior, change, now);
                    }
                }
                Err(ClusterError::Conflict { .. }) => {
                    self.schedule.again(&uid, now, AFTER_CONFLICT);
                }
                Err(_) => {}
            }
        }
    }

    async fn report(&mut self, applied: &[Applied], unreadable: &[Unreadable]) {
        let (cluster, telemetry) = (Arc::clone(&self.cluster), Arc::clone(&self.telemetry));
        let now = self.clock.now();
        let reporter = Reporter {
            board: &*cluster,
            telemetry: &telemetry,
            now,
        };
        for applied in applied {
            reporter
                .applied(self.memories.of(&applied.planned.ehpa), applied)
                .await;
        }
        for (ehpa, error) in unreadable {
            reporter
                .unreadable(self.memories.of(ehpa), ehpa, error)
                .await;
        }
    }
}
