//! The default forecaster: one online linear model that predicts directly the highest demand until added capacity can
//! serve, and an honest upper quantile of it.

mod features;
mod objective;
mod online;
mod past;
mod path;
mod ridge;
mod track;

use jiff::SignedDuration;

pub use self::online::{Online, Settings};
use crate::forecast::Forecast;
use crate::forecaster::{ConfigError, Forecaster};
use crate::refusal::Refusal;
use crate::series::Series;

/// Settings of [`Auto`].
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The grid of the history; below a minute, samples are averaged to minutes.
    pub sample_interval: SignedDuration,
    /// How long until added capacity serves; the decision window is this and three minutes.
    pub lead_time: SignedDuration,
    /// How much of the demand to provide for.
    pub aim: Aim,
}

/// How much of the demand to provide for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// The demand that the highest of a decision window stays within, with this probability.
    Quantile(f64),
    /// The lowest quantile whose under-provisioned minutes stay below a part of all.
    UnderProvisioned {
        /// That part, in percent.
        percent: f64,
        /// What one replica carries, in the unit of the history; without it replicas count as infinitely small.
        per_replica: Option<f64>,
    },
}

/// One minute, two minutes of lead, the 90 % quantile.
impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: SignedDuration::from_mins(1),
            lead_time: SignedDuration::from_mins(2),
            aim: Aim::Quantile(0.90),
        }
    }
}

/// The forecaster `auto`.
#[derive(Debug, Clone)]
pub struct Auto {
    config: Config,
}

// === impl Auto ===

impl Auto {
    /// A forecaster with these settings that has seen nothing yet.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first setting that is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self { config })
    }
}

impl Forecaster for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn history_length(&self) -> SignedDuration {
        SignedDuration::from_hours(14 * 24)
    }

    fn sample_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    fn refresh_period(&self) -> SignedDuration {
        self.config.sample_interval
    }

    fn forecast(&mut self, _: &Series, _: SignedDuration) -> Result<Forecast, Refusal> {
        Err(Refusal::NotFinite)
    }
}
