//! The expected replicas of a span, as a chart and as a page.

use foretide_backtest::{
    manifest,
    plan::{ExpectedReport, source},
};
use foretide_chart::{Chart, Layer, Mark, Panel, Point, Role, Unit, Window};
use foretide_models::Prediction;

use super::view::{CAME, EXPECTED, FORECAST, came, counts, foreseen, heading};
use crate::cli::{
    backtest::points,
    output::Failure,
    report::{self, Page, count, paragraph, time},
};
use crate::html::Html;

/// Number of openings of one window that are drawn.
const MOST_OPENINGS: usize = 400;

/// The chart of the span.
pub fn chart(report: &ExpectedReport) -> Chart {
    let bounds = report.situation.workload.bounds;
    let forecast: Vec<_> = foreseen(report)
        .into_iter()
        .map(|Prediction { at, value, .. }| Point { at, value })
        .collect();
    let came = points(came(report));
    let mut layers = Vec::new();
    if !came.is_empty() {
        let came = Mark::Area(came);
        layers.push(Layer::new("came", CAME, Role::Observed, came));
    }
    if !forecast.is_empty() {
        let forecast = Mark::Line(forecast);
        layers.push(Layer::new("forecast", FORECAST, Role::Forecast, forecast));
    }
    let most = Mark::Rule(bounds.max.as_f64());
    layers.push(Layer::new("max", "maxReplicas", Role::Bounds, most));
    let counts = Mark::Steps(points(counts(report)));
    layers.push(Layer::new("expected", EXPECTED, Role::Desired, counts));
    let panel = Panel {
        id: "expected".to_owned(),
        name: "Expected".to_owned(),
        note: format!("{:.1} replica-hours", report.replica_hours),
        unit: Unit::Replicas,
        layers,
        windows: windows(report),
        ..Panel::default()
    };
    Chart {
        title: format!("{}: replicas to expect", report.situation.autoscaler.name()),
        description: report.message.clone(),
        span: (report.span.from, report.span.to),
        panels: vec![panel],
        ..Chart::default()
    }
}

/// The times at which cron windows are open.
fn windows(report: &ExpectedReport) -> Vec<Window> {
    let (from, to) = (report.span.from, report.span.to);
    let open = report
        .situation
        .workload
        .floor
        .windows
        .iter()
        .flat_map(|window| {
            window
                .activities(from)
                .take(MOST_OPENINGS)
                .take_while(move |it| it.since < to)
                .map(move |activity| Window {
                    name: window.name().to_owned(),
                    from: activity.since.max(from),
                    until: activity.until.map_or(to, |until| until.min(to)),
                })
        });
    open.collect()
}

/// The report as one HTML file.
///
/// # Errors
/// The manifest cannot be written.
pub fn html(report: &ExpectedReport) -> Result<String, Failure> {
    let situation = &report.situation;
    let (title, about) = heading(report);
    let problems = situation.workload.problems.iter();
    let problems: Vec<_> = problems.map(|problem| problem.message.clone()).collect();
    let figure = report::figure("minute by minute", Html::drawing(&chart(report).draw()));
    let sections = [
        ("Minute by minute", figure),
        ("Changes", changes(report)),
        ("Problems", report::list(&problems)),
        ("Assumptions", report::list(&situation.assumptions)),
        (
            "The autoscaler",
            report::listing(&manifest::written(&situation.autoscaler)?),
        ),
    ];
    let page = Page {
        title: format!("{}: {title}", situation.autoscaler.name()),
        about,
        verdict: paragraph(&report.message),
        sections: sections.into(),
    };
    Ok(page.html())
}

fn changes(report: &ExpectedReport) -> Html {
    let caption = "The minutes in which another count is asked for";
    let header = ["From", "Replicas before", "After", "Source", "Why"];
    report::words(
        caption,
        &header,
        report.changes.iter().map(|change| {
            let from = change.from.map(|from| count(from.get()));
            vec![
                time(change.at),
                from.unwrap_or_default(),
                count(change.to.get()),
                Html::text(source(change.source)),
                Html::text(&change.reason),
            ]
        }),
    )
}
