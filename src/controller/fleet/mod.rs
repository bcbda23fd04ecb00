//! The story of a fleet: one sync over every federated autoscaler that is due.
//!
//! ```text
//! due -> gather (all members at once) -> participants -> total -> divide -> the part of each member -> apply, in order -> report
//! ```
//!
//! An autoscaler of one cluster is the fleet of one: the fleet is decided as one workload, and each member by the
//! pipeline of a cluster of its own, with its part of bounds and floor. It has a loop of its own, so that nothing else
//! waits for members. It refuses to divide: `domain::federate` does.

mod apply;
mod change;
mod decide;
mod events;
mod finalizer;
mod last_move;
pub(crate) mod ledger;
mod member_plan;
mod merged_metrics;
mod observe;
mod participants;
mod placement;
mod queue;
mod report;
mod state;
mod template;
mod work_item;

use std::{collections::HashMap, future::Future, sync::Arc};

use futures::future::{join, join_all};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use self::{
    apply::Done, decide::Hub, member_plan::Part, observe::Seen, participants::Participants,
    state::FleetState, work_item::Due,
};
use super::{FIRST_LOOK, Setup, plan::DecideContext, work_queue::Schedule};
use crate::{
    clock::Clock,
    domain::{
        Replicas,
        federate::{self, FleetDecision, Reason},
    },
    forecaster::forecasts::Forecasts,
    ports::{Cluster, ClusterError, Fleet, ObjectKey},
    telemetry::Telemetry,
};

/// The autoscaler of a fleet of clusters.
#[derive(Debug)]
pub struct FleetAutoscaler<C, F> {
    hub: Arc<C>,
    fleet: Arc<F>,
    clock: Clock,
    setup: Setup,
    told: Told,
    schedule: Schedule,
    memories: HashMap<String, FleetState>,
    identity: Option<String>,
    swept: Option<Timestamp>,
    /// Whether this is the end: nothing may be held that nobody would release.
    ending: bool,
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
            ending: false,
            leaving: HashMap::new(),
        }
    }

    /// Syncs until it is told to `stop`, and then lets go of what it held back.
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        loop {
            // Before the fleets are listed none is known, and what they have in members would look left behind.
            let synced =
                self.hub.is_synced() && self.hub.knows_federated() && self.fleet.is_synced();
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
                () = &mut stop => break,
                () = self.clock.sleep(wait) => {}
                changed = hub.federated_changed() => self.expedite(|key| changed.contains(key)),
                () = fleet.changed() => self.expedite(|_| true),
            }
        }
        self.release().await;
    }

    /// Writes the users' own behavior wherever a member's autoscaler was kept from scaling down.
    async fn release(&mut self) {
        let now = self.clock.now();
        let holds = |memory: &FleetState| memory.ledger.members.values().any(|entry| entry.held);
        let holding = self.memories.iter().filter(|(_, memory)| holds(memory));
        let holding: Vec<String> = holding.map(|(uid, _)| uid.clone()).collect();
        if holding.is_empty() {
            return;
        }
        for uid in &holding {
            self.schedule.again(uid, now, SignedDuration::ZERO);
        }
        self.ending = true;
        // To see members, to write to them, and to say so.
        let limit = self.setup.member_deadline * 3;
        if tokio::time::timeout(limit, self.sync_living())
            .await
            .is_err()
        {
            tracing::warn!(
                ?limit,
                "members may still be kept from scaling down: no time was left to let go of them"
            );
        }
    }

    /// One sync: every fleet that is due is seen, decided, carried out and reported; beside it, what is to be deleted
    /// is let go, and what was left behind is removed.
    pub async fn sync(&mut self) {
        let farewell = self.farewell().await;
        join(farewell.take(), self.sync_living()).await;
        let memories = self.memories.values();
        let down = memories.flat_map(|memory| memory.down.iter().cloned());
        self.told.telemetry.members_down(down.collect());
    }

    async fn sync_living(&mut self) {
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
        let seen = observe::gather(&*self.hub, &members, &due, when).await;
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

    fn plan(&mut self, due: Due, seen: Seen<F::Member>) -> Planned<F::Member> {
        let now = self.clock.now();
        let desk = DecideContext {
            settings: &self.setup.settings,
            telemetry: &self.told.telemetry,
            now,
        };
        let uid = due.fdhpa.uid().unwrap_or_default();
        let forecasts = &self.told.forecasts;
        let memory = self
            .memories
            .entry(uid.clone())
            .or_insert_with(|| FleetState::new(&due.fdhpa, &due.whole));
        let observed = member_plan::all(&due, &seen, memory, (now, self.fleet.lost_after()));
        memory.down = seen.down();
        let policy = due.policy();
        let by_name = federate::participation(&policy, &observed, &memory.ledger, now);
        let participants = Participants::of(&seen, &by_name, due.is_previewed());
        forecasts.fleets().report(&uid, participants.histories());
        let hub = decide::decide(&desk, forecasts, memory, &due, &participants);
        if participants.are_all_seen() {
            let told = (&due.spec.workload, &hub.planned);
            let lead_times = &mut memory.told.lead_times;
            super::demand_sample::tell(forecasts.feed(), due.uid(), lead_times, told);
        }
        let (mut decision, ledger) =
            federate::decide(&policy, &hub.total, &observed, &memory.ledger, now);
        memory.ledger = ledger;
        if self.ending {
            let members = decision.members.iter_mut();
            members.for_each(|member| member.hold = false);
        }
        if due.is_previewed() {
            only_show(&mut decision);
        }
        memory
            .members
            .retain(|name, _| decision.member(name).is_some());
        let parts = decision.members.iter().filter_map(|decided| {
            let entry = memory.ledger.members.get(&decided.name);
            let memory = memory.members.entry(decided.name.clone()).or_default();
            let member = seen.members.get(&decided.name)?;
            member_plan::part(
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
        let pen = apply::MemberWriter {
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
            again |= done.remember(of_member, behavior, now);
            // Pods that are not the fleet's are no change of its count.
            let counted = memory.counted.as_ref();
            let is_counted = counted.is_some_and(|names| names.contains(&done.part.name));
            if let Some((from, to)) = done.scaled().filter(|_| is_counted) {
                (before, after) = (before.saturating_add(from), after.saturating_add(to));
            }
        }
        if before != after {
            let from = planned.hub.planned.decision.current;
            let to = (from.get() + after.get()).saturating_sub(before.get());
            let change = (from, Replicas::new(to));
            memory.told.track.changed(behavior, change, now);
            memory.current = Some(change.1);
        }
        if again {
            self.schedule.again(&uid, now, super::AFTER_CONFLICT);
        }
    }
}

/// What is only shown is never there, so nothing of it is brought back.
fn only_show(decision: &mut FleetDecision) {
    let members = decision.members.iter_mut();
    for reason in members.flat_map(|member| &mut member.reasons) {
        if *reason == Reason::Restored {
            *reason = Reason::Steady;
        }
    }
}
