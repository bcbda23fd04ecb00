//! The default forecaster: one online linear model per series that predicts directly the highest demand until added
//! capacity can serve, and an upper quantile of it from its own errors.
//!
//! This file is the door: it turns a [`Series`] with holes into demand step by step, refuses where nothing honest can
//! be said, and puts the answer together. [`Online`] is the model without the door, for who has clean demand at hand.
//!
//! ```text
//! Series -> intake (holes, nonsense) -> past -> features -> ridge -> point
//!                                                  errors -> conformal -> upper -> Peak
//!                                                  features -> path -> Forecast
//! ```
//!
//! # Source
//! Features and constants are those of a study on 48 workload traces; what this code makes of the public ones among
//! them, and how to run that again, is in `docs/`.

mod derived;
mod features;
mod intake;
mod learner;
mod margins;
mod objective;
mod online;
mod past;
mod path;
mod ridge;
mod track;

use jiff::SignedDuration;

use self::intake::Intake;
use self::learner::{Basis, LEAST_MINUTES};
use self::online::LOOK_BEYOND;
pub use self::online::{Online, Seen, Settings};
use crate::forecast::{Forecast, Note, Peak, Quality};
use crate::forecaster::{ConfigError, Forecaster, path_length, require_grid};
use crate::gaps::MAX_MISSING;
use crate::grid::Grid;
use crate::refusal::Refusal;
use crate::series::{Series, count, later};

/// The grid is never finer than this: samples in between are averaged.
const FINEST: SignedDuration = SignedDuration::from_secs(60);
/// How much history to ask for: the errors of the last week are then those of a model that had seen a week.
const HISTORY: SignedDuration = SignedDuration::from_hours(14 * 24);
/// A forecast expires so many steps after the newest sample.
const OUTLIVES: usize = 3;
/// How long a new scale is worth a note.
const NOTED_MINUTES: i64 = 60;

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
///
/// # Guarantees
/// - Growing a history and asking after each sample gives the answers of asking once with all of it, but for the last
///   digits, which depend on the order of sums.
/// - A history that does not go on where the one before ended, or was filled in before its beginning, is learnt anew.
/// - Multiplying a history by a number multiplies the answers by it.
#[derive(Debug, Clone)]
pub struct Auto {
    config: Config,
    grid: Grid,
    /// None before the first history.
    intake: Option<Intake>,
}

// === impl Auto ===

impl Auto {
    /// A forecaster with these settings that has seen nothing yet.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first setting that is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        require_grid("auto.sampleInterval", config.sample_interval)?;
        let hour = SignedDuration::from_hours(1);
        if config.lead_time.is_negative() || config.lead_time > hour {
            let lead = format_args!("{:#}", config.lead_time).to_string();
            return Err(ConfigError::new("leadTimeSeconds", lead, "at most an hour"));
        }
        match config.aim {
            Aim::Quantile(q) if !(q > 0.0 && q < 1.0) => {
                let expected = "above 0 and below 1";
                return Err(ConfigError::new("quantile", q, expected));
            }
            Aim::UnderProvisioned { percent, .. } if !(percent > 0.0 && percent <= 100.0) => {
                let expected = "above 0 and at most 100";
                return Err(ConfigError::new(
                    "maxUnderProvisionedPercent",
                    percent,
                    expected,
                ));
            }
            Aim::Quantile(_) | Aim::UnderProvisioned { .. } => {}
        }
        let grid = Grid::new(coarse(config.sample_interval));
        Ok(Self {
            config,
            grid,
            intake: None,
        })
    }

    /// What the model of its series takes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let kept = self
            .intake
            .as_ref()
            .map_or(0, |intake| intake.online().bytes());
        size_of::<Self>() + kept
    }

    fn lead_minutes(&self) -> i64 {
        self.config.lead_time.as_secs().saturating_add(59) / 60
    }

    fn online(&self) -> Online {
        let settings = Settings {
            path: true,
            ..Settings::new(self.lead_minutes())
        };
        Online::new(settings, self.grid.step(), self.config.aim)
    }

    /// Takes in what is new of a history, or all of it when it does not continue the one before.
    fn catch_up(&mut self, history: &Series) -> &Intake {
        let kept = self
            .intake
            .take()
            .filter(|intake| intake.continues(history));
        let afresh = || Intake::new(self.online(), history, self.grid.step());
        let intake = kept.unwrap_or_else(afresh);
        let intake = self.intake.insert(intake);
        intake.take(history);
        intake
    }
}

impl Forecaster for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn history_length(&self) -> SignedDuration {
        HISTORY
    }

    fn sample_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    fn refresh_period(&self) -> SignedDuration {
        self.grid.step()
    }

    fn forecast(&mut self, history: &Series, horizon: SignedDuration) -> Result<Forecast, Refusal> {
        if history.step() != self.config.sample_interval {
            return Err(Refusal::StepMismatch {
                have: history.step(),
                need: self.config.sample_interval,
            });
        }
        let grid = self.grid;
        let wanted = path_length(horizon, grid.step())?;
        let window = grid.step() * whole(grid.minutes(self.lead_minutes() + LOOK_BEYOND));
        let intake = self.catch_up(history);
        let silent = admit(intake, history, grid)?;
        let online = intake.online();
        let start = later(intake.next(), grid.step(), silent);
        let insufficient = Refusal::InsufficientHistory {
            have: grid.step() * whole(intake.usable()),
            need: grid.step() * whole(online.least().max(intake.usable() + 1)),
        };
        let quantile = online.quantile();
        let value = online.upper(quantile).ok_or(insufficient)?;
        let path = online.path(wanted + silent).ok_or(insufficient)?;
        let after = |values: &[f64]| values.get(silent..).unwrap_or_default().to_vec();
        let valid_until = later(intake.next(), grid.step(), OUTLIVES);
        let forecast = Forecast::new("auto", start, grid.step(), after(&path.point), valid_until)?
            .with_upper(after(&path.upper))?
            .with_peak(Peak {
                window,
                value,
                quantile,
            })?
            .with_quality(Quality {
                coverage: online.coverage(),
                skill: online.skill(),
                learnt_from: intake.learnt_from(),
                known_until: intake.next(),
            })
            .with_notes(notes(intake, grid));
        Ok(forecast)
    }
}

/// Whether there is enough, and new enough, to go by; and for how many steps nothing has been heard.
fn admit(intake: &Intake, history: &Series, grid: Grid) -> Result<usize, Refusal> {
    let least = grid.minutes(LEAST_MINUTES);
    if intake.usable() < least {
        return Err(Refusal::InsufficientHistory {
            have: grid.step() * whole(intake.usable()),
            need: grid.step() * whole(least),
        });
    }
    let silent = intake.silent(history);
    if silent > OUTLIVES {
        return Err(Refusal::StaleHistory {
            last: intake.newest(),
            end: history.end(),
        });
    }
    let past = intake.online().past();
    let (from, to) = (
        past.end().saturating_sub(grid.day()).max(past.first()),
        past.end(),
    );
    let (missing, of) = (past.made_up(from, to), to - from);
    if count(missing) > MAX_MISSING * count(of) {
        return Err(Refusal::TooManyGaps { missing, of });
    }
    if intake
        .online()
        .extremes()
        .is_none_or(|(highest, _)| highest <= 0.0)
    {
        return Err(Refusal::ZeroSeries);
    }
    Ok(silent)
}

/// On what grounds the answer stands.
fn notes(intake: &Intake, grid: Grid) -> impl Iterator<Item = Note> {
    let online = intake.online();
    let past = online.past();
    let constant = online.extremes().is_some_and(|(high, low)| high <= low);
    let filled = past.made_up(past.first(), past.end());
    let rejected = intake.rejected();
    let age = past.end() - past.first();
    let since = online.scale_since().unwrap_or(0);
    let shifted =
        since > grid.minutes(LEAST_MINUTES) && past.end() - since < grid.minutes(NOTED_MINUTES);
    let basis = match online.basis() {
        Some(Basis::NoSkill) => Some(Note::NoSkill),
        Some(Basis::Numerical) => Some(Note::NumericalFallback),
        _ => (age < grid.day()).then_some(Note::WarmingUp),
    };
    [
        constant.then_some(Note::Constant),
        basis,
        shifted.then_some(Note::LevelShift),
        (filled > 0).then_some(Note::GapsFilled { slots: filled }),
        (rejected > 0).then_some(Note::SpikesRejected { slots: rejected }),
    ]
    .into_iter()
    .flatten()
}

/// The smallest multiple of a step that is at least a minute and divides a day.
fn coarse(step: SignedDuration) -> SignedDuration {
    let (day, seconds) = (86_400, step.as_secs().max(1));
    let fits = |step: &i64| *step >= FINEST.as_secs() && day % step == 0;
    let mut multiples = (1..=day / seconds).map(|n| n * seconds);
    multiples.find(fits).map_or(step, SignedDuration::from_secs)
}

/// A count of steps as a factor of durations.
fn whole(steps: usize) -> i32 {
    i32::try_from(steps).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
