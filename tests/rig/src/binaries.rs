//! The programs of the rig, built from pinned Go modules on first use. One process builds, the
//! others wait for it; what is there is used as it is. It downloads nothing but Go modules, through
//! the ordinary `go` client, each checked by `go.sum`.

use std::{
    fmt, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Error, Result,
    place::{environment, root, say},
};

/// One program of the rig.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The store of the API server.
    Etcd,
    /// The API server: CRDs, CEL, server-side apply, aggregation, RBAC, audit log.
    KubeApiserver,
    /// The controllers, the horizontal pod autoscaler among them.
    KubeControllerManager,
    /// The scheduler: pods on full nodes become `Unschedulable`.
    KubeScheduler,
    /// Nodes and pods that become ready, and resource metrics by rule.
    Kwok,
    /// The real `metrics.k8s.io`, fed by kwok's kubelet endpoint.
    MetricsServer,
    /// Prometheus.
    Prometheus,
    /// The tool that writes a history into Prometheus blocks.
    Promtool,
}

impl Component {
    /// The name of its program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::MetricsServer => "metrics-server",
            Self::Prometheus => "prometheus",
            Self::Promtool => "promtool",
        }
    }

    /// Whether it is a part of a cluster.
    pub(crate) const fn in_cluster(self) -> bool {
        !matches!(self, Self::Prometheus | Self::Promtool)
    }

    /// Whether it is a subcommand of the one `controlplane` program.
    const fn in_control_plane(self) -> bool {
        matches!(
            self,
            Self::Etcd | Self::KubeApiserver | Self::KubeControllerManager | Self::KubeScheduler
        )
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Go module of the rig: the folder with its `go.mod`, and what is built from it.
struct Module {
    what: &'static str,
    folder: &'static str,
    packages: &'static [&'static str],
    ldflags: &'static str,
    components: &'static [Component],
}

/// Clients parse `/version`, so the control plane must carry one.
const CONTROL_PLANE: Module = Module {
    what: "etcd, Kubernetes, kwok and metrics-server",
    folder: "go/control-plane",
    packages: &[
        ".",
        "sigs.k8s.io/kwok/cmd/kwok",
        "sigs.k8s.io/metrics-server/cmd/metrics-server",
    ],
    ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
              -X k8s.io/component-base/version.gitMajor=1 \
              -X k8s.io/component-base/version.gitMinor=36",
    components: &[
        Component::Etcd,
        Component::KubeApiserver,
        Component::KubeControllerManager,
        Component::KubeScheduler,
        Component::Kwok,
        Component::MetricsServer,
    ],
};

const PROMETHEUS: Module = Module {
    what: "prometheus and promtool",
    folder: "go/prometheus",
    packages: &[
        "github.com/prometheus/prometheus/cmd/prometheus",
        "github.com/prometheus/prometheus/cmd/promtool",
    ],
    ldflags: "-s -w",
    components: &[Component::Prometheus, Component::Promtool],
};

/// The programs, ready to run.
#[derive(Debug, Clone)]
pub struct Binaries {
    control_plane: PathBuf,
    prometheus: PathBuf,
    assets: Option<PathBuf>,
}

impl Binaries {
    /// Makes sure that every program exists, building what is missing: about ten minutes on two
    /// cores the first time, nothing afterwards. The results live in `target/rig/bin`, in a folder
    /// named by a hash of the pinned versions. A program found in the folder that
    /// `KUBEBUILDER_ASSETS` names is used instead.
    ///
    /// # Errors
    /// [`Error::NoGo`] when something must be built and there is no Go; [`Error::Build`] with the output of the
    /// compiler when it fails.
    pub fn ensure() -> Result<Self> {
        static BUILT: Mutex<Option<Binaries>> = Mutex::new(None);
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(binaries) = built.as_ref() {
            return Ok(binaries.clone());
        }
        let assets = environment("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let binaries = Self {
            control_plane: CONTROL_PLANE.ensure(assets.as_deref())?,
            prometheus: PROMETHEUS.ensure(assets.as_deref())?,
            assets,
        };
        *built = Some(binaries.clone());
        Ok(binaries)
    }

    /// A command that runs `component`; its flags are to be added.
    #[must_use]
    pub fn command(&self, component: Component) -> Command {
        if let Some(given) = given(self.assets.as_deref(), component) {
            return Command::new(given);
        }
        if component.in_control_plane() {
            let mut command = Command::new(self.control_plane.join("controlplane"));
            command.arg(component.name());
            return command;
        }
        let folder = match component {
            Component::Prometheus | Component::Promtool => &self.prometheus,
            _ => &self.control_plane,
        };
        Command::new(folder.join(component.name()))
    }
}

/// The program of that name in the folder of ready-made ones.
fn given(assets: Option<&Path>, component: Component) -> Option<PathBuf> {
    assets
        .map(|folder| folder.join(component.name()))
        .filter(|program| program.is_file())
}

impl Module {
    fn sources(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.folder)
    }

    /// The folder with this module's programs, built when needed.
    fn ensure(&self, assets: Option<&Path>) -> Result<PathBuf> {
        let bin = root().join("bin");
        let name = Path::new(self.folder)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let finished = bin.join(format!("{name}-{:016x}", self.fingerprint()?));
        if finished.is_dir()
            || self
                .components
                .iter()
                .all(|one| given(assets, *one).is_some())
        {
            return Ok(finished);
        }
        fs::create_dir_all(&bin).map_err(Error::file("create", &bin))?;
        let lock = bin.join(format!("{name}.lock"));
        let lock_file = fs::File::create(&lock).map_err(Error::file("create", &lock))?;
        if lock_file.try_lock().is_err() {
            say(&format!(
                "waiting for another process that builds {}",
                self.what
            ));
            lock_file.lock().map_err(Error::file("lock", &lock))?;
        }
        // Another process may have built it while we waited. The lock is released with its file.
        if !finished.is_dir() {
            self.build(&finished)?;
        }
        Ok(finished)
    }

    /// A hash of everything that goes into the build.
    fn fingerprint(&self) -> Result<u64> {
        let mut hasher = DefaultHasher::new();
        (self.packages, self.ldflags).hash(&mut hasher);
        for name in ["go.mod", "go.sum", "main.go"] {
            let path = self.sources().join(name);
            if name != "main.go" || path.exists() {
                fs::read(&path)
                    .map_err(Error::file("read", &path))?
                    .hash(&mut hasher);
            }
        }
        Ok(hasher.finish())
    }

    /// Builds into a folder beside `finished`, and renames it when it is complete.
    fn build(&self, finished: &Path) -> Result<()> {
        let partial = finished.with_extension("partial");
        drop(fs::remove_dir_all(&partial));
        fs::create_dir_all(&partial).map_err(Error::file("create", &partial))?;
        say(&format!(
            "building {} (once; several minutes on first use)",
            self.what
        ));
        let mut go = Command::new("go");
        go.current_dir(self.sources())
            .env("CGO_ENABLED", "0")
            .args([
                "build",
                "-v",
                "-mod=readonly",
                "-trimpath",
                "-buildvcs=false",
                "-ldflags",
            ])
            .args([self.ldflags, "-o"])
            .arg(&partial)
            .args(self.packages);
        self.run(&mut go)?;
        fs::rename(&partial, finished).map_err(Error::file("rename", &partial))?;
        say(&format!("built {}", self.what));
        Ok(())
    }

    /// Runs Go, and prints its progress every ten seconds.
    #[expect(
        clippy::disallowed_methods,
        reason = "only messages to the user show how long a build takes"
    )]
    fn run(&self, go: &mut Command) -> Result<()> {
        let spawned = go
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = spawned.map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::NoGo,
            _ => Error::Spawn {
                program: "go".to_owned(),
                source,
            },
        })?;
        let lines = lines_of(process.stderr.take());
        let (begin, mut spoken) = (Instant::now(), Instant::now());
        let mut output_lines: Vec<String> = Vec::new();
        loop {
            match lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => output_lines.push(line),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if spoken.elapsed() >= Duration::from_secs(10) {
                spoken = Instant::now();
                say(&progress(self.what, begin.elapsed(), &output_lines));
            }
        }
        let status = process.wait().map_err(Error::file("wait for", "go"))?;
        if status.success() {
            return Ok(());
        }
        let output = output_lines
            .get(output_lines.len().saturating_sub(30)..)
            .unwrap_or_default()
            .join("\n");
        Err(Error::Build {
            what: self.what,
            folder: self.sources(),
            output,
        })
    }
}

/// One line about a build under way: `go build -v` names each package it has compiled.
fn progress(what: &str, elapsed: Duration, output_lines: &[String]) -> String {
    let last = output_lines.last().map(String::as_str).unwrap_or_default();
    let (seconds, count) = (elapsed.as_secs(), output_lines.len());
    format!("building {what}: {seconds} s, {count} packages and downloads, last {last}")
}

/// The lines of a stream, as they come, until it closes.
fn lines_of(stream: Option<impl std::io::Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = stream
            .into_iter()
            .flat_map(|stream| BufReader::new(stream).lines());
        for line in lines.map_while(std::io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
