//! The report of a back-test: as text, as JSON, and as CSV with one row per minute.

use std::fmt::Write as _;

use foretide_domain::{
    proposal::Unit,
    sim::{MINUTE, Minute, Score},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{BacktestReport, Panel, RunResult, legend, threshold::more_percent};
use crate::cli::{
    decision::clock,
    output::{Paint, Screen, Side, Size, wrapped},
};

/// How high each picture is.
const ROWS: usize = 8;
/// What each picture leaves of the width for its scale.
const SCALE: usize = 8;
/// Raises the scale so that the top one of its eight rows stays free.
const HEADROOM: f64 = 8.0 / 7.0;

/// The report as text.
pub(super) fn text(report: &BacktestReport, screen: Screen) -> String {
    let mut blocks = vec![
        heading(report, screen),
        pictures(report, screen),
        table(report, screen),
    ];
    if let Some(plain) = &report.plain {
        let words = verdict(&report.ours.score, &plain.score);
        blocks.push(format!(
            "{}\n",
            screen.paint(Paint::Strong, &wrapped(&words, screen.width(), ""))
        ));
    }
    blocks.push(worst(report, screen));
    blocks.push(absences(report, screen));
    blocks.push(outcomes(report, screen));
    blocks.push(assumptions(report, screen));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

fn heading(report: &BacktestReport, screen: Screen) -> String {
    let setup = &report.setup;
    let workload = &setup.workload;
    let span = setup.until.duration_since(setup.from);
    let about = format!(
        "{} from {}, minute by minute",
        days(span.as_secs_f64()),
        clock(setup.from),
    );
    format!(
        "{}  {} {}, {} to {} replicas\n{}\n",
        screen.paint(Paint::Strong, setup.autoscaler.name()),
        workload.target.kind,
        workload.target.name,
        workload.bounds.min,
        workload.bounds.max,
        screen.paint(Paint::Dim, &about)
    )
}

fn days(seconds: f64) -> String {
    let (count, unit) = match seconds / 86_400.0 {
        days if days >= 2.0 => (days, "days"),
        days => (days * 24.0, "hours"),
    };
    format!("{} {unit}", (count * 10.0).round() / 10.0)
}

fn results(report: &BacktestReport) -> impl Iterator<Item = &RunResult> {
    [&report.ours].into_iter().chain(&report.plain)
}

/// One picture per run, on one scale.
fn pictures(report: &BacktestReport, screen: Screen) -> String {
    let setup = &report.setup;
    let mut text = format!("{}\n", legend(&report.ours, screen.width(), screen));
    let size = Size {
        columns: screen.width() - SCALE,
        rows: ROWS,
    };
    let top = top(results(report).flat_map(|result| &result.minutes));
    for result in results(report) {
        let panel = Panel {
            minutes: &result.minutes,
            forecast: &result.forecasts,
            span: (setup.from, setup.until),
            top,
            now: None,
        };
        let _infallible = writeln!(text, "\n{}", screen.paint(Paint::Strong, result.name));
        text.push_str(&panel.draw(size, screen));
    }
    text
}

/// The top of the scale: one row above the highest count that was needed or served, rounded up to an even number, so
/// that half of it is a whole number.
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
    let rows: Vec<_> = results(report).map(row).collect();
    let mut text = screen.table(header, &rows);
    // With a baseline, the sentence says so.
    let skipped = not_evaluated(&report.ours.score).filter(|_| report.plain.is_none());
    if let Some(skipped) = skipped {
        let _infallible = writeln!(text, "{skipped}");
    }
    text
}

/// How many minutes had no demand, if there are any.
fn not_evaluated(score: &Score) -> Option<String> {
    let (unknown, all) = (score.unknown, score.unknown.saturating_add(score.minutes));
    let words = || format!("{unknown} of {all} min have no recorded demand and are not evaluated");
    (unknown > 0).then(words)
}

/// The difference between the runs, as a sentence.
pub(in crate::cli) fn verdict(ours: &Score, plain: &Score) -> String {
    let short = |under: u32| match under {
        0 => "never".to_owned(),
        minutes => format!("for {minutes} min"),
    };
    let minutes = match (ours.under, plain.under) {
        (0, 0) => "neither Foretide nor a plain HPA is ever short of replicas".to_owned(),
        (0, plain) => format!(
            "Foretide is never short of replicas, a plain HPA {}",
            short(plain)
        ),
        (ours, plain) => format!(
            "Foretide is short of replicas {}, a plain HPA {}",
            short(ours),
            short(plain)
        ),
    };
    let cost = match more_percent(ours, plain) / 100.0 {
        cost if cost.abs() < 0.005 => "as many replica-hours".to_owned(),
        cost if cost > 0.0 => format!("{} more replica-hours", part(cost)),
        cost => format!("{} fewer replica-hours", part(-cost)),
    };
    let sentence = format!("{minutes}; Foretide uses {cost}");
    match not_evaluated(ours) {
        Some(skipped) => format!("{sentence}; {skipped}"),
        None => sentence,
    }
}

/// A ratio in percent; `over 99 %` and `less than 1 %` at the ends.
fn part(ratio: f64) -> String {
    match (ratio * 100.0).round() {
        percent if percent >= 100.0 && ratio < 1.0 => "over 99 %".to_owned(),
        percent if percent < 1.0 => "less than 1 %".to_owned(),
        percent => format!("{percent} %"),
    }
}

fn worst(report: &BacktestReport, screen: Screen) -> String {
    let mut text = String::new();
    for result in results(report) {
        let Some(minute) = &result.score.worst else {
            let _infallible = writeln!(text, "{}: never under-provisioned", result.name);
            continue;
        };
        let (Some(load), Some(needed)) = (minute.load, minute.needed()) else {
            continue;
        };
        let recorded = report.setup.environment.metrics.get(load.track);
        let metric = recorded
            .map(|recorded| recorded.metric.identifier())
            .unwrap_or_default();
        let line = format!(
            "{}, worst minute: {}, {} of {metric} needed {needed} replicas, {} served ({} requested)",
            result.name,
            clock(minute.at),
            Unit::of_metric(&metric).amount(load.demand),
            minute.ready,
            minute.asked,
        );
        let _infallible = writeln!(text, "{}", wrapped(&line, screen.width(), "  "));
    }
    text
}

/// The reasons for missing forecasts, and their minutes.
fn absences(report: &BacktestReport, screen: Screen) -> String {
    let mut text = String::new();
    let all = report.ours.score.minutes;
    for ((metric, reason), missing) in &report.ours.score.absent {
        let line = format!(
            "no forecast of {metric} for {} of {all} min: {reason}: {}",
            missing.minutes, missing.message
        );
        let line = screen.paint(Paint::Warning, &wrapped(&line, screen.width(), "  "));
        let _infallible = writeln!(text, "{line}");
    }
    for problem in &report.setup.workload.problems {
        let _infallible = writeln!(text, "{}", wrapped(&problem.message, screen.width(), "  "));
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
pub(super) fn json(report: &BacktestReport) -> Value {
    let setup = &report.setup;
    json!({
        "metadata": { "name": setup.autoscaler.name(), "namespace": setup.autoscaler.metadata().namespace },
        "from": setup.from.to_string(),
        "until": setup.until.to_string(),
        "startUpSeconds": setup.environment.start_up.as_secs(),
        "bounds": { "min": setup.workload.bounds.min.get(), "max": setup.workload.bounds.max.get() },
        "candidates": results(report).map(|result| run_json(report, result)).collect::<Vec<_>>(),
        "difference": report.plain.as_ref().map(|plain| json!({
            "underProvisionedMinutes": i64::from(report.ours.score.under) - i64::from(plain.score.under),
            "replicaHoursPercent": more_percent(&report.ours.score, &plain.score),
            "message": verdict(&report.ours.score, &plain.score),
        })),
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
    json!({
        "name": result.name,
        "minutes": score.minutes,
        "unknownMinutes": score.unknown,
        "underProvisionedMinutes": score.under,
        "underProvisionedPercent": score.under_percent(),
        "missingPercent": score.missing_percent(),
        "replicaHours": score.replica_hours(),
        "neededReplicaHours": score.needed * MINUTE.as_secs_f64() / 3600.0,
        "scaleActions": score.actions,
        "worst": score.worst.as_ref().map(|minute| worst_json(report, minute)),
        "withoutForecast": score.absent.iter().map(|((metric, reason), missing)| json!({
            "metric": metric,
            "reason": reason,
            "minutes": missing.minutes,
            "message": missing.message,
        })).collect::<Vec<_>>(),
    })
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

/// One row per minute; what is not known is empty.
pub(super) fn csv(report: &BacktestReport) -> String {
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
