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
pub mod child;
mod gather;
mod glimpse;
mod memory;
mod report;
mod rivals;
mod schedule;
mod shadow;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

pub(crate) use self::report::{decided, windows};
use self::{
    apply::{Applied, Planned},
    gather::{Due, Seen, Sighting},
    memory::Memories,
    report::Reporter,
    rivals::Rivals,
    schedule::{Entry, Schedule},
};
use crate::{
    clock::Clock,
    domain::{
        Replicas,
        cron::Zone,
        decide::{self, Child, decide},
        hpa::Settings,
        workload::{Mode, Strategy, Workload},
    },
    forecaster::forecasts::Forecasts,
    ports::{Cluster, ClusterError, HpaView, ObjectKey},
    telemetry::Telemetry,
    validate,
};

/// How often the loop looks whether the cluster has been seen for the first time.
const FIRST_LOOK: SignedDuration = SignedDuration::from_millis(200);
/// How soon an object is decided again after a write that somebody else got in before.
const AFTER_CONFLICT: SignedDuration = SignedDuration::from_secs(1);
/// The API cuts times to seconds; this is the most that it can have cut off.
const CUT_OFF: SignedDuration = SignedDuration::from_millis(999);

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
    memories: Memories,
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
            memories: Memories::default(),
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
        let seen = gather::gather(&*self.cluster, &self.forecasts, due, started).await;
        let (planned, unreadable) = self.decide(seen);
        let applied = apply::apply(&*self.cluster, &self.telemetry, planned).await;
        self.take_in(&applied);
        self.report(&applied, &unreadable).await;
        let elapsed = self.clock.now().duration_since(started).as_secs_f64();
        self.telemetry.synced(elapsed, self.memories.len());
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
        let mut rivals = rivals::among(&staying);
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
        rivals: Rivals,
    ) -> Option<Due> {
        let understood = validate::workload(ehpa, &self.setup.local_zone);
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
                let (cluster, telemetry) = (&*self.cluster, &*self.telemetry);
                Reporter {
                    cluster,
                    telemetry,
                    now,
                }
                .invalid(memory, ehpa, &invalid)
                .await;
            }
        }
        let workload = memory.workload.clone()?;
        Some(Due {
            ehpa: Arc::clone(ehpa),
            workload,
            rivals,
        })
    }

    /// Adopted autoscalers whose adopter is gone become what they were.
    async fn give_back_orphans(&self, uids: &HashSet<String>) {
        let orphans = self
            .cluster
            .every_hpa()
            .into_iter()
            .filter(|hpa| child::adopted_by(hpa).is_some_and(|uid| !uids.contains(uid)));
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

    fn plan(&mut self, due: Due, sighting: Sighting, now: Timestamp) -> Planned {
        let settings = &self.setup.settings;
        let memory = self.memories.of(&due.ehpa);
        memory.recall(&due.ehpa, &sighting.scale.uid, settings, now);
        let workload = in_force(&due, &sighting);
        let acting = sighting.siblings.acting().map(|hpa| &**hpa);
        let seen = decide::Seen {
            observation: sighting.observation.clone(),
            forecasts: sighting.forecasts.clone(),
            child: acting.map(|hpa| as_left(hpa, memory.child_min)),
        };
        let (decision, history) = decide(&workload, &seen, &memory.history, settings, now);
        memory.history = history;
        let untouched = acting.filter(|hpa| as_child(hpa) == as_left(hpa, memory.child_min));
        let values = shadow::values(&decision);
        let pods = &sighting.observation.pods;
        let sync = shadow::Sync::of(&decision, values.as_deref(), pods, &memory.history.log);
        let rules = shadow::Rules {
            behavior: workload.behavior.as_ref(),
            settings,
        };
        if let Some(agreed) = memory.shadow.watch(&sync, untouched, rules) {
            self.telemetry.compared(agreed);
        }
        if workload.prediction.is_some() {
            memory.lead_times.observe(pods);
            let lead_time = memory.lead_times.measured();
            let glimpses = glimpse::glimpses(&workload, &sighting, &decision);
            let uid = due.ehpa.metadata.uid.as_deref().unwrap_or_default();
            self.forecasts.feed().report(uid, lead_time, glimpses, now);
        }
        let valid = memory.valid.as_ref().unwrap_or(&due.ehpa);
        Planned {
            valid: Arc::clone(valid),
            ehpa: due.ehpa,
            target: workload.target.clone(),
            sighting,
            decision,
            delegates: delegates(&workload),
            older: due.rivals.older,
        }
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
                    self.memories.of(&applied.planned.ehpa).delegated(effect);
                    if let Some(to) = effect.scaled {
                        let from = applied.planned.decision.current;
                        self.memories
                            .of(&applied.planned.ehpa)
                            .changed(from, to, now);
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
            cluster: &*cluster,
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

/// The workload as it is decided: a target that belongs to somebody else is only previewed. What was
/// adopted and may no longer be is somebody else's again.
fn in_force(due: &Due, sighting: &Sighting) -> Arc<Workload> {
    let siblings = &sighting.siblings;
    let alone = siblings.foreign.is_none() && siblings.adopted.is_none();
    if due.rivals.older.is_none() && (alone || may_adopt(due, sighting)) {
        return Arc::clone(&due.workload);
    }
    let preview = Workload {
        strategy: Strategy::Preview,
        specific_replicas: None,
        ..Workload::clone(&due.workload)
    };
    Arc::new(preview)
}

fn may_adopt(due: &Due, sighting: &Sighting) -> bool {
    let siblings = &sighting.siblings;
    let free = |hpa: &Arc<HpaView>| siblings.adopted.is_some() || child::is_unclaimed(hpa);
    delegates(&due.workload)
        && child::wants_adoption(&due.ehpa)
        && siblings.foreign.as_ref().is_none_or(free)
}

/// Whether a child autoscaler writes the scale.
fn delegates(workload: &Workload) -> bool {
    workload.strategy == Strategy::Auto && workload.mode_in_force() == Mode::Delegated
}

/// The child with the minimum that we left it with: another one is an edit by hand, to be undone.
fn as_left(hpa: &HpaView, min: Option<Replicas>) -> Child {
    let live = as_child(hpa);
    Child {
        min: min.unwrap_or(live.min),
        ..live
    }
}

fn as_child(hpa: &HpaView) -> Child {
    let count = |fields: &serde_json::Value, name: &str| {
        let n = fields.get(name).and_then(serde_json::Value::as_u64);
        n.and_then(|n| u32::try_from(n).ok()).map(Replicas::new)
    };
    Child {
        min: count(&hpa.spec, "minReplicas").unwrap_or(Replicas::new(1)),
        max: count(&hpa.spec, "maxReplicas").unwrap_or(Replicas::new(1)),
        desired: count(&hpa.status, "desiredReplicas"),
        last_scale: hpa
            .last_scale
            .map(|at| at.saturating_add(CUT_OFF).unwrap_or(at)),
    }
}
