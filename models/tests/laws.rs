//! The laws every forecaster keeps, over generated and over poisoned histories.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure here is a failed test"
)]

use std::f64::consts::TAU;

use foretide_models::{
    Algorithm, Forecast, Forecaster, Refusal, Sample, Series, dsp, percentile, seasonal,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

const STEP: SignedDuration = SignedDuration::from_mins(10);
const DAY: usize = 144;
const HORIZON: SignedDuration = SignedDuration::from_hours(24);
const START: Timestamp = Timestamp::UNIX_EPOCH;

fn exact_dsp() -> Box<dyn Forecaster> {
    let fft = dsp::Fft {
        low_amplitude_threshold: 0.0,
        ..dsp::Fft::default()
    };
    let estimators = dsp::Estimators {
        fft: vec![fft],
        max_value: vec![],
    };
    let config = dsp::Config {
        sample_interval: STEP,
        estimators,
        ..dsp::Config::default()
    };
    Algorithm::Dsp(config).build().unwrap()
}

fn default_dsp() -> Box<dyn Forecaster> {
    let config = dsp::Config {
        sample_interval: STEP,
        ..dsp::Config::default()
    };
    Algorithm::Dsp(config).build().unwrap()
}

fn naive(cycles: usize, statistic: seasonal::Statistic, level_ratio: bool) -> Box<dyn Forecaster> {
    let config = seasonal::Config {
        sample_interval: STEP,
        cycles,
        statistic,
        level_ratio,
        ..seasonal::Config::default()
    };
    Algorithm::SeasonalNaive(config).build().unwrap()
}

fn floor() -> Box<dyn Forecaster> {
    let config = percentile::Config {
        sample_interval: STEP,
        ..percentile::Config::default()
    };
    Algorithm::Percentile(config).build().unwrap()
}

fn everyone() -> Vec<Box<dyn Forecaster>> {
    use seasonal::Statistic::{Last, Max, Median};
    vec![
        default_dsp(),
        exact_dsp(),
        naive(1, Last, false),
        naive(2, Last, true),
        naive(3, Median, false),
        naive(3, Max, false),
        floor(),
    ]
}

fn series(values: Vec<f64>) -> Series {
    Series::from_values(START, STEP, values)
}

fn highest(history: &Series) -> f64 {
    history.values().iter().copied().fold(0.0, f64::max)
}

fn worst(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

/// Finite, not negative, at most 1.5 times the highest sample; the same again when asked again.
fn assert_bounded(history: &Series) -> Vec<Result<Forecast, Refusal>> {
    let ceiling = (1.5 * highest(history)).min(f64::MAX);
    let answer = |mut forecaster: Box<dyn Forecaster>| {
        let answer = forecaster.forecast(history, HORIZON);
        assert_eq!(
            answer,
            forecaster.forecast(history, HORIZON),
            "{forecaster:?}"
        );
        if let Ok(forecast) = &answer {
            assert_eq!(forecast.start(), history.end());
            assert_eq!(forecast.point().len(), DAY);
            let fine = |v: &f64| v.is_finite() && *v >= 0.0 && *v <= ceiling;
            assert!(
                forecast.point().iter().all(fine),
                "{forecaster:?}: {forecast:?}"
            );
        }
        answer
    };
    everyone().into_iter().map(answer).collect()
}

fn daily(i: usize) -> f64 {
    let turn = TAU * f64::from(u32::try_from(i).unwrap()) / 144.0;
    10.0 + 4.0 * turn.sin() + 1.5 * (3.0 * turn + 1.0).cos()
}

/// A repeatable number in [-0.5, 0.5).
fn noise(i: usize) -> f64 {
    let hash = (i as u64)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(31);
    let hash = hash.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40;
    f64::from(u32::try_from(hash).unwrap()) / f64::from(1 << 24) - 0.5
}

fn noisy(days: usize) -> Vec<f64> {
    (0..days * DAY).map(|i| daily(i) + 0.5 * noise(i)).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn a_poisoned_history_gives_a_bounded_forecast_or_a_reason() {
    let week = |f: &dyn Fn(usize) -> f64| (0..7 * DAY).map(f).collect::<Vec<f64>>();
    let hole = |from: usize, to: usize| {
        week(&move |i| {
            if (from..to).contains(&i) {
                f64::NAN
            } else {
                daily(i)
            }
        })
    };
    // What dsp, the naive day and the percentile say: "" is a forecast.
    let cases: Vec<(&str, Vec<f64>, [&str; 3])> = vec![
        ("nothing", vec![], ["InsufficientHistory"; 3]),
        ("one sample", vec![1.0], ["InsufficientHistory"; 3]),
        ("all NaN", week(&|_| f64::NAN), ["InsufficientHistory"; 3]),
        (
            "one 1e308",
            week(&|i| if i == 500 { 1e308 } else { daily(i) }),
            [""; 3],
        ),
        ("all 1e308", week(&|_| 1e308), [""; 3]),
        ("huge daily", week(&|i| daily(i) * 1e307), [""; 3]),
        ("tiny daily", week(&|i| daily(i) * 1e-310), [""; 3]),
        ("smallest numbers", week(&|_| 5e-324), [""; 3]),
        (
            "alternating infinities",
            week(&|i| {
                if i % 2 == 0 {
                    f64::INFINITY
                } else {
                    f64::NEG_INFINITY
                }
            }),
            ["InsufficientHistory"; 3],
        ),
        (
            "every second one infinite",
            week(&|i| if i % 2 == 0 { f64::INFINITY } else { daily(i) }),
            ["TooManyGaps"; 3],
        ),
        ("constant", week(&|_| 3.0), [""; 3]),
        ("zeros", week(&|_| 0.0), ["ZeroSeries"; 3]),
        (
            "step up a thousandfold",
            week(&|i| if i < 500 { 1.0 } else { 1000.0 }),
            ["NotPeriodic", "", ""],
        ),
        (
            "unit changed",
            week(&|i| daily(i) * if i < 500 { 1.0 } else { 1000.0 }),
            ["NotPeriodic", "", ""],
        ),
        (
            "six hours missing today",
            hole(6 * DAY + 50, 6 * DAY + 86),
            [""; 3],
        ),
        ("a day missing", hole(3 * DAY, 4 * DAY), [""; 3]),
        (
            "the end missing",
            hole(7 * DAY - 12, 7 * DAY),
            ["StaleHistory"; 3],
        ),
        (
            "saw-tooth",
            week(&|i| f64::from(u32::try_from(i % 100).unwrap())),
            ["NotPeriodic", "", ""],
        ),
        (
            "noise",
            week(&|i| 5.0 + 4.0 * noise(i)),
            ["NotPeriodic", "", ""],
        ),
    ];
    for (name, values, expected) in cases {
        let answers = assert_bounded(&series(values));
        let reason = |i: usize| answers[i].as_ref().err().map_or("", Refusal::reason);
        assert_eq!([reason(0), reason(2), reason(6)], expected, "{name}");
    }
}

#[test]
fn one_absurd_sample_changes_almost_nothing() {
    let clean = noisy(7);
    let mut poisoned = clean.clone();
    poisoned[500] = 1e308;
    for mut forecaster in everyone() {
        let [a, b] = [&clean, &poisoned].map(|values| {
            forecaster
                .forecast(&series(values.clone()), HORIZON)
                .unwrap()
                .point()
                .to_vec()
        });
        assert!(worst(&a, &b) < 0.6, "{forecaster:?}: {}", worst(&a, &b));
    }
}

#[test]
fn order_and_duplicates_of_samples_do_not_matter() {
    let at = |i: usize| START + STEP * i32::try_from(i).unwrap();
    let samples: Vec<Sample> = (0..3 * DAY)
        .map(|i| Sample {
            at: at(i),
            value: daily(i),
        })
        .collect();
    let end = at(3 * DAY - 1);
    let plain = Series::from_samples(&samples, STEP, START, end);
    let reversed: Vec<Sample> = samples.iter().rev().copied().collect();
    let doubled = [reversed.clone(), samples.clone()].concat();
    assert_eq!(Series::from_samples(&reversed, STEP, START, end), plain);
    assert_eq!(Series::from_samples(&doubled, STEP, START, end), plain);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// F1: bounded whatever comes in.
    #[test]
    fn any_history_gives_a_bounded_forecast_or_a_reason(
        values in prop::collection::vec(any::<f64>(), 0..700),
        usual in prop::collection::vec(0.0..100.0_f64, 0..700),
        days in 2_usize..5,
    ) {
        assert_bounded(&series(values.clone()));
        let mixed = usual.iter().zip(values.iter().cycle()).enumerate();
        let mixed = mixed.map(|(i, (u, v))| if i % 7 == 0 { *v } else { *u }).collect();
        assert_bounded(&series(mixed));
        let shape = usual.iter().cycle().take(if usual.is_empty() { 0 } else { days * DAY });
        assert_bounded(&series(shape.copied().collect()));
    }

    /// F2: harmonics of the day come back within a percent.
    #[test]
    fn harmonics_of_the_day_are_forecast_within_a_percent(
        harmonics in prop::collection::vec((1_u32..24, 0.05..1.0_f64, 0.0..TAU), 1..=8),
        days in 2_usize..8,
    ) {
        let total: f64 = harmonics.iter().map(|(_, a, _)| a).sum();
        let f = |i: usize| {
            let turn = TAU * f64::from(u32::try_from(i).unwrap()) / 144.0;
            let wave: f64 = harmonics.iter().map(|(k, a, p)| a * (f64::from(*k) * turn + p).sin()).sum();
            3.0 * total + wave
        };
        let history = series((0..days * DAY).map(f).collect());
        let truth: Vec<f64> = (days * DAY..(days + 1) * DAY).map(f).collect();
        for mut forecaster in [exact_dsp(), naive(1, seasonal::Statistic::Last, false)] {
            let forecast = forecaster.forecast(&history, HORIZON).unwrap();
            prop_assert!(worst(forecast.point(), &truth) <= 0.01 * highest(&history), "{forecaster:?}");
        }
    }

    /// F3: the unit does not matter; for the naive one, neither does the zero point.
    #[test]
    fn scaling_the_history_scales_the_forecast(power in -30_i32..30, odd in 0.1..10.0_f64, shift in 0.0..50.0_f64) {
        let values = noisy(5);
        for mut forecaster in everyone() {
            let name = forecaster.name();
            let mut of = |f: &dyn Fn(f64) -> f64| {
                let history = series(values.iter().copied().map(f).collect());
                forecaster.forecast(&history, HORIZON).unwrap().point().to_vec()
            };
            let plain = of(&|v| v);
            for factor in [2.0_f64.powi(power), odd] {
                let back: Vec<f64> = of(&|v| v * factor).iter().map(|v| v / factor).collect();
                // A bucket of the percentile's histogram may flip at its edge: a fifth of a percent.
                let tolerance = if name == "percentile" { 0.05 } else { 1e-9 };
                prop_assert!(worst(&plain, &back) <= tolerance, "{name} x {factor}");
            }
        }
        let mut forecaster = naive(3, seasonal::Statistic::Median, false);
        let mut of = |by: f64| {
            let history = series(values.iter().map(|v| v + by).collect());
            forecaster.forecast(&history, HORIZON).unwrap().point().to_vec()
        };
        let back: Vec<f64> = of(shift).iter().map(|v| v - shift).collect();
        prop_assert!(worst(&of(0.0), &back) <= 1e-9);
    }

    /// F4: later by a whole period, and longer by whole periods, is the same.
    #[test]
    fn delaying_by_a_period_leaves_the_forecast_unchanged(days in 3_usize..7, more in 1_usize..4) {
        let periodic = |days: usize| series((0..days * DAY).map(daily).collect());
        let later = |days: usize, by: i64| {
            let values = (0..days * DAY).map(daily).collect();
            Series::from_values(START + SignedDuration::from_hours(24 * by), STEP, values)
        };
        for mut forecaster in everyone() {
            let plain = forecaster.forecast(&periodic(days), HORIZON).unwrap();
            let longer = forecaster.forecast(&periodic(days + more), HORIZON).unwrap();
            let delayed = forecaster.forecast(&later(days, 1), HORIZON).unwrap();
            prop_assert_eq!(plain.point(), delayed.point());
            // Extremes are cut a little differently in longer histories: a hundredth of the amplitude.
            prop_assert!(worst(plain.point(), longer.point()) <= 0.1, "{forecaster:?}");
        }
    }

    /// F5: losing a tenth of the samples moves the forecast by a twentieth of the amplitude at most.
    #[test]
    fn losing_a_tenth_of_the_samples_hardly_matters(salt in 0_usize..1_000_000) {
        let history: Vec<f64> = (0..5 * DAY).map(daily).collect();
        let lossy = |(i, v): (usize, &f64)| if noise(i + salt) > 0.4 { f64::NAN } else { *v };
        let mut holey: Vec<f64> = history.iter().enumerate().map(lossy).collect();
        holey[5 * DAY - 1] = history[5 * DAY - 1];
        let amplitude = 11.0;
        for mut forecaster in everyone() {
            let whole = forecaster.forecast(&series(history.clone()), HORIZON).unwrap();
            let mended = forecaster.forecast(&series(holey.clone()), HORIZON).unwrap();
            let moved = worst(whole.point(), mended.point());
            prop_assert!(moved <= 0.05 * amplitude, "{forecaster:?}: {moved}");
        }
    }

    /// F6: one percent of scattered samples, whatever they are, moves the mean of a forecast by a quarter at most.
    #[test]
    fn a_percent_of_nonsense_moves_the_forecast_within_bounds(
        nonsense in prop::collection::vec((0_usize..7 * DAY, prop_oneof![
            any::<f64>(), 0.0..1e4_f64, Just(0.0), Just(f64::MAX),
        ]), 0..=10),
    ) {
        let clean = noisy(7);
        let mut poisoned = clean.clone();
        for (at, value) in &nonsense {
            poisoned[*at] = *value;
        }
        // Maxima and the last value keep what they saw by definition: not asked here.
        for mut forecaster in [default_dsp(), exact_dsp(), naive(3, seasonal::Statistic::Median, false)] {
            let mean = |values: &[f64]| values.iter().sum::<f64>() / 144.0;
            let mut of = |v: &[f64]| forecaster.forecast(&series(v.to_vec()), HORIZON);
            let before = of(&clean).unwrap();
            if let Ok(after) = of(&poisoned) {
                let moved = (mean(after.point()) - mean(before.point())).abs();
                prop_assert!(moved <= 0.25 * mean(before.point()), "{forecaster:?}: {moved}");
            }
        }
    }

    /// F8: history kept sample by sample gives the same forecast as history fetched at once.
    #[test]
    fn incremental_history_equals_batch_history(chunks in prop::collection::vec(1_usize..200, 1..8), jitter in 0_i32..500) {
        let keep = 3 * DAY;
        let at = |i: usize| START + STEP * i32::try_from(i).unwrap() + SignedDuration::from_secs(i64::from(jitter));
        let all: Vec<Sample> = noisy(5).into_iter().enumerate().map(|(i, value)| Sample { at: at(i), value }).collect();
        let newest = all[all.len() - 1].at;
        let mut batch = Series::from_samples(&all, STEP, START, newest);
        batch.truncate_front(keep);
        let mut grown = Series::from_samples(&[], STEP, START, START);
        let mut rest = &all[..];
        for size in chunks.iter().cycle() {
            let (chunk, tail) = rest.split_at((*size).min(rest.len()));
            grown.extend(chunk);
            grown.truncate_front(keep);
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&grown, &batch);
    }
}
