//! The proposal of a forecast: a count for the predicted demand.
//!
//! Demand is a total over all pods; a count is `total / target per pod`, rounded up by [`Replicas::for_demand`]. The
//! tolerance applies to a forecast's *own last proposal*: relative to the current count, a proposal would stay wherever
//! the count happens to be. Without a forecast the proposal has a reason and no count; never a count of zero.

use std::sync::Arc;

use foretide_models::{DemandBounds, FORECAST_VALIDITY, Forecast, ForecastError, Note};
use jiff::{SignedDuration, Timestamp};

use super::Replicas;
use super::lead_time::LeadTime;
use super::proposal::{ForecastDetails, Proposal, Reason, Source, Unit};

/// The forecast of one metric, or the reason why there is none.
///
/// The prediction is made for `[now, now + window]` by [`Predicted::by`], or is one number by [`Predicted::of`].
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastReading {
    /// Identifier of the metric, such as `resource.cpu`.
    pub name: String,
    /// The prediction, or the reason why there is none.
    pub outcome: Result<Predicted, Refused>,
    /// Origin and accuracy of the prediction, if they are known.
    pub details: Option<ForecastDetails>,
    /// The query of the history, if one is asked.
    pub query: Option<Arc<str>>,
}

/// A predicted demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// The peak of the total demand over the prediction window, in base units, as shown to people, charts and other
    /// autoscalers.
    pub value: f64,
    /// The bounds that a count is held against, in base units.
    pub bounds: DemandBounds,
    /// Demand that one pod should carry, in the same unit: an average value, or a utilization times the mean request.
    pub target: f64,
}

/// Reason for which there is no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The cause, as one word.
    pub reason: Reason,
    /// Explanation for people, with expected and actual values.
    pub message: String,
}

impl Refused {
    /// A missing prediction, with its reason and a message for people.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// No prediction of a total that grows with the pods, or is not known to divide among them.
    pub fn not_divided() -> Self {
        let message = "the total grows with the number of pods, or is not known to divide among them, so a forecast of it \
                       would add pods for the pods that it has added; forecast a metric of the load, such as cpu or requests";
        Self::new(Reason::NotDivided, message)
    }
}

/// Translates a forecaster's error to a proposal's reason.
impl From<&ForecastError> for Refused {
    fn from(error: &ForecastError) -> Self {
        let reason = match error {
            ForecastError::InsufficientHistory { .. } => Reason::InsufficientHistory,
            ForecastError::StaleHistory { .. } => Reason::StaleHistory,
            ForecastError::TooManyGaps { .. } => Reason::TooManyGaps,
            ForecastError::ZeroSeries => Reason::ZeroSeries,
            ForecastError::NotPeriodic { .. } => Reason::NotPeriodic,
            // The arithmetic failed, or the forecaster was asked with another step or horizon than its own.
            _ => Reason::NumericalFailure,
        };
        Self::new(reason, error.to_string())
    }
}

// === impl ForecastReading ===

impl ForecastReading {
    /// A reading of which neither details nor the query are known.
    pub const fn new(name: String, outcome: Result<Predicted, Refused>) -> Self {
        Self {
            name,
            outcome,
            details: None,
            query: None,
        }
    }
}

// === impl ForecastDetails ===

/// With more than this percentage of a day at the limits, the measured demand underestimates the true one.
const CENSORED_PERCENT: f64 = 20.0;

impl ForecastDetails {
    /// The details of `forecast`.
    pub fn of(forecast: &Forecast, lead_time: LeadTime, censored_percent: f64) -> Self {
        let (direct, quality) = (forecast.direct(), forecast.quality());
        let censored = censored_percent > CENSORED_PERCENT;
        let mut notes: Vec<String> = forecast.notes().iter().map(ToString::to_string).collect();
        let mut remark = forecast.notes().iter().find_map(remark);
        if censored {
            notes.push(format!(
                "the workload was at its limits for {censored_percent:.0} % of the last day: the true demand may be higher"
            ));
            remark = remark.or(Some(Reason::Censored));
        }
        Self {
            method: forecast.method(),
            quantile: direct.map(|peak| peak.quantile),
            window: direct.map(|peak| peak.window),
            peak: direct.map(|peak| peak.value),
            bounds: direct.map(|peak| peak.bounds),
            coverage: quality.and_then(|quality| quality.coverage),
            raw: quality.map(|quality| quality.raw),
            skill: quality.and_then(|quality| quality.skill),
            learnt_from: quality.map(|quality| quality.learnt_from),
            known_until: quality.map_or_else(|| newest(forecast), |quality| quality.known_until),
            lead_time,
            censored_percent,
            remark,
            notes: notes.join("; "),
        }
    }

    /// The same details with another remark for people.
    ///
    /// Notes are joined by `; `. Without a note nothing changes.
    #[must_use]
    pub fn with_note(mut self, note: Option<&str>) -> Self {
        let separator = if self.notes.is_empty() { "" } else { "; " };
        for text in note.into_iter().flat_map(|note| [separator, note]) {
            self.notes.push_str(text);
        }
        self
    }
}

/// The time of the newest sample of a history, derived from how long its forecast is valid.
fn newest(forecast: &Forecast) -> Timestamp {
    let newest = forecast.valid_until().checked_sub(FORECAST_VALIDITY);
    newest.map_or(forecast.start(), |newest| newest.min(forecast.start()))
}

/// The reason for a note, unless it only says that samples were missing.
fn remark(note: &Note) -> Option<Reason> {
    match note {
        Note::Constant => Some(Reason::Constant),
        Note::WarmingUp => Some(Reason::WarmingUp),
        Note::LevelShift => Some(Reason::LevelShift),
        Note::NoSkill => Some(Reason::NoSkill),
        Note::NumericalFallback => Some(Reason::NumericalFallback),
        _ => None,
    }
}

// === impl Predicted ===

impl Predicted {
    /// One value for the peak and for both bounds.
    ///
    /// For forecasters that do not tell the demand that justifies more replicas from the one that forbids fewer.
    ///
    /// ```
    /// use foretide_domain::forecast::Predicted;
    ///
    /// // 1.38 cores at 0.2 per pod.
    /// let predicted = Predicted::of(1.38, 0.2);
    /// assert!(predicted.pods().is_ok_and(|pods| (6.8..7.0).contains(&pods)));
    /// // A target of zero is not an amount per pod.
    /// assert!(Predicted::of(1.38, 0.0).pods().is_err());
    /// ```
    pub fn of(value: f64, target: f64) -> Self {
        let bounds = DemandBounds::both(value);
        Self {
            value,
            bounds,
            target,
        }
    }

    /// The prediction of `forecast` for `[now, now + window]`; `None` if the forecast has expired or does not cover the
    /// window.
    pub fn by(
        forecast: &Forecast,
        now: Timestamp,
        window: SignedDuration,
        target: f64,
    ) -> Option<Self> {
        let value = forecast.demand(now, window)?;
        let bounds = forecast.bounds(now, window)?;
        Some(Self {
            value,
            bounds,
            target,
        })
    }

    /// The replicas that the predicted peak needs, before rounding up: `value / target`.
    ///
    /// # Errors
    /// [`Reason::NumericalFailure`] if the prediction is not a number of pods: not finite, or
    /// negative; [`Reason::NotForecastable`] if the target is not above zero.
    pub fn pods(&self) -> Result<f64, Refused> {
        self.pods_for(self.value)
    }

    fn pods_for(&self, demand: f64) -> Result<f64, Refused> {
        let target = self.target;
        if !(target.is_finite() && target > 0.0) {
            let message = format!("the target is {target}: expected a number above zero");
            return Err(Refused::new(Reason::NotForecastable, message));
        }
        let pods = demand / target;
        if pods.is_finite() && pods >= 0.0 {
            Ok(pods)
        } else {
            let message = format!("the forecast is {demand}: expected zero or more");
            Err(Refused::new(Reason::NumericalFailure, message))
        }
    }

    /// The count for the peak, by nothing but division.
    fn for_peak(&self) -> Result<Count, Refused> {
        Ok(Count {
            need: self.value,
            asked: Replicas::for_demand(self.pods()?),
            kept: None,
        })
    }

    /// The count by the rule of [`propose`].
    fn against(&self, held: Option<Replicas>) -> Result<Count, Refused> {
        let Self { bounds, target, .. } = *self;
        // A bound that is not a number must refuse the forecast, also where the need below does not use it.
        for demand in [self.value, bounds.raise, bounds.hold] {
            self.pods_for(demand)?;
        }
        let count = held.map(Replicas::as_f64);
        let carried = count.map(|count| count * target);
        let need = bounds.need(carried);
        // A count between the bounds is itself the one that is asked for.
        let is_between = carried.is_some_and(|it| (bounds.raise..=bounds.hold).contains(&it));
        let kept = held.filter(|_| bounds.replicas(count, target).is_none());
        let carrying = DemandBounds::both(need).replicas(None, target);
        let asked = Replicas::for_demand(carrying.unwrap_or_default());
        Ok(Count {
            need,
            asked: kept.filter(|_| is_between).unwrap_or(asked),
            kept,
        })
    }
}

/// Returns true if the bounds differ and `carried` is between them: a count that carries it is what the bounds ask for.
///
/// ```
/// use foretide_domain::forecast::is_between;
/// use foretide_models::DemandBounds;
///
/// let bounds = DemandBounds { raise: 80.0, hold: 120.0 };
/// assert!(is_between(bounds, 100.0));
/// assert!(!is_between(bounds, 130.0));
/// assert!(!is_between(DemandBounds::both(100.0), 100.0));
/// ```
pub fn is_between(bounds: DemandBounds, carried: f64) -> bool {
    bounds.raise < bounds.hold && (bounds.raise..=bounds.hold).contains(&carried)
}

/// Effect of one prediction on the last count.
struct Count {
    /// The demand that the count is for.
    need: f64,
    /// Count that the need alone asks for.
    asked: Replicas,
    /// The last count, if it stays.
    kept: Option<Replicas>,
}

/// The length of the forecast to request, from the end of the history: `2 * window + FORECAST_VALIDITY + step`.
///
/// The length covers two prediction windows until the forecast expires. The first makes the proposal; the second is
/// published with it. The controller, `plan` and `backtest` request the same length.
///
/// ```
/// use foretide_domain::forecast::forecast_length;
/// use foretide_models::FORECAST_VALIDITY;
/// use jiff::SignedDuration;
///
/// let length = forecast_length(SignedDuration::from_mins(10), SignedDuration::from_mins(1));
/// assert_eq!(length, FORECAST_VALIDITY + SignedDuration::from_mins(21));
/// ```
pub fn forecast_length(window: SignedDuration, step: SignedDuration) -> SignedDuration {
    [window, window, FORECAST_VALIDITY, step]
        .into_iter()
        .fold(SignedDuration::ZERO, SignedDuration::saturating_add)
}

/// The proposal of one forecast; `held` is the last proposed count of the same metric, if there is one.
///
/// All values but counts are totals over all pods, in the unit of the metric:
///
/// ```text
/// need  = held * target, not below raise and not above hold     (hold without a held count)
/// count = held                            while -5 % <= need / (held * target) - 1 <= 10 %
///         ceil(0.95 * need / target)      else
/// ```
///
/// A count is raised only for the peak that a pod asked for now can serve, and lowered only if no minute until then
/// needs it; a new one is at most 5.3 % above its target, and is not replaced at once. The count that it returns is the
/// `held` of the next call; the proposal's value is the need.
///
/// # Source
/// [`DemandBounds::replicas`]. Measured on the public traces at equal replica-hours (1.186 of a plain HPA's), start-up
/// 2 / 5 / 10 minutes: 0.65 / 1.30 / 2.05 % of the minutes are short by the HPA's tolerance and a count for the whole
/// need; 0.56 / 1.15 / 1.88 % by this rule with one bound, 0.50 / 0.98 / 1.40 % with both.
///
/// ```
/// use foretide_domain::Replicas;
/// use foretide_domain::forecast::{ForecastReading, Predicted, propose};
///
/// let reading = |value| ForecastReading::new("resource.cpu".into(), Ok(Predicted::of(value, 0.2)));
/// // 1.38 cores at 0.2 per pod are 6.9 pods; 95 % of them are 6.6.
/// let first = propose(&reading(1.38), None);
/// assert_eq!(first.replicas, Some(Replicas::new(7)));
/// // 1.53 cores are 7.65 pods, 9 % more than 7.
/// let next = propose(&reading(1.53), first.replicas);
/// assert_eq!(next.replicas, Some(Replicas::new(7)));
/// // 1.55 cores are 11 % more.
/// let third = propose(&reading(1.55), next.replicas);
/// assert_eq!(third.replicas, Some(Replicas::new(8)));
/// ```
pub fn propose(reading: &ForecastReading, held: Option<Replicas>) -> Proposal {
    proposal(reading, |predicted| predicted.against(held))
}

/// The proposal of one forecast to an autoscaler that has a rule of its own, such as the child HPA in mode Metric,
/// whose tolerance applies to the values that it reads: the predicted peak, and the count that carries it at its
/// target.
///
/// The count is `ceil(peak / target)` as [`Replicas::for_demand`] rounds, without a tolerance and without the last
/// count.
pub(crate) fn propose_peak(reading: &ForecastReading) -> Proposal {
    proposal(reading, Predicted::for_peak)
}

fn proposal(
    reading: &ForecastReading,
    count: impl FnOnce(&Predicted) -> Result<Count, Refused>,
) -> Proposal {
    let outcome = reading.outcome.as_ref().map_err(Clone::clone);
    let predicted = outcome.as_ref().ok().copied().copied();
    let counted = outcome.and_then(count);
    let count = counted.as_ref().ok();
    let replicas = count.map(|count| count.kept.unwrap_or(count.asked));
    let need = count.map(|count| count.need);
    let details = reading
        .details
        .clone()
        .zip(predicted)
        .filter(|_| count.is_some());
    let details = details.map(|(details, predicted)| ForecastDetails {
        peak: Some(predicted.value),
        bounds: Some(predicted.bounds),
        ..details
    });
    let reason = match &counted {
        Ok(Count { kept: Some(_), .. }) => Reason::WithinTolerance,
        Ok(_) => Reason::ForecastReady,
        Err(refused) => refused.reason,
    };
    let notes = details.as_ref().map(|details| details.notes.clone());
    let message = counted
        .as_ref()
        .err()
        .map(|refused| refused.message.clone());
    Proposal {
        source: Source::Forecast,
        name: reading.name.clone(),
        replicas,
        asked: count
            .map(|count| count.asked)
            .filter(|asked| Some(*asked) != replicas),
        // A prediction that gives no count is shown all the same.
        value: need.or(predicted.map(|p| p.value)).map(without_noise),
        target: predicted.map(|p| without_noise(p.target)),
        unit: Unit::of_metric(&reading.name),
        reason,
        message: notes.or(message).unwrap_or_default(),
        details,
        query: reading.query.clone(),
    }
}

/// The first twelve digits: the forecast of a constant 0.1 is 0.100000000000002, and no metric is as exact as that.
///
/// ```
/// use foretide_domain::forecast::without_noise;
///
/// assert_eq!(without_noise(0.100_000_000_000_002), 0.1);
/// ```
pub fn without_noise(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod laws;

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(value: f64, target: f64) -> ForecastReading {
        of(Predicted::of(value, target))
    }

    fn of(predicted: Predicted) -> ForecastReading {
        ForecastReading::new("resource.cpu".into(), Ok(predicted))
    }

    #[test]
    fn a_count_carries_95_percent_of_the_need_and_stays_while_the_need_is_5_below_to_10_above_it() {
        use Reason::{ForecastReady, WithinTolerance};
        for (value, target, held, want, reason) in [
            (1.32, 0.2, None, 7, ForecastReady),
            (1.47, 0.2, None, 7, ForecastReady),
            (1.48, 0.2, None, 8, ForecastReady),
            (0.0, 0.2, None, 0, ForecastReady),
            (0.0, 0.2, Some(0), 0, ForecastReady),
            (0.1, 0.2, Some(0), 1, ForecastReady),
            (11.0, 1.0, Some(11), 11, WithinTolerance),
            (10.46, 1.0, Some(11), 11, WithinTolerance),
            (10.44, 1.0, Some(11), 10, ForecastReady),
            (12.09, 1.0, Some(11), 11, WithinTolerance),
            (12.11, 1.0, Some(11), 12, ForecastReady),
            (1e300, 1e-3, None, 2_147_483_647, ForecastReady),
        ] {
            let got = propose(&reading(value, target), held.map(Replicas::new));
            let want = (Some(Replicas::new(want)), reason);
            assert_eq!(
                (got.replicas, got.reason),
                want,
                "{value} / {target}, held {held:?}"
            );
        }
    }

    #[test]
    fn a_count_is_raised_for_one_bound_and_lowered_for_the_other() {
        for (raise, hold, held, need, asked, want) in [
            (5.0, 8.0, None, 8.0, 8, 8),
            (5.0, 8.0, Some(6), 6.0, 6, 6),
            (5.0, 8.0, Some(4), 5.0, 5, 5),
            (5.0, 8.0, Some(10), 8.0, 8, 8),
            (10.5, 20.0, Some(10), 10.5, 10, 10),
            (10.9, 20.0, Some(10), 10.9, 11, 10),
            (11.1, 20.0, Some(10), 11.1, 11, 11),
            (8.0, 9.6, Some(10), 9.6, 10, 10),
            (8.0, 9.4, Some(10), 9.4, 9, 9),
            (0.0, 5.0, Some(0), 0.0, 0, 0),
        ] {
            let bounds = DemandBounds { raise, hold };
            let predicted = Predicted {
                bounds,
                ..Predicted::of(7.0, 1.0)
            };
            let got = propose(&of(predicted), held.map(Replicas::new));
            let asked = Some(Replicas::new(asked)).filter(|_| asked != want);
            let found = (got.value.map(f64::to_bits), got.asked, got.replicas);
            let want = (Some(f64::to_bits(need)), asked, Some(Replicas::new(want)));
            assert_eq!(found, want, "{raise} to {hold}, held {held:?}");
        }
    }

    #[test]
    fn another_autoscaler_is_told_the_peak_and_a_count_at_its_target() {
        let predicted = Predicted {
            bounds: DemandBounds::both(3.0),
            ..Predicted::of(7.2, 1.0)
        };
        let got = propose_peak(&of(predicted));
        let want = (Some(Replicas::new(8)), Some(7.2_f64.to_bits()));
        assert_eq!((got.replicas, got.value.map(f64::to_bits)), want);
    }

    #[test]
    fn a_proposal_has_the_peak_and_the_bounds_that_were_used() {
        let bounds = DemandBounds {
            raise: 5.0,
            hold: 8.0,
        };
        let predicted = Predicted {
            bounds,
            ..Predicted::of(7.0, 1.0)
        };
        let forecast = Forecast::new(
            "dsp",
            Timestamp::UNIX_EPOCH,
            SignedDuration::from_mins(1),
            vec![1.0; 60],
            Timestamp::MAX,
        );
        let details = ForecastDetails::of(&forecast.unwrap(), LeadTime::of(None, None), 0.0);
        assert_eq!((details.peak, details.bounds), (None, None));
        let reading = ForecastReading {
            details: Some(details),
            ..of(predicted)
        };
        let details = propose(&reading, None).details.unwrap();
        assert_eq!((details.peak, details.bounds), (Some(7.0), Some(bounds)));
    }

    #[test]
    fn the_value_and_the_target_are_reported_without_the_noise_of_the_arithmetic() {
        for (value, target, reported) in [
            (0.100_000_000_000_002, 60.0, [0.1, 60.0]),
            (0.1 + 0.2, 0.100_000_000_000_000_02, [0.3, 0.1]),
            (123_456.789_012, 1e-300, [123_456.789_012, 1e-300]),
        ] {
            let proposal = propose(&reading(value, target), None);
            let found = [proposal.value, proposal.target].map(|number| number.map(f64::to_bits));
            assert_eq!(
                found,
                reported.map(|number: f64| Some(number.to_bits())),
                "{value} {target}"
            );
        }
    }

    #[test]
    fn a_prediction_that_is_not_a_number_of_pods_gives_no_proposal() {
        use Reason::{NotForecastable, NumericalFailure};
        for (value, target, reason) in [
            (f64::NAN, 1.0, NumericalFailure),
            (f64::INFINITY, 1.0, NumericalFailure),
            (-1.0, 1.0, NumericalFailure),
            (1e308, 1e-10, NumericalFailure),
            (1.0, 0.0, NotForecastable),
            (1.0, -2.0, NotForecastable),
            (1.0, f64::NAN, NotForecastable),
        ] {
            let published = propose_peak(&reading(value, target));
            let sound = Predicted::of(1.0, target);
            let (raise, hold) = (value, value);
            for bounds in [
                DemandBounds::both(value),
                DemandBounds {
                    hold,
                    ..sound.bounds
                },
                DemandBounds {
                    raise,
                    ..sound.bounds
                },
            ] {
                let reading = of(Predicted { bounds, ..sound });
                let got = propose(&reading, Some(Replicas::new(3)));
                for got in [&got, &published] {
                    let found = (got.replicas, got.reason);
                    assert_eq!(found, (None, reason), "{value} / {target}");
                }
            }
        }
    }

    #[test]
    fn a_forecast_covers_two_windows_until_it_expires() {
        let minutes = SignedDuration::from_mins;
        assert_eq!(forecast_length(minutes(60), minutes(1)), minutes(131));
        assert_eq!(
            forecast_length(SignedDuration::ZERO, minutes(5)),
            minutes(15)
        );
        assert_eq!(
            forecast_length(SignedDuration::MAX, minutes(1)),
            SignedDuration::MAX
        );
    }

    #[test]
    fn a_refusal_keeps_its_reason_and_its_message() {
        let refused = Refused::new(Reason::InsufficientHistory, "40 samples of 120");
        let reading = ForecastReading::new("resource.memory".into(), Err(refused));
        let want = Proposal {
            source: Source::Forecast,
            name: "resource.memory".into(),
            replicas: None,
            asked: None,
            value: None,
            target: None,
            unit: super::super::proposal::Unit::Bytes,
            reason: Reason::InsufficientHistory,
            message: "40 samples of 120".into(),
            details: None,
            query: None,
        };
        assert_eq!(propose(&reading, Some(Replicas::new(3))), want);
    }

    #[test]
    fn known_until_is_the_newest_sample_whatever_the_length_of_the_forecast() {
        const START: Timestamp = Timestamp::constant(1_767_225_600, 0);
        let ago = |minutes| START - SignedDuration::from_mins(minutes);
        let made = |newest: Timestamp| {
            let (minute, until) = (SignedDuration::from_mins(1), newest + FORECAST_VALIDITY);
            Forecast::new("dsp", START, minute, vec![1.0; 60], until).unwrap()
        };
        let quality = foretide_models::Quality {
            coverage: None,
            skill: None,
            raw: 0.0,
            learnt_from: ago(9000),
            known_until: ago(3),
        };
        for (forecast, known) in [
            (made(ago(0)), ago(0)),
            (made(ago(7)), ago(7)),
            (made(ago(-2)), ago(0)),
            (made(ago(0)).with_quality(quality), ago(3)),
        ] {
            let details = ForecastDetails::of(&forecast, LeadTime::of(None, None), 0.0);
            assert_eq!(details.known_until, known);
        }
    }
}
