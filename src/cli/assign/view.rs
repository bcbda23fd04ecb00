//! The report of an assignment: the clusters, the division of the bounds, the action for each cluster.

use std::fmt::Write as _;

use super::{Assignment, NamedFleet};
use crate::{
    cli::{
        decision::{WIDTH, clock},
        output::{Paint, Screen, Side, wrapped},
    },
    domain::{
        Replicas,
        federate::{
            AssignmentKind, EffectivePreference, Entry, Member, MemberDecision, Profile,
            ShareStatus, Total,
        },
        observation::Status,
        words::counted,
        workload::{Mode, Strategy},
    },
};

/// The condition that is healthy with status `False`; all others with `True`.
const GOOD_IF_FALSE: &str = "ReplicaConflict";

/// The report as text.
pub(in crate::cli) fn text(assignment: &Assignment, screen: Screen) -> String {
    let mut blocks = vec![heading(assignment, screen)];
    blocks.extend(division(assignment, screen));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

/// Everything but the heading: seen, divided, decided.
pub(in crate::cli) fn division(assignment: &Assignment, screen: Screen) -> [String; 5] {
    [
        seen(assignment, screen),
        left_out(assignment),
        budgets(assignment, screen),
        decided(assignment, screen),
        conditions(assignment, screen),
    ]
}

fn heading(assignment: &Assignment, screen: Screen) -> String {
    let NamedFleet { name, spec } = &assignment.fleet;
    let workload = &spec.workload;
    let strategy = match (workload.strategy, spec.policy.mode) {
        (Strategy::Preview, _) => "Preview",
        (Strategy::Auto, Mode::Delegated) => "Auto, Delegated",
        (Strategy::Auto, Mode::Direct) => "Auto, Direct",
    };
    let each = match spec.policy.kind {
        AssignmentKind::Duplicated => " each",
        _ => "",
    };
    let at = clock(assignment.decision.at);
    let at = format!("{strategy}; {at}; demand and capacity are in replicas");
    format!(
        "{}  {} {}, {} to {} replicas{each}\n{}\n",
        screen.paint(Paint::Strong, name),
        workload.target.kind,
        workload.target.name,
        workload.bounds.min,
        workload.bounds.max,
        screen.paint(Paint::Dim, &at)
    )
}

// --- What is there.

/// The clusters as they are seen.
fn seen(assignment: &Assignment, screen: Screen) -> String {
    let header = [
        ("CLUSTER", Side::Left),
        ("HEALTH", Side::Left),
        ("REPLICAS", Side::Right),
        ("READY", Side::Right),
        ("PENDING", Side::Right),
        ("CAPACITY", Side::Right),
        ("DEMAND", Side::Right),
    ];
    let mut members: Vec<_> = assignment.members.iter().collect();
    members.sort_by(|a, b| a.profile.name.cmp(&b.profile.name));
    let rows: Vec<_> = members
        .into_iter()
        .map(|member| seen_row(assignment, member))
        .collect();
    format!(
        "{}{}",
        screen.table(header, &rows),
        totals(&assignment.total, assignment.fleet.spec.policy.mode)
    )
}

fn seen_row(assignment: &Assignment, member: &Member) -> [String; 7] {
    let count = |of: fn(&crate::domain::federate::Pods) -> Replicas| {
        member
            .pods
            .as_ref()
            .map_or_else(dash, |pods| of(pods).to_string())
    };
    let elastic = standing(assignment, &member.profile).is_some_and(|standing| standing.elastic);
    let capacity = match member.capacity {
        _ if elastic => "elastic".to_owned(),
        Some(capacity) => capacity.to_string(),
        None => "unknown".to_owned(),
    };
    [
        member.profile.name.clone(),
        health(member).to_owned(),
        count(|pods| pods.replicas),
        count(|pods| pods.ready),
        count(|pods| pods.unschedulable),
        capacity,
        member.demand.map_or_else(dash, decimal),
    ]
}

const fn health(member: &Member) -> &'static str {
    use crate::domain::federate::Health;
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

fn standing(assignment: &Assignment, profile: &Profile) -> Option<EffectivePreference> {
    assignment.fleet.spec.policy.effective_preference(profile)
}

/// Clusters that do not participate, each with its reason.
fn left_out(assignment: &Assignment) -> String {
    let mut text = String::new();
    for member in &assignment.members {
        let name = &member.profile.name;
        let why = match assignment.decision.member(name) {
            None => "spec.clusterAffinity does not select it".to_owned(),
            Some(decided) if is_excluded(assignment, decided) => decided.sentence(),
            Some(_) => continue,
        };
        let _infallible = writeln!(
            text,
            "{}",
            wrapped(&format!("{name} does not participate: {why}"), WIDTH, "  ")
        );
    }
    text
}

/// Whether a member is excluded from the division.
fn is_excluded(assignment: &Assignment, decided: &MemberDecision) -> bool {
    !assignment.ledger.members.contains_key(&decided.name)
}

// --- How bounds are divided.

/// What was divided last: the exact shares and what became of them.
fn budgets(assignment: &Assignment, screen: Screen) -> String {
    let entries: Vec<_> = candidates(assignment);
    if entries.is_empty() {
        return String::new();
    }
    let policy = &assignment.fleet.spec.policy;
    let table = match policy.kind {
        AssignmentKind::Duplicated => undivided(&entries, screen),
        AssignmentKind::StaticWeighted | AssignmentKind::DynamicWeighted => {
            weighted(assignment, &entries, screen)
        }
        AssignmentKind::Aggregated | AssignmentKind::Prioritized => {
            filled(assignment, &entries, screen)
        }
    };
    let mut text = format!(
        "{}\n{table}",
        screen.paint(Paint::Strong, &title(assignment))
    );
    let unassigned = assignment.decision.unassigned;
    if unassigned > Replicas::ZERO {
        let _infallible = writeln!(
            text,
            "no cluster can take {} of maxReplicas",
            counted(unassigned.get(), "replica")
        );
    }
    for line in how(policy.kind) {
        let _infallible = writeln!(text, "{}", screen.paint(Paint::Dim, line));
    }
    text
}

/// Those with a share or the prospect of one.
fn candidates(assignment: &Assignment) -> Vec<(&String, &Entry)> {
    let members = assignment.ledger.members.iter();
    let mut entries: Vec<_> = members
        .filter(|(_, entry)| {
            matches!(
                entry.share_status,
                ShareStatus::Candidate | ShareStatus::Pinned
            )
        })
        .collect();
    if matches!(
        assignment.fleet.spec.policy.kind,
        AssignmentKind::Aggregated | AssignmentKind::Prioritized
    ) {
        entries.sort_by_key(|(_, entry)| entry.rank);
    }
    entries
}

fn title(assignment: &Assignment) -> String {
    let policy = &assignment.fleet.spec.policy;
    let bounds = policy.bounds;
    match policy.kind {
        AssignmentKind::Duplicated => {
            "Duplicated: each cluster has the bounds of the spec".to_owned()
        }
        kind => format!(
            "{}: minReplicas {} and maxReplicas {}, divided",
            kind.as_str(),
            bounds.min,
            bounds.max
        ),
    }
}

/// How the policy divides, in lines.
const fn how(kind: AssignmentKind) -> &'static [&'static str] {
    match kind {
        AssignmentKind::Duplicated => &[],
        AssignmentKind::StaticWeighted | AssignmentKind::DynamicWeighted => &[
            "shares are rounded down; the remainder goes to the highest weights;",
            "a minimum of 0 becomes 1, the least that an HPA accepts",
        ],
        AssignmentKind::Aggregated => &[
            "clusters are filled to their capacity in order: first those that run the",
            "workload, then the largest; replicas beyond all capacities go to the first;",
            "a minimum of 0 becomes 1, the least that an HPA accepts",
        ],
        AssignmentKind::Prioritized => &[
            "clusters are filled to their capacity, the highest priority first, within one",
            "priority by capacity; replicas beyond all capacities go to the highest;",
            "a minimum of 0 becomes 1, the least that an HPA accepts",
        ],
    }
}

fn undivided(entries: &[(&String, &Entry)], screen: Screen) -> String {
    let header = [
        ("CLUSTER", Side::Left),
        ("MIN", Side::Right),
        ("MAX", Side::Right),
    ];
    let row = |(name, entry): &(&String, &Entry)| {
        [
            (*name).clone(),
            entry.min.to_string(),
            entry.max.to_string(),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    screen.table(header, &rows)
}

fn weighted(assignment: &Assignment, entries: &[(&String, &Entry)], screen: Screen) -> String {
    let header = [
        ("CLUSTER", Side::Left),
        ("WEIGHT", Side::Right),
        ("WITHIN", Side::Right),
        ("OF MIN", Side::Right),
        ("MIN", Side::Right),
        ("OF MAX", Side::Right),
        ("MAX", Side::Right),
    ];
    let bounds = assignment.fleet.spec.policy.bounds;
    let all: f64 = entries.iter().map(|(_, entry)| weight(entry)).sum();
    let share = |n: Replicas, entry: &Entry| match all {
        all if all > 0.0 => decimal(n.as_f64() * weight(entry) / all),
        _ => dash(),
    };
    let row = |(name, entry): &(&String, &Entry)| {
        [
            (*name).clone(),
            entry.weight.to_string(),
            within(assignment, name),
            share(bounds.min, entry),
            entry.min.to_string(),
            share(bounds.max, entry),
            entry.max.to_string(),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    screen.table(header, &rows)
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
const fn weight(entry: &Entry) -> f64 {
    entry.weight as f64
}

fn filled(assignment: &Assignment, entries: &[(&String, &Entry)], screen: Screen) -> String {
    let prioritized = assignment.fleet.spec.policy.kind == AssignmentKind::Prioritized;
    let header = [
        ("CLUSTER", Side::Left),
        (if prioritized { "PRIORITY" } else { "ORDER" }, Side::Right),
        ("CAPACITY", Side::Right),
        ("WITHIN", Side::Right),
        ("MIN", Side::Right),
        ("MAX", Side::Right),
    ];
    let most = assignment.fleet.spec.policy.bounds.max;
    let row = |(name, entry): &(&String, &Entry)| {
        let priority = of(assignment, name).and_then(|standing| standing.priority);
        let place = if prioritized {
            priority
        } else {
            Some(i64::from(entry.rank) + 1)
        };
        [
            (*name).clone(),
            place.map_or_else(dash, |place| place.to_string()),
            entry.capacity.unwrap_or(most).to_string(),
            within(assignment, name),
            entry.min.to_string(),
            entry.max.to_string(),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    screen.table(header, &rows)
}

fn of(assignment: &Assignment, name: &str) -> Option<EffectivePreference> {
    let mut members = assignment.members.iter();
    let member = members.find(|member| member.profile.name == name)?;
    standing(assignment, &member.profile)
}

/// The thresholds of a cluster, if it has any.
fn within(assignment: &Assignment, name: &str) -> String {
    let most = assignment.fleet.spec.policy.bounds.max;
    let standing = of(assignment, name);
    let bound = standing.filter(|standing| standing.min > Replicas::ZERO || standing.max < most);
    bound.map_or_else(dash, |standing| {
        format!("{}..{}", standing.min, standing.max)
    })
}

// --- What each is to do.

fn decided(assignment: &Assignment, screen: Screen) -> String {
    let header = [
        ("CLUSTER", Side::Left),
        ("ACTION", Side::Left),
        ("MIN", Side::Right),
        ("MAX", Side::Right),
        ("FLOOR", Side::Right),
        ("REPLICAS", Side::Right),
        ("REASONS", Side::Left),
    ];
    let members = assignment.decision.members.iter();
    let taking_part: Vec<_> = members
        .filter(|member| !is_excluded(assignment, member))
        .collect();
    if taking_part.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = taking_part
        .iter()
        .map(|member| decided_row(member))
        .collect();
    let mut text = screen.table(header, &rows);
    for member in taking_part {
        let line = format!("{}: {}", member.name, member.sentence());
        let _infallible = writeln!(text, "{}", wrapped(&line, WIDTH, "  "));
    }
    let order = ordered(assignment);
    if order.len() > 1 {
        let line = format!("order of writes: {}", order.join(", "));
        let _infallible = writeln!(
            text,
            "{}",
            screen.paint(Paint::Dim, &wrapped(&line, WIDTH, "  "))
        );
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
        member
            .replicas
            .map_or_else(dash, |replicas| replicas.to_string()),
        reasons.chain(hold).collect::<Vec<_>>().join(", "),
    ]
}

/// The members that are written, in order.
pub(super) fn ordered(assignment: &Assignment) -> Vec<&str> {
    let decision = &assignment.decision;
    let order = decision
        .order
        .iter()
        .filter_map(|at| decision.members.get(*at));
    order.map(|member| member.name.as_str()).collect()
}

/// The unhealthy conditions.
fn conditions(assignment: &Assignment, screen: Screen) -> String {
    let mut text = String::new();
    for condition in &assignment.decision.conditions {
        let kind = condition.kind.as_str();
        let good = if kind == GOOD_IF_FALSE {
            Status::False
        } else {
            Status::True
        };
        if condition.status == good {
            continue;
        }
        let head = format!("{kind} {} {}", condition.status.as_str(), condition.reason);
        let message = wrapped(&condition.message, WIDTH - 2, "  ");
        let _infallible = writeln!(text, "{}\n  {message}", screen.paint(Paint::Warning, &head));
    }
    text
}

fn dash() -> String {
    "-".to_owned()
}

/// A number with at most two digits behind the point.
fn decimal(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
