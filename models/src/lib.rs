#![doc = include_str!("../README.md")]

mod choose;
pub mod dsp;
mod forecast;
mod forecaster;
mod gaps;
mod harmonic;
pub mod percentile;
mod period;
mod refusal;
pub mod seasonal;
mod series;
mod spectrum;

pub use forecast::{CEILING_RATIO, Forecast, Note, OUTLIVES_HISTORY, Prediction};
pub use forecaster::{Algorithm, ConfigError, Forecaster};
pub use refusal::Refusal;
pub use series::{MAX_SLOTS, Sample, Series};
