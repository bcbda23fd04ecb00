//! Scale-down by priority: nothing shrinks for a dip shorter than the scale-down window, or for pods that are not
//! ready; and released replicas go to members that can run them.

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
    world::{FleetWorld, SHOP, with_preferences},
};
use crate::world::{Controller, Counts, NAMESPACE, TIMEOUT};

/// The number of pods of the shop that each can run, the highest priority first.
const ROOMS: [(&str, u32); 3] = [("member1", 10), ("member2", 6), ("member3", 10)];
const PRIORITIES: [(&str, i32); 3] = [("member1", 3), ("member2", 2), ("member3", 1)];
/// The replicas of each while nineteen are needed.
const FULL: [(&str, i32); 3] = [("member1", 10), ("member2", 4), ("member3", 5)];
/// The divided maxima: all that the first two can run, and the rest.
const MAXIMA: [(&str, i32); 3] = [("member1", 10), ("member2", 6), ("member3", 8)];
/// Seconds of the scale-down window: longer than the dip takes on a slow machine, and within the timeout.
const WINDOW: i64 = 75;

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

/// Fails if a count ever differed from the wanted one.
async fn unmoved(world: &FleetWorld, what: &str, watched: &Watched, wanted: &[(&str, i32)]) {
    for (name, wanted) in wanted {
        let counts = &watched[name];
        assert_eq!(
            counts.range(),
            (*wanted, *wanted),
            "{what} of {name}: {:?}; {}",
            counts.all(),
            world.status_summary().await
        );
    }
}

/// The pods of the shop in a member.
async fn pods(world: &FleetWorld, member: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(world.cluster(member).client(), NAMESPACE);
    let only = ListParams::default().labels(&format!("app={SHOP}"));
    pods.list(&only).await.unwrap().items
}

/// The ready pods, by uid; fails where a pod has no node.
async fn ready_pods(world: &FleetWorld) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (name, _) in ROOMS {
        for pod in pods(world, name).await {
            let (pod_name, has_node) = (pod.name_any(), pod.spec.as_ref().unwrap());
            assert!(
                has_node.node_name.is_some(),
                "{name}: {pod_name} is pending"
            );
            all.extend(is_ready(&pod).then(|| pod.uid().unwrap()));
        }
    }
    all
}

/// Sets the readiness of every pod of a member, as its kubelet would.
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

/// Waits until the HPA of every member has read a utilization that `wanted` accepts.
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
    eventually(TIMEOUT, what, || async {
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
async fn the_lowest_priority_shrinks_only_after_the_window_and_gives_to_members_with_capacity() {
    let world = FleetWorld::start("scale-down", &ROOMS).await;
    // Starts with the final counts, because a detour over more or fewer replicas would be recorded.
    for (member, replicas) in [("member1", 10), ("member2", 4), ("member3", 5)] {
        world.deploy(member, replicas).await;
    }
    world.load.evenly(18.5);
    world.runs("nineteen", &FULL).await;
    // The second runs four, whatever its own HPA computes from unready pods.
    let mut four = with_preferences("Prioritized", "priority", &PRIORITIES);
    four["clusterAutoscalingPreference"][1]["autoscalingMinThreshold"] = json!(4);
    let more = json!({
        "rebalance": { "cooldownSeconds": 3, "settleObservations": 3 },
        "federatedHPAAssignment": four,
    });
    world.ask("Prioritized", (3, 24), &more).await;
    let controller = world.run();
    world.capped("by priority and room", &MAXIMA).await;
    all_have_read(&world, "a load", |percent| percent > 40).await;
    world.wait_until_stable(&controller).await;
    world.runs("nineteen", &FULL).await;

    unready_pods_are_no_surplus(&world, &controller).await;
    a_dip_shrinks_nothing(&world, &controller).await;
    a_lasting_drop_shrinks_the_lowest_priority_first(&world).await;
    drop(controller);
    world.assert_nothing_forbidden();
}

/// The second's four pods are not ready and its users are gone: fifteen are ready, and fifteen are needed.
async fn unready_pods_are_no_surplus(world: &FleetWorld, controller: &Controller) {
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

/// Sets a scale-down window for all, and removes the threshold of the second.
async fn set_scale_down_window(world: &FleetWorld) {
    let behavior = json!({ "scaleDown": { "stabilizationWindowSeconds": WINDOW } });
    let assignment = with_preferences("Prioritized", "priority", &PRIORITIES);
    world
        .edit(json!({ "behavior": behavior, "federatedHPAAssignment": assignment }))
        .await;
    let patient = |hpa: &HorizontalPodAutoscaler| {
        let behavior = hpa.spec.as_ref()?.behavior.as_ref()?;
        let window = behavior.scale_down.as_ref()?.stabilization_window_seconds?;
        (i64::from(window) == WINDOW).then_some(())
    };
    eventually(TIMEOUT, "all HPAs have the window", || async {
        for (name, _) in ROOMS {
            let found = world.child(name).await;
            found.as_ref().and_then(patient).ok_or(name)?;
        }
        Ok::<_, &str>(())
    })
    .await;
}

/// A third of the load for a part of the window: no member loses a pod or a maximum, during the dip and after it.
async fn a_dip_shrinks_nothing(world: &FleetWorld, controller: &Controller) {
    set_scale_down_window(world).await;
    world.wait_until_stable(controller).await;
    world.capped("as divided", &MAXIMA).await;
    let (watched, bounds) = (replicas(world).await, maxima(world).await);
    let before = ready_pods(world).await;

    world.load.evenly(6.0);
    all_have_read(world, "a dip", |percent| percent < 25).await;
    controller.further_syncs(6).await;
    world.load.evenly(18.5);
    all_have_read(world, "the load is back", |percent| percent > 40).await;
    controller.further_syncs(6).await;
    unmoved(world, "replicas", &watched, &FULL).await;
    unmoved(world, "maxima", &bounds, &MAXIMA).await;
    assert_eq!(ready_pods(world).await, before);
}

/// Waits until a member runs at most `most`; fails if one of the others ran fewer than its count before that.
async fn shrinks_first(
    world: &FleetWorld,
    watched: &Watched,
    (member, most): (&str, i32),
    others: &[(&str, i32)],
) {
    eventually(TIMEOUT, &format!("{member} shrinks to {most}"), || async {
        // The others are looked at first: they may shrink as soon as the member requests no more.
        let mut each = others.iter();
        let early = each.find(|(name, count)| watched[*name].lowest() < *count);
        let (asked, ready) = world.counts(member).await?;
        assert!(
            asked <= most || early.is_none(),
            "{early:?} shrank while {member} had {asked}; {}",
            world.status_summary().await
        );
        if asked.max(ready) <= most {
            Ok(())
        } else {
            let summary = world.status_summary().await;
            Err(format!("{ready} of {asked}; {summary}"))
        }
    })
    .await;
}

/// The load stays low: after the window the third shrinks, then the second, then the first. No member gets more than
/// it can run; the rest stays undivided.
async fn a_lasting_drop_shrinks_the_lowest_priority_first(world: &FleetWorld) {
    let (watched, bounds) = (replicas(world).await, maxima(world).await);
    world.load.evenly(6.0);
    let higher = [("member1", 10), ("member2", 4)];
    shrinks_first(world, &watched, ("member3", 1), &higher).await;
    shrinks_first(world, &watched, ("member2", 2), &higher[..1]).await;
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
        .status("the rest is undivided", |status| {
            let each = status["clusters"].as_array()?.iter();
            let divided: i64 = each.map(|one| one["max"].as_i64().unwrap_or(0)).sum();
            let unassigned = status["unassigned"].as_i64()?;
            (unassigned > 0 && divided + unassigned == 24).then_some(())
        })
        .await;
}
