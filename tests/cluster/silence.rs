//! Servers that accept connections and answer nothing: the API server, its lists and watches, and one Prometheus of two.

use std::{collections::BTreeMap, time::Duration};

use foretide::{
    clock::Clock,
    config::{Config, KubeAccess},
    ports::HistoryServer,
};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use rig::{
    ClusterOptions, Component, FakeMetrics, History, MetricsApi, Prometheus, Reading, Series, Span,
    eventually,
};
use serde_json::{Value, json};

use crate::{
    fleet::world::{FleetWorld, SHOP, with_preferences},
    world::{Controller, NAMESPACE, TIMEOUT, World},
};

const OBJECTS: usize = 50;
const PERIOD: Duration = Duration::from_secs(15);
/// How long the API server is silent: for longer than any request to it may take.
const SILENCE: SignedDuration = SignedDuration::from_secs(30);

fn name(n: usize) -> String {
    format!("web-{n}")
}

/// An autoscaler of a Deployment: one replica for every ten of `metric`.
fn autoscaler(name: &str, metric: &str, more: &Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
        "minReplicas": 1,
        "maxReplicas": 10,
        "mode": "Direct",
        "metrics": [{ "type": "External", "external": {
            "metric": { "name": metric },
            "target": { "type": "AverageValue", "averageValue": "10" },
        }}],
    });
    let fields = more.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(fields);
    json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": spec,
    })
}

/// Waits until every Deployment has this many ready pods.
async fn all_have(world: &World, count: i32) {
    eventually(TIMEOUT, &format!("all have {count} replicas"), || async {
        let listed = world.deployments().list(&ListParams::default()).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let wanted = listed.iter().filter(|one| {
            let replicas = one.spec.as_ref().and_then(|spec| spec.replicas);
            replicas == Some(count)
        });
        let wanted = wanted.count();
        (wanted == OBJECTS)
            .then_some(())
            .ok_or(format!("{wanted} of {OBJECTS}"))
    })
    .await;
}

/// Waits until every autoscaler says that the copies for its decisions may be out of date.
async fn all_are_stale(world: &World) {
    eventually(TIMEOUT, "all say that copies are stale", || async {
        let listed = world.ehpas().list(&ListParams::default()).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let is_stale = |ehpa: &&EffectiveHorizontalPodAutoscaler| {
            let conditions = ehpa.status.iter().flat_map(|status| &status.conditions);
            let mut conditions = conditions.flatten();
            conditions.any(|one| one.type_ == "AbleToScale" && one.reason == "CacheStale")
        };
        let stale = listed.iter().filter(is_stale).count();
        (stale == OBJECTS)
            .then_some(())
            .ok_or(format!("{stale} of {OBJECTS}"))
    })
    .await;
}

/// How often each Deployment was scaled so far.
fn scaled(world: &World) -> BTreeMap<String, usize> {
    let mut scaled = BTreeMap::new();
    for event in world.requests() {
        if event.subresource == "scale" && event.wrote() {
            *scaled.entry(event.name).or_default() += 1;
        }
    }
    scaled
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_silent_at_all_and_then_to_lists_and_watches() {
    let world = World::start(ClusterOptions::named("silent")).await;
    let fake = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    let demand =
        |total: u32| fake.set_external(NAMESPACE, "load", vec![Reading::new(&total.to_string())]);
    demand(20);
    let created = (0..OBJECTS).map(|n| {
        let world = &world;
        async move {
            world.deployment(&name(n), 2, "1m").await;
            world
                .apply(&autoscaler(&name(n), "load", &json!({})).to_string())
                .await;
        }
    });
    join_all(created).await;
    let system = ("foretide-system", "foretide-controller");
    let (proxy, kubeconfig) = world.cluster.skewed(system.0, system.1).await.unwrap();
    let config = Config {
        sync_period: SignedDuration::try_from(PERIOD).unwrap(),
        access: KubeAccess::Kubeconfig {
            path: Some(kubeconfig),
            context: None,
        },
        ..world.config()
    };
    let controller = world.run(config, Clock::system());
    controller.further_syncs(OBJECTS as u64).await;

    // The load changes in the silence: nothing is known of it before the API server answers again.
    world.cluster.pause(Component::KubeApiserver).unwrap();
    let silent_since = Clock::system().now();
    demand(40);
    eventually(
        TIMEOUT,
        "the API server has been silent for long enough",
        || async {
            let silent = Clock::system().now().duration_since(silent_since);
            (silent >= SILENCE)
                .then_some(())
                .ok_or(format!("{silent:#}"))
        },
    )
    .await;
    world.cluster.resume(Component::KubeApiserver).unwrap();
    all_have(&world, 4).await;
    controller.further_syncs(OBJECTS as u64).await;

    // Each was written once, from 2 to 4: its first version, and another one.
    let listed = world
        .deployments()
        .list(&ListParams::default())
        .await
        .unwrap();
    for deployment in &listed {
        let found = (
            deployment.metadata.generation,
            deployment.spec.as_ref().unwrap().replicas,
        );
        assert_eq!(found, (Some(2), Some(4)), "{:?}", deployment.metadata.name);
    }
    let times = |times| {
        (0..OBJECTS)
            .map(|n| (name(n), times))
            .collect::<BTreeMap<_, usize>>()
    };
    assert_eq!(scaled(&world), times(1));

    // Lists and watches deliver nothing, while all else works: what the load asks for is not written from what the cluster
    // was.
    proxy.hold_reads(true);
    all_are_stale(&world).await;
    demand(60);
    controller.further_syncs(2 * OBJECTS as u64).await;
    assert_eq!(scaled(&world), times(1));
    proxy.hold_reads(false);
    all_have(&world, 6).await;
    assert_eq!(scaled(&world), times(2));
    world.assert_nothing_forbidden();
}

/// A midnight, in the history.
const MIDNIGHT: f64 = 1_767_225_600.0;
const DAY: f64 = 86_400.0;
/// Autoscalers whose history is in the Prometheus that hangs: more than are refreshed at once.
const STALE: usize = 12;

fn history_span() -> Span {
    Span {
        start: MIDNIGHT - 4.0 * DAY,
        end: MIDNIGHT + 2.0 * DAY,
        step: 60.0,
    }
}

/// From 0.1 at midnight to 0.3 at noon.
fn wave(at: f64) -> f64 {
    0.2 - 0.1 * ((at - MIDNIGHT) / DAY * std::f64::consts::TAU).cos()
}

fn prediction() -> Value {
    json!({
        "predictionWindowSeconds": 3600,
        "predictionAlgorithm": {
            "algorithmType": "dsp",
            "dsp": { "sampleInterval": "60s", "historyLength": "3d" },
        },
    })
}

/// The time of the newest sample that the forecast of an object was made from; none without one.
fn known_until(controller: &Controller, clock: &Clock, object: &str) -> Option<Timestamp> {
    let text = controller.telemetry.encode();
    let mut series = text.lines().filter_map(|line| {
        let (labels, age) = line
            .strip_prefix("foretide_forecast_model_age_seconds{")?
            .split_once("} ")?;
        labels
            .contains(&format!("name=\"{object}\""))
            .then(|| age.parse::<f64>().ok())?
    });
    let age = SignedDuration::try_from_secs_f64(series.next()?).ok()?;
    Some(clock.now() - age)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_that_hangs_leaves_the_forecasts_of_the_other_fresh() {
    let mut shared = History::new();
    for n in 0..STALE {
        let labels = [("namespace", NAMESPACE)];
        let series = Series::of(&labels, history_span(), |at| 90.0 * wave(at));
        shared = shared.gauge(&format!("load_{n}"), series);
    }
    let pod = [NAMESPACE, "shop-6d5f8c9b7d-x2v9k", "app"];
    let own = History::new().cpu_usage(pod, history_span(), wave);
    let (shared, own) = tokio::join!(Prometheus::start(&shared), Prometheus::start(&own));
    let (shared, own) = (shared.unwrap(), own.unwrap());
    let world = FleetWorld::start("hanging-history", &[("member1", 20)]).await;
    world.join("member1", &["--prometheus", "west"]).await;
    let hub = &world.fleet.hub;
    let fake = FakeMetrics::start(hub, &[MetricsApi::External])
        .await
        .unwrap();
    for n in 0..STALE {
        let metric = format!("load_{n}");
        fake.set_external(NAMESPACE, &metric, vec![Reading::new("20")]);
        let deployment = crate::fleet::world::shop(Some(1))
            .to_string()
            .replace("\"shop\"", &format!("\"{}\"", name(n)));
        hub.apply(&deployment).await.unwrap();
        let more = json!({ "prediction": prediction() });
        hub.apply(&autoscaler(&name(n), &metric, &more).to_string())
            .await
            .unwrap();
    }
    world.deploy_everywhere(1).await;
    world.load.evenly(1.0);
    let more = json!({
        "prediction": prediction(),
        "federatedHPAAssignment": with_preferences("StaticWeighted", "staticWeight", &[("member1", 1)]),
    });
    world.ask("StaticWeighted", (1, 20), &more).await;

    // A minute per second.
    let start = Timestamp::from_second(MIDNIGHT as i64 + 6 * 3600).unwrap();
    let clock = Clock::starting_at(start, 60.0);
    let config = Config {
        prometheus: Some(HistoryServer::at(&shared.url()).unwrap()),
        prometheus_endpoints: BTreeMap::from([(
            "west".to_owned(),
            HistoryServer::at(&own.url()).unwrap(),
        )]),
        sync_period: SignedDuration::from_secs(120),
        ..world.config()
    };
    let controller = Controller::run(config, clock.clone());
    let until = |object: &str| known_until(&controller, &clock, object);
    eventually(TIMEOUT, "every forecast is there", || async {
        let there = (0..STALE).filter(|n| until(&name(*n)).is_some()).count();
        let fleet = until(SHOP).is_some();
        (there == STALE && fleet)
            .then_some(())
            .ok_or(format!("{there}, fleet {fleet}"))
    })
    .await;

    shared.pause().unwrap();
    let hung = clock.now();
    // Two refreshes of the fleet's forecast and more, each from samples that are newer than the hang.
    for minutes in [10, 20, 30] {
        let newer = hung + SignedDuration::from_mins(minutes);
        let what = format!("a forecast from samples {minutes} minutes after the hang");
        eventually(TIMEOUT, &what, || async {
            let known = until(SHOP);
            known
                .filter(|known| *known >= newer)
                .ok_or(format!("{known:?}, now {}", clock.now()))
        })
        .await;
    }
    // The last forecast of the others expires meanwhile, or is shown with the age that it had at the last sync.
    let newest = hung + SignedDuration::from_mins(5);
    eventually(
        TIMEOUT,
        "the others have no sample after the hang",
        || async {
            let newer = (0..STALE).filter_map(|n| until(&name(n)));
            let newer: Vec<_> = newer.filter(|known| *known >= newest).collect();
            newer
                .is_empty()
                .then_some(())
                .ok_or(format!("{newer:?}, hung at {hung}"))
        },
    )
    .await;
    shared.resume().unwrap();
    let newer = clock.now();
    eventually(TIMEOUT, "the others are forecast again", || async {
        let fresh = (0..STALE)
            .filter(|n| until(&name(*n)) >= Some(newer))
            .count();
        (fresh == STALE).then_some(()).ok_or(fresh)
    })
    .await;
}
