//! Failures of Prometheus, the API server and the controller itself. Scaling continues.

use foretide::{clock::Clock, config::Config, ports::HistoryServer};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use rig::{
    ClusterOptions, FakeMetrics, History, MetricsApi, Prometheus, Reading, Series, Span, eventually,
};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::world::{Counts, NAMESPACE, TIMEOUT, World};

/// A midnight; the wave has its peak at noon.
const MIDNIGHT: f64 = 1_767_225_600.0;
const DAY: f64 = 86_400.0;
/// The user name of the real HPA controller's requests at the API server.
const HPA_CONTROLLER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// Total demand: 10 at midnight, 90 at noon, and at least 85 for an hour and a half on both sides.
fn demand(at: f64) -> f64 {
    50.0 - 40.0 * ((at - MIDNIGHT) / DAY * std::f64::consts::TAU).cos()
}

/// An autoscaler of Deployment `name`: one replica for every 10 of the external metric `name`.
fn autoscaler(name: &str, extra: &Value) -> Value {
    let metric = json!({
        "type": "External",
        "external": {
            "metric": { "name": name },
            "target": { "type": "AverageValue", "averageValue": "10" },
        },
    });
    let mut spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
        "minReplicas": 1,
        "maxReplicas": 30,
        "metrics": [metric],
    });
    spec.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": spec,
    })
}

/// From now on the external metric `name` is `total`.
fn load(fake: &FakeMetrics, name: &str, total: u32) {
    fake.set_external(NAMESPACE, name, vec![Reading::new(&total.to_string())]);
}

/// The proposal of a source in status.
fn proposal<'a>(status: &'a Value, source: &str) -> Option<&'a Value> {
    let proposals = status.pointer("/decision/proposals")?.as_array()?;
    proposals
        .iter()
        .find(|proposal| proposal["source"] == source)
}

/// Whether a source requests this count; `None` for a proposal without one.
fn proposes(status: &Value, source: &str, count: Option<u64>) -> Option<()> {
    (proposal(status, source)?
        .get("replicas")
        .and_then(Value::as_u64)
        == count)
        .then_some(())
}

/// The number of scale writes of the real HPA controller.
fn scalings(world: &World) -> usize {
    let events = world.cluster.audit().unwrap().into_iter();
    let scalings = events.filter(|event| {
        event.user == HPA_CONTROLLER && event.subresource == "scale" && event.wrote()
    });
    scalings.count()
}

async fn edit(world: &World, name: &str, spec: &Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    world
        .ehpas()
        .patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Waits until the child has this bound, which shows that a controller acts on an edit.
async fn child_has_max(world: &World, name: &str, max: i32) {
    eventually(
        TIMEOUT,
        &format!("the child of {name} has maxReplicas {max}"),
        || async {
            let children = world.hpas().get(&format!("ehpa-{name}")).await;
            let found = children
                .map_err(|no| no.to_string())?
                .spec
                .map(|spec| spec.max_replicas);
            if found == Some(max) {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        },
    )
    .await;
}

/// The count that is held because the history of decisions is lost; 0 if none is.
fn held_count(ehpa: &EffectiveHorizontalPodAutoscaler) -> Option<i32> {
    let status = serde_json::to_value(&ehpa.status).ok()?;
    let is_held = status.pointer("/decision/limit") == Some(&json!("HistoryLost"));
    let desired = status.pointer("/decision/desired").and_then(Value::as_i64);
    let held = desired.filter(|_| is_held).unwrap_or_default();
    i32::try_from(held).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_continues_without_prometheus_and_after_an_api_server_outage() {
    let world = World::start(ClusterOptions::named("outages")).await;
    let fake = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    let span = Span {
        start: MIDNIGHT - 4.0 * DAY,
        end: MIDNIGHT + 2.0 * DAY,
        step: 60.0,
    };
    let series = Series::of(&[("namespace", NAMESPACE)], span, demand);
    let prometheus = Prometheus::start(&History::new().gauge("orders", series))
        .await
        .unwrap();
    load(&fake, "orders", 30);
    world.deployment("orders", 1, "1m").await;
    let prediction = json!({
        "predictionWindowSeconds": 3600,
        "predictionAlgorithm": {
            "algorithmType": "dsp",
            "dsp": { "sampleInterval": "60s", "historyLength": "3d" },
        },
    });
    let spec = json!({ "prediction": prediction });
    world.apply(&autoscaler("orders", &spec).to_string()).await;

    // From 11:00 on, a minute per second: a forecast outlives its history by ten seconds.
    let eleven = Timestamp::from_second(MIDNIGHT as i64 + 11 * 3600).unwrap();
    let config = Config {
        prometheus: Some(HistoryServer::at(&prometheus.url()).unwrap()),
        sync_period: jiff::SignedDuration::from_secs(30),
        ..world.config()
    };
    let _controller = world.run(config, Clock::starting_at(eleven, 60.0));
    world
        .ready("orders", "9 or 10", |count| (9..=10).contains(&count))
        .await;
    world
        .status("orders", "a forecast above 3", |status| {
            proposes(status, "observed", Some(3))?;
            (proposal(status, "forecast")?["replicas"].as_u64()? >= 9).then_some(())
        })
        .await;

    // The load rises above the forecast; then Prometheus is killed, and the forecast expires.
    load(&fake, "orders", 140);
    world.ready("orders", "14", |count| count == 14).await;
    let before = scalings(&world);
    prometheus.kill();
    let absent = |status: &Value| {
        proposes(status, "forecast", None)?;
        let reason = proposal(status, "forecast")?["reason"].as_str()?;
        proposes(status, "observed", Some(14))?;
        let conditions = status["conditions"].as_array()?;
        let ready = conditions
            .iter()
            .find(|one| one["type"] == "PredictionReady")?;
        let unready = ready["status"] == "False" || ready["status"] == "Unknown";
        (unready && reason == "QueryError").then_some(())
    };
    // At first its history may only be too old.
    world
        .status("orders", "no forecast for want of answers", absent)
        .await;

    // From here on only the load changes the count, and it still does, both ways.
    load(&fake, "orders", 180);
    world.ready("orders", "18", |count| count == 18).await;
    assert_eq!(
        scalings(&world),
        before + 1,
        "14 to 18 is all there was to do"
    );
    load(&fake, "orders", 60);
    world.ready("orders", "6", |count| count == 6).await;

    prometheus.restart().await.unwrap();
    world
        .ready("orders", "a forecast's count", |count| count >= 8)
        .await;

    world.assert_nothing_forbidden();

    // The API server stops and starts again: new load and a new spec take effect. (In its first second it denies every
    // request, because it has not read the roles yet.)
    world.cluster.stop_apiserver();
    assert!(world.deployments().get("orders").await.is_err());
    world.cluster.start_apiserver().await.unwrap();
    load(&fake, "orders", 250);
    world.ready("orders", "25", |count| count == 25).await;
    world
        .status("orders", "the new load", |status| {
            proposes(status, "observed", Some(25))
        })
        .await;
    edit(&world, "orders", &json!({ "maxReplicas": 20 })).await;
    child_has_max(&world, "orders", 20).await;
    world.ready("orders", "20", |count| count == 20).await;
}

/// The released binary, as a process with the permissions of `deploy/`.
fn binary(world: &World) -> Child {
    let mut command = crate::world::binary(world.kubeconfig(), world.hpa_flags());
    command.args(["--listen", "127.0.0.1:0"]).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_child_scales_without_the_controller_and_its_successor_causes_no_dip() {
    let world = World::start(ClusterOptions::named("killed")).await;
    let fake = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    load(&fake, "orders", 20);
    world.deployment("orders", 1, "1m").await;
    // Open since the last full minute, until the next new year.
    let window = json!({
        "name": "floor", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": 6,
    });
    let spec = json!({ "crons": [window] });
    world.apply(&autoscaler("orders", &spec).to_string()).await;

    let mut first = binary(&world);
    world.ready("orders", "6", |count| count == 6).await;
    world
        .status("orders", "an open window", |status| {
            proposes(status, "cron", Some(6))
        })
        .await;
    first.kill().await.unwrap();
    load(&fake, "orders", 110);
    world.ready("orders", "11", |count| count == 11).await;
    load(&fake, "orders", 20);
    world.ready("orders", "6", |count| count == 6).await;

    // The window ends while no controller runs. The successor has little history, so it scales nothing down.
    edit(
        &world,
        "orders",
        &json!({ "crons": null, "maxReplicas": 25 }),
    )
    .await;
    let before = scalings(&world);
    let held = Counts::follow(world.ehpas(), "orders", held_count).await;
    let mut second = binary(&world);
    child_has_max(&world, "orders", 25).await;
    eventually(TIMEOUT, "a hold of 6 replicas", || async {
        let all = held.all();
        all.contains(&6).then_some(()).ok_or(format!("{all:?}"))
    })
    .await;
    world.ready("orders", "2", |count| count == 2).await;
    assert_eq!(
        scalings(&world),
        before + 1,
        "6 to 2 is all there was to do"
    );

    let id = second.id().unwrap().to_string();
    let signaled = Command::new("sh")
        .args(["-c", &format!("kill -TERM {id}")])
        .status()
        .await
        .unwrap();
    assert!(signaled.success());
    let ended = tokio::time::timeout(TIMEOUT, second.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended.code(), Some(0));
    world.assert_nothing_forbidden();
}
