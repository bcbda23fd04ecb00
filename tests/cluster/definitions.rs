//! The definitions in a real API server: the examples apply unchanged and are read back unchanged, invalid objects are
//! refused with helpful messages, the optional policy of `deploy/admission/` admits writes of an autoscaler only from
//! users who may update the scale of its target; and all writes of a controller for a preview.

use std::{collections::BTreeSet, path::PathBuf};

use http::Request;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    discovery::ApiResource,
};
use rig::{ClusterOptions, FakeMetrics, MetricsApi, eventually};
use serde_json::{Value, json};

use crate::{
    manual_changes::{
        delete, demand_replicas, deployment, ehpa, queue_metrics, wait_until_deleted, written,
    },
    world::{Controller, NAMESPACE, TIMEOUT, World},
};

const POLICY: &str = include_str!("../../deploy/admission/targets.yaml");

/// `author` writes autoscalers and fleets; `operator` also the scale of the Deployment `web`.
const USERS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author, namespace: default}
rules:
- {apiGroups: [autoscaling.crane.io], resources: [effectivehorizontalpodautoscalers], verbs: ["*"]}
- {apiGroups: [autoscaling.foretide.io], resources: [federatedhpas], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: default}
rules:
- {apiGroups: [apps], resources: [deployments/scale], resourceNames: [web], verbs: [update]}
- {apiGroups: [example.com], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: author}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}
"#;

/// The objects of one kind, as one user writes them.
struct Writer(Api<DynamicObject>);

impl Writer {
    fn new<K: Resource<DynamicType = ()>>(client: Client) -> Self {
        let resource = ApiResource::erase::<K>(&());
        Self(Api::namespaced_with(client, NAMESPACE, &resource))
    }

    /// Creates an object; the message of the API server if it refuses.
    async fn create(&self, object: &Value) -> Result<(), String> {
        let object = serde_json::from_value(object.clone()).unwrap();
        let created = self.0.create(&PostParams::default(), &object).await;
        created.map(drop).map_err(|error| refusal(&error))
    }

    /// Changes `web`; the message of the API server if it refuses.
    async fn patch(&self, patch: &Value) -> Result<(), String> {
        let patch = Patch::Merge(patch);
        let patched = self.0.patch("web", &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| refusal(&error))
    }
}

fn refusal(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => panic!("no response: {other}"),
    }
}

fn assert_refused(written: Result<(), String>, part: &str) {
    let Err(message) = written else {
        panic!("accepted, expected: {part}")
    };
    assert!(message.contains(part), "{message}");
}

fn fleet() -> Value {
    json!({
        "apiVersion": "autoscaling.foretide.io/v1alpha1",
        "kind": "FederatedHPA",
        "metadata": { "name": "web", "namespace": NAMESPACE },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "maxReplicas": 5,
        },
    })
}

/// Every document in `examples/`, by file.
fn examples() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let manifests = files.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    manifests
        .map(|path| {
            (
                path.display().to_string(),
                std::fs::read_to_string(path).unwrap(),
            )
        })
        .collect()
}

/// Sends a request like `kubectl create`: unknown fields are refused as well.
async fn create(world: &World, object: &Value) -> Result<Value, String> {
    let path = format!(
        "/apis/autoscaling.crane.io/v1alpha1/namespaces/{NAMESPACE}/effectivehorizontalpodautoscalers\
         ?fieldValidation=Strict"
    );
    let request = Request::post(path).header("Content-Type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    world
        .client
        .request(request)
        .await
        .map_err(|error| error.to_string())
}

/// Returns whether all that was written is stored unchanged; defaults are added to it.
fn contains(stored: &Value, written: &Value) -> bool {
    match (stored, written) {
        (Value::Object(stored), Value::Object(written)) => written.iter().all(|(name, value)| {
            let stored = stored.get(name);
            stored.is_some_and(|stored| contains(stored, value))
        }),
        (Value::Array(stored), Value::Array(written)) => {
            let pairs = stored.iter().zip(written);
            stored.len() == written.len() && pairs.into_iter().all(|(a, b)| contains(a, b))
        }
        (stored, written) => stored == written,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_accept_the_examples_refuse_mistakes_and_keep_targets_from_others() {
    let world = World::start(ClusterOptions::named("definitions")).await;
    examples_are_stored_as_they_are(&world).await;
    mistakes_are_refused(&world).await;
    who_may_not_scale_a_target_may_not_write_an_autoscaler_of_it(&world).await;
    a_preview_writes_only_reports(&world).await;
    world.assert_nothing_forbidden();
}

async fn examples_are_stored_as_they_are(world: &World) {
    let examples = examples();
    assert!(examples.len() >= 3, "{examples:?}");
    for (file, yaml) in examples {
        let written: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        let ours = written
            .iter()
            .filter(|object| object["kind"] == "EffectiveHorizontalPodAutoscaler");
        for object in ours {
            let name = object["metadata"]["name"].as_str().unwrap();
            let created = create(world, object).await.unwrap();
            let has = |stored: &Value| contains(stored, &object["spec"]);
            assert!(has(&created["spec"]), "{file}, created: {created}");
            delete(&world.ehpas(), name).await;
            wait_until_deleted(&world.ehpas(), name).await;
            world.apply(&object.to_string()).await;
            let read = world.ehpas().get(name).await.unwrap();
            let typed = serde_json::to_value(&read.spec).unwrap();
            assert!(has(&typed), "{file}, applied and read: {typed}");
            // Another example may have one of this name.
            delete(&world.ehpas(), name).await;
            wait_until_deleted(&world.ehpas(), name).await;
        }
    }
}

async fn mistakes_are_refused(world: &World) {
    let cron = |field: &str, value: Value| {
        let mut cron = json!({ "start": "0 9 * * *", "end": "0 18 * * *", "targetReplicas": 5 });
        cron[field] = value;
        json!({ "crons": [cron] })
    };
    let crons = ["a", "a"].map(|name| cron("name", json!(name))["crons"][0].clone());
    let refused = [
        (json!({ "minReplicas": 9 }), "exceed maxReplicas; lower min"),
        (json!({ "maxReplicas": 0 }), "must be between 1 and 10000"),
        (json!({ "specificReplicas": -1 }), "let Preview only watch"),
        (json!({ "scaleStrategy": "Manual" }), "supported values:"),
        (json!({ "maxReplica": 3 }), "field \"spec.maxReplica\""),
        (cron("start", json!("0 9 * *")), "has five fields"),
        (cron("end", json!("@every 1h")), "no fixed times of day"),
        (cron("end", Value::Null), "a cron needs start and end"),
        (json!({ "crons": crons }), "needs a name of its own"),
    ];
    for (fields, words) in refused {
        let object = ehpa(deployment("shop"), (1, 8), &fields);
        let answer = create(world, &object).await.unwrap_err();
        assert!(answer.contains(words), "{fields}: {answer}");
    }
}

async fn who_may_not_scale_a_target_may_not_write_an_autoscaler_of_it(world: &World) {
    world.apply(USERS).await;
    let author = world.cluster.client_as("author").await.unwrap();
    let operator = world.cluster.client_as("operator").await.unwrap();
    let ehpas = Writer::new::<foretide_crds::EffectiveHorizontalPodAutoscaler>;
    let fleets = Writer::new::<foretide_crds::FederatedHPA>;
    let (by_author, by_operator) = (ehpas(author.clone()), ehpas(operator.clone()));
    let of = |target| ehpa(target, (1, 5), &json!({}));

    // Without the policy every author may, once the API server has seen the roles.
    eventually(TIMEOUT, "an author writes autoscalers", || async {
        by_author.create(&of(deployment("before"))).await
    })
    .await;
    world.apply(POLICY).await;
    let cannot = "user author cannot update the scale of Deployment.apps default/web, which the object would scale";
    eventually(TIMEOUT, "the policy is in force", || async {
        let created = by_author.create(&of(deployment("web"))).await;
        match created {
            Err(message) if message.contains(cannot) => Ok(()),
            // The policy was not in force yet.
            Ok(()) => {
                world
                    .ehpas()
                    .delete("web", &DeleteParams::default())
                    .await
                    .unwrap();
                Err("accepted".to_owned())
            }
            Err(message) => Err(message),
        }
    })
    .await;
    by_operator.create(&of(deployment("web"))).await.unwrap();
    assert_refused(fleets(author).create(&fleet()).await, cannot);
    fleets(operator).create(&fleet()).await.unwrap();

    // Any change of the spec scales the target, and so do an adoption and a history query; other changes do not.
    let query = |text: Option<&str>| json!({ "metadata": { "annotations": { "metric-query.autoscaling.crane.io/resource.cpu": text } } });
    for patch in [
        query(Some("vector(1)")),
        query(Some("vector(2)")),
        query(None),
        json!({ "spec": { "minReplicas": 4 } }),
        json!({ "spec": { "mode": "Direct" } }),
        json!({ "metadata": { "annotations": { "autoscaling.foretide.io/adopt": "true" } } }),
    ] {
        assert_refused(by_author.patch(&patch).await, cannot);
        by_operator.patch(&patch).await.unwrap();
    }
    let team =
        json!({ "metadata": { "labels": { "team": "shop" }, "annotations": { "note": "a" } } });
    by_author.patch(&team).await.unwrap();

    // The permission is for one name, and a kind that the policy does not list is refused to all.
    let other = json!({ "spec": { "scaleTargetRef": { "name": "other" } } });
    assert_refused(
        by_operator.patch(&other).await,
        "Deployment.apps default/other",
    );
    let unlisted = of(("example.com/v1", "Deployment", "own"));
    assert_refused(
        by_operator.create(&unlisted).await,
        "spec.scaleTargetRef is Deployment.example.com, expected a kind that the ValidatingAdmissionPolicy",
    );
    let without_group = json!({ "spec": { "scaleTargetRef": { "apiVersion": null } } });
    assert_refused(
        by_operator.patch(&without_group).await,
        "spec.scaleTargetRef is Deployment, expected",
    );
}

/// A preview decides and forecasts; the controller cannot update scales, and needs no right to write statuses.
async fn a_preview_writes_only_reports(world: &World) {
    let metrics = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    demand_replicas(&metrics, 5);
    world.deployment("shop", 3, "20m").await;
    let more = json!({ "scaleStrategy": "Preview", "metrics": queue_metrics(), "prediction": {} });
    let preview = ehpa(deployment("shop"), (1, 8), &more);
    world.apply(&preview.to_string()).await;
    let controller = Controller::run(world.config());
    world.decides("shop", 5).await;
    world
        .status("web", "a condition", |status| {
            status.get("conditions").cloned()
        })
        .await;
    let wrote = || -> BTreeSet<String> { world.writes().iter().map(written).collect() };
    eventually(TIMEOUT, "a prediction is written", || async {
        let wrote = wrote();
        let is_so = wrote.contains("timeseriespredictions/status");
        is_so.then_some(()).ok_or(format!("{wrote:?}"))
    })
    .await;
    controller.further_syncs(3).await;
    drop(controller);
    let allowed = [
        "effectivehorizontalpodautoscalers/status",
        "events",
        "federatedhpas/status",
        "timeseriespredictions",
        "timeseriespredictions/status",
    ];
    let wrote = wrote();
    assert!(
        wrote.iter().all(|what| allowed.contains(&what.as_str())),
        "{wrote:?}"
    );
    assert_eq!(world.replicas("shop").await, 3);
}
