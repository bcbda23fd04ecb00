//! Two charts per trace, of the last two days and of all counted days: demand, the capacity of the HPA with and without
//! the forecast, and the minutes in which each was under-provisioned.

use foretide_chart::{Band, Chart, Headline, Layer, Mark, Panel, Point, Role, Shortage};
use foretide_models::auto::DEFAULT_QUANTILE;
use foretide_replay::{
    Answer, AutoCandidate, CandidateForecast, DAY, History, ReplayConfig, Rule, TOLERANCE, Trace,
    Workload, forecasts, run,
};
use jiff::{SignedDuration, Timestamp};

use crate::Failure;

const START_UP: usize = 2;

/// The forecast is drawn from the first of these quantiles to the last; capacity follows the one in the middle.
const QUANTILES: &[f64] = &[0.5, DEFAULT_QUANTILE, 0.97];

/// The part of a trace that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    LastTwoDays,
    Counted,
}

/// The pictures of a trace with the name of their files, as SVG.
pub(crate) fn draw(trace: &Trace, rule: Rule) -> Result<[(String, String); 2], Failure> {
    let workload = Workload::new(&trace.demand)?;
    let mut auto = AutoCandidate::quantiles(QUANTILES, START_UP);
    let forecast = forecasts(&mut auto, &workload, &History::new(&trace.demand, 1));
    let config = ReplayConfig {
        start_up: START_UP,
        rule,
    };
    let picture = |shown: Shown, suffix| {
        let name = format!("{}{suffix}.svg", trace.name);
        Ok::<_, Failure>((name, picture(trace, &workload, &forecast, shown, config)?))
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
    config: ReplayConfig,
) -> Result<String, Failure> {
    let [low, middle, high] = forecast else {
        return Err("expected the forecasts of three quantiles".into());
    };
    let alone = run(workload, config, &[]);
    let with_forecast = run(workload, config, &middle.bounds());
    let minutes = shown.minutes(workload);
    let span = Span::last(trace, minutes)?;
    let band = span.band(last(&low.answers, minutes), last(&high.answers, minutes));
    let band = Layer::new("forecast", "forecast, 50 % to 95 %", Role::Forecast, band);
    let share = percent_of(
        last(&with_forecast.asked, minutes),
        last(&alone.asked, minutes),
    );
    let note =
        format!("forecast of auto, q = {DEFAULT_QUANTILE}; {share:.0} % of the replica-hours");
    let alone = span.panel(workload, last(&alone.ready, minutes), None);
    let with_forecast = span.panel(workload, last(&with_forecast.ready, minutes), Some(band));
    let (name, about) = (&trace.name, about(trace));
    let chart = Chart {
        title: format!("{name}, {}: {about}", shown.text()),
        description: format!("demand and ready capacity, whose start-up takes {START_UP} minutes"),
        span: (span.at(0), span.at(minutes)),
        width: 960,
        height: 180,
        panels: vec![
            Panel {
                id: "alone".to_owned(),
                name: "HPA alone".to_owned(),
                ..alone
            },
            Panel {
                id: "with-forecast".to_owned(),
                name: "HPA with the forecast".to_owned(),
                note,
                ..with_forecast
            },
        ],
        ..Chart::default()
    };
    Ok(chart.draw().svg())
}

/// Minutes at the end of a trace.
struct Span {
    start: Timestamp,
    minutes: usize,
}

// === impl Span ===

impl Span {
    fn last(trace: &Trace, minutes: usize) -> Result<Self, Failure> {
        let before = i64::try_from(trace.demand.len() - minutes)?;
        let start = Timestamp::from_second(trace.start + 60 * before)?;
        Ok(Self { start, minutes })
    }

    fn at(&self, minute: usize) -> Timestamp {
        let minutes = i64::try_from(minute).unwrap_or(i64::MAX);
        let after = SignedDuration::from_secs(minutes.saturating_mul(60));
        self.start.checked_add(after).unwrap_or(Timestamp::MAX)
    }

    fn points(&self, values: &[f64]) -> Vec<Point> {
        let points = values.iter().enumerate().map(|(minute, value)| Point {
            at: self.at(minute),
            value: *value,
        });
        points.collect()
    }

    /// Minutes without a forecast are left out.
    fn band(&self, low: &[Option<Answer>], high: &[Option<Answer>]) -> Mark {
        let bands = low.iter().zip(high).enumerate();
        let bands = bands.filter_map(|(minute, (low, high))| {
            Some(Band {
                at: self.at(minute),
                low: (*low)?.peak,
                high: (*high)?.peak,
            })
        });
        Mark::Band(bands.collect())
    }

    /// Demand and what was ready for it, with the minutes in which that was too little.
    fn panel(&self, workload: &Workload<'_>, ready: &[u32], band: Option<Layer>) -> Panel {
        let demand = last(workload.demand(), self.minutes);
        let capacity = ready
            .iter()
            .map(|&ready| f64::from(ready) * workload.target());
        let capacity: Vec<f64> = capacity.collect();
        let minutes = demand.iter().zip(&capacity).enumerate();
        let under =
            minutes.filter(|(_, (demand, capacity))| **demand > (1.0 + TOLERANCE) * **capacity);
        let under = under.map(|(minute, (demand, capacity))| Shortage {
            at: self.at(minute),
            until: self.at(minute + 1),
            had: *capacity,
            needed: *demand,
        });
        let under: Vec<Shortage> = under.collect();
        let headline = Headline {
            text: format!("{} min short", under.len()),
            good: under.is_empty(),
        };
        let demand = Mark::Area(self.points(demand));
        let capacity = Mark::Steps(self.points(&capacity));
        let short = Mark::Shortage(under);
        let layers = [
            Some(Layer::new(
                "demand",
                "demand, in its unit",
                Role::Observed,
                demand,
            )),
            band,
            Some(Layer::new("short", "under-provisioned", Role::Short, short)),
            Some(Layer::new(
                "capacity",
                "ready capacity",
                Role::Desired,
                capacity,
            )),
        ];
        Panel {
            headline: Some(headline),
            layers: layers.into_iter().flatten().collect(),
            ..Panel::default()
        }
    }
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
