//! The expected replicas of a span: as text, as JSON, and as CSV with one row per minute.

use foretide_backtest::{
    clock,
    plan::{Change, ExpectedReport, Minute, Outlook, source},
};
use foretide_models::{Prediction, Sample};

use crate::cli::{
    decision::target_and_bounds,
    output::{Paint, Screen, flowed, wrapped},
    plot::{Plot, size_beside, top_of_counts},
};

/// Columns of the picture that its scale takes.
const SCALE: usize = 8;

/// The names of the series, in text, charts and legends.
pub const EXPECTED: &str = "expected replicas";
pub const FORECAST: &str = "the forecast asks for";
pub const CAME: &str = "what came";

/// The report as text.
pub fn text(report: &ExpectedReport, screen: Screen) -> String {
    let (title, about) = heading(report);
    let name = report.situation.autoscaler.name();
    let about = wrapped(&about, screen.width(), "");
    let mut blocks = vec![
        screen.title(name, &title, &about),
        picture(report, screen),
        screen.verdict(&report.message),
        changes(report, screen),
        screen.assumed(&report.situation.assumptions),
    ];
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

/// The title with the workload, and a line with the span.
pub fn heading(report: &ExpectedReport) -> (String, String) {
    let (title, span) = (target_and_bounds(&report.situation.workload), report.span);
    let about = format!(
        "expected from {} to {}, as known at {}",
        clock(span.from),
        clock(span.to),
        clock(report.situation.at)
    );
    (title, about)
}

/// The recorded demand of the only metric, in replicas, where the span is in the past.
pub fn came(report: &ExpectedReport) -> Vec<Sample> {
    let situation = &report.situation;
    let one = [situation.template.pod.serving("one", situation.at)];
    let [outlook] = situation.outlooks.as_slice() else {
        return Vec::new();
    };
    let Ok(target) = outlook.target(&one) else {
        return Vec::new();
    };
    let Outlook { recording, .. } = outlook;
    recording
        .until(report.span.to)
        .iter()
        .filter(|sample| sample.at > report.span.from)
        .map(|sample| Sample {
            at: sample.at,
            value: sample.value / target,
        })
        .collect()
}

/// The top of the scale.
fn top(report: &ExpectedReport) -> f64 {
    let expected = report.minutes.iter().map(|it| {
        it.replicas
            .as_f64()
            .max(it.forecast_replicas.unwrap_or(0.0))
    });
    let came = came(report).into_iter().map(|sample| sample.value);
    top_of_counts(expected.chain(came))
}

/// Replicas that the forecasts ask for, before rounding.
pub fn foreseen(report: &ExpectedReport) -> Vec<Prediction> {
    let foreseen = report.minutes.iter().filter_map(|minute| {
        Some(Prediction {
            at: minute.at,
            value: minute.forecast_replicas?,
            upper: None,
        })
    });
    foreseen.collect()
}

/// The expected counts.
pub fn counts(report: &ExpectedReport) -> Vec<Sample> {
    let counts = report.minutes.iter().map(|minute| Sample {
        at: minute.at,
        value: minute.replicas.as_f64(),
    });
    counts.collect()
}

fn picture(report: &ExpectedReport, screen: Screen) -> String {
    let (came, foreseen) = (came(report), foreseen(report));
    let plot = Plot {
        history: &came,
        capacity: &counts(report),
        forecast: &foreseen,
        span: Some((report.span.from, report.span.to)),
        top: Some(top(report)),
        ..Plot::of_replicas()
    };
    let (area, steps, line) = if screen.unicode {
        ("⣿", "─", "⠒⠒")
    } else {
        ("::", "-", "**")
    };
    let mut signs = vec![format!("{} {EXPECTED}", screen.paint(Paint::Strong, steps))];
    if !foreseen.is_empty() {
        signs.push(format!("{} {FORECAST}", screen.paint(Paint::Future, line)));
    }
    if !came.is_empty() {
        signs.push(format!("{area} {CAME}"));
    }
    let legend = flowed(&signs, screen.width());
    let drawn = plot.render(size_beside(SCALE, screen), screen);
    format!("{legend}\n{drawn}")
}

/// Two or more lines for each change: the time with the count, and the reason.
fn changes(report: &ExpectedReport, screen: Screen) -> String {
    let arrow = if screen.unicode { "→" } else { "->" };
    let lines = report.changes.iter().map(|change| {
        let Change { at, to, .. } = change;
        let count = change
            .from
            .map_or_else(|| to.to_string(), |from| format!("{from} {arrow} {to}"));
        let source = screen.paint(Paint::Dim, source(change.source));
        let reason = screen.indented(&change.reason);
        format!("{}  {count}  {source}\n{reason}", clock(*at))
    });
    lines.collect()
}

/// One row per minute; beyond the forecasts, the cell is empty.
pub fn csv(report: &ExpectedReport) -> String {
    let rows = report.minutes.iter().map(|minute| {
        let Minute { at, replicas, .. } = minute;
        let forecast = minute.forecast_replicas.map(|it| (it * 1e6).round() / 1e6);
        let forecast = forecast.map_or_else(String::new, |replicas| replicas.to_string());
        format!("{at},{replicas},{forecast},{}\n", source(minute.source))
    });
    "time,replicas,forecast_replicas,source\n".to_owned() + &rows.collect::<String>()
}
