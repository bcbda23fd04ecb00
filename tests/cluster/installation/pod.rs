//! A process by a Deployment in the cluster: arguments, environment, mounted files, and the permissions of its service
//! account. The only differences are those that one machine cannot have twice: the ports, and the places of files.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, PodSpec, Secret, Volume},
};
use kube::Api;
use rig::eventually;
use tokio::{
    process::{Child, Command},
    sync::oneshot,
    task::JoinHandle,
};

use super::site::{SYSTEM, Site};
use crate::{
    leadership::signal,
    metrics_access::{free_address, get},
    world::{TIMEOUT, servers},
};

/// Interval at which the connections of a process are read: each lasts for longer, because clients keep it. Only TCP
/// over IPv4 is read: the rig has no names, and listens on 127.0.0.1.
const SAMPLE_PERIOD: Duration = Duration::from_millis(100);

/// A running pod of the controller, or of a server of metrics.
pub(super) struct Pod {
    /// Processes of the pod, with the status of the last one.
    running: JoinHandle<ExitStatus>,
    stop: oneshot::Sender<()>,
    pub(super) listen: SocketAddr,
    opened: OpenedConnections,
    folder: PathBuf,
}

/// The peers of the connections that a pod opened.
type OpenedConnections = Arc<Mutex<BTreeSet<SocketAddr>>>;

impl Pod {
    /// Starts a pod of the controller, and returns when it is ready.
    pub(super) async fn start(site: &Site, name: &str) -> Self {
        let more = [
            "metrics-auth=token",
            "leader-elect-namespace=",
            "member-namespace=",
        ];
        Self::of(site, "foretide-controller", name, &more).await
    }

    /// Starts a pod of a server, by the name of its Deployment, and returns when it is ready.
    pub(super) async fn start_server(site: &Site, deployment: &str) -> Self {
        Self::of(site, deployment, deployment, &["service-namespace="]).await
    }

    async fn of(site: &Site, deployment: &str, name: &str, more: &[&str]) -> Self {
        let deployment = site.deployments(SYSTEM).get(deployment).await.unwrap();
        let spec = pod_spec(deployment);
        let folder = site.terminal.folder.join("pods").join(name);
        mount(site, &spec, &folder).await;
        let account = spec.service_account_name.as_deref().unwrap();
        let kubeconfig = site.cluster.service_account_kubeconfig(SYSTEM, account);
        let (listen, probes) = (free_address(), free_address());
        let container = &spec.containers[0];
        let mut command = match container.command.as_deref() {
            None => Command::new(env!("CARGO_BIN_EXE_foretide")),
            Some([program]) if program == "/foretide-servers" => Command::new(servers()),
            other => panic!("unknown command {other:?}"),
        };
        let log = fs::File::create(folder.join("log")).unwrap();
        command
            .args(arguments(&spec, &folder, (listen, probes)))
            .arg("--kubeconfig")
            .arg(kubeconfig.await.unwrap())
            .env_clear()
            .envs(environment(&spec))
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        for flag in more {
            // A process outside of a pod does not know its namespace.
            let value = if flag.ends_with('=') { SYSTEM } else { "" };
            command.arg(format!("--{flag}{value}"));
        }
        let opened = OpenedConnections::default();
        let (stop, stopped) = oneshot::channel();
        let pod = Self {
            running: tokio::spawn(run(command, listen, Arc::clone(&opened), stopped)),
            stop,
            listen,
            opened,
            folder,
        };
        let has_probes = spec.containers[0].args.iter().flatten();
        let has_probes = has_probes
            .into_iter()
            .any(|one| one.starts_with("--probe-listen="));
        let asked = if has_probes { probes } else { listen };
        eventually(TIMEOUT, &format!("the pod {name} is ready"), || async {
            match get(asked, "/readyz", None).await {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}\n{}", pod.log())),
            }
        })
        .await;
        pod
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Ends the pod as the kubelet does, and returns the peers of the connections that it opened.
    pub(super) async fn stop(self) -> BTreeSet<SocketAddr> {
        self.stop.send(()).unwrap();
        let status = self.running.await.unwrap();
        let log = fs::read_to_string(self.folder.join("log")).unwrap();
        assert!(status.success(), "{status}\n{log}");
        self.opened.lock().unwrap().clone()
    }
}

/// Runs a container until it is stopped. As by the kubelet, a process that ends by itself is started again: a
/// controller ends when a busy machine delays the renewal of its lease.
async fn run(
    mut command: Command,
    listen: SocketAddr,
    opened: OpenedConnections,
    mut stop: oneshot::Receiver<()>,
) -> ExitStatus {
    loop {
        let mut process = command.spawn().unwrap();
        let sampler = sample_connections(process.id().unwrap(), listen, &opened);
        tokio::select! {
            (status, is_stopped) = end(&mut process, &mut stop) => {
                if is_stopped {
                    return status;
                }
            }
            never = sampler => match never {},
        }
    }
}

/// Waits until a process ends; returns whether it was stopped. The process of a dropped pod is killed.
async fn end(process: &mut Child, stop: &mut oneshot::Receiver<()>) -> (ExitStatus, bool) {
    tokio::select! {
        status = process.wait() => return (status.unwrap(), false),
        asked = stop => signal(process, if asked.is_ok() { "-TERM" } else { "-KILL" }).await,
    }
    (process.wait().await.unwrap(), true)
}

fn pod_spec(deployment: Deployment) -> PodSpec {
    let template = deployment.spec.unwrap().template;
    template.spec.unwrap()
}

/// The arguments of the container, with these addresses and the files below `folder`.
fn arguments(
    spec: &PodSpec,
    folder: &Path,
    (listen, probes): (SocketAddr, SocketAddr),
) -> Vec<String> {
    let given = spec.containers[0].args.clone().unwrap().into_iter();
    let here = given.map(|argument| match argument.split_once('=') {
        Some((flag @ "--listen", _)) => format!("{flag}={listen}"),
        Some((flag @ "--probe-listen", _)) => format!("{flag}={probes}"),
        _ => argument.replace("=/etc/", &format!("={}/etc/", folder.display())),
    });
    here.collect()
}

fn environment(spec: &PodSpec) -> BTreeMap<String, String> {
    let variables = spec.containers[0].env.iter().flatten();
    variables
        .map(|variable| {
            (
                variable.name.clone(),
                variable.value.clone().unwrap_or_default(),
            )
        })
        .collect()
}

/// Writes the mounted objects of the container, below `folder`.
async fn mount(site: &Site, spec: &PodSpec, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for mounted in spec.containers[0].volume_mounts.iter().flatten() {
        let mut volumes = spec.volumes.iter().flatten();
        let volume = volumes.find(|volume| volume.name == mounted.name).unwrap();
        let place = folder.join(mounted.mount_path.trim_start_matches('/'));
        fs::create_dir_all(&place).unwrap();
        for (file, bytes) in contents(site, volume).await {
            fs::write(place.join(file), bytes).unwrap();
        }
    }
}

async fn contents(site: &Site, volume: &Volume) -> BTreeMap<String, Vec<u8>> {
    let client = site.cluster.client();
    if let Some(source) = &volume.config_map {
        let maps: Api<ConfigMap> = Api::namespaced(client, SYSTEM);
        let map = maps.get(&source.name).await.unwrap();
        let data = map.data.unwrap().into_iter();
        return data.map(|(file, text)| (file, text.into_bytes())).collect();
    }
    let source = volume.secret.as_ref().unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, SYSTEM);
    let name = source.secret_name.as_deref().unwrap();
    let data = secrets.get(name).await.unwrap().data.unwrap().into_iter();
    data.map(|(file, bytes)| (file, bytes.0)).collect()
}

/// Collects the peers of the TCP connections of a process, but for those that others opened to `listen`.
async fn sample_connections(
    process: u32,
    listen: SocketAddr,
    opened: &OpenedConnections,
) -> Infallible {
    let mut beat = tokio::time::interval(SAMPLE_PERIOD);
    loop {
        beat.tick().await;
        let peers = connections(process, listen).unwrap_or_default();
        opened.lock().unwrap().extend(peers);
    }
}

fn connections(process: u32, listen: SocketAddr) -> std::io::Result<Vec<SocketAddr>> {
    let mut sockets = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let Ok(target) = fs::read_link(entry?.path()) else {
            continue;
        };
        let target = target.display().to_string();
        let inode = target.strip_prefix("socket:[");
        sockets.extend(inode.map(|rest| rest.trim_end_matches(']').to_owned()));
    }
    let table = fs::read_to_string(format!("/proc/{process}/net/tcp"))?;
    let rows = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, peer) = (address(fields.get(1)?)?, address(fields.get(2)?)?);
        let outward = local != listen && peer.port() != 0;
        (outward && sockets.contains(*fields.get(9)?)).then_some(peer)
    });
    Ok(rows.collect())
}

/// An address as the kernel prints it: the bytes of the IP in the order of the machine, and the port, in hexadecimal.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let ip = u32::from_str_radix(ip, 16).ok()?;
    let ip = IpAddr::V4(Ipv4Addr::from(ip.to_ne_bytes()));
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}
