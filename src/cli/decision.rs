//! A decision for people: the table of proposals, the steps to the result, the cron windows.
//!
//! It reads what `status.decision` holds, so that a plan made offline and a decision of a running
//! controller look the same.

use std::fmt::Write as _;

use foretide_crds::{DecisionStatus, ProposalSource, ProposalStatus, WindowStatus};
use foretide_domain::{
    hpa::{MetricSpec, Target},
    proposal::Unit,
};
use jiff::Timestamp;

use super::output::{Paint, Screen, Side};

/// Columns that text is wrapped to.
pub(super) const WIDTH: usize = 80;

/// The units of metrics, by their identifiers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units<'a> {
    metrics: &'a [MetricSpec],
}

// === impl Units ===

impl<'a> Units<'a> {
    /// The units of the metrics of a spec.
    pub(super) const fn of(metrics: &'a [MetricSpec]) -> Self {
        Self { metrics }
    }

    fn unit(self, proposal: &ProposalStatus) -> Unit {
        let metric = self
            .metrics
            .iter()
            .find(|metric| metric.identifier() == proposal.name);
        match (proposal.source, metric.map(MetricSpec::target)) {
            (ProposalSource::Observed, Some(Target::Utilization(_))) => Unit::Percent,
            (ProposalSource::Cron, _) => Unit::Plain,
            _ => Unit::of_metric(&proposal.name),
        }
    }
}

/// The proposals, the winner's row strong.
pub(super) fn proposals(decision: &DecisionStatus, units: Units<'_>, screen: Screen) -> String {
    let header = [
        ("SOURCE", Side::Left),
        ("NAME", Side::Left),
        ("REPLICAS", Side::Right),
        ("VALUE", Side::Right),
        ("TARGET", Side::Right),
        ("REASON", Side::Left),
    ];
    let proposals = decision.proposals.as_deref().unwrap_or_default();
    if proposals.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = proposals
        .iter()
        .map(|proposal| row(proposal, units))
        .collect();
    screen.table(header, &rows)
}

fn row(proposal: &ProposalStatus, units: Units<'_>) -> [String; 6] {
    let unit = units.unit(proposal);
    let shown =
        |text: Option<&String>, unit: Unit| match text.map(|text| (text.parse::<f64>(), text)) {
            Some((Ok(value), _)) => unit.amount(value),
            Some((Err(_), text)) => text.clone(),
            None => "-".to_owned(),
        };
    let target = match (proposal.source, unit) {
        (ProposalSource::Forecast, _) if proposal.target.is_none() => "-".to_owned(),
        // The value beside it has named the unit.
        (ProposalSource::Forecast, Unit::Cores) => {
            format!("{}/replica", shown(proposal.target.as_ref(), Unit::Plain))
        }
        (ProposalSource::Forecast, _) => {
            format!("{}/replica", shown(proposal.target.as_ref(), unit))
        }
        _ => shown(proposal.target.as_ref(), unit),
    };
    [
        source(proposal.source).to_owned(),
        proposal.name.clone(),
        proposal
            .replicas
            .map_or_else(|| "-".to_owned(), |count| count.to_string()),
        shown(proposal.value.as_ref(), unit),
        target,
        proposal.reason.clone().unwrap_or_default(),
    ]
}

const fn source(source: ProposalSource) -> &'static str {
    match source {
        ProposalSource::Observed => "observed",
        ProposalSource::Forecast => "forecast",
        ProposalSource::Cron => "cron",
    }
}

/// From the current count to the desired one, in the order in which each step is taken.
pub(super) fn steps(decision: &DecisionStatus, screen: Screen) -> String {
    let arrow = if screen.unicode { " → " } else { " -> " };
    let step = |name: &str, count: Option<i32>| count.map(|count| format!("{name} {count}"));
    let steps = [
        step("current", decision.current_replicas),
        step("maximum", decision.maximum),
        step("stabilized", decision.stabilized),
        step("limited", decision.limited),
        step("desired", decision.desired),
    ];
    let mut lines = steps.into_iter().flatten().collect::<Vec<_>>().join(arrow);
    let floor = decision
        .floor
        .map(|floor| format!("floor of forecast and cron {floor}"));
    let limit = decision
        .limit
        .as_ref()
        .map(|limit| format!("changed by {}", screen.paint(Paint::Warning, limit)));
    let rest: Vec<_> = [floor, limit].into_iter().flatten().collect();
    if !rest.is_empty() {
        let _infallible = write!(lines, "\n{}", rest.join(", "));
    }
    lines
}

/// The cron windows, and when each changes next.
pub(super) fn windows(windows: &[WindowStatus], screen: Screen) -> String {
    let header = [
        ("WINDOW", Side::Left),
        ("STATE", Side::Left),
        ("UNTIL", Side::Left),
    ];
    let rows: Vec<_> = windows
        .iter()
        .map(|window| {
            let until = window.next_transition.as_ref();
            [
                window.name.clone(),
                if window.active { "open" } else { "closed" }.to_owned(),
                until.map_or_else(|| "further notice".to_owned(), |until| clock(until.0)),
            ]
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        screen.table(header, &rows)
    }
}

/// An instant to the minute; times are UTC.
pub(super) fn clock(at: Timestamp) -> String {
    at.strftime("%a %F %H:%M UTC").to_string()
}
