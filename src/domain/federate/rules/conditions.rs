//! The conditions of a fleet: what is the matter with it as a whole, for status. It refuses to decide.

use std::collections::BTreeSet;

use crate::domain::federate::{
    Condition, ConditionKind, Health, Kind, Reason, Remark, assign::thresholds,
};
use crate::domain::observation::Status;

use super::fleet::{Fleet, MemberState, Role, sum};

/// All five, of a fleet that was decided.
pub(super) fn conditions(fleet: &Fleet<'_>) -> Vec<Condition> {
    vec![
        condition(
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

/// That nothing can be assigned.
pub(super) fn refused(reason: &'static str, message: String) -> Condition {
    condition(ConditionKind::Assigned, Status::False, reason, message)
}

fn condition(
    kind: ConditionKind,
    status: Status,
    reason: &'static str,
    message: String,
) -> Condition {
    Condition {
        kind,
        status,
        reason,
        message,
    }
}

/// The names of those members for which something holds, with commas; empty for none.
fn names(fleet: &Fleet<'_>, holds: impl Fn(&MemberState<'_>) -> bool) -> String {
    let named = fleet.seats.iter().filter(|seat| holds(seat));
    let mut text = String::new();
    for seat in named {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(seat.name());
    }
    text
}

fn assigned(fleet: &Fleet<'_>) -> String {
    let with_budget = fleet.seats.iter().filter(|seat| seat.max() > 0).count();
    let mut text = format!("{with_budget} members have a share");
    for remark in remarks(fleet) {
        text.push_str("; ");
        text.push_str(remark.text());
    }
    text
}

/// What is special about the policy, by the weights that budgets were divided by last.
fn remarks(fleet: &Fleet<'_>) -> BTreeSet<Remark> {
    let policy = fleet.policy;
    if policy.kind == Kind::Duplicated {
        return BTreeSet::new();
    }
    let takes_part = |seat: &&MemberState<'_>| seat.is_active() || seat.role.is_pinned();
    let parties = fleet.seats.iter().filter(takes_part);
    let mut remarks = thresholds(policy.bounds, parties.map(|seat| &seat.standing));
    let is_weighted = matches!(policy.kind, Kind::StaticWeighted | Kind::DynamicWeighted);
    let unweighted = fleet.active().next().is_some() && fleet.active().all(|s| s.entry.weight == 0);
    remarks.extend((is_weighted && unweighted).then_some(Remark::NoWeights));
    remarks
}

fn balanced(fleet: &Fleet<'_>) -> Condition {
    let kind = ConditionKind::Balanced;
    let starving = names(fleet, |seat| {
        seat.reasons.contains(&Reason::NoCapacityAnywhere)
    });
    let held = held_by_lost(fleet);
    if !starving.is_empty() {
        let message = format!("pods are unschedulable in {starving}, and no other member has room");
        return condition(
            kind,
            Status::False,
            Reason::NoCapacityAnywhere.as_str(),
            message,
        );
    }
    if fleet.unmet > 0 {
        let message = format!(
            "{} replicas of the floor find no room in any member",
            fleet.unmet
        );
        return condition(kind, Status::False, Reason::FloorUnmet.as_str(), message);
    }
    if held > 0 {
        let message =
            format!("maxima sum to {held} more than maxReplicas, because lost members hold theirs");
        return condition(
            kind,
            Status::False,
            Reason::BudgetHeldByLost.as_str(),
            message,
        );
    }
    condition(
        kind,
        Status::True,
        "Balanced",
        "budgets fit what the members need".to_owned(),
    )
}

/// By how much maxima exceed MAX because members that cannot be changed hold theirs.
fn held_by_lost(fleet: &Fleet<'_>) -> u32 {
    let is_pinned = |seat: &MemberState<'_>| seat.role.is_pinned();
    if fleet.policy.kind == Kind::Duplicated || !fleet.seats.iter().any(is_pinned) {
        return 0;
    }
    let least = sum(fleet.seats.iter().map(MemberState::lo));
    sum(fleet.seats.iter().map(MemberState::max)).saturating_sub(fleet.max().max(least))
}

fn reachable(fleet: &Fleet<'_>) -> Condition {
    let kind = ConditionKind::MembersReachable;
    let missing: Vec<_> = fleet.seats.iter().filter(|seat| !is_ready(seat)).collect();
    let (beside, meant): (Vec<_>, Vec<_>) = missing.into_iter().partition(|seat| is_beside(seat));
    let told = |seat: &&MemberState<'_>| format!("{}: {}", seat.name(), trouble(seat));
    let named: Vec<_> = meant.iter().map(told).collect();
    if !named.is_empty() {
        let message = format!(
            "{}; what runs there goes on with its last bounds",
            named.join("; ")
        );
        return condition(kind, Status::False, "Unreachable", message);
    }
    let all_take_part = !fleet.seats.iter().any(|seat| is_beside(seat));
    let who = if all_take_part {
        "every member answers"
    } else {
        "every member that takes part answers"
    };
    let beside = beside.iter().map(|seat| {
        let why = match seat.role {
            Role::Outside(Reason::NoPreference) => "which no preference names",
            _ => "which gets no share",
        };
        format!("; {}, {why}, is not ready: {}", seat.name(), trouble(seat))
    });
    let message = format!("{who}{}", beside.collect::<String>());
    condition(kind, Status::True, "Reachable", message)
}

/// Whether a member answers, is well, and nothing will keep it from answering before long.
fn is_ready(seat: &MemberState<'_>) -> bool {
    let is_away = matches!(
        seat.role,
        Role::Lost | Role::Failed | Role::Outside(Reason::Unknown | Reason::Failed)
    );
    !is_away && seat.member.health == Health::Ready && seat.member.problem.is_none()
}

/// Whether a member has no part in the fleet, whether it can be seen or not.
fn is_beside(seat: &MemberState<'_>) -> bool {
    match seat.role {
        Role::Outside(reason) => !matches!(reason, Reason::Unknown | Reason::Failed),
        _ => false,
    }
}

fn trouble<'a>(seat: &MemberState<'a>) -> &'a str {
    let problem = seat.member.problem.as_deref();
    problem.unwrap_or("it does not answer, or is not well")
}

fn conflict(fleet: &Fleet<'_>) -> Condition {
    let kind = ConditionKind::ReplicaConflict;
    let fought = fleet.seats.iter().find_map(|seat| {
        let manager = seat.member.fought_by.as_ref()?;
        Some(format!(
            "{manager} keeps writing the replicas in {}",
            seat.name()
        ))
    });
    match fought {
        Some(message) => condition(kind, Status::True, "ForeignWriter", message),
        None => condition(
            kind,
            Status::False,
            "NoConflict",
            "nobody else writes replicas".to_owned(),
        ),
    }
}

fn capacity(fleet: &Fleet<'_>) -> Condition {
    let kind = ConditionKind::CapacityKnown;
    let unknown = names(fleet, |seat| {
        seat.is_active() && seat.member.capacity.is_none() && !seat.standing.elastic
    });
    if unknown.is_empty() {
        let soft = names(fleet, |seat| {
            seat.is_active() && seat.member.is_capacity_soft && !seat.standing.elastic
        });
        let mut message = "the room of every member is known".to_owned();
        if !soft.is_empty() {
            message.push_str("; it is the most that there can be in ");
            message.push_str(&soft);
            message.push_str(", for pods must spread there");
        }
        return condition(kind, Status::True, "Known", message);
    }
    let message =
        format!("the room is unknown in {unknown}, and counts as maxReplicas until pods find none");
    condition(kind, Status::False, "Unknown", message)
}
