//! The metric adapter behind the real aggregator: stock `HorizontalPodAutoscaler`s scale by its metrics. No controller
//! runs; the test writes the statuses of autoscalers.

mod mode;
mod outage;
mod rotation;
mod scaling;
mod security;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use foretide_api::ports::CertificateLifetimes;
use foretide_base::{clock::Clock, machine::Machine};
use foretide_kube::KubeAccess;
use foretide_servers::{
    config::{AdapterConfig, MetricServerConfig, ServiceConfig},
    metrics_api::MetricApi,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use rig::eventually;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{NAMESPACE, TIMEOUT, World};

/// The namespace of the adapter.
const SYSTEM: &str = "foretide-system";
/// The registrations.
const API_SERVICES: [&str; 3] = [
    "v1beta1.external.metrics.k8s.io",
    "v1beta1.custom.metrics.k8s.io",
    "v1beta2.custom.metrics.k8s.io",
];

/// An adapter of this process; it ends when it is dropped.
struct RunningAdapter(JoinHandle<()>);

impl RunningAdapter {
    fn run(config: AdapterConfig) -> Self {
        Self(tokio::spawn(async move {
            let outcome =
                foretide_servers::adapter::run(config, Machine::system(), std::future::pending())
                    .await;
            panic!("the adapter exited: {outcome:?}");
        }))
    }
}

impl Drop for RunningAdapter {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Applies the manifests of `deploy/adapter`, with a service that is on this machine at `port`; returns the kubeconfig of
/// the adapter's account.
async fn install(world: &World, port: u16) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/adapter");
    for file in ["rbac", "certificates", "external", "custom"] {
        let text = std::fs::read_to_string(folder.join(format!("{file}.yaml"))).unwrap();
        world
            .apply(&text.replace("port: 443", &format!("port: {port}")))
            .await;
    }
    // There is no service network: the aggregator resolves the external name itself.
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "foretide-adapter", "namespace": SYSTEM},
        "spec": {
            "type": "ExternalName",
            "externalName": "localhost",
            "ports": [{"name": "https", "port": port}],
        },
    });
    world.apply(&service.to_string()).await;
    let account = world
        .cluster
        .service_account_kubeconfig(SYSTEM, "foretide-adapter");
    account.await.unwrap()
}

/// The configuration of an adapter with this account.
fn config(kubeconfig: &Path, listen: SocketAddr) -> AdapterConfig {
    AdapterConfig {
        server: MetricServerConfig {
            access: KubeAccess::Kubeconfig {
                path: Some(kubeconfig.to_path_buf()),
                context: None,
            },
            namespaces: Vec::new(),
            listen,
            probe_listen: "127.0.0.1:0".parse().unwrap(),
        },
        apis: vec![MetricApi::External, MetricApi::Custom],
        service: ServiceConfig {
            name: "foretide-adapter".to_owned(),
            namespace: Some(SYSTEM.to_owned()),
            certificate: None,
            secret: "foretide-adapter-certificates".to_owned(),
            lifetimes: CertificateLifetimes::PUBLISHED,
        },
        upstream: None,
    }
}

/// Fails with the reason for which a registration is not available.
async fn availability(client: &Client, name: &str) -> Result<(), String> {
    let services: Api<APIService> = Api::all(client.clone());
    let found = services
        .get(name)
        .await
        .map_err(|error| error.to_string())?;
    let conditions = found.status.and_then(|status| status.conditions);
    let available = conditions
        .into_iter()
        .flatten()
        .find(|one| one.type_ == "Available");
    match available {
        Some(condition) if condition.status == "True" => Ok(()),
        condition => Err(format!("{name}: {condition:?}")),
    }
}

/// Waits until the API server has found all registrations available, and sends requests to them: it begins with that some
/// time after the status says so.
async fn available(client: &Client) {
    for name in API_SERVICES {
        let (version, group) = name.split_once('.').unwrap();
        let path = format!("/apis/{group}/{version}");
        eventually(TIMEOUT, &format!("{name} is available"), || async {
            availability(client, name).await?;
            let list = read(client, &path).await;
            list.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

/// A document of the API server.
async fn read(client: &Client, path: &str) -> Result<Value, kube::Error> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = path.parse().unwrap();
    client.request(request).await
}

/// An autoscaler in mode Metric that scales nothing itself, with more fields in its spec.
async fn autoscaler(world: &World, name: &str, more: Value) {
    let mut object = json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 2,
            "maxReplicas": 50,
            "scaleStrategy": "Preview",
            "mode": "Metric",
        },
    });
    for (field, value) in more.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    world.apply(&object.to_string()).await;
}

/// Writes the decision that a controller would have made now.
async fn decide(world: &World, name: &str, current: i32, proposals: Value) {
    let decision = json!({
        "time": Clock::system().now().to_string(),
        "currentReplicas": current,
        "proposals": proposals,
    });
    let patch = Patch::Merge(json!({"status": {"decision": decision}}));
    let params = PatchParams::default();
    world
        .ehpas()
        .patch_status(name, &params, &patch)
        .await
        .unwrap();
}

fn cpu_forecast(cores: &str) -> Value {
    json!([{
        "source": "forecast", "name": "resource.cpu", "replicas": 9, "value": cores, "target": "0.1",
    }])
}

/// An external metric of Foretide, by the labels of crane.
fn external(metric: &str, target: &str, identifier: &str, per_pod: &str) -> Value {
    json!({
        "type": "External",
        "external": {
            "metric": {"name": metric, "selector": {"matchLabels": {
                "targetKind": "Deployment",
                "targetName": target,
                "targetNamespace": NAMESPACE,
                "resourceIdentifier": identifier,
            }}},
            "target": {"type": "AverageValue", "averageValue": per_pod},
        },
    })
}

/// A `HorizontalPodAutoscaler` of a user: at most 30 pods, which may be added at once.
async fn hpa(world: &World, name: &str, metric: Value) {
    let object = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 30,
            "metrics": [metric],
            "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 30, "periodSeconds": 15}]}},
        },
    });
    world.apply(&object.to_string()).await;
}
