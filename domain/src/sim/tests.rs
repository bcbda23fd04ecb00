//! Properties of a simulation, on generated demand.

use std::sync::Arc;

use foretide_models::{
    DemandBounds, ForecastError, Forecaster, Peak, Sample, Series,
    auto::{self, Auto},
};

use super::*;
use crate::{
    ReplicaBounds,
    cron::{Window, WindowText, Zone},
    hpa::{Behavior, PolicyKind, PolicySelect, ScalingPolicy, ScalingRules, Target},
    observation::Container,
    proposal::Source,
    workload::{FloorSources, Prediction},
};

mod ahead;
mod poison;

/// Minute `index` of every test.
fn at(index: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + index * 60).unwrap()
}

fn n(count: u32) -> Replicas {
    Replicas::new(count)
}

/// A queue with a target of ten messages per replica.
fn queue() -> MetricSpec {
    MetricSpec::External {
        metric: "queue".into(),
        selector: None,
        target: Target::AverageValue(10_000),
    }
}

fn predicted(algorithm: &str, window: SignedDuration) -> FloorSources {
    FloorSources {
        prediction: Some(Prediction {
            window,
            algorithm: algorithm.into(),
        }),
        ..FloorSources::default()
    }
}

fn workload() -> Workload {
    Workload {
        bounds: ReplicaBounds::new(n(1), n(1000)),
        metrics: vec![queue()],
        ..Workload::default()
    }
}

/// An environment in which minute `i` has to serve `demand[i]`; the first decision is at the beginning of minute 1,
/// from the demand of minute 0.
fn environment(demand: &[f64], start_up: i64) -> Environment {
    let sample = |(value, index): (&f64, i64)| Sample {
        at: at(index + 1),
        value: *value,
    };
    Environment {
        metrics: vec![RecordedMetric {
            metric: queue(),
            recording: Recording::new(demand.iter().zip(0..).map(sample).collect()),
        }],
        template: PodTemplate {
            containers: Arc::new([Container {
                name: "app".into(),
                requests: [("cpu", 200)].into_iter().collect(),
            }]),
            pod_level: None,
        },
        start_up: SignedDuration::from_mins(start_up),
        begin: at(1),
    }
}

fn run(
    environment: &Environment,
    workload: Workload,
    forecasters: Vec<BuiltForecaster>,
) -> Vec<Minute> {
    let minutes = environment.metrics[0].recording.samples().len() - 1;
    let mut run = Run::new(environment, workload, forecasters);
    (0..minutes).map(|_| run.minute().0).collect()
}

fn score(minutes: &[Minute]) -> Score {
    let mut score = Score::default();
    for minute in minutes {
        score.add_minute(minute);
    }
    score
}

/// Noisy demand that rises, falls and jumps.
fn lively(minutes: u32) -> Vec<f64> {
    let demand = |i: u32| {
        let i = f64::from(i);
        let jump = if i % 97.0 < 20.0 { 40.0 } else { 0.0 };
        100.0 + 60.0 * (i / 70.0).sin() + 15.0 * (i * 12.9898).sin() + jump
    };
    (0..minutes).map(demand).collect()
}

/// Scale-up without a limit and scale-down after five minutes, as in replays of forecasters.
fn unlimited() -> Behavior {
    let policy = ScalingPolicy {
        kind: PolicyKind::Percent,
        value: 1_000_000,
        period: SignedDuration::from_secs(15),
    };
    let rules = ScalingRules {
        policies: Some(vec![policy]),
        select: Some(PolicySelect::Max),
        ..ScalingRules::default()
    };
    Behavior {
        scale_up: rules.clone(),
        scale_down: ScalingRules {
            window: Some(SignedDuration::from_mins(5)),
            ..rules
        },
    }
}

/// A second implementation of the replay's rules for a plain autoscaler: counts asked for and serving.
fn replayed(demand: &[f64], start_up: usize) -> Vec<(u32, u32)> {
    let pods = |demand: f64| Replicas::for_demand(demand / 10.0).get().max(1);
    let (mut current, mut recommended) = (pods(demand[0]), Vec::new());
    let (first, mut asked) = (current, Vec::new());
    demand[1..]
        .iter()
        .zip(demand)
        .map(|(_, seen)| {
            let ratio = seen / (f64::from(current) * 10.0);
            let proposal = if (ratio - 1.0).abs() <= 0.1 {
                current
            } else {
                pods(*seen)
            };
            recommended.push(proposal);
            let held = recommended.iter().rev().take(5).max().copied().unwrap();
            current = if proposal >= current {
                proposal
            } else {
                current.min(held)
            };
            asked.push(current);
            let recent = asked.iter().rev().take(start_up + 1);
            let before = (asked.len() <= start_up).then_some(&first);
            (current, *recent.chain(before).min().unwrap())
        })
        .collect()
}

#[test]
fn a_plain_autoscaler_asks_for_what_the_rules_of_the_replay_ask_for() {
    let demand = lively(600);
    for start_up in [0_u32, 2, 5] {
        let workload = Workload {
            behavior: Some(unlimited()),
            ..workload()
        };
        let minutes = run(&environment(&demand, start_up.into()), workload, Vec::new());
        let counts: Vec<_> = minutes
            .iter()
            .map(|m| (m.asked.get(), m.ready.get()))
            .collect();
        assert_eq!(
            counts,
            replayed(&demand, start_up as usize),
            "start-up {start_up} min"
        );
    }
}

#[test]
fn the_score_is_that_of_the_replay() {
    let demand = lively(600);
    let minutes = run(&environment(&demand, 3), workload(), Vec::new());
    let score = score(&minutes);
    let served = demand[1..].iter().zip(&minutes);
    let under = served
        .clone()
        .filter(|(d, m)| **d > 1.1 * m.ready.as_f64() * 10.0);
    let missing = served
        .clone()
        .map(|(d, m)| (d / 10.0 - 1.1 * m.ready.as_f64()).max(0.0));
    assert_eq!(score.minutes, 599);
    assert!(score.under > 10, "{score:?}");
    assert_eq!(score.under as usize, under.count());
    assert!((score.missing - missing.sum::<f64>()).abs() < 1e-6);
    let asked: u64 = minutes.iter().map(|m| u64::from(m.asked.get())).sum();
    assert_eq!(score.replica_minutes, asked);
    assert!((score.replica_hours() * 60.0 - f64::from(u32::try_from(asked).unwrap())).abs() < 1e-6);
    let first = environment(&demand, 3).first_count(&workload());
    let before = [first].into_iter().chain(minutes.iter().map(|m| m.asked));
    let changes = before
        .zip(&minutes)
        .filter(|(before, m)| *before != m.asked);
    assert_eq!(score.actions as usize, changes.count());
    let missing_replicas = minutes
        .iter()
        .filter(|m| m.is_under_provisioned())
        .map(Minute::missing_replicas);
    assert_eq!(
        score.worst.map(|m| m.missing_replicas()),
        missing_replicas.reduce(f64::max)
    );
}

#[test]
fn a_pod_serves_after_its_start_up_and_a_jump_is_observed_a_minute_late() {
    let mut demand = vec![20.0; 4];
    demand.extend([40.0; 6]);
    let minutes = run(&environment(&demand, 2), workload(), Vec::new());
    // Minute 4 is the first to need 4 pods; the decision of minute 5 asks for them; they serve in minute 7.
    let seen: Vec<_> = minutes
        .iter()
        .map(|m| (m.asked.get(), m.ready.get(), m.is_under_provisioned()))
        .collect();
    let (calm, late, asked, served) = ((2, 2, false), (2, 2, true), (4, 2, true), (4, 4, false));
    assert_eq!(
        seen,
        [calm, calm, calm, late, asked, asked, served, served, served]
    );
    let worst = score(&minutes).worst.unwrap();
    assert_eq!((worst.at, worst.needed()), (at(4), Some(n(4))));
}

#[test]
fn a_preview_is_simulated_in_strategy_auto() {
    let demand = lively(120);
    let environment = environment(&demand, 2);
    let preview = Workload {
        strategy: Strategy::Preview,
        specific_replicas: Some(n(3)),
        ..workload()
    };
    let effective = run(&environment, workload(), Vec::new());
    assert!(score(&effective).actions > 0);
    assert_eq!(run(&environment, preview, Vec::new()), effective);
}

#[test]
fn a_cron_window_raises_the_count_but_not_that_of_the_plain_hpa() {
    let demand = [20.0; 60];
    let environment = environment(&demand, 0);
    let text = WindowText {
        name: "lunch",
        start: "10 * * * *",
        end: "20 * * * *",
        timezone: "",
        target_replicas: 9,
    };
    let with_cron = Workload {
        floor: FloorSources {
            windows: vec![Window::parse(&text, &Zone::utc()).unwrap()],
            ..FloorSources::default()
        },
        ..workload()
    };
    let minutes = run(&environment, with_cron.clone(), Vec::new());
    let at_nine: Vec<_> = minutes
        .iter()
        .filter(|m| m.asked == n(9))
        .map(|m| m.at)
        .collect();
    // The cron window asks for nine from minute 10 on; after its end the scale-down window holds them for five minutes.
    assert_eq!(at_nine.first(), Some(&at(10)));
    assert!(
        at_nine
            .last()
            .is_some_and(|last| (at(19)..=at(26)).contains(last)),
        "{at_nine:?}"
    );
    let plain = run(&environment, plain(with_cron), Vec::new());
    assert!(plain.iter().all(|m| m.asked == n(2)));
}

#[test]
fn a_minute_without_a_sample_is_not_evaluated_and_lowers_nothing() {
    let mut environment = environment(&[50.0; 40], 0);
    let known = |sample: &&Sample| !(at(10)..at(25)).contains(&sample.at);
    let samples = environment.metrics[0]
        .recording
        .samples()
        .iter()
        .filter(known);
    environment.metrics[0].recording = Recording::new(samples.copied().collect());
    let mut run = Run::new(&environment, workload(), Vec::new());
    let minutes: Vec<_> = (0..39).map(|_| run.minute().0).collect();
    let score = score(&minutes);
    // A value is used for five minutes, so the minutes that end from minute 14 to 24 have none.
    assert_eq!((score.unknown, score.minutes), (11, 28));
    assert_eq!((score.replica_minutes, score.actions), (28 * 5, 0));
    assert!(minutes.iter().all(|m| m.asked == n(5)));
}

type Forecasting = fn(&Series, SignedDuration) -> Result<Forecast, ForecastError>;

/// Forecasts with a function, and records the newest sample of each call.
#[derive(Debug)]
struct Stub {
    forecast: Forecasting,
    shown: Arc<std::sync::Mutex<Vec<Timestamp>>>,
}

impl Forecaster for Stub {
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
        seen: &Series,
        horizon: SignedDuration,
    ) -> Result<Forecast, ForecastError> {
        let last = seen.last().map_or(seen.start(), |sample| sample.at);
        self.shown.lock().unwrap().push(last);
        (self.forecast)(seen, horizon)
    }
}

/// A forecast by minutes that is valid for ten of them.
fn forecast_after(seen: &Series, path: Vec<f64>) -> Result<Forecast, ForecastError> {
    let until = seen.end() + SignedDuration::from_mins(10);
    Forecast::new("stub", seen.end(), MINUTE, path, until)
}

/// Forecasts 70 from twenty samples on.
fn seventy(seen: &Series, horizon: SignedDuration) -> Result<Forecast, ForecastError> {
    if seen.len() < 20 {
        return Err(ForecastError::ZeroSeries);
    }
    let path = vec![70.0; usize::try_from(horizon.as_mins()).unwrap()];
    let peak = Peak {
        window: MINUTE,
        value: 70.0,
        quantile: 0.9,
        bounds: DemandBounds::both(70.0),
    };
    forecast_after(seen, path)?.with_peak(peak)
}

/// Forecasts for each slot the number of minutes up to its start, with twice that number as the upper bound.
fn counting(seen: &Series, horizon: SignedDuration) -> Result<Forecast, ForecastError> {
    let first = u32::try_from(seen.end().duration_since(at(0)).as_mins()).unwrap();
    let length = u32::try_from(horizon.as_mins()).unwrap();
    let path: Vec<f64> = (first..first + length).map(f64::from).collect();
    let upper = path.iter().map(|value| value * 2.0).collect();
    forecast_after(seen, path)?.with_upper(upper)
}

/// A run of a workload whose prediction is made by a function, and the newest samples that it is shown.
fn forecasting(
    environment: &Environment,
    forecast: Forecasting,
) -> (Run<'_>, Arc<std::sync::Mutex<Vec<Timestamp>>>) {
    let shown = Arc::default();
    let stub = Stub {
        forecast,
        shown: Arc::clone(&shown),
    };
    let predicting = Workload {
        floor: predicted("stub", MINUTE),
        ..workload()
    };
    let run = Run::new(environment, predicting, vec![Ok(Box::new(stub))]);
    (run, shown)
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn base_units(milli: i64) -> f64 {
    milli as f64 / 1000.0
}

/// The count that `auto` proposes after five hours of a constant demand, and the value it forecasts.
fn forecast_of_constant(demand: f64, milli_per_replica: i64) -> (Option<u32>, f64) {
    let mut environment = environment(&[demand; 310], 2);
    environment.begin = at(300);
    let metric = MetricSpec::External {
        metric: "queue".into(),
        selector: None,
        target: Target::AverageValue(milli_per_replica),
    };
    environment.metrics[0].metric = metric.clone();
    let workload = Workload {
        metrics: vec![metric],
        floor: predicted("auto", MINUTE),
        ..workload()
    };
    let auto = Auto::new(auto::Config::default()).unwrap();
    let mut run = Run::new(&environment, workload, vec![Ok(Box::new(auto))]);
    let (_, decision) = run.minute();
    let mut proposals = decision.proposals.iter();
    let forecast = proposals.find(|p| p.source == Source::Forecast).unwrap();
    (
        forecast.replicas.map(Replicas::get),
        forecast.value.unwrap(),
    )
}

#[test]
fn a_constant_demand_gets_the_replicas_for_95_percent_of_it_from_auto() {
    // Targets of 60 requests, 0.1 cores, and half a GiB; 95 % of 20, 100 and 1,000 replicas are whole numbers.
    for milli in [60_000, 100, 536_870_912_000] {
        for replicas in (1..=10).chain([13, 20, 77, 100, 499, 1000]) {
            let demand = base_units(milli) * f64::from(replicas);
            let (proposed, value) = forecast_of_constant(demand, milli);
            let want = u32::div_ceil(95 * replicas, 100);
            assert_eq!(proposed, Some(want), "{value} at {milli}m");
        }
    }
    assert_eq!(forecast_of_constant(300.0, 60_000).1.to_string(), "300");
}

#[test]
fn the_forecast_for_a_minute_is_the_one_made_a_lead_time_before() {
    let environment = environment(&[20.0; 40], 3);
    let (mut run, _) = forecasting(&environment, counting);
    for minute in 1..30 {
        let at = run.minute().0.at;
        let forecast_for = run.forecast_for(at).map(|p| (p.at, p.value, p.upper));
        // The target is ten per replica; the value of a minute is the sample at its end.
        let value = f64::from(minute + 1) / 10.0;
        let expected = (minute > 3).then_some((at, value, Some(value * 2.0)));
        assert_eq!(forecast_for, expected, "minute {minute}");
    }
}

#[test]
fn a_forecaster_runs_at_its_refresh_period_and_sees_only_the_past() {
    let demand = [20.0; 60];
    let environment = environment(&demand, 2);
    let (mut run, shown) = forecasting(&environment, seventy);
    let mut score = Score::default();
    let counts: Vec<u32> = (1..60)
        .map(|_| {
            let (minute, decision) = run.minute();
            score.add(&minute, &decision);
            let forecasts = decision
                .proposals
                .iter()
                .filter(|p| p.source == Source::Forecast);
            assert_eq!(forecasts.count(), 1);
            minute.asked.get()
        })
        .collect();
    // The forecaster is asked every four minutes from the first one on, and never sees a sample of a later time.
    let expected: Vec<_> = (0..15).map(|turn| at(1 + 4 * turn)).collect();
    assert_eq!(*shown.lock().unwrap(), expected);
    // Twenty samples exist in minute 20; the next forecast is in minute 21.
    assert_eq!(counts.iter().position(|count| *count == 7), Some(20));
    assert_eq!(counts[..20], [2; 20]);
    let absent: Vec<_> = score
        .absent
        .iter()
        .map(|((_, reason), a)| (*reason, a.minutes))
        .collect();
    assert_eq!(absent, [("ZeroSeries", 20)]);
}
