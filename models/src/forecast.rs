//! [`Forecast`]: the predicted values on the grid of the history, with their expiry, their notes and their measured
//! quality.

use jiff::{SignedDuration, Timestamp};

use crate::error::ForecastError;
use crate::series::{self, MAX_SLOTS, Sample};

/// The time for which a forecast stays valid after the end of the measured history.
///
/// # Source
/// crane repeats a forecast for up to the length of its history, so a metric that stopped days ago still scales.
/// Ten minutes bridge a restart of the metrics store.
pub const FORECAST_VALIDITY: SignedDuration = SignedDuration::from_secs(600);

/// A forecast never exceeds this multiple of the highest value of its history.
///
/// # Source
/// The ceiling of the buffers of AWS predictive scaling. Here it protects against numerical errors.
pub const CEILING_RATIO: f64 = 1.5;

/// A count stays while the demand it is for is at most this much below what it carries, as a fraction of that.
pub const KEPT_BELOW: f64 = 0.05;
/// A count stays while the demand it is for is at most this much above what it carries: the tolerance of the HPA.
pub const KEPT_ABOVE: f64 = 0.10;
/// A difference that is an error of rounding, as a fraction of what a count carries.
const ROUNDING: f64 = 1e-9;
/// The part of the demand that a new count carries at its target.
pub const CARRIED: f64 = 0.95;

/// Predicted values on a regular grid.
///
/// # Shape
/// `point()[i]` is the value predicted for `[start + i * step, start + (i + 1) * step)`; `upper()`, where there is
/// one, has the same length.
///
/// # Guarantees
/// - Every value is finite and at least zero.
/// - Every value returned by a [`Forecaster`](crate::Forecaster) of this crate is at most [`CEILING_RATIO`] times the
///   maximum of its history.
/// - [`peak`](Self::peak) is `None` after [`valid_until`](Self::valid_until), so replicas are not held by a metric that
///   stopped.
///
/// ```
/// use foretide_models::Forecast;
/// use jiff::{SignedDuration, Timestamp};
///
/// let minute = SignedDuration::from_mins(1);
/// let start = Timestamp::UNIX_EPOCH;
/// let forecast = Forecast::new("example", start, minute, vec![1.0, 5.0, 2.0], start + minute)?;
/// assert_eq!(forecast.peak(start, minute * 2), Some(5.0));
/// // After its expiry it has no peak.
/// assert_eq!(forecast.peak(start + minute * 2, minute), None);
/// # Ok::<(), foretide_models::ForecastError>(())
/// ```
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

/// The demand to provide for: a forecaster's direct estimate of the peak demand until added capacity can serve.
///
/// # Units
/// `value` is in the unit of the history.
///
/// ```
/// use foretide_models::{DemandBounds, Forecast, Peak};
/// use jiff::{SignedDuration, Timestamp};
///
/// let minute = SignedDuration::from_mins(1);
/// let start = Timestamp::UNIX_EPOCH;
/// let path = Forecast::new("example", start, minute, vec![1.0, 5.0, 2.0], start + minute * 10)?;
/// assert_eq!(path.demand(start, minute * 2), Some(5.0));
///
/// let peak = Peak {
///     window: minute * 3,
///     value: 6.0,
///     quantile: 0.95,
///     bounds: DemandBounds { raise: 5.5, hold: 6.5 },
/// };
/// // With a direct estimate, the path is for charts only.
/// let direct = path.with_peak(peak)?;
/// assert_eq!(direct.demand(start, minute * 2), Some(6.0));
/// assert_eq!(direct.bounds(start, minute * 2), Some(peak.bounds));
/// # Ok::<(), foretide_models::ForecastError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// The decision window: the span that the estimate covers, starting at the end of the history.
    pub window: SignedDuration,
    /// The peak demand of the window stays within this value with probability `quantile`.
    pub value: f64,
    /// The quantile in use, in `(0, 1)`.
    pub quantile: f64,
    /// The bounds that a count is held against.
    pub bounds: DemandBounds,
}

/// The two bounds of the demand that a count is held against. A count that carries `raise` to `hold` stays.
///
/// # Units
/// That of the history. `raise <= hold`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DemandBounds {
    /// The demand that a replica that is asked for now can serve: the peak about when it becomes ready. A count that
    /// carries less is raised.
    pub raise: f64,
    /// The demand that a replica that is removed now may be missed for: the peak until one that is asked for later
    /// could replace it. A count that carries more is lowered.
    pub hold: f64,
}

/// The out-of-sample accuracy of a forecaster over the last three days.
///
/// Coverage and skill are measured on samples that the forecaster had not seen when it predicted them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// The share of decision windows whose peak demand stayed within the forecast; ideally equal to the quantile.
    /// It is measured with margins that are up to a few hours old; published forecasts use newer ones.
    pub coverage: Option<f64>,
    /// One minus the ratio of its pinball loss to that of persistence (repeating the current level) with the same
    /// calibration: 0 is no better than persistence, 1 is perfect.
    pub skill: Option<f64>,
    /// The share of the last day's outcomes that were learned from
    /// [raw values](crate::Series::with_raw), in `[0, 1]`; the others are those of the values of the history, which may be
    /// smoothed.
    pub raw: f64,
    /// The first sample that it learned from.
    pub learnt_from: Timestamp,
    /// The end of the newest sample that it knows.
    pub known_until: Timestamp,
}

// === impl DemandBounds ===

impl DemandBounds {
    /// Bounds of the same value.
    ///
    /// ```
    /// use foretide_models::DemandBounds;
    ///
    /// assert_eq!(DemandBounds::both(5.0), DemandBounds { raise: 5.0, hold: 5.0 });
    /// ```
    pub fn both(demand: f64) -> Self {
        let (raise, hold) = (demand, demand);
        Self { raise, hold }
    }

    /// The demand that a count is for: what `carried` replicas carry, no less than `raise` and no more than `hold`. Without
    /// a count, `hold`.
    ///
    /// # Units
    /// `carried` and the result are in the unit of the bounds.
    ///
    /// ```
    /// use foretide_models::DemandBounds;
    ///
    /// let bounds = DemandBounds { raise: 80.0, hold: 104.0 };
    /// assert_eq!(bounds.need(Some(70.0)), 80.0);
    /// assert_eq!(bounds.need(Some(90.0)), 90.0);
    /// assert_eq!(bounds.need(None), 104.0);
    /// ```
    pub fn need(self, carried: Option<f64>) -> f64 {
        carried.map_or(self.hold, |carried| carried.max(self.raise).min(self.hold))
    }

    /// The number of replicas to ask for, before rounding up, each of which carries `target`; `None` while `held`
    /// replicas stay.
    ///
    /// # Formula
    /// `need = clamp(held * target, raise, hold)`. The count stays while `need / (held * target) - 1` is within -0.05 and
    /// 0.10; else `0.95 * need / target` are asked for.
    ///
    /// ```
    /// use foretide_models::DemandBounds;
    ///
    /// let bounds = DemandBounds { raise: 80.0, hold: 104.0 };
    /// // Ten replicas that carry 10 each stay, eleven do not: 104 of 110 are less than 95 %.
    /// assert_eq!(bounds.replicas(Some(10.0), 10.0), None);
    /// assert_eq!(bounds.replicas(Some(11.0), 10.0), Some(0.95 * 104.0 / 10.0));
    /// // Seven are too few for what they can be raised to in time.
    /// assert_eq!(bounds.replicas(Some(7.0), 10.0), Some(0.95 * 80.0 / 10.0));
    /// ```
    ///
    /// # Source
    /// Measured on twenty workload traces: at equal replica-hours a quarter to a third fewer minutes are short than with
    /// one bound and the tolerance of the HPA, and the count changes less often. Two bounds need no memory but the count:
    /// it rises for what is just in time, and falls when no minute until then needs it. A count is short only beyond its
    /// tolerance of 10 %, so 95 % of an upper bound are enough.
    pub fn replicas(self, held: Option<f64>, target: f64) -> Option<f64> {
        let carried = held.map(|held| held * target);
        let need = self.need(carried);
        let stays = carried.is_some_and(|carried| {
            // A count of zero never stays: the quotient is infinite, or NaN without any demand.
            let rest = need / carried - 1.0;
            (-KEPT_BELOW - ROUNDING..=KEPT_ABOVE + ROUNDING).contains(&rest)
        });
        (!stays).then_some(CARRIED * need / target)
    }
}

/// One predicted value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// The instant it is for.
    pub at: Timestamp,
    /// The expected value.
    pub value: f64,
    /// The upper bound at the forecaster's quantile, if it has one.
    pub upper: Option<f64>,
}

/// A remark on how a forecast was made.
///
/// Its text is part of conditions and of the command line.
///
/// ```
/// use foretide_models::Note;
///
/// assert_eq!(Note::GapsFilled { slots: 3 }.to_string(), "3 missing samples were filled in");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[non_exhaustive]
pub enum Note {
    /// The history is constant; the forecast is its level.
    #[display("the history is constant")]
    Constant,
    /// The history has no period but hardly varies; the forecast is its level.
    #[display("the history is steady")]
    Steady,
    /// Holes were filled in.
    #[display("{slots} missing samples were filled in")]
    GapsFilled {
        /// The number of slots.
        slots: usize,
    },
    /// Outliers were treated as missing.
    #[display("{slots} outliers were ignored")]
    SpikesRejected {
        /// The number of slots.
        slots: usize,
    },
    /// History before a hole of more than a day was not used.
    #[display("history before a gap of more than a day was not used")]
    HistoryCut,
    /// Each period differs from the last by about the same amount, and the forecast continues this trend.
    #[display("the trend of the last periods is continued")]
    Trend,
    /// Values were lowered to the ceiling.
    #[display("the forecast was lowered to 1.5 times the highest sample")]
    Clamped,
    /// Less than a day of history: only the last minutes and hours are used.
    #[display("less than a day of history so far")]
    WarmingUp,
    /// The level shifted recently, and the model was relearned from it.
    #[display("the level shifted within the last hour")]
    LevelShift,
    /// The model is no better than persistence (repeating the current level), which is used instead.
    #[display(
        "the model was recently no better than repeating the current level, which is used instead"
    )]
    NoSkill,
    /// The model's equations have no solution; persistence is used instead.
    #[display("the model could not be solved; the current level is repeated instead")]
    NumericalFallback,
    /// Fewer cycles than configured were available.
    #[display("only {used} cycles of history were available")]
    FewerCycles {
        /// The number of cycles in use.
        used: usize,
    },
    /// Too few outcomes are known to measure a margin; nothing was added to the forecast.
    #[display("too few outcomes are known to calibrate the forecast; no margin is added")]
    Uncalibrated,
}

// === impl Forecast ===

impl Forecast {
    /// Makes a forecast that begins at `start` and expires after `valid_until`.
    ///
    /// # Errors
    /// [`ForecastError::NotFinite`] if a value is not finite or is negative; [`ForecastError::HorizonOutOfRange`] if
    /// there is no value, too many of them, or `step` is not positive.
    ///
    /// ```
    /// use foretide_models::{Forecast, ForecastError};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let (start, minute) = (Timestamp::UNIX_EPOCH, SignedDuration::from_mins(1));
    /// let not_a_number = Forecast::new("example", start, minute, vec![f64::NAN], start + minute);
    /// assert_eq!(not_a_number, Err(ForecastError::NotFinite));
    /// ```
    pub fn new(
        method: &'static str,
        start: Timestamp,
        step: SignedDuration,
        point: Vec<f64>,
        valid_until: Timestamp,
    ) -> Result<Self, ForecastError> {
        check(&point)?;
        if point.is_empty() || point.len() > MAX_SLOTS || !step.is_positive() {
            let horizon = series::later(start, step, point.len()).duration_since(start);
            return Err(ForecastError::HorizonOutOfRange { horizon, step });
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

    /// Adds the upper bounds at the forecaster's quantile.
    ///
    /// # Errors
    /// [`ForecastError::NotFinite`] if a value is not finite or is negative, or the lengths differ.
    ///
    /// Where there are upper bounds, [`peak`](Self::peak) and [`highest`](Self::highest) read them instead of the
    /// expected values.
    ///
    /// ```
    /// use foretide_models::Forecast;
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let (start, minute) = (Timestamp::UNIX_EPOCH, SignedDuration::from_mins(1));
    /// let forecast = Forecast::new("example", start, minute, vec![1.0, 5.0], start + minute)?;
    /// let forecast = forecast.with_upper(vec![2.0, 7.0])?;
    /// assert_eq!(forecast.peak(start, minute), Some(7.0));
    /// # Ok::<(), foretide_models::ForecastError>(())
    /// ```
    pub fn with_upper(mut self, upper: Vec<f64>) -> Result<Self, ForecastError> {
        check(&upper)?;
        if upper.len() != self.point.len() {
            return Err(ForecastError::NotFinite);
        }
        self.upper = Some(upper);
        Ok(self)
    }

    /// Adds the direct estimate of the peak; without one, [`demand`](Self::demand) uses the path.
    ///
    /// # Errors
    /// [`ForecastError::NotFinite`] if the value is not finite or is negative.
    pub fn with_peak(mut self, peak: Peak) -> Result<Self, ForecastError> {
        check(&[peak.value, peak.bounds.raise, peak.bounds.hold])?;
        self.peak = Some(peak);
        Ok(self)
    }

    /// Adds the recent accuracy of the forecaster.
    #[must_use]
    pub fn with_quality(mut self, quality: Quality) -> Self {
        self.quality = Some(quality);
        self
    }

    /// Sets the period that was found.
    #[must_use]
    pub fn with_period(mut self, period: Option<SignedDuration>) -> Self {
        self.period = period;
        self
    }

    /// Adds notes.
    ///
    /// Those that are there already stay, in front.
    #[must_use]
    pub fn with_notes(mut self, notes: impl IntoIterator<Item = Note>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// The name of the forecaster that made the forecast.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// The instant of the first value.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// The distance between values.
    pub fn step(&self) -> SignedDuration {
        self.step
    }

    /// The instant just after the last value's slot.
    pub fn end(&self) -> Timestamp {
        series::later(self.start, self.step, self.point.len())
    }

    /// The expected values.
    pub fn point(&self) -> &[f64] {
        &self.point
    }

    /// The upper bounds at the forecaster's quantile, if it has them.
    pub fn upper(&self) -> Option<&[f64]> {
        self.upper.as_deref()
    }

    /// The period found in the history, if any.
    pub fn period(&self) -> Option<SignedDuration> {
        self.period
    }

    /// Remarks on how the forecast was made.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The last instant at which this forecast may be used.
    pub fn valid_until(&self) -> Timestamp {
        self.valid_until
    }

    /// The demand to provide for at `now`: the forecaster's direct estimate if it has one, else the
    /// [`peak`](Self::peak) of the path over `window`. `None` once the forecast has expired, or if the path does not
    /// cover the window.
    pub fn demand(&self, now: Timestamp, window: SignedDuration) -> Option<f64> {
        match self.direct() {
            Some(peak) => (now <= self.valid_until).then_some(peak.value),
            None => self.peak(now, window),
        }
    }

    /// The bounds that a count is held against at `now`: those of the forecaster's direct estimate if it has one, else
    /// [`demand`](Self::demand) for both.
    pub fn bounds(&self, now: Timestamp, window: SignedDuration) -> Option<DemandBounds> {
        let demand = self.demand(now, window)?;
        let direct = self.direct().map(|peak| peak.bounds);
        Some(direct.unwrap_or_else(|| DemandBounds::both(demand)))
    }

    /// The forecaster's direct estimate of the peak in its decision window, if it has one.
    pub fn direct(&self) -> Option<&Peak> {
        self.peak.as_ref()
    }

    /// The recent accuracy of the forecaster, if it is measured.
    pub fn quality(&self) -> Option<&Quality> {
        self.quality.as_ref()
    }

    /// The highest value predicted for `[from, from + window]`, of the upper path if there is one.
    ///
    /// The part of the window before the start of the forecast is left out. `None` if `from` is after
    /// [`valid_until`](Self::valid_until), if the window ends before the forecast starts or after it ends, or if
    /// `window` is negative; a partly covered window has no peak. To have the window covered until expiry, ask the
    /// forecaster for a horizon of the window plus [`FORECAST_VALIDITY`] and one step.
    ///
    /// # Guarantees
    /// - A longer window that is covered never gives a smaller answer.
    pub fn peak(&self, from: Timestamp, window: SignedDuration) -> Option<f64> {
        (from <= self.valid_until).then(|| self.highest(from, window))?
    }

    /// The [`peak`](Self::peak) at any time: also after the expiry, for a look ahead by which nothing is scaled.
    ///
    /// ```
    /// use foretide_models::Forecast;
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let (start, minute) = (Timestamp::UNIX_EPOCH, SignedDuration::from_mins(1));
    /// let forecast = Forecast::new("example", start, minute, vec![1.0, 5.0, 2.0], start)?;
    /// assert_eq!(forecast.highest(start + minute, minute), Some(5.0));
    /// assert_eq!(forecast.peak(start + minute, minute), None);
    /// # Ok::<(), foretide_models::ForecastError>(())
    /// ```
    pub fn highest(&self, from: Timestamp, window: SignedDuration) -> Option<f64> {
        let until = from.checked_add(window).ok()?;
        if window.is_negative() || until > self.end() {
            return None;
        }
        // `None` before the start of the forecast, whose part of the window is left out.
        let first = series::slots(from.duration_since(self.start), self.step).unwrap_or(0);
        let last = series::slots(until.duration_since(self.start), self.step)?;
        let path = self.upper.as_deref().unwrap_or(&self.point);
        // A window that ends with the forecast would read one slot beyond it.
        let covered = path.get(first..=last.min(path.len() - 1))?;
        covered.iter().copied().reduce(f64::max)
    }

    /// The predicted values with their instants, oldest first.
    ///
    /// ```
    /// use foretide_models::{Forecast, Prediction};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let (start, minute) = (Timestamp::UNIX_EPOCH, SignedDuration::from_mins(1));
    /// let forecast = Forecast::new("example", start, minute, vec![1.0, 5.0], start)?;
    /// let second = Prediction { at: start + minute, value: 5.0, upper: None };
    /// assert_eq!(forecast.samples().nth(1), Some(second));
    /// # Ok::<(), foretide_models::ForecastError>(())
    /// ```
    pub fn samples(&self) -> impl Iterator<Item = Prediction> + '_ {
        self.point.iter().enumerate().map(|(i, &value)| Prediction {
            at: series::later(self.start, self.step, i),
            value,
            upper: self.upper.as_ref().and_then(|upper| upper.get(i).copied()),
        })
    }

    /// The expected values as samples.
    ///
    /// An input for readers of samples, such as a chart beside the history.
    pub fn points(&self) -> impl Iterator<Item = Sample> + '_ {
        self.samples().map(|p| Sample {
            at: p.at,
            value: p.value,
        })
    }
}

/// Checks that every value may be part of a forecast.
///
/// # Errors
/// [`ForecastError::NotFinite`] at the first one that is negative, infinite or NaN.
fn check(values: &[f64]) -> Result<(), ForecastError> {
    let fine = values
        .iter()
        .all(|value| value.is_finite() && *value >= 0.0);
    if fine {
        Ok(())
    } else {
        Err(ForecastError::NotFinite)
    }
}

/// Limits a path to [`CEILING_RATIO`] times `highest`, the maximum of the history; returns whether a value changed.
///
/// # Guarantees
/// - The result is finite and within `[0, 1.5 * highest]`, for finite `highest`.
pub fn clamp_to_ceiling(path: &mut [f64], highest: f64) -> Result<bool, ForecastError> {
    // One and a half times the largest doubles would be infinite.
    let ceiling = (CEILING_RATIO * highest).min(f64::MAX);
    let mut clamped = false;
    for value in path {
        if value.is_nan() {
            return Err(ForecastError::NotFinite);
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
    fn the_peak_is_taken_from_the_upper_path_if_there_is_one() {
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
        assert_eq!(
            forecast().with_upper(vec![1.0]),
            Err(ForecastError::NotFinite)
        );
    }

    #[test]
    fn negative_and_infinite_values_are_rejected() {
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            let rejected = Forecast::new("test", at(0), MINUTE, vec![1.0, bad], at(0));
            assert_eq!(rejected, Err(ForecastError::NotFinite));
        }
        let empty = Forecast::new("test", at(0), MINUTE, vec![], at(0));
        assert!(matches!(
            empty,
            Err(ForecastError::HorizonOutOfRange { .. })
        ));
    }

    #[test]
    fn a_path_is_limited_by_the_highest_sample() {
        let mut path = [-1.0, 2.0, 4.0, f64::INFINITY];
        assert_eq!(clamp_to_ceiling(&mut path, 2.0), Ok(true));
        assert_eq!(
            path.map(f64::to_bits),
            [0.0, 2.0, 3.0, 3.0].map(f64::to_bits)
        );
        assert_eq!(
            clamp_to_ceiling(&mut [f64::NAN], 2.0),
            Err(ForecastError::NotFinite)
        );
        assert_eq!(clamp_to_ceiling(&mut [f64::INFINITY], f64::MAX), Ok(true));
    }

    #[test]
    fn a_count_stays_between_its_bounds() {
        for (raise, hold, held, expected) in [
            (80.0, 100.0, None, Some(9.5)),
            (80.0, 100.0, Some(10.0), None),
            // Within 5 % below and 10 % above what the count carries.
            (80.0, 95.0, Some(10.0), None),
            (80.0, 94.9, Some(10.0), Some(9.0155)),
            (110.0, 120.0, Some(10.0), None),
            (110.1, 120.0, Some(10.0), Some(10.4595)),
            (0.0, 0.0, Some(0.0), Some(0.0)),
            (5.0, 5.0, Some(0.0), Some(0.475)),
        ] {
            let asked = DemandBounds { raise, hold }.replicas(held, 10.0);
            let close = |(a, b): (f64, f64)| (a - b).abs() < 1e-9;
            assert!(
                asked.is_some() == expected.is_some() && asked.zip(expected).is_none_or(close),
                "{raise} to {hold}, {held:?}: {asked:?}"
            );
        }
    }
}
