//! Limits of the harm that a poisoned history does to a workload whose readings are true: no count below the one that
//! the readings ask for, and none above the ceiling of the forecast, which is one and a half times the highest sample
//! that is believed.

use foretide_models::{Algorithm, CEILING_RATIO, auto, calibrate, dsp, percentile, seasonal};
use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::*;
use crate::proposal::Reason;

/// Distance of the samples of the history.
const STEP: SignedDuration = SignedDuration::from_mins(10);
/// Samples in a day.
const DAY: i64 = 144;
/// Time of the first decision, in samples.
const BEGIN: i64 = 7 * DAY;
/// Time of the first decision, in minutes.
const BEGIN_MINUTE: i64 = BEGIN * 10;
const MINUTES: i64 = 120;
/// Demand that one replica carries.
const TARGET: f64 = 10.0;
/// Longest run of absurd samples that is not taken for a new level.
const ABSURD_RUN: i64 = 5;

/// A change to some of the samples, or to the whole recording.
#[derive(Clone, Copy, Debug)]
enum Poison {
    Nothing,
    Is(f64),
    Times(f64),
    /// Missing samples.
    Gap,
    /// A whole day is missing.
    DayMissing,
    /// A counter in place of a rate, reset every 400 samples.
    SawTooth,
    /// A day of 23 or of 25 hours.
    ClocksMove(i64),
    /// The newest sample first.
    Reversed,
    /// Every sample twice, the second time with another value.
    Doubled,
}

/// A poison, and the samples that it affects.
#[derive(Clone, Copy, Debug)]
struct Dose {
    poison: Poison,
    from: i64,
    run: i64,
}

fn doses() -> impl Strategy<Value = Dose> {
    let poison = prop_oneof![
        Just(Poison::Nothing),
        Just(Poison::Gap),
        Just(Poison::DayMissing),
        Just(Poison::SawTooth),
        prop_oneof![Just(-1), Just(1)].prop_map(Poison::ClocksMove),
        Just(Poison::Reversed),
        Just(Poison::Doubled),
        prop_oneof![
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(-1.0),
            Just(0.0),
            Just(1e308),
            Just(5e-324),
            Just(1e-310)
        ]
        .prop_map(Poison::Is),
        prop_oneof![Just(0.0), Just(50.0), Just(1000.0)].prop_map(Poison::Times),
    ];
    // Anywhere, or among the newest samples.
    let from = prop_oneof![0..BEGIN, BEGIN - 12..BEGIN + 12];
    let run = prop_oneof![Just(1), 2_i64..=5, 6_i64..40, Just(BEGIN)];
    (poison, from, run).prop_map(|(poison, from, run)| Dose { poison, from, run })
}

fn algorithms() -> Vec<Algorithm> {
    let bare = [
        Algorithm::Dsp(dsp::Config {
            sample_interval: STEP,
            ..dsp::Config::default()
        }),
        Algorithm::SeasonalNaive(seasonal::Config {
            sample_interval: STEP,
            ..seasonal::Config::default()
        }),
        Algorithm::Percentile(percentile::Config {
            sample_interval: STEP,
            ..percentile::Config::default()
        }),
    ];
    let calibrated = |inner| Algorithm::Calibrated(Box::new(inner), calibrate::Config::default());
    let automatic = Algorithm::Auto(auto::Config {
        sample_interval: STEP,
        ..auto::Config::default()
    });
    let calibrated: Vec<Algorithm> = bare.iter().cloned().map(calibrated).collect();
    [vec![automatic], bare.into(), calibrated].concat()
}

/// True demand, between 40 and 175.
fn demand(minute: i64) -> f64 {
    let minute = f64::from(i32::try_from(minute).unwrap());
    let noise = (minute * 12.9898).sin() * 43_758.545;
    100.0 + 60.0 * (minute / 1440.0 * std::f64::consts::TAU).sin() + 15.0 * noise.rem_euclid(1.0)
}

impl Dose {
    fn holds(self, slot: i64) -> bool {
        (self.from..self.from + self.run).contains(&slot)
    }

    fn value(self, slot: i64) -> Option<f64> {
        let usual = demand(slot * 10);
        let within = self.holds(slot);
        match self.poison {
            Poison::Is(value) if within => Some(value),
            Poison::Times(factor) if within => Some(usual * factor),
            Poison::Gap if within => None,
            Poison::DayMissing if slot / DAY == self.from / DAY => None,
            Poison::SawTooth => Some(f64::from(i32::try_from(slot % 400).unwrap()) * 1e6),
            Poison::ClocksMove(hours) if slot >= self.from => Some(demand(slot * 10 + hours * 60)),
            _ => Some(usual),
        }
    }

    fn samples(self) -> Vec<Sample> {
        let at = |slot: i64| at(slot * 10);
        let slots = 0..=BEGIN + MINUTES / 10;
        let samples = slots.filter_map(|slot| {
            Some(Sample {
                at: at(slot),
                value: self.value(slot)?,
            })
        });
        let mut samples: Vec<Sample> = samples.collect();
        match self.poison {
            Poison::Reversed => samples.reverse(),
            Poison::Doubled => {
                let again = samples.iter().map(|sample| Sample {
                    value: 0.9 * sample.value,
                    ..*sample
                });
                samples.extend(again.collect::<Vec<_>>());
            }
            _ => {}
        }
        samples
    }

    /// The highest sample that a forecast may use: all samples but runs of at most five samples above 10 000, a hundred
    /// times the usual demand. A run at the very beginning is used.
    fn believed(self) -> f64 {
        let short = self.run <= ABSURD_RUN && self.from > 0;
        let slots = 0..=BEGIN + MINUTES / 10;
        let believable =
            |slot: &i64| !(short && self.holds(*slot) && self.value(*slot) > Some(1e4));
        let saw_tooth = matches!(self.poison, Poison::SawTooth);
        let values = slots
            .filter(|slot| saw_tooth || believable(slot))
            .filter_map(|slot| self.value(slot));
        values.filter(|value| value.is_finite()).fold(0.0, f64::max)
    }

    /// The largest count that a forecast from this history may ask for.
    fn ceiling(self, bounds: ReplicaBounds) -> Replicas {
        let most = (CEILING_RATIO * self.believed()).min(f64::MAX);
        bounds.clamp(Replicas::for_demand(most / TARGET))
    }
}

/// A workload that reads its true demand, and forecasts from a history of its own.
fn predicting() -> Workload {
    Workload {
        floor: predicted("any", MINUTE),
        ..workload()
    }
}

fn true_course() -> Environment {
    let minutes = BEGIN_MINUTE - 10..=BEGIN_MINUTE + MINUTES;
    let samples = minutes.map(|minute| Sample {
        at: at(minute),
        value: demand(minute),
    });
    let mut environment = environment(&[], 2);
    environment.metrics[0].recording = Recording::new(samples.collect());
    environment.begin = at(BEGIN_MINUTE);
    environment
}

/// The decisions from the state of one minute, with the forecast and without it.
#[derive(Debug)]
struct Fork {
    with: Decision,
    /// The decision with the forecast refused.
    refused: Decision,
    /// The decision without a prediction, now and before.
    never: Decision,
    /// True if there is a forecast now, or one that is still held.
    predicted: bool,
}

fn fork(run: &mut Run<'_>) -> Fork {
    run.pods.advance(run.now);
    let seen = run.seen();
    let decided = |workload: &Workload, seen: &Inputs, history: &History| {
        decide(workload, seen, history, &run.settings, run.now).0
    };
    let mut refused = seen.clone();
    for forecast in &mut refused.forecasts {
        forecast.outcome = Err(Refused::new(Reason::Pending, "taken away"));
    }
    let mut bare = run.history.clone();
    bare.floors.clear();
    bare.forecast_held.clear();
    let never = Inputs {
        forecasts: Vec::new(),
        ..seen.clone()
    };
    Fork {
        with: decided(&run.workload, &seen, &run.history),
        refused: decided(&run.workload, &refused, &run.history),
        never: decided(&plain(run.workload.clone()), &never, &bare),
        predicted: seen.forecasts.iter().any(|f| f.outcome.is_ok())
            || run.history.floors.iter().any(|f| f.raw > n(0)),
    }
}

/// Runs a workload on true readings and a poisoned history, and checks every minute.
fn survives(dose: Dose, algorithm: &Algorithm) -> Result<u32, TestCaseError> {
    let environment = true_course();
    let poisoned = RecordedMetric {
        metric: queue(),
        recording: Recording::new(dose.samples()),
    };
    let built: BuiltForecaster = Ok(algorithm.clone().build().unwrap());
    let mut run = Run::new(&environment, predicting(), Vec::new());
    let (begin, start_up) = (environment.begin, environment.start_up);
    let lead_time = LeadTime::of(None, Some(start_up));
    let forecaster = MetricForecaster::new(&poisoned, built, STEP, lead_time, begin);
    run.forecasters = vec![forecaster];
    let mut plain = Run::new(&environment, plain(predicting()), Vec::new());
    let ceiling = dose.ceiling(run.workload.bounds);
    let (mut asked, mut asked_without, mut predicted) = (0, 0, 0);
    for minute in 0..MINUTES {
        let fork = fork(&mut run);
        let (with, without) = (fork.with.desired, fork.never.desired);
        let check = |holds: bool| {
            prop_assert!(holds, "minute {minute}, at most {ceiling}: {fork:?}");
            Ok(())
        };
        check(with >= without && with >= fork.refused.desired)?;
        check(with <= without.max(ceiling))?;
        check(fork.predicted || with == without)?;
        let proposals = fork
            .with
            .proposals
            .iter()
            .filter(|p| p.source == Source::Forecast);
        for proposal in proposals.filter_map(|p| p.replicas) {
            let proposal = run.workload.bounds.clamp(proposal);
            check(proposal <= ceiling)?;
        }
        predicted += u32::from(fork.predicted);
        asked += run.minute().0.asked.get();
        asked_without += plain.minute().0.asked.get();
    }
    let most = asked_without + ceiling.get() * u32::try_from(MINUTES).unwrap();
    prop_assert!(asked <= most, "{} replica-minutes, at most {}", asked, most);
    Ok(predicted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Compares decisions from the same state: whole runs may diverge, because held counts depend on earlier decisions.
    #[test]
    fn a_poisoned_history_lowers_nothing_and_costs_no_more_than_its_ceiling(
        dose in doses(), algorithm in prop::sample::select(algorithms()),
    ) {
        survives(dose, &algorithm)?;
    }
}

#[test]
fn a_slightly_damaged_history_still_gives_forecasts() {
    let dose = |poison, run| Dose {
        poison,
        from: 500,
        run,
    };
    for dose in [
        dose(Poison::Nothing, 0),
        dose(Poison::Is(f64::NAN), 5),
        dose(Poison::Is(1e308), 5),
        dose(Poison::Times(1000.0), 1),
        dose(Poison::Times(50.0), 1),
        dose(Poison::Is(0.0), 6),
        dose(Poison::DayMissing, 0),
        dose(Poison::ClocksMove(1), 0),
        dose(Poison::Reversed, 0),
        dose(Poison::Doubled, 0),
    ] {
        let predicted = survives(dose, &algorithms()[0]).unwrap();
        assert_eq!(i64::from(predicted), MINUTES, "{dose:?}");
    }
}
