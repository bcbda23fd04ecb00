//! Forecasters as the controller asks them: a history with holes in, one answer about the decision window out.

use foretide_models::auto::{self, Aim, Auto};
use foretide_models::replay::{Candidate, DAY, Knob};
use foretide_models::{
    Algorithm, ConfigError, Forecaster, Series, calibrate, dsp, holt_winters, seasonal,
};
use jiff::{SignedDuration, Timestamp};

use crate::comparison::BEYOND;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// The quantile that all of them are asked for.
const QUANTILE: f64 = 0.9;

/// A forecaster that is asked every minute.
#[derive(Debug)]
pub(crate) struct Product {
    name: &'static str,
    forecaster: Box<dyn Forecaster>,
    horizon: SignedDuration,
    /// Minutes of history that a further question comes with.
    further: usize,
    asked: bool,
}

// === impl Product ===

impl Product {
    /// The default one; `start_up` in minutes.
    pub(crate) fn auto(start_up: usize) -> Result<Self, ConfigError> {
        let config = auto::Config {
            lead_time: minutes(start_up),
            aim: Aim::Quantile(QUANTILE),
            ..auto::Config::default()
        };
        // It has kept what it learnt and needs no more than what is new; a day is longer than any hole.
        let further = DAY;
        Ok(Self::new(
            "auto",
            Box::new(Auto::new(config)?),
            start_up,
            further,
        ))
    }

    /// The selectable ones, calibrated.
    pub(crate) fn selectable(start_up: usize) -> Result<Vec<Self>, ConfigError> {
        let median = seasonal::Config {
            cycles: 7,
            statistic: seasonal::Statistic::Median,
            ..seasonal::Config::default()
        };
        let all = [
            (
                "holtWinters, calibrated",
                Algorithm::HoltWinters(holt_winters::Config::default()),
            ),
            (
                "seasonalNaive median-7d, calibrated",
                Algorithm::SeasonalNaive(median),
            ),
            ("dsp, calibrated", Algorithm::Dsp(dsp::Config::default())),
        ];
        let config = calibrate::Config {
            quantile: QUANTILE,
            lead_time: minutes(start_up),
        };
        let build = |(name, algorithm): (&'static str, Algorithm)| {
            let forecaster = Algorithm::Calibrated(Box::new(algorithm), config.clone()).build()?;
            let further = whole_minutes(forecaster.history_length());
            Ok(Self::new(name, forecaster, start_up, further))
        };
        all.into_iter().map(build).collect()
    }

    fn new(
        name: &'static str,
        forecaster: Box<dyn Forecaster>,
        start_up: usize,
        further: usize,
    ) -> Self {
        Self {
            name,
            forecaster,
            horizon: minutes(start_up + BEYOND + 1),
            further,
            asked: false,
        }
    }

    /// The next values, as many minutes as `horizon`; none where there is no honest answer. `NaN` is missing.
    pub(crate) fn path(&mut self, known: &[f64], horizon: usize) -> Option<Vec<f64>> {
        let history = self.history(known);
        let forecast = self.forecaster.forecast(&history, minutes(horizon));
        forecast.ok().map(|forecast| forecast.point().to_vec())
    }

    fn history(&mut self, known: &[f64]) -> Series {
        let wanted = if self.asked {
            self.further
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

    fn knob(&self) -> Knob {
        Knob::Quantile(&[QUANTILE])
    }

    fn at(&mut self, known: &[f64]) -> Vec<f64> {
        let history = self.history(known);
        let forecast = self.forecaster.forecast(&history, self.horizon).ok();
        let peak = forecast.and_then(|forecast| {
            let window = self.horizon - MINUTE;
            forecast.demand(history.end(), window)
        });
        peak.into_iter().collect()
    }
}

fn minutes(n: usize) -> SignedDuration {
    SignedDuration::from_mins(i64::try_from(n).unwrap_or(i64::MAX / 60))
}

fn whole_minutes(span: SignedDuration) -> usize {
    usize::try_from(span.as_mins()).unwrap_or(0)
}
