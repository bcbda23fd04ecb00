//! Last step of a sync: tell people. Status, conditions, events, metrics and one log record, all
//! rendered from the decision and from what was applied.
//!
//! Status and events are written on change only: counts, winner, limit, reasons, conditions and
//! window state count as change; values, times and ages ride along. A report never undoes what was
//! applied, and its own failure is only logged.

mod conditions;
mod events;
mod status;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus};
use jiff::Timestamp;
use kube::ResourceExt;

pub(super) use status::Outline;
pub(crate) use status::{decided, windows};

use super::{apply::Applied, memory::Memory};
use crate::{
    domain::{Replicas, decide::Decision, proposal::Source},
    ports::{Cluster, ClusterError, EventNote},
    telemetry::{Counts, Foresight, Telemetry, Write},
    validate::Invalid,
};

/// Tells people about one sync.
#[derive(Debug)]
pub(super) struct Reporter<'a, C> {
    /// Where statuses and events are written.
    pub(super) cluster: &'a C,
    /// Where writes and counts are published.
    pub(super) telemetry: &'a Telemetry,
    /// When it is told.
    pub(super) now: Timestamp,
}

/// A condition that is False: its type, its reason, and what to do.
type Trouble = (&'static str, &'static str, String);

// === impl Reporter ===

impl<C: Cluster> Reporter<'_, C> {
    /// Reports one object after its decision was carried out, or not.
    pub(super) async fn applied(&self, memory: &mut Memory, applied: &Applied) {
        let decision = &applied.planned.decision;
        let ehpa = &applied.planned.ehpa;
        self.telemetry.decided(&memory.labels, counts(decision));
        self.foresaw(memory, decision);
        log(applied);
        for event in events::events(applied) {
            self.emit(ehpa, &event).await;
        }
        match events::warning(applied, memory.invalid.as_ref()) {
            Some(warning) => self.warn(memory, ehpa, &warning).await,
            None => memory.warned = None,
        }
        let status = status::status(memory, applied, self.now);
        self.write(memory, ehpa, status).await;
    }

    /// Publishes how well each forecast does; one that went takes its series along.
    fn foresaw(&self, memory: &mut Memory, decision: &Decision) {
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
        memory: &mut Memory,
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
        memory: &mut Memory,
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
    async fn trouble(
        &self,
        memory: &mut Memory,
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
        if memory.written.as_ref() == Some(&Outline::of(&status)) {
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
        memory: &mut Memory,
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
        memory: &mut Memory,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        status: EffectiveHorizontalPodAutoscalerStatus,
    ) {
        let outline = Outline::of(&status);
        let stands = memory
            .written
            .get_or_insert_with(|| Outline::of(&ehpa.status.clone().unwrap_or_default()));
        if *stands == outline {
            return;
        }
        let (namespace, name) = (ehpa.namespace().unwrap_or_default(), ehpa.name_any());
        let outcome = self.cluster.write_status(&namespace, &name, &status).await;
        self.telemetry.wrote(Write::Status, outcome.is_ok());
        match outcome {
            Ok(()) => memory.written = Some(outline),
            Err(error) => tracing::warn!(%namespace, %name, %error, "status not written"),
        }
    }

    async fn emit(&self, ehpa: &EffectiveHorizontalPodAutoscaler, event: &EventNote) {
        let outcome = self.cluster.emit(ehpa, event).await;
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

/// One record per change at `info`; without a change, and where nobody shall act, at `debug`.
#[expect(
    clippy::cognitive_complexity,
    reason = "one match; the macros of three levels count for more"
)]
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
