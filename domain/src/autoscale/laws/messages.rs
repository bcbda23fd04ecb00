//! The messages and conditions of decisions, word for word.

use super::world::{Edit, Metrics, Scenario, TICK, World, at, crons, n, policy, up, window};
use crate::autoscale::history::History;
use crate::autoscale::{Condition, Decision, Limit, Winner};
use crate::cron::{Window, WindowText, Zone};
use crate::hpa::PolicyKind;
use crate::observation::Status;
use crate::proposal::{Reason, Source};
use crate::workload::{FloorSources, Mode, SpecPart, SpecProblem, Strategy};

fn after(scenario: &Scenario, ticks: usize) -> Decision {
    let mut world = World::new(scenario, Mode::Delegated);
    let decisions: Vec<_> = (0..ticks).map(|tick| world.tick(tick)).collect();
    decisions.into_iter().next_back().unwrap()
}

fn four() -> Scenario {
    Scenario {
        start: 4,
        demand: vec![4.0],
        ..Scenario::default()
    }
}

#[test]
fn a_message_names_the_count_and_the_largest_proposal() {
    let forecast = vec![Some(6.6)];
    let table = [
        (
            four(),
            "4 replicas: queue at 1 against a target of 1 asks for 4",
        ),
        (
            Scenario { forecast, ..four() },
            "7 replicas: the forecast for load (6.6 over the next 60 min at 1 per replica) asks for 7, \
             above observed 4",
        ),
        (
            Scenario {
                floor: crons(&[(0, 30, 9)]),
                forecast: vec![Some(9.0)],
                ..four()
            },
            "9 replicas: the forecast for load (9 over the next 60 min at 1 per replica) asks for 9, \
             the same as cron, above observed 4",
        ),
        (
            Scenario {
                edits: vec![(0, Edit::Scale(0))],
                ..four()
            },
            "0 replicas: autoscaling is paused because the workload is scaled to zero; scale it up to resume",
        ),
        (
            Scenario {
                edits: vec![(0, Edit::Bounds(5, 3))],
                ..four()
            },
            "no decision: maxReplicas 3 is below minReplicas 5",
        ),
    ];
    for (scenario, want) in table {
        assert_eq!(after(&scenario, 1).message(), want);
    }
}

#[test]
fn a_message_ends_with_the_bound_or_the_policy_that_applied() {
    let (base, forecast) = (Scenario::default, vec![Some(9.0)]);
    let cron_only = Scenario {
        metrics: Metrics::None,
        start: 1,
        bounds: (1, 9),
        floor: crons(&[(30, 40, 9)]),
        ..base()
    };
    let table = [
        (
            Scenario {
                floor: crons(&[(0, 30, 90)]),
                ..four()
            },
            "60 replicas: the cron window cron-0 asks for 90 until 00:30 UTC, above observed 4; \
             capped at maxReplicas 60",
        ),
        (
            Scenario {
                demand: vec![50.0],
                ..four()
            },
            "8 replicas: queue at 12.5 against a target of 1 asks for 50; \
             scale-up is limited to 8 in this step",
        ),
        (
            Scenario {
                behavior: Some(up(policy(PolicyKind::Pods, 2, 60))),
                forecast,
                ..four()
            },
            "6 replicas: the forecast for load (9 over the next 60 min at 1 per replica) asks for 9, \
             above observed 4; scale-up is limited to 6 in this step",
        ),
        (
            Scenario {
                edits: vec![(0, Edit::Bounds(5, 60))],
                ..four()
            },
            "5 replicas: no metric, forecast or cron asks for a count; raised to minReplicas 5",
        ),
        (
            Scenario {
                outage: vec![true],
                ..four()
            },
            "4 replicas: no metric, forecast or cron asks for a count; \
             not lowered while a metric has no value: queue (MetricNotRead)",
        ),
        (
            cron_only,
            "1 replica: no cron window is open, so the current count stays; \
             cron-0 opens at 00:30 UTC",
        ),
    ];
    for (scenario, want) in table {
        assert_eq!(after(&scenario, 1).message(), want);
    }
}

#[test]
fn a_window_that_holds_the_observed_count_is_the_limit() {
    let limit = |next: f64| {
        let scenario = Scenario {
            behavior: Some(up(window(60))),
            demand: vec![4.0, 4.0, next],
            ..four()
        };
        let decision = after(&scenario, 3);
        (decision.desired, decision.limit)
    };
    assert_eq!(limit(6.0), (n(4), Some(Limit::ScaleUpStabilized)));
    assert_eq!(limit(4.0), (n(4), None));
    assert_eq!(limit(3.0), (n(4), Some(Limit::ScaleDownStabilized)));
}

#[test]
fn a_source_is_reported_with_what_its_value_asks_for_and_what_holds_the_count() {
    let pods = |forecast| Scenario {
        metrics: Metrics::Pods,
        start: 3,
        demand: vec![2.1],
        forecast,
        startup: 60,
        ..Scenario::default()
    };
    let table = [
        (
            pods(vec![Some(6.6)]),
            "7 replicas: the forecast for load (6.6 over the next 60 min at 1 per replica) asks for 7, \
             above observed 5 (held at 7: 4 pods have no metrics yet)",
        ),
        (
            pods(vec![Some(6.6), None]),
            "7 replicas: load at 0.7 against a target of 1 asks for 5; held at 7: 4 pods have no metrics yet",
        ),
        (
            pods(vec![Some(6.6), Some(5.6)]),
            "7 replicas: load at 0.7 against a target of 1 asks for 5, below forecast 6; \
             held at 7: 4 pods have no metrics yet",
        ),
        (
            Scenario {
                demand: vec![4.0, 8.6],
                forecast: vec![Some(8.0)],
                ..four()
            },
            "8 replicas: the forecast for load (8 over the next 60 min at 1 per replica) asks for 8, \
             below observed 9 (within the tolerance of 8)",
        ),
        (
            Scenario {
                demand: vec![4.3],
                ..four()
            },
            "4 replicas: queue at 1.075 against a target of 1 asks for 5, which is within the tolerance of 4",
        ),
        (
            Scenario {
                forecast: vec![Some(8.0), Some(8.6)],
                ..four()
            },
            "8 replicas: the forecast for load (8.6 over the next 60 min at 1 per replica) asks for 9, \
             which is within the tolerance of 8, above observed 4",
        ),
    ];
    for (scenario, want) in table {
        assert_eq!(after(&scenario, 2).message(), want);
    }
}

#[test]
fn the_count_of_a_forecast_can_be_followed() {
    let table = [
        (
            Scenario {
                forecast: vec![Some(7.2)],
                ..four()
            },
            "7 replicas: the forecast for load (7.2 over the next 60 min at 1 per replica) asks for 7 \
             (3 % above the target), above observed 4",
        ),
        (
            Scenario {
                forecast: vec![Some(6.6), Some(8.4)],
                slack: 0.25,
                ..four()
            },
            "7 replicas: the forecast for load (6.3 to 8.4 over the next 60 min at 1 per replica) keeps 7, \
             above observed 4",
        ),
        (
            Scenario {
                forecast: vec![Some(6.6), Some(10.0)],
                slack: 0.25,
                ..four()
            },
            "7 replicas: the forecast for load (7.5 over the next 60 min at 1 per replica) asks for 8, \
             which is within the tolerance of 7, above observed 4",
        ),
    ];
    for (scenario, want) in table {
        assert_eq!(after(&scenario, 2).message(), want);
    }
}

#[test]
fn of_equal_proposals_the_one_that_asked_first_wins() {
    let forecast_first = Scenario {
        demand: vec![4.0, 7.0],
        forecast: vec![Some(7.0)],
        ..four()
    };
    let observed_first = Scenario {
        start: 7,
        demand: vec![7.0],
        forecast: vec![None, Some(7.0)],
        ..Scenario::default()
    };
    for (scenario, want) in [
        (
            forecast_first,
            "7 replicas: the forecast for load (7 over the next 60 min at 1 per replica) asks for 7, \
             the same as observed",
        ),
        (
            observed_first,
            "7 replicas: queue at 1 against a target of 1 asks for 7, the same as forecast",
        ),
    ] {
        assert_eq!(after(&scenario, 3).message(), want);
    }
}

#[test]
fn the_winner_of_a_tie_stays_while_noise_moves_what_the_others_ask_for() {
    // The forecast raises the count to 50; then both values move within the tolerance of 50.
    let scenario = Scenario {
        start: 30,
        demand: vec![30.0, 49.3, 48.5, 49.3, 48.5],
        forecast: vec![Some(50.0), Some(48.9), Some(49.2), Some(48.9), Some(49.2)],
        ..Scenario::default()
    };
    let mut world = World::new(&scenario, Mode::Direct);
    for tick in 0..5 {
        let winner = world.tick(tick).winner.map(|winner| winner.source);
        assert_eq!(winner, Some(Source::Forecast), "{tick}");
    }
}

#[test]
fn a_limit_that_changes_nothing_is_not_reported() {
    let scenario = Scenario {
        start: 5,
        demand: vec![5.0, 3.0],
        forecast: vec![Some(5.0)],
        ..Scenario::default()
    };
    let decision = after(&scenario, 3);
    assert_eq!((decision.limit, decision.limit_until), (None, None));
    assert_eq!(
        decision.message(),
        "5 replicas: the forecast for load (5 over the next 60 min at 1 per replica) asks for 5, above observed 3"
    );
}

#[test]
fn times_of_a_cron_window_are_in_its_own_zone() {
    let of_berlin = |start, end| {
        let text = WindowText {
            name: "office",
            start,
            end,
            timezone: "Europe/Berlin",
            target_replicas: 9,
        };
        Window::parse(&text, &Zone::utc()).unwrap()
    };
    let no_metrics = Scenario {
        metrics: Metrics::None,
        start: 2,
        ..Scenario::default()
    };
    for (scenario, window, want) in [
        (
            four(),
            of_berlin("0 1 * * *", "30 2 * * *"),
            "9 replicas: the cron window office asks for 9 until 02:30 Europe/Berlin, above observed 4",
        ),
        (
            no_metrics,
            of_berlin("39 2 * * *", "0 3 * * *"),
            "2 replicas: no cron window is open, so the current count stays; office opens at 02:39 Europe/Berlin",
        ),
    ] {
        let mut world = World::new(&scenario, Mode::Direct);
        world.workload.floor.windows = vec![window];
        assert_eq!(world.decide(at(0)).message(), want);
    }
}

#[test]
fn a_message_says_until_when_a_window_holds() {
    let forecast = vec![Some(6.6), Some(4.4)];
    let table = [
        (
            Scenario { forecast, ..four() },
            "7 replicas: the forecast for load (4.4 over the next 60 min at 1 per replica) asks for 5, \
             above observed 4; held by the scale-down window until 00:05 UTC",
        ),
        (
            Scenario {
                demand: vec![9.0, 3.0],
                start: 9,
                ..four()
            },
            "9 replicas: queue at 0.334 against a target of 1 asks for 3; \
             held by the scale-down window until 00:05 UTC",
        ),
    ];
    for (scenario, want) in table {
        assert_eq!(after(&scenario, 3).message(), want);
    }
}

#[test]
fn the_message_of_a_lost_history_says_until_when_it_holds() {
    let scenario = Scenario {
        start: 9,
        demand: vec![3.0],
        ..Scenario::default()
    };
    let mut world = World::new(&scenario, Mode::Direct);
    world.history = History::lost(at(0), None, &world.settings);
    world.history.log.recommendations = Some(vec![]);
    let decision = world.decide(at(TICK));
    assert_eq!(
        decision.message(),
        "9 replicas: queue at 0.334 against a target of 1 asks for 3; \
         not lowered until 00:05 UTC: the scaling history was lost"
    );
    assert_eq!(decision.limit, Some(Limit::HistoryLost));
}

#[test]
fn every_number_between_the_sources_and_the_result_is_kept() {
    let scenario = Scenario {
        start: 4,
        demand: vec![5.0],
        forecast: vec![Some(6.6)],
        floor: crons(&[(0, 30, 90)]),
        bounds: (2, 40),
        behavior: Some(up(policy(PolicyKind::Pods, 50, 60))),
        ..Scenario::default()
    };
    let decision = after(&scenario, 1);
    let got = (
        decision.maximum,
        decision.stabilized,
        decision.limited,
        decision.desired,
        decision.floor,
        decision.limit,
        decision.winner.clone(),
    );
    let winner = Winner {
        source: Source::Cron,
        name: "cron-0".into(),
    };
    let want = (
        Some(n(90)),
        n(90),
        n(54),
        n(40),
        Some(n(40)),
        Some(Limit::TooManyReplicas),
        Some(winner),
    );
    assert_eq!(got, want);
    let proposals: Vec<_> = decision
        .proposals
        .iter()
        .map(|p| (p.source, p.replicas, p.reason))
        .collect();
    assert_eq!(
        proposals,
        [
            (Source::Observed, Some(n(5)), Reason::ValidMetricFound),
            (Source::Forecast, Some(n(7)), Reason::ForecastReady),
            (Source::Cron, Some(n(90)), Reason::WindowActive),
        ]
    );
    assert_eq!(decision.proposed()[&Source::Forecast], n(7));
}

fn table(conditions: &[Condition]) -> Vec<(&'static str, Status, &'static str)> {
    conditions
        .iter()
        .map(|c| (c.kind.as_str(), c.status, c.reason))
        .collect()
}

#[test]
fn conditions_name_the_missing_source_and_the_limit_that_applied() {
    use Status::{False, True, Unknown};
    let scenario = Scenario {
        start: 4,
        demand: vec![50.0],
        forecast: vec![None],
        floor: crons(&[(30, 40, 9)]),
        ..Scenario::default()
    };
    let want = [
        ("Ready", True, "Decided"),
        ("PredictionReady", False, "NoData"),
        ("CronReady", True, "NoActiveWindow"),
        ("AbleToScale", True, "ReadyForNewScale"),
        ("ScalingActive", True, "ValidMetricFound"),
        ("ScalingLimited", True, "ScaleUpLimit"),
    ];
    let decision = after(&scenario, 1);
    assert_eq!(table(&decision.conditions), want);
    let message = |kind: &str| {
        let mut all = decision.conditions.iter();
        all.find(|c| c.kind.as_str() == kind).map(|c| &*c.message)
    };
    // This condition is about metrics; another one reports the missing forecast.
    assert_eq!(message("ScalingActive"), Some(""));

    let out = Scenario {
        outage: vec![true],
        floor: FloorSources::default(),
        forecast: vec![],
        ..scenario
    };
    let mut world = World::new(&out, Mode::Direct);
    world.workload.strategy = Strategy::Preview;
    let broken = "the expression has 4 fields: expected five";
    world.workload.problems = vec![SpecProblem {
        part: SpecPart::Cron("nightly".into()),
        reason: Reason::InvalidExpression,
        message: broken.into(),
    }];
    let decision = world.tick(0);
    let want = [
        ("Ready", True, "Preview"),
        ("CronReady", False, "InvalidExpression"),
        ("AbleToScale", True, "ReadyForNewScale"),
        ("ScalingActive", False, "FailedGetExternalMetric"),
        ("ScalingLimited", False, "DesiredWithinRange"),
    ];
    assert_eq!(table(&decision.conditions), want);
    assert_eq!(decision.conditions[1].message, format!("nightly: {broken}"));

    world.workload.floor.prediction = Scenario {
        forecast: vec![None],
        ..out
    }
    .workload(Mode::Direct)
    .floor
    .prediction;
    let decision = world.decide(at(TICK));
    assert_eq!(
        table(&decision.conditions)[1],
        ("PredictionReady", Unknown, "Pending")
    );
}

#[test]
fn a_window_that_can_never_open_has_a_reason() {
    let scenario = Scenario {
        floor: crons(&[(5, 5, 9)]),
        ..Scenario::default()
    };
    let world = World::new(&scenario, Mode::Direct);
    assert!(
        world
            .workload
            .floor
            .windows
            .iter()
            .all(|window: &Window| window.problem().is_some())
    );
    let decision = after(&scenario, 1);
    let cron = decision
        .proposals
        .iter()
        .find(|p| p.source == Source::Cron)
        .unwrap();
    assert_eq!((cron.replicas, cron.reason), (None, Reason::ZeroLength));
    assert_eq!(
        table(&decision.conditions)[1],
        ("CronReady", Status::False, "ZeroLength")
    );
}
