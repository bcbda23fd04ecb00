//! Last step of a fleet's sync: its report. The fleet is reported like an autoscaler of one cluster; in addition, its
//! status has a row for each member, what no member can take, and the ledger.

use std::collections::BTreeMap;

use foretide_domain::{autoscale::ConditionKind, observation::Status};
use foretide_federate::{Ledger, Member, MemberDecision, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{
    apply::MemberApplied,
    change::change,
    decided::{FleetApplied, FleetDecided},
    events::events,
    item::FleetTerms,
    observation::FleetObservation,
    state::{FleetState, MemberRecord, ShapedMin},
};
use crate::{
    apply::{Applied, Effect},
    report::{Extras, Report, Reporter},
    state::ObjectState,
};
use foretide_api::ports::ClusterError;
use foretide_api::{
    autoscaler::FleetStatus,
    ownership::ADOPT,
    status::{cluster_status, condition, decided_condition, ledger_status},
};

/// The report of one fleet after its decision was carried out, or not.
pub fn report<M>(
    reporter: &Reporter<'_>,
    state: &mut ObjectState<FleetTerms, FleetState>,
    FleetApplied { fleet, outcome }: FleetApplied<M>,
) -> Report {
    let applied = outcome.as_deref().unwrap_or_default();
    let is_well = state.invalid.is_none() && outcome.as_ref().is_ok_and(|all| of_all(all).is_ok());
    let of_kind = &mut state.of_kind;
    let extras = Extras {
        status: status(&fleet, &of_kind.ledger, &mut of_kind.members),
        conditions: conditions(&fleet, is_well),
        events: events(&fleet, applied, &mut of_kind.members),
        change: change(&fleet, applied, &mut of_kind.desired),
        is_recounted: of_kind.is_recounted,
        is_partial: fleet.whole.total.demand.is_none(),
    };
    let rows = extras.status.clusters.iter().flatten();
    let shares = rows.map(|row| {
        let counts = [
            row.min,
            row.max,
            row.floor,
            row.current,
            row.ready,
            row.pending,
        ];
        (&*row.name, counts.map(|n| n.map(i64::from)))
    });
    let telemetry = reporter.telemetry;
    telemetry.set_shares(&state.report.labels, &mut of_kind.published, shares);
    let applied = Applied {
        outcome: outcome
            .and_then(|all| of_all(&all))
            .and_then(|effect| of_template(&fleet.observed).map(|()| effect)),
        decided: fleet.whole.decided,
    };
    reporter.applied(state.report_input(), &applied, extras)
}

/// Outcome of the whole fleet: the first failure of a member stands for it.
fn of_all(applied: &[MemberApplied]) -> Result<Effect, ClusterError> {
    let failure = applied.iter().find_map(|applied| {
        let error = applied.outcome.as_ref().err()?;
        // A conflict is decided again within a second, so it is not a failure.
        let again = matches!(error, ClusterError::Conflict { .. });
        (!again).then(|| {
            error
                .clone()
                .within(&format!("member {}", applied.plan.name))
        })
    });
    failure.map_or_else(|| Ok(Effect::default()), Err)
}

/// Success if the workload that the hub is to place could be read, or if it places none.
fn of_template<M>(observed: &FleetObservation<M>) -> Result<(), ClusterError> {
    match &observed.template {
        Some(Err(error)) => Err(error
            .clone()
            .within("the hub, from which the workload is placed")),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// The fleet's own conditions; where nothing can be divided, nothing is ready either.
fn conditions<M>(fleet: &FleetDecided<M>, is_well: bool) -> Vec<Condition> {
    let note = template_note(&fleet.observed);
    let mut own = fleet.decision.conditions.clone();
    for condition in &mut own {
        if condition.kind == foretide_federate::ConditionKind::Assigned {
            condition.message.extend(note.as_deref());
        }
    }
    let undivided = own.iter().find(|own| {
        own.kind == foretide_federate::ConditionKind::Assigned && own.status == Status::False
    });
    let not_ready = undivided
        .map(|own| decided_condition(ConditionKind::Ready.as_str(), own))
        .or_else(|| contested(fleet).filter(|_| is_well));
    let shown = own
        .iter()
        .map(|own| decided_condition(own.kind.as_str(), own));
    shown.chain(not_ready).collect()
}

/// The condition that foreign HPAs scale the same target in some members, where the fleet itself may act.
fn contested<M>(fleet: &FleetDecided<M>) -> Option<Condition> {
    let item = &fleet.item;
    if item.conflicts.older.is_some() {
        return None;
    }
    let members = fleet.observed.members.iter();
    let names = members.filter_map(|(name, member)| {
        let hpa = item.foreign_hpa(&member.present()?.observed)?;
        Some(format!("{} in member {name}", hpa.name))
    });
    let foreign: Vec<_> = names.collect();
    let message = format!(
        "horizontalpodautoscaler {} scales the same target and is not changed; delete it, or annotate \
         this object with {ADOPT}: \"true\" to take it over (mode Delegated); the other \
         members are still scaled",
        foreign.join(", ")
    );
    let ready = ConditionKind::Ready.as_str();
    (!foreign.is_empty()).then(|| condition(ready, "False", "TargetConflict", &message))
}

/// Note on the workload that the hub places, to follow what was assigned.
fn template_note<M>(observed: &FleetObservation<M>) -> Option<String> {
    match observed.template.as_ref()? {
        Err(error) => Some(format!(
            "; cannot read the workload to place from the hub: {error}"
        )),
        Ok((template, _)) => {
            let references: Vec<_> = template.references.iter().map(String::as_str).collect();
            let names = references.join(", ");
            (!names.is_empty())
                .then(|| format!("; the workload refers to {names}, which are not copied"))
        }
    }
}

fn status<M>(
    fleet: &FleetDecided<M>,
    ledger: &Ledger,
    records: &mut BTreeMap<String, MemberRecord>,
) -> FleetStatus {
    let is_previewed = fleet.item.fleet_spec().is_previewed();
    let decided = fleet.decision.members.iter();
    let clusters = decided.map(|decided| {
        let record = records.entry(decided.name.clone()).or_default();
        let is_meant = |member: &&Member| member.profile.name == decided.name;
        let observed = fleet.members.iter().find(is_meant);
        let last_move = record.last_move.shown(decided, is_previewed);
        let view = fleet.observed.members.get(&decided.name);
        let of_secret = view.and_then(|member| member.view.secret_problem.as_deref());
        let notes = notes(decided, observed, record, of_secret);
        let reason = last_move.map(|reason| reason.with_notes(notes).to_string());
        let reason = reason.unwrap_or_default();
        cluster_status(decided, observed, ledger.members.get(&decided.name), reason)
    });
    FleetStatus {
        unassigned: Some(fleet.decision.unassigned.as_i32()),
        clusters: Some(clusters.collect()),
        ledger: Some(ledger_status(ledger)),
    }
}

/// Notes on a member besides the reason for its share.
fn notes(
    decided: &MemberDecision,
    observed: Option<&Member>,
    record: &MemberRecord,
    secret_problem: Option<&str>,
) -> Vec<String> {
    let is_in_reason = matches!(
        decided.reasons.first(),
        Some(Reason::Unknown | Reason::Failed)
    );
    let problem = observed.and_then(|member| member.problem.as_deref());
    // Where the member is lost, it is part of the problem already.
    let known = [problem, secret_problem.filter(|_| problem.is_none())];
    let unsaid = known.into_iter().flatten().filter(|_| !is_in_reason);
    let problems = unsaid.map(|problem| {
        let mut letters = problem.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect()
    });
    let shaped = record.shaped.filter(|min| min.decided == decided.min);
    let above = shaped.filter(|min| min.written > min.decided);
    let raised = above.map(|ShapedMin { written, decided }| {
        format!(
            "minReplicas of its HPA is {written} until fewer are needed; its minimum is {decided}"
        )
    });
    problems.chain(raised).collect()
}
