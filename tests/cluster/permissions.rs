//! The granted permissions of `deploy/` are the used ones, by the audit log of a real API server: every kind of target,
//! metric and object in one cluster, and the roles that the documentation gives for kinds of other groups, for the
//! rules of prometheus-adapter and for readers of metrics.

use std::collections::BTreeSet;

use foretide::config::{AdapterConfigSource, Config};
use foretide_api::ports::HistoryServer;
use foretide_base::clock::Clock;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use rig::{
    AuditEvent, ClusterOptions, FakeMetrics, History, MetricsApi, Prometheus, Reading, Series,
    eventually,
};
use serde_json::{Value, json};

use crate::{
    manual_changes::{
        demand_replicas, deployment, edit, ehpa, queue_metrics, wait_until_deleted, written,
    },
    metrics_access,
    world::{Controller, NAMESPACE, TIMEOUT, World, four_days},
};

/// One permission: verb, group, and resource with its subresource.
pub(crate) type Permission = (String, String, String);

/// The permissions that the roles among these manifests grant.
pub(crate) fn granted(yaml: &str) -> BTreeSet<Permission> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let roles = documents
        .iter()
        .filter(|one| one["kind"] == "ClusterRole" || one["kind"] == "Role");
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        serde_json::from_value(rule[field].clone()).unwrap()
    };
    let mut permissions = BTreeSet::new();
    let all = roles.flat_map(|role| role["rules"].as_array().unwrap());
    // Rules without resources are about other paths.
    for rule in all.filter(|rule| rule.get("resources").is_some()) {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                let verbs = texts(rule, "verbs").into_iter();
                permissions.extend(verbs.map(|verb| (verb, group.clone(), resource.clone())));
            }
        }
    }
    permissions
}

/// The permissions that these requests used.
pub(crate) fn used(
    requests: &[AuditEvent],
    granted: &BTreeSet<Permission>,
) -> BTreeSet<Permission> {
    let of_objects = requests.iter().filter(|event| !event.resource.is_empty());
    of_objects
        .flat_map(|event| needed(event, granted))
        .collect()
}

/// The permissions that a request used.
///
/// A server-side apply that creates an object needs `create` besides `patch`; the log then has response 201. Where all
/// resources of a group are granted, their names are metrics.
fn needed(event: &AuditEvent, granted: &BTreeSet<Permission>) -> Vec<Permission> {
    let any = |verb: &str| (verb.to_owned(), event.group.clone(), "*".to_owned());
    let right = |verb: &str| {
        if granted.contains(&any(verb)) {
            any(verb)
        } else {
            (verb.to_owned(), event.group.clone(), written(event))
        }
    };
    let made = event.verb == "patch" && event.code == 201;
    let made = made.then(|| right("create"));
    made.into_iter().chain([right(&event.verb)]).collect()
}

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
    let page = include_str!("../../docs/targets.md");
    let mut blocks = page
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

/// The role that `docs/forecasting.md` says to add, for this config map.
const RULES_READER: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: foretide-prometheus-adapter-rules, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [adapter-config], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: foretide-prometheus-adapter-rules, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: foretide-prometheus-adapter-rules}
subjects: [{kind: ServiceAccount, name: foretide-controller, namespace: foretide-system}]
"#;

/// The rules that the adapter's Helm chart installs for metrics other than container metrics.
const RULES: &str = r#"
rules:
- seriesQuery: '{namespace!="",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: .*_total$}]
  resources: {template: <<.Resource>>}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: '{namespace!="",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: .*_seconds_total}]
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)
"#;

/// The forecast's replicas and value.
fn forecast(status: &Value) -> Option<(i64, f64)> {
    let proposals = status.get("decision")?.get("proposals")?.as_array()?;
    let forecast = proposals.iter().find(|it| it["source"] == "forecast")?;
    let value = forecast.get("value")?.as_str()?;
    Some((forecast.get("replicas")?.as_i64()?, value.parse().ok()?))
}

/// The autoscaler of a custom metric that is forecast by the rules of the adapter: 30 and 12 requests per second, beside
/// those of a target with a similar name and of a neighbor.
async fn prepare_rules(world: &World) -> Prometheus {
    let span = four_days(Clock::system().now());
    let requests = |namespace: &str, pod: &str, rate: f64| {
        let labels = [("namespace", namespace), ("pod", pod), ("verb", "GET")];
        Series::of(&labels, span, move |at| (at - span.start) * rate)
    };
    let history = [
        (NAMESPACE, "web-6d5f8c9b7d-x2v9k", 30.0),
        (NAMESPACE, "web-6d5f8c9b7d-b7k4q", 12.0),
        (NAMESPACE, "web-admin-6d5f8c9b7d-b7k4q", 500.0),
        ("other", "web-6d5f8c9b7d-x2v9k", 900.0),
    ];
    let history = history
        .into_iter()
        .fold(History::new(), |all, (namespace, pod, rate)| {
            all.counter("http_requests_total", requests(namespace, pod, rate))
        });
    world.apply(RULES_READER).await;
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "adapter-config", "namespace": NAMESPACE },
        "data": { "config.yaml": RULES },
    });
    world.apply(&config_map.to_string()).await;
    world.deployment("web", 1, "20m").await;
    let metric = json!([{ "type": "Pods", "pods": {
        "metric": { "name": "http_requests" },
        "target": { "type": "AverageValue", "averageValue": "10" },
    } }]);
    let algorithm = json!({ "algorithmType": "dsp", "dsp": { "sampleInterval": "60s", "historyLength": "2d" } });
    let more = json!({
        "scaleStrategy": "Preview",
        "metrics": metric,
        "prediction": { "predictionWindowSeconds": 3600, "predictionAlgorithm": algorithm },
    });
    let web = ehpa(deployment("web"), (1, 20), &more);
    world.apply(&web.to_string()).await;
    Prometheus::start(&history).await.unwrap()
}

/// Autoscalers of each kind of target and of metric, with these targets and counts.
async fn prepare_targets(world: &World, metrics: &FakeMetrics) {
    demand_replicas(metrics, 5);
    metrics.set_object_metric(NAMESPACE, ("services", "front"), "hits", Reading::new("40"));
    let hits = json!([{ "type": "Object", "object": {
        "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "front" },
        "metric": { "name": "hits" },
        "target": { "type": "AverageValue", "averageValue": "10" },
    } }]);
    // Open since the last full minute, until the next new year.
    let window = json!([{
        "name": "always", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": 6,
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
}

/// Autoscalers of kinds of another group, with and without a scale subresource; returns the objects of the one with it.
async fn prepare_kinds(world: &World) -> Api<DynamicObject> {
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
    widgets
}

/// Checks that each status names the missing permission; with the documented rule the kind is scaled, by Direct and by
/// a child.
async fn any_kind_with_a_scale_subresource_is_scaled(
    world: &World,
    metrics: &FakeMetrics,
    widgets: &Api<DynamicObject>,
) {
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
    ];
    for (name, words) in expected {
        world
            .condition_says(name, "Ready", "False/FailedGetScale", words)
            .await;
        world
            .condition(name, "AbleToScale", "False/FailedGetScale")
            .await;
    }
    world
        .apply(&documented_rule("example.com", "widgets"))
        .await;
    reaches(widgets, "widget", 5).await;
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
    demand_replicas(metrics, 7);
    reaches(widgets, "widget", 7).await;
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
    prepare_targets(&world, &metrics).await;
    let widgets = prepare_kinds(&world).await;
    let prometheus = prepare_rules(&world).await;
    let config = Config {
        prometheus: Some(HistoryServer::at(&prometheus.url()).unwrap()),
        adapter_config: Some(AdapterConfigSource::ConfigMap {
            namespace: NAMESPACE.to_owned(),
            name: "adapter-config".to_owned(),
            key: "config.yaml".to_owned(),
        }),
        ..world.config()
    };
    let controller = Controller::run(config);
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
    let of_the_rules = |status: &Value| {
        let (replicas, requests) = forecast(status)?;
        // 42 requests a second, ten for each replica.
        ((4..=5).contains(&replicas) && (requests - 42.0).abs() < 0.5).then_some(())
    };
    world
        .status("web", "a forecast by the rules", of_the_rules)
        .await;
    any_kind_with_a_scale_subresource_is_scaled(&world, &metrics, &widgets).await;
    drop(controller);

    let requests = world.requests();
    let refused = requests.iter().filter(|event| event.code == 403);
    let refused: BTreeSet<String> = refused.map(written).collect();
    assert_eq!(refused, BTreeSet::from(["widgets/scale".to_owned()]));
    let of_controller = granted(include_str!("../../deploy/20-controller-rbac.yaml"));
    let used_by_it = used(&requests, &of_controller);
    let more: BTreeSet<_> = used_by_it.difference(&of_controller).collect();
    let resources: BTreeSet<_> = more
        .iter()
        .map(|(_, _, resource)| resource.as_str())
        .collect();
    assert_eq!(resources, ["configmaps", "widgets/scale"].into());
    let unused = of_controller.difference(&used_by_it);
    // KEDA is not installed here: its objects are listed, and there is no such kind.
    let mut unused = unused.filter(|(_, _, resource)| resource != "scaledobjects");
    assert_eq!(unused.next(), None);
    metrics_access::metrics_are_for_accounts_with_the_role_and_tokens_of_the_audience(&world).await;
}
