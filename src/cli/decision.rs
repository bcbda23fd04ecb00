//! A decision for people: the table of proposals, the steps to the result, the cron windows.
//!
//! The input is `status.decision`, so that a plan made offline and a decision of a running controller look the same.

use std::collections::BTreeMap;

use foretide_backtest::clock;
use foretide_crds::{DecisionStatus, ProposalStatus, WindowStatus};
use foretide_domain::{
    cron::Zone,
    hpa::{MetricSpec, Target},
    proposal::{Source, Unit},
    workload::{Mode, Strategy, Workload},
};
use jiff::Timestamp;

use super::output::{Paint, Screen, cell};

/// The time zones of cron windows, by the names of the windows.
pub type Zones = BTreeMap<String, Zone>;

/// The units of metrics, by their identifiers.
#[derive(Clone, Copy, Debug)]
pub struct Units<'a> {
    metrics: &'a [MetricSpec],
}

// === impl Units ===

impl<'a> Units<'a> {
    /// The units of the metrics of a spec.
    pub const fn of(metrics: &'a [MetricSpec]) -> Self {
        Self { metrics }
    }

    fn unit(self, proposal: &ProposalStatus) -> Unit {
        let metric = self
            .metrics
            .iter()
            .find(|metric| metric.identifier() == proposal.name);
        match (proposal.source, metric.map(MetricSpec::target)) {
            (Source::Observed, Some(Target::Utilization(_))) => Unit::Percent,
            _ => Unit::of_metric(&proposal.name),
        }
    }
}

/// The target of a workload, and the replicas that are allowed.
pub fn target_and_bounds(workload: &Workload) -> String {
    let (target, bounds) = (&workload.target, workload.bounds);
    let (min, max) = (bounds.min, bounds.max);
    format!("{} {}, {min} to {max} replicas", target.kind, target.name)
}

/// The strategy and, where something is written, the mode in force.
pub const fn strategy_and_mode(strategy: Strategy, mode: Mode) -> &'static str {
    match (strategy, mode) {
        (Strategy::Preview, _) => "Preview",
        (Strategy::Auto, Mode::Delegated) => "Auto, Delegated",
        (Strategy::Auto, Mode::Direct) => "Auto, Direct",
        (Strategy::Auto, Mode::Metric) => "Auto, Metric",
    }
}

/// The proposals, the winner's row strong.
pub fn proposals(decision: &DecisionStatus, units: Units<'_>, screen: Screen) -> String {
    let header = ["SOURCE", "NAME", ">REPLICAS", ">VALUE", ">TARGET", "REASON"];
    let proposals = decision.proposals.as_deref().unwrap_or_default();
    if proposals.is_empty() {
        return String::new();
    }
    screen.table(header, proposals.iter().map(|it| row(it, units)))
}

fn row(proposal: &ProposalStatus, units: Units<'_>) -> [String; 6] {
    let unit = units.unit(proposal);
    let target = proposal.target.as_ref().map(|target| {
        match (proposal.source, unit) {
            // The value in the other column has named the unit.
            (Source::Forecast, Unit::Cores) => amount(target, Unit::Plain) + "/replica",
            (Source::Forecast, _) => amount(target, unit) + "/replica",
            _ => amount(target, unit),
        }
    });
    let value = proposal.value.as_ref().map(|value| amount(value, unit));
    [
        proposal.source.to_string(),
        proposal.name.clone(),
        cell(proposal.replicas),
        cell(value),
        cell(target),
        proposal.reason.clone().unwrap_or_default(),
    ]
}

/// A number of a status with its unit; another text as it is.
fn amount(text: &str, unit: Unit) -> String {
    text.parse()
        .map_or_else(|_| text.to_owned(), |value: f64| unit.amount(value))
}

/// From the current count to the desired one, in the order in which each step is taken.
pub fn steps(decision: &DecisionStatus, screen: Screen) -> String {
    let arrow = if screen.unicode { " → " } else { " -> " };
    let changes = [
        ("highest proposal", decision.maximum),
        ("stabilized", decision.stabilized),
        ("limited", decision.limited),
        ("desired", decision.desired),
    ];
    let current = ("current", decision.current_replicas);
    let steps = std::iter::once(current).chain(changes);
    let steps = steps.filter_map(|(name, count)| Some(format!("{name} {}", count?)));
    let mut lines = steps.collect::<Vec<_>>().join(arrow);
    let mut counts = changes.iter().filter_map(|(_, count)| *count);
    let first = counts.next();
    let is_changed = counts.any(|count| Some(count) != first);
    let floor = decision
        .floor
        .map(|floor| format!("floor of {} {floor}", Source::of_floor()));
    let limit = decision
        .limit
        .as_ref()
        .filter(|_| is_changed)
        .map(|limit| format!("changed by {}", screen.paint(Paint::Warning, limit)));
    let rest: Vec<_> = [floor, limit].into_iter().flatten().collect();
    if !rest.is_empty() {
        lines.extend([format!("\n{}", rest.join(", "))]);
    }
    lines
}

/// The cron windows with their next changes, in the zone that `zones` has for the name; else in UTC.
pub fn windows(windows: &[WindowStatus], zones: &Zones, screen: Screen) -> String {
    if windows.is_empty() {
        return String::new();
    }
    screen.table(
        ["WINDOW", "STATE", "UNTIL"],
        windows.iter().map(|window| {
            let until = match (&window.next_transition, zones.get(&window.name)) {
                (None, _) => "further notice".to_owned(),
                (Some(until), Some(zone)) => clock_in(zone, until.0),
                (Some(until), None) => clock(until.0),
            };
            let state = if window.active { "open" } else { "closed" };
            [window.name.clone(), state.to_owned(), until]
        }),
    )
}

/// An instant to the minute, as the clocks of a zone show it.
fn clock_in(zone: &Zone, at: Timestamp) -> String {
    let local = at.to_zoned(zone.rules().clone());
    format!("{} {}", local.strftime("%a %F %H:%M"), zone.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: Screen = Screen {
        color: false,
        unicode: true,
        size: None,
    };

    #[test]
    fn a_limit_is_shown_where_a_step_changed_the_count_only() {
        let decision = |maximum, desired| DecisionStatus {
            current_replicas: Some(5),
            maximum,
            stabilized: Some(5),
            limited: Some(5),
            desired: Some(desired),
            limit: Some("TooManyReplicas".into()),
            ..DecisionStatus::default()
        };
        for (decision, want) in [
            (
                decision(Some(5), 4),
                "current 5 → highest proposal 5 → stabilized 5 → limited 5 → desired 4\nchanged by TooManyReplicas",
            ),
            (
                decision(Some(5), 5),
                "current 5 → highest proposal 5 → stabilized 5 → limited 5 → desired 5",
            ),
            (
                decision(None, 5),
                "current 5 → stabilized 5 → limited 5 → desired 5",
            ),
        ] {
            assert_eq!(steps(&decision, SCREEN), want);
        }
    }
}
