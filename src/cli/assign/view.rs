//! The report of an assignment: the clusters, the division of the bounds, the action for each cluster.

use foretide_backtest::{
    assign::{Assignment, NamedFleet},
    clock,
};
use foretide_domain::workload::Mode;
use foretide_federate::{Member, MemberDecision, Total};

use super::budgets::{budgets, form};
use crate::cli::{
    decision::{strategy_and_mode, target_and_bounds},
    output::{Paint, Screen, cell, decimal},
};
use foretide_api::status::is_healthy;

/// The report as text.
pub fn text(assignment: &Assignment, screen: Screen) -> String {
    let mut blocks = vec![heading(assignment, screen)];
    blocks.extend(division(assignment, screen));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

/// The report without the heading: the clusters, the division, the actions.
pub fn division(assignment: &Assignment, screen: Screen) -> [String; 5] {
    [
        seen(assignment, screen),
        left_out(assignment, screen),
        budgets(assignment, screen),
        decided(assignment, screen),
        conditions(assignment, screen),
    ]
}

fn heading(assignment: &Assignment, screen: Screen) -> String {
    let NamedFleet { name, spec } = &assignment.fleet;
    let workload = &spec.workload;
    let strategy = strategy_and_mode(workload.strategy, spec.policy.mode);
    let each = form(&spec.policy).each;
    let at = clock(assignment.decision.at);
    let at = format!("{strategy}; {at}; demand and capacity are in replicas");
    screen.title(name, &(target_and_bounds(workload) + each), &at)
}

// --- The clusters.

/// The clusters as observed.
fn seen(assignment: &Assignment, screen: Screen) -> String {
    let header = [
        "CLUSTER",
        "HEALTH",
        ">REPLICAS",
        ">READY",
        ">PENDING",
        ">CAPACITY",
        ">DEMAND",
    ];
    let mut members: Vec<_> = assignment.members.iter().collect();
    members.sort_by(|a, b| a.profile.name.cmp(&b.profile.name));
    let rows = members.into_iter().map(|it| seen_row(assignment, it));
    let total = totals(&assignment.total, assignment.policy().mode);
    screen.table(header, rows) + &total
}

fn seen_row(assignment: &Assignment, member: &Member) -> [String; 7] {
    let pods = member.pods.as_ref();
    let elastic = assignment
        .preference_of(&member.profile)
        .is_some_and(|standing| standing.elastic);
    let capacity = match member.capacity {
        _ if elastic => "elastic".to_owned(),
        Some(capacity) => capacity.to_string(),
        None => "unknown".to_owned(),
    };
    [
        member.profile.name.clone(),
        health(member).to_owned(),
        cell(pods.map(|pods| pods.replicas)),
        cell(pods.map(|pods| pods.ready)),
        cell(pods.map(|pods| pods.unschedulable)),
        capacity,
        cell(member.demand.map(decimal)),
    ]
}

const fn health(member: &Member) -> &'static str {
    use foretide_federate::Health;
    match member.health {
        Health::Ready => "ready",
        Health::NotReady { .. } => "not ready",
        Health::Unknown { .. } => "unknown",
    }
}

/// The totals of the fleet, in one line; the count only in Direct mode, where it is divided.
fn totals(total: &Total, mode: Mode) -> String {
    let demand = total
        .demand
        .map(|demand| format!("demand {}", decimal(demand)));
    let floor = total.floor.map(|floor| format!("floor {floor}"));
    let desired = total
        .desired
        .filter(|_| mode == Mode::Direct)
        .map(|desired| format!("{desired} replicas desired"));
    let parts: Vec<_> = [demand, floor, desired].into_iter().flatten().collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!("fleet total: {}\n", parts.join(", "))
    }
}

/// Clusters that do not participate, each with its reason.
fn left_out(assignment: &Assignment, screen: Screen) -> String {
    let lines = assignment.members.iter().filter_map(|member| {
        let name = &member.profile.name;
        let why = match assignment.decision.member(name) {
            None => "spec.clusterAffinity does not select it".to_owned(),
            Some(decided) if is_excluded(assignment, decided) => decided.sentence(),
            Some(_) => return None,
        };
        Some(screen.line(None, format!("{name} does not participate: {why}")))
    });
    lines.collect()
}

/// Returns whether a member is excluded from the division.
fn is_excluded(assignment: &Assignment, decided: &MemberDecision) -> bool {
    !assignment.ledger.members.contains_key(&decided.name)
}

// --- The actions.

fn decided(assignment: &Assignment, screen: Screen) -> String {
    let header = [
        "CLUSTER",
        "ACTION",
        ">MIN",
        ">MAX",
        ">FLOOR",
        ">REPLICAS",
        "REASONS",
    ];
    let taking_part: Vec<_> = assignment
        .decision
        .members
        .iter()
        .filter(|member| !is_excluded(assignment, member))
        .collect();
    if taking_part.is_empty() {
        return String::new();
    }
    let rows = taking_part.iter().map(|member| decided_row(member));
    let mut text = screen.table(header, rows);
    let sentences = taking_part
        .iter()
        .map(|it| format!("{}: {}", it.name, it.sentence()));
    text.extend(sentences.map(|line| screen.line(None, line)));
    let order = assignment.order();
    if order.len() > 1 {
        let order = order.join(", ");
        text += &screen.line(Some(Paint::Dim), format!("order of writes: {order}"));
    }
    text
}

fn decided_row(member: &MemberDecision) -> [String; 7] {
    let reasons = member.reasons.iter().map(|reason| reason.as_str());
    let hold = member.hold.then_some("hold");
    [
        member.name.clone(),
        member.action.as_str().to_owned(),
        member.min.to_string(),
        member.max.to_string(),
        member.floor.to_string(),
        cell(member.replicas),
        reasons.chain(hold).collect::<Vec<_>>().join(", "),
    ]
}

/// The unhealthy conditions.
fn conditions(assignment: &Assignment, screen: Screen) -> String {
    let mut text = String::new();
    for condition in &assignment.decision.conditions {
        let (kind, status) = (condition.kind.as_str(), condition.status.as_str());
        if !is_healthy(kind, status) {
            let head = format!("{kind} {status} {}", condition.reason);
            text += &(screen.paint(Paint::Warning, &head) + "\n");
            text += &screen.indented(&condition.message);
        }
    }
    text
}
