//! A running cluster: its processes, from the first certificate to the last kill. This file starts and stops it; what
//! a test does with its objects is in `access`.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::Client;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
};

use crate::{
    AuditEvent, Binaries, ClusterOptions, Component, Error, Result, audit, dump,
    layout::Layout,
    place::say,
    process::{Child, is_free},
    stopwatch,
    wait::within,
};

/// The time that a component may take to be ready on a busy machine.
const READY: Duration = Duration::from_mins(3);
/// The most attempts to start a cluster of which a part exits during the start.
const STARTS: u32 = 3;
/// Time after which a request without an answer is sent again.
const ANSWER: Duration = Duration::from_secs(5);
/// A start takes a whole core for some seconds; without a limit, none of many would be in time.
static STARTING: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism();
    Semaphore::new(cores.map_or(2, NonZero::get))
});

/// A real Kubernetes cluster on loopback. It ends, with everything in it, when it is dropped; when
/// that happens while its test panics, its state and logs are kept in `target/rig/failures`.
pub struct Cluster {
    client: Client,
    processes: Mutex<BTreeMap<Component, Child>>,
    options: ClusterOptions,
    binaries: Binaries,
    layout: Layout,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("folder", &self.folder())
            .field("server", &self.layout.server())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts a cluster, and returns when its API server, its nodes and its metrics API are ready, and all parts answer.
    ///
    /// # Errors
    /// As [`Binaries::ensure`]; [`Error::NotReady`] or [`Error::Ended`] with the end of the log of a part that fails.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        crate::install_crypto();
        let mut options = options;
        options
            .components
            .extend([Component::Etcd, Component::KubeApiserver]);
        options.components.retain(|part| part.in_cluster());
        let binaries = binaries().await?;
        stopwatch::begin();
        let _turn = STARTING.acquire().await;
        let mut left = STARTS;
        loop {
            left -= 1;
            match Self::start_once(&options, &binaries).await {
                // Its port was taken, or it was too early on a busy machine: a controller-manager ends when it may not yet
                // read a ConfigMap, and an API server when etcd does not answer within 20 seconds.
                Err(failure @ Error::Ended { .. }) if left > 0 => {
                    say(&format!("starting {} again: {failure}", options.name));
                }
                outcome => return outcome,
            }
        }
    }

    /// Starts the cluster once, on new ports.
    async fn start_once(options: &ClusterOptions, binaries: &Binaries) -> Result<Self> {
        let layout = Layout::new(options)?;
        let client = client_of(&layout.kubeconfig("admin")).await?;
        let cluster = Self {
            client,
            processes: Mutex::default(),
            options: options.clone(),
            binaries: binaries.clone(),
            layout,
        };
        tokio::select! {
            started = cluster.start_parts() => started?,
            ended = cluster.first_end() => return Err(ended),
        }
        Ok(cluster)
    }

    async fn start_parts(&self) -> Result<()> {
        let parts: Vec<Component> = self.options.components.iter().copied().collect();
        self.spawn(Component::Etcd)?;
        self.spawn(Component::KubeApiserver)?;
        self.wait_for_api(Component::KubeApiserver).await?;
        for part in &parts {
            if !matches!(part, Component::Etcd | Component::KubeApiserver) {
                self.spawn(*part)?;
            }
        }
        if self.options.components.contains(&Component::MetricsServer) {
            let port = self.layout.port(Component::MetricsServer);
            self.register_api("metrics.k8s.io", "v1beta1", port).await?;
        }
        if self.options.components.contains(&Component::Kwok) {
            self.add_nodes(&self.options.nodes).await?;
        }
        for part in parts {
            self.wait_for_answer(part).await?;
        }
        Ok(())
    }

    /// A client that may do everything (group `system:masters`).
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig of [`Cluster::client`], complete in itself.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.layout.kubeconfig("admin")
    }

    /// The URL of the API server.
    pub fn server(&self) -> String {
        self.layout.server()
    }

    /// The folder with the logs of all parts.
    pub fn folder(&self) -> &Path {
        self.layout.path()
    }

    /// Every request answered so far, by any client, in order.
    ///
    /// # Errors
    /// When the log cannot be read, or a line is not what the API server writes.
    pub fn audit(&self) -> Result<Vec<AuditEvent>> {
        audit::read(&self.layout.audit_log())
    }

    /// Kills a part, as `kill -9` does, and returns when it is gone. Nothing happens when it does
    /// not run.
    pub fn stop(&self, component: Component) {
        // Dropping the child kills it and waits.
        drop(self.processes().remove(&component));
    }

    /// Starts a part that was stopped, on the port and with the data it had, and for etcd and the
    /// API server waits until they answer.
    ///
    /// # Errors
    /// [`Error::NotReady`] or [`Error::Ended`] with the end of its log.
    pub async fn start_component(&self, component: Component) -> Result<()> {
        let port = self.layout.port(component);
        let free = || async move {
            if is_free(port) {
                Ok(())
            } else {
                Err("the port is in use")
            }
        };
        within(READY, &format!("port {port} of {component} is free"), free).await?;
        self.spawn(component)?;
        match component {
            Component::KubeApiserver => self.wait_for_api(component).await,
            Component::Etcd if self.runs(Component::KubeApiserver) => {
                self.wait_for_api(component).await
            }
            _ => Ok(()),
        }
    }

    /// [`Cluster::stop`] for the API server: clients see refused connections until it starts again.
    pub fn stop_apiserver(&self) {
        self.stop(Component::KubeApiserver);
    }

    /// [`Cluster::start_component`] for the API server, with the same port, certificates and data.
    ///
    /// # Errors
    /// As [`Cluster::start_component`].
    pub async fn start_apiserver(&self) -> Result<()> {
        self.start_component(Component::KubeApiserver).await
    }

    /// Writes all objects (but Secrets) and logs into a folder, as far as the API server answers.
    ///
    /// # Errors
    /// When the folder cannot be written. What cannot be read is left out.
    pub async fn dump(&self, folder: &Path) -> Result<()> {
        dump::logs(self.folder(), folder)?;
        dump::objects(&self.client, folder).await
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<Component, Child>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self, component: Component) -> bool {
        self.processes().contains_key(&component)
    }

    fn spawn(&self, component: Component) -> Result<()> {
        let mut command: Command = self.binaries.command(component);
        command
            .args(self.layout.flags(component, &self.options))
            .current_dir(self.folder())
            // Ignores the settings of the user: kwok reads ~/.kwok.
            .env("HOME", self.folder());
        let child = Child::spawn(&command, &self.layout.log(component))?;
        self.processes().insert(component, child);
        Ok(())
    }

    async fn wait_for_api(&self, component: Component) -> Result<()> {
        let ready = || async {
            if let Some(ended) = self.ended(component) {
                return Ok(Err(ended));
            }
            let request = http_get("/readyz");
            let answer = self
                .client
                .request_text(request)
                .await
                .map_err(|no| no.to_string())?;
            if answer == "ok" {
                Ok(Ok(()))
            } else {
                Err(answer)
            }
        };
        match within(READY, "the API server is ready", ready).await {
            Ok(outcome) => outcome,
            Err(late) => Err(self.not_ready(component, &late)),
        }
    }

    /// Waits until a part answers a request, with any answer. Its port is open before it has read its configuration.
    async fn wait_for_answer(&self, component: Component) -> Result<()> {
        let port = self.layout.port(component);
        let answers = within(READY, "it answers", || answer_of(port)).await;
        answers.map_err(|late| self.not_ready(component, &late))
    }

    fn not_ready(&self, component: Component, why: &Error) -> Error {
        let processes = self.processes();
        let log = processes.get(&component).map(Child::log_tail);
        Error::NotReady {
            component: component.to_string(),
            reason: why.to_string(),
            log: log.unwrap_or_default(),
        }
    }

    /// Returns when a part has ended.
    async fn first_end(&self) -> Error {
        let parts = &self.options.components;
        let end = || async {
            let end = parts.iter().find_map(|part| self.ended(*part));
            end.ok_or("all run")
        };
        match within(Duration::MAX, "a part ends", end).await {
            Ok(end) | Err(end) => end,
        }
    }

    /// The failure of a part that has ended.
    fn ended(&self, component: Component) -> Option<Error> {
        let mut processes = self.processes();
        let child = processes.get_mut(&component)?;
        let status = child.ended()?;
        Some(Error::Ended {
            component: component.to_string(),
            status,
            log: child.log_tail(),
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kubeconfig = self.layout.kubeconfig("admin");
            match dump::after_panic(self.folder(), &kubeconfig) {
                Ok(folder) => say(&format!(
                    "the state of the cluster is in {}",
                    folder.display()
                )),
                Err(failure) => say(&format!("the state of the cluster is lost: {failure}")),
            }
        }
        let mut processes = std::mem::take(&mut *self.processes());
        // All at once; dropping the map then waits for each.
        processes.values_mut().for_each(Child::kill);
    }
}

/// The programs, without holding up the runtime while they are built.
#[expect(
    clippy::disallowed_methods,
    reason = "the rig is no part of a simulation"
)]
pub(crate) async fn binaries() -> Result<Binaries> {
    let built = tokio::task::spawn_blocking(Binaries::ensure).await;
    built.map_err(|gone| Error::Spawn {
        program: "go".to_owned(),
        source: gone.into(),
    })?
}

/// A client made from a kubeconfig file.
pub(crate) async fn client_of(kubeconfig: &Path) -> Result<Client> {
    let options = kube::config::KubeConfigOptions::default();
    let file = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &options).await?;
    config.connect_timeout = Some(Duration::from_secs(15));
    Client::try_from(config).map_err(|source| Error::Client(Box::new(source)))
}

/// Sends a request without TLS, which a server with TLS answers too, with an error.
async fn answer_of(port: u16) -> std::io::Result<()> {
    let answer = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        stream.read_u8().await.map(drop)
    };
    tokio::time::timeout(ANSWER, answer).await?
}

/// A GET without a body.
pub(crate) fn http_get(path: &str) -> http::Request<Vec<u8>> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = path.parse().unwrap_or_default();
    request
}
