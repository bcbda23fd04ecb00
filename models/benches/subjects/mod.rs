//! The benchmarked operations, shared by the timed and the instruction-counting benches.

use std::f64::consts::TAU;
use std::hint::black_box;

use foretide_models::auto::{self, OnlineModel, OnlineSettings, SampleOrigin, ServiceLevel};
use foretide_models::{Algorithm, Forecaster, Series, dsp, seasonal};
use jiff::{SignedDuration, Timestamp};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Minutes of a day.
pub(crate) const DAY: usize = 1440;

/// Demand of a workload with a daily rhythm, quieter on weekends if `weekly`, with noise.
pub(crate) fn demand(minute: usize, weekly: bool) -> f64 {
    let minute = u32::try_from(minute).map_or(0.0, f64::from);
    let day = minute / 1440.0;
    let quiet = weekly && day.rem_euclid(7.0) >= 5.0;
    let noise = (minute * 12.9898).sin() * 43_758.545;
    let wave = 10.0 + 4.0 * (TAU * day).sin() + (3.0 * TAU * day).cos();
    let level: f64 = if quiet { 0.3 } else { 1.0 };
    level * wave + noise.rem_euclid(1.0)
}

/// A history of this demand, with one value a minute.
pub(crate) fn history(days: usize, weekly: bool) -> Series {
    let values = (0..days * DAY).map(|minute| demand(minute, weekly));
    Series::from_values(Timestamp::UNIX_EPOCH, MINUTE, values.collect())
}

/// The forecasters side by side: `dsp`, a plain seasonal-naive one, `auto`.
pub(crate) fn forecasters() -> Vec<(&'static str, Box<dyn Forecaster>)> {
    let algorithms = [
        Algorithm::Dsp(dsp::Config::default()),
        Algorithm::SeasonalNaive(seasonal::Config::default()),
        Algorithm::Auto(auto::Config::default()),
    ];
    let built = algorithms.into_iter().filter_map(|a| a.build().ok());
    built
        .map(|forecaster| (forecaster.name(), forecaster))
        .collect()
}

/// A model as the controller keeps it, with or without a path to publish, after `days` days of demand.
pub(crate) fn model(days: usize, path: bool) -> OnlineModel {
    let settings = OnlineSettings {
        path,
        ..OnlineSettings::new(2)
    };
    let mut model = OnlineModel::new(settings, MINUTE, ServiceLevel::Quantile(0.9));
    for minute in 0..days * DAY {
        model.take(demand(minute, false), SampleOrigin::Measured { raw: true });
    }
    model.calibrate();
    model
}

/// The next five minutes, one after another, asked after each; the margins are renewed once among them.
pub(crate) fn five_minutes(model: &mut OnlineModel, from: usize) {
    for minute in from..from + 5 {
        model.push(demand(minute, false));
        black_box(model.upper(0.9));
    }
}

/// The same without renewing the margins.
pub(crate) fn five_minutes_uncalibrated(model: &mut OnlineModel, from: usize) {
    for minute in from..from + 5 {
        model.take(demand(minute, false), SampleOrigin::Measured { raw: true });
        black_box(model.upper(0.9));
    }
}
