//! The division of the bounds by the policy: a table whose columns depend on the kind of assignment.

use foretide_backtest::assign::Assignment;
use foretide_domain::{Replicas, words::counted};
use foretide_federate::{AssignmentKind, EffectivePreference, Entry, ShareStatus};

use crate::cli::output::{Paint, Screen, cell, dash, decimal};

/// The last division as text: the exact shares and the bounds that result from them.
pub fn budgets(assignment: &Assignment, screen: Screen) -> String {
    let entries: Vec<_> = candidates(assignment);
    if entries.is_empty() {
        return String::new();
    }
    let policy = assignment.policy();
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
        let left = counted(unassigned.get(), "replica");
        text.extend([format!("no cluster can take {left} of maxReplicas\n")]);
    }
    let how = how(policy.kind).iter();
    text.extend(how.map(|line| screen.paint(Paint::Dim, line) + "\n"));
    text
}

/// The clusters that have a share or may get one.
fn candidates(assignment: &Assignment) -> Vec<(&String, &Entry)> {
    let mut entries: Vec<_> = assignment
        .ledger
        .members
        .iter()
        .filter(|(_, entry)| {
            matches!(
                entry.share_status,
                ShareStatus::Candidate | ShareStatus::Pinned
            )
        })
        .collect();
    // The ledger lists its members by name, but these policies fill them in the order of their ranks.
    if matches!(
        assignment.policy().kind,
        AssignmentKind::Aggregated | AssignmentKind::Prioritized
    ) {
        entries.sort_by_key(|(_, entry)| entry.rank);
    }
    entries
}

fn title(assignment: &Assignment) -> String {
    let policy = assignment.policy();
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

/// Explanation of the policy's division, in lines.
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
    let header = ["CLUSTER", ">MIN", ">MAX"];
    screen.table(
        header,
        entries.iter().map(|(name, entry)| {
            [
                (*name).clone(),
                entry.min.to_string(),
                entry.max.to_string(),
            ]
        }),
    )
}

fn weighted(assignment: &Assignment, entries: &[(&String, &Entry)], screen: Screen) -> String {
    let header = [
        "CLUSTER", ">WEIGHT", ">WITHIN", ">OF MIN", ">MIN", ">OF MAX", ">MAX",
    ];
    let bounds = assignment.policy().bounds;
    let all: f64 = entries.iter().map(|(_, entry)| weight(entry)).sum();
    let share = |n: Replicas, entry: &Entry| match all {
        all if all > 0.0 => decimal(n.as_f64() * weight(entry) / all),
        _ => dash(),
    };
    screen.table(
        header,
        entries.iter().map(|(name, entry)| {
            [
                (*name).clone(),
                entry.weight.to_string(),
                within(assignment, name),
                share(bounds.min, entry),
                entry.min.to_string(),
                share(bounds.max, entry),
                entry.max.to_string(),
            ]
        }),
    )
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
const fn weight(entry: &Entry) -> f64 {
    entry.weight as f64
}

fn filled(assignment: &Assignment, entries: &[(&String, &Entry)], screen: Screen) -> String {
    let prioritized = assignment.policy().kind == AssignmentKind::Prioritized;
    let header = [
        "CLUSTER",
        if prioritized { ">PRIORITY" } else { ">ORDER" },
        ">CAPACITY",
        ">WITHIN",
        ">MIN",
        ">MAX",
    ];
    let most = assignment.policy().bounds.max;
    screen.table(
        header,
        entries.iter().map(|(name, entry)| {
            let priority = of(assignment, name).and_then(|standing| standing.priority);
            let place = if prioritized {
                priority
            } else {
                Some(i64::from(entry.rank) + 1)
            };
            [
                (*name).clone(),
                cell(place),
                entry.capacity.unwrap_or(most).to_string(),
                within(assignment, name),
                entry.min.to_string(),
                entry.max.to_string(),
            ]
        }),
    )
}

fn of(assignment: &Assignment, name: &str) -> Option<EffectivePreference> {
    let member = assignment
        .members
        .iter()
        .find(|member| member.profile.name == name)?;
    assignment.preference_of(&member.profile)
}

/// The thresholds of a cluster, if it has any.
fn within(assignment: &Assignment, name: &str) -> String {
    let most = assignment.policy().bounds.max;
    let standing = of(assignment, name);
    standing
        .filter(|standing| standing.min > Replicas::ZERO || standing.max < most)
        .map_or_else(dash, |standing| {
            format!("{}..{}", standing.min, standing.max)
        })
}
