//! Properties of every forecaster, over generated histories and histories with injected faults.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure here is a failed test"
)]

use std::collections::BTreeSet;
use std::f64::consts::TAU;
use std::sync::LazyLock;

use foretide_models::{
    Algorithm, Forecast, ForecastError, Note, Sample, Series, auto, calibrate, dsp, percentile,
    seasonal,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const STEP: SignedDuration = SignedDuration::from_mins(10);
const DAY: usize = 144;
const HORIZON: SignedDuration = SignedDuration::from_hours(24);
const START: Timestamp = Timestamp::UNIX_EPOCH;

fn exact_dsp() -> Algorithm {
    let fft = dsp::Fft {
        low_amplitude_threshold: 0.0,
        ..dsp::Fft::default()
    };
    let estimators = dsp::Estimators {
        fft: vec![fft],
        max_value: vec![],
    };
    Algorithm::Dsp(dsp::Config {
        sample_interval: STEP,
        estimators,
        ..dsp::Config::default()
    })
}

fn default_dsp() -> Algorithm {
    Algorithm::Dsp(dsp::Config {
        sample_interval: STEP,
        ..dsp::Config::default()
    })
}

fn naive(cycles: usize, statistic: seasonal::Statistic, level_ratio: bool) -> Algorithm {
    Algorithm::SeasonalNaive(seasonal::Config {
        sample_interval: STEP,
        cycles,
        statistic,
        level_ratio,
        ..seasonal::Config::default()
    })
}

fn floor() -> Algorithm {
    Algorithm::Percentile(percentile::Config {
        sample_interval: STEP,
        ..percentile::Config::default()
    })
}

fn automatic() -> Algorithm {
    Algorithm::Auto(auto::Config {
        sample_interval: STEP,
        ..auto::Config::default()
    })
}

fn calibrated(inner: Algorithm) -> Algorithm {
    Algorithm::Calibrated(Box::new(inner), calibrate::Config::default())
}

/// The number of random cases, unless `PROPTEST_CASES` is set. A failing case prints its seed and saves it in
/// `laws.regressions` beside this file, from which it is retried first.
fn cases(count: u32) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = count;
    }
    config
}

/// The algorithms that forecast a path only.
fn bare() -> Vec<Algorithm> {
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

fn everyone() -> Vec<Algorithm> {
    let mut everyone = bare();
    everyone.extend([
        automatic(),
        calibrated(naive(2, seasonal::Statistic::Last, true)),
        calibrated(default_dsp()),
    ]);
    everyone
}

/// A forecast by a new forecaster.
fn ask(algorithm: &Algorithm, history: &Series) -> Result<Forecast, ForecastError> {
    let mut forecaster = algorithm.clone().build().unwrap();
    forecaster.forecast(history, HORIZON)
}

/// The path of a day.
fn path(algorithm: &Algorithm, history: &Series) -> Vec<f64> {
    let forecast = ask(algorithm, history).unwrap();
    forecast.point()[..DAY].to_vec()
}

/// The demand to provide for, and the path.
fn answer(algorithm: &Algorithm, history: &Series) -> Vec<f64> {
    let forecast = ask(algorithm, history).unwrap();
    let peak = forecast.direct().map(|peak| peak.value);
    peak.into_iter().chain(path(algorithm, history)).collect()
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
fn assert_bounded(history: &Series) -> Vec<Result<Forecast, ForecastError>> {
    let ceiling = (1.5 * highest(history)).min(f64::MAX);
    let answer = |algorithm: Algorithm| {
        let mut forecaster = algorithm.build().unwrap();
        let answer = forecaster.forecast(history, HORIZON);
        let again = forecaster.forecast(history, HORIZON);
        assert_eq!(answer, again, "{forecaster:?}");
        if let Ok(forecast) = &answer {
            assert_eq!(forecast.start(), history.end());
            assert_eq!(forecast.point().len(), DAY);
            let peak = forecast.direct().map(|peak| peak.value);
            let upper = forecast.upper().unwrap_or_default();
            let mut all = forecast.point().iter().chain(upper).chain(&peak);
            let fine = |v: &f64| v.is_finite() && *v >= 0.0 && *v <= ceiling;
            assert!(all.all(fine), "{forecaster:?}: {forecast:?}");
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

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / 144.0
}

/// The robust algorithms, each with its mean forecast of a week without outliers. Maxima and the last value are not
/// robust by definition.
static ROBUST: LazyLock<Vec<(Algorithm, f64)>> = LazyLock::new(|| {
    let median = naive(3, seasonal::Statistic::Median, false);
    let robust = [
        automatic(),
        default_dsp(),
        exact_dsp(),
        median.clone(),
        calibrated(median),
    ];
    let history = series(noisy(7));
    let robust_mean = |algorithm: Algorithm| {
        let forecast = ask(&algorithm, &history).unwrap();
        (algorithm, mean(forecast.point()))
    };
    robust.map(robust_mean).to_vec()
});

/// The number of times of day at which two or more of the last three of seven days are outliers.
fn outvoted(outliers: &[(usize, f64)]) -> u32 {
    let places: BTreeSet<usize> = outliers.iter().map(|(at, _)| *at).collect();
    let mut times = [0; DAY];
    for place in places.range(4 * DAY..) {
        times[place % DAY] += 1;
    }
    times.iter().map(|days| u32::from(*days > 1)).sum()
}

#[test]
fn a_median_of_three_days_is_outvoted_by_two() {
    let median = naive(3, seasonal::Statistic::Median, false);
    let clean = noisy(7);
    let mut poisoned = clean.clone();
    (poisoned[641], poisoned[785]) = (570.215_769_402_345_4, 1_118.928_252_378_290_4);
    let [mut expected, made] = [clean, poisoned].map(|values| path(&median, &series(values)));
    expected[641 % DAY] = 570.215_769_402_345_4;
    assert_eq!(made, expected);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn a_faulty_history_gives_a_bounded_forecast_or_an_error() {
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
    // The local day of a zone that puts its clocks forward on the third day and back on the fifth.
    let clocks = week(&|i| {
        let forward = if i >= 2 * DAY + 12 { 6 } else { 0 };
        let back = if i >= 4 * DAY + 18 { 6 } else { 0 };
        daily(i + forward - back)
    });
    // The reasons of dsp, the naive day and the percentile: "" is a forecast.
    let cases: Vec<(&str, Vec<f64>, [&str; 3])> = vec![
        ("clocks put forward and back", clocks, [""; 3]),
        (
            "an hour of zeros",
            week(&|i| {
                if (700..706).contains(&i) {
                    0.0
                } else {
                    daily(i)
                }
            }),
            [""; 3],
        ),
        (
            "a thousandfold for an hour",
            week(&|i| daily(i) * if (700..706).contains(&i) { 1000.0 } else { 1.0 }),
            ["NotPeriodic", "", ""],
        ),
        (
            "a counter that resets",
            week(&|i| f64::from(u32::try_from(i % 400).unwrap()) * 1e6),
            ["NotPeriodic", "", ""],
        ),
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
        let variant = |i: usize| {
            let error = answers[i].as_ref().err();
            let text = error.map_or_else(String::new, |error| format!("{error:?}"));
            text.split(' ').next().unwrap().to_owned()
        };
        assert_eq!([0, 2, 6].map(variant), expected, "{name}");
    }
}

#[test]
fn one_outlier_changes_almost_nothing() {
    let clean = noisy(7);
    let mut poisoned = clean.clone();
    poisoned[500] = 1e308;
    for algorithm in everyone() {
        let [a, b] = [&clean, &poisoned].map(|values| answer(&algorithm, &series(values.clone())));
        assert!(worst(&a, &b) < 0.6, "{algorithm:?}: {}", worst(&a, &b));
    }
}

/// A thousandfold value for at most five samples is an outlier. Fifty times the demand is load, and so is a
/// thousandfold value that lasts; the forecast may then be up to one and a half times as high.
#[test]
fn short_outliers_have_no_effect_and_load_has_at_most_that_of_the_ceiling() {
    for (factor, run, believed) in [
        (1000.0, 1, false),
        (1000.0, 5, false),
        (1000.0, 6, true),
        (1000.0, 60, true),
        (50.0, 1, true),
        (50.0, 60, true),
    ] {
        let clean = noisy(7);
        let mut poisoned = clean.clone();
        for value in poisoned.iter_mut().skip(6 * DAY).take(run) {
            *value *= factor;
        }
        let (usual, poisoned) = (highest(&series(clean)), series(poisoned));
        let most = 1.5 * if believed { highest(&poisoned) } else { usual };
        for algorithm in everyone() {
            let Ok(forecast) = ask(&algorithm, &poisoned) else {
                continue;
            };
            let peak = forecast.direct().map(|peak| peak.value);
            let upper = forecast.upper().unwrap_or_default();
            let mut all = forecast.point().iter().chain(upper).chain(&peak);
            assert!(all.all(|v| *v <= most), "x{factor} for {run}: {forecast:?}");
            let rejected = |note: &Note| *note == Note::SpikesRejected { slots: run };
            let noted = forecast.notes().iter().any(rejected);
            assert_eq!(noted, !believed, "x{factor} for {run}: {forecast:?}");
        }
    }
}

proptest! {
    #![proptest_config(cases(24))]

    /// F1: forecasts are bounded for any input.
    #[test]
    fn any_history_gives_a_bounded_forecast_or_an_error(
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

    /// F2: harmonics of the day are forecast within one percent.
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
        let naive = naive(1, seasonal::Statistic::Last, false);
        for algorithm in [exact_dsp(), naive.clone(), calibrated(naive)] {
            let made = path(&algorithm, &history);
            prop_assert!(worst(&made, &truth) <= 0.01 * highest(&history), "{algorithm:?}");
        }
    }

    /// The unit does not matter; for the values of past days, neither does the zero point.
    #[test]
    fn scaling_the_history_scales_the_forecast(power in -30_i32..30, odd in 0.1..10.0_f64, shift in 0.0..50.0_f64) {
        let values = noisy(5);
        let of = |algorithm: &Algorithm, f: &dyn Fn(f64) -> f64| {
            answer(algorithm, &series(values.iter().copied().map(f).collect()))
        };
        for algorithm in everyone() {
            let plain = of(&algorithm, &|v| v);
            for (factor, is_power) in [(2.0_f64.powi(power), true), (odd, false)] {
                let scaled = of(&algorithm, &|v| v * factor);
                let back: Vec<f64> = scaled.iter().map(|v| v / factor).collect();
                let tolerance = match algorithm {
                    // A bucket of the histogram may flip at its edge: a fifth of a percent.
                    Algorithm::Percentile(_) => 0.05,
                    // Errors are ranked with seven digits; of two that differ in the eighth either may be chosen.
                    Algorithm::Calibrated(..) => 1e-4,
                    // Its errors have three digits: a tenth of a percent.
                    Algorithm::Auto(_) if !is_power => 0.02,
                    _ => 1e-9,
                };
                prop_assert!(worst(&plain, &back) <= tolerance, "{algorithm:?} x {factor}");
            }
        }
        let naive = naive(3, seasonal::Statistic::Median, false);
        let shifted = path(&naive, &series(values.iter().map(|v| v + shift).collect()));
        let back: Vec<f64> = shifted.iter().map(|v| v - shift).collect();
        prop_assert!(worst(&path(&naive, &series(values)), &back) <= 1e-9, "{shift}");
    }

    /// F4: a delay by one period, or more history by whole periods, does not change the forecast.
    #[test]
    fn delaying_by_a_period_leaves_the_forecast_unchanged(days in 3_usize..7, more in 1_usize..4) {
        let periodic = |days: usize| series((0..days * DAY).map(daily).collect());
        let later = |days: usize, by: i64| {
            let values = (0..days * DAY).map(daily).collect();
            Series::from_values(START + SignedDuration::from_hours(24 * by), STEP, values)
        };
        for algorithm in everyone() {
            let plain = path(&algorithm, &periodic(days));
            prop_assert_eq!(answer(&algorithm, &periodic(days)), answer(&algorithm, &later(days, 1)));
            // Extremes are cut a little differently in longer histories: a hundredth of the amplitude.
            let longer = path(&algorithm, &periodic(days + more));
            prop_assert!(worst(&plain, &longer) <= 0.1, "{algorithm:?}");
        }
    }

    /// F5: losing a tenth of the samples moves the forecast by a twentieth of the amplitude at most.
    #[test]
    fn losing_a_tenth_of_the_samples_has_little_effect(salt in 0_usize..1_000_000) {
        let history: Vec<f64> = (0..5 * DAY).map(daily).collect();
        let lossy = |(i, v): (usize, &f64)| if noise(i + salt) > 0.4 { f64::NAN } else { *v };
        let mut holey: Vec<f64> = history.iter().enumerate().map(lossy).collect();
        holey[5 * DAY - 1] = history[5 * DAY - 1];
        let amplitude = 11.0;
        for algorithm in everyone() {
            let [complete, filled] = [&history, &holey].map(|v| path(&algorithm, &series(v.clone())));
            let moved = worst(&complete, &filled);
            prop_assert!(moved <= 0.05 * amplitude, "{algorithm:?}: {moved}");
        }
    }

    /// F6: one percent of scattered outliers of any value changes the mean of a forecast by at most a quarter. A
    /// median is changed more at a time of day where most of its days are outliers: by at most a hundred times the
    /// usual maximum, which is below 16.5, in one of 144 slots.
    #[test]
    fn one_percent_of_outliers_has_a_bounded_effect(
        outliers in prop::collection::vec((0_usize..7 * DAY, prop_oneof![
            any::<f64>(), 0.0..1e4_f64, Just(0.0), Just(f64::MAX),
        ]), 0..=10),
    ) {
        let mut poisoned = noisy(7);
        for (at, value) in &outliers {
            poisoned[*at] = *value;
        }
        for (algorithm, before) in &*ROBUST {
            // A sample of up to a hundred times the highest is demand to `auto`; the ceiling bounds its forecast.
            let believed = |v: &f64| matches!(algorithm, Algorithm::Auto(_)) && (16.5..=1650.0).contains(v);
            let poisoned = poisoned.iter().map(|v| if believed(v) { 0.0 } else { *v }).collect();
            if let Ok(after) = ask(algorithm, &series(poisoned)) {
                let moved = (mean(after.point()) - before).abs();
                let voted = matches!(algorithm, Algorithm::SeasonalNaive(_) | Algorithm::Calibrated(..));
                let lost_votes = if voted { f64::from(outvoted(&outliers)) } else { 0.0 };
                let most = 0.25 * before + lost_votes * 1650.0 / 144.0;
                prop_assert!(moved <= most, "{algorithm:?}: {moved}");
            }
        }
    }

    /// History kept sample by sample gives the same forecast as history fetched at once.
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

proptest! {
    #![proptest_config(cases(4))]

    /// A forecaster that is asked repeatedly gives the forecasts of a new one.
    #[test]
    fn kept_state_does_not_change_forecasts(strides in prop::collection::vec(1_usize..60, 2..4), salt in 0_usize..1000) {
        let all: Vec<f64> = (0..17 * DAY).map(|i| {
            let lost = noise(i + salt) > 0.47;
            if lost { f64::NAN } else { daily(i) + noise(i) }
        }).collect();
        for algorithm in everyone() {
            let mut kept = algorithm.clone().build().unwrap();
            let mut now = 15 * DAY + salt % DAY;
            for stride in &strides {
                let history = series(all[..now].to_vec());
                let [kept, fresh] = [kept.forecast(&history, HORIZON), ask(&algorithm, &history)];
                let (kept, fresh) = (kept.unwrap(), fresh.unwrap());
                // Sums over a window that slides are rounded in another order.
                let apart = worst(kept.point(), fresh.point());
                prop_assert!(apart < 1e-6, "{algorithm:?} at {now}: {apart}");
                let value = |forecast: &Forecast| forecast.direct().map_or(0.0, |peak| peak.value);
                let apart = (value(&kept) - value(&fresh)).abs();
                prop_assert!(apart < 1e-6, "{algorithm:?} at {now}: {apart}");
                let skill = |forecast: &Forecast| forecast.quality().and_then(|q| q.skill);
                let apart = skill(&kept).zip(skill(&fresh)).map_or(0.0, |(a, b)| (a - b).abs());
                prop_assert!(apart < 1e-6, "{algorithm:?} at {now}: {apart}");
                now = (now + stride).min(all.len());
            }
        }
    }
}
