//! Priorities without haste: nothing shrinks for a dip that is shorter than the scale-down window, or
//! for pods that are there and do not serve; and what one member gives up is for those that can run it.

use std::collections::{BTreeMap, BTreeSet};

use foretide::clock::Clock;
use k8s_openapi::api::{autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use rig::eventually;
use serde_json::json;

use super::{
    load::is_ready,
    world::{FleetWorld, SHOP, preferring},
};
use crate::world::{Controller, Counts, NAMESPACE, PATIENCE};

/// Pods of the shop that each can run, the highest priority first.
const ROOMS: [(&str, u32); 3] = [("member1", 10), ("member2", 6), ("member3", 10)];
const PRIORITIES: [(&str, i32); 3] = [("member1", 3), ("member2", 2), ("member3", 1)];
/// What they run while nineteen are needed.
const FULL: [(&str, i32); 3] = [("member1", 10), ("member2", 4), ("member3", 5)];
/// What is divided: all that the first two can run, and what is left.
const MAXIMA: [(&str, i32); 3] = [("member1", 10), ("member2", 6), ("member3", 8)];
/// Seconds of scale-down window: longer than the dip takes on a slow machine, and within our patience.
const WINDOW: i64 = 45;

/// Counts of each member from some moment on.
type Watched = BTreeMap<&'static str, Counts>;

async fn replicas(world: &FleetWorld) -> Watched {
    let mut all = BTreeMap::new();
    for (name, _) in ROOMS {
        all.insert(name, world.watch(name).await);
    }
    all
}

async fn maxima(world: &FleetWorld) -> Watched {
    let mut all = BTreeMap::new();
    for (name, _) in ROOMS {
        all.insert(name, world.watch_maximum(name).await);
    }
    all
}

/// Fails if a count was ever another one than it is meant to be.
async fn unmoved(world: &FleetWorld, what: &str, watched: &Watched, wanted: &[(&str, i32)]) {
    for (name, wanted) in wanted {
        let counts = &watched[name];
        assert_eq!(
            counts.range(),
            (*wanted, *wanted),
            "{what} of {name}: {:?}; {}",
            counts.all(),
            world.told().await
        );
    }
}

/// The pods of the shop in a member.
async fn pods(world: &FleetWorld, member: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(world.cluster(member).client(), NAMESPACE);
    let only = ListParams::default().labels(&format!("app={SHOP}"));
    pods.list(&only).await.unwrap().items
}

/// Who serves, by uid; fails where a pod has no node.
async fn who_serves(world: &FleetWorld) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (name, _) in ROOMS {
        for pod in pods(world, name).await {
            let (pod_name, has_node) = (pod.name_any(), pod.spec.as_ref().unwrap());
            assert!(has_node.node_name.is_some(), "{name}: {pod_name} waits");
            all.extend(is_ready(&pod).then(|| pod.uid().unwrap()));
        }
    }
    all
}

/// Says that every pod of a member is ready or is not, as its kubelet would.
async fn ready(world: &FleetWorld, member: &str, is_ready: bool) {
    let api: Api<Pod> = Api::namespaced(world.cluster(member).client(), NAMESPACE);
    let status = if is_ready { "True" } else { "False" };
    let now = Clock::system().now();
    let conditions = ["Ready", "ContainersReady"].map(
        |kind| json!({ "type": kind, "status": status, "lastTransitionTime": now.to_string() }),
    );
    let patch = Patch::Strategic(json!({ "status": { "conditions": conditions } }));
    for pod in pods(world, member).await {
        let name = pod.name_any();
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

/// Waits until the autoscaler of every member has read a utilization that is as `wanted` says.
async fn all_have_read(world: &FleetWorld, what: &str, wanted: impl Fn(i32) -> bool) {
    let read = |hpa: &HorizontalPodAutoscaler| {
        let metrics = hpa.status.as_ref()?.current_metrics.as_ref()?;
        metrics
            .first()?
            .resource
            .as_ref()?
            .current
            .average_utilization
    };
    eventually(PATIENCE, what, || async {
        for (name, _) in ROOMS {
            let found = world.child(name).await.as_ref().and_then(read);
            if !found.is_some_and(&wanted) {
                return Err(format!("{name}: {found:?}"));
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lowest_priority_waits_out_a_dip_and_keeps_what_serves_and_gives_to_those_with_room() {
    let world = FleetWorld::start("patience", &ROOMS).await;
    // As they are meant to be: who comes to it by way of more, or of less, is remembered for it.
    for (member, replicas) in [("member1", 10), ("member2", 4), ("member3", 5)] {
        world.deploy(member, replicas).await;
    }
    world.load.evenly(18.5);
    world.runs("nineteen", &FULL).await;
    // The second runs four, whatever its own autoscaler makes of pods that do not serve.
    let mut four = preferring("Prioritized", "priority", &PRIORITIES);
    four["clusterAutoscalingPreference"][1]["autoscalingMinThreshold"] = json!(4);
    let more = json!({
        "rebalance": { "cooldownSeconds": 3, "settleObservations": 3 },
        "federatedHPAAssignment": four,
    });
    world.ask("Prioritized", (3, 24), &more).await;
    let controller = world.run();
    world.capped("by priority and room", &MAXIMA).await;
    all_have_read(&world, "a load", |percent| percent > 40).await;
    world.at_rest(&controller).await;
    world.runs("nineteen", &FULL).await;

    pods_that_do_not_serve_are_no_surplus(&world, &controller).await;
    a_dip_takes_nothing(&world, &controller).await;
    what_falls_for_good_falls_from_the_lowest(&world).await;
    drop(controller);
    world.assert_nothing_forbidden();
}

/// The second's four pods are not ready, and its users are gone: fifteen serve, and fifteen are needed.
async fn pods_that_do_not_serve_are_no_surplus(world: &FleetWorld, controller: &Controller) {
    let watched = replicas(world).await;
    world.load.evenly(14.6);
    ready(world, "member2", false).await;
    world
        .runs_so("fifteen serve", |found| {
            found["member2"].1 == 0 && found["member1"].1 + found["member3"].1 == 15
        })
        .await;
    // Longer than the window of six seconds.
    controller.further_syncs(12).await;
    let serving = [("member1", 10), ("member3", 5)];
    unmoved(world, "replicas that serve", &watched, &serving).await;
    ready(world, "member2", true).await;
    world.load.evenly(18.5);
    world.runs("nineteen serve", &FULL).await;
}

/// Gives all a scale-down window, and the second no threshold any more.
async fn be_patient(world: &FleetWorld) {
    let behavior = json!({ "scaleDown": { "stabilizationWindowSeconds": WINDOW } });
    let assignment = preferring("Prioritized", "priority", &PRIORITIES);
    world
        .edit(json!({ "behavior": behavior, "federatedHPAAssignment": assignment }))
        .await;
    let patient = |hpa: &HorizontalPodAutoscaler| {
        let behavior = hpa.spec.as_ref()?.behavior.as_ref()?;
        let window = behavior.scale_down.as_ref()?.stabilization_window_seconds?;
        (i64::from(window) == WINDOW).then_some(())
    };
    eventually(PATIENCE, "all are patient", || async {
        for (name, _) in ROOMS {
            let found = world.child(name).await;
            found.as_ref().and_then(patient).ok_or(name)?;
        }
        Ok::<_, &str>(())
    })
    .await;
}

/// A third of the load for a part of the window: nobody loses a pod or a maximum, during the dip and after it.
async fn a_dip_takes_nothing(world: &FleetWorld, controller: &Controller) {
    be_patient(world).await;
    world.at_rest(controller).await;
    world.capped("as divided", &MAXIMA).await;
    let (watched, bounds) = (replicas(world).await, maxima(world).await);
    let before = who_serves(world).await;

    world.load.evenly(6.0);
    all_have_read(world, "a dip", |percent| percent < 25).await;
    controller.further_syncs(6).await;
    world.load.evenly(18.5);
    all_have_read(world, "the load is back", |percent| percent > 40).await;
    controller.further_syncs(6).await;
    unmoved(world, "replicas", &watched, &FULL).await;
    unmoved(world, "maxima", &bounds, &MAXIMA).await;
    assert_eq!(who_serves(world).await, before);
}

/// The load stays low: after the window the third shrinks, then the second, then the first. Of what they give up,
/// nobody has more than it can run; the rest is nobody's.
async fn what_falls_for_good_falls_from_the_lowest(world: &FleetWorld) {
    let (watched, bounds) = (replicas(world).await, maxima(world).await);
    let lowest = |name: &str| watched[name].lowest();
    let clock = Clock::system();
    let since = clock.now();
    world.load.evenly(6.0);
    world
        .runs_so("the third shrinks", |found| {
            assert!(
                (lowest("member1"), lowest("member2")) == (10, 4),
                "others shrank before the third was at its least: {found:?}"
            );
            found["member3"] == (1, 1)
        })
        .await;
    let waited = clock.now().duration_since(since).as_secs();
    // Its last high reading may have been of a sync before.
    assert!(waited >= WINDOW - 5, "it shrank after {waited} s");
    world
        .runs_so("the second shrinks", |found| {
            assert!(
                lowest("member1") == 10 || found["member2"].0 <= 2,
                "the first shrank before the second: {found:?}"
            );
            found["member2"].1 <= 2
        })
        .await;
    world
        .runs_so("six or a few more in all", |found| {
            let all: i32 = found.values().map(|(asked, _)| *asked).sum();
            (6..=9).contains(&all)
        })
        .await;
    for (name, most) in MAXIMA {
        let (_, highest) = bounds[name].range();
        assert!(highest <= most, "{name}: {:?}", bounds[name].all());
    }
    world
        .status("what nobody can run is nobody's", |status| {
            let each = status["clusters"].as_array()?.iter();
            let divided: i64 = each.map(|one| one["max"].as_i64().unwrap_or(0)).sum();
            let unassigned = status["unassigned"].as_i64()?;
            (unassigned > 0 && divided + unassigned == 24).then_some(())
        })
        .await;
}
