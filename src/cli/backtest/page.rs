//! The report of a back-test as a chart, and as a page.

use foretide_backtest::{manifest, report::BacktestReport, runs::RunResult};
use foretide_chart::{Chart, Dot, Headline, Role, Scatter, Unit};
use foretide_domain::{proposal, sim::Score};

use super::view::{absences, heading, panel};
use crate::cli::{
    output::Failure,
    report::{self, Page, count, figure, number, paragraph, time},
};
use crate::html::Html;

/// The chart: one panel per run, on one scale.
pub fn chart(report: &BacktestReport) -> Chart {
    let setup = &report.setup;
    let named = report.candidates.iter().zip(["foretide", "plain-hpa"]);
    let panels = named.map(|(result, id)| foretide_chart::Panel {
        id: id.to_owned(),
        name: result.name.to_owned(),
        note: format!("{:.1} replica-hours", result.score.replica_hours()),
        headline: Some(Headline {
            text: format!("{} min short", result.score.under),
            good: result.score.under == 0,
        }),
        ..panel(report, result).chart(result)
    });
    let difference = report.difference.as_ref();
    Chart {
        title: format!(
            "{}: replicas needed and serving, minute by minute",
            setup.autoscaler.name()
        ),
        description: difference.map_or_else(String::new, |it| it.message.clone()),
        span: (setup.from, setup.until),
        panels: panels.collect(),
        ..Chart::default()
    }
}

/// The report as one HTML file.
///
/// # Errors
/// The manifest cannot be written.
pub fn html(report: &BacktestReport) -> Result<String, Failure> {
    let setup = &report.setup;
    let (title, about) = heading(report);
    let sections = [
        (
            "Minute by minute",
            figure("minute by minute", Html::drawing(&chart(report).draw())),
        ),
        ("In numbers", numbers(report)),
        ("Other quantiles", sweep(report)),
        ("Worst minutes", worst_minutes(report)),
        ("Worst hours", worst_hours(report)),
        ("Without a forecast", report::list(&absences(report))),
        ("Bounds", report::list(&outcomes(report))),
        ("Assumptions", report::list(&setup.assumptions)),
        (
            "The autoscaler",
            report::listing(&manifest::written(&setup.autoscaler)?),
        ),
    ];
    let page = Page {
        title: format!("{}: {title}", setup.autoscaler.name()),
        about,
        verdict: paragraph(&sentence(report)),
        sections: sections.into(),
    };
    Ok(page.html())
}

/// Costs of each quantile against its short minutes, with the runs for comparison.
pub fn prices(report: &BacktestReport) -> Scatter {
    let plain = report.candidates.plain.as_ref();
    let plain = plain.map(|plain| &plain.score);
    let (measure, unit) = match plain {
        Some(_) => ("replica-hours beside the plain HPA", Unit::Percent),
        None => ("replica-hours", Unit::None),
    };
    let dot = |name: String, role, score: &Score| Dot {
        name,
        role,
        x: plain.map_or_else(|| score.replica_hours(), |plain| score.more_percent(plain)),
        y: f64::from(score.under),
    };
    let mut dots: Vec<_> = report
        .sweep
        .iter()
        .map(|run| dot(run.quantile.to_string(), Role::Forecast, &run.score))
        .collect();
    dots.extend(plain.map(|plain| dot("plain HPA".to_owned(), Role::Observed, plain)));
    Scatter {
        title: "What each quantile costs, and for how long it is short".to_owned(),
        description: "The table below has the same figures.".to_owned(),
        x: (measure.to_owned(), unit),
        y: ("minutes short".to_owned(), Unit::None),
        dots,
        ..Scatter::default()
    }
}

/// The difference between the runs; without a baseline, how the one run did.
fn sentence(report: &BacktestReport) -> String {
    let score = &report.candidates.ours.score;
    match &report.difference {
        Some(difference) => difference.message.clone(),
        None => format!(
            "Foretide is short of replicas for {} of {} min and uses {:.1} replica-hours",
            score.under,
            score.minutes,
            score.replica_hours()
        ),
    }
}

/// The columns of [`figures`].
const FIGURES: [&str; 5] = [
    "Minutes short",
    "Of all",
    "Demand not served",
    "Replica-hours",
    "Scale actions",
];

/// The figures of a score, in the order of their columns.
fn figures(score: &Score) -> [Html; 5] {
    let (under, missing) = (score.under_percent(), score.missing_percent());
    let hours = score.replica_hours();
    [
        count(score.under),
        number(under, &format!("{under:.2} %")),
        number(missing, &format!("{missing:.2} %")),
        number(hours, &format!("{hours:.1}")),
        count(score.actions),
    ]
}

fn numbers(report: &BacktestReport) -> Html {
    let score = &report.candidates.ours.score;
    let caption = format!("{} minutes with a known demand", score.minutes);
    let mut header = vec!["Run"];
    header.extend(FIGURES);
    let rows = report.candidates.iter().map(|result: &RunResult| {
        [Html::text(result.name)]
            .into_iter()
            .chain(figures(&result.score))
            .collect()
    });
    report::numbers(&caption, &header, rows)
}

fn sweep(report: &BacktestReport) -> Html {
    if report.sweep.is_empty() {
        return Html::default();
    }
    let rows = report.sweep.iter().map(|run| {
        let more = run
            .more_percent
            .map(|more| number(more, &format!("{more:+.1} %")));
        [number(run.quantile, &run.quantile.to_string())]
            .into_iter()
            .chain(figures(&run.score))
            .chain([more.unwrap_or_default()])
            .collect()
    });
    let mut header = vec!["Quantile"];
    header.extend(FIGURES);
    header.push("Beside the plain HPA");
    let caption = "The same minutes with other values of spec.prediction.quantile";
    Html::all([
        figure("other quantiles", Html::drawing(&prices(report).draw())),
        report::numbers(caption, &header, rows),
    ])
}

fn worst_minutes(report: &BacktestReport) -> Html {
    let header = [
        "Minute",
        "Demand",
        "Of",
        "Replicas needed",
        "Serving",
        "Requested",
    ];
    let tables = report.candidates.iter().map(|result| {
        let caption = format!("{}: where the most replicas were missing", result.name);
        report::numbers(
            &caption,
            &header,
            result.shortages.worst_minutes.iter().map(|minute| {
                let metric = minute.metric.as_deref().unwrap_or_default();
                let demand = minute.demand.unwrap_or_default();
                vec![
                    time(minute.at),
                    number(demand, &proposal::Unit::of_metric(metric).amount(demand)),
                    Html::text(metric),
                    count(minute.needed_replicas.unwrap_or_default().get()),
                    count(minute.ready_replicas.get()),
                    count(minute.asked_replicas.get()),
                ]
            }),
        )
    });
    Html::all(tables)
}

fn worst_hours(report: &BacktestReport) -> Html {
    let header = [
        "Hour from",
        "Minutes short",
        "Replica-minutes missing",
        "Most needed",
        "Fewest serving",
    ];
    let tables = report.candidates.iter().map(|result| {
        let caption = format!("{}: where the most was not served", result.name);
        report::numbers(
            &caption,
            &header,
            result.shortages.worst_hours.iter().map(|hour| {
                let missing = hour.missing_replica_minutes;
                vec![
                    time(hour.at),
                    count(hour.under_provisioned_minutes),
                    number(missing, &format!("{missing:.1}")),
                    count(hour.needed_replicas.get()),
                    count(hour.ready_replicas.get()),
                ]
            }),
        )
    });
    Html::all(tables)
}

fn outcomes(report: &BacktestReport) -> Vec<String> {
    report.outcomes.iter().map(ToString::to_string).collect()
}
