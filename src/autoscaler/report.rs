//! Last step of a sync: tell people. Status, conditions, events, metrics and one log record, all
//! rendered from the decision and from what was applied.
//!
//! Status and events are written on change only: counts, winner, limit, reasons, conditions and
//! window state count as change; values, times and ages ride along. A report never undoes what was
//! applied, and its own failure is only logged.

use foretide_crds::{
    DecisionStatus, EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus,
    ProposalSource, ProposalStatus, WindowStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    apply::{Applied, Deed, Effect},
    memory::{self, Memory},
};
use crate::{
    domain::{
        Replicas,
        decide::Decision,
        explain::{self, ConditionKind},
        proposal::{Proposal, Source},
        strategy::Action,
    },
    ports::{Cluster, ClusterError, EventNote, HpaView},
    telemetry::{Counts, Telemetry, Write},
    validate::Invalid,
};

/// The part of a status whose change is worth a write.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outline(EffectiveHorizontalPodAutoscalerStatus);

/// The conditions that a child's own replace.
const OF_THE_CHILD: [&str; 3] = ["AbleToScale", "ScalingActive", "ScalingLimited"];

// === impl Outline ===

impl Outline {
    fn of(status: &EffectiveHorizontalPodAutoscalerStatus) -> Self {
        let mut outline = status.clone();
        outline.history = None;
        outline.last_scale_time = None;
        if let Some(decision) = &mut outline.decision {
            decision.time = None;
            decision.message = None;
            for proposal in decision.proposals.iter_mut().flatten() {
                proposal.value = None;
                proposal.target = None;
            }
        }
        for condition in outline.conditions.iter_mut().flatten() {
            condition.message = String::new();
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        Self(outline)
    }
}

/// Reports one object after its decision was carried out, or not.
pub(super) async fn report<C: Cluster>(
    cluster: &C,
    telemetry: &Telemetry,
    memory: &mut Memory,
    applied: &Applied,
    now: Timestamp,
) {
    let decision = &applied.planned.decision;
    let ehpa = &applied.planned.ehpa;
    telemetry.decided(&memory.labels, counts(decision));
    log(applied);
    for event in events(applied) {
        emit(cluster, telemetry, ehpa, &event).await;
    }
    let conditions = conditions(applied);
    let status = status(ehpa, memory, applied, conditions, now);
    write(cluster, telemetry, memory, ehpa, status).await;
}

/// Reports that the scale of an object's target could not be read: nothing was decided.
pub(super) async fn report_unreadable<C: Cluster>(
    cluster: &C,
    telemetry: &Telemetry,
    memory: &mut Memory,
    (ehpa, error): (&EffectiveHorizontalPodAutoscaler, &ClusterError),
    now: Timestamp,
) {
    let able = ("AbleToScale", "FailedGetScale", error.to_string());
    report_trouble(
        cluster,
        telemetry,
        memory,
        ehpa,
        &[("Ready", able.1, able.2.clone()), able],
        now,
    )
    .await;
}

/// Reports a spec that cannot be acted on; what was asked for before stays in force.
pub(super) async fn report_invalid<C: Cluster>(
    cluster: &C,
    telemetry: &Telemetry,
    memory: &mut Memory,
    (ehpa, invalid): (&EffectiveHorizontalPodAutoscaler, &Invalid),
    now: Timestamp,
) {
    let message = match memory.workload {
        Some(_) => format!("{invalid}; the last valid spec stays in force"),
        None => format!("{invalid}; nothing is done until this is mended"),
    };
    report_trouble(
        cluster,
        telemetry,
        memory,
        ehpa,
        &[("Ready", "InvalidSpec", message)],
        now,
    )
    .await;
}

/// Writes conditions that are False, leaving the rest of the status as it is; an event goes with the
/// first appearance of the reason.
async fn report_trouble<C: Cluster>(
    cluster: &C,
    telemetry: &Telemetry,
    memory: &mut Memory,
    ehpa: &EffectiveHorizontalPodAutoscaler,
    troubles: &[(&str, &'static str, String)],
    now: Timestamp,
) {
    let mut status = ehpa.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.take().unwrap_or_default();
    for (kind, reason, message) in troubles {
        conditions.retain(|condition| condition.type_ != *kind);
        conditions.push(condition(kind, "False", reason, message));
    }
    status.observed_generation = ehpa.metadata.generation;
    status.conditions = Some(since(conditions, ehpa, now));
    if memory.written.as_ref() == Some(&Outline::of(&status)) {
        return;
    }
    if let Some((_, reason, message)) = troubles.first() {
        let event = EventNote {
            warning: true,
            reason,
            action: "Decide",
            note: message.clone(),
        };
        emit(cluster, telemetry, ehpa, &event).await;
    }
    write(cluster, telemetry, memory, ehpa, status).await;
}

async fn write<C: Cluster>(
    cluster: &C,
    telemetry: &Telemetry,
    memory: &mut Memory,
    ehpa: &EffectiveHorizontalPodAutoscaler,
    status: EffectiveHorizontalPodAutoscalerStatus,
) {
    let outline = Outline::of(&status);
    let stands = memory.written.get_or_insert_with(|| {
        Outline::of(
            ehpa.status
                .as_ref()
                .unwrap_or(&EffectiveHorizontalPodAutoscalerStatus::default()),
        )
    });
    if *stands == outline {
        return;
    }
    let namespace = ehpa.namespace().unwrap_or_default();
    let outcome = cluster
        .write_status(&namespace, &ehpa.name_any(), &status)
        .await;
    telemetry.wrote(Write::Status, outcome.is_ok());
    match outcome {
        Ok(()) => memory.written = Some(outline),
        Err(error) => {
            tracing::warn!(%namespace, name = %ehpa.name_any(), %error, "status not written");
        }
    }
}

async fn emit<C: Cluster>(
    cluster: &C,
    telemetry: &Telemetry,
    ehpa: &EffectiveHorizontalPodAutoscaler,
    event: &EventNote,
) {
    let outcome = cluster.emit(ehpa, event).await;
    telemetry.wrote(Write::Event, outcome.is_ok());
    if let Err(error) = outcome {
        let (namespace, name) = (ehpa.namespace().unwrap_or_default(), ehpa.name_any());
        tracing::warn!(%namespace, %name, reason = event.reason, %error, "event not recorded");
    }
}

fn status(
    ehpa: &EffectiveHorizontalPodAutoscaler,
    memory: &Memory,
    applied: &Applied,
    conditions: Vec<Condition>,
    now: Timestamp,
) -> EffectiveHorizontalPodAutoscalerStatus {
    let decision = &applied.planned.decision;
    let scaled = applied
        .outcome
        .as_ref()
        .ok()
        .and_then(|effect| effect.scaled);
    EffectiveHorizontalPodAutoscalerStatus {
        expect_replicas: Some(decision.desired.as_i32()),
        current_replicas: Some(scaled.unwrap_or(decision.current).as_i32()),
        last_scale_time: last_scale(memory, applied).map(Time),
        conditions: Some(since(conditions, ehpa, now)),
        observed_generation: ehpa.metadata.generation,
        decision: Some(decided(decision)),
        windows: (!decision.windows.is_empty()).then(|| windows(decision)),
        history: Some(memory::kept(&memory.history)),
    }
}

/// The later of our own last change and the child's.
fn last_scale(memory: &Memory, applied: &Applied) -> Option<Timestamp> {
    let child = applied
        .outcome
        .as_ref()
        .ok()
        .and_then(|effect| effect.child.as_ref());
    memory
        .last_scale
        .max(child.and_then(|child| child.last_scale))
}

/// A decision as `status.decision` shows it.
pub(crate) fn decided(decision: &Decision) -> DecisionStatus {
    let count = |replicas: Replicas| Some(replicas.as_i32());
    DecisionStatus {
        time: Some(Time(decision.at)),
        current_replicas: count(decision.current),
        proposals: Some(decision.proposals.iter().map(proposed).collect()),
        winner: decision.winner.as_ref().map(|winner| source(winner.source)),
        maximum: decision.maximum.and_then(count),
        stabilized: count(decision.stabilized),
        limited: count(decision.limited),
        desired: count(decision.desired),
        floor: decision.floor.and_then(count),
        limit: decision.limit.map(|limit| limit.as_str().to_owned()),
        message: Some(decision.message()),
    }
}

fn proposed(proposal: &Proposal) -> ProposalStatus {
    let number = |value: f64| format!("{value}");
    ProposalStatus {
        source: source(proposal.source),
        name: proposal.name.clone(),
        replicas: proposal.replicas.map(Replicas::as_i32),
        value: proposal.value.map(number),
        target: proposal.target.map(number),
        reason: Some(proposal.reason.as_str().to_owned()),
    }
}

const fn source(source: Source) -> ProposalSource {
    match source {
        Source::Observed => ProposalSource::Observed,
        Source::Forecast => ProposalSource::Forecast,
        Source::Cron => ProposalSource::Cron,
    }
}

/// The windows of a decision as `status.windows` shows them.
pub(crate) fn windows(decision: &Decision) -> Vec<WindowStatus> {
    decision
        .windows
        .iter()
        .map(|(name, state)| WindowStatus {
            name: name.clone(),
            active: state.active,
            next_transition: state.next_transition.map(Time),
        })
        .collect()
}

/// The conditions of a decision; a child's own replace three of them, a foreign autoscaler or a
/// failed write make Ready False.
fn conditions(applied: &Applied) -> Vec<Condition> {
    let planned = &applied.planned;
    let mut conditions: Vec<Condition> = planned.decision.conditions.iter().map(rendered).collect();
    let child = applied
        .outcome
        .as_ref()
        .ok()
        .and_then(|effect| effect.child.as_ref());
    for own in child.map(|child| of_child(child)).unwrap_or_default() {
        conditions.retain(|condition| condition.type_ != own.type_);
        conditions.push(own);
    }
    if let Some(trouble) = trouble(applied) {
        conditions.retain(|condition| condition.type_ != trouble.type_);
        conditions.insert(0, trouble);
    }
    conditions
}

fn trouble(applied: &Applied) -> Option<Condition> {
    let ready = ConditionKind::Ready.as_str();
    if let Err(error) = &applied.outcome {
        return Some(condition(
            ready,
            "False",
            failure(applied),
            &error.to_string(),
        ));
    }
    let foreign = applied.planned.sighting.siblings.foreign.as_ref()?;
    let adopted = applied
        .outcome
        .as_ref()
        .is_ok_and(|effect| effect.deeds.contains(&Deed::Adopted));
    let message = format!(
        "horizontalpodautoscaler {} scales the same target and is left alone; delete it, or annotate \
         this object with {}: \"true\" to take it over (mode Delegated); until then everything is \
         computed as in Preview",
        foreign.name,
        super::child::ADOPT
    );
    (!adopted).then(|| condition(ready, "False", "TargetConflict", &message))
}

fn failure(applied: &Applied) -> &'static str {
    match applied.planned.decision.action {
        Action::Scale { .. } | Action::Pin { .. } => "FailedUpdateScale",
        Action::Child { .. } | Action::Hold { .. } => "FailedReconcileHPA",
    }
}

fn rendered(own: &explain::Condition) -> Condition {
    condition(
        own.kind.as_str(),
        own.status.as_str(),
        own.reason,
        &own.message,
    )
}

fn of_child(child: &HpaView) -> Vec<Condition> {
    let listed = child.status.get("conditions").and_then(Value::as_array);
    listed
        .into_iter()
        .flatten()
        .filter_map(|value| {
            let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
            OF_THE_CHILD.contains(&text("type")).then(|| {
                condition(
                    text("type"),
                    text("status"),
                    text("reason"),
                    text("message"),
                )
            })
        })
        .collect()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

/// The conditions with their transition times, which move only when a status does.
fn since(
    mut conditions: Vec<Condition>,
    ehpa: &EffectiveHorizontalPodAutoscaler,
    now: Timestamp,
) -> Vec<Condition> {
    let known = ehpa
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    for condition in &mut conditions {
        let before = known
            .into_iter()
            .flatten()
            .find(|known| known.type_ == condition.type_);
        condition.last_transition_time = before
            .filter(|before| before.status == condition.status)
            .map_or(Time(now), |before| before.last_transition_time.clone());
        condition.observed_generation = ehpa.metadata.generation;
    }
    conditions.sort_by_key(|condition| position(&condition.type_));
    conditions
}

fn position(kind: &str) -> usize {
    ConditionKind::ALL
        .iter()
        .position(|known| known.as_str() == kind)
        .unwrap_or(usize::MAX)
}

fn events(applied: &Applied) -> Vec<EventNote> {
    match &applied.outcome {
        Ok(effect) => effect_events(applied, effect),
        Err(ClusterError::Conflict { .. }) => Vec::new(),
        Err(error) => vec![EventNote {
            warning: true,
            reason: failure(applied),
            action: "Scale",
            note: error.to_string(),
        }],
    }
}

fn effect_events(applied: &Applied, effect: &Effect) -> Vec<EventNote> {
    let scaled = effect.scaled.map(|to| EventNote {
        warning: false,
        reason: "Scaled",
        action: "Scale",
        note: format!(
            "scaled from {} to {to}: {}",
            applied.planned.decision.current,
            applied.planned.decision.message()
        ),
    });
    let name = effect
        .child
        .as_ref()
        .map_or("", |child| child.name.as_str());
    let deeds = effect.deeds.iter().map(|deed| deed.event(name));
    deeds.chain(scaled).collect()
}

// === impl Deed ===

impl Deed {
    fn event(self, name: &str) -> EventNote {
        let (reason, note) = match self {
            Self::Created => (
                "HPACreated",
                format!("created horizontalpodautoscaler {name}"),
            ),
            Self::Restored => (
                "HPARestored",
                format!("horizontalpodautoscaler {name} was not as written; put right"),
            ),
            Self::Adopted => (
                "HPAAdopted",
                format!("took over horizontalpodautoscaler {name}"),
            ),
            Self::GivenBack => (
                "HPAGivenBack",
                "gave the adopted horizontalpodautoscaler back".to_owned(),
            ),
            Self::Removed => (
                "HPARemoved",
                "removed the child horizontalpodautoscaler".to_owned(),
            ),
        };
        EventNote {
            warning: false,
            reason,
            action: "Delegate",
            note,
        }
    }
}

fn counts(decision: &Decision) -> Counts {
    let largest = |source: Source| {
        let of_source = decision
            .proposals
            .iter()
            .filter(|proposal| proposal.source == source);
        of_source
            .filter_map(|proposal| proposal.replicas)
            .max()
            .map(Replicas::get)
    };
    Counts {
        current: decision.current.get(),
        desired: decision.desired.get(),
        observed: largest(Source::Observed),
        forecast: largest(Source::Forecast),
        cron: largest(Source::Cron),
    }
}

/// One record per change at `info`; without a change, and where nobody shall act, at `debug`.
fn log(applied: &Applied) {
    let planned = &applied.planned;
    let (namespace, name) = (&planned.target.namespace, planned.ehpa.name_any());
    let decision = &planned.decision;
    let (current, desired) = (decision.current.get(), decision.desired.get());
    let target = format!("{}/{}", planned.target.kind, planned.target.name);
    let message = decision.message();
    match &applied.outcome {
        Err(error) => {
            tracing::warn!(%namespace, %name, %target, current, desired, %error, "not carried out");
        }
        Ok(effect) if effect.scaled.is_some() || (planned.delegates && current != desired) => {
            tracing::info!(%namespace, %name, %target, current, desired, "{message}");
        }
        Ok(_) => tracing::debug!(%namespace, %name, %target, current, desired, "{message}"),
    }
}
