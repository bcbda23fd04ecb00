//! The forecaster `auto` as a contender: its model, step by step, asked for several quantiles at once. Next: `auto`.

use jiff::SignedDuration;

use super::candidate::{Candidate, Knob};
use super::{DAY, Workload, mean};
use crate::auto::{Aim, Online, Settings};

/// The quantile that the model measures itself at.
const MEASURED_AT: f64 = 0.9;

/// The model of `auto`, taking in minute after minute.
#[derive(Debug)]
pub struct Learning {
    name: &'static str,
    knob: Knob,
    /// One for all quantiles, or one for each objective.
    models: Vec<Online>,
}

// === impl Learning ===

impl Learning {
    /// As the controller runs it, asked for quantiles; `lead` is the start-up time in minutes.
    #[must_use]
    pub fn quantiles(quantiles: &'static [f64], lead: usize) -> Self {
        let model = model(product(lead), Aim::Quantile(MEASURED_AT));
        Self {
            name: "auto",
            knob: Knob::Quantile(quantiles),
            models: vec![model],
        }
    }

    /// As the controller runs it, asked to stay below these parts of under-provisioned minutes, in percent; the
    /// replicas are those of the workload.
    #[must_use]
    pub fn objectives(percents: &'static [f64], lead: usize, workload: &Workload<'_>) -> Self {
        let per_replica = Some(workload.target());
        let models = percents.iter().map(|&percent| {
            model(
                product(lead),
                Aim::UnderProvisioned {
                    percent,
                    per_replica,
                },
            )
        });
        Self {
            name: "auto",
            knob: Knob::Percent(percents),
            models: models.collect(),
        }
    }

    /// As it was first measured: never forgetting, never falling back, and with this offset of its logarithm; see
    /// [`offset`](Self::offset).
    #[must_use]
    pub fn with_offset(
        name: &'static str,
        quantiles: &'static [f64],
        lead: usize,
        offset: f64,
    ) -> Self {
        let settings = Settings {
            remember_minutes: i64::MAX,
            offset: Some(offset),
            fall_back: false,
            ..product(lead)
        };
        let model = model(settings, Aim::Quantile(MEASURED_AT));
        Self {
            name,
            knob: Knob::Quantile(quantiles),
            models: vec![model],
        }
    }

    /// The offset of the first measurements: `max(2 * mean of seven days, 0.8 * mean of all)`, which looks ahead.
    #[must_use]
    pub fn offset(demand: &[f64]) -> f64 {
        let week = mean(demand.iter().copied().take(7 * DAY)).unwrap_or(0.0);
        let all = mean(demand.iter().copied()).unwrap_or(0.0);
        (2.0 * week).max(0.8 * all)
    }

    /// The level of the last five minutes and the prediction relative to it, as the model has them.
    #[must_use]
    pub fn point(&self) -> Option<(f64, f64)> {
        self.models.first()?.point()
    }

    fn push(&mut self, known: &[f64]) {
        let Some(&newest) = known.last() else { return };
        for model in &mut self.models {
            model.push(newest);
        }
    }
}

impl Candidate for Learning {
    fn name(&self) -> &'static str {
        self.name
    }

    fn knob(&self) -> Knob {
        self.knob
    }

    fn learn(&mut self, known: &[f64]) {
        self.push(known);
    }

    fn at(&mut self, known: &[f64]) -> Vec<f64> {
        self.push(known);
        let answers: Option<Vec<f64>> = match (self.knob, self.models.first()) {
            (Knob::Quantile(quantiles), Some(model)) => quantiles
                .iter()
                .map(|&quantile| model.upper(quantile))
                .collect(),
            _ => self
                .models
                .iter()
                .map(|model| model.upper(model.quantile()))
                .collect(),
        };
        answers.unwrap_or_default()
    }
}

/// The settings of the product.
fn product(lead: usize) -> Settings {
    Settings::new(i64::try_from(lead).unwrap_or(i64::MAX))
}

fn model(settings: Settings, aim: Aim) -> Online {
    Online::new(settings, SignedDuration::from_mins(1), aim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Accuracy, highest_of_next, paths};

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
    fn a_higher_quantile_covers_more_by_about_what_was_asked() {
        let demand = noisy_wave();
        let workload = Workload::new(&demand).unwrap();
        let came = highest_of_next(&workload, 5);
        let mut contender = Learning::quantiles(&[0.5, 0.9], 2);
        for (path, asked) in paths(&mut contender, &workload).iter().zip([50.0, 90.0]) {
            let accuracy = Accuracy::of(&workload, path, &came).unwrap();
            assert!(
                (accuracy.coverage - asked).abs() < 4.0,
                "{asked}: {accuracy:?}"
            );
            assert!(accuracy.answered > 99.9, "{accuracy:?}");
        }
    }

    #[test]
    fn the_offset_is_twice_the_week_unless_the_whole_is_far_higher() {
        let days = |days: &[f64]| {
            days.iter()
                .flat_map(|&level| vec![level; DAY])
                .collect::<Vec<_>>()
        };
        assert!((Learning::offset(&days(&[3.0; 8])) - 6.0).abs() < 1e-12);
        let late = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 33.0];
        assert!((Learning::offset(&days(&late)) - 4.0).abs() < 1e-12);
    }
}
