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
    let shares = extras.status.clusters.iter().flatten().map(|row| {
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
    for applied in applied {
        match &applied.outcome {
            // A conflict is decided again within a second, so it is not a failure.
            Ok(_) | Err(ClusterError::Conflict { .. }) => {}
            Err(error) => {
                let member = format!("member {}", applied.plan.name);
                return Err(error.clone().within(&member));
            }
        }
    }
    Ok(Effect::default())
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
    let ready = ConditionKind::Ready.as_str();
    let mut not_ready = contested(fleet).filter(|_| is_well);
    let mut shown = Vec::new();
    for mut own in fleet.decision.conditions.clone() {
        if own.kind == foretide_federate::ConditionKind::Assigned {
            own.message.extend(note.as_deref());
            if own.status == Status::False {
                not_ready = Some(decided_condition(ready, &own));
            }
        }
        shown.push(decided_condition(own.kind.as_str(), &own));
    }
    shown.extend(not_ready);
    shown
}

/// The condition that foreign HPAs scale the same target in some members, where the fleet itself may act.
fn contested<M>(fleet: &FleetDecided<M>) -> Option<Condition> {
    let item = &fleet.item;
    if item.conflicts.older.is_some() {
        return None;
    }
    let mut foreign = Vec::new();
    for (name, member) in &fleet.observed.members {
        let present = member.present();
        if let Some(hpa) = present.and_then(|it| item.foreign_hpa(&it.observed.target)) {
            foreign.push(format!("{} in member {name}", hpa.name));
        }
    }
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
            let names = template.reference_names()?;
            Some(format!(
                "; the workload refers to {names}, which are not copied"
            ))
        }
    }
}

fn status<M>(
    fleet: &FleetDecided<M>,
    ledger: &Ledger,
    records: &mut BTreeMap<String, MemberRecord>,
) -> FleetStatus {
    let is_previewed = fleet.item.fleet_spec().course.previewed;
    let mut clusters = Vec::new();
    for decided in &fleet.decision.members {
        let name = &decided.name;
        let record = records.entry(name.clone()).or_default();
        let observed = fleet.members.iter().find(|it| it.profile.name == *name);
        let last_move = record.last_move.shown(decided, is_previewed);
        let view = fleet.observed.members.get(name).map(|it| &it.view);
        let of_secret = view.and_then(|it| it.secret_problem.as_deref());
        let notes = notes(decided, observed, record, of_secret);
        let reason = last_move.map(|reason| reason.with_notes(notes).to_string());
        let (entry, reason) = (ledger.members.get(name), reason.unwrap_or_default());
        clusters.push(cluster_status(decided, observed, entry, reason));
    }
    FleetStatus {
        unassigned: Some(fleet.decision.unassigned.as_i32()),
        clusters: Some(clusters),
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
    let mut notes = Vec::new();
    let problem = observed.and_then(|member| member.problem.as_deref());
    // Where the member is lost, the problem of its Secret is part of its own already.
    if let Some(problem) = problem.or(secret_problem).filter(|_| !is_in_reason) {
        let mut note = problem.to_owned();
        if let Some(first) = note.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        notes.push(note);
    }
    if let Some(ShapedMin {
        written,
        decided: min,
    }) = record.shaped
        && min == decided.min
        && written > min
    {
        notes.push(format!(
            "minReplicas of its HPA is {written} until fewer are needed; its minimum is {min}"
        ));
    }
    notes
}
