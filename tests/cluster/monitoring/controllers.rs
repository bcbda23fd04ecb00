//! Replicas of the controller as processes, scraped with a token: a leader is killed, a replica writes without leader
//! election, scrapes are refused, writes are refused, an object cannot be decoded, a clock is wrong.

use std::{net::SocketAddr, path::Path};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, ClusterRoleBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};
use rig::{ClusterOptions, FakeMetrics, MetricsApi, eventually};
use serde_json::json;
use tokio::process::Child;

use super::Monitoring;
use crate::{
    leadership::{holder, leases, next_holder, signal},
    manual_changes::{delete, demand_replicas, deployment, edit, ehpa, queue_metrics},
    metrics_access::{free_address, ready, token},
    world::{CONTROLLER_USER, NAMESPACE, TIMEOUT, World, binary, may},
};

/// What this scenario sees firing and resolved.
pub(super) const ALERTS: &[&str] = &[
    "ForetideClockSkew",
    "ForetideDown",
    "ForetideNoLeader",
    "ForetideNotReady",
    "ForetideObjectsUnreadable",
    "ForetideScrapeFailing",
    "ForetideSeveralLeaders",
    "ForetideWritesFailing",
];

/// The panels that have data as soon as a controller runs and has an object.
pub(super) const PANELS: &[(&str, &str)] = &[
    ("controller", "Leaders"),
    ("controller", "Controller replicas"),
    ("controller", "Autoscalers"),
    ("controller", "Unhealthy autoscalers"),
    ("controller", "Undecodable objects"),
    ("controller", "Unusable member Secrets"),
    ("controller", "Leader"),
    ("controller", "Duration of syncs"),
    ("controller", "Sync lag"),
    ("controller", "Writes"),
    ("controller", "Watch staleness"),
    ("controller", "Watch errors"),
    ("controller", "Clock skew"),
    ("controller", "Comparisons with child HPAs"),
    ("workload", "Current replicas"),
    ("workload", "Desired replicas"),
    ("workload", "minReplicas"),
    ("workload", "maxReplicas"),
    ("workload", "Unhealthy conditions"),
    ("workload", "Replicas"),
];

/// The variables of the dashboard of the autoscaler `web`.
pub(super) const WEB: &[(&str, &str)] = &[
    ("kind", "effectivehorizontalpodautoscaler"),
    ("namespace", NAMESPACE),
    ("name", "web"),
];

/// An account that may scrape.
const SCRAPER: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: scraper, namespace: default}
";

const BINDING: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: foretide-metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: foretide-metrics-reader}
subjects: [{kind: ServiceAccount, name: scraper, namespace: default}]
";

/// A replica as a process, and its address. It ends when it is dropped.
struct Replica {
    process: Child,
    address: SocketAddr,
}

impl Replica {
    fn start(world: &World, kubeconfig: &Path, more: &[&str]) -> Self {
        let address = free_address();
        let mut command = binary(kubeconfig, world.hpa_flags());
        command
            .args(["--listen", &address.to_string(), "--metrics-auth", "token"])
            .args(more);
        Self {
            process: command.spawn().unwrap(),
            address,
        }
    }

    /// A candidate for the lease.
    fn elected(world: &World, kubeconfig: &Path) -> Self {
        let election = [
            "--leader-elect",
            "--leader-elect-namespace",
            "foretide-system",
        ];
        Self::start(world, kubeconfig, &election)
    }

    async fn ready(self) -> Self {
        ready(self.address).await;
        self
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "each alert on a real Prometheus: `just nightly`"]
async fn alerts_about_the_controller_fire_and_resolve() {
    let world = World::start(ClusterOptions::named("watched")).await;
    install(&world).await;
    let fake = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    demand_replicas(&fake, 2);
    world.deployment("web", 2, "1m").await;
    let spec = json!({ "mode": "Direct", "metrics": queue_metrics() });
    let web = ehpa(deployment("web"), (1, 10), &spec);
    world.apply(&web.to_string()).await;
    let scraper = token(&world, "scraper", None).await;
    let monitoring = Monitoring::start(&scraper).await;

    let mut first = Replica::elected(&world, world.kubeconfig());
    let leader = next_holder(&world.client, "").await;
    let second = Replica::elected(&world, world.kubeconfig()).ready().await;
    monitoring.scrape(&[first.address, second.address]);
    monitoring.shows(PANELS, WEB).await;

    // As in a cluster, a pod that ends is no target any more. Prometheus takes up to ten seconds to act on that, and the
    // other replica would lead after fifteen: it waits until the alert was seen.
    first.process.kill().await.unwrap();
    lease_lasts(&world, 600).await;
    assert_eq!(holder(&world.client).await.as_ref(), Ok(&leader));
    monitoring.scrape(&[second.address]);
    monitoring
        .fires("ForetideNoLeader", &[("severity", "critical")])
        .await;
    lease_lasts(&world, 15).await;
    next_holder(&world.client, &leader).await;
    monitoring.resolves("ForetideNoLeader", &[]).await;

    let unelected = Replica::start(&world, world.kubeconfig(), &[]);
    monitoring.scrape(&[second.address, unelected.address]);
    monitoring
        .fires("ForetideSeveralLeaders", &[("severity", "critical")])
        .await;
    drop(unelected);
    monitoring.scrape(&[second.address]);
    monitoring.resolves("ForetideSeveralLeaders", &[]).await;

    writes_are_refused(&world, &monitoring, &fake).await;
    an_object_cannot_be_decoded(&world, &monitoring).await;
    scrapes_are_refused(&world, &monitoring).await;
    a_clock_is_wrong(&world, &monitoring, second).await;
    monitoring.has_seen(ALERTS).await;
}

/// The rights of replicas that elect a leader and are scraped.
async fn install(world: &World) {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    for file in ["23-leader-rbac.yaml", "24-metrics-rbac.yaml"] {
        world
            .apply(&std::fs::read_to_string(deploy.join(file)).unwrap())
            .await;
    }
    world.apply(SCRAPER).await;
    world.apply(BINDING).await;
}

/// Sets for how long the lease stays with its holder, from now on.
async fn lease_lasts(world: &World, seconds: u32) {
    let patch = json!({ "spec": { "leaseDurationSeconds": seconds } });
    edit(&leases(&world.client), "foretide", patch).await;
}

/// Waits until the controller may not write scales any more: the API server notices a changed role a little later.
async fn may_not_scale(world: &World) {
    let attributes = json!({
        "group": "apps", "resource": "deployments", "subresource": "scale", "name": "web",
        "namespace": NAMESPACE, "verb": "patch",
    });
    eventually(TIMEOUT, "the controller may not scale", || async {
        let is_allowed = may(&world.client, CONTROLLER_USER, &attributes).await?;
        (!is_allowed).then_some(()).ok_or("it may".to_owned())
    })
    .await;
}

/// The controller loses its permission to write scales, while the load changes.
async fn writes_are_refused(world: &World, monitoring: &Monitoring, fake: &FakeMetrics) {
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    let before = roles.get("foretide-controller").await.unwrap().rules;
    let mut fewer = serde_json::to_value(&before).unwrap();
    for rule in fewer.as_array_mut().unwrap() {
        let resources = rule["resources"].to_string();
        if resources.contains("/scale\"") {
            rule["verbs"] = json!(["get"]);
        }
    }
    edit(&roles, "foretide-controller", json!({ "rules": fewer })).await;
    // Otherwise the one write that the new load needs could still succeed.
    may_not_scale(world).await;
    demand_replicas(fake, 5);
    let not_ready = [
        ("type", "Ready"),
        ("reason", "FailedUpdateScale"),
        ("name", "web"),
    ];
    tokio::join!(
        monitoring.fires("ForetideWritesFailing", &[("kind", "scale")]),
        monitoring.fires("ForetideNotReady", &not_ready),
    );
    edit(&roles, "foretide-controller", json!({ "rules": before })).await;
    world.ready("web", "5", |count| count == 5).await;
    tokio::join!(
        monitoring.resolves("ForetideWritesFailing", &[("kind", "scale")]),
        monitoring.resolves("ForetideNotReady", &not_ready),
    );
}

/// An object is stored under a looser definition than that of this version.
async fn an_object_cannot_be_decoded(world: &World, monitoring: &Monitoring) {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = "effectivehorizontalpodautoscalers.autoscaling.crane.io";
    let definition = definitions.get(name).await.unwrap();
    let mut versions = serde_json::to_value(&definition.spec.versions).unwrap();
    let loose = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    versions[0]["schema"]["openAPIV3Schema"] = loose;
    edit(
        &definitions,
        name,
        json!({ "spec": { "versions": versions } }),
    )
    .await;
    let mut broken = ehpa(deployment("broken"), (1, 10), &json!({}));
    broken["spec"]["minReplicas"] = json!("many");
    eventually(TIMEOUT, "the looser definition is in force", || async {
        let applied = world.cluster.apply(&broken.to_string()).await;
        applied.map_err(|error| error.to_string())
    })
    .await;
    monitoring.fires("ForetideObjectsUnreadable", &[]).await;
    let resource = ApiResource::erase::<EffectiveHorizontalPodAutoscaler>(&());
    let untyped = Api::<DynamicObject>::namespaced_with(world.client.clone(), NAMESPACE, &resource);
    delete(&untyped, "broken").await;
    monitoring.resolves("ForetideObjectsUnreadable", &[]).await;
}

/// The clock of the API server is a minute and a half ahead of that of the next leader, which measures it with each
/// renewal of its lease.
async fn a_clock_is_wrong(world: &World, monitoring: &Monitoring, mut before: Replica) {
    let system = ("foretide-system", "foretide-controller");
    let (proxy, kubeconfig) = world.cluster.skewed(system.0, system.1).await.unwrap();
    let leader = holder(&world.client).await.unwrap();
    let next = Replica::elected(world, &kubeconfig).ready().await;
    signal(&before.process, "-TERM").await;
    before.process.wait().await.unwrap();
    monitoring.scrape(&[next.address]);
    next_holder(&world.client, &leader).await;
    proxy.set_ahead(90);
    let instance = next.address.to_string();
    monitoring
        .fires("ForetideClockSkew", &[("instance", &instance)])
        .await;
    proxy.set_ahead(0);
    monitoring.resolves("ForetideClockSkew", &[]).await;
}

/// Prometheus loses its permission to scrape.
async fn scrapes_are_refused(world: &World, monitoring: &Monitoring) {
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    delete(&bindings, "foretide-metrics-reader").await;
    tokio::join!(
        monitoring.fires("ForetideScrapeFailing", &[("severity", "warning")]),
        monitoring.fires("ForetideDown", &[("severity", "critical")]),
    );
    world.apply(BINDING).await;
    tokio::join!(
        monitoring.resolves("ForetideScrapeFailing", &[]),
        monitoring.resolves("ForetideDown", &[]),
    );
}
