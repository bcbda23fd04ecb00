//! The proposal of a forecast: a count for the predicted demand.
//!
//! Demand is a total over all pods; the count is `total / target per pod`, rounded up by [`Replicas::for_demand`]. A
//! proposal stays while the prediction is within the HPA's tolerance *of that proposal*: relative to the current count,
//! it would stay wherever the count happens to be. Without a forecast the proposal has a reason and no count; never a
//! count of zero.

use foretide_models::{FORECAST_VALIDITY, Forecast, ForecastError, Note};
use jiff::{SignedDuration, Timestamp};

use super::Replicas;
use super::hpa::Tolerance;
use super::lead_time::LeadTime;
use super::proposal::{ForecastDetails, Proposal, Reason, Source, Unit};

/// The forecast of one metric, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastReading {
    /// Identifier of the metric, such as `resource.cpu`.
    pub name: String,
    /// The prediction, or why there is none.
    pub outcome: Result<Predicted, Refused>,
    /// Where the prediction comes from, if it is known.
    pub details: Option<ForecastDetails>,
}

/// A predicted demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// The peak of the total demand over the prediction window, in base units.
    pub value: f64,
    /// What one pod should carry, in the same unit: an average value, or a utilization times the
    /// mean request.
    pub target: f64,
}

/// Why there is no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The cause, as one word.
    pub reason: Reason,
    /// What was needed and what was found, for people.
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
            _ => Reason::NumericalFailure,
        };
        Self::new(reason, error.to_string())
    }
}

// === impl ForecastDetails ===

/// With more than this percentage of a day at the limits, the measured demand underestimates the true one.
const CENSORED_PERCENT: f64 = 20.0;

impl ForecastDetails {
    /// The details of `forecast`.
    #[must_use]
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
            coverage: quality.and_then(|quality| quality.coverage),
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

impl Predicted {
    /// The proposed count, before rounding up: `total / target`.
    ///
    /// # Errors
    /// [`Reason::NumericalFailure`] if the prediction is not a number of pods: not finite, or
    /// negative; [`Reason::NotForecastable`] if the target is not above zero.
    pub fn pods(&self) -> Result<f64, Refused> {
        let target = self.target;
        if !(target.is_finite() && target > 0.0) {
            let message = format!("the target is {target}: expected a number above zero");
            return Err(Refused::new(Reason::NotForecastable, message));
        }
        let pods = self.value / target;
        if pods.is_finite() && pods >= 0.0 {
            Ok(pods)
        } else {
            let message = format!("the forecast is {}: expected zero or more", self.value);
            Err(Refused::new(Reason::NumericalFailure, message))
        }
    }
}

/// The length of the forecast to request, from the end of the history: `2 * window + FORECAST_VALIDITY + step`.
///
/// This covers two prediction windows until the forecast expires. The first makes the proposal; the second is
/// published with it. The controller, `plan` and `backtest` request the same length.
#[must_use]
pub fn forecast_length(window: SignedDuration, step: SignedDuration) -> SignedDuration {
    [window, window, FORECAST_VALIDITY, step]
        .into_iter()
        .fold(SignedDuration::ZERO, SignedDuration::saturating_add)
}

/// The proposal of one forecast; `held` is the last one of the same metric, if it had one.
///
/// While `pods / held` is within the tolerance, the proposal is `held`, else [`Replicas::for_demand`] of `pods`. The count it
/// returns is the `held` of the next call.
///
/// ```
/// use foretide_domain::{Replicas, hpa::Tolerance};
/// use foretide_domain::forecast::{ForecastReading, Predicted, propose};
///
/// let tolerance = Tolerance { down: 0.1, up: 0.1 };
/// let reading = |value| ForecastReading {
///     name: "resource.cpu".into(),
///     outcome: Ok(Predicted { value, target: 0.2 }),
///     details: None,
/// };
/// // 1.32 cores at 0.2 per pod are 6.6 pods.
/// let first = propose(&reading(1.32), None, tolerance);
/// assert_eq!(first.replicas, Some(Replicas::new(7)));
/// // 1.45 cores are 7.25 pods, which is within 10 % of 7.
/// let next = propose(&reading(1.45), first.replicas, tolerance);
/// assert_eq!(next.replicas, Some(Replicas::new(7)));
/// ```
#[must_use]
pub fn propose(
    reading: &ForecastReading,
    held: Option<Replicas>,
    tolerance: Tolerance,
) -> Proposal {
    let outcome = reading.outcome.as_ref().map_err(Clone::clone);
    let predicted = outcome.as_ref().ok().copied().copied();
    let pods = outcome.and_then(Predicted::pods);
    let asked = pods.as_ref().ok().copied().map(Replicas::for_demand);
    let (replicas, reason, message) = match pods {
        Ok(pods) => match held.filter(|h| tolerance.covers(pods / h.as_f64())) {
            Some(held) => (Some(held), Reason::WithinTolerance, String::new()),
            None => (asked, Reason::ForecastReady, String::new()),
        },
        Err(refused) => (None, refused.reason, refused.message),
    };
    let details = reading.details.clone().filter(|_| replicas.is_some());
    let message = match &details {
        Some(details) => details.notes.clone(),
        None => message,
    };
    Proposal {
        source: Source::Forecast,
        name: reading.name.clone(),
        replicas,
        asked: asked.filter(|_| asked != replicas),
        value: predicted.map(|p| without_noise(p.value)),
        target: predicted.map(|p| without_noise(p.target)),
        unit: Unit::of_metric(&reading.name),
        reason,
        message,
        details,
    }
}

/// The first twelve digits: the forecast of a constant 0.1 is 0.100000000000002, and no metric is as exact as that.
fn without_noise(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Tolerance = Tolerance { down: 0.1, up: 0.1 };

    fn reading(value: f64, target: f64) -> ForecastReading {
        ForecastReading {
            name: "resource.cpu".into(),
            outcome: Ok(Predicted { value, target }),
            details: None,
        }
    }

    #[test]
    fn a_count_is_the_total_over_the_target_rounded_up_and_kept_within_the_tolerance_of_itself() {
        use Reason::{ForecastReady, WithinTolerance};
        for (value, target, held, want, reason) in [
            (1.32, 0.2, None, 7, ForecastReady),
            (1.4, 0.2, None, 7, ForecastReady),
            (1.41, 0.2, None, 8, ForecastReady),
            (0.0, 0.2, None, 0, ForecastReady),
            (0.0, 0.2, Some(0), 0, ForecastReady),
            (0.1, 0.2, Some(0), 1, ForecastReady),
            (10.0, 1.0, Some(11), 11, WithinTolerance),
            (9.9, 1.0, Some(11), 11, WithinTolerance),
            (9.89, 1.0, Some(11), 10, ForecastReady),
            (12.1, 1.0, Some(11), 11, WithinTolerance),
            (12.2, 1.0, Some(11), 13, ForecastReady),
            (1e300, 1e-3, None, 2_147_483_647, ForecastReady),
        ] {
            let reading = reading(value, target);
            let got = propose(&reading, held.map(Replicas::new), TENTH);
            let want = (Some(Replicas::new(want)), reason);
            assert_eq!(
                (got.replicas, got.reason),
                want,
                "{value} / {target}, held {held:?}"
            );
        }
    }

    #[test]
    fn the_value_and_the_target_are_reported_without_the_noise_of_the_arithmetic() {
        for (value, target, reported) in [
            (0.100_000_000_000_002, 60.0, [0.1, 60.0]),
            (0.1 + 0.2, 0.100_000_000_000_000_02, [0.3, 0.1]),
            (123_456.789_012, 1e-300, [123_456.789_012, 1e-300]),
        ] {
            let proposal = propose(&reading(value, target), None, TENTH);
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
            let reading = reading(value, target);
            let got = propose(&reading, Some(Replicas::new(3)), TENTH);
            assert_eq!(
                (got.replicas, got.reason),
                (None, reason),
                "{value} / {target}"
            );
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
        let reading = ForecastReading {
            name: "resource.memory".into(),
            outcome: Err(refused),
            details: None,
        };
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
        };
        assert_eq!(propose(&reading, Some(Replicas::new(3)), TENTH), want);
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
