//! Mode Metric: the decision is what the child comes to, and both modes with a child settle at the same count, except
//! within the tolerance of the HPA.

use foretide_models::DemandBounds;
use proptest::prelude::*;

use super::scenarios::{TICKS, Up, cases, scenario};
use super::world::{Edit, Metrics, Scenario, World, crons, down, n, policy, tick_at, window};
use crate::autoscale::history::History;
use crate::autoscale::{Inputs, Limit, decide};
use crate::hpa::{PolicyKind, ScalingRules};
use crate::proposal::Reason;
use crate::workload::{FloorSources, Mode};

/// Ticks until a count has settled: seven and a half minutes, more than a scale-down window.
const SETTLED: usize = 30;

/// The count after `ticks` ticks in lock-step.
fn count_after(scenario: &Scenario, mode: Mode, ticks: usize) -> u32 {
    World::new(scenario, mode).run(ticks).pop().unwrap()
}

/// The settled counts of Delegated and of Metric.
fn settled(scenario: &Scenario) -> [u32; 2] {
    [Mode::Delegated, Mode::Metric].map(|mode| count_after(scenario, mode, SETTLED))
}

/// Metrics with a prediction: the first manifest of the seed.
fn predicted(demand: f64, forecast: f64) -> Scenario {
    Scenario {
        metrics: Metrics::Pods,
        bounds: (1, 10),
        start: 1,
        demand: vec![demand],
        forecast: vec![Some(forecast)],
        ..Scenario::default()
    }
}

/// Crons alone: the second manifest of the seed, an hour for its day.
fn crons_alone(start: u32) -> Scenario {
    Scenario {
        metrics: Metrics::None,
        bounds: (1, 100),
        start,
        floor: crons(&[(0, 6, 10), (6, 9, 80), (9, 11, 10), (11, 14, 80)]),
        ..Scenario::default()
    }
}

/// Metrics, a prediction and a cron: the third manifest of the seed.
fn all_three(demand: f64, forecast: Option<f64>, open: bool) -> Scenario {
    let cron = if open { (0, 59, 100) } else { (30, 59, 100) };
    Scenario {
        metrics: Metrics::Pods,
        bounds: (1, 100),
        start: 10,
        demand: vec![demand],
        forecast: vec![forecast],
        floor: crons(&[cron]),
        ..Scenario::default()
    }
}

#[test]
fn both_modes_settle_at_the_same_count_but_for_their_rules_of_a_forecast() {
    for (scenario, counts) in [
        (predicted(2.0, 2.0), [2, 2]),
        (predicted(2.0, 6.3), [6, 7]),
        (predicted(2.0, 6.6), [7, 7]),
        (predicted(7.0, 3.0), [7, 7]),
        (predicted(2.0, 40.0), [10, 10]),
        (all_three(20.0, Some(30.0), false), [29, 30]),
        (all_three(20.0, Some(30.0), true), [100, 100]),
        (all_three(40.0, None, false), [40, 40]),
        (all_three(40.0, None, true), [100, 100]),
    ] {
        assert_eq!(settled(&scenario), counts, "{scenario:?}");
    }
    for (minute, count) in [(3, 10), (8, 80), (13, 80)] {
        for mode in [Mode::Delegated, Mode::Metric] {
            let found = count_after(&crons_alone(1), mode, minute * 4);
            assert_eq!(found, count, "{mode:?} at minute {minute}");
        }
    }
}

#[test]
fn crons_alone_keep_the_count_outside_their_windows() {
    for mode in [Mode::Delegated, Mode::Metric] {
        let mut world = World::new(&crons_alone(1), mode);
        let counts = world.run(40 * 4);
        assert_eq!(counts.last(), Some(&80), "{mode:?}");
        let last = world.tick(40 * 4);
        assert_eq!(last.limit, Some(Limit::NoActiveWindow), "{mode:?}");
        let sentence = "80 replicas: no cron window is open, so the current count stays";
        assert!(last.message().starts_with(sentence), "{}", last.message());
    }
}

#[test]
fn the_tolerance_of_the_hpa_applies_to_a_cron_in_mode_metric_only() {
    // Counts reached from 95 running replicas, by the target of the cron.
    for (target, delegated, metric) in [
        (100, 100, 95),
        (104, 104, 95),
        (105, 105, 105),
        (120, 120, 120),
    ] {
        let scenario = Scenario {
            metrics: Metrics::External,
            bounds: (1, 200),
            start: 95,
            demand: vec![95.0],
            floor: crons(&[(0, 59, target)]),
            ..Scenario::default()
        };
        assert_eq!(settled(&scenario), [delegated, metric], "{target}");
        let mut world = World::new(&scenario, Mode::Metric);
        let decision = world.tick(0);
        assert_eq!(decision.floor, None);
        let within = (decision.limit == Some(Limit::WithinTolerance)).then_some(95);
        assert_eq!(within.unwrap_or(target), metric, "{target}");
    }
}

#[test]
fn the_sentence_says_that_the_difference_is_within_the_tolerance() {
    let scenario = Scenario {
        bounds: (1, 200),
        start: 95,
        demand: vec![95.0],
        floor: crons(&[(0, 59, 100)]),
        ..Scenario::default()
    };
    let decision = World::new(&scenario, Mode::Metric).tick(0);
    assert_eq!(
        decision.message(),
        "95 replicas: the cron window cron-0 asks for 100 until 00:59 UTC, above observed 95; 95 stay, which is within \
         the tolerance of the HorizontalPodAutoscaler"
    );
}

#[test]
fn a_forecast_that_ends_blocks_no_scale_down() {
    let mut forecast = vec![Some(40.0); 10];
    forecast.push(None);
    let scenario = Scenario {
        forecast,
        demand: vec![5.0],
        start: 5,
        ..Scenario::default()
    };
    let mut world = World::new(&scenario, Mode::Metric);
    assert_eq!(world.run(10).pop(), Some(40));
    assert_eq!(world.tick(10).published, []);
    let counts: Vec<_> = (11..40)
        .map(|tick| world.tick(tick).desired.get())
        .collect();
    assert_eq!(counts.last(), Some(&5), "{counts:?}");
}

#[test]
fn a_floor_of_the_mode_before_holds_nothing() {
    let scenario = Scenario {
        forecast: vec![Some(40.0), None],
        demand: vec![5.0],
        start: 5,
        ..Scenario::default()
    };
    let mut world = World::new(&scenario, Mode::Delegated);
    assert_eq!(world.tick(0).floor, Some(n(38)));
    world.workload.mode = Mode::Metric;
    let decision = world.tick(1);
    assert_eq!((decision.floor, decision.floor_lane.held), (None, None));
    assert_eq!(world.child.unwrap().bounds, world.workload.bounds);
}

#[test]
fn a_lost_history_holds_nothing_that_the_child_lowers() {
    let rules = ScalingRules {
        window: window(0).window,
        ..policy(PolicyKind::Percent, 100, 60)
    };
    let scenario = Scenario {
        demand: vec![5.0],
        start: 40,
        behavior: Some(down(rules)),
        ..Scenario::default()
    };
    let mut world = World::new(&scenario, Mode::Metric);
    world.history = History::lost(tick_at(0), scenario.behavior.as_ref(), &world.settings);
    let decision = world.tick(0);
    assert_eq!(world.count, n(5));
    assert_eq!((decision.desired, decision.limit), (n(5), None));
}

#[test]
fn the_child_is_told_the_peak_and_not_the_bounds_that_a_count_is_held_against() {
    let mut world = World::new(&predicted(0.0, 7.0), Mode::Metric);
    let mut inputs = world.inputs(tick_at(0));
    let bounds = DemandBounds {
        raise: 3.0,
        hold: 5.0,
    };
    inputs.forecasts[0].outcome.as_mut().unwrap().bounds = bounds;
    for (mode, value, count, published) in [
        (Mode::Metric, 7.0, 7, Some("7")),
        (Mode::Delegated, 5.0, 5, None),
    ] {
        world.workload.mode = mode;
        let (history, settings) = (&world.history, &world.settings);
        let (decision, _) = decide(&world.workload, &inputs, history, settings, tick_at(0));
        let forecast = decision.proposals.last().unwrap();
        assert_eq!(
            (forecast.value, forecast.replicas),
            (Some(value), Some(n(count))),
            "{mode:?}"
        );
        let totals = decision
            .published
            .iter()
            .map(|metric| metric.amounts.total.to_string());
        assert_eq!(
            totals.collect::<Vec<_>>(),
            Vec::from_iter(published),
            "{mode:?}"
        );
    }
}

#[test]
fn a_target_that_is_no_whole_thousandth_counts_as_the_hpa_rounds_it() {
    let mut world = World::new(&predicted(0.0, 0.13), Mode::Metric);
    let mut inputs = world.inputs(tick_at(0));
    let decided = |world: &World, inputs: &Inputs| {
        decide(
            &world.workload,
            inputs,
            &world.history,
            &world.settings,
            tick_at(0),
        )
        .0
    };
    let set_target = |inputs: &mut Inputs, to: f64| {
        inputs.forecasts[0].outcome.as_mut().unwrap().target = to;
    };
    // An HPA divides 130 by 13; 0.13 / 0.012 would be 10.8, and 95 % of it 10.3.
    set_target(&mut inputs, 0.012_01);
    let decision = decided(&world, &inputs);
    let forecast = decision.proposals.last().unwrap();
    assert_eq!(
        (forecast.replicas, forecast.target),
        (Some(n(10)), Some(0.013))
    );
    assert_eq!(decision.published[0].amounts.per_pod.to_string(), "13m");
    world.workload.mode = Mode::Delegated;
    assert_eq!(decided(&world, &inputs).maximum, Some(n(11)));
    // A target below a thousandth makes a floor, but no metric.
    set_target(&mut inputs, 0.0005);
    assert_eq!(decided(&world, &inputs).maximum, Some(n(247)));
    world.workload.mode = Mode::Metric;
    let decision = decided(&world, &inputs);
    let forecast = decision.proposals.last().unwrap();
    assert_eq!(
        (forecast.replicas, forecast.reason),
        (None, Reason::SmallTarget)
    );
    assert_eq!(decision.published, []);
    assert!(
        forecast.message.starts_with("the target is 500u per pod"),
        "{}",
        forecast.message
    );
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn the_decision_is_what_the_child_comes_to(scenario in scenario(Up::Anything)) {
        let mut world = World::new(&scenario, Mode::Metric);
        for tick in 0..TICKS {
            let decision = world.tick(tick);
            prop_assert_eq!(decision.desired, world.count, "tick {}: {}", tick, decision.message());
            prop_assert_eq!(world.child.as_ref().unwrap().bounds, world.workload.bounds);
            prop_assert_eq!(decision.floor, None);
        }
    }

    #[test]
    fn settled_counts_differ_by_the_tolerance_at_most(scenario in scenario(Up::Silent)) {
        let demand = scenario.demand.first().copied().unwrap_or_default();
        let forecast = scenario.forecast.first().copied().into_iter().collect();
        let steady = Scenario {
            demand: vec![demand],
            forecast,
            floor: FloorSources::default(),
            edits: Vec::<(usize, Edit)>::new(),
            outage: vec![],
            behavior: None,
            startup: 0,
            ..scenario
        };
        let [delegated, metric] = settled(&steady).map(f64::from);
        let difference = (delegated - metric).abs();
        prop_assert!(difference <= 0.1 * delegated.max(metric) + 1.0, "{} {}", delegated, metric);
    }
}
