//! The report of a plan: as text, and as JSON.

use foretide_backtest::{
    clock,
    plan::{Outlook, PlanReport},
};
use foretide_domain::{proposal::Unit, words::span};
use foretide_models::{Forecast, Prediction, Sample};
use jiff::{SignedDuration, Timestamp};

use crate::cli::{
    assign,
    decision::{self, Units, strategy_and_mode, target_and_bounds},
    output::{Paint, Screen},
    plot::{Plot, size_beside},
};
use foretide_api::status::{decision_status, window_status};

/// Span of the past that is drawn.
const PAST: SignedDuration = SignedDuration::from_hours(24);
/// Span of the forecast that is drawn, if the prediction window is shorter.
const AHEAD: SignedDuration = SignedDuration::from_hours(12);
/// Columns of the picture that its scale takes.
const SCALE: usize = 12;

/// The plan as text.
pub fn text(plan: &PlanReport, screen: Screen) -> String {
    let status = decision_status(&plan.decision);
    let mut blocks = vec![heading(plan, screen)];
    let outlooks = plan.situation.outlooks.iter();
    blocks.extend(outlooks.map(|outlook| picture(outlook, screen)));
    blocks.push(decision::proposals(
        &status,
        Units::of(&plan.situation.workload.metrics),
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
        "{}\n{}",
        decision::steps(&status, screen),
        screen.verdict(&plan.decision.message())
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
    let workload = &plan.situation.workload;
    let division = plan.division.as_ref();
    let mode = division.map_or_else(
        || workload.mode_in_force(),
        |division| division.policy().mode,
    );
    let strategy = strategy_and_mode(workload.strategy, mode);
    let title = format!("{}, {strategy}", target_and_bounds(workload));
    let about = format!("{}; times without a zone are UTC", clock(plan.situation.at));
    screen.title(plan.situation.autoscaler.name(), &title, &about)
}

fn picture(outlook: &Outlook, screen: Screen) -> String {
    let (at, made) = (outlook.at, made(outlook));
    let from = at.checked_sub(PAST).unwrap_or(Timestamp::MIN);
    let known = outlook.recording.until(at);
    let past: Vec<Sample> = known.iter().filter(|s| s.at >= from).copied().collect();
    // A direct forecast covers its own window, which the sentence names, too.
    let window = made
        .and_then(Forecast::direct)
        .map(|peak| peak.window)
        .or(outlook.window)
        .unwrap_or_default();
    let until = at.checked_add(window.max(AHEAD)).unwrap_or(Timestamp::MAX);
    let forecast: Vec<Prediction> = made
        .into_iter()
        .flat_map(Forecast::samples)
        .filter(|p| (at..=until).contains(&p.at))
        .collect();
    let unit = Unit::of_metric(&outlook.metric.identifier());
    let label = |value| scale(value, unit);
    let plot = Plot {
        history: &past,
        forecast: &forecast,
        now: Some(at),
        window: made.map(|_| window).unwrap_or_default(),
        ..Plot::new(&label)
    };
    let drawn = plot.render(size_beside(SCALE, screen), screen);
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

/// A value of the scale: short, since the legend names the unit.
fn scale(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => unit.amount(value),
        Unit::Cores | Unit::Percent | Unit::Plain => Unit::Plain.amount(value),
    }
}

/// Proposals that are absent, with their messages.
fn troubles(plan: &PlanReport, screen: Screen) -> String {
    let proposals = plan.decision.proposals.iter();
    let absent = proposals.filter(|p| !p.message.is_empty()).map(|it| {
        let line = format!("{} {}: {}", it.source, it.name, it.message);
        screen.line(Some(Paint::Warning), line)
    });
    let problems = plan.situation.workload.problems.iter();
    absent
        .chain(problems.map(|problem| screen.line(None, &problem.message)))
        .collect()
}

/// The assumptions and the notes on the forecasts, one line each.
fn assumptions(plan: &PlanReport, screen: Screen) -> String {
    let forecasts = plan.situation.outlooks.iter().filter_map(made);
    let notes = forecasts.flat_map(Forecast::notes).map(|note| {
        let line = format!("note on the forecast: {note}");
        screen.line(Some(Paint::Dim), line)
    });
    screen.assumed(&plan.situation.assumptions) + &notes.collect::<String>()
}
