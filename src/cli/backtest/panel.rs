//! The picture of one run: demand as an area, serving replicas as a line of steps above it, the forecast as a band or a
//! line, and missing replicas as a shaded area. All are counted in replicas, so that several metrics share one scale.

use foretide_backtest::runs::RunResult;
use foretide_chart::{self as chart, Band, Layer, Mark, Point, Role, Shortage, Unit};
use foretide_domain::sim::{MINUTE, Minute};
use foretide_models::{Prediction, Sample};
use jiff::Timestamp;

use crate::cli::{
    output::{Paint, Screen, Size, flowed},
    plot::Plot,
};

/// One picture.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// The minutes so far.
    pub minutes: &'a [Minute],
    /// Forecasts, past and present, in replicas.
    pub forecast: &'a [Prediction],
    /// Span of the time axis.
    pub span: (Timestamp, Timestamp),
    /// The top of the scale.
    pub top: f64,
}

// === impl Panel ===

impl Panel<'_> {
    /// The picture in characters, one line per row.
    pub fn draw(&self, size: Size, screen: Screen) -> String {
        Plot {
            history: &self.demand(),
            capacity: &self.capacity(),
            shortages: &self.shortages(),
            forecast: self.forecast,
            span: Some(self.span),
            top: Some(self.top),
            ..Plot::of_replicas()
        }
        .render(size, screen)
    }

    /// The picture as data, without its name and totals; the forecast is that of `result`.
    pub fn chart(&self, result: &RunResult) -> chart::Panel {
        let needed = Mark::Area(points(self.demand()));
        let mut layers = vec![Layer::new("needed", NEEDED, Role::Observed, needed)];
        if let Some(about) = forecast_legend(result) {
            let expected = self.expected();
            layers.push(Layer::new("forecast", &about, Role::Forecast, expected));
        }
        let short = Mark::Shortage(self.shortages());
        layers.push(Layer::new("short", SHORT, Role::Short, short));
        let serving = Mark::Steps(points(self.capacity()));
        layers.push(Layer::new("serving", SERVING, Role::Desired, serving));
        chart::Panel {
            unit: Unit::Replicas,
            top: Some(self.top),
            layers,
            ..chart::Panel::default()
        }
    }

    /// A band up to the upper values, or a line if none are known.
    fn expected(&self) -> Mark {
        let forecast = self.forecast.iter();
        if self.forecast.iter().all(|p| p.upper.is_none()) {
            let line = forecast.map(|&Prediction { at, value, .. }| Point { at, value });
            return Mark::Line(line.collect());
        }
        let band = forecast.map(|p| Band {
            at: p.at,
            low: p.value,
            high: p.upper.unwrap_or(p.value),
        });
        Mark::Band(band.collect())
    }

    fn demand(&self) -> Vec<Sample> {
        self.minutes
            .iter()
            .filter_map(|m| Some(sample(m, m.load?.replicas())))
            .collect()
    }

    fn capacity(&self) -> Vec<Sample> {
        self.minutes
            .iter()
            .map(|m| sample(m, m.ready.as_f64()))
            .collect()
    }

    fn shortages(&self) -> Vec<Shortage> {
        self.minutes
            .iter()
            .filter(|m| m.is_under_provisioned())
            .map(|minute| Shortage {
                at: minute.at,
                until: minute.at.checked_add(MINUTE).unwrap_or(Timestamp::MAX),
                had: minute.ready.as_f64(),
                needed: minute.load.map_or(0.0, |load| load.replicas()),
            })
            .collect()
    }
}

/// The samples as points of a chart.
pub fn points(samples: Vec<Sample>) -> Vec<Point> {
    samples
        .into_iter()
        .map(|Sample { at, value }| Point { at, value })
        .collect()
}

fn sample(minute: &Minute, value: f64) -> Sample {
    Sample {
        at: minute.at,
        value,
    }
}

/// The legend, in lines of at most `width` columns; the forecast is that of `ours`.
pub fn legend(ours: &RunResult, width: usize, screen: Screen) -> String {
    let (area, steps, band, line, short) = if screen.unicode {
        ("⣿", "─", "⡇⡇", "⠒⠒", "▓")
    } else {
        ("::", "-", "~~", "**", "#")
    };
    let mut signs = vec![
        format!("{area} {NEEDED}"),
        format!("{} {SERVING}", screen.paint(Paint::Strong, steps)),
    ];
    let sign = if ours.quantile.is_some() { band } else { line };
    if let Some(about) = forecast_legend(ours) {
        signs.push(format!("{} {about}", screen.paint(Paint::Future, sign)));
    }
    signs.push(format!("{} {SHORT}", screen.paint(Paint::Error, short)));
    flowed(&signs, width)
}

const NEEDED: &str = "replicas needed";
const SERVING: &str = "serving";
const SHORT: &str = "too few";

fn forecast_legend(ours: &RunResult) -> Option<String> {
    match ours.quantile {
        Some(quantile) => {
            let percent = (quantile * 1000.0).round() / 10.0;
            Some(format!("forecast, up to the {percent} % quantile"))
        }
        None => (!ours.forecasts.is_empty()).then(|| "forecast".to_owned()),
    }
}
