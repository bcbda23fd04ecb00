//! Two charts per trace, of the last two days and of all counted days: demand, the capacity of the HPA with and without
//! the forecast, and the minutes in which each was under-provisioned.

use std::fmt::{Error, Write as _};

use foretide_models::replay::{
    AutoCandidate, CandidateForecast, DAY, ReplayConfig, TOLERANCE, ToleranceReference, Workload,
    forecasts, run,
};

use crate::panel::{DEMAND, HEIGHT, INK, LEFT, Lane, Panel, RED, RIGHT, WIDTH, nice};
use crate::traces::{Failure, Trace};

const START_UP: usize = 2;

/// The forecast is drawn from the first of these quantiles to the last; capacity follows the one in the middle.
const QUANTILES: &[f64] = &[0.5, 0.9, 0.95];

// Positions, in pixels.
const TOPS: [f64; 2] = [124.0, 424.0];
const TOTAL: f64 = 668.0;
const LEGEND: f64 = 72.0;

// Mid tones, legible on white and on black.
const BAND: &str = "#a371f7";
const ALONE: &str = "#d9822b";
const WITH_FORECAST: &str = "#2da44e";

/// The part of a trace that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    LastTwoDays,
    Counted,
}

/// The pictures of a trace with the name of their files, as SVG.
pub(crate) fn draw(trace: &Trace) -> Result<[(String, String); 2], Failure> {
    let workload = Workload::new(&trace.demand)?;
    let forecast = forecasts(
        &mut AutoCandidate::quantiles(QUANTILES, START_UP),
        &workload,
    );
    let picture = |shown: Shown, suffix| {
        let name = format!("{}{suffix}.svg", trace.name);
        Ok::<_, Failure>((name, picture(trace, &workload, &forecast, shown)?))
    };
    Ok([
        picture(Shown::LastTwoDays, "")?,
        picture(Shown::Counted, "-whole")?,
    ])
}

fn picture(
    trace: &Trace,
    workload: &Workload<'_>,
    forecast: &[CandidateForecast],
    shown: Shown,
) -> Result<String, Failure> {
    let [low, middle, high] = forecast else {
        return Err("expected the forecasts of three quantiles".into());
    };
    let config = ReplayConfig {
        start_up: START_UP,
        tolerance: ToleranceReference::LastProposal,
    };
    let alone = run(workload, config, &[]);
    let with_forecast = run(workload, config, &middle.forecast);
    let minutes = shown.minutes(workload);
    let demand = last(&trace.demand, minutes);
    let name = "HPA with the forecast of auto, q = 0.9";
    let lanes = [
        lane("HPA alone", ALONE, workload, last(&alone.ready, minutes)),
        lane(
            name,
            WITH_FORECAST,
            workload,
            last(&with_forecast.ready, minutes),
        ),
    ];
    let highest = lanes.iter().flat_map(|lane| &lane.capacity).chain(demand);
    let highest = nice(highest.copied().fold(0.0, f64::max) * 1.02);
    let panels = TOPS.map(|top| Panel {
        top,
        highest,
        minutes,
    });
    let share = percent_of(
        last(&with_forecast.asked, minutes),
        last(&alone.asked, minutes),
    );
    let mut svg = head(trace, shown, share)?;
    let line = panels[0].line(demand)?;
    write!(svg, "<defs><path id=\"demand\" d=\"{line}\"/></defs>")?;
    let start = trace.start + 60 * i64::try_from(trace.demand.len() - minutes)?;
    for (i, (panel, lane)) in panels.iter().zip(&lanes).enumerate() {
        panel.frame(&mut svg, start)?;
        if i == 1 {
            let edges = (last(&low.forecast, minutes), last(&high.forecast, minutes));
            let band = panel.band(edges)?;
            write!(
                svg,
                "<path d=\"{band}\" fill=\"{BAND}\" fill-opacity=\".45\"/>"
            )?;
        }
        panel.lane(&mut svg, lane, panel.top - TOPS[0])?;
    }
    let below = TOPS[1] + HEIGHT + 34.0;
    writeln!(
        svg,
        "<text x=\"{RIGHT}\" y=\"{below}\" text-anchor=\"end\">time, UTC</text></svg>"
    )?;
    Ok(svg)
}

/// The last `minutes` values.
fn last<T>(values: &[T], minutes: usize) -> &[T] {
    values
        .get(values.len().saturating_sub(minutes)..)
        .unwrap_or_default()
}

/// Replica-hours in percent of others.
fn percent_of(asked: &[u32], of: &[u32]) -> f64 {
    let sum = |asked: &[u32]| asked.iter().copied().map(f64::from).sum::<f64>();
    100.0 * sum(asked) / sum(of)
}

/// The capacity of the minutes shown, which are the last.
fn lane<'a>(name: &str, color: &'a str, workload: &Workload<'_>, ready: &[u32]) -> Lane<'a> {
    let capacity = ready
        .iter()
        .map(|&ready| f64::from(ready) * workload.target());
    let capacity: Vec<f64> = capacity.collect();
    let demand = last(workload.demand(), capacity.len()).iter();
    let under: Vec<bool> = demand
        .zip(&capacity)
        .map(|(demand, capacity)| *demand > (1.0 + TOLERANCE) * capacity)
        .collect();
    let n = under.iter().filter(|under| **under).count();
    let title = format!("{name}: {n} of {} minutes under-provisioned", under.len());
    Lane {
        title,
        color,
        capacity,
        under,
    }
}

fn head(trace: &Trace, shown: Shown, share: f64) -> Result<String, Error> {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {TOTAL}\" width=\"{WIDTH}\" height=\"{TOTAL}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif\" font-size=\"12\" fill=\"{INK}\" role=\"img\">\
         <title>{name}: demand and ready capacity, {shown}</title>\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"18\" font-weight=\"600\">{name}, {shown}</text>\
         <text x=\"{LEFT}\" y=\"46\">{about}</text>\
         <text x=\"{RIGHT}\" y=\"26\" text-anchor=\"end\">start-up {START_UP} min; with the forecast {share:.0} % of the replica-hours</text>",
        name = escape(&trace.name),
        shown = shown.text(),
        about = escape(&about(trace)),
    );
    let legend = [
        (DEMAND, "demand"),
        (ALONE, "ready capacity, HPA alone"),
        (WITH_FORECAST, "ready capacity, with the forecast"),
        (BAND, "forecast, 50 % to 95 %"),
        (RED, "under-provisioned"),
    ];
    let mut x = LEFT;
    for (color, text) in legend {
        write!(
            svg,
            "<rect x=\"{x:.0}\" y=\"{LEGEND}\" width=\"16\" height=\"6\" rx=\"2\" fill=\"{color}\"/><text x=\"{:.0}\" y=\"{:.0}\">{text}</text>",
            x + 22.0,
            LEGEND + 7.0,
        )?;
        x += 52.0 + 6.1 * f64::from(u32::try_from(text.len()).unwrap_or(0));
    }
    Ok(svg)
}

/// The class of load, and its description in the index.
fn about(trace: &Trace) -> String {
    match &trace.what {
        Some(what) => format!("{} load: {what}", trace.class),
        None => format!("{} load", trace.class),
    }
}

// === impl Shown ===

impl Shown {
    /// How many of the last minutes.
    fn minutes(self, workload: &Workload<'_>) -> usize {
        let counted = workload.demand().len() - workload.from();
        match self {
            Self::LastTwoDays => counted.min(2 * DAY),
            Self::Counted => counted,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::LastTwoDays => "last two days",
            Self::Counted => "all days that count",
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
