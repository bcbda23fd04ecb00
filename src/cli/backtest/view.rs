//! The report of a back-test: as text, as JSON, and as CSV with one row per minute.

use std::fmt::Write as _;

use foretide_backtest::{
    clock, report::BacktestReport, runs::RunResult, setup::Setup, sweep::SweepRun, worst,
};
use foretide_domain::{
    proposal::Unit,
    sim::{MINUTE, Minute, Score},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Panel, legend};
use crate::cli::output::{Paint, Screen, Side, Size, dash, wrapped};

/// Rows of each picture.
const ROWS: usize = 8;
/// Columns of each picture that its scale takes.
const SCALE: usize = 8;
/// Raises the scale so that the top one of its eight rows stays free.
const HEADROOM: f64 = 8.0 / 7.0;

/// The report as text.
pub fn text(report: &BacktestReport, screen: Screen) -> String {
    let (title, about) = heading(report);
    let mut blocks = vec![
        format!(
            "{}  {title}\n{}\n",
            screen.paint(Paint::Strong, report.setup.autoscaler.name()),
            screen.paint(Paint::Dim, &about)
        ),
        pictures(report, screen),
        table(report, screen),
    ];
    if let Some(plain) = &report.plain {
        let words = report.ours.score.verdict(&plain.score);
        blocks.push(format!(
            "{}\n",
            screen.paint(Paint::Strong, &wrapped(&words, screen.width(), ""))
        ));
    }
    blocks.push(sweep(report, screen));
    blocks.push(worst_minutes(report, screen));
    blocks.push(warnings(report, screen));
    blocks.push(outcomes(report, screen));
    blocks.push(assumptions(report, screen));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

/// The title with the subject of the report, and a line with its span.
pub fn heading(report: &BacktestReport) -> (String, String) {
    let setup = &report.setup;
    let workload = &setup.workload;
    let title = format!(
        "{} {}, {} to {} replicas",
        workload.target.kind, workload.target.name, workload.bounds.min, workload.bounds.max,
    );
    (title, heading_span(setup))
}

/// The evaluated span in words.
pub fn heading_span(setup: &Setup) -> String {
    let span = setup.until.duration_since(setup.from);
    format!(
        "{} from {}, minute by minute",
        days(span.as_secs_f64()),
        clock(setup.from),
    )
}

fn days(seconds: f64) -> String {
    let (count, unit) = match seconds / 86_400.0 {
        days if days >= 2.0 => (days, "days"),
        days => (days * 24.0, "hours"),
    };
    format!("{} {unit}", (count * 10.0).round() / 10.0)
}

/// One picture per run, on one scale.
fn pictures(report: &BacktestReport, screen: Screen) -> String {
    let mut text = format!("{}\n", legend(&report.ours, screen.width(), screen));
    let size = Size {
        columns: screen.width() - SCALE,
        rows: ROWS,
    };
    for result in report.results() {
        let _infallible = writeln!(text, "\n{}", screen.paint(Paint::Strong, result.name));
        text.push_str(&panel(report, result).draw(size, screen));
    }
    text
}

/// The picture of one run, on the scale of all.
pub fn panel<'a>(report: &'a BacktestReport, result: &'a RunResult) -> Panel<'a> {
    Panel {
        minutes: &result.minutes,
        forecast: &result.forecasts,
        span: (report.setup.from, report.setup.until),
        top: top(report.results().flat_map(|result| &result.minutes)),
    }
}

/// The top of the scale: one row above the highest needed or serving count, rounded up to an even number, so that half
/// of it is a whole number.
fn top<'a>(minutes: impl Iterator<Item = &'a Minute>) -> f64 {
    let needed = |minute: &Minute| minute.load.map_or(0.0, |load| load.replicas());
    let highest = minutes.map(|minute| needed(minute).max(minute.ready.as_f64()));
    let above = highest.fold(1.0, f64::max) * HEADROOM;
    (above / 2.0).ceil() * 2.0
}

/// One row per run.
fn table(report: &BacktestReport, screen: Screen) -> String {
    let header = [
        ("", Side::Left),
        ("UNDER-PROVISIONED", Side::Right),
        ("", Side::Right),
        ("REPLICA-HOURS", Side::Right),
        ("SCALE ACTIONS", Side::Right),
    ];
    let row = |result: &RunResult| {
        let score = &result.score;
        [
            result.name.to_owned(),
            format!("{} min", score.under),
            format!("{:.2} %", score.under_percent()),
            format!("{:.1}", score.replica_hours()),
            score.actions.to_string(),
        ]
    };
    let rows: Vec<_> = report.results().map(row).collect();
    let mut text = screen.table(header, &rows);
    // With a baseline, the verdict reports the skipped minutes.
    let skipped = report
        .ours
        .score
        .not_evaluated()
        .filter(|_| report.plain.is_none());
    if let Some(skipped) = skipped {
        let _infallible = writeln!(text, "{skipped}");
    }
    text
}

/// One row per quantile, from the cheapest to the safest.
fn sweep(report: &BacktestReport, screen: Screen) -> String {
    if report.sweep.is_empty() {
        return String::new();
    }
    let header = [
        ("QUANTILE", Side::Right),
        ("UNDER-PROVISIONED", Side::Right),
        ("", Side::Right),
        ("REPLICA-HOURS", Side::Right),
        ("BESIDE THE PLAIN HPA", Side::Right),
    ];
    let row = |run: &SweepRun| {
        let score = &run.score;
        let plain = report.plain.as_ref();
        [
            run.quantile.to_string(),
            format!("{} min", score.under),
            format!("{:.2} %", score.under_percent()),
            format!("{:.1}", score.replica_hours()),
            plain.map_or_else(dash, |plain| {
                format!("{:+.1} %", score.more_percent(&plain.score))
            }),
        ]
    };
    let rows: Vec<_> = report.sweep.iter().map(row).collect();
    screen.table(header, &rows)
}

fn worst_minutes(report: &BacktestReport, screen: Screen) -> String {
    let mut text = String::new();
    for result in report.results() {
        let Some(minute) = &result.score.worst else {
            let _infallible = writeln!(text, "{}: never under-provisioned", result.name);
            continue;
        };
        let worst = worst_load(report, minute).zip(minute.needed());
        let Some(((metric, demand), needed)) = worst else {
            continue;
        };
        let line = format!(
            "{}, worst minute: {}, {} of {metric} needed {needed} replicas, {} served ({} requested)",
            result.name,
            clock(minute.at),
            Unit::of_metric(&metric).amount(demand),
            minute.ready,
            minute.asked,
        );
        let _infallible = writeln!(text, "{}", wrapped(&line, screen.width(), "  "));
    }
    text
}

/// The metric that needed the most replicas in a minute, and its demand.
pub fn worst_load(report: &BacktestReport, minute: &Minute) -> Option<(String, f64)> {
    let load = minute.load?;
    let recorded = report.setup.environment.metrics.get(load.track)?;
    Some((recorded.metric.identifier(), load.demand))
}

/// The reasons for missing forecasts and their minutes, and what is left out of the spec.
pub fn absences(report: &BacktestReport) -> Vec<String> {
    let all = report.ours.score.minutes;
    let reasons = report.ours.score.absent.iter();
    let absent = reasons.map(|((metric, reason), missing)| {
        format!(
            "no forecast of {metric} for {} of {all} min: {reason}: {}",
            missing.minutes, missing.message
        )
    });
    let problems = report.setup.workload.problems.iter();
    absent
        .chain(problems.map(|problem| problem.message.clone()))
        .collect()
}

fn warnings(report: &BacktestReport, screen: Screen) -> String {
    let mut text = String::new();
    for line in absences(report) {
        let line = wrapped(&line, screen.width(), "  ");
        let _infallible = writeln!(text, "{}", screen.paint(Paint::Warning, &line));
    }
    text
}

fn outcomes(report: &BacktestReport, screen: Screen) -> String {
    let mut text = String::new();
    for outcome in &report.outcomes {
        let paint = if outcome.exceeded {
            Paint::Error
        } else {
            Paint::Dim
        };
        let _infallible = writeln!(text, "{}", screen.paint(paint, &outcome.to_string()));
    }
    text
}

fn assumptions(report: &BacktestReport, screen: Screen) -> String {
    let mut text = String::new();
    for assumption in &report.setup.assumptions {
        let line = wrapped(&format!("assumed: {assumption}"), screen.width(), "  ");
        let _infallible = writeln!(text, "{}", screen.paint(Paint::Dim, &line));
    }
    text
}

/// The report as JSON.
pub fn json(report: &BacktestReport) -> Value {
    let setup = &report.setup;
    json!({
        "metadata": { "name": setup.autoscaler.name(), "namespace": setup.autoscaler.metadata().namespace },
        "from": setup.from.to_string(),
        "until": setup.until.to_string(),
        "startUpSeconds": setup.environment.start_up.as_secs(),
        "bounds": { "min": setup.workload.bounds.min.get(), "max": setup.workload.bounds.max.get() },
        "candidates": report.results().map(|result| run_json(report, result)).collect::<Vec<_>>(),
        "difference": report.plain.as_ref().map(|plain| json!({
            "underProvisionedMinutes": i64::from(report.ours.score.under) - i64::from(plain.score.under),
            "replicaHoursPercent": report.ours.score.more_percent(&plain.score),
            "message": report.ours.score.verdict(&plain.score),
        })),
        "sweep": report.sweep.iter().map(|run| sweep_json(report, run)).collect::<Vec<_>>(),
        "failIf": report.outcomes.iter().map(|outcome| json!({
            "bound": outcome.bound.to_string(),
            "value": outcome.value,
            "exceeded": outcome.exceeded,
        })).collect::<Vec<_>>(),
        "assumptions": setup.assumptions,
    })
}

fn run_json(report: &BacktestReport, result: &RunResult) -> Value {
    let score = &result.score;
    let minutes = worst::minutes(&result.minutes);
    let mut run = score_json(score);
    let more = json!({
        "name": result.name,
        "worst": score.worst.as_ref().map(|minute| worst_json(report, minute)),
        "worstMinutes": minutes.iter().map(|minute| worst_json(report, minute)).collect::<Vec<_>>(),
        "worstHours": worst::hours(&result.minutes).iter().map(|hour| json!({
            "at": hour.at.to_string(),
            "underProvisionedMinutes": hour.minutes,
            "missingReplicaMinutes": hour.missing,
            "neededReplicas": hour.needed.get(),
            "readyReplicas": hour.ready.get(),
        })).collect::<Vec<_>>(),
        "withoutForecast": score.absent.iter().map(|((metric, reason), missing)| json!({
            "metric": metric,
            "reason": reason,
            "minutes": missing.minutes,
            "message": missing.message,
        })).collect::<Vec<_>>(),
    });
    add(&mut run, more);
    run
}

fn sweep_json(report: &BacktestReport, run: &SweepRun) -> Value {
    let plain = report.plain.as_ref();
    let mut json = score_json(&run.score);
    let more = json!({
        "quantile": run.quantile,
        "replicaHoursPercent": plain.map(|plain| run.score.more_percent(&plain.score)),
    });
    add(&mut json, more);
    json
}

pub fn score_json(score: &Score) -> Value {
    json!({
        "minutes": score.minutes,
        "unknownMinutes": score.unknown,
        "underProvisionedMinutes": score.under,
        "underProvisionedPercent": score.under_percent(),
        "missingPercent": score.missing_percent(),
        "replicaHours": score.replica_hours(),
        "neededReplicaHours": score.needed * MINUTE.as_secs_f64() / 3600.0,
        "scaleActions": score.actions,
    })
}

/// Adds the members of one object to another.
fn add(object: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(members)) = (object, more) {
        into.extend(members);
    }
}

fn worst_json(report: &BacktestReport, minute: &Minute) -> Value {
    let load = minute.load;
    let recorded = load.and_then(|load| report.setup.environment.metrics.get(load.track));
    json!({
        "at": minute.at.to_string(),
        "metric": recorded.map(|recorded| recorded.metric.identifier()),
        "demand": load.map(|load| load.demand),
        "targetPerReplica": load.map(|load| load.target),
        "neededReplicas": minute.needed().map(foretide_domain::Replicas::get),
        "readyReplicas": minute.ready.get(),
        "askedReplicas": minute.asked.get(),
    })
}

/// One row per minute; unknown values are empty.
pub fn csv(report: &BacktestReport) -> String {
    let metrics = &report.setup.environment.metrics;
    let mut text = "time".to_owned();
    for recorded in metrics {
        let _infallible = write!(text, ",{}", recorded.metric.identifier());
    }
    text.push_str(",needed,foreseen,foretide_asked,foretide_ready");
    text.push_str(if report.plain.is_some() {
        ",hpa_asked,hpa_ready\n"
    } else {
        "\n"
    });
    let plain = report.plain.as_ref().map(|plain| plain.minutes.as_slice());
    for (index, minute) in report.ours.minutes.iter().enumerate() {
        let end = minute.at.checked_add(MINUTE).unwrap_or(Timestamp::MAX);
        let _infallible = write!(text, "{}", minute.at);
        for recorded in metrics {
            cell(&mut text, recorded.recording.minute_to(end));
        }
        cell(&mut text, minute.load.map(|load| load.replicas()));
        cell(&mut text, minute.forecast_replicas);
        let _infallible = write!(text, ",{},{}", minute.asked, minute.ready);
        if let Some(plain) = plain.and_then(|plain| plain.get(index)) {
            let _infallible = write!(text, ",{},{}", plain.asked, plain.ready);
        }
        text.push('\n');
    }
    text
}

fn cell(text: &mut String, value: Option<f64>) {
    text.push(',');
    if let Some(value) = value {
        let _infallible = write!(text, "{}", (value * 1e6).round() / 1e6);
    }
}
