//! Last step of a sync: status, conditions, events, metrics and one log record, all rendered from the decision and from
//! what was applied.
//!
//! Status and events are written on change only: counts, winner, limit, reasons, conditions with their causes and
//! window state count as change; values, times and ages are written along with one, and more often where others read
//! them. They are written by [`Reports`] beside the syncs, so that a slow API server delays no decision. A report never
//! undoes what was applied, and its own failure is only logged.

mod bucket;
mod changes;
mod conditions;
mod events;
mod fingerprint;
mod parts;
mod queue;
mod record;
#[cfg(test)]
mod tests;
mod written;

use std::collections::{BTreeMap, BTreeSet};

use foretide_domain::autoscale::Decision;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

pub use conditions::INVALID_SPEC;

use self::{
    bucket::EventBucket,
    changes::ReplicaChanges,
    events::Warning,
    fingerprint::StatusFingerprint,
    parts::Parts,
    written::{NewStatus, WrittenStatus},
};
pub use self::{queue::Reports, written::LedgerIntent};
use super::{apply::Applied, decide::Decided, target::TargetState};
use crate::forecaster::forecasts::Forecasts;
use foretide_api::ports::{ClusterError, EventNote, UnusableCopies};
use foretide_api::{
    autoscaler::{Autoscaler, FleetStatus},
    status::condition,
    validation::Invalid,
};
use foretide_base::{
    clock::Monotonic,
    telemetry::{Counts, ForecastQuality, ObjectLabels, Telemetry},
};
use foretide_page::{self, DecisionLog, Record};

/// Makes reports of what was decided and applied, and publishes its metrics and log.
#[derive(Debug)]
pub struct Reporter<'a> {
    /// The metrics, in which counts are published.
    pub telemetry: &'a Telemetry,
    /// The log of decisions that the page reads.
    pub page: &'a DecisionLog,
    /// The forecasts in force.
    pub forecasts: &'a Forecasts,
    /// The time of the report.
    pub now: Timestamp,
    /// The time of the report by the monotonic clock.
    pub passed: Monotonic,
}

/// The status and the events that are to be written of one object.
#[derive(Debug)]
pub struct Report {
    autoscaler: Autoscaler,
    /// The events, in the order in which they happened.
    pub events: Vec<EventNote>,
    /// The status, if it differs from the one that was written last.
    status: Option<NewStatus>,
}

/// State of the reports of one object.
#[derive(Debug)]
pub struct ReportState {
    /// Labels of its metric series, to remove them when it is gone.
    pub labels: ObjectLabels,
    /// The metrics whose forecasts have metric series.
    pub forecast: BTreeSet<String>,
    /// The status that was written last.
    pub written: WrittenStatus,
    /// The last changes of the number of replicas.
    changes: ReplicaChanges,
    /// The reasons of the last warnings by condition, while what they warned of lasts.
    warned: BTreeMap<&'static str, String>,
    /// The events that may still be written.
    bucket: EventBucket,
}

/// The parts of an object's state that its report is made from.
#[derive(Debug)]
pub struct ReportInput<'a> {
    /// The state of its reports.
    pub state: &'a mut ReportState,
    /// The state of its workload.
    pub target: &'a TargetState,
    /// The reason why its spec as it stands cannot be acted on, if any.
    pub invalid: Option<&'a Invalid>,
    /// Time that its pods took to start, if that is measured.
    pub start_up: Option<SignedDuration>,
}

/// Parts of the report of one kind, in addition to those of every autoscaler.
#[derive(Debug, Default)]
pub struct Extras {
    /// Conditions, in the place of the decision's own of the same type.
    pub conditions: Vec<Condition>,
    /// The status fields that only this kind has.
    pub status: FleetStatus,
    /// Events before those of every autoscaler.
    pub events: Vec<EventNote>,
    /// The change of a count, for the log, if there was one.
    pub change: Option<String>,
    /// True if the count is of other workloads than in the sync before.
    pub is_recounted: bool,
    /// True if the demand of some members is missing, so that no total is known.
    pub is_partial: bool,
}

/// A condition that is False: its type, its reason, and what to do.
pub type Trouble = (&'static str, &'static str, String);

/// The trouble that nothing is decided by these copies, in these conditions.
pub fn unusable_copies(copies: &UnusableCopies, conditions: [&'static str; 2]) -> Vec<Trouble> {
    troubles(conditions, copies.reason(), &copies.to_string())
}

/// The same trouble in two conditions.
pub fn troubles(
    conditions: [&'static str; 2],
    reason: &'static str,
    message: &str,
) -> Vec<Trouble> {
    conditions
        .map(|kind| (kind, reason, message.to_owned()))
        .into()
}

// === impl ReportState ===

impl ReportState {
    pub fn new(autoscaler: &Autoscaler) -> Self {
        Self {
            labels: ObjectLabels {
                kind: autoscaler.kind().resource(),
                namespace: autoscaler.namespace().to_owned(),
                name: autoscaler.name().to_owned(),
            },
            forecast: BTreeSet::new(),
            written: WrittenStatus::of_stored(autoscaler),
            changes: ReplicaChanges::of_stored(autoscaler.status()),
            // After a restart the status shows which warnings were reported last.
            warned: conditions::warned_of(autoscaler),
            bucket: EventBucket::default(),
        }
    }
}

// === impl Reporter ===

impl Reporter<'_> {
    /// The report of one autoscaler after its decision was carried out, or not.
    pub fn applied(&self, mut input: ReportInput<'_>, applied: &Applied, extras: Extras) -> Report {
        let decided = &applied.decided;
        log(applied, extras.change.as_deref());
        let shown = self.for_page(applied, input.start_up, extras.is_partial);
        let parts = Parts::of(&mut input, applied, extras, self.now);
        let state = input.state;
        self.telemetry.decided(&state.labels, &counts(decided));
        self.publish_forecasts(state, &decided.decision);
        self.write(state, &decided.part.autoscaler, parts, Some(shown))
    }

    /// Writes the parts to metrics and page; returns those that go to the API server.
    fn write(
        &self,
        state: &mut ReportState,
        autoscaler: &Autoscaler,
        parts: Parts,
        decided: Option<foretide_page::Decided<'_>>,
    ) -> Report {
        let Parts {
            status,
            mut events,
            publishes,
        } = parts;
        let unhealthy = conditions::unhealthy(&status).map(|it| (&*it.type_, &*it.reason));
        self.telemetry.set_unhealthy(&state.labels, unhealthy);
        self.page.record(Record {
            at: self.now,
            autoscaler,
            status: &status,
            decided,
        });
        let dropped = state.bucket.limit(&mut events, self.passed);
        self.telemetry.dropped_events(dropped);
        let written = &state.written;
        written.compare(&autoscaler.stored_status(), self.now);
        Report {
            autoscaler: autoscaler.clone(),
            events,
            status: written.unless_equal(status, publishes, self.now),
        }
    }

    /// Publishes the quality of each forecast; the series of a forecast that ended are removed.
    fn publish_forecasts(&self, state: &mut ReportState, decision: &Decision) {
        let mut before = std::mem::take(&mut state.forecast);
        for proposal in &decision.proposals {
            if let Some(grounds) = &proposal.details {
                let age = self.now.duration_since(grounds.known_until).as_secs_f64();
                let quality = ForecastQuality {
                    skill: grounds.skill,
                    coverage: grounds.coverage,
                    quantile: grounds.quantile,
                    minute_readings: grounds.raw,
                    // The clocks of the controller and of Prometheus may differ.
                    model_age_seconds: Some(age.max(0.0)),
                };
                self.telemetry
                    .set_forecast_quality(&state.labels, &proposal.name, &quality);
                before.remove(&proposal.name);
                state.forecast.insert(proposal.name.clone());
            }
        }
        for ended in &before {
            self.telemetry
                .set_forecast_quality(&state.labels, ended, &ForecastQuality::default());
        }
    }

    /// Conditions that are False, which leave the rest of the status as it is; an event goes with the first appearance
    /// of the reason.
    pub fn trouble(
        &self,
        state: &mut ReportState,
        autoscaler: &Autoscaler,
        troubles: &[Trouble],
    ) -> Report {
        self.telemetry.undecided(&state.labels);
        let mut status = autoscaler.stored_status();
        // The watch may still show the object with an older ledger.
        status.fleet.ledger = state.written.ledger();
        status.common.changes = state.changes.status();
        let mut conditions = status.common.conditions.take().unwrap_or_default();
        for (kind, reason, message) in troubles {
            conditions.retain(|condition| condition.type_ != *kind);
            conditions.push(condition(kind, "False", reason, message));
        }
        status.common.observed_generation = autoscaler.generation();
        status.common.conditions = Some(conditions::since(conditions, autoscaler, self.now));
        // All of them have the same cause.
        let event = troubles.first().and_then(|&(condition, reason, ref note)| {
            state.first_of(Warning {
                condition,
                event: Some(events::warning(reason, "Decide", note.clone())),
                is_over: false,
            })
        });
        let parts = Parts {
            status,
            events: event.into_iter().collect(),
            publishes: state.written.publishes(),
        };
        self.write(state, autoscaler, parts, None)
    }
}

/// The change of the count of one workload, if there was one: by a write of ours, or by its child.
pub fn change(applied: &Applied) -> Option<String> {
    let decision = &applied.decided.decision;
    let moves = applied.decided.delegates && decision.current != decision.desired;
    (applied.effect()?.scaled.is_some() || moves).then(|| decision.message())
}

fn counts(decided: &Decided) -> Counts {
    let decision = &decided.decision;
    let bounds = decided.is_carried_out.then_some(decision.bounds);
    Counts {
        current: decision.current.get(),
        desired: decision.desired.get(),
        proposed: decision
            .proposed()
            .into_iter()
            .map(|(source, count)| (source, count.get()))
            .collect(),
        min: bounds.map(|bounds| bounds.min.get()),
        max: bounds.map(|bounds| bounds.max.get()),
    }
}

/// Logs one record per `change` at `info`, or without one at `debug`, and what went wrong.
#[expect(
    clippy::cognitive_complexity,
    reason = "two matches; the macros of three levels count for more"
)]
fn log(applied: &Applied, change: Option<&str>) {
    let autoscaler = &applied.decided.part.autoscaler;
    let (namespace, name) = (autoscaler.namespace(), autoscaler.name());
    let decision = &applied.decided.decision;
    let (current, desired) = (decision.current.get(), decision.desired.get());
    let workload = &applied.decided.part.workload.target;
    let target = format!("{}/{}", workload.kind, workload.name);
    match &applied.outcome {
        Ok(_) => {}
        // Decided again within a second.
        Err(error @ ClusterError::Conflict { .. }) => {
            tracing::debug!(%namespace, %name, %target, current, desired, %error, "could not apply the decision");
        }
        Err(error) => {
            tracing::warn!(%namespace, %name, %target, current, desired, %error, "could not apply the decision");
        }
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
