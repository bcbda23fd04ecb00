//! The conditions of a fleet for status.

use std::collections::BTreeSet;

use crate::{Condition, ConditionKind, Health, Reason, Remark, assign::thresholds};
use foretide_domain::observation::Status;
use foretide_domain::words::{ANOTHER_WRITER, counted};

use super::fleet::RuleContext;
use super::member::{MemberState, sum};
use super::participation::MemberRole;

/// The five conditions of a fleet after a decision.
pub fn conditions(fleet: &RuleContext<'_>) -> Vec<Condition> {
    vec![
        Condition::new(
            ConditionKind::Assigned,
            Status::True,
            "Assigned",
            assigned(fleet),
        ),
        balanced(fleet),
        reachable(fleet),
        conflict(fleet),
        capacity(fleet),
    ]
}

/// The condition of a fleet to which nothing can be assigned.
pub fn refused(reason: &'static str, message: String) -> Condition {
    Condition::new(ConditionKind::Assigned, Status::False, reason, message)
}

/// The names of the members for which `holds` is true, joined by commas.
fn names(fleet: &RuleContext<'_>, holds: impl Fn(&MemberState<'_>) -> bool) -> String {
    let members = fleet.members.iter().filter(|state| holds(state));
    let names: Vec<_> = members.map(MemberState::name).collect();
    names.join(", ")
}

fn assigned(fleet: &RuleContext<'_>) -> String {
    let with_budget = fleet.members.iter().filter(|state| state.max() > 0).count();
    let mut text = format!(
        "the budget is divided over {}",
        counted(with_budget, "member")
    );
    for remark in remarks(fleet) {
        text.push_str("; ");
        text.push_str(remark.text());
    }
    text
}

/// The remarks on the policy, by the weights that budgets were divided by last.
fn remarks(fleet: &RuleContext<'_>) -> BTreeSet<Remark> {
    let policy = fleet.policy;
    let scheme = policy.scheme();
    if !scheme.divides {
        return BTreeSet::new();
    }
    let parties = fleet
        .members
        .iter()
        .filter(|state| state.is_active() || state.role.is_pinned());
    let mut remarks = thresholds(policy.bounds, parties.map(|state| &state.preference));
    let unweighted = fleet.active().next().is_some() && fleet.active().all(|s| s.entry.weight == 0);
    remarks.extend(scheme.unweighted.filter(|_| unweighted));
    remarks
}

fn balanced(fleet: &RuleContext<'_>) -> Condition {
    let kind = ConditionKind::Balanced;
    let starving = names(fleet, |state| state.has_reason(Reason::NoCapacityAnywhere));
    let held = held_by_lost(fleet);
    let (reason, message) = if !starving.is_empty() {
        let message =
            format!("pods are unschedulable in {starving}, and no other member has capacity");
        (Reason::NoCapacityAnywhere, message)
    } else if fleet.floor.unmet > 0 {
        let unmet = counted(fleet.floor.unmet, "replica");
        let message = format!("no member has capacity for {unmet} of the floor");
        (Reason::FloorUnmet, message)
    } else if held > 0 {
        let message = format!(
            "maximums add up to {held} more than maxReplicas, because unavailable members keep theirs"
        );
        (Reason::BudgetHeldByLost, message)
    } else {
        let message = "budgets fit what the members need".to_owned();
        return Condition::new(kind, Status::True, "Balanced", message);
    };
    Condition::new(kind, Status::False, reason.as_str(), message)
}

/// By how much maximums exceed MAX because members that cannot be changed keep theirs.
fn held_by_lost(fleet: &RuleContext<'_>) -> u32 {
    if fleet.holders().next().is_none() {
        return 0;
    }
    let least = sum(fleet.members.iter().map(MemberState::lower_limit));
    sum(fleet.members.iter().map(MemberState::max)).saturating_sub(fleet.max().max(least))
}

fn reachable(fleet: &RuleContext<'_>) -> Condition {
    let kind = ConditionKind::MembersReachable;
    let (nonparticipants, candidates): (Vec<_>, Vec<_>) = fleet
        .members
        .iter()
        .filter(|state| !is_ready(state))
        .partition(|state| takes_no_part(state));
    if !candidates.is_empty() {
        let named: Vec<_> = candidates
            .iter()
            .map(|state| format!("{}: {}", state.name(), problem(state)))
            .collect();
        let message = format!(
            "{}; the autoscaler there continues with its last bounds",
            named.join("; ")
        );
        return Condition::new(kind, Status::False, "Unreachable", message);
    }
    let all_take_part = !fleet.members.iter().any(|state| takes_no_part(state));
    let summary = if all_take_part {
        "every member is reachable"
    } else {
        "every participating member is reachable"
    };
    let nonparticipants = nonparticipants.iter().map(|state| {
        let why = match state.role {
            MemberRole::Outside(Reason::NoPreference) => "which no preference selects",
            _ => "which gets no share",
        };
        format!(
            "; {}, {why}, is not ready: {}",
            state.name(),
            problem(state)
        )
    });
    let message = format!("{summary}{}", nonparticipants.collect::<String>());
    Condition::new(kind, Status::True, "Reachable", message)
}

/// True if a member answers, is healthy, and no problem will soon keep it from answering.
fn is_ready(state: &MemberState<'_>) -> bool {
    let is_unavailable = matches!(
        state.role,
        MemberRole::Lost
            | MemberRole::Failed
            | MemberRole::Outside(Reason::Unknown | Reason::Failed)
    );
    !is_unavailable && state.member.health == Health::Ready && state.member.problem.is_none()
}

/// True if a member takes no part in the fleet, reachable or not.
fn takes_no_part(state: &MemberState<'_>) -> bool {
    match state.role {
        MemberRole::Outside(reason) => !matches!(reason, Reason::Unknown | Reason::Failed),
        _ => false,
    }
}

fn problem<'a>(state: &MemberState<'a>) -> &'a str {
    let problem = state.member.problem.as_deref();
    problem.unwrap_or("unreachable or unhealthy")
}

fn conflict(fleet: &RuleContext<'_>) -> Condition {
    let kind = ConditionKind::ReplicaConflict;
    let conflict = fleet.members.iter().find_map(|state| {
        let manager = state.member.foreign_writer.as_ref()?;
        Some(format!(
            "{manager} keeps writing the replicas in {}; {ANOTHER_WRITER}",
            state.name()
        ))
    });
    match conflict {
        Some(message) => Condition::new(kind, Status::True, "ForeignWriter", message),
        None => Condition::new(
            kind,
            Status::False,
            "NoConflict",
            "no other writer of replicas".to_owned(),
        ),
    }
}

fn capacity(fleet: &RuleContext<'_>) -> Condition {
    let kind = ConditionKind::CapacityKnown;
    let unknown = names(fleet, |state| {
        state.is_active() && state.member.capacity.is_none() && !state.preference.elastic
    });
    if unknown.is_empty() {
        let soft = names(fleet, |state| {
            state.is_active() && state.member.is_capacity_soft && !state.preference.elastic
        });
        let mut message = "the capacity of every member is known".to_owned();
        if !soft.is_empty() {
            message.push_str("; it is an upper bound in ");
            message.push_str(&soft);
            message.push_str(", where pods have spread constraints");
        }
        return Condition::new(kind, Status::True, "Known", message);
    }
    let message = format!(
        "the capacity of {unknown} is unknown and counts as maxReplicas until pods are unschedulable"
    );
    Condition::new(kind, Status::False, "Unknown", message)
}
