//! The sources of members: the hub itself is one, and a cluster of a `ClusterProfile` is another. All kinds of
//! workload are placed and scaled there, so that every granted permission is used.

use std::collections::BTreeSet;

use foretide::clock::Clock;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use rig::{FakeMetrics, MetricsApi, Reading, eventually};
use serde_json::{Value, json};

use super::world::{FleetWorld, HOME, SHOP, SYSTEM, shop, with_preferences};
use crate::{
    manual_changes::{QUEUE, delete, demand_replicas, edit, queue_metrics, wait_until_deleted},
    permissions::{granted, used},
    world::{NAMESPACE, TIMEOUT},
};

/// The member described by a profile, and the profile.
const EAST: &str = "east";
/// The definition of `ClusterProfile`, with the fields that we read.
const DEFINITION: &str = include_str!("clusterprofiles.yaml");

/// All objects of one kind in the hub.
fn objects(world: &FleetWorld, namespace: &str, kind: [&str; 3]) -> Api<DynamicObject> {
    let [group, version, kind] = kind;
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk(&kind);
    Api::namespaced_with(world.fleet.hub.client(), namespace, &resource)
}

fn profiles(world: &FleetWorld) -> Api<DynamicObject> {
    let kind = ["multicluster.x-k8s.io", "v1alpha1", "ClusterProfile"];
    objects(world, SYSTEM, kind)
}

fn secrets(world: &FleetWorld) -> Api<Secret> {
    Api::namespaced(world.fleet.hub.client(), SYSTEM)
}

/// Creates the profile of the member and its access Secret, as a cluster manager does.
async fn describe(world: &FleetWorld, class: &str) {
    let profile = json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": { "name": EAST, "namespace": SYSTEM, "labels": { "fleet": "shops" } },
        "spec": { "displayName": EAST, "clusterManager": { "name": "by-hand" } },
    });
    world.fleet.hub.apply(&profile.to_string()).await.unwrap();
    classify(world, class).await;
}

/// Sets the property `class` of the profile.
async fn classify(world: &FleetWorld, class: &str) {
    let properties = json!([{ "name": "class", "value": class }]);
    report(world, json!({ "properties": properties })).await;
}

/// Sets the condition `ControlPlaneHealthy` of the profile.
async fn report_health(world: &FleetWorld, healthy: &str) {
    let condition = json!({
        "type": "ControlPlaneHealthy",
        "status": healthy,
        "reason": "Asked",
        "message": "",
        "lastTransitionTime": Clock::system().now(),
    });
    report(world, json!({ "conditions": [condition] })).await;
}

/// Patches fields of the profile's status.
async fn report(world: &FleetWorld, fields: Value) {
    let patch = json!({ "status": fields });
    profiles(world)
        .patch_status(EAST, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Joins the member as usual, and then hands its Secret over to the profile.
async fn hand_over_to_a_profile(world: &FleetWorld) {
    world.join(EAST, &["--place"]).await;
    let secret = secrets(world).get(EAST).await.unwrap();
    let kubeconfig = &secret.data.unwrap()["kubeconfig"];
    let access = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "access-to-east", "namespace": SYSTEM, "labels": {
            "x-k8s.io/cluster-profile": EAST,
            "x-k8s.io/cluster-inventory-consumer": "foretide",
        } },
        "data": { "Config": kubeconfig },
    });
    world.fleet.hub.apply(&access.to_string()).await.unwrap();
    delete(&secrets(world), EAST).await;
}

/// A small workload of another kind, in the hub.
fn workload(kind: &str, name: &str) -> Value {
    let mut manifest = shop(Some(1));
    manifest["kind"] = json!(kind);
    manifest["metadata"]["name"] = json!(name);
    let labels = json!({ "app": name });
    manifest["spec"]["selector"]["matchLabels"] = labels.clone();
    manifest["spec"]["template"]["metadata"]["labels"] = labels;
    let requests = json!({ "requests": { "cpu": "1m" } });
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = requests;
    manifest
}

/// A fleet over all members of the class, whose workloads the hub places.
fn fleet(kind: &str, name: &str, metrics: &Value, scope: &str) -> Value {
    json!({
        "apiVersion": "autoscaling.foretide.io/v1alpha1",
        "kind": "FederatedHPA",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": kind, "name": name },
            "minReplicas": 2,
            "maxReplicas": 12,
            "mode": "Direct",
            "workloadSource": "Hub",
            "metrics": metrics,
            "metricScope": [{ "metric": scope, "scope": "Member" }],
            "behavior": { "scaleDown": { "stabilizationWindowSeconds": 4 } },
            "rebalance": { "cooldownSeconds": 3, "settleObservations": 2 },
            "clusterAffinity": of_the_class(),
            "federatedHPAAssignment": { "federatedHPAAssignmentType": "StaticWeighted" },
        },
    })
}

fn of_the_class() -> Value {
    json!({ "labelSelector": { "matchLabels": { "class": "shop" } } })
}

/// One replica for every ten hits on the front.
fn hits_metric() -> Value {
    json!([{ "type": "Object", "object": {
        "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "front" },
        "metric": { "name": "hits" },
        "target": { "type": "AverageValue", "averageValue": "10" },
    } }])
}

/// Serves the metrics without pods in every cluster: 20 each.
async fn other_metrics(world: &FleetWorld) -> Vec<FakeMetrics> {
    let mut all = Vec::new();
    for (_, cluster) in world.clusters() {
        let apis = [MetricsApi::Custom, MetricsApi::External];
        let metrics = FakeMetrics::start(cluster, &apis).await.unwrap();
        demand_replicas(&metrics, 2);
        metrics.set_object_metric(NAMESPACE, ("services", "front"), "hits", Reading::new("20"));
        all.push(metrics);
    }
    all
}

/// Requested and ready replicas of a workload of another kind.
async fn counts(world: &FleetWorld, member: &str, (kind, name): (&str, &str)) -> [Option<i64>; 2] {
    let kind = GroupVersionKind::gvk("apps", "v1", kind);
    let client = world.cluster(member).client();
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, NAMESPACE, &ApiResource::from_gvk(&kind));
    let found = api.get_opt(name).await.unwrap();
    let count = |pointer| found.as_ref()?.data.pointer(pointer)?.as_i64();
    [count("/spec/replicas"), count("/status/readyReplicas")]
}

/// Waits until a workload has this number of requested and ready replicas in a member, or does not exist.
async fn others_run(world: &FleetWorld, member: &str, wanted: Option<i64>) {
    for of in [("StatefulSet", "db"), ("ReplicaSet", "cache")] {
        let what = format!("{of:?} has {wanted:?} in {member}");
        eventually(TIMEOUT, &what, || async {
            match counts(world, member, of).await {
                found if found == [wanted; 2] => Ok(()),
                found => Err(format!("{found:?}")),
            }
        })
        .await;
    }
}

/// Waits until the members run the load between them, with all pods ready.
async fn serve(world: &FleetWorld, wanted: std::ops::RangeInclusive<i32>, idle: Option<&str>) {
    world
        .runs_so(&format!("{wanted:?} without {idle:?}"), |found| {
            let busy = found.iter().filter(|(name, _)| Some(name.as_str()) != idle);
            let busy: Vec<_> = busy.map(|(_, counts)| *counts).collect();
            let all: i32 = busy.iter().map(|(asked, _)| asked).sum();
            let each = busy
                .iter()
                .all(|(asked, ready)| asked == ready && *asked > 0);
            wanted.contains(&all) && each && idle.is_none_or(|idle| found[idle].1 <= 0)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_and_a_cluster_profile_are_members_and_every_permission_is_used() {
    let world = FleetWorld::start_at_home("inventory", 20, &[(EAST, 20)]).await;
    let hub = &world.fleet.hub;
    hub.apply(DEFINITION).await.unwrap();
    let metrics = other_metrics(&world).await;
    // The hub's own workloads are never placed.
    world.join(HOME, &[]).await;
    let class = json!({ "metadata": { "labels": { "class": "shop" } } });
    edit(&secrets(&world), HOME, class).await;
    hand_over_to_a_profile(&world).await;
    describe(&world, "shop").await;

    // One template of each kind, each with a fleet: one is Delegated, two are Direct.
    hub.apply(&shop(Some(1)).to_string()).await.unwrap();
    for (kind, name) in [("StatefulSet", "db"), ("ReplicaSet", "cache")] {
        hub.apply(&workload(kind, name).to_string()).await.unwrap();
    }
    world.load.evenly(6.0);
    let queue = fleet(
        "StatefulSet",
        "db",
        &queue_metrics(),
        &format!("external.{QUEUE}"),
    );
    let hits = fleet("ReplicaSet", "cache", &hits_metric(), "object.hits");
    for fleet in [queue, hits] {
        hub.apply(&fleet.to_string()).await.unwrap();
    }
    let weights = with_preferences("StaticWeighted", "staticWeight", &[(HOME, 1), (EAST, 1)]);
    let more = json!({
        "workloadSource": "Hub",
        "clusterAffinity": of_the_class(),
        "federatedHPAAssignment": weights,
    });
    world.ask("StaticWeighted", (4, 16), &more).await;
    let controller = world.run();
    let halves = [(EAST, 8), (HOME, 8)];
    world.capped("halves", &halves).await;
    serve(&world, 6..=8, None).await;
    // 40 together.
    others_run(&world, HOME, Some(2)).await;
    others_run(&world, EAST, Some(2)).await;

    // The hub's workload is the template: a new version is rolled out, and its count is its own.
    let templates: Api<Deployment> = Api::namespaced(hub.client(), NAMESPACE);
    let template = templates.get(SHOP).await.unwrap();
    let newer = json!({ "metadata": { "labels": { "version": "2" } } });
    edit(&templates, SHOP, newer).await;
    world.load.evenly(9.0);
    serve(&world, 9..=11, None).await;
    eventually(TIMEOUT, "the label is placed", || async {
        let found = world.deployments(EAST).get(SHOP).await.unwrap();
        let label = found.labels().get("version").cloned();
        label.filter(|label| label == "2").ok_or("not yet")
    })
    .await;

    // The cluster manager reports the cluster as unhealthy: it keeps its state, and the fleet reports it.
    world.edit(json!({ "tolerationSeconds": 0 })).await;
    report_health(&world, "False").await;
    world
        .condition("MembersReachable", "False/Unreachable")
        .await;
    world.reason(EAST, "Failed").await;
    report_health(&world, "True").await;
    world.condition("MembersReachable", "True/Reachable").await;
    world.edit(json!({ "tolerationSeconds": null })).await;
    world.capped("halves as before", &halves).await;

    // A property of the profile changes: the member is no longer selected, and everything there is removed.
    classify(&world, "other").await;
    world.capped("the hub alone", &[(HOME, 16)]).await;
    serve(&world, 9..=11, Some(EAST)).await;
    wait_until_deleted(&world.deployments(EAST), SHOP).await;
    others_run(&world, EAST, None).await;
    others_run(&world, HOME, Some(2)).await;
    classify(&world, "shop").await;
    world.capped("halves again", &halves).await;
    serve(&world, 9..=11, None).await;
    others_run(&world, EAST, Some(2)).await;

    // The hub is no longer selected: its workload is drained, and stays as the template.
    world
        .edit(json!({ "clusterAffinity": { "exclude": [HOME] } }))
        .await;
    world.capped("the other alone", &[(EAST, 16)]).await;
    serve(&world, 9..=11, Some(HOME)).await;
    controller.further_syncs(3).await;
    let drained = templates.get(SHOP).await.unwrap();
    assert_eq!(drained.uid(), template.uid());
    assert_eq!(drained.spec.unwrap().replicas, Some(0));
    world
        .edit(json!({ "clusterAffinity": { "exclude": null } }))
        .await;
    world.capped("both again", &halves).await;
    serve(&world, 9..=11, None).await;

    // The profile is deleted: nothing moves, until somebody removes the member.
    delete(&profiles(&world), EAST).await;
    world.noted(EAST, "ts Secret is missing", true).await;
    controller.further_syncs(2).await;
    world.capped("halves without the profile", &halves).await;
    world.load.evenly(12.0);
    serve(&world, 11..=14, None).await;
    world.remove(EAST).await;
    world.capped("the hub has all", &[(HOME, 16)]).await;
    let named = world
        .status("one cluster", |status| {
            let all = status["clusters"].as_array()?;
            let names: Vec<_> = all.iter().map(|one| one["name"].clone()).collect();
            (names.len() == 1).then_some(names)
        })
        .await;
    assert_eq!(named, [json!(HOME)]);
    wait_until_deleted(&world.deployments(EAST), SHOP).await;
    others_run(&world, EAST, None).await;
    // When the profile is created again, the member is back.
    describe(&world, "shop").await;
    world.capped("both again at the end", &halves).await;
    serve(&world, 11..=14, None).await;
    for name in [SHOP, "db", "cache"] {
        delete(&world.federated(), name).await;
        wait_until_deleted(&world.federated(), name).await;
    }
    assert_eq!(world.bounds().await.len(), 0);
    serve(&world, 11..=14, None).await;
    drop(controller);
    drop(metrics);

    // No request was denied, and every granted permission was used.
    world.assert_nothing_forbidden();
    let of_fleets = granted(include_str!("../../../deploy/22-members-rbac.yaml"));
    let asked = used(&world.hub_requests(), &of_fleets);
    let idle: BTreeSet<_> = of_fleets.difference(&asked).collect();
    assert_eq!(idle, BTreeSet::new(), "of the hub");
    let [plain, placing] = [&[][..], &["--place"]].map(|more| world.join_manifests(EAST, more));
    let (plain, placing) = (granted(&plain.await), granted(&placing.await));
    let at_home = used(&world.member_requests(HOME), &plain);
    let in_the_east = used(&world.member_requests(EAST), &placing);
    let more: BTreeSet<_> = at_home.difference(&plain).collect();
    assert_eq!(more, BTreeSet::new(), "at home");
    let all: BTreeSet<_> = at_home.union(&in_the_east).cloned().collect();
    assert_eq!(all, placing);
}
