//! Another authority signs; then one replica of the adapter ends, then both: the visible failures, and the parts of the
//! cluster that go on.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use rig::{ClusterOptions, Relay, eventually};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    task::JoinHandle,
};

use super::{
    API_SERVICES, NAMESPACE, SYSTEM, TIMEOUT, World, autoscaler, availability, available,
    cpu_forecast, decide, external, hpa, install, read, rotation,
};
use crate::{
    metrics_access::{free_address, ready},
    world::servers,
};

/// A replica of the adapter, as a process.
struct Replica {
    child: Child,
    probes: SocketAddr,
}

impl Replica {
    fn start(kubeconfig: &Path, listen: SocketAddr) -> Self {
        let probes = free_address();
        let child = Command::new(servers())
            .arg("adapter")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--service-namespace", SYSTEM])
            .args(["--listen", &listen.to_string()])
            .args(["--probe-listen", &probes.to_string()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        Self {
            child: child.unwrap(),
            probes,
        }
    }

    /// Asks the replica to end, and waits until it has.
    async fn terminate(mut self) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(sent.unwrap().success());
        assert!(self.child.wait().await.unwrap().success());
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Reads the forecast through the API server, over and over, until it is dropped.
pub(super) struct Load {
    answered: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Load {
    /// Starts a load whose client does not retry, so that every failure is seen.
    pub(super) async fn of(world: &World) -> Self {
        let client = without_retries(world).await;
        let (answered, failures) = (Arc::<AtomicU64>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (count, failed) = (Arc::clone(&answered), Arc::clone(&failures));
        let task = tokio::spawn(async move {
            loop {
                match read(&client, &forecast()).await {
                    Ok(_) => drop(count.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => failed.lock().unwrap().push(error.to_string()),
                }
            }
        });
        Self {
            answered,
            failures,
            task,
        }
    }

    /// Waits for this many more answers; returns the failures since the last call.
    pub(super) async fn more(&self, count: u64) -> Vec<String> {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        eventually(TIMEOUT, "more answers", || async {
            let answered = self.answered.load(Ordering::Relaxed);
            if answered < wanted {
                Err(answered)
            } else {
                Ok(())
            }
        })
        .await;
        std::mem::take(&mut *self.failures.lock().unwrap())
    }

    /// Waits until no request fails.
    pub(super) async fn settles(&self) {
        eventually(TIMEOUT, "no request fails", || async {
            let failures = self.more(100).await;
            let is_so = failures.is_empty();
            is_so.then_some(()).ok_or(format!("{failures:?}"))
        })
        .await;
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn without_retries(world: &World) -> Client {
    let file = Kubeconfig::read_from(world.cluster.kubeconfig_path()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(file, &options)
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

pub(super) fn forecast() -> String {
    let labels = "targetKind%3DDeployment%2CtargetName%3Dweb%2CresourceIdentifier%3Dresource.cpu";
    format!(
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/crane_autoscaling_prediction?labelSelector={labels}"
    )
}

/// The versions of API groups whose resources are known and up to date, as `kubectl` discovers them: `v1.apps` and so on.
async fn discovered(client: &Client) -> BTreeSet<String> {
    let request = http::Request::get("/apis").header(
        "accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    );
    let list: Value = client
        .request(request.body(Vec::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(list["kind"], "APIGroupDiscoveryList");
    let mut found = BTreeSet::new();
    for group in list["items"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            if version["freshness"] != "Stale" {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let (version, group) =
                    (text(&version["version"]), text(&group["metadata"]["name"]));
                found.insert(format!("{version}.{group}"));
            }
        }
    }
    found
}

async fn is_scaling_active(world: &World) -> Option<String> {
    let status = world.hpas().get("web").await.unwrap().status?;
    let mut conditions = status.conditions?.into_iter();
    conditions
        .find(|one| one.type_ == "ScalingActive")
        .map(|one| one.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_one_replica_is_enough_and_without_any_the_other_apis_go_on() {
    let world = World::start(ClusterOptions::named("adapter-outage")).await;
    let client = world.client.clone();
    let addresses = [(); 4].map(|()| free_address());
    let [.., one, two] = addresses;
    let ports = addresses.map(|address| address.port());
    let relay = Relay::to(ports).await.unwrap();
    let kubeconfig = install(&world, relay.port()).await;
    let old = rotation::store_an_old_authority(&world).await;
    // Before the replicas start, so that each has it in its first list.
    world.deployment("web", 3, "10m").await;
    autoscaler(&world, "web", json!({"prediction": {}})).await;
    decide(&world, "web", 3, cpu_forecast("0.9")).await;
    let rotating = rotation::start(&kubeconfig, &addresses[..2]);
    available(&client).await;
    rotation::another_authority_signs_without_a_failed_request(
        &world,
        &kubeconfig,
        &addresses[..2],
        &old,
    )
    .await;
    let start = async |address| {
        let replica = Replica::start(&kubeconfig, address);
        ready(replica.probes).await;
        replica
    };
    let (first, second) = (start(one).await, start(two).await);
    drop(rotating);
    // The status with the forecast may have become too old.
    decide(&world, "web", 3, cpu_forecast("0.9")).await;
    let metric = external(
        "crane_autoscaling_prediction",
        "web",
        "resource.cpu",
        "100m",
    );
    hpa(&world, "web", metric).await;
    world.ready("web", "9", |replicas| replicas == 9).await;

    // One replica is asked to end: no request fails.
    let load = Load::of(&world).await;
    assert_eq!(load.more(200).await, [] as [String; 0]);
    first.terminate().await;
    assert_eq!(load.more(200).await, [] as [String; 0]);
    let first = start(one).await;
    assert_eq!(load.more(200).await, [] as [String; 0]);

    // A replica is killed: requests that are on their way to it fail, on each connection that the API server keeps, and
    // no others.
    second.kill().await;
    load.settles().await;
    decide(&world, "web", 9, cpu_forecast("1.2")).await;
    world.ready("web", "12", |replicas| replicas == 12).await;
    assert_eq!(is_scaling_active(&world).await.as_deref(), Some("True"));
    for name in API_SERVICES {
        eventually(TIMEOUT, &format!("{name} is available"), || {
            availability(&client, name)
        })
        .await;
    }
    drop(load);

    // Without both replicas, the other APIs are as before, and the count is kept.
    let before = discovered(&client).await;
    assert!(before.len() > 10, "{before:?}");
    first.kill().await;
    for name in API_SERVICES {
        eventually(TIMEOUT, &format!("{name} is unavailable"), || async {
            match availability(&client, name).await {
                Ok(()) => Err("available"),
                Err(_) => Ok(()),
            }
        })
        .await;
    }
    let after = discovered(&client).await;
    let is_ours = |name: &&String| API_SERVICES.contains(&name.as_str());
    let lost: Vec<_> = before
        .difference(&after)
        .filter(|name| !is_ours(name))
        .collect();
    assert_eq!(lost, <[&String; 0]>::default());
    assert_eq!(world.replicas("web").await, 12);

    let _second = start(two).await;
    available(&client).await;
    eventually(TIMEOUT, "web is scaled again", || async {
        let active = is_scaling_active(&world).await;
        if active.as_deref() == Some("True") {
            Ok(())
        } else {
            Err(format!("{active:?}"))
        }
    })
    .await;
}
