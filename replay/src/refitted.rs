//! [`RefittedCandidate`]: any forecaster of `foretide-models`, refitted at intervals.

use foretide_models::{Forecast, Forecaster, Series};
use jiff::{SignedDuration, Timestamp};

use crate::DAY;
use crate::candidate::{Answer, Candidate, highest};
use crate::history::Known;

const MINUTE: SignedDuration = SignedDuration::from_secs(60);

/// A forecaster of `foretide-models`, refitted at an interval to the demand of the last days. Between fits, and when a fit
/// fails, its last forecast stays in use.
#[derive(Debug)]
pub struct RefittedCandidate {
    name: &'static str,
    forecaster: Box<dyn Forecaster>,
    /// In minutes.
    refit_every: usize,
    window: usize,
    asked: usize,
    last: Option<Forecast>,
}

// === impl RefittedCandidate ===

impl RefittedCandidate {
    /// How long a forecast stays in use while fits fail: two days.
    const HORIZON: usize = 2 * DAY;

    /// A candidate that fits every `refit_every` minutes and forecasts the highest demand of the next `window`
    /// minutes.
    pub fn new(
        name: &'static str,
        forecaster: Box<dyn Forecaster>,
        refit_every: usize,
        window: usize,
    ) -> Self {
        Self {
            name,
            forecaster,
            refit_every,
            window,
            asked: 0,
            last: None,
        }
    }

    fn refit(&mut self, known: &[f64]) {
        let keep = whole_minutes(self.forecaster.history_length());
        let dropped = known.len().saturating_sub(keep);
        let history = known.get(dropped..).unwrap_or_default().to_vec();
        let series = Series::from_values(instant(dropped), MINUTE, history);
        if let Ok(forecast) = self.forecaster.forecast(&series, span(Self::HORIZON)) {
            self.last = Some(forecast);
        }
    }
}

impl Candidate for RefittedCandidate {
    fn name(&self) -> &'static str {
        self.name
    }

    fn window(&self) -> usize {
        self.window
    }

    fn at(&mut self, known: Known<'_>) -> Vec<Answer> {
        if self.asked.is_multiple_of(self.refit_every) {
            self.refit(known.history);
        }
        self.asked += 1;
        let now = instant(known.len());
        let peak = self.last.as_ref().and_then(|forecast| {
            let made = whole_minutes(now.duration_since(forecast.start()));
            highest(forecast.point(), made, self.window)
        });
        peak.map(Answer::from).into_iter().collect()
    }
}

fn whole_minutes(span: SignedDuration) -> usize {
    usize::try_from(span.as_mins()).unwrap_or(0)
}

fn span(minutes: usize) -> SignedDuration {
    SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(i64::MAX / 60))
}

/// A minute as an instant, counted from the epoch.
fn instant(minute: usize) -> Timestamp {
    Timestamp::UNIX_EPOCH
        .checked_add(span(minute))
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NaiveCandidate;
    use foretide_models::{ForecastError, seasonal};

    /// Forecasts the number of calls; fails at the second one.
    #[derive(Debug, Default)]
    struct CountingForecaster {
        asked: u32,
        seen: Vec<usize>,
    }

    impl Forecaster for CountingForecaster {
        fn name(&self) -> &'static str {
            "stub"
        }

        fn history_length(&self) -> SignedDuration {
            SignedDuration::from_mins(30)
        }

        fn sample_interval(&self) -> SignedDuration {
            MINUTE
        }

        fn forecast(
            &mut self,
            history: &Series,
            horizon: SignedDuration,
        ) -> Result<Forecast, ForecastError> {
            self.asked += 1;
            self.seen.push(history.len());
            if self.asked == 2 {
                return Err(ForecastError::ZeroSeries);
            }
            let length = u32::try_from(whole_minutes(horizon)).unwrap_or(0);
            let path = (0..length)
                .map(|i| f64::from(self.asked) * 10_000.0 + f64::from(i))
                .collect();
            Forecast::new("stub", history.end(), MINUTE, path, history.end())
        }
    }

    #[test]
    fn a_refitted_forecaster_reuses_its_last_forecast() {
        let demand = [1.0; 100];
        let mut candidate =
            RefittedCandidate::new("stub", Box::new(CountingForecaster::default()), 10, 4);
        let answers: Vec<f64> = (50..80)
            .flat_map(|t| candidate.at(demand[..t].into()))
            .map(|answer| answer.peak)
            .collect();
        let fitted = |first: u32, fit: u32| {
            (first..).map(move |i| f64::from(fit) * 10_000.0 + f64::from(i + 4))
        };
        let expected: Vec<f64> = fitted(0, 1).take(20).chain(fitted(0, 3).take(10)).collect();
        assert_eq!(answers, expected);
    }

    #[test]
    fn a_forecaster_of_the_crate_agrees_with_the_naive_candidate() {
        let demand: Vec<f64> = (0..3000_u32).map(|t| f64::from(t % 97) + 1.0).collect();
        let forecaster =
            Box::new(seasonal::SeasonalNaive::new(seasonal::Config::default()).unwrap());
        let mut candidate = RefittedCandidate::new("seasonalNaive", forecaster, 1, 5);
        let mut naive = NaiveCandidate::all(2)[1];
        let known = Known::from(demand.as_slice());
        let (mine, theirs) = (candidate.at(known)[0].peak, naive.at(known)[0].peak);
        assert!((mine - theirs).abs() < 1e-9, "{mine:?} {theirs:?}");
    }
}
