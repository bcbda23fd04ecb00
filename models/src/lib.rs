#![doc = include_str!("../README.md")]

pub mod auto;
pub mod calibrate;
mod choose;
mod conformal;
pub mod dsp;
mod forecast;
mod forecaster;
mod gaps;
mod grid;
mod harmonic;
pub mod holt_winters;
pub mod linear;
#[cfg(feature = "augurs")]
pub mod mstl;
pub mod percentile;
mod period;
mod refusal;
pub mod replay;
pub mod seasonal;
mod series;
mod spectrum;

pub use forecast::{CEILING_RATIO, Forecast, Note, OUTLIVES_HISTORY, Peak, Prediction, Quality};
pub use forecaster::{Algorithm, ConfigError, Forecaster, REFRESH_PERIOD};
pub use gaps::absurd_runs;
pub use refusal::Refusal;
pub use series::{MAX_SLOTS, Sample, Series};
