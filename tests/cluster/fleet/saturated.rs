//! Budget follows local demand: a member at its maximum receives budget from an idle member and from one whose nodes
//! are full.

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use rig::eventually;
use serde_json::json;

use super::world::{Bounds, FleetWorld};
use crate::world::{NAMESPACE, TIMEOUT};

fn most(found: &std::collections::BTreeMap<String, Bounds>, member: &str) -> i32 {
    found.get(member).map_or(0, |(_, max)| *max)
}

fn all(found: &std::collections::BTreeMap<String, Bounds>) -> i32 {
    found.values().map(|(_, max)| max).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saturated_member_receives_maximum_from_a_blocked_and_an_idle_member() {
    let rooms = [("member1", 10), ("member2", 3), ("member3", 10)];
    let world = FleetWorld::start("saturated", &rooms).await;
    // The second is declared elastic, and never adds nodes.
    let elastic = json!([{
        "targetCluster": { "clusterNames": ["member2"] }, "elastic": true,
    }]);
    let assignment = |policy: &str| {
        json!({
            "federatedHPAAssignmentType": policy,
            "clusterAutoscalingPreference": elastic,
        })
    };
    let more = json!({ "federatedHPAAssignment": assignment("DynamicWeighted") });
    world
        .load
        .locally(&[("member1", 1.0), ("member2", 1.0), ("member3", 1.0)]);
    world.ask("DynamicWeighted", (3, 12), &more).await;
    let controller = world.run();
    // The FederatedHPA is created first, and takes effect when the target exists.
    world.condition("Assigned", "False/NoCandidate").await;
    for (member, _) in rooms {
        world.reason(member, "TargetAbsent").await;
    }
    world.deploy_everywhere(1).await;
    // 12 over 10:12:10 is 3.75, 4.5, 3.75; 3 is 0.94, 1.13, 0.94.
    let start = [
        ("member1", (1, 4)),
        ("member2", (2, 5)),
        ("member3", (1, 3)),
    ];
    world.assigned("by capacity", &start).await;

    // The second requests five and has nodes for three; then the first requests more than its maximum.
    let asked = world.watch("member2").await;
    world
        .load
        .locally(&[("member1", 1.0), ("member2", 5.0), ("member3", 1.0)]);
    // Budget without nodes is released soon.
    world
        .runs_so("pods without a node", |found| {
            found["member2"].1 == 3 && asked.all().contains(&5)
        })
        .await;
    world
        .load
        .locally(&[("member1", 9.0), ("member2", 5.0), ("member3", 1.0)]);
    let found = world
        .bounds_are("the first has all that others do not use", |found| {
            (
                most(found, "member1"),
                most(found, "member2"),
                most(found, "member3"),
            ) == (8, 3, 1)
        })
        .await;
    assert_eq!(all(&found), 12);
    world
        .runs(
            "eight in the first",
            &[("member1", 8), ("member2", 3), ("member3", 1)],
        )
        .await;

    // The demand moves, and the budget follows.
    world
        .load
        .locally(&[("member1", 1.0), ("member2", 5.0), ("member3", 7.0)]);
    world
        .runs_so("seven in the third", |found| {
            found["member3"].1 >= 7 && found["member1"].0 <= 2 && found["member2"] == (3, 3)
        })
        .await;
    world
        .bounds_are("all that is there, after every move", |found| {
            all(found) == 12
        })
        .await;

    // As few clusters as possible: the second proved to be small, so it has nothing; the third has little until it
    // needs more.
    world.load.locally(&[("member1", 1.0), ("member3", 1.0)]);
    // Demand from earlier samples would draw budget as soon as it is divided.
    world
        .runs_so("all idle", |found| {
            found["member1"].0 <= 2 && found["member3"] == (1, 1)
        })
        .await;
    world
        .edit(json!({ "federatedHPAAssignment": assignment("Aggregated") }))
        .await;
    world
        .assigned("by size", &[("member1", (3, 10)), ("member3", (1, 2))])
        .await;
    world.load.locally(&[("member1", 1.0), ("member3", 6.0)]);
    world
        .bounds_are("the third has what it needs", |found| {
            most(found, "member3") == 6 && all(found) == 12
        })
        .await;
    world
        .runs("six in the third", &[("member2", 0), ("member3", 6)])
        .await;

    // Pods that are there already would not be refused.
    world
        .runs_so("few in the first", |found| found["member1"].0 <= 3)
        .await;
    pods_that_cannot_be_created_overflow(&world).await;
    drop(controller);
    world.assert_nothing_forbidden();
}

/// The first has nodes for ten and a quota for four: the replicas beyond go to the third.
async fn pods_that_cannot_be_created_overflow(world: &FleetWorld) {
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": { "name": "few", "namespace": NAMESPACE },
        "spec": { "hard": { "pods": "4", "configmaps": "0" } },
    });
    let first = world.cluster("member1");
    first.apply(&quota.to_string()).await.unwrap();
    // The API server counts with a quota a little after it has stored it.
    let maps: Api<ConfigMap> = Api::namespaced(first.client(), NAMESPACE);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually(TIMEOUT, "the quota counts", || async {
        let one: ConfigMap =
            serde_json::from_value(json!({ "metadata": { "name": "one" } })).unwrap();
        match maps.create(&dry_run, &one).await {
            Err(kube::Error::Api(no)) if no.message.contains("exceeded quota") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let asked = world.watch("member1").await;
    world.load.locally(&[("member1", 6.0), ("member3", 6.0)]);
    let events: Api<Event> = Api::namespaced(first.client(), NAMESPACE);
    eventually(TIMEOUT, "pods cannot be created", || async {
        let all = events.list(&ListParams::default()).await;
        let mut all = all.map_err(|no| no.to_string())?.into_iter();
        let refused = all.any(|event| {
            let message = event.message.unwrap_or_default();
            event.reason.as_deref() == Some("FailedCreate") && message.contains("exceeded quota")
        });
        if refused {
            Ok(())
        } else {
            Err(format!("{:?}", asked.all()))
        }
    })
    .await;
    world.event("Blocked", "member1").await;
    world
        .bounds_are("what four leave is the third's", |found| {
            (most(found, "member1"), most(found, "member3")) == (4, 8)
        })
        .await;
    assert_eq!(asked.all().into_iter().max(), Some(6));
    world.load.locally(&[("member1", 6.0), ("member3", 7.8)]);
    let runs = [("member1", 4), ("member3", 8)];
    world.runs("eight in the third", &runs).await;
}
