//! From a predicted demand to a proposal.
//!
//! Demand is a total over all pods, in `f64` from the query to here; the count is
//! `ceil(total / target per pod)`. A proposal stays while the prediction is within the autoscaler's
//! tolerance *of that proposal*: relative to the current count it would stick wherever the count
//! happens to be. No forecast is no proposal, with a reason, and never zero.

use foretide_models::{Forecast, Note, OUTLIVES_HISTORY, Refusal};
use jiff::{SignedDuration, Timestamp};

use super::Replicas;
use super::explain::unit_of;
use super::hpa::Tolerance;
use super::lead_time::LeadTime;
use super::proposal::{Proposal, Reason, Source};

/// What the forecaster says about one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastReading {
    /// Identifier of the metric, as `resource.cpu`.
    pub name: String,
    /// The prediction, or why there is none.
    pub outcome: Result<Predicted, Refused>,
    /// What the prediction stands on, where more than its numbers is known.
    pub grounds: Option<Grounds>,
}

/// What a forecast stands on: who made it from what, and how well that has gone lately.
#[derive(Clone, Debug, PartialEq)]
pub struct Grounds {
    /// The algorithm.
    pub method: &'static str,
    /// The quantile in use, if the forecaster answers with one.
    pub quantile: Option<f64>,
    /// The span from the end of the history on that the answer is about, if it is not the prediction window.
    pub window: Option<SignedDuration>,
    /// The part of the last three days' answers that were enough, if it is measured.
    pub coverage: Option<f64>,
    /// How much better than "it stays as it is" those answers were: 0 is no better, 1 is perfect.
    pub skill: Option<f64>,
    /// The first sample that the forecaster learnt from, if it says so.
    pub learnt_from: Option<Timestamp>,
    /// Where the history ends.
    pub known_until: Timestamp,
    /// How long added capacity is taken to need.
    pub lead_time: LeadTime,
    /// The part of the last day's readings at the workload's limits, in percent.
    pub censored_percent: f64,
    /// What is worth knowing, in one word.
    pub remark: Option<Reason>,
    /// The same for people; empty if nothing is.
    pub notes: String,
}

/// The demand that is coming.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// The peak of the total demand over the prediction window, in base units.
    pub value: f64,
    /// What one pod is meant to carry, in the same unit: an average value, or a utilization times the
    /// mean request.
    pub target: f64,
}

/// Why there is no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// For machines.
    pub reason: Reason,
    /// For people: what was needed, what was there.
    pub message: String,
}

impl Refused {
    /// There is no prediction for `reason`; `message` says it to people.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// A forecaster's refusal in the words of proposals.
impl From<&Refusal> for Refused {
    fn from(refusal: &Refusal) -> Self {
        let reason = match refusal {
            Refusal::InsufficientHistory { .. } => Reason::InsufficientHistory,
            Refusal::StaleHistory { .. } => Reason::StaleHistory,
            Refusal::TooManyGaps { .. } => Reason::TooManyGaps,
            Refusal::ZeroSeries => Reason::ZeroSeries,
            Refusal::NotPeriodic { .. } => Reason::NotPeriodic,
            _ => Reason::NumericalFailure,
        };
        Self::new(reason, refusal.to_string())
    }
}

// === impl Grounds ===

/// Above this part of a day at the limits, what was measured says little about what was wanted.
const CENSORED_PERCENT: f64 = 20.0;

impl Grounds {
    /// What `forecast` stands on.
    #[must_use]
    pub fn of(forecast: &Forecast, lead_time: LeadTime, censored_percent: f64) -> Self {
        let (direct, quality) = (forecast.direct(), forecast.quality());
        let censored = censored_percent > CENSORED_PERCENT;
        let mut notes: Vec<String> = forecast.notes().iter().map(ToString::to_string).collect();
        let mut remark = forecast.notes().iter().find_map(remark);
        if censored {
            notes.push(format!(
                "at the workload's limits for {censored_percent:.0} % of the last day: the true demand may be higher"
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
}

/// The end of the newest sample of a history, as its forecast tells by how long it is valid.
fn newest(forecast: &Forecast) -> Timestamp {
    let newest = forecast.valid_until().checked_sub(OUTLIVES_HISTORY);
    newest.map_or(forecast.start(), |newest| newest.min(forecast.start()))
}

/// The word for a note that says more than that some samples were missing.
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
    /// The count asked for, before rounding up: `total / target`.
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
        let asked = self.value / target;
        if asked.is_finite() && asked >= 0.0 {
            Ok(asked)
        } else {
            let message = format!(
                "the forecast is {}: expected a number not below zero",
                self.value
            );
            Err(Refused::new(Reason::NumericalFailure, message))
        }
    }
}

/// How far beyond its history a forecaster is asked: `2 * window + OUTLIVES_HISTORY + step`.
///
/// Two windows, the second of which is published for whoever looks further ahead, are so covered until the forecast
/// expires. The controller, `plan` and the back-test ask alike.
#[must_use]
pub fn horizon(window: SignedDuration, step: SignedDuration) -> SignedDuration {
    [window, window, OUTLIVES_HISTORY, step]
        .into_iter()
        .fold(SignedDuration::ZERO, SignedDuration::saturating_add)
}

/// The proposal of one forecast; `held` is the last one of the same metric, if it had one.
///
/// `held` stays while `pods / held` is within the tolerance, else `ceil(pods)`. What it returns is
/// the next `held`.
#[must_use]
pub fn propose(
    reading: &ForecastReading,
    held: Option<Replicas>,
    tolerance: Tolerance,
) -> Proposal {
    let outcome = reading.outcome.as_ref().map_err(Clone::clone);
    let predicted = outcome.as_ref().ok().copied().copied();
    let asked = outcome.and_then(Predicted::pods);
    let (replicas, reason, message) = match asked {
        Ok(pods) => match held.filter(|h| tolerance.covers(pods / h.as_f64())) {
            Some(held) => (Some(held), Reason::WithinTolerance, String::new()),
            None => (
                Some(Replicas::from_f64_ceil(pods)),
                Reason::ForecastReady,
                String::new(),
            ),
        },
        Err(refused) => (None, refused.reason, refused.message),
    };
    let grounds = reading.grounds.clone().filter(|_| replicas.is_some());
    let message = match &grounds {
        Some(grounds) => grounds.notes.clone(),
        None => message,
    };
    Proposal {
        source: Source::Forecast,
        name: reading.name.clone(),
        replicas,
        value: predicted.map(|p| p.value),
        target: predicted.map(|p| p.target),
        unit: unit_of(&reading.name),
        reason,
        message,
        grounds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Tolerance = Tolerance { down: 0.1, up: 0.1 };

    fn reading(value: f64, target: f64) -> ForecastReading {
        ForecastReading {
            name: "resource.cpu".into(),
            outcome: Ok(Predicted { value, target }),
            grounds: None,
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
    fn what_is_no_number_of_pods_is_no_proposal() {
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
    fn two_windows_are_asked_for_and_covered_until_the_forecast_expires() {
        let minutes = SignedDuration::from_mins;
        assert_eq!(horizon(minutes(60), minutes(1)), minutes(131));
        assert_eq!(horizon(SignedDuration::ZERO, minutes(5)), minutes(15));
        assert_eq!(
            horizon(SignedDuration::MAX, minutes(1)),
            SignedDuration::MAX
        );
    }

    #[test]
    fn a_refusal_keeps_its_reason_and_its_words() {
        let refused = Refused::new(Reason::InsufficientHistory, "40 samples of 120");
        let reading = ForecastReading {
            name: "resource.memory".into(),
            outcome: Err(refused),
            grounds: None,
        };
        let want = Proposal {
            source: Source::Forecast,
            name: "resource.memory".into(),
            replicas: None,
            value: None,
            target: None,
            unit: super::super::proposal::Unit::Bytes,
            reason: Reason::InsufficientHistory,
            message: "40 samples of 120".into(),
            grounds: None,
        };
        assert_eq!(propose(&reading, Some(Replicas::new(3)), TENTH), want);
    }

    #[test]
    fn a_forecast_knows_up_to_its_newest_sample_however_far_its_grid_goes() {
        const START: Timestamp = Timestamp::constant(1_767_225_600, 0);
        let ago = |minutes| START - SignedDuration::from_mins(minutes);
        let made = |newest: Timestamp| {
            let (minute, until) = (SignedDuration::from_mins(1), newest + OUTLIVES_HISTORY);
            Forecast::new("dsp", START, minute, vec![1.0; 60], until).unwrap()
        };
        let quality = foretide_models::Quality {
            coverage: None,
            skill: None,
            learnt_from: ago(9000),
            known_until: ago(3),
        };
        for (forecast, known) in [
            (made(ago(0)), ago(0)),
            (made(ago(7)), ago(7)),
            (made(ago(-2)), ago(0)),
            (made(ago(0)).with_quality(quality), ago(3)),
        ] {
            let grounds = Grounds::of(&forecast, LeadTime::of(None, None), 0.0);
            assert_eq!(grounds.known_until, known);
        }
    }
}
