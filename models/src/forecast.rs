//! What a forecaster answers: a path on the grid of its history, how far it may be trusted, and on what grounds.
//! It refuses to be read once it has expired. Next: `Forecaster` in `forecaster`.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::refusal::Refusal;
use crate::series::{self, MAX_SLOTS, Sample};

/// How long a forecast outlives the history it was made from.
///
/// # Source
/// crane repeats a forecast for up to the length of its history, which keeps a dead metric alive for days. Ten
/// minutes bridge a restart of the metrics store and no more.
pub const OUTLIVES_HISTORY: SignedDuration = SignedDuration::from_secs(600);

/// A forecast never exceeds this multiple of the highest value of its history.
///
/// # Source
/// The ceiling of AWS-style predictive scaling buffers; ours is a guard against arithmetic, not a feature.
pub const CEILING_RATIO: f64 = 1.5;

/// Predicted values on a regular grid.
///
/// # Shape
/// `point()[i]` is the value predicted for `[start + i * step, start + (i + 1) * step)`; `upper()`, where there is
/// one, has the same length.
///
/// # Guarantees
/// - Every value is finite and at least zero.
/// - What a [`Forecaster`](crate::Forecaster) of this crate returns is at most [`CEILING_RATIO`] times the maximum of
///   its history.
/// - [`peak`](Self::peak) is `None` after [`valid_until`](Self::valid_until), so a dead history cannot hold a count up.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    method: &'static str,
    start: Timestamp,
    step: SignedDuration,
    point: Vec<f64>,
    upper: Option<Vec<f64>>,
    period: Option<SignedDuration>,
    notes: Vec<Note>,
    valid_until: Timestamp,
    peak: Option<Peak>,
    quality: Option<Quality>,
}

/// What to provide for: a forecaster's direct answer to "how much at most until added capacity can serve?".
///
/// # Units
/// `value` is in the unit of the history.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// The decision window: the span from the end of the history on that the answer covers.
    pub window: SignedDuration,
    /// The demand that the highest of the window stays within, with probability `quantile`.
    pub value: f64,
    /// The quantile in use, in `(0, 1)`.
    pub quantile: f64,
}

/// How a forecaster that measures itself has done, out of sample, over the last three days.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// The part of the decision windows whose highest demand stayed within the forecast; honest when near the quantile.
    /// Forecasts are judged with margins that are up to a few hours old; those that are given out have newer ones.
    pub coverage: Option<f64>,
    /// One minus the ratio of its pinball loss to that of "it stays as it is" with the same calibration: 0 is no
    /// better, 1 is perfect.
    pub skill: Option<f64>,
    /// The first sample that it learnt from.
    pub learnt_from: Timestamp,
    /// Up to when it knows what was: the end of the newest sample.
    pub known_until: Timestamp,
}

/// One predicted value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// The instant it is for.
    pub at: Timestamp,
    /// The expected value.
    pub value: f64,
    /// The value not exceeded with the forecaster's quantile, if it gives one.
    pub upper: Option<f64>,
}

/// Something worth knowing about how a forecast came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The history is constant; the forecast is its level.
    Constant,
    /// The history has no period but hardly varies; the forecast is its level.
    Steady,
    /// Holes were filled in.
    GapsFilled {
        /// How many slots.
        slots: usize,
    },
    /// Samples far beyond everything else were treated as missing.
    SpikesRejected {
        /// How many slots.
        slots: usize,
    },
    /// What lies before a hole of more than a day was not used.
    HistoryCut,
    /// Each period is higher or lower than the last by about the same amount, and the forecast goes on like that.
    Trend,
    /// Values were lowered to the ceiling.
    Clamped,
    /// Less than a day of history: only the last minutes and hours are looked at.
    WarmingUp,
    /// The level has shifted lately, and everything was learnt anew from it.
    LevelShift,
    /// The model is no better than "it stays as it is", which is used instead.
    NoSkill,
    /// The model's equations have no solution; "it stays as it is" is used instead.
    NumericalFallback,
    /// Fewer cycles than configured were available.
    FewerCycles {
        /// How many were used.
        used: usize,
    },
    /// Too few outcomes are known yet to measure a margin; nothing was added to the forecast.
    Uncalibrated,
}

// === impl Note ===

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("the history is constant"),
            Self::Steady => f.write_str("the history is steady"),
            Self::GapsFilled { slots } => write!(f, "{slots} missing samples were filled in"),
            Self::SpikesRejected { slots } => write!(f, "{slots} absurd samples were ignored"),
            Self::HistoryCut => {
                f.write_str("history before a hole of more than a day was not used")
            }
            Self::Trend => f.write_str("the trend of the last periods is continued"),
            Self::Clamped => {
                f.write_str("the forecast was lowered to 1.5 times the highest sample")
            }
            Self::WarmingUp => f.write_str("less than a day of history so far"),
            Self::LevelShift => f.write_str("the level shifted within the last hour"),
            Self::NoSkill => f.write_str(
                "lately no better than expecting the present level to stay, which is used instead",
            ),
            Self::NumericalFallback => {
                f.write_str("the model could not be solved; the present level is expected to stay")
            }
            Self::Uncalibrated => f.write_str(
                "too few outcomes are known yet to calibrate the forecast; it is the bare one",
            ),
            Self::FewerCycles { used } => write!(f, "only {used} cycles of history were available"),
        }
    }
}

// === impl Forecast ===

impl Forecast {
    /// Makes a forecast that begins at `start` and expires after `valid_until`.
    ///
    /// # Errors
    /// [`Refusal::NotFinite`] if a value is not finite or is negative; [`Refusal::HorizonOutOfRange`] if there is no
    /// value, too many of them, or `step` is not positive.
    pub fn new(
        method: &'static str,
        start: Timestamp,
        step: SignedDuration,
        point: Vec<f64>,
        valid_until: Timestamp,
    ) -> Result<Self, Refusal> {
        check(&point)?;
        if point.is_empty() || point.len() > MAX_SLOTS || !step.is_positive() {
            let horizon = series::later(start, step, point.len()).duration_since(start);
            return Err(Refusal::HorizonOutOfRange { horizon, step });
        }
        let (upper, period, notes) = (None, None, Vec::new());
        Ok(Self {
            method,
            start,
            step,
            point,
            upper,
            period,
            notes,
            valid_until,
            peak: None,
            quality: None,
        })
    }

    /// Adds the path that is exceeded with the small probability the forecaster was asked for.
    ///
    /// # Errors
    /// [`Refusal::NotFinite`] if a value is not finite or is negative, or the lengths differ.
    pub fn with_upper(mut self, upper: Vec<f64>) -> Result<Self, Refusal> {
        check(&upper)?;
        if upper.len() != self.point.len() {
            return Err(Refusal::NotFinite);
        }
        self.upper = Some(upper);
        Ok(self)
    }

    /// Adds the direct answer about the decision window; without one, the path gives it.
    ///
    /// # Errors
    /// [`Refusal::NotFinite`] if the value is not finite or is negative.
    pub fn with_peak(mut self, peak: Peak) -> Result<Self, Refusal> {
        check(&[peak.value])?;
        self.peak = Some(peak);
        Ok(self)
    }

    /// Adds how well the forecaster has done lately.
    #[must_use]
    pub fn with_quality(mut self, quality: Quality) -> Self {
        self.quality = Some(quality);
        self
    }

    /// Says which period was found.
    #[must_use]
    pub fn with_period(mut self, period: Option<SignedDuration>) -> Self {
        self.period = period;
        self
    }

    /// Adds grounds.
    #[must_use]
    pub fn with_notes(mut self, notes: impl IntoIterator<Item = Note>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// The name of the forecaster that made it.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// The instant of the first value.
    #[must_use]
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// The distance between values.
    #[must_use]
    pub fn step(&self) -> SignedDuration {
        self.step
    }

    /// The instant just after the last value's slot.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        series::later(self.start, self.step, self.point.len())
    }

    /// The expected values.
    #[must_use]
    pub fn point(&self) -> &[f64] {
        &self.point
    }

    /// The values exceeded with small probability only, if the forecaster gives them.
    #[must_use]
    pub fn upper(&self) -> Option<&[f64]> {
        self.upper.as_deref()
    }

    /// The period found in the history, if any.
    #[must_use]
    pub fn period(&self) -> Option<SignedDuration> {
        self.period
    }

    /// What is worth knowing about how it came about.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The last instant at which this forecast may be used.
    #[must_use]
    pub fn valid_until(&self) -> Timestamp {
        self.valid_until
    }

    /// What to provide for at `now`: the forecaster's direct answer where it gave one, else the [`peak`](Self::peak) of
    /// the path over `window`. `None` once the forecast has expired, or when the path does not cover the window.
    #[must_use]
    pub fn demand(&self, now: Timestamp, window: SignedDuration) -> Option<f64> {
        match self.direct() {
            Some(peak) => (now <= self.valid_until).then_some(peak.value),
            None => self.peak(now, window),
        }
    }

    /// The forecaster's direct answer about its decision window, if it gives one.
    #[must_use]
    pub fn direct(&self) -> Option<&Peak> {
        self.peak.as_ref()
    }

    /// How well the forecaster has done lately, if it measures that.
    #[must_use]
    pub fn quality(&self) -> Option<&Quality> {
        self.quality.as_ref()
    }

    /// Highest value predicted for `[from, from + window]`: of the upper path where there is one.
    ///
    /// What lies before the start of the forecast is history and is left out. `None` once `from` is past
    /// [`valid_until`](Self::valid_until), when the window ends before the forecast starts, when it ends after the
    /// forecast does, or when `window` is negative: never a partial answer. Ask the forecaster for a horizon of the
    /// window plus [`OUTLIVES_HISTORY`] and a step to be covered until expiry.
    ///
    /// # Guarantees
    /// - A longer window that is covered never gives a smaller answer.
    #[must_use]
    pub fn peak(&self, from: Timestamp, window: SignedDuration) -> Option<f64> {
        let until = from.checked_add(window).ok()?;
        if from > self.valid_until || window.is_negative() || until > self.end() {
            return None;
        }
        let first = series::slots(from.duration_since(self.start), self.step).unwrap_or(0);
        let last = series::slots(until.duration_since(self.start), self.step)?;
        let path = self.upper.as_deref().unwrap_or(&self.point);
        let covered = path.get(first..=last.min(path.len() - 1))?;
        covered.iter().copied().reduce(f64::max)
    }

    /// The predicted values with their instants, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = Prediction> + '_ {
        self.point.iter().enumerate().map(|(i, &value)| Prediction {
            at: series::later(self.start, self.step, i),
            value,
            upper: self.upper.as_ref().and_then(|upper| upper.get(i).copied()),
        })
    }

    /// The expected values as samples.
    pub fn points(&self) -> impl Iterator<Item = Sample> + '_ {
        self.samples().map(|p| Sample {
            at: p.at,
            value: p.value,
        })
    }
}

fn check(values: &[f64]) -> Result<(), Refusal> {
    let fine = values
        .iter()
        .all(|value| value.is_finite() && *value >= 0.0);
    if fine {
        Ok(())
    } else {
        Err(Refusal::NotFinite)
    }
}

/// Lowers a path to the ceiling that `highest`, the maximum of the history, sets; says whether that changed anything.
///
/// # Guarantees
/// - The result is finite and within `[0, 1.5 * highest]`, for finite `highest`.
pub(crate) fn guard(path: &mut [f64], highest: f64) -> Result<bool, Refusal> {
    let ceiling = (CEILING_RATIO * highest).min(f64::MAX);
    let mut clamped = false;
    for value in path {
        if value.is_nan() {
            return Err(Refusal::NotFinite);
        }
        clamped |= *value > ceiling;
        *value = value.clamp(0.0, ceiling);
    }
    Ok(clamped)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: SignedDuration = SignedDuration::from_secs(60);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Values 1, 5, 2, 4 at 600 s, 660 s, 720 s, 780 s; valid until 720 s.
    fn forecast() -> Forecast {
        Forecast::new("test", at(600), MINUTE, vec![1.0, 5.0, 2.0, 4.0], at(720)).unwrap()
    }

    #[test]
    fn the_peak_is_the_highest_value_of_the_window() {
        let cases = [
            ("one instant", 600, 0, Some(1.0)),
            ("up to within a slot", 600, 59, Some(1.0)),
            ("up to the next slot", 600, 60, Some(5.0)),
            ("from within a slot", 719, 1, Some(5.0)),
            ("after the maximum", 720, 60, Some(4.0)),
            ("to the very end", 720, 120, Some(4.0)),
            ("beyond the end", 720, 121, None),
            ("expired", 721, 0, None),
            ("from before the start", 570, 60, Some(1.0)),
            ("wholly before the start", 500, 60, None),
            ("negative window", 660, -60, None),
        ];
        for (name, from, window, expected) in cases {
            let peak = forecast().peak(at(from), SignedDuration::from_secs(window));
            assert_eq!(peak, expected, "{name}");
        }
    }

    #[test]
    fn the_upper_path_makes_the_peak_where_there_is_one() {
        let upper = forecast().with_upper(vec![2.0, 6.0, 3.0, 5.0]).unwrap();
        assert_eq!(upper.peak(at(600), MINUTE), Some(6.0));
        let last = upper.samples().last().unwrap();
        assert_eq!(
            last,
            Prediction {
                at: at(780),
                value: 4.0,
                upper: Some(5.0)
            }
        );
        assert_eq!(forecast().with_upper(vec![1.0]), Err(Refusal::NotFinite));
    }

    #[test]
    fn values_that_are_not_demand_are_refused() {
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            let refused = Forecast::new("test", at(0), MINUTE, vec![1.0, bad], at(0));
            assert_eq!(refused, Err(Refusal::NotFinite));
        }
        let empty = Forecast::new("test", at(0), MINUTE, vec![], at(0)).unwrap_err();
        assert_eq!(empty.reason(), "HorizonOutOfRange");
    }

    #[test]
    fn a_path_is_guarded_by_the_highest_sample() {
        let mut path = [-1.0, 2.0, 4.0, f64::INFINITY];
        assert_eq!(guard(&mut path, 2.0), Ok(true));
        assert_eq!(
            path.map(f64::to_bits),
            [0.0, 2.0, 3.0, 3.0].map(f64::to_bits)
        );
        assert_eq!(guard(&mut [f64::NAN], 2.0), Err(Refusal::NotFinite));
        assert_eq!(guard(&mut [f64::INFINITY], f64::MAX), Ok(true));
    }
}
