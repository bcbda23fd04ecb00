//! Demand forecasting for autoscalers, without a clock, I/O or randomness. A `Series` is a regular grid with gaps. A
//! `Forecaster` reads it and returns a `Forecast`, a path that begins where the history ends and has the peak over any
//! window that it covers, or a `ForecastError` with the reason: for the autoscaler "no proposal", never zero. The state
//! that it keeps between two calls changes the cost of a forecast, never the forecast.
//!
//! ```rust
//! use foretide_models::{Algorithm, Sample, Series, dsp};
//! use jiff::{SignedDuration, Timestamp};
//!
//! // Three days of a daily wave, a sample every five minutes.
//! let step = SignedDuration::from_mins(5);
//! let start = Timestamp::UNIX_EPOCH;
//! let samples: Vec<Sample> = (0..3 * 288)
//!     .map(|i| Sample {
//!         at: start + step * i,
//!         value: 10.0 + 4.0 * (std::f64::consts::TAU * f64::from(i) / 288.0).sin(),
//!     })
//!     .collect();
//! let history = Series::from_samples(&samples, step, start, samples[samples.len() - 1].at);
//!
//! let config = dsp::Config { sample_interval: step, ..dsp::Config::default() };
//! let mut forecaster = Algorithm::Dsp(config).build()?;
//! let forecast = forecaster.forecast(&history, SignedDuration::from_hours(12))?;
//!
//! // The wave reaches 14 six hours into the next day; crane's default margin of 1 % is on top.
//! let peak = forecast.peak(history.end(), SignedDuration::from_hours(8));
//! assert!(peak.is_some_and(|peak| (14.0..14.3).contains(&peak)));
//! assert_eq!(forecast.period(), Some(SignedDuration::from_hours(24)));
//!
//! // A forecast expires ten minutes after the end of its history; then it has no peak.
//! let later = history.end() + SignedDuration::from_mins(11);
//! assert_eq!(forecast.peak(later, SignedDuration::from_hours(1)), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Which forecaster when
//!
//! | forecaster | what it does | use it when | do not use it when | least history | calibrated |
//! |---|---|---|---|---|---|
//! | `auto` | learns online the highest demand of the next minutes, from the last minutes and the same time on past days | always, unless you have a reason for another | you must explain every number by hand | 2 hours | built in |
//! | `seasonalNaive` | the same time yesterday or last week; or the median or maximum of several | you must explain every number; "never less than in the last 7 days" | you are not sure that there is a season: it does not test for one | 1 season | yes |
//! | `dsp` | finds a day or a week, denoises the last one, repeats it; continues steady growth; a level series is its own forecast | you migrate from crane | load does not follow the clock; there is then no forecast | 2 days (a week: 14 days) | no |
//! | `percentile` | one high percentile of the past, in which old samples count less | a steady service needs a floor | load has a daily shape: the floor is at the peak all day | 2 hours | no |
//!
//! `Algorithm::Calibrated` wraps any of them. It measures by how much the highest demand of each decision window (lead time
//! and 3 minutes) of the last days exceeded what would have been predicted, and adds the margin that keeps the wanted part
//! of the windows within the forecast. It needs a week more of history than the wrapped forecaster, and forty outcomes
//! before it adds anything. The last column is the autoscaler's default.
//!
//! ## Guarantees of every forecaster
//!
//! - The same history gives the same forecast, bit for bit.
//! - Values are finite and within `[0, 1.5 x the highest sample]`; no input makes it panic.
//! - Gaps are filled, impossible samples are ignored, and the forecast's notes say so. With more than 30 % missing, of the
//!   history or of its last day, there is no forecast.
//! - Settings out of range are errors that name the field. None is silently replaced.
//!
//! ## Map
//!
//! ```text
//! Series -> preprocess -> features -> ridge -> margins ------> ceiling -> Forecast      auto
//! Series -> gaps -> period -> choose (harmonic | seasonal) -> ceiling -> Forecast      dsp
//! Series -> gaps -> seasonal --------------------------------> ceiling -> Forecast      seasonalNaive
//! Series -> gaps -> percentile ------------------------------> ceiling -> Forecast      percentile
//! Series -> any of these, now and as backcast -> conformal -> ceiling -> Forecast      calibrate
//! ```
//!
//! ## Cost
//!
//! Instructions by `cargo bench -p foretide-models --bench instructions` (valgrind), CPU times of the same on two virtual
//! cores.
//!
//! | | instructions | CPU time |
//! |---|---|---|
//! | seasonal naive, from 14 days | 110 thousand | 4 us |
//! | `dsp`, from 3 days | 4.7 million | 0.3 ms |
//! | `dsp`, from 14 days | 23 million | 2.1 ms |
//! | `auto`, learning 14 days | 380 million | 21 to 23 ms |
//! | the same, and the path to show | 543 million | 29 to 32 ms |
//! | `auto`, the next minute | 101 thousand | 5.6 to 6.1 us |
//! | the same, with the path | 112 thousand | 7.6 us |
//!
//! A thousand series of `auto` with their paths take 8 ms of CPU a minute. A learned series takes less than 230 KB, and a
//! minute of it allocates nothing; both are tested.
//!
//! `docs/forecasting-internals.md` describes how `auto` learns, `replay/MEASURED.md` its results on twenty public traces,
//! `CONTRIBUTING.md` ("Where to add") how to add one.

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
