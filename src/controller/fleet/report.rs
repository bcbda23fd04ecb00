//! Last step of a fleet's sync: tell people, on the one object that they wrote.
//!
//! The fleet is told as an autoscaler of one cluster is; beside it stand the clusters by name, what no cluster can
//! take, and the ledger. Written on change only: what was measured or estimated, and when, rides along.

use std::collections::BTreeMap;

use foretide_crds::{
    ClusterStatus, EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus,
    FederatedHPA, FederatedHPAStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    FleetAutoscaler, Planned,
    apply::Done,
    change::change,
    events::events,
    last_move::{gist, noted},
    ledger,
    member_plan::rival,
    observe::Seen,
    state::MemberRecord,
    work_item::Due,
};
use crate::{
    controller::{
        apply::{Applied, Effect},
        child_hpa::ADOPT,
        report::{NoticeBoard, Reporter, condition, fingerprint::StatusFingerprint},
    },
    domain::{
        Replicas,
        explain::ConditionKind,
        federate::{self, Entry, Ledger, Member, MemberDecision, Reason},
        observation::Status,
    },
    ports::{Cluster, ClusterError, EventNote, Fleet},
    telemetry::Telemetry,
};

/// Where one fleet's status and events are written.
#[derive(Debug)]
pub(super) struct StatusWriter<'a, C> {
    hub: &'a C,
    fdhpa: &'a FederatedHPA,
    beside: ExtraConditions,
    conditions: Vec<Condition>,
    change: Option<String>,
}

/// What a fleet's status has beside that of every autoscaler.
#[derive(Debug, Clone, Default)]
struct ExtraConditions {
    unassigned: Option<i32>,
    clusters: Option<Vec<ClusterStatus>>,
    ledger: Option<String>,
}

// === impl ExtraConditions ===

impl ExtraConditions {
    fn of(status: Option<&FederatedHPAStatus>) -> Self {
        let status = status.cloned().unwrap_or_default();
        Self {
            unassigned: status.unassigned,
            clusters: status.clusters,
            ledger: status.ledger,
        }
    }

    /// What of it is worth a write.
    fn outline(&self) -> Value {
        let clusters = self.clusters.iter().flatten().cloned().map(|cluster| {
            let steady = ClusterStatus {
                reason: cluster.reason.as_deref().map(gist),
                capacity: None,
                utilization: None,
                observed: None,
                ..cluster
            };
            json!({ "cluster": steady, "capacity": cluster.capacity.is_some() })
        });
        json!([self.unassigned, clusters.collect::<Vec<_>>(), self.ledger])
    }
}

// === impl StatusWriter ===

impl<'a, C: Cluster> StatusWriter<'a, C> {
    /// A board on which everything but the fleet's own part stays as it is.
    pub(super) fn as_it_stands(hub: &'a C, fdhpa: &'a FederatedHPA) -> Self {
        Self {
            hub,
            fdhpa,
            beside: ExtraConditions::of(fdhpa.status.as_ref()),
            conditions: Vec::new(),
            change: None,
        }
    }

    pub(super) fn reporter<'b>(
        &'b self,
        telemetry: &'b Telemetry,
        now: Timestamp,
    ) -> Reporter<'b, Self> {
        Reporter {
            board: self,
            telemetry,
            now,
        }
    }
}

impl<C: Cluster> NoticeBoard for StatusWriter<'_, C> {
    fn outline(&self, status: &EffectiveHorizontalPodAutoscalerStatus) -> StatusFingerprint {
        StatusFingerprint::of(status).beside(self.beside.outline())
    }

    fn standing(&self, ehpa: &EffectiveHorizontalPodAutoscaler) -> StatusFingerprint {
        let beside = ExtraConditions::of(self.fdhpa.status.as_ref());
        StatusFingerprint::of(&ehpa.status.clone().unwrap_or_default()).beside(beside.outline())
    }

    fn change(&self, _: &Applied) -> Option<String> {
        self.change.clone()
    }

    fn conditions(&self) -> Vec<Condition> {
        self.conditions.clone()
    }

    async fn write_status(
        &self,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        status: &EffectiveHorizontalPodAutoscalerStatus,
    ) -> Result<(), ClusterError> {
        let ExtraConditions {
            unassigned,
            clusters,
            ledger,
        } = self.beside.clone();
        let status = FederatedHPAStatus {
            fleet: status.clone(),
            unassigned,
            clusters,
            ledger,
        };
        let (namespace, name) = (ehpa.namespace().unwrap_or_default(), ehpa.name_any());
        self.hub
            .write_federated_status(&namespace, &name, &status)
            .await
    }

    async fn emit(
        &self,
        _: &EffectiveHorizontalPodAutoscaler,
        event: &EventNote,
    ) -> Result<(), ClusterError> {
        self.hub.emit_federated(self.fdhpa, event).await
    }
}

// === impl FleetAutoscaler ===

impl<C: Cluster, F: Fleet> FleetAutoscaler<C, F> {
    /// Reports a fleet without any member: nothing can be decided.
    pub(super) async fn report_nobody(&mut self, due: &Due) {
        let uid = due.fdhpa.uid().unwrap_or_default();
        let Some(memory) = self.memories.get_mut(&uid) else {
            return;
        };
        let message = "there is no member cluster; put the kubeconfig of each into a labelled Secret of \
                       the members' namespace";
        let trouble = |kind| (kind, "NoMembers", message.to_owned());
        let board = StatusWriter::as_it_stands(&*self.hub, &due.fdhpa);
        board
            .reporter(&self.told.telemetry, self.clock.now())
            .trouble(
                &mut memory.told,
                &due.whole,
                &[trouble("Ready"), trouble("Assigned")],
            )
            .await;
    }

    /// Reports one fleet after its decision was carried out, or not.
    pub(super) async fn report(
        &mut self,
        planned: Planned<F::Member>,
        done: Result<Vec<Done>, ClusterError>,
    ) {
        let uid = planned.due.fdhpa.uid().unwrap_or_default();
        let Some(memory) = self.memories.get_mut(&uid) else {
            return;
        };
        let is_well =
            memory.told.invalid.is_none() && done.as_ref().is_ok_and(|done| outcome(done).is_ok());
        let written = done.as_deref().unwrap_or_default();
        let board = StatusWriter {
            hub: &*self.hub,
            fdhpa: &planned.due.fdhpa,
            beside: beside(&planned, &memory.ledger, &mut memory.members),
            conditions: conditions(&planned, is_well),
            change: change(&planned, written, &mut memory.desired),
        };
        let reporter = board.reporter(&self.told.telemetry, self.clock.now());
        for event in events(&planned, written, &mut memory.members) {
            reporter.emit(&planned.due.whole, &event).await;
        }
        let shares = board.beside.clusters.iter().flatten().map(|cluster| {
            let counts = [
                cluster.min,
                cluster.max,
                cluster.floor,
                cluster.current,
                cluster.ready,
                cluster.pending,
            ];
            (&*cluster.name, counts.map(|n| n.map(i64::from)))
        });
        let telemetry = &self.told.telemetry;
        telemetry.divided(&memory.told.labels, &mut memory.shown, shares);
        let applied = Applied {
            outcome: done
                .and_then(|done| outcome(&done))
                .and_then(|effect| template_of(&planned.seen).map(|()| effect)),
            planned: planned.hub.planned,
        };
        reporter.applied(&mut memory.told, &applied).await;
    }
}

/// What the whole fleet came to: the first trouble of a member stands for it.
fn outcome(done: &[Done]) -> Result<Effect, ClusterError> {
    let trouble = done.iter().find_map(|done| {
        let error = done.outcome.as_ref().err()?;
        let again = matches!(error, ClusterError::Conflict { .. });
        (!again).then(|| error.clone().within(&format!("member {}", done.part.name)))
    });
    trouble.map_or_else(|| Ok(Effect::default()), Err)
}

/// Whether what the hub is to place could be read, if it is to place anything.
fn template_of<M>(seen: &Seen<M>) -> Result<(), ClusterError> {
    match &seen.template {
        Some(Err(error)) => Err(error.clone().within("the hub, which is to place it")),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// The fleet's own conditions; where nothing can be divided, nothing is ready either.
fn conditions<M>(planned: &Planned<M>, is_well: bool) -> Vec<Condition> {
    let beside = of_template(&planned.seen);
    let own = planned.decision.conditions.iter().map(|own| {
        let mut own = own.clone();
        if own.kind == federate::ConditionKind::Assigned {
            own.message.extend(beside.as_deref());
        }
        own
    });
    let own: Vec<_> = own.collect();
    let rendered = |kind, own: &federate::Condition| {
        condition(kind, own.status.as_str(), own.reason, &own.message)
    };
    let undivided = own
        .iter()
        .find(|own| own.kind == federate::ConditionKind::Assigned && own.status == Status::False);
    let ready = undivided.map(|own| rendered(ConditionKind::Ready.as_str(), own));
    let ready = ready.or_else(|| contested(planned).filter(|_| is_well));
    let own = own.iter().map(|own| rendered(own.kind.as_str(), own));
    own.chain(ready).collect()
}

/// That autoscalers of others scale the same target in some members, where the fleet itself may act.
fn contested<M>(planned: &Planned<M>) -> Option<Condition> {
    let due = &planned.due;
    if due.rivals.older.is_some() {
        return None;
    }
    let members = planned.seen.members.iter();
    let rivals = members.filter_map(|(name, member)| {
        let rival = rival(due, member.whole()?)?;
        Some(format!("{} in member {name}", rival.name))
    });
    let rivals: Vec<_> = rivals.collect();
    let message = format!(
        "horizontalpodautoscaler {} scales the same target and is left alone; delete it, or annotate \
         this object with {ADOPT}: \"true\" to take it over (mode Delegated); the other members go on",
        rivals.join(", ")
    );
    let ready = ConditionKind::Ready.as_str();
    (!rivals.is_empty()).then(|| condition(ready, "False", "TargetConflict", &message))
}

/// What is to be known of the workload that the hub places, to be said after what was assigned.
fn of_template<M>(seen: &Seen<M>) -> Option<String> {
    match seen.template.as_ref()? {
        Err(error) => Some(format!(
            "; the workload to place is missing on the hub: {error}"
        )),
        Ok((template, _)) => {
            let names: Vec<_> = template.references.iter().map(String::as_str).collect();
            let names = names.join(", ");
            (!names.is_empty()).then(|| format!("; the workload refers to {names}, not copied"))
        }
    }
}

fn beside<M>(
    planned: &Planned<M>,
    ledger: &Ledger,
    memories: &mut BTreeMap<String, MemberRecord>,
) -> ExtraConditions {
    let decided = planned.decision.members.iter();
    let clusters = decided.map(|decided| {
        let memory = memories.entry(decided.name.clone()).or_default();
        let is_meant = |member: &&Member| member.profile.name == decided.name;
        let observed = planned.observed.iter().find(is_meant);
        let why = memory.why.told(decided, planned.due.is_previewed());
        let why = noted(why, notes(decided, observed, memory));
        cluster(decided, observed, ledger.members.get(&decided.name), why)
    });
    ExtraConditions {
        unassigned: Some(planned.decision.unassigned.as_i32()),
        clusters: Some(clusters.collect()),
        ledger: Some(ledger::written(ledger)),
    }
}

/// What is to be known of a member besides why it has what it has.
fn notes(
    decided: &MemberDecision,
    observed: Option<&Member>,
    memory: &MemberRecord,
) -> impl Iterator<Item = String> {
    let is_told = matches!(
        decided.reasons.first(),
        Some(Reason::Unknown | Reason::Failed)
    );
    let problem = observed.and_then(|member| member.problem.as_deref());
    let problem = problem.filter(|_| !is_told).map(|problem| {
        let mut letters = problem.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect()
    });
    let shaped = memory.shaped.filter(|(_, meant)| *meant == decided.min);
    let raised = shaped.filter(|(left, meant)| left > meant);
    let raised = raised.map(|(left, meant)| {
        format!("minReplicas of its HPA is {left} until less is needed; its minimum is {meant}")
    });
    problem.into_iter().chain(raised)
}

fn cluster(
    decided: &MemberDecision,
    observed: Option<&Member>,
    entry: Option<&Entry>,
    why: String,
) -> ClusterStatus {
    let pods = observed.and_then(|member| member.pods);
    let count = |of: fn(&federate::Pods) -> Replicas| pods.as_ref().map(|pods| of(pods).as_i32());
    let moved = entry.and_then(|entry| entry.moved.max(entry.shrunk));
    ClusterStatus {
        name: decided.name.clone(),
        min: Some(decided.min.as_i32()),
        max: Some(decided.max.as_i32()),
        floor: (decided.floor > Replicas::ZERO).then(|| decided.floor.as_i32()),
        current: count(|pods| pods.replicas),
        ready: count(|pods| pods.ready),
        pending: count(|pods| pods.unschedulable),
        capacity: decided.capacity.map(Replicas::as_i32),
        utilization: utilization(observed),
        reason: Some(why),
        last_transfer: moved.map(Time),
        observed: observed.and_then(|member| member.observed).map(Time),
    }
}

/// Demand in percent of what the replicas are meant to carry.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn utilization(observed: Option<&Member>) -> Option<i32> {
    let member = observed?;
    let replicas = member.pods?.replicas.as_f64();
    (replicas > 0.0).then_some((100.0 * member.demand? / replicas).round() as i32)
}
