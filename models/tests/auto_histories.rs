//! One `Auto` with arbitrary successive histories: it never panics, never answers for the past or above its ceiling,
//! and answers like a new one wherever each history continues the one before.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure here is a failed test"
)]

use std::f64::consts::TAU;

use foretide_models::auto::{self, Auto, OnlineModel, OnlineSettings, SampleOrigin, ServiceLevel};
use foretide_models::{Forecast, ForecastError, Forecaster, Series};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const HORIZON: SignedDuration = SignedDuration::from_hours(2);
/// The newest slot at the beginning of a scenario, which may move back from there.
const BEGIN: usize = 4000;

/// A change between two forecasts; spans are in slots.
#[derive(Debug, Clone, Copy)]
enum Change {
    Grow(usize),
    /// Nothing is measured for a while.
    Silence(usize),
    /// Demand is multiplied by this factor from here on.
    Step(f64),
    /// The oldest slots are no longer returned.
    Slide(usize),
    /// Slots that were not returned before now are.
    Backfill(usize),
    /// The newest slots are gone again.
    Back(usize),
    /// The newest slots are not there yet, and will be next time.
    Late(usize),
    /// All slots move by a part of a step.
    Shift(i64),
    Empty,
}

/// A recording that changes between forecasts, and the part of it that is passed to the forecaster.
#[derive(Debug, Clone)]
struct Scenario {
    step: SignedDuration,
    shift: SignedDuration,
    from: usize,
    to: usize,
    silences: Vec<(usize, usize)>,
    steps: Vec<(usize, f64)>,
    late: usize,
    empty: bool,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (1_usize..20).prop_map(Change::Grow),
        2 => (1_usize..400).prop_map(Change::Grow),
        1 => (1_usize..40).prop_map(Change::Silence),
        1 => (40_usize..2000).prop_map(Change::Silence),
        1 => prop_oneof![Just(0.0), Just(1e-3), Just(3.0), Just(50.0), Just(1000.0)].prop_map(Change::Step),
        1 => (1_usize..500).prop_map(Change::Slide),
        1 => (1_usize..500).prop_map(Change::Backfill),
        1 => (1_usize..500).prop_map(Change::Back),
        1 => (1_usize..6).prop_map(Change::Late),
        1 => (1_i64..600).prop_map(Change::Shift),
        1 => Just(Change::Empty),
    ]
}

/// Reduced to keep the time of all cases in seconds: a quarter of an hour is learned as fast as a minute is.
fn step() -> impl Strategy<Value = SignedDuration> {
    let seconds = prop_oneof![
        Just(3600),
        Just(900),
        Just(600),
        Just(90),
        Just(60),
        Just(15)
    ];
    seconds.prop_map(SignedDuration::from_secs)
}

// === impl Scenario ===

impl Scenario {
    fn new(step: SignedDuration, length: usize) -> Self {
        Self {
            step,
            shift: SignedDuration::ZERO,
            from: BEGIN - length,
            to: BEGIN,
            silences: Vec::new(),
            steps: Vec::new(),
            late: 0,
            empty: false,
        }
    }

    /// Applies a change. Returns whether the history must be learned from its beginning, continues the one before, or
    /// neither.
    fn apply(&mut self, change: Change) -> Continuity {
        let was_late = std::mem::take(&mut self.late);
        let was_empty = std::mem::take(&mut self.empty);
        let (mut restart, mut same) = (false, was_late == 0);
        match change {
            Change::Grow(by) => self.to += by,
            Change::Silence(by) => {
                self.silences.push((self.to, self.to + by));
                self.to += by;
            }
            Change::Step(factor) => {
                self.steps.push((self.to, factor));
                self.to += 1;
            }
            Change::Slide(by) => {
                self.from = (self.from + by).min(self.to);
                same = false;
            }
            Change::Backfill(by) => self.from = self.from.saturating_sub(by),
            Change::Back(by) => self.to = self.to.saturating_sub(by).max(self.from),
            Change::Late(by) => {
                self.late = by;
                self.to += by;
            }
            Change::Shift(by) => {
                self.shift += SignedDuration::from_secs(by);
                restart = by % self.step.as_secs() != 0;
                same = false;
            }
            Change::Empty => self.empty = true,
        }
        match (restart, same && !was_empty && !self.empty) {
            (true, _) => Continuity::Restart,
            (false, true) => Continuity::Same,
            (false, false) => Continuity::Unknown,
        }
    }

    fn history(&self) -> Series {
        let to = if self.empty { self.from } else { self.to };
        let values = (self.from..to).map(|slot| self.demand(slot)).collect();
        Series::from_values(self.at(self.from), self.step, values)
    }

    fn at(&self, slot: usize) -> Timestamp {
        let begin = Timestamp::from_second(1_767_225_600).unwrap() + self.shift;
        begin + self.step * i32::try_from(slot).unwrap()
    }

    fn demand(&self, slot: usize) -> f64 {
        let silent = self
            .silences
            .iter()
            .any(|(from, to)| (*from..*to).contains(&slot));
        if silent || slot + self.late >= self.to {
            return f64::NAN;
        }
        let days = f64::from(u32::try_from(slot).unwrap()) * self.step.as_secs_f64() / 86_400.0;
        let steps = self.steps.iter().filter(|(from, _)| slot >= *from);
        let level: f64 = steps.map(|(_, factor)| factor).product();
        level * (10.0 + 4.0 * (TAU * days).sin() + noise(slot))
    }
}

/// The relation of a history to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Continuity {
    Restart,
    Same,
    Unknown,
}

/// A repeatable number in [0, 1).
fn noise(slot: usize) -> f64 {
    let slot = f64::from(u32::try_from(slot).unwrap());
    ((slot * 12.9898).sin() * 43_758.545).rem_euclid(1.0)
}

fn auto(step: SignedDuration, service_level: ServiceLevel) -> Auto {
    let config = auto::Config {
        sample_interval: step,
        service_level,
        ..auto::Config::default()
    };
    Auto::new(config).unwrap()
}

fn aims() -> impl Strategy<Value = ServiceLevel> {
    let objective = ServiceLevel::UnderProvisioned {
        percent: 1.0,
        per_replica: Some(1.0),
    };
    prop_oneof![3 => Just(ServiceLevel::Quantile(0.9)), 1 => Just(objective)]
}

fn values(forecast: &Forecast) -> Vec<f64> {
    let peak = forecast.direct().map(|peak| peak.value);
    let upper = forecast.upper().unwrap_or_default();
    let all = forecast.point().iter().chain(upper).chain(&peak);
    all.copied().collect()
}

/// Bounded, and of the time that comes after the history.
fn sound(answer: &Result<Forecast, ForecastError>, history: &Series, highest: f64) {
    let Ok(forecast) = answer else { return };
    assert!(values_are_bounded(forecast, highest), "{forecast:?}");
    let ahead = forecast.start().duration_since(history.end());
    assert!(
        !ahead.is_positive() && -ahead < forecast.step(),
        "{ahead:#}"
    );
}

/// Returns true if both are the same error, or the same numbers up to rounding.
fn alike(one: &Result<Forecast, ForecastError>, other: &Result<Forecast, ForecastError>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => {
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * a.abs().max(b.abs()) + 1e-9;
            let pairs = (values(one), values(other));
            one.start() == other.start()
                && one.valid_until() == other.valid_until()
                && pairs.0.len() == pairs.1.len()
                && pairs.0.iter().zip(&pairs.1).all(close)
        }
        (Err(one), Err(other)) => one == other,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::with_cases(100)
    })]

    #[test]
    fn any_sequence_of_histories_gives_the_forecasts_of_a_new_forecaster(
        step in step(), service_level in aims(), length in 0_usize..1500, turns in prop::collection::vec(change(), 1..8),
    ) {
        let mut scenario = Scenario::new(step, length);
        let mut kept = auto(step, service_level);
        let (mut comparable, mut highest) = (true, 0.0_f64);
        for (i, change) in std::iter::once(Change::Grow(0)).chain(turns).enumerate() {
            match scenario.apply(change) {
                Continuity::Restart => comparable = true,
                Continuity::Same => {}
                Continuity::Unknown => comparable = false,
            }
            let history = scenario.history();
            highest = history.values().iter().copied().fold(highest, f64::max);
            let answer = kept.forecast(&history, HORIZON);
            sound(&answer, &history, highest);
            if comparable && scenario.late == 0 {
                let fresh = auto(step, service_level).forecast(&history, HORIZON);
                prop_assert!(alike(&answer, &fresh), "change {}: {:?}\n{:?}\n{:?}", i, change, answer, fresh);
            }
        }
    }

    #[test]
    fn arbitrary_values_never_panic(
        step in step(),
        parts in prop::collection::vec((prop::collection::vec(any::<f64>(), 1..40), 1_usize..40, any::<bool>()), 1..6),
    ) {
        let mut kept = auto(step, ServiceLevel::Quantile(0.9));
        let (mut all, mut highest) = (Vec::new(), 0.0_f64);
        for (values, repeats, odd) in parts {
            // Magnitudes only: half of any numbers are negative, which is the same as missing.
            let usual = if odd { 1.0 } else { f64::NAN };
            all.extend(values.repeat(repeats).iter().map(|v| if odd { usual } else { v.abs() }));
            let history = Series::from_values(Timestamp::UNIX_EPOCH, step, all.clone());
            highest = history.values().iter().copied().fold(highest, f64::max);
            sound(&kept.forecast(&history, HORIZON), &history, highest.min(f64::MAX / 1.5));
        }
    }

    #[test]
    fn histories_at_the_limits_of_time_never_panic(
        step in step(), early in any::<bool>(), away in 0_i64..2_000_000, length in 0_usize..700,
        strides in prop::collection::vec(0_usize..300, 1..5),
    ) {
        let away = SignedDuration::from_secs(away);
        let start = if early { Timestamp::MIN + away } else { Timestamp::MAX - away };
        let mut kept = auto(step, ServiceLevel::Quantile(0.9));
        let mut length = length;
        for stride in strides {
            length += stride;
            let values = (0..length).map(|slot| 5.0 + noise(slot)).collect();
            let history = Series::from_values(start, step, values);
            if let Ok(forecast) = kept.forecast(&history, HORIZON) {
                prop_assert!(values_are_bounded(&forecast, 6.0), "{forecast:?}");
            }
        }
    }

    #[test]
    fn arbitrary_settings_and_demand_never_panic(
        lead_minutes in prop_oneof![0_i64..90, any::<i64>()], remember_minutes in prop_oneof![-1_i64..400, any::<i64>()],
        offset in prop::option::of(any::<f64>()), seconds in 1_i64..4000, quantile in any::<f64>(),
        demand in prop::collection::vec((any::<f64>(), any::<bool>()), 0..200), usual in 100_usize..800,
    ) {
        let settings = OnlineSettings { remember_minutes, offset, path: true, ..OnlineSettings::new(lead_minutes) };
        let step = SignedDuration::from_secs(seconds);
        let mut online = OnlineModel::new(settings, step, ServiceLevel::Quantile(quantile));
        for slot in 0..usual {
            online.push(5.0 + noise(slot));
        }
        for (slot, (value, imputed)) in demand.into_iter().enumerate() {
            online.take(if slot % 3 == 0 { value } else { 5.0 }, if imputed { SampleOrigin::Imputed } else { SampleOrigin::Measured { raw: slot % 5 > 0 } });
            online.calibrate();
            let _answer = (online.upper(quantile), online.point(), online.quantile());
        }
    }
}

fn values_are_bounded(forecast: &Forecast, highest: f64) -> bool {
    // Means of several samples may round up.
    let fine = |v: &f64| v.is_finite() && *v >= 0.0 && *v <= 1.5 * highest * (1.0 + 1e-12);
    values(forecast).iter().all(fine)
}
