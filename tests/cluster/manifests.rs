//! The examples apply unchanged and are read back unchanged; invalid objects are refused with helpful messages.

use std::path::PathBuf;

use http::Request;
use rig::ClusterOptions;
use serde_json::{Value, json};

use crate::{
    manual_changes::{delete, deployment, ehpa, wait_until_deleted},
    world::{NAMESPACE, World},
};

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

/// Sends what `kubectl create` sends: unknown fields are refused as well.
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

/// Whether all that was written is stored as it is; defaults are added to it.
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
async fn the_examples_apply_unchanged_and_invalid_objects_are_refused_with_our_messages() {
    let options = ClusterOptions::named("manifests")
        .without(rig::Component::KubeControllerManager)
        .without(rig::Component::KubeScheduler)
        .without(rig::Component::Kwok);
    let world = World::start(options).await;
    let examples = examples();
    assert!(examples.len() >= 3, "{examples:?}");
    for (file, yaml) in examples {
        let written: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        let ours = written
            .iter()
            .filter(|object| object["kind"] == "EffectiveHorizontalPodAutoscaler");
        for object in ours {
            let name = object["metadata"]["name"].as_str().unwrap();
            let created = create(&world, object).await.unwrap();
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

    let cron = |field: &str, value: Value| {
        let mut cron = json!({ "start": "0 9 * * *", "end": "0 18 * * *", "targetReplicas": 5 });
        cron[field] = value;
        json!({ "crons": [cron] })
    };
    let refused = [
        (
            json!({ "minReplicas": 9 }),
            "minReplicas must not exceed maxReplicas; lower minReplicas",
        ),
        (
            json!({ "maxReplicas": 0 }),
            "maxReplicas must be between 1 and 10000",
        ),
        (
            json!({ "specificReplicas": -1 }),
            "leave it out to let Preview only watch",
        ),
        (
            json!({ "scaleStrategy": "Manual" }),
            "supported values: \"Auto\", \"Preview\"",
        ),
        (
            json!({ "maxReplica": 3 }),
            "unknown field \"spec.maxReplica\"",
        ),
        (
            cron("start", json!("0 9 * *")),
            "a cron expression has five fields",
        ),
        (
            cron("end", json!("@every 1h")),
            "'@every' has no fixed times of day",
        ),
        (cron("end", Value::Null), "a cron needs start and end"),
        (
            json!({ "crons": [cron("name", json!("a"))["crons"][0], cron("name", json!("a"))["crons"][0]] }),
            "each cron needs a name of its own",
        ),
    ];
    for (fields, words) in refused {
        let object = ehpa(deployment("shop"), (1, 8), &fields);
        let answer = create(&world, &object).await.unwrap_err();
        assert!(answer.contains(words), "{fields}: {answer}");
    }
}
