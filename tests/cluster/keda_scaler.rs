//! `foretide keda-scaler` as KEDA's own client sees it, over the objects of a real API server: values, activation and
//! streams, beside strangers that hold idle ones; TLS with certificates of our own, with files, and with client certificates.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use foretide::{
    app,
    clock::Clock,
    config::{KedaScalerConfig, KedaScalerTls, KubeAccess},
    machine::Machine,
    ports::{CertificateFiles, CertificateLifetimes, ClientCertificates},
};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rig::{ClusterOptions, Identity, KedaClient, Pki, eventually};
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
    world::{TIMEOUT, World},
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
            access: KubeAccess::Kubeconfig {
                path: Some(account.await.unwrap()),
                context: None,
            },
            namespaces: Vec::new(),
            listen,
            probe_listen,
            tls,
        };
        let run = app::keda_scaler::run(config, Machine::system(), std::future::pending());
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

/// KEDA's client with the certificates that it trusts and shows.
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

    /// The client of a pod that has this address.
    fn at(&self, address: &str) -> Self {
        let flags = ["-from", address].map(str::to_owned).to_vec();
        Self {
            flags,
            ..self.clone()
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

    fn showing(&self, certificate: &Path, key: &Path) -> Self {
        let mut client = self.clone();
        let flags = [
            "-cert",
            certificate.to_str().unwrap(),
            "-key",
            key.to_str().unwrap(),
        ];
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

/// Writes what the controller would write: a cron window, a forecast with this target, and a floor.
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

/// Makes clients of two pods hold as many streams as there are: 4,096 each. Their streams last as long as these answers.
async fn strangers(world: &World, client: &Client) -> [Answers; 2] {
    const AUTOSCALERS: usize = 32;
    for number in 0..AUTOSCALERS {
        world
            .apply(&autoscaler("shop", &format!("idle-{number}")).to_string())
            .await;
    }
    let metadata = json!({"autoscaler": "idle"});
    let last = json!({"autoscaler": format!("idle-{}", AUTOSCALERS - 1)});
    eventually(TIMEOUT, "the last one is read", || {
        client.ask("shop", &last, "metric-spec")
    })
    .await;
    let pods = ["127.0.0.2", "127.0.0.3"].map(|address| client.at(address));
    let call = format!("hold 4096 {AUTOSCALERS}");
    let mut held = pods.each_ref().map(|pod| pod.stream(&metadata, &call));
    for answers in &mut held {
        assert_eq!(answers.next().await, json!({"open": 4096}));
    }
    for pod in pods {
        let refused = pod.stream(&last, "stream-metric-spec").end().await;
        let expected =
            "ResourceExhausted: too many streams: at most 4096 per address and 8192 in total";
        assert!(refused.starts_with(expected), "{refused}");
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn kedas_client_reads_exact_values_and_follows_changes_beside_the_idle_streams_of_strangers()
{
    let world = world("keda-values").await;
    let scaler = Scaler::run(&world, None).await;
    let client = Client::of(&scaler);
    let _idle = strangers(&world, &client).await;

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

    decide(&world, None, "0.1", Some(9)).await;
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
    decide(&world, Some(7), "0.1", Some(9)).await;
    assert_eq!(activity.next().await, json!({"result": true}));
    let answer = client
        .ask("shop", &cron, "metrics foretide-cron-web")
        .await
        .unwrap();
    assert_eq!(answer["metricValues"][0]["metricValue"], "7");
    decide(&world, None, "0.25", Some(9)).await;
    assert_eq!(activity.next().await, json!({"result": false}));
    assert_eq!(
        specs.next().await["metricSpecs"][0]["targetSizeFloat"],
        json!(0.25)
    );

    // Nothing of another namespace can be named.
    for (namespace, metadata, refusal) in [
        ("shop", json!({"autoscaler": "vault"}), "NotFound: "),
        ("bank", json!({"autoscaler": "web"}), "NotFound: "),
        (
            "shop",
            json!({"autoscaler": "vault", "namespace": "bank"}),
            "InvalidArgument: ",
        ),
        ("shop", json!({"autoscaler": "bank/vault"}), "NotFound: "),
    ] {
        let refused = client
            .ask(namespace, &metadata, "is-active")
            .await
            .unwrap_err();
        assert!(refused.starts_with(refusal), "{refused}");
    }

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

/// A certificate and its key as files.
fn written(folder: &Path, name: &str, identity: &Identity) -> CertificateFiles {
    let (certificate, key) = (
        folder.join(format!("{name}.crt")),
        folder.join(format!("{name}.key")),
    );
    std::fs::write(&certificate, &identity.certificate).unwrap();
    std::fs::write(&key, &identity.key).unwrap();
    CertificateFiles { certificate, key }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_refuses_foreign_authorities_plaintext_and_clients_without_the_required_certificate() {
    let world = world("keda-tls").await;
    let folder = world.cluster.folder().join("tls");
    std::fs::create_dir_all(&folder).unwrap();
    let (pki, foreign) = (Pki::new().unwrap(), Pki::new().unwrap());
    let authority = folder.join("ca.crt");
    let foreign_authority = folder.join("foreign.crt");
    std::fs::write(&authority, pki.ca_pem()).unwrap();
    std::fs::write(&foreign_authority, foreign.ca_pem()).unwrap();
    let keda = written(&folder, "keda", &pki.client("keda", None).unwrap());
    let other = written(&folder, "other", &foreign.client("keda", None).unwrap());
    let tls = KedaScalerTls {
        certificate: Some(written(&folder, "server", &pki.server(SERVICE).unwrap())),
        certificate_secret: "unused".to_owned(),
        service_name: SCALER.to_owned(),
        service_namespace: None,
        lifetimes: CertificateLifetimes::COPIED,
        clients: ClientCertificates::None,
    };
    decide(&world, Some(7), "0.1", Some(9)).await;
    let active = Ok(json!({"result": true}));

    let open = Scaler::run(&world, Some(tls.clone())).await;
    let client = Client::of(&open);
    assert_eq!(client.trusting(&authority).is_active().await, active);
    let plaintext = client.is_active().await.unwrap_err();
    assert!(plaintext.starts_with("Unavailable: "), "{plaintext}");
    let untrusted = client
        .trusting(&foreign_authority)
        .is_active()
        .await
        .unwrap_err();
    assert!(
        untrusted.contains("certificate signed by unknown authority"),
        "{untrusted}"
    );

    let required = KedaScalerTls {
        clients: ClientCertificates::SignedBy(authority.clone()),
        ..tls
    };
    let guarded = Scaler::run(&world, Some(required)).await;
    let client = Client::of(&guarded).trusting(&authority);
    let known = client.showing(&keda.certificate, &keda.key);
    assert_eq!(known.is_active().await, active);
    for refused in [
        client.clone(),
        client.showing(&other.certificate, &other.key),
    ] {
        let refused = refused.is_active().await.unwrap_err();
        assert!(refused.starts_with("Unavailable: "), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_our_own_rotate_without_a_failed_call() {
    let world = world("keda-rotation").await;
    decide(&world, Some(7), "0.1", Some(9)).await;
    let seconds = SignedDuration::from_secs;
    let tls = KedaScalerTls {
        certificate: None,
        certificate_secret: "foretide-keda-scaler-certificates".to_owned(),
        service_name: SCALER.to_owned(),
        service_namespace: Some(SYSTEM.to_owned()),
        // Another one signs after 36 s. Each is replaced 8 s before it ends or earlier, as a stall of seconds would otherwise
        // let it end.
        lifetimes: CertificateLifetimes {
            authority: seconds(45),
            overlap: seconds(6),
            serving: seconds(24),
            period: seconds(1),
        },
        clients: ClientCertificates::None,
    };
    let replicas = [
        Scaler::run(&world, Some(tls.clone())).await,
        Scaler::run(&world, Some(tls)).await,
    ];
    let clients = [Client::of(&replicas[0]), Client::of(&replicas[1])];
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), SYSTEM);
    let folder = world.cluster.folder().join("rotation");
    std::fs::create_dir_all(&folder).unwrap();
    let read = async |key: &str| {
        let secret = secrets
            .get("foretide-keda-scaler-certificates")
            .await
            .unwrap();
        let data = secret.data.unwrap_or_default();
        let path = folder.join(key);
        std::fs::write(&path, &data[key].0).unwrap();
        path
    };
    let authority = async || std::fs::read_to_string(read("ca.crt").await).unwrap();
    let active = Ok(json!({"result": true}));
    let first = authority().await;
    eventually(2 * TIMEOUT, "another authority signs", || async {
        for client in &clients {
            // As a person or a tool copies the bundle.
            let bundle = read("ca-bundle.crt").await;
            let trusted = std::fs::read(&bundle).unwrap();
            let found = client.trusting(&bundle).is_active().await;
            if found != active {
                // On a slow machine the bundle may have been replaced before the call.
                let latest = std::fs::read(read("ca-bundle.crt").await).unwrap();
                assert_ne!(trusted, latest, "{found:?}");
            }
        }
        let newest = authority().await;
        (newest != first).then_some(()).ok_or("the first one signs")
    })
    .await;
    for client in &clients {
        eventually(TIMEOUT, "a certificate of the new authority", || async {
            // Read each time: it signs for some time only.
            let newest = read("ca.crt").await;
            client.trusting(&newest).is_active().await
        })
        .await;
    }

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
