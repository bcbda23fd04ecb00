//! The forecaster `auto` as a candidate: its model fed minute by minute, and asked for several quantiles at once.

use foretide_models::auto::{
    DEFAULT_QUANTILE, DecisionWindows, OnlineModel, OnlineSettings, SampleOrigin, ServiceLevel,
};
use jiff::SignedDuration;

use crate::average::mean;
use crate::candidate::{Answer, BEYOND, Candidate, Tuning};
use crate::history::Known;
use crate::{DAY, Workload};

/// Minutes after the start-up that the decision window of `auto` covers.
const AUTO_LOOKS_BEYOND: usize = 1;

/// The model of `auto`, fed minute by minute.
#[derive(Debug)]
pub struct AutoCandidate {
    name: &'static str,
    tuning: Tuning,
    window: usize,
    /// One model for all quantiles, or one for each percentage.
    models: Vec<OnlineModel>,
}

// === impl AutoCandidate ===

impl AutoCandidate {
    /// The model with the settings of the controller, for these quantiles; `start_up` is in minutes.
    pub fn quantiles(quantiles: &'static [f64], start_up: usize) -> Self {
        let model = model(
            controller_settings(start_up),
            ServiceLevel::Quantile(DEFAULT_QUANTILE),
        );
        Self {
            name: "auto",
            tuning: Tuning::Quantile(quantiles),
            window: start_up + AUTO_LOOKS_BEYOND,
            models: vec![model],
        }
    }

    /// The model with the settings of the controller, for these percentages of under-provisioned minutes; replicas
    /// have the target of the workload.
    pub fn objectives(percents: &'static [f64], start_up: usize, workload: &Workload<'_>) -> Self {
        let per_replica = Some(workload.target());
        let models = percents.iter().map(|&percent| {
            model(
                controller_settings(start_up),
                ServiceLevel::UnderProvisioned {
                    percent,
                    per_replica,
                },
            )
        });
        Self {
            name: "auto, objective",
            tuning: Tuning::Percent(percents),
            window: start_up + AUTO_LOOKS_BEYOND,
            models: models.collect(),
        }
    }

    /// The first version of the model, with which `sim_open.csv` of the study was made: it predicts one window, keeps all
    /// demand, does not fall back to persistence, and has a fixed offset of its logarithm; see [`offset`](Self::offset).
    pub fn first_version(quantiles: &'static [f64], start_up: usize, offset: f64) -> Self {
        let settings = OnlineSettings {
            remember_minutes: i64::MAX,
            offset: Some(offset),
            fall_back: false,
            windows: DecisionWindows::One,
            ..controller_settings(start_up)
        };
        let model = model(settings, ServiceLevel::Quantile(DEFAULT_QUANTILE));
        Self {
            name: "auto (golden)",
            tuning: Tuning::Quantile(quantiles),
            window: start_up + BEYOND,
            models: vec![model],
        }
    }

    /// The offset of the first version: `max(2 * mean of seven days, 0.8 * mean of all)`. It uses future demand.
    pub fn offset(demand: &[f64]) -> f64 {
        let week = mean(demand.iter().copied().take(7 * DAY)).unwrap_or(0.0);
        let all = mean(demand.iter().copied()).unwrap_or(0.0);
        (2.0 * week).max(0.8 * all)
    }

    /// The level of the last five minutes and the prediction relative to it, as the model has them.
    pub fn point(&self) -> Option<(f64, f64)> {
        self.models.first()?.point()
    }

    fn take(&mut self, known: Known<'_>) {
        let Some(&newest) = known.history.last() else {
            return;
        };
        for model in &mut self.models {
            let raw = known.is_raw;
            model.take(newest, SampleOrigin::Measured { raw });
        }
    }
}

impl Candidate for AutoCandidate {
    fn name(&self) -> &'static str {
        self.name
    }

    fn tuning(&self) -> Tuning {
        self.tuning
    }

    fn window(&self) -> usize {
        self.window
    }

    fn learn(&mut self, known: Known<'_>) {
        self.take(known);
    }

    fn at(&mut self, known: Known<'_>) -> Vec<Answer> {
        self.take(known);
        for model in &mut self.models {
            model.calibrate();
        }
        let answers: Option<Vec<Answer>> = match (self.tuning, self.models.first()) {
            (Tuning::Quantile(quantiles), Some(model)) => quantiles
                .iter()
                .map(|&quantile| answer(model, quantile))
                .collect(),
            _ => self
                .models
                .iter()
                .map(|model| answer(model, model.quantile()))
                .collect(),
        };
        answers.unwrap_or_default()
    }
}

fn answer(model: &OnlineModel, quantile: f64) -> Option<Answer> {
    Some(Answer {
        bounds: model.bounds(quantile)?,
        peak: model.upper(quantile)?,
    })
}

/// The settings of the controller.
fn controller_settings(start_up: usize) -> OnlineSettings {
    OnlineSettings::new(i64::try_from(start_up).unwrap_or(i64::MAX))
}

fn model(settings: OnlineSettings, service_level: ServiceLevel) -> OnlineModel {
    OnlineModel::new(settings, SignedDuration::from_mins(1), service_level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accuracy, History, forecasts};

    /// Twelve days of a wave with noise from a linear congruence.
    fn noisy_wave() -> Vec<f64> {
        let mut state = 7_u32;
        let minutes = (0..17_280_u32).map(f64::from);
        minutes
            .map(|t| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let wave = (t / 1440.0 * std::f64::consts::TAU).sin();
                100.0 + 40.0 * wave + 20.0 * f64::from(state >> 16) / 65536.0
            })
            .collect()
    }

    #[test]
    fn coverage_is_close_to_the_quantile() {
        let demand = noisy_wave();
        let workload = Workload::new(&demand).unwrap();
        let mut candidate = AutoCandidate::quantiles(&[0.9, DEFAULT_QUANTILE], 2);
        let paths = forecasts(&mut candidate, &workload, &History::new(&demand, 1));
        for (path, asked) in paths.iter().zip([90.0, 100.0 * DEFAULT_QUANTILE]) {
            let accuracy = Accuracy::of(&workload, path).unwrap();
            assert!(
                (accuracy.coverage - asked).abs() < 5.0,
                "{asked}: {accuracy:?}"
            );
            assert!(accuracy.answered > 99.9, "{accuracy:?}");
        }
    }

    #[test]
    fn the_offset_is_twice_the_mean_of_the_week_unless_the_total_mean_is_far_higher() {
        let days = |days: &[f64]| {
            days.iter()
                .flat_map(|&level| vec![level; DAY])
                .collect::<Vec<_>>()
        };
        assert!((AutoCandidate::offset(&days(&[3.0; 8])) - 6.0).abs() < 1e-12);
        let late = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 33.0];
        assert!((AutoCandidate::offset(&days(&late)) - 4.0).abs() < 1e-12);
    }
}
