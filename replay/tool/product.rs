//! Forecasters as the controller asks them: from a history with holes, for one peak over the decision window.

use foretide_models::auto::DEFAULT_QUANTILE;
use foretide_models::auto::{self, Auto, ServiceLevel};
use foretide_models::{Algorithm, ConfigError, Forecaster, Series, calibrate, dsp, seasonal};
use foretide_replay::{Answer, BEYOND, Candidate, DAY, Known, Tuning};
use jiff::{SignedDuration, Timestamp};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// A forecaster of the crate as a candidate, asked every minute.
#[derive(Debug)]
pub(crate) struct Product {
    name: &'static str,
    forecaster: Box<dyn Forecaster>,
    horizon: SignedDuration,
    /// Minutes of history passed after the first call.
    later_history: usize,
    asked: bool,
}

// === impl Product ===

impl Product {
    /// The default forecaster; `start_up` in minutes.
    pub(crate) fn auto(start_up: usize) -> Result<Self, ConfigError> {
        let config = auto::Config {
            lead_time: minutes(start_up),
            service_level: ServiceLevel::Quantile(DEFAULT_QUANTILE),
            ..auto::Config::default()
        };
        // It keeps what it learned and needs only new samples; a day is longer than any hole.
        let later_history = DAY;
        Ok(Self::new(
            "auto",
            Box::new(Auto::new(config)?),
            start_up,
            later_history,
        ))
    }

    /// The selectable forecasters, calibrated.
    pub(crate) fn selectable(start_up: usize) -> Result<Vec<Self>, ConfigError> {
        let median = seasonal::Config {
            cycles: 7,
            statistic: seasonal::Statistic::Median,
            ..seasonal::Config::default()
        };
        let all = [
            (
                "seasonalNaive median-7d, calibrated",
                Algorithm::SeasonalNaive(median),
            ),
            ("dsp, calibrated", Algorithm::Dsp(dsp::Config::default())),
        ];
        let config = calibrate::Config {
            quantile: DEFAULT_QUANTILE,
            lead_time: minutes(start_up),
        };
        let build = |(name, algorithm): (&'static str, Algorithm)| {
            let forecaster = Algorithm::Calibrated(Box::new(algorithm), config.clone()).build()?;
            let later_history = whole_minutes(forecaster.history_length());
            Ok(Self::new(name, forecaster, start_up, later_history))
        };
        all.into_iter().map(build).collect()
    }

    fn new(
        name: &'static str,
        forecaster: Box<dyn Forecaster>,
        start_up: usize,
        later_history: usize,
    ) -> Self {
        Self {
            name,
            forecaster,
            horizon: minutes(start_up + BEYOND + 1),
            later_history,
            asked: false,
        }
    }

    /// The next `horizon` minutes; `None` without a forecast. NaN in `known` is missing.
    pub(crate) fn path(&mut self, known: &[f64], horizon: usize) -> Option<Vec<f64>> {
        let history = self.history(known);
        let forecast = self.forecaster.forecast(&history, minutes(horizon));
        forecast.ok().map(|forecast| forecast.point().to_vec())
    }

    fn history(&mut self, known: &[f64]) -> Series {
        let wanted = if self.asked {
            self.later_history
        } else {
            whole_minutes(self.forecaster.history_length())
        };
        self.asked = true;
        let dropped = known.len().saturating_sub(wanted);
        let values = known.get(dropped..).unwrap_or_default().to_vec();
        let start = Timestamp::UNIX_EPOCH.checked_add(minutes(dropped));
        Series::from_values(start.unwrap_or(Timestamp::MAX), MINUTE, values)
    }
}

impl Candidate for Product {
    fn name(&self) -> &'static str {
        self.name
    }

    fn tuning(&self) -> Tuning {
        Tuning::Quantile(&[DEFAULT_QUANTILE])
    }

    fn window(&self) -> usize {
        whole_minutes(self.horizon) - 1
    }

    fn at(&mut self, known: Known<'_>) -> Vec<Answer> {
        let history = self.history(known.history);
        let window = self.horizon - MINUTE;
        let forecast = self.forecaster.forecast(&history, self.horizon).ok();
        let answer = forecast.and_then(|forecast| {
            Some(Answer {
                bounds: forecast.bounds(history.end(), window)?,
                peak: forecast.demand(history.end(), window)?,
            })
        });
        answer.into_iter().collect()
    }
}

fn minutes(n: usize) -> SignedDuration {
    SignedDuration::from_mins(i64::try_from(n).unwrap_or(i64::MAX / 60))
}

fn whole_minutes(span: SignedDuration) -> usize {
    usize::try_from(span.as_mins()).unwrap_or(0)
}
