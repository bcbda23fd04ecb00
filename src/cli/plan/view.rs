//! The report of a plan: as text, and as JSON.

use std::fmt::Write as _;

use foretide_backtest::{
    assign::json as division_json,
    clock,
    plan::{Outlook, PlanReport},
};
use foretide_domain::{
    proposal::Unit,
    words::span,
    workload::{Mode, Strategy},
};
use foretide_models::{Forecast, Prediction, Sample};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cli::{
    assign,
    decision::{self, Units},
    output::{Paint, Screen, Size, wrapped},
    plot::Plot,
};
use foretide_api::status::{decision_status, window_status};

/// Span of the past that is drawn.
const PAST: SignedDuration = SignedDuration::from_hours(24);
/// Span of the forecast that is drawn, if the prediction window is shorter.
const AHEAD: SignedDuration = SignedDuration::from_hours(12);
/// Rows of the picture.
const ROWS: usize = 8;
/// Columns of the picture that its scale takes.
const SCALE: usize = 12;

/// The plan as text.
pub fn text(plan: &PlanReport, screen: Screen) -> String {
    let status = decision_status(&plan.decision);
    let mut blocks = vec![heading(plan, screen)];
    blocks.extend(
        plan.outlooks
            .iter()
            .map(|outlook| picture(plan, outlook, screen)),
    );
    blocks.push(decision::proposals(
        &status,
        Units::of(&plan.workload.metrics),
        screen,
    ));
    let windows = plan.decision.windows.iter();
    let zones = windows.map(|window| (window.name.clone(), window.zone.clone()));
    blocks.push(decision::windows(
        &window_status(&plan.decision),
        &zones.collect(),
        screen,
    ));
    blocks.push(format!(
        "{}\n{}\n",
        decision::steps(&status, screen),
        screen.paint(
            Paint::Strong,
            &wrapped(&plan.decision.message(), screen.width(), "")
        )
    ));
    if let Some(division) = &plan.division {
        blocks.extend(assign::division(division, screen));
    }
    blocks.push(troubles(plan, screen));
    blocks.push(assumptions(plan, screen));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

fn heading(plan: &PlanReport, screen: Screen) -> String {
    let workload = &plan.workload;
    let division = plan.division.as_ref();
    let mode = division.map_or_else(
        || workload.mode_in_force(),
        |division| division.policy().mode,
    );
    let strategy = match (workload.strategy, mode) {
        (Strategy::Preview, _) => "Preview",
        (Strategy::Auto, Mode::Delegated) => "Auto, Delegated",
        (Strategy::Auto, Mode::Direct) => "Auto, Direct",
        (Strategy::Auto, Mode::Metric) => "Auto, Metric",
    };
    format!(
        "{}  {} {}, {} to {} replicas, {strategy}\n{}\n",
        screen.paint(Paint::Strong, plan.autoscaler.name()),
        workload.target.kind,
        workload.target.name,
        workload.bounds.min,
        workload.bounds.max,
        screen.paint(
            Paint::Dim,
            &format!("{}; times without a zone are UTC", clock(plan.at))
        )
    )
}

fn picture(plan: &PlanReport, outlook: &Outlook, screen: Screen) -> String {
    let from = plan.at.checked_sub(PAST).unwrap_or(Timestamp::MIN);
    let known = outlook.recording.until(plan.at).iter();
    let past: Vec<Sample> = known.filter(|s| s.at >= from).copied().collect();
    let configured = plan.workload.prediction.as_ref().map(|p| p.window);
    // A direct forecast covers its own window, which the sentence names, too.
    let direct = made(outlook).and_then(Forecast::direct);
    let window = direct.map(|peak| peak.window).or(configured);
    let window = window.unwrap_or_default();
    let until = plan
        .at
        .checked_add(window.max(AHEAD))
        .unwrap_or(Timestamp::MAX);
    let forecast = made(outlook)
        .map(|forecast| path(forecast, plan.at, until))
        .unwrap_or_default();
    let unit = Unit::of_metric(&outlook.metric.identifier());
    let label = |value| scale(value, unit);
    let plot = Plot {
        history: &past,
        forecast: &forecast,
        now: Some(plan.at),
        window: made(outlook).map(|_| window).unwrap_or_default(),
        ..Plot::new(&label)
    };
    let size = Size {
        columns: screen.width() - SCALE,
        rows: ROWS,
    };
    let drawn = plot.render(size, screen);
    if drawn.is_empty() {
        drawn
    } else {
        format!("{}\n{drawn}", legend(outlook, window, screen))
    }
}

/// The legend in two lines: the curves, and the meaning of the signs.
fn legend(outlook: &Outlook, window: SignedDuration, screen: Screen) -> String {
    let metric = outlook.metric.identifier();
    let (area, line, strip) = if screen.unicode {
        ("⣿", "⠒⠒", "━━")
    } else {
        ("::", "**", "==")
    };
    let mut signs = vec![format!("{area} history")];
    if made(outlook).is_some() {
        signs.push(format!("{} forecast", screen.paint(Paint::Future, line)));
    }
    if let Some(peak) = outlook.peak() {
        let peak = Unit::of_metric(&metric).amount(peak);
        signs.push(format!(
            "{} next {}: peak {peak}",
            screen.paint(Paint::Future, strip),
            span(window)
        ));
    }
    format!("{metric}, the total of all pods\n{}", signs.join("   "))
}

fn made(outlook: &Outlook) -> Option<&Forecast> {
    outlook.forecast.as_ref()?.as_ref().ok()
}

fn path(forecast: &Forecast, from: Timestamp, until: Timestamp) -> Vec<Prediction> {
    let within = forecast.samples().filter(|p| p.at >= from && p.at <= until);
    within.collect()
}

/// A value of the scale: short, since the legend names the unit.
fn scale(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => unit.amount(value),
        Unit::Cores | Unit::Percent | Unit::Plain => Unit::Plain.amount(value),
    }
}

/// Proposals that are absent, with their messages.
fn troubles(plan: &PlanReport, screen: Screen) -> String {
    let absent = plan
        .decision
        .proposals
        .iter()
        .filter(|p| !p.message.is_empty());
    let mut text = String::new();
    for proposal in absent {
        let line = format!(
            "{} {}: {}",
            proposal.source, proposal.name, proposal.message
        );
        let line = screen.paint(Paint::Warning, &wrapped(&line, screen.width(), "  "));
        let _infallible = writeln!(text, "{line}");
    }
    for problem in &plan.workload.problems {
        let _infallible = writeln!(text, "{}", wrapped(&problem.message, screen.width(), "  "));
    }
    text
}

/// The assumptions and the notes on the forecasts, one line each.
fn assumptions(plan: &PlanReport, screen: Screen) -> String {
    let notes = plan
        .outlooks
        .iter()
        .filter_map(made)
        .flat_map(Forecast::notes);
    let notes = notes.map(|note| format!("note on the forecast: {note}"));
    let assumed = plan
        .assumptions
        .iter()
        .map(|assumption| format!("assumed: {assumption}"));
    let mut text = String::new();
    for line in assumed.chain(notes) {
        let _infallible = writeln!(
            text,
            "{}",
            screen.paint(Paint::Dim, &wrapped(&line, screen.width(), "  "))
        );
    }
    text
}

/// The plan as JSON: `decision` and `windows` as in an autoscaler's status.
pub fn json(plan: &PlanReport) -> Value {
    let (autoscaler, workload) = (&plan.autoscaler, &plan.workload);
    json!({
        "metadata": { "name": autoscaler.name(), "namespace": autoscaler.metadata().namespace },
        "at": plan.at.to_string(),
        "bounds": { "min": workload.bounds.min.get(), "max": workload.bounds.max.get() },
        "decision": decision_status(&plan.decision),
        "windows": window_status(&plan.decision),
        "forecasts": plan.outlooks.iter().filter_map(outlook_json).collect::<Vec<_>>(),
        "problems": workload.problems.iter().map(|problem| {
            json!({ "reason": problem.reason.as_str(), "message": problem.message })
        }).collect::<Vec<_>>(),
        "assumptions": plan.assumptions,
        "division": plan.division.as_ref().map(division_json),
    })
}

fn outlook_json(outlook: &Outlook) -> Option<Value> {
    let metric = outlook.metric.identifier();
    Some(match outlook.forecast.as_ref()? {
        Err(refused) => {
            json!({ "metric": metric, "reason": refused.reason.as_str(), "message": refused.message })
        }
        Ok(forecast) => json!({
            "metric": metric,
            "method": forecast.method(),
            "peak": outlook.peak(),
            "notes": forecast.notes().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "samples": forecast.samples().map(|p| json!({
                "timestamp": p.at.as_second(),
                "value": p.value,
                "upper": p.upper,
            })).collect::<Vec<_>>(),
        }),
    })
}
