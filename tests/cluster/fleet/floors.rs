//! Cron windows and forecasts of a fleet become a floor in each member, divided by the policy; history comes from one
//! Prometheus for all members, or from one for each.

use std::collections::BTreeMap;

use foretide::{clock::Clock, config::Config, ports::HistoryServer};
use jiff::{SignedDuration, Timestamp};
use rig::{History, Prometheus, Span};
use serde_json::{Value, json};

use super::world::{Bounds, FleetWorld, with_preferences};
use crate::world::{Controller, NAMESPACE};

/// A window that is open since the last full minute until the next new year.
fn window(replicas: u32) -> Value {
    json!([{
        "name": "floor", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": replicas,
    }])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_target_becomes_a_floor_in_each_member_by_every_policy() {
    let rooms = [("member1", 10), ("member2", 6), ("member3", 20)];
    let world = FleetWorld::start("floors", &rooms).await;
    world.deploy_everywhere(1).await;
    let weights = [("member1", 1), ("member2", 2), ("member3", 3)];
    let priorities = [("member1", 2), ("member2", 3), ("member3", 1)];
    let plain = |policy: &str| json!({ "federatedHPAAssignmentType": policy });
    let cases: [(Value, &[(&str, Bounds)]); 4] = [
        // 12 over 1:2:3.
        (
            with_preferences("StaticWeighted", "staticWeight", &weights),
            &[
                ("member1", (2, 4)),
                ("member2", (4, 8)),
                ("member3", (6, 13)),
            ],
        ),
        // 12 over 10:6:20, by capacity: 3.33, 2, 6.67.
        (
            plain("DynamicWeighted"),
            &[
                ("member1", (3, 7)),
                ("member2", (2, 4)),
                ("member3", (7, 14)),
            ],
        ),
        // The highest priority first; the last one keeps its minimum of one.
        (
            with_preferences("Prioritized", "priority", &priorities),
            &[
                ("member1", (5, 10)),
                ("member2", (6, 6)),
                ("member3", (1, 9)),
            ],
        ),
        // The largest first; the other keeps its minimum of one.
        (
            plain("Aggregated"),
            &[("member1", (1, 5)), ("member3", (11, 20))],
        ),
    ];
    let quiet = json!({ "cooldownSeconds": 600 });
    let more = json!({ "crons": window(12), "rebalance": quiet });
    world.ask("Duplicated", (3, 25), &more).await;
    let controller = world.run();
    let full = (12, 25);
    world
        .assigned(
            "twelve each",
            &[("member1", full), ("member2", full), ("member3", full)],
        )
        .await;
    for (assignment, expected) in cases {
        let policy = assignment["federatedHPAAssignmentType"].to_string();
        world
            .edit(json!({ "federatedHPAAssignment": assignment }))
            .await;
        world.assigned(&policy, expected).await;
    }
    world
        .runs("twelve", &[("member1", 1), ("member2", 0), ("member3", 11)])
        .await;
    world.edit(json!({ "crons": null })).await;
    world
        .assigned("no floor", &[("member1", (1, 5)), ("member3", (3, 20))])
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}

/// A midnight; the wave has its peak at noon.
const MIDNIGHT: f64 = 1_767_225_600.0;
const DAY: f64 = 86_400.0;

/// The usage of one of three members, in cores: 0.1 at midnight, 0.3 at noon.
fn third(at: f64) -> f64 {
    0.2 - 0.1 * ((at - MIDNIGHT) / DAY * std::f64::consts::TAU).cos()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forecast_of_the_fleet_is_divided_and_a_silent_history_prevents_it() {
    let span = Span {
        start: MIDNIGHT - 4.0 * DAY,
        end: MIDNIGHT + 2.0 * DAY,
        step: 60.0,
    };
    let pod = [NAMESPACE, "shop-6d5f8c9b7d-x2v9k", "app"];
    // Two members write to the hub's Prometheus and are distinguished by a label; the third has its own.
    let shared = History::new()
        .cpu_usage_in("member1", pod, span, third)
        .cpu_usage_in("member2", pod, span, third);
    let own = History::new().cpu_usage(pod, span, third);
    let (shared, own) = tokio::join!(Prometheus::start(&shared), Prometheus::start(&own));
    let (shared, own) = (shared.unwrap(), own.unwrap());
    let rooms = [("member1", 10), ("member2", 10), ("member3", 10)];
    let world = FleetWorld::start("forecast", &rooms).await;
    world.join("member3", &["--prometheus", "west"]).await;
    world.deploy_everywhere(1).await;
    world.load.evenly(1.0);
    let weights = [("member1", 1), ("member2", 1), ("member3", 1)];
    let more = json!({
        "prediction": { "predictionWindowSeconds": 3600 },
        "rebalance": { "cooldownSeconds": 3600 },
        "federatedHPAAssignment": with_preferences("StaticWeighted", "staticWeight", &weights),
    });
    world.ask("StaticWeighted", (3, 30), &more).await;

    // From 06:00 on, a minute per second until there is a forecast; then four hours per minute, so that nine pods can
    // start between the forecast of them and noon; then eight hours per minute.
    let start = Timestamp::from_second(MIDNIGHT as i64 + 6 * 3600).unwrap();
    let noon = Timestamp::from_second(MIDNIGHT as i64 + 12 * 3600).unwrap();
    let clock = Clock::simulated(start);
    let config = Config {
        prometheus: Some(HistoryServer::at(&shared.url()).unwrap()),
        prometheus_endpoints: BTreeMap::from([(
            "west".to_owned(),
            HistoryServer::at(&own.url()).unwrap(),
        )]),
        sync_period: SignedDuration::from_secs(240),
        ..world.config()
    };
    let controller = Controller::run(config, clock.clone());
    world
        .status("a forecast", |status| {
            let proposals = status.pointer("/decision/proposals")?.as_array()?;
            let forecast = proposals.iter().find(|one| one["source"] == "forecast")?;
            forecast["replicas"].as_u64()
        })
        .await;
    clock.set(clock.now(), 240.0);
    // 0.9 cores at noon, 0.1 per replica: nine in all, before they are needed.
    world
        .runs(
            "three each",
            &[("member1", 3), ("member2", 3), ("member3", 3)],
        )
        .await;
    let at = clock.now();
    assert!(at < noon, "nine replicas only at {at}");
    clock.set(clock.now(), 480.0);
    let found = world.bounds().await;
    assert!(found.values().all(|(min, _)| *min >= 2), "{found:?}");
    world
        .status("a winning forecast and a sentence", |status| {
            let decision = status.get("decision")?;
            let winner = decision.get("winner")?.as_str()? == "forecast";
            let sentence = decision.get("message")?.as_str()?.contains("forecast");
            (winner && sentence).then_some(())
        })
        .await;

    // One part of the history is missing: there is no forecast, rather than a smaller one.
    own.kill();
    world
        .status("no forecast without one history", |status| {
            let proposals = status.pointer("/decision/proposals")?.as_array()?;
            let forecast = proposals.iter().find(|one| one["source"] == "forecast")?;
            let reason = forecast.get("reason")?.as_str()?;
            (forecast.get("replicas").is_none() && reason == "PartialHistory").then_some(())
        })
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}
