//! `foretide-servers keda-scaler` with KEDA's own client, over the objects of a real API server: values, activation and
//! streams; TLS with certificates of its own authority and with client certificates.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use foretide_api::ports::{CertificateFiles, CertificateLifetimes, ClientCertificates};
use foretide_base::{clock::Clock, machine::Machine};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_kube::KubeAccess;
use foretide_servers::config::{
    KedaScalerConfig, KedaScalerTls, MetricServerConfig, ServiceConfig,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rig::{ClusterOptions, KedaClient, Pki, eventually};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    metrics_access::{free_address, ready},
    permissions::{granted, used},
    world::{Folder, TIMEOUT, World},
};

const SYSTEM: &str = "foretide-system";
const SCALER: &str = "foretide-keda-scaler";
const SCALER_USER: &str = "system:serviceaccount:foretide-system:foretide-keda-scaler";
const RIGHTS: &str = include_str!("../../deploy/keda/rbac.yaml");
const CERTIFICATES: &str = include_str!("../../deploy/keda/certificates.yaml");
/// A name of the service, as a `ScaledObject` has it in `scalerAddress`.
const SERVICE: &str = "foretide-keda-scaler.foretide-system.svc";

/// A scaler that runs until it is dropped.
struct Scaler {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Scaler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scaler {
    /// Runs a scaler with the permissions of `deploy/keda`, until it is ready.
    async fn run(world: &World, tls: Option<KedaScalerTls>) -> Self {
        let (listen, probe_listen) = (free_address(), free_address());
        let account = world.cluster.service_account_kubeconfig(SYSTEM, SCALER);
        let config = KedaScalerConfig {
            server: MetricServerConfig {
                access: KubeAccess::Kubeconfig {
                    path: Some(account.await.unwrap()),
                    context: None,
                },
                namespaces: Vec::new(),
                listen,
                probe_listen,
            },
            tls,
        };
        let run =
            foretide_servers::keda_scaler::run(config, Machine::system(), std::future::pending());
        let task = tokio::spawn(async move {
            let outcome = run.await;
            panic!("the scaler exited: {outcome:?}");
        });
        ready(probe_listen).await;
        Self {
            address: listen,
            task,
        }
    }
}

/// KEDA's client with its trusted and its own certificates.
#[derive(Clone)]
struct Client {
    program: PathBuf,
    address: SocketAddr,
    /// Further flags, such as those of TLS.
    flags: Vec<String>,
}

/// The answers of a stream, as they come.
struct Answers {
    lines: Lines<BufReader<ChildStdout>>,
    client: Child,
}

impl Client {
    fn of(scaler: &Scaler) -> Self {
        let client = tokio::task::block_in_place(KedaClient::ensure).unwrap();
        Self {
            program: client.program(),
            address: scaler.address,
            flags: Vec::new(),
        }
    }

    fn trusting(&self, authorities: &Path) -> Self {
        let flags = [
            "-ca",
            authorities.to_str().unwrap(),
            "-server-name",
            SERVICE,
        ];
        Self {
            flags: flags.map(str::to_owned).to_vec(),
            ..self.clone()
        }
    }

    fn showing(&self, pair: &CertificateFiles) -> Self {
        let mut client = self.clone();
        let [certificate, key] = [&pair.certificate, &pair.key].map(|file| file.to_str().unwrap());
        let flags = ["-cert", certificate, "-key", key];
        client.flags.extend(flags.map(str::to_owned));
        client
    }

    fn command(&self, namespace: &str, metadata: &Value, call: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("-address")
            .arg(self.address.to_string())
            .args(["-namespace", namespace])
            .args(["-metadata", &metadata.to_string()])
            .args(&self.flags)
            .args(call.split(' '))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The answer to one call; the status code and message of a refusal.
    async fn ask(&self, namespace: &str, metadata: &Value, call: &str) -> Result<Value, String> {
        let mut command = self.command(namespace, metadata, call);
        let output = timeout(TIMEOUT, command.output()).await.unwrap().unwrap();
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).unwrap());
        }
        Err(String::from_utf8(output.stderr).unwrap())
    }

    async fn is_active(&self) -> Result<Value, String> {
        self.ask("shop", &json!({"autoscaler": "web"}), "is-active")
            .await
    }

    fn stream(&self, metadata: &Value, call: &str) -> Answers {
        let mut command = self.command("shop", metadata, call);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = command.spawn().unwrap();
        let stdout = client.stdout.take().unwrap();
        Answers {
            lines: BufReader::new(stdout).lines(),
            client,
        }
    }
}

impl Answers {
    async fn next(&mut self) -> Value {
        let line = timeout(TIMEOUT, self.lines.next_line()).await.unwrap();
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    /// The status with which the stream ended, after the answers that were read.
    async fn end(mut self) -> String {
        let end = timeout(TIMEOUT, self.lines.next_line()).await.unwrap();
        assert_eq!(end.unwrap(), None);
        let output = timeout(TIMEOUT, self.client.wait_with_output()).await;
        String::from_utf8(output.unwrap().unwrap().stderr).unwrap()
    }
}

/// The trigger of a source.
fn source(source: &str) -> Value {
    json!({"autoscaler": "web", "source": source})
}

async fn world(name: &str) -> World {
    let world = World::start(ClusterOptions::named(name)).await;
    world.apply(RIGHTS).await;
    world.apply(CERTIFICATES).await;
    for (namespace, name) in [("shop", "web"), ("bank", "vault")] {
        world.cluster.namespace(namespace).await.unwrap();
        world.apply(&autoscaler(namespace, name).to_string()).await;
    }
    world
}

fn autoscaler(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 100,
            "crons": [{"name": "day", "start": "0 8 * * *", "end": "0 18 * * *", "targetReplicas": 7}],
        },
    })
}

/// Writes the decision of a controller: a cron window, a forecast with this target, and a floor.
async fn decide(world: &World, window: Option<i32>, target: &str, floor: Option<i32>) {
    let all: Api<EffectiveHorizontalPodAutoscaler> = Api::namespaced(world.client.clone(), "shop");
    let status = json!({"status": {"decision": {
        "time": Clock::system().now(),
        "currentReplicas": 1,
        "floor": floor,
        "proposals": [
            {"source": "forecast", "name": "resource.cpu", "replicas": 9, "value": "0.9", "target": target},
            {"source": "cron", "name": "day", "replicas": window},
        ],
    }}});
    let parameters = PatchParams::default();
    all.patch_status("web", &parameters, &Patch::Merge(status))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kedas_client_reads_exact_values_follows_changes_and_verifies_certificates() {
    let world = world("keda").await;
    exact_values_and_streams(&world).await;
    world.apply(&autoscaler("shop", "web").to_string()).await;
    decide(&world, Some(7), "0.1", Some(9)).await;
    certificates(&world).await;

    // Every granted permission was used, and no other.
    let mut events = world.cluster.audit().unwrap();
    events.retain(|event| event.user == SCALER_USER);
    assert!(events.iter().all(|event| event.code != 403), "{events:?}");
    let granted: BTreeSet<_> = granted(RIGHTS)
        .into_iter()
        .chain(granted(CERTIFICATES))
        .collect();
    assert_eq!(
        used(&events, &granted).intersection(&granted).count(),
        granted.len()
    );
}

async fn exact_values_and_streams(world: &World) {
    let scaler = Scaler::run(world, None).await;
    let client = Client::of(&scaler);

    // Without any decision, KEDA can make its HPA for the floor, and nothing has a value.
    let spec = json!({"metricSpecs": [
        {"metricName": "foretide-floor-web", "targetSize": "1", "targetSizeFloat": 1},
    ]});
    let floor = source("floor");
    assert_eq!(client.ask("shop", &floor, "metric-spec").await, Ok(spec));
    let undecided = client.is_active().await.unwrap_err();
    assert!(undecided.starts_with("Unavailable: "), "{undecided}");
    assert!(
        undecided.contains("shop/web has no decision yet"),
        "{undecided}"
    );

    decide(world, None, "0.1", Some(9)).await;
    let cron = source("cron");
    eventually(TIMEOUT, "the decision is read", || client.is_active()).await;
    let forecast = source("forecast");
    let name = "foretide-forecast-web-resource-cpu";
    let spec =
        json!({"metricSpecs": [{"metricName": name, "targetSize": "1", "targetSizeFloat": 0.1}]});
    assert_eq!(client.ask("shop", &forecast, "metric-spec").await, Ok(spec));
    for (metadata, call, value) in [
        (&floor, "metrics foretide-floor-web", 9.0),
        (&cron, "metrics foretide-cron-web", 0.0),
        (&forecast, "metrics foretide-forecast-web-resource-cpu", 0.9),
    ] {
        let answer = client.ask("shop", metadata, call).await.unwrap();
        let found = answer["metricValues"][0]["metricValueFloat"].as_f64();
        assert_eq!(found, Some(value), "{call}");
    }
    let is_active = json!({"result": true});
    assert_eq!(
        client.ask("shop", &forecast, "is-active").await,
        Ok(is_active)
    );

    // A window opens, and closes; the target of the forecast changes.
    let mut activity = client.stream(&cron, "stream-is-active");
    let mut specs = client.stream(&forecast, "stream-metric-spec");
    assert_eq!(activity.next().await, json!({"result": false}));
    assert_eq!(
        specs.next().await["metricSpecs"][0]["targetSizeFloat"],
        json!(0.1)
    );
    decide(world, Some(7), "0.1", Some(9)).await;
    assert_eq!(activity.next().await, json!({"result": true}));
    let answer = client
        .ask("shop", &cron, "metrics foretide-cron-web")
        .await
        .unwrap();
    assert_eq!(answer["metricValues"][0]["metricValue"], "7");
    decide(world, None, "0.25", Some(9)).await;
    assert_eq!(activity.next().await, json!({"result": false}));
    assert_eq!(
        specs.next().await["metricSpecs"][0]["targetSizeFloat"],
        json!(0.25)
    );

    // Nothing of another namespace can be named.
    let other = json!({"autoscaler": "vault"});
    let refused = client.ask("shop", &other, "is-active").await.unwrap_err();
    assert!(refused.starts_with("NotFound: "), "{refused}");

    // A deleted object ends its streams.
    let all: Api<EffectiveHorizontalPodAutoscaler> = Api::namespaced(world.client.clone(), "shop");
    all.delete("web", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    for stream in [activity, specs] {
        let end = stream.end().await;
        assert!(end.starts_with("NotFound: "), "{end}");
    }
}

/// The authority that the replicas share in a Secret: a client trusts the bundle that a person or a tool copies from there, and
/// shows a certificate of another authority. Which certificates are refused is proven in `adapters::certificates`.
async fn certificates(world: &World) {
    let folder = Folder::new("keda");
    let [pki, foreign] = [(); 2].map(|()| Pki::new().unwrap());
    let [known, other] = [(&pki, "known"), (&foreign, "other")]
        .map(|(pki, name)| folder.identity(name, &pki.client("keda", None).unwrap()));
    let tls = KedaScalerTls {
        service: ServiceConfig {
            name: SCALER.to_owned(),
            namespace: Some(SYSTEM.to_owned()),
            certificate: None,
            secret: "foretide-keda-scaler-certificates".to_owned(),
            lifetimes: CertificateLifetimes::COPIED,
        },
        clients: ClientCertificates::SignedBy(folder.write("ca.crt", pki.ca_pem())),
    };
    let replicas = [
        Scaler::run(world, Some(tls.clone())).await,
        Scaler::run(world, Some(tls)).await,
    ];
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), SYSTEM);
    let secret = secrets.get("foretide-keda-scaler-certificates").await;
    let bundle = folder.0.join("ca-bundle.crt");
    std::fs::write(&bundle, &secret.unwrap().data.unwrap()["ca-bundle.crt"].0).unwrap();
    let foreign = folder.write("foreign.crt", foreign.ca_pem());
    for replica in &replicas {
        let plain = Client::of(replica);
        let client = plain.trusting(&bundle);
        eventually(TIMEOUT, "an answer over TLS", || async {
            client.showing(&known).is_active().await
        })
        .await;
        let untrusted = plain.trusting(&foreign).showing(&known);
        for refused in [plain, client.showing(&other), client, untrusted] {
            let refused = refused.is_active().await.unwrap_err();
            assert!(refused.starts_with("Unavailable: "), "{refused}");
        }
    }
}
