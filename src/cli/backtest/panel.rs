//! The picture of one run: demand as an area, serving replicas as a line of steps above it, and the forecast as a band
//! or a line. All are counted in replicas, so that several metrics share one scale.

use foretide_domain::sim::Minute;
use foretide_models::{Prediction, Sample};
use jiff::Timestamp;

use crate::cli::{
    backtest::RunResult,
    output::{Paint, Screen},
    plot::{Plot, Size},
};

/// One picture.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Panel<'a> {
    /// The minutes so far.
    pub(in crate::cli) minutes: &'a [Minute],
    /// Forecasts, past and present, in replicas.
    pub(in crate::cli) forecast: &'a [Prediction],
    /// What the time axis covers.
    pub(in crate::cli) span: (Timestamp, Timestamp),
    /// The top of the scale.
    pub(in crate::cli) top: f64,
    /// The present, if it is to be shown.
    pub(in crate::cli) now: Option<Timestamp>,
}

// === impl Panel ===

impl Panel<'_> {
    /// The picture, one line per row; marks on the axis show when too few replicas served.
    pub(in crate::cli) fn draw(&self, size: Size, screen: Screen) -> String {
        let sample = |minute: &Minute, value: f64| Sample {
            at: minute.at,
            value,
        };
        let minutes = self.minutes.iter();
        let demand = minutes
            .clone()
            .filter_map(|m| Some(sample(m, m.load?.replicas())));
        let capacity = minutes.clone().map(|m| sample(m, m.ready.as_f64()));
        let short = minutes.filter(|m| m.is_under_provisioned()).map(|m| m.at);
        let label = |value: f64| format!("{:>2}", (value * 10.0).round() / 10.0);
        let plot = Plot {
            history: &demand.collect::<Vec<_>>(),
            capacity: &capacity.collect::<Vec<_>>(),
            short: &short.collect::<Vec<_>>(),
            forecast: self.forecast,
            span: Some(self.span),
            top: Some(self.top),
            now: self.now,
            ..Plot::new(&label)
        };
        plot.render(size, screen)
    }
}

/// The legend, in one line; the forecast is that of `ours`.
pub(in crate::cli) fn legend(ours: &RunResult, screen: Screen) -> String {
    let (area, steps, band, line, short) = if screen.unicode {
        ("⣿", "─", "⡇⡇", "⠒⠒", "╳")
    } else {
        ("::", "-", "~~", "**", "x")
    };
    let mut signs = vec![
        format!("{area} replicas needed"),
        format!("{} serving", screen.paint(Paint::Strong, steps)),
    ];
    let forecast = match ours.quantile {
        Some(quantile) => {
            let percent = (quantile * 1000.0).round() / 10.0;
            Some((band, format!("forecast, up to the {percent} % quantile")))
        }
        None => (!ours.forecasts.is_empty()).then(|| (line, "forecast".to_owned())),
    };
    if let Some((sign, about)) = forecast {
        signs.push(format!("{} {about}", screen.paint(Paint::Future, sign)));
    }
    signs.push(format!("{} too few", screen.paint(Paint::Error, short)));
    signs.join("   ")
}
