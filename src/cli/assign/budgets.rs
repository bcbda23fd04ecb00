//! The division of the bounds by the policy: a table whose columns depend on the kind of assignment.

use foretide_backtest::assign::Assignment;
use foretide_domain::{Replicas, words::counted};
use foretide_federate::{AssignmentKind, EffectivePreference, Entry, Policy, ShareStatus};

use crate::cli::output::{Paint, Screen, cell, dash, decimal};

/// A cluster with its entry in the ledger.
type Row<'a> = (&'a String, &'a Entry);

/// Words and table of one policy.
pub struct Form {
    /// Text behind bounds that each cluster has.
    pub each: &'static str,
    title: fn(&Policy) -> String,
    table: fn(&Assignment, &[Row<'_>], Screen) -> String,
    /// Order of the rows; the ledger has its members by name.
    order: fn(&Entry) -> u32,
    /// Explanation of the division, in lines.
    how: &'static [&'static str],
}

const UNDIVIDED: Form = Form {
    each: " each",
    title: |_| "Duplicated: each cluster has the bounds of the spec".to_owned(),
    table: undivided,
    order: |_| 0,
    how: &[],
};

const WEIGHTED: Form = Form {
    each: "",
    title: |policy| {
        let (kind, bounds) = (policy.kind.as_str(), policy.bounds);
        let (min, max) = (bounds.min, bounds.max);
        format!("{kind}: minReplicas {min} and maxReplicas {max}, divided")
    },
    table: weighted,
    order: |_| 0,
    how: &[
        "shares are rounded down; the remainder goes to the highest weights;",
        "a minimum of 0 becomes 1, the least that an HPA accepts",
    ],
};

const AGGREGATED: Form = Form {
    table: |assignment, rows, screen| {
        filled(assignment, rows, screen, ">ORDER", |_, entry| {
            Some(i64::from(entry.rank) + 1)
        })
    },
    order: |entry| entry.rank,
    how: &[
        "clusters are filled to their capacity in order: first those that run the",
        "workload, then the largest; replicas beyond all capacities go to the first;",
        "a minimum of 0 becomes 1, the least that an HPA accepts",
    ],
    ..WEIGHTED
};

const PRIORITIZED: Form = Form {
    table: |assignment, rows, screen| {
        filled(assignment, rows, screen, ">PRIORITY", |standing, _| {
            standing?.priority
        })
    },
    order: |entry| entry.rank,
    how: &[
        "clusters are filled to their capacity, the highest priority first, within one",
        "priority by capacity; replicas beyond all capacities go to the highest;",
        "a minimum of 0 becomes 1, the least that an HPA accepts",
    ],
    ..WEIGHTED
};

/// The form for a policy.
pub const fn form(policy: &Policy) -> &'static Form {
    match policy.kind {
        AssignmentKind::Duplicated => &UNDIVIDED,
        AssignmentKind::StaticWeighted | AssignmentKind::DynamicWeighted => &WEIGHTED,
        AssignmentKind::Aggregated => &AGGREGATED,
        AssignmentKind::Prioritized => &PRIORITIZED,
    }
}

/// The last division as text: the exact shares and the bounds that result from them.
pub fn budgets(assignment: &Assignment, screen: Screen) -> String {
    let policy = assignment.policy();
    let form = form(policy);
    // The clusters that have a share or may get one.
    let mut rows: Vec<_> = assignment
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
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by_key(|(_, entry)| (form.order)(entry));
    let title = screen.paint(Paint::Strong, &(form.title)(policy));
    let mut text = format!("{title}\n{}", (form.table)(assignment, &rows, screen));
    let unassigned = assignment.decision.unassigned;
    if unassigned > Replicas::ZERO {
        let left = counted(unassigned.get(), "replica");
        text.extend([format!("no cluster can take {left} of maxReplicas\n")]);
    }
    let how = form.how.iter();
    text.extend(how.map(|line| screen.paint(Paint::Dim, line) + "\n"));
    text
}

fn undivided(_: &Assignment, entries: &[Row<'_>], screen: Screen) -> String {
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

fn weighted(assignment: &Assignment, entries: &[Row<'_>], screen: Screen) -> String {
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

/// The table of a policy that fills clusters in an order; `place` is that of a cluster, by its preference.
fn filled(
    assignment: &Assignment,
    entries: &[Row<'_>],
    screen: Screen,
    order: &str,
    place: fn(Option<EffectivePreference>, &Entry) -> Option<i64>,
) -> String {
    let header = ["CLUSTER", order, ">CAPACITY", ">WITHIN", ">MIN", ">MAX"];
    let most = assignment.policy().bounds.max;
    screen.table(
        header,
        entries.iter().map(|(name, entry)| {
            [
                (*name).clone(),
                cell(place(of(assignment, name), entry)),
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
