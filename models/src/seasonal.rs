//! [`SeasonalNaive`]: repeats past seasons, either the same time one season ago or a statistic of that time over
//! several seasons. It does not test whether the season exists; `dsp` does.
//!
//! ```text
//! values   | season | season | season |
//! output                               0 1 2 ...     phase 0 is the time just after the last value
//! ```

use std::ops::Range;

use jiff::SignedDuration;
use ndarray::{ArrayView2, Axis, Slice};

use crate::config::{ConfigError, require_grid, require_margin};
use crate::error::ForecastError;
use crate::forecast::{Forecast, Note, clamp_to_ceiling};
use crate::forecaster::{Forecaster, path_length, with_slack};
use crate::gaps::{HistoryRequirements, PreparedHistory, quantile_in_place};
use crate::period::{DAY, WEEK};
use crate::series::{MAX_SLOTS, Series, slots};

/// The bounds of the level ratio, so that an unusual quarter of an hour has a limited effect.
///
/// # Source
/// Measured for seasonal-naive forecasts on real traces.
const RATIO_BOUNDS: (f64, f64) = (0.2, 5.0);

/// The span over which the present level is compared with the season's.
const RATIO_SPAN: SignedDuration = SignedDuration::from_mins(15);

/// The assumed period of a series.
///
/// ```
/// use foretide_models::seasonal::Season;
/// use jiff::SignedDuration;
///
/// assert_eq!(Season::Week.length(), SignedDuration::from_hours(168));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Season {
    /// 24 hours.
    #[default]
    Day,
    /// 7 days.
    Week,
}

/// The statistic of the values at the same time in several seasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Statistic {
    /// The newest season.
    #[default]
    Last,
    /// The median; of an even number of seasons, the higher of the two middle values.
    Median,
    /// The maximum.
    Max,
}

/// Settings of [`SeasonalNaive`].
///
/// ```
/// use foretide_models::Algorithm;
/// use foretide_models::seasonal::{Config, Statistic};
///
/// // Never less than at the same time on any of the last seven days.
/// let config = Config { cycles: 7, statistic: Statistic::Max, ..Config::default() };
/// assert!(Algorithm::SeasonalNaive(config).build().is_ok());
/// ```
///
/// # Units
/// `margin_fraction` is a part of the forecast: 0.1 adds 10 %.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The grid of the history.
    pub sample_interval: SignedDuration,
    /// The assumed period of the series.
    pub season: Season,
    /// The number of seasons to use, at least one.
    pub cycles: usize,
    /// The statistic over these seasons.
    pub statistic: Statistic,
    /// Scales by the level of the last 15 minutes over that of the same 15 minutes of the season.
    pub level_ratio: bool,
    /// The margin to add, as a part of the forecast.
    pub margin_fraction: f64,
}

/// One minute, the last day, no margin.
impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: SignedDuration::from_mins(1),
            season: Season::Day,
            cycles: 1,
            statistic: Statistic::Last,
            level_ratio: false,
            margin_fraction: 0.0,
        }
    }
}

/// The seasonal-naive forecaster: the values of one season ago.
///
/// ```
/// use foretide_models::{Forecaster, Series, seasonal};
/// use jiff::{SignedDuration, Timestamp};
///
/// let hour = SignedDuration::from_hours(1);
/// let config = seasonal::Config { sample_interval: hour, ..seasonal::Config::default() };
/// let history = Series::from_values(Timestamp::UNIX_EPOCH, hour, (1..=24).map(f64::from).collect());
/// let forecast = seasonal::SeasonalNaive::new(config)?.forecast(&history, hour * 3)?;
/// assert_eq!(forecast.point(), [1.0, 2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// - A series that repeats exactly is forecast exactly (margin 0).
/// - Scaling the history scales the forecast; without `level_ratio` and margin, adding a constant shifts it.
#[derive(Debug, Clone)]
pub struct SeasonalNaive {
    config: Config,
}

// === impl Season ===

impl Season {
    /// The length of the season.
    pub fn length(self) -> SignedDuration {
        match self {
            Self::Day => DAY,
            Self::Week => WEEK,
        }
    }
}

// === impl SeasonalNaive ===

impl SeasonalNaive {
    /// A forecaster with these settings.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range.
    ///
    /// ```
    /// use foretide_models::seasonal::{Config, SeasonalNaive};
    ///
    /// let error = SeasonalNaive::new(Config { cycles: 0, ..Config::default() }).unwrap_err();
    /// assert_eq!(error.field, "seasonalNaive.cycles");
    /// ```
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let cycles = i32::try_from(config.cycles)
            .ok()
            .filter(|cycles| *cycles >= 1);
        let span = cycles.and_then(|cycles| config.season.length().checked_mul(cycles));
        let in_all = span.and_then(|span| slots(span, config.sample_interval));
        require_grid("seasonalNaive.sampleInterval", config.sample_interval)?;
        if in_all.is_none_or(|slots| slots > MAX_SLOTS) {
            let expected = "at least 1, and no more than a million samples in all";
            return Err(ConfigError::new(
                "seasonalNaive.cycles",
                config.cycles,
                expected,
            ));
        }
        require_margin("seasonalNaive.marginFraction", config.margin_fraction)?;
        Ok(Self { config })
    }

    /// The level of the last quarter of an hour, relative to what this forecaster would have predicted a season
    /// earlier.
    ///
    /// `sum of the newest 15 minutes / sum of those predicted`, within [`RATIO_BOUNDS`]; 1 if it is not configured,
    /// or nothing was predicted.
    ///
    /// # Shape
    /// `values` without holes, the newest last; `season` in slots.
    fn level_ratio(&self, values: &[f64], season: usize, cycles: usize) -> f64 {
        if !self.config.level_ratio {
            return 1.0;
        }
        let span = slots(RATIO_SPAN, self.config.sample_interval)
            .unwrap_or(0)
            .clamp(1, season);
        let earlier = values.len().saturating_sub(season);
        let before = values.get(..earlier).unwrap_or_default();
        let cycles = cycles.min(before.len() / season);
        let phases = season - span..season;
        let expected = of_phases(before, season, cycles, self.config.statistic, phases);
        let newest: f64 = values.iter().rev().take(span).sum();
        let then: f64 = expected.iter().sum();
        if then <= 0.0 {
            return 1.0;
        }
        (newest / then).clamp(RATIO_BOUNDS.0, RATIO_BOUNDS.1)
    }
}

impl Forecaster for SeasonalNaive {
    fn name(&self) -> &'static str {
        "seasonalNaive"
    }

    /// The configured seasons, one more if the level is compared, and an hour of slack.
    fn history_length(&self) -> SignedDuration {
        let more = usize::from(self.config.level_ratio);
        let cycles = i32::try_from(self.config.cycles + more).unwrap_or(i32::MAX);
        let span = self.config.season.length().checked_mul(cycles);
        with_slack(span.unwrap_or(SignedDuration::MAX))
    }

    fn sample_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    /// Without `level_ratio`, the forecast of an instant does not change within a season.
    fn refit_interval(&self) -> SignedDuration {
        if self.config.level_ratio {
            SignedDuration::from_mins(5)
        } else {
            SignedDuration::from_hours(1)
        }
    }

    fn forecast(
        &mut self,
        history: &Series,
        horizon: SignedDuration,
    ) -> Result<Forecast, ForecastError> {
        let Config {
            sample_interval: step,
            season,
            cycles,
            statistic,
            ..
        } = self.config;
        let wanted = path_length(horizon, step)?;
        let requirements = HistoryRequirements {
            step,
            least: season.length(),
            most: self.history_length(),
        };
        let prepared = PreparedHistory::new(history, requirements)?;
        let length = slots(season.length(), step).unwrap_or(1);
        let values = prepared.filled(length);
        let used = (values.len() / length).clamp(1, cycles.max(1));
        // Only the phases that the path reaches: a statistic of each minute of a week would be wasted on an hour.
        let phases = 0..wanted.min(length);
        let cycle = of_phases(&values, length, used, statistic, phases);
        let factor = (1.0 + self.config.margin_fraction) * self.level_ratio(&values, length, used);
        let mut point: Vec<f64> = cycle
            .iter()
            .cycle()
            .take(wanted)
            .map(|value| value * factor)
            .collect();
        let clamped = clamp_to_ceiling(&mut point, prepared.highest)?;
        let fewer = (used < cycles).then_some(Note::FewerCycles { used });
        let notes = [fewer, clamped.then_some(Note::Clamped)];
        let forecast = Forecast::new(self.name(), prepared.end, step, point, prepared.valid_until)?;
        Ok(forecast
            .with_period(Some(season.length()))
            .with_notes(prepared.notes_when_filled())
            .with_notes(notes.into_iter().flatten()))
    }
}

/// A statistic of each phase over the newest `cycles` seasons.
///
/// # Shape
/// Input without holes; output `season` values, index 0 being the phase just after the last value. Empty if `cycles`
/// seasons do not fit, or none is asked for.
pub(crate) fn over_seasons(
    values: &[f64],
    season: usize,
    cycles: usize,
    statistic: Statistic,
) -> Vec<f64> {
    of_phases(values, season, cycles, statistic, 0..season)
}

/// Like [`over_seasons`], for some phases only.
///
/// # Shape
/// `phases` are indices of the season, 0 being the one just after the last value; the output has one value for each.
fn of_phases(
    values: &[f64],
    season: usize,
    cycles: usize,
    statistic: Statistic,
    phases: Range<usize>,
) -> Vec<f64> {
    let first = values.len().checked_sub(season * cycles);
    let newest = first
        .and_then(|first| values.get(first..))
        .unwrap_or_default();
    let Ok(table) = ArrayView2::from_shape((cycles, season), newest) else {
        return Vec::new();
    };
    if cycles == 0 || phases.start > phases.end || phases.end > season {
        return Vec::new();
    }
    let table = table.slice_axis(Axis(1), Slice::from(phases));
    match statistic {
        Statistic::Last => table
            .rows()
            .into_iter()
            .next_back()
            .map_or(vec![], |row| row.to_vec()),
        Statistic::Max => table
            .fold_axis(Axis(0), 0.0, |a: &f64, b| a.max(*b))
            .to_vec(),
        Statistic::Median => {
            let mut scratch = Vec::with_capacity(cycles);
            let columns = table.columns().into_iter().map(|column| {
                scratch.clear();
                scratch.extend(column.iter().copied());
                quantile_in_place(&mut scratch, 0.5).unwrap_or(0.0)
            });
            columns.collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    const STEP: SignedDuration = SignedDuration::from_hours(1);

    /// `days` of hourly values: hour of the day plus ten times the number of the day, counted from one.
    fn history(days: u32) -> Series {
        let values = (0..24 * days).map(|i| f64::from(i % 24) + 10.0 * f64::from(i / 24 + 1));
        Series::from_values(Timestamp::UNIX_EPOCH, STEP, values.collect())
    }

    fn config(cycles: usize, statistic: Statistic) -> Config {
        Config {
            sample_interval: STEP,
            cycles,
            statistic,
            ..Config::default()
        }
    }

    fn first_two(config: Config, history: &Series) -> Vec<f64> {
        let mut naive = SeasonalNaive::new(config).unwrap();
        naive
            .forecast(history, SignedDuration::from_hours(2))
            .unwrap()
            .point()
            .to_vec()
    }

    #[test]
    fn a_forecast_is_a_statistic_of_the_same_hour_in_past_seasons() {
        let ratio = Config {
            level_ratio: true,
            ..config(1, Statistic::Last)
        };
        let margin = Config {
            margin_fraction: 0.5,
            ..config(1, Statistic::Last)
        };
        let cases = [
            ("last", config(3, Statistic::Last), vec![30.0, 31.0]),
            ("median", config(3, Statistic::Median), vec![20.0, 21.0]),
            ("maximum", config(3, Statistic::Max), vec![30.0, 31.0]),
            ("margin", margin, vec![45.0, 46.5]),
            // Hour 23 was 53 on the third day, 43 on the second.
            (
                "level ratio",
                ratio,
                vec![30.0 * 53.0 / 43.0, 31.0 * 53.0 / 43.0],
            ),
        ];
        for (name, config, expected) in cases {
            assert_eq!(first_two(config, &history(3)), expected, "{name}");
        }
    }

    #[test]
    fn fewer_cycles_than_configured_are_used_and_noted() {
        let mut naive = SeasonalNaive::new(config(7, Statistic::Median)).unwrap();
        let forecast = naive.forecast(&history(2), STEP).unwrap();
        assert_eq!(forecast.notes(), [Note::FewerCycles { used: 2 }]);
        assert_eq!(forecast.period(), Some(DAY));
        let week = Config {
            season: Season::Week,
            ..config(1, Statistic::Last)
        };
        let error = SeasonalNaive::new(week)
            .unwrap()
            .forecast(&history(6), STEP)
            .unwrap_err();
        let have = SignedDuration::from_hours(144);
        assert_eq!(
            error,
            ForecastError::InsufficientHistory { have, need: WEEK }
        );
    }

    #[test]
    fn settings_out_of_range_are_errors_that_name_the_field() {
        type Change = fn(&mut Config);
        let cases: [(Change, &str); 4] = [
            (|c| c.cycles = 0, "seasonalNaive.cycles"),
            (|c| c.cycles = usize::MAX, "seasonalNaive.cycles"),
            (
                |c| c.sample_interval = SignedDuration::ZERO,
                "seasonalNaive.sampleInterval",
            ),
            (|c| c.margin_fraction = -0.1, "seasonalNaive.marginFraction"),
        ];
        for (change, field) in cases {
            let mut config = Config::default();
            change(&mut config);
            assert_eq!(SeasonalNaive::new(config).unwrap_err().field, field);
        }
    }
}
