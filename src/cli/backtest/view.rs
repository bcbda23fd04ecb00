//! The report of a back-test: as text, as JSON, and as CSV with one row per minute.

use foretide_backtest::{clock, report::BacktestReport, runs::RunResult, worst::ShortMinute};
use foretide_domain::{proposal::Unit, sim::MINUTE};
use jiff::Timestamp;

use super::{Panel, legend};
use crate::cli::{
    decision::target_and_bounds,
    output::{Paint, Screen, cell},
    plot::{size_beside, top_of_counts},
};

/// Columns of each picture that its scale takes.
const SCALE: usize = 8;

/// The report as text.
pub fn text(report: &BacktestReport, screen: Screen) -> String {
    let (title, about) = heading(report);
    let name = report.setup.autoscaler.name();
    let mut blocks = vec![
        screen.title(name, &title, &about),
        pictures(report, screen),
        table(report, screen),
    ];
    blocks.extend(
        report
            .difference
            .iter()
            .map(|it| screen.verdict(&it.message)),
    );
    blocks.push(sweep(report, screen));
    blocks.push(worst_minutes(report, screen));
    blocks.push(warnings(report, screen));
    blocks.push(outcomes(report, screen));
    blocks.push(screen.assumed(&report.setup.assumptions));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

/// The title with the subject of the report, and a line with its span.
pub fn heading(report: &BacktestReport) -> (String, String) {
    let setup = &report.setup;
    let title = target_and_bounds(&setup.workload);
    (title, heading_span(setup.from, setup.until))
}

/// The evaluated span in words.
pub fn heading_span(from: Timestamp, until: Timestamp) -> String {
    let days = days(until.duration_since(from).as_secs_f64());
    format!("{days} from {}, minute by minute", clock(from))
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
    let ours = &report.candidates.ours;
    let mut text = format!("{}\n", legend(ours, screen.width(), screen));
    let size = size_beside(SCALE, screen);
    for result in report.candidates.iter() {
        let name = screen.paint(Paint::Strong, result.name);
        text.extend([format!(
            "\n{name}\n{}",
            panel(report, result).draw(size, screen)
        )]);
    }
    text
}

/// The picture of one run, on the scale of all.
pub fn panel<'a>(report: &'a BacktestReport, result: &'a RunResult) -> Panel<'a> {
    let minutes = report.candidates.iter().flat_map(|result| &result.minutes);
    let counts = minutes.map(|minute| {
        minute
            .load
            .map_or(0.0, |load| load.replicas())
            .max(minute.ready.as_f64())
    });
    Panel {
        minutes: &result.minutes,
        forecast: &result.forecasts,
        span: (report.setup.from, report.setup.until),
        top: top_of_counts(counts),
    }
}

/// One row per run.
fn table(report: &BacktestReport, screen: Screen) -> String {
    let header = [
        "",
        ">UNDER-PROVISIONED",
        ">",
        ">REPLICA-HOURS",
        ">SCALE ACTIONS",
    ];
    let mut text = screen.table(
        header,
        report.candidates.iter().map(|result| {
            let score = &result.score;
            [
                result.name.to_owned(),
                format!("{} min", score.under),
                format!("{:.2} %", score.under_percent()),
                format!("{:.1}", score.replica_hours()),
                score.actions.to_string(),
            ]
        }),
    );
    // With a baseline, the verdict reports the skipped minutes.
    if report.difference.is_none()
        && let Some(skipped) = report.candidates.ours.score.not_evaluated()
    {
        text.extend([format!("{skipped}\n")]);
    }
    text
}

/// One row per quantile, from the cheapest to the safest.
fn sweep(report: &BacktestReport, screen: Screen) -> String {
    if report.sweep.is_empty() {
        return String::new();
    }
    let header = [
        ">QUANTILE",
        ">UNDER-PROVISIONED",
        ">",
        ">REPLICA-HOURS",
        ">BESIDE THE PLAIN HPA",
    ];
    screen.table(
        header,
        report.sweep.iter().map(|run| {
            [
                run.quantile.to_string(),
                format!("{} min", run.score.under),
                format!("{:.2} %", run.score.under_percent()),
                format!("{:.1}", run.score.replica_hours()),
                cell(run.more_percent.map(|more| format!("{more:+.1} %"))),
            ]
        }),
    )
}

fn worst_minutes(report: &BacktestReport, screen: Screen) -> String {
    report
        .candidates
        .iter()
        .filter_map(|result| match &result.shortages.worst {
            None => Some(format!("{}: never under-provisioned\n", result.name)),
            Some(minute) => Some(screen.line(None, worst_minute(result.name, minute)?)),
        })
        .collect()
}

fn worst_minute(name: &str, minute: &ShortMinute) -> Option<String> {
    let (metric, needed) = (minute.metric.as_ref()?, minute.needed_replicas?);
    Some(format!(
        "{name}, worst minute: {}, {} of {metric} needed {needed} replicas, {} served ({} requested)",
        clock(minute.at),
        Unit::of_metric(metric).amount(minute.demand?),
        minute.ready_replicas,
        minute.asked_replicas,
    ))
}

/// The reasons for missing forecasts and their minutes, and what is left out of the spec.
pub fn absences(report: &BacktestReport) -> Vec<String> {
    let ours = &report.candidates.ours;
    let absent = ours.shortages.without_forecast.iter().map(|absence| {
        format!(
            "no forecast of {} for {} of {} min: {}: {}",
            absence.metric, absence.minutes, ours.score.minutes, absence.reason, absence.message
        )
    });
    let problems = report.setup.workload.problems.iter();
    absent
        .chain(problems.map(|problem| problem.message.clone()))
        .collect()
}

fn warnings(report: &BacktestReport, screen: Screen) -> String {
    absences(report)
        .into_iter()
        .map(|line| screen.line(Some(Paint::Warning), line))
        .collect()
}

fn outcomes(report: &BacktestReport, screen: Screen) -> String {
    let lines = report.outcomes.iter().map(|outcome| {
        let paint = if outcome.exceeded {
            Paint::Error
        } else {
            Paint::Dim
        };
        screen.paint(paint, &outcome.to_string()) + "\n"
    });
    lines.collect()
}

/// One row per minute; unknown values are empty.
pub fn csv(report: &BacktestReport) -> String {
    let metrics = &report.setup.environment.metrics;
    let names = metrics.iter().map(|recorded| recorded.metric.identifier());
    let mut header: Vec<_> = std::iter::once("time".to_owned()).chain(names).collect();
    header.push("needed,foreseen,foretide_asked,foretide_ready".to_owned());
    let plain = report.candidates.plain.as_ref();
    header.extend(plain.map(|_| "hpa_asked,hpa_ready".to_owned()));
    let rows = report.candidates.ours.minutes.iter().enumerate();
    let rows = rows.map(|(index, minute)| {
        let end = minute.at.checked_add(MINUTE).unwrap_or(Timestamp::MAX);
        let demands = metrics
            .iter()
            .map(|it| rounded(it.recording.minute_to(end)));
        let mut row: Vec<_> = std::iter::once(minute.at.to_string())
            .chain(demands)
            .collect();
        row.push(rounded(minute.load.map(|load| load.replicas())));
        row.push(rounded(minute.forecast_replicas));
        row.push(format!("{},{}", minute.asked, minute.ready));
        let plain = plain.and_then(|plain| plain.minutes.get(index));
        row.extend(plain.map(|plain| format!("{},{}", plain.asked, plain.ready)));
        row.join(",") + "\n"
    });
    header.join(",") + "\n" + &rows.collect::<String>()
}

fn rounded(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| {
        ((value * 1e6).round() / 1e6).to_string()
    })
}
