//! Counterexamples to simpler rules, with the numbers: one test per rejected rule, and one for each exception
//! from the law that both modes give the same counts.

use super::world::{
    Edit, Metrics, Scenario, TICK, World, at, crons, down, log_after, n, policy, tick_at, up,
    window,
};
use crate::autoscale::action::Action;
use crate::autoscale::history::History;
use crate::hpa::{Hpa, Log, PolicyKind, ScaleEvent, ScalingRules, reconcile};
use crate::workload::Mode;

const MODES: [Mode; 2] = [Mode::Direct, Mode::Delegated];

/// Counts of an autoscaler without forecast and cron.
fn plain(scenario: &Scenario, ticks: usize) -> Vec<u32> {
    let mut world = World::new(scenario, Mode::Direct);
    let mut log = Log::default();
    let step = |tick| {
        world.edit(tick);
        let now = tick_at(tick);
        let (metrics, bounds) = (&world.workload.metrics, world.workload.bounds);
        let hpa = Hpa {
            bounds,
            metrics,
            behavior: world.workload.behavior.as_ref(),
        };
        let pass = reconcile(&hpa, &world.observe(now), &log, &world.settings, now);
        let desired = pass.desired;
        log = log_after(&hpa, pass, now);
        world.scale_to(desired, now);
        desired.get()
    };
    (0..ticks).map(step).collect()
}

/// Rejected rules: a minimum of the floor while it is at most current, else of desired; and no reading logged while the
/// floor is above current. With either, the reading 18 is lost, and 17.35 / 16 is within the tolerance: 16 for good.
#[test]
fn a_reading_taken_while_the_floor_is_above_current_is_not_lost() {
    let rising = Scenario {
        start: 8,
        demand: vec![8.0, 17.35],
        forecast: vec![Some(6.0), Some(13.01)],
        ..Scenario::default()
    };
    assert_eq!(plain(&rising, 4), [8, 16, 18, 18]);
    for mode in MODES {
        assert_eq!(
            World::new(&rising, mode).run(4),
            [8, 16, 18, 18],
            "{mode:?}"
        );
    }
}

/// Rejected rule: forecast tolerance relative to current. 10 / 11 is within it: 11 for good.
#[test]
fn a_constant_forecast_ends_at_its_own_count() {
    let mut demand = vec![13.0; 4];
    demand.extend([11.0; 30]);
    demand.push(6.0);
    let falling = Scenario {
        demand,
        forecast: vec![Some(10.0)],
        ..Scenario::default()
    };
    for mode in MODES {
        let counts = World::new(&falling, mode).run(70);
        assert!(counts.contains(&11), "{mode:?} comes by 11: {counts:?}");
        assert_eq!(counts.last(), Some(&10), "{mode:?}");
    }
}

/// Rejected rule: clamp raw before it is logged. The log would hold 10 for 300 s more.
#[test]
fn a_lowered_minimum_is_followed_without_waiting_for_the_window() {
    let scenario = Scenario {
        bounds: (10, 20),
        start: 10,
        demand: vec![2.0],
        forecast: vec![Some(3.0)],
        edits: vec![(27, Edit::Bounds(2, 20))],
        ..Scenario::default()
    };
    for mode in MODES {
        let counts = World::new(&scenario, mode).run(30);
        assert_eq!(
            counts[25..],
            [10, 10, 3, 3, 3],
            "{mode:?}: at 405 s, not at 705 s"
        );
    }
}

/// No autoscaler with a tolerance can promise that a forecast changes no later count: a demand of 10.9 is within
/// the tolerance of 12, so a count of 12 stays, while a count that comes down from 14 ends at 11.
#[test]
fn a_forecast_that_has_ended_may_leave_another_count() {
    let rising = Scenario {
        demand: vec![11.9, 10.9],
        ..Scenario::default()
    };
    assert_eq!(plain(&rising, 60).last(), Some(&12));
    let mut forecast = vec![Some(14.0); 40];
    forecast.push(None);
    let raised = Scenario { forecast, ..rising };
    for mode in MODES {
        let counts = World::new(&raised, mode).run(80);
        assert!(counts.contains(&14), "{mode:?}");
        assert_eq!(counts.last(), Some(&11), "{mode:?}");
    }
}

/// Without metrics and prediction, the end of the last window changes nothing, and a count set by a user stays too.
#[test]
fn cron_alone_holds_the_current_count_outside_its_windows() {
    let scenario = Scenario {
        metrics: Metrics::None,
        start: 3,
        floor: crons(&[(1, 4, 9)]),
        edits: vec![(40, Edit::Scale(5)), (60, Edit::Bounds(6, 60))],
        ..Scenario::default()
    };
    let counts = World::new(&scenario, Mode::Delegated).run(65);
    let want: Vec<u32> = (0..65)
        .map(|tick| match tick {
            0..4 => 3,
            4..40 => 9,
            40..60 => 5,
            _ => 6,
        })
        .collect();
    assert_eq!(counts, want);
}

/// A window that is still open when a larger one ends: without metrics the floor lane holds the count, and the
/// user's policies slow its decrease.
#[test]
fn a_smaller_window_takes_over_after_the_scale_down_window() {
    let scenario = Scenario {
        metrics: Metrics::None,
        floor: crons(&[(1, 4, 9), (1, 59, 4)]),
        ..Scenario::default()
    };
    let count_at = |scenario: &Scenario, ticks| World::new(scenario, Mode::Direct).run(ticks);
    // The last tick in which 9 was proposed is 225 s; it counts up to and including 525 s.
    assert_eq!(count_at(&scenario, 40)[33..38], [9, 9, 9, 4, 4]);
    let slow = Scenario {
        behavior: Some(down(policy(PolicyKind::Pods, 2, 60))),
        ..scenario
    };
    assert_eq!(
        count_at(&slow, 50)[34..46],
        [9, 7, 7, 7, 7, 5, 5, 5, 5, 4, 4, 4]
    );
}

/// Foretide scaled the workload to zero under `minReplicas: 0`; the user's new minimum raises it, also with a
/// child, which does not leave zero by itself.
#[test]
fn a_workload_that_foretide_scaled_to_zero_is_raised_to_a_new_minimum() {
    let scenario = Scenario {
        bounds: (0, 10),
        start: 1,
        demand: vec![0.0],
        edits: vec![(30, Edit::Bounds(2, 10))],
        ..Scenario::default()
    };
    let counts = World::new(&scenario, Mode::Delegated).run(34);
    assert_eq!(counts[28..], [0, 0, 2, 2, 2, 2]);
}

/// Every write to the child changes a count: a floor that comes and goes below the observed count writes nothing.
#[test]
fn a_floor_below_the_observed_count_is_not_written_repeatedly() {
    let forecast = (0..72)
        .map(|tick| Some(f64::from(4 + tick * 2 % 7)))
        .collect();
    let scenario = Scenario {
        start: 12,
        demand: vec![12.0],
        forecast,
        behavior: Some(down(window(0))),
        ..Scenario::default()
    };
    let mut world = World::new(&scenario, Mode::Delegated);
    world.run(72);
    assert!(world.writes <= 5, "{} writes", world.writes);
    assert_eq!(world.count, n(12));
}

/// A delegated workload between two decisions, with the child's minimum at `min`.
fn delegated(scenario: &Scenario, min: u32) -> World {
    let mut world = World::new(scenario, Mode::Delegated);
    world.run(2);
    if let Some(child) = &mut world.child {
        child.bounds.min = n(min);
    }
    world
}

#[test]
fn lost_history_does_not_lower_the_minimum_of_the_child() {
    let scenario = Scenario {
        start: 8,
        demand: vec![8.0],
        ..Scenario::default()
    };
    let now = tick_at(2);
    for (lost, max, min) in [(false, 60, 2), (true, 60, 20), (true, 15, 15)] {
        let mut world = delegated(&scenario, 20);
        world.workload.bounds.max = n(max);
        if lost {
            world.history = History::lost(now, None, &world.settings);
        }
        let action = world.decide(now).action;
        assert_eq!(
            action,
            Action::Child {
                min: n(min),
                max: n(max)
            },
            "lost: {lost}"
        );
    }
}

/// A scale-down of 3 that is 50 s old makes room for 4 + 3 now, but not in the child's next pass.
#[test]
fn a_delegated_floor_allows_for_the_next_pass_of_the_child() {
    let scenario = Scenario {
        start: 5,
        demand: vec![5.0],
        forecast: vec![None, None, Some(20.0)],
        behavior: Some(up(policy(PolicyKind::Pods, 4, 60))),
        ..Scenario::default()
    };
    let mut world = delegated(&scenario, 2);
    world.history.log.scale_down = vec![ScaleEvent {
        at: at(2 * TICK - 50),
        change: n(3),
        outdated: false,
    }];
    let mut direct = world.clone();
    direct.workload.mode = Mode::Direct;
    let now = tick_at(2);
    assert_eq!(
        world.decide(now).action,
        Action::Child {
            min: n(9),
            max: n(60)
        }
    );
    assert_eq!(
        direct.decide(now).action,
        Action::Scale {
            from: n(5),
            to: n(12)
        }
    );
}

/// The child went from 21 to 20, then a user set 1: the child's change is one replica.
#[test]
fn a_change_by_a_user_is_not_attributed_to_the_child() {
    let scale_down = ScalingRules {
        tolerance: Some(0.0),
        ..window(0)
    };
    let scenario = Scenario {
        start: 21,
        demand: vec![21.0, 21.0, 20.0],
        edits: vec![(3, Edit::Scale(1))],
        behavior: Some(down(scale_down)),
        ..Scenario::default()
    };
    let mut world = World::new(&scenario, Mode::Delegated);
    world.run(4);
    let changes: Vec<_> = world
        .history
        .log
        .scale_down
        .iter()
        .map(|e| e.change)
        .collect();
    assert_eq!(changes, [n(1)]);
}
