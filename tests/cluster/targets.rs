//! Supported targets: the kinds of apps/v1 and any kind with a scale subresource; the messages for others; and that
//! `deploy/` grants exactly the permissions needed.

use std::collections::BTreeSet;

use foretide::clock::Clock;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use rig::{ClusterOptions, FakeMetrics, MetricsApi, Reading, eventually};
use serde_json::{Value, json};

use crate::{
    manual_changes::{
        delete, demand_replicas, deployment, edit, ehpa, queue_metrics, wait_until_deleted, written,
    },
    permissions::{granted, used},
    world::{NAMESPACE, TIMEOUT, World},
};

/// A definition with or without a scale subresource.
fn definition(kind: &str, plural: &str, scales: bool) -> Value {
    let mut version = json!({
        "name": "v1",
        "served": true,
        "storage": true,
        "schema": { "openAPIV3Schema": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
        } },
    });
    version["subresources"] = if scales {
        json!({ "status": {}, "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        } })
    } else {
        json!({ "status": {} })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural },
            "versions": [version],
        },
    })
}

fn custom(kind: &str, name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": kind,
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "replicas": replicas },
    })
}

/// The rule that the documentation gives for kinds of another group, filled in for this kind.
fn documented_rule(group: &str, plural: &str) -> String {
    let readme = include_str!("../../deploy/README.md");
    let mut blocks = readme
        .split("```yaml")
        .filter_map(|rest| rest.split("```").next());
    let block = blocks
        .find(|block| block.contains("rollouts/scale"))
        .unwrap();
    block
        .replace("argoproj.io", group)
        .replace("rollouts", plural)
}

async fn reaches(api: &Api<DynamicObject>, name: &str, replicas: i64) {
    eventually(
        TIMEOUT,
        &format!("{name} has {replicas} replicas"),
        || async {
            let object = api.get(name).await.map_err(|error| error.to_string())?;
            let now = object.data["spec"]["replicas"].as_i64();
            if now == Some(replicas) {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_kind_with_a_scale_subresource_is_scaled_and_others_report_the_reason() {
    let world = World::start(ClusterOptions::named("targets")).await;
    let metrics = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    demand_replicas(&metrics, 5);
    world
        .apply(&definition("Widget", "widgets", true).to_string())
        .await;
    world
        .apply(&definition("Gadget", "gadgets", false).to_string())
        .await;
    world
        .apply(&custom("Widget", "widget", 3).to_string())
        .await;
    world
        .apply(&custom("Gadget", "gadget", 3).to_string())
        .await;
    let widgets = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let widgets: Api<DynamicObject> = Api::namespaced_with(
        world.client.clone(),
        NAMESPACE,
        &ApiResource::from_gvk(&widgets),
    );
    let status = json!({ "status": { "replicas": 3, "selector": "app=widget" } });
    let status = Patch::Merge(status);
    widgets
        .patch_status("widget", &PatchParams::default(), &status)
        .await
        .unwrap();
    let direct = json!({ "mode": "Direct", "metrics": queue_metrics() });
    for kind in ["Widget", "Gadget", "Gizmo"] {
        let target = ("example.com/v1", kind, &*kind.to_lowercase());
        world
            .apply(&ehpa(target, (1, 8), &direct).to_string())
            .await;
    }
    world
        .apply(&ehpa(deployment("late"), (1, 8), &direct).to_string())
        .await;
    let controller = world.run(world.config(), Clock::system());

    // Each status names what is missing, and nothing is written.
    let expected = [
        ("widget", "cannot get resource \"widgets/scale\""),
        (
            "gadget",
            "Gadget of example.com/v1 is not a namespaced kind with a scale subresource",
        ),
        (
            "gizmo",
            "the cluster has no kind Gizmo in example.com/v1; correct scaleTargetRef or install its CRD",
        ),
        ("late", "not found"),
    ];
    for (name, words) in expected {
        world
            .condition_says(name, "Ready", "False/FailedGetScale", words)
            .await;
        world
            .condition(name, "AbleToScale", "False/FailedGetScale")
            .await;
    }
    controller.further_syncs(2).await;
    let wrote: BTreeSet<String> = world.writes().iter().map(written).collect();
    let allowed = ["effectivehorizontalpodautoscalers/status", "events"].map(str::to_owned);
    assert_eq!(wrote, BTreeSet::from(allowed));
    let events = world
        .writes()
        .into_iter()
        .filter(|event| event.resource == "events" && event.wrote());
    assert_eq!(events.count(), 4, "each problem is reported once");

    // With the documented rule, the custom resource is scaled by Direct and by a child.
    world
        .apply(&documented_rule("example.com", "widgets"))
        .await;
    reaches(&widgets, "widget", 5).await;
    world.condition("widget", "Ready", "True/Decided").await;
    edit(
        &world.ehpas(),
        "widget",
        json!({ "spec": { "mode": "Delegated" } }),
    )
    .await;
    eventually(TIMEOUT, "there is a child", || async {
        world.hpas().get("ehpa-widget").await
    })
    .await;
    demand_replicas(&metrics, 7);
    reaches(&widgets, "widget", 7).await;

    // A target created later is scaled from then on; one created again is treated as new.
    world.deployment("late", 4, "20m").await;
    world.ready("late", "7", |count| count == 7).await;
    world.condition("late", "Ready", "True/Decided").await;
    delete(&world.deployments(), "late").await;
    wait_until_deleted(&world.deployments(), "late").await;
    world
        .condition("late", "Ready", "False/FailedGetScale")
        .await;
    demand_replicas(&metrics, 3);
    world.deployment("late", 2, "20m").await;
    world.ready("late", "3", |count| count == 3).await;
    world.condition("late", "Ready", "True/Decided").await;
    drop(controller);

    // Only requests that the rule then allowed were denied.
    let refused = world
        .requests()
        .into_iter()
        .filter(|event| event.code == 403);
    let refused: BTreeSet<String> = refused.map(|event| written(&event)).collect();
    assert_eq!(refused, BTreeSet::from(["widgets/scale".to_owned()]));
}

fn workload(kind: &str, name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_permission_granted_by_deploy_is_used_and_none_is_missing() {
    let world = World::start(ClusterOptions::named("permissions")).await;
    let all = [
        MetricsApi::Resource,
        MetricsApi::Custom,
        MetricsApi::External,
    ];
    let metrics = FakeMetrics::start(&world.cluster, &all).await.unwrap();
    demand_replicas(&metrics, 5);
    metrics.set_object_metric(NAMESPACE, ("services", "front"), "hits", Reading::new("40"));
    let hits = json!([{ "type": "Object", "object": {
        "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "front" },
        "metric": { "name": "hits" },
        "target": { "type": "AverageValue", "averageValue": "10" },
    } }]);
    let window = json!([{
        "name": "always", "start": "0 0 1 1 *", "end": "59 23 31 12 *", "targetReplicas": 6,
    }]);
    let mut both = queue_metrics();
    both.as_array_mut()
        .unwrap()
        .push(json!({ "type": "Resource", "resource": {
        "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } }));
    world
        .apply(&workload("StatefulSet", "db", 3).to_string())
        .await;
    world
        .apply(&workload("ReplicaSet", "cache", 3).to_string())
        .await;
    world.deployment("batch", 3, "20m").await;
    world.deployment("shop", 3, "20m").await;
    let direct = json!({ "mode": "Direct", "metrics": queue_metrics() });
    world
        .apply(&ehpa(("apps/v1", "StatefulSet", "db"), (1, 8), &direct).to_string())
        .await;
    let direct = json!({ "mode": "Direct", "metrics": hits });
    world
        .apply(&ehpa(("apps/v1", "ReplicaSet", "cache"), (1, 8), &direct).to_string())
        .await;
    world
        .apply(&ehpa(deployment("batch"), (1, 8), &json!({ "crons": window })).to_string())
        .await;
    let more = json!({ "metrics": both, "prediction": {} });
    world
        .apply(&ehpa(deployment("shop"), (1, 8), &more).to_string())
        .await;

    // Half a year from the one minute of the year in which no window is open.
    let summer = "2026-07-01T12:00:00Z".parse().unwrap();
    let controller = world.run(world.config(), Clock::starting_at(summer, 1.0));
    for (name, replicas) in [("db", 5), ("cache", 4), ("batch", 6), ("shop", 5)] {
        world.decides(name, replicas).await;
    }
    world.ready("batch", "6", |count| count == 6).await;
    world.ready("shop", "5", |count| count == 5).await;
    eventually(
        TIMEOUT,
        "the StatefulSet and the ReplicaSet are scaled",
        || async {
            let scaled = |kind: &'static str, name: &'static str| async {
                let gvk = GroupVersionKind::gvk("apps", "v1", kind);
                let resource = ApiResource::from_gvk(&gvk);
                let api = Api::<DynamicObject>::namespaced_with(
                    world.client.clone(),
                    NAMESPACE,
                    &resource,
                );
                api.get(name).await.unwrap().data["status"]["readyReplicas"].as_i64()
            };
            let seen = (
                scaled("StatefulSet", "db").await,
                scaled("ReplicaSet", "cache").await,
            );
            if seen == (Some(5), Some(4)) {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        },
    )
    .await;
    let predictions =
        GroupVersionKind::gvk("prediction.crane.io", "v1alpha1", "TimeSeriesPrediction");
    let predictions: Api<DynamicObject> = Api::namespaced_with(
        world.client.clone(),
        NAMESPACE,
        &ApiResource::from_gvk(&predictions),
    );
    eventually(TIMEOUT, "there is a prediction", || {
        predictions.get("ehpa-shop")
    })
    .await;
    let patch = json!({ "spec": { "prediction": null, "scaleStrategy": "Preview" } });
    edit(&world.ehpas(), "shop", patch).await;
    wait_until_deleted(&world.hpas(), "ehpa-shop").await;
    eventually(TIMEOUT, "the prediction is gone", || async {
        let found = predictions.get_opt("ehpa-shop").await.unwrap();
        if found.is_none() {
            Ok(())
        } else {
            Err("it is there")
        }
    })
    .await;
    drop(controller);

    world.assert_nothing_forbidden();
    let granted = granted(include_str!("../../deploy/20-controller-rbac.yaml"));
    let used = used(&world.requests(), &granted);
    assert_eq!(used, granted);
}
