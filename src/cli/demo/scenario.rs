//! Generated demand of the demo: ten days of minutes, the same on every machine.
//!
//! The demand is a sum of bumps, with noise from a hashed counter; no randomness, no clock.

use clap::ValueEnum;
use foretide_backtest::{
    Error,
    inputs::{self, AutoscalerWorkload},
    manifest,
    recording::History,
    setup::{EvaluationOptions, Setup},
    template::TemplateSource,
};
use foretide_domain::sim::Recording;
use foretide_models::Sample;
use jiff::Timestamp;

use crate::cli::{context::CommandContext, output::Failure};

/// The autoscaler that the demo runs.
const AUTOSCALER: &str = include_str!("autoscaler.yaml");
/// The first minute: a Sunday, 1 March 2026, 00:00 UTC.
const BEGIN: i64 = 1_772_323_200;
const DAY: i64 = 1440;
/// Number of the day that is shown, counted from 0: the second Tuesday.
const SHOWN: i64 = 9;
/// Minutes of the day that are shown: from six in the morning to six in the evening.
const SHOWN_FROM: i64 = 360;
const SHOWN_UNTIL: i64 = 1080;
/// Request of each pod, in milli-cores.
const REQUEST: i64 = 200;

/// Demand of the day that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// A web shop: busy by day, with a rush each working day at 9:00 and 13:00
    #[default]
    Shop,
    /// Batch jobs that start at every full hour
    Batch,
    /// The web shop, with a surge in the afternoon that the history does not predict
    Surge,
}

// === impl Scenario ===

impl Scenario {
    /// The example with this scenario's demand.
    pub fn setup(self, context: &CommandContext) -> Result<Setup, Failure> {
        let documents = manifest::parse("demo", AUTOSCALER).map_err(Error::from)?;
        let chosen = inputs::chosen_one(&documents, None, &context.validator())?;
        let options = EvaluationOptions {
            from: Some(minute(SHOWN * DAY + SHOWN_FROM)),
            until: Some(minute(SHOWN * DAY + SHOWN_UNTIL)),
            ..EvaluationOptions::default()
        };
        Ok(setup(chosen, "resource.cpu", self.samples(), options)?)
    }

    /// Short description for the heading.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Shop => "a web shop with rushes at 9 and 13",
            Self::Batch => "batch jobs at every full hour",
            Self::Surge => "a web shop with an unexpected surge",
        }
    }

    /// The top of the scale, in replicas.
    pub const fn top(self) -> f64 {
        match self {
            Self::Shop | Self::Batch => 18.0,
            Self::Surge => 24.0,
        }
    }

    fn samples(self) -> Vec<Sample> {
        (0..=(SHOWN + 1) * DAY)
            .map(|index: i64| Sample {
                at: minute(index),
                value: self.noisy_demand(index),
            })
            .collect()
    }

    /// Cores in use in a minute as they are measured, in whole thousandths.
    pub fn noisy_demand(self, index: i64) -> f64 {
        (self.demand(index) * (1.0 + 0.03 * noise(index)) * 1000.0).round() / 1000.0
    }

    /// Cores in use in a minute.
    fn demand(self, index: i64) -> f64 {
        let (day, hour) = (index.div_euclid(DAY), real(index.rem_euclid(DAY)) / 60.0);
        let works = !matches!(day % 7, 0 | 6);
        // An index far from those of minutes gives each day a noise of its own.
        let busy = if works { 1.0 } else { 0.6 } * (1.0 + 0.05 * noise(day + 77_777));
        let shop = || {
            let rush = if works {
                0.55 * burst(hour - 9.0) + 0.35 * burst(hour - 13.0)
            } else {
                0.0
            };
            0.25 + busy * (0.75 * bump((hour - 14.5) / 9.0) + rush)
        };
        match self {
            Self::Batch => 0.3 + busy * 1.1 * burst(hour.fract() - 0.02),
            Self::Surge if day == SHOWN => shop() + burst(hour - 16.3),
            Self::Shop | Self::Surge => shop(),
        }
    }
}

/// An autoscaler with generated demand of a metric, whose pods request [`REQUEST`].
pub fn setup(
    chosen: AutoscalerWorkload,
    metric: &str,
    samples: Vec<Sample>,
    options: EvaluationOptions,
) -> Result<Setup, Error> {
    let history = History {
        metric: metric.to_owned(),
        file: "demo".to_owned(),
        recording: Recording::new(samples),
        notes: Vec::new(),
    };
    let template = TemplateSource {
        documents: &[],
        requests: &[("cpu".to_owned(), REQUEST)],
    };
    Setup::of(chosen, &[history], template, options)
}

/// A burst that rises within three minutes and falls within half an hour; `hours` counts from its beginning, and its
/// highest value is 1.
fn burst(hours: f64) -> f64 {
    let minutes = hours * 60.0;
    if minutes < 0.0 {
        0.0
    } else if minutes < 3.0 {
        minutes / 3.0
    } else {
        (-(minutes - 3.0) / 14.0).exp()
    }
}

/// 1 at 0, falling smoothly to 0 at -1 and 1.
fn bump(x: f64) -> f64 {
    if x.abs() < 1.0 {
        0.5 + 0.5 * (x * std::f64::consts::PI).cos()
    } else {
        0.0
    }
}

/// A value of [-1, 1] that follows from the index alone, hashed as in splitmix64.
fn noise(index: i64) -> f64 {
    let mut z = index.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let parts = u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or(0);
    f64::from(parts) / f64::from(u32::MAX) * 2.0 - 1.0
}

/// The beginning of a minute, counted from the first one.
pub fn minute(index: i64) -> Timestamp {
    Timestamp::from_second(BEGIN + index * 60).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[expect(clippy::cast_precision_loss, reason = "minutes of a day")]
fn real(minutes: i64) -> f64 {
    minutes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scene_is_a_usable_example_that_fits_its_scale() {
        for scenario in [Scenario::Shop, Scenario::Batch, Scenario::Surge] {
            let setup = scenario.setup(&super::super::tests::context()).unwrap();
            assert_eq!(
                foretide_backtest::runs::Runs::of(&setup).minutes(),
                720,
                "{scenario:?}"
            );
            assert_eq!(setup.workload.problems, [], "{scenario:?}");
            let highest = scenario
                .samples()
                .iter()
                .map(|s| s.value)
                .fold(0.0, f64::max);
            assert!(highest / 0.1 <= scenario.top(), "{scenario:?}: {highest}");
        }
    }

    #[test]
    fn the_surge_is_on_the_day_shown_and_on_no_other() {
        let differs =
            |index: &i64| Scenario::Surge.demand(*index) > Scenario::Shop.demand(*index) + 0.01;
        let days: Vec<i64> = (0..11 * DAY)
            .filter(differs)
            .map(|index| index / DAY)
            .collect();
        assert_eq!((days.first(), days.last()), (Some(&SHOWN), Some(&SHOWN)));
    }

    #[test]
    fn noise_is_within_one_and_centered() {
        let values: Vec<f64> = (0..10_000).map(noise).collect();
        assert!(values.iter().all(|value| value.abs() <= 1.0));
        assert!((values.iter().sum::<f64>() / 10_000.0).abs() < 0.02);
    }
}
