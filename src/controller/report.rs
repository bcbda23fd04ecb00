//! Last step of a sync: tell people. Status, conditions, events, metrics and one log record, all
//! rendered from the decision and from what was applied.
//!
//! Status and events are written on change only: counts, winner, limit, reasons, conditions and
//! window state count as change; values, times and ages ride along. A report never undoes what was
//! applied, and its own failure is only logged.

mod conditions;
mod events;
pub(super) mod fingerprint;
mod status;

use std::future::Future;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

pub(super) use conditions::condition;
pub(crate) use status::{decided, windows};

use self::fingerprint::StatusFingerprint;
use super::{apply::Applied, state::ObjectState};
use crate::{
    api::spec::Invalid,
    domain::{Replicas, autoscale::Decision, proposal::Source},
    ports::{Cluster, ClusterError, EventNote},
    telemetry::{Counts, Foresight, Telemetry, Write},
};

/// Where an object's status and events are written, and what its status has besides that of every autoscaler.
pub(super) trait NoticeBoard: Send + Sync {
    /// The part of a status whose change is worth a write.
    fn outline(&self, status: &EffectiveHorizontalPodAutoscalerStatus) -> StatusFingerprint {
        StatusFingerprint::of(status)
    }
    /// The same of the status as it stands.
    fn standing(&self, ehpa: &EffectiveHorizontalPodAutoscaler) -> StatusFingerprint {
        StatusFingerprint::of(&ehpa.status.clone().unwrap_or_default())
    }
    /// What changed a count, as the log is to tell it; none where nothing did, and where nobody shall act.
    fn change(&self, applied: &Applied) -> Option<String> {
        let planned = &applied.planned;
        let decision = &planned.decision;
        let scaled = applied.outcome.as_ref().ok()?.scaled.is_some();
        let changes = scaled || (planned.delegates && decision.current != decision.desired);
        changes.then(|| decision.message())
    }
    /// Conditions beside the decision's own.
    fn conditions(&self) -> Vec<Condition> {
        Vec::new()
    }
    /// Writes a status.
    fn write_status(
        &self,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        status: &EffectiveHorizontalPodAutoscalerStatus,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Records an event.
    fn emit(
        &self,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        event: &EventNote,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
}

impl<C: Cluster> NoticeBoard for C {
    async fn write_status(
        &self,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        status: &EffectiveHorizontalPodAutoscalerStatus,
    ) -> Result<(), ClusterError> {
        let (namespace, name) = (ehpa.namespace().unwrap_or_default(), ehpa.name_any());
        Cluster::write_status(self, &namespace, &name, status).await
    }

    async fn emit(
        &self,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        event: &EventNote,
    ) -> Result<(), ClusterError> {
        Cluster::emit(self, ehpa, event).await
    }
}

/// Tells people about one sync.
#[derive(Debug)]
pub(super) struct Reporter<'a, B> {
    /// Where statuses and events are written.
    pub(super) board: &'a B,
    /// Where writes and counts are published.
    pub(super) telemetry: &'a Telemetry,
    /// When it is told.
    pub(super) now: Timestamp,
}

/// A condition that is False: its type, its reason, and what to do.
pub(super) type Trouble = (&'static str, &'static str, String);

// === impl Reporter ===

impl<B: NoticeBoard> Reporter<'_, B> {
    /// Reports one object after its decision was carried out, or not.
    pub(super) async fn applied(&self, memory: &mut ObjectState, applied: &Applied) {
        let decision = &applied.planned.decision;
        let ehpa = &applied.planned.ehpa;
        self.telemetry.decided(&memory.labels, counts(decision));
        self.foresaw(memory, decision);
        log(applied, self.board.change(applied));
        for event in events::events(applied) {
            self.emit(ehpa, &event).await;
        }
        match events::warning(applied, memory.invalid.as_ref()) {
            Some(warning) => self.warn(memory, ehpa, &warning).await,
            None => memory.warned = None,
        }
        let beside = self.board.conditions();
        let status = status::status(memory, applied, beside, self.now);
        self.write(memory, ehpa, status).await;
    }

    /// Publishes how well each forecast does; one that went takes its series along.
    fn foresaw(&self, memory: &mut ObjectState, decision: &Decision) {
        let mut before = std::mem::take(&mut memory.foreseen);
        for proposal in &decision.proposals {
            if let Some(grounds) = &proposal.grounds {
                let age = self.now.duration_since(grounds.known_until).as_secs_f64();
                let foresight = Foresight {
                    skill: grounds.skill,
                    coverage: grounds.coverage,
                    model_age_seconds: Some(age.max(0.0)),
                };
                self.telemetry
                    .foresaw(&memory.labels, &proposal.name, &foresight);
                before.remove(&proposal.name);
                memory.foreseen.insert(proposal.name.clone());
            }
        }
        for gone in &before {
            self.telemetry
                .foresaw(&memory.labels, gone, &Foresight::default());
        }
    }

    /// Reports that the scale of an object's target could not be read: nothing was decided.
    pub(super) async fn unreadable(
        &self,
        memory: &mut ObjectState,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        error: &ClusterError,
    ) {
        let trouble = |kind| (kind, "FailedGetScale", error.to_string());
        self.trouble(memory, ehpa, &[trouble("Ready"), trouble("AbleToScale")])
            .await;
    }

    /// Reports a spec that cannot be acted on, of an object that never had another: nothing is
    /// decided.
    pub(super) async fn invalid(
        &self,
        memory: &mut ObjectState,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        invalid: &Invalid,
    ) {
        let message = format!("{invalid}; nothing is done until this is mended");
        self.trouble(
            memory,
            ehpa,
            &[("Ready", conditions::INVALID_SPEC, message)],
        )
        .await;
    }

    /// Writes conditions that are False, leaving the rest of the status as it is; an event goes with
    /// the first appearance of the reason.
    pub(super) async fn trouble(
        &self,
        memory: &mut ObjectState,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        troubles: &[Trouble],
    ) {
        let mut status = ehpa.status.clone().unwrap_or_default();
        let mut known = status.conditions.take().unwrap_or_default();
        for (kind, reason, message) in troubles {
            known.retain(|condition| condition.type_ != *kind);
            known.push(conditions::condition(kind, "False", reason, message));
        }
        status.observed_generation = ehpa.metadata.generation;
        status.conditions = Some(conditions::since(known, ehpa, self.now));
        if memory.written.as_ref() == Some(&self.board.outline(&status)) {
            return;
        }
        if let Some((_, reason, note)) = troubles.first() {
            let note = note.clone();
            let warning = EventNote {
                warning: true,
                reason,
                action: "Decide",
                note,
            };
            self.warn(memory, ehpa, &warning).await;
        }
        self.write(memory, ehpa, status).await;
    }

    /// Emits a warning unless the same was the last one, or status has been saying it since before we
    /// were started.
    async fn warn(
        &self,
        memory: &mut ObjectState,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        warning: &EventNote,
    ) {
        let before = memory.warned.replace(warning.reason);
        let told = before == Some(warning.reason)
            || (memory.written.is_none() && conditions::not_ready(ehpa) == Some(warning.reason));
        if !told {
            self.emit(ehpa, warning).await;
        }
    }

    async fn write(
        &self,
        memory: &mut ObjectState,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        status: EffectiveHorizontalPodAutoscalerStatus,
    ) {
        let outline = self.board.outline(&status);
        let standing = || self.board.standing(ehpa);
        let stands = memory.written.get_or_insert_with(standing);
        if *stands == outline {
            return;
        }
        let outcome = self.board.write_status(ehpa, &status).await;
        self.telemetry.wrote(Write::Status, outcome.is_ok());
        match outcome {
            Ok(()) => memory.written = Some(outline),
            Err(error) => {
                let (namespace, name) = (ehpa.namespace().unwrap_or_default(), ehpa.name_any());
                tracing::warn!(%namespace, %name, %error, "status not written");
            }
        }
    }

    pub(super) async fn emit(&self, ehpa: &EffectiveHorizontalPodAutoscaler, event: &EventNote) {
        let outcome = self.board.emit(ehpa, event).await;
        self.telemetry.wrote(Write::Event, outcome.is_ok());
        if let Err(error) = outcome {
            let (namespace, name) = (ehpa.namespace().unwrap_or_default(), ehpa.name_any());
            tracing::warn!(%namespace, %name, reason = event.reason, %error, "event not recorded");
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

/// One record per `change` at `info`; without one at `debug`; and what went wrong.
#[expect(
    clippy::cognitive_complexity,
    reason = "one match; the macros of three levels count for more"
)]
fn log(applied: &Applied, change: Option<String>) {
    let planned = &applied.planned;
    let (namespace, name) = (&planned.target.namespace, planned.ehpa.name_any());
    let decision = &planned.decision;
    let (current, desired) = (decision.current.get(), decision.desired.get());
    let target = format!("{}/{}", planned.target.kind, planned.target.name);
    if let Err(error) = &applied.outcome {
        tracing::warn!(%namespace, %name, %target, current, desired, %error, "not carried out");
    }
    match change {
        Some(change) => {
            tracing::info!(%namespace, %name, %target, current, desired, "{change}");
        }
        None if applied.outcome.is_ok() => {
            let message = decision.message();
            tracing::debug!(%namespace, %name, %target, current, desired, "{message}");
        }
        None => {}
    }
}
