#![doc = include_str!("../README.md")]

mod algorithm;
pub mod auto;
mod budget;
pub mod calibrate;
mod choose;
mod config;
mod conformal;
pub mod dsp;
mod error;
mod forecast;
mod forecaster;
mod gaps;
mod grid;
mod harmonic;
pub mod percentile;
mod period;
pub mod seasonal;
mod series;
mod spectrum;

pub use algorithm::Algorithm;
pub use budget::{SharedPrice, TradeOff, TradeOffs};
pub use config::ConfigError;
pub use error::ForecastError;
pub use forecast::{
    CARRIED, CEILING_RATIO, DemandBounds, FORECAST_VALIDITY, Forecast, KEPT_ABOVE, KEPT_BELOW,
    Note, Peak, Prediction, Quality,
};
pub use forecaster::{Forecaster, REFRESH_PERIOD};
pub use gaps::outlier_runs;
pub use series::{MAX_SLOTS, Sample, Series};
