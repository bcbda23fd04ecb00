//! The programs that the rig runs: a control plane, Prometheus, the clients of a user, and KEDA's client.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use crate::{Result, go_module::GoModule, place::environment};

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

    /// Returns whether the program is a part of a cluster.
    pub(crate) const fn in_cluster(self) -> bool {
        !matches!(self, Self::Prometheus | Self::Promtool)
    }

    /// Returns whether the program is a subcommand of the one `controlplane` program.
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

/// Clients parse `/version`, so the control plane must carry one.
const CONTROL_PLANE: GoModule = GoModule {
    what: "etcd, Kubernetes, kwok and metrics-server",
    folder: "go/control-plane",
    packages: &[
        ".",
        "sigs.k8s.io/kwok/cmd/kwok",
        "sigs.k8s.io/metrics-server/cmd/metrics-server",
    ],
    tags: "",
    ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
              -X k8s.io/component-base/version.gitMajor=1 \
              -X k8s.io/component-base/version.gitMinor=36",
};

const CONTROL_PLANE_COMPONENTS: [Component; 6] = [
    Component::Etcd,
    Component::KubeApiserver,
    Component::KubeControllerManager,
    Component::KubeScheduler,
    Component::Kwok,
    Component::MetricsServer,
];

const PROMETHEUS: GoModule = GoModule {
    what: "prometheus and promtool",
    folder: "go/prometheus",
    packages: &[
        "github.com/prometheus/prometheus/cmd/prometheus",
        "github.com/prometheus/prometheus/cmd/promtool",
    ],
    // Without the service discovery of two dozen clouds, whose clients are most of the build.
    tags: "remove_all_sd",
    ldflags: "-s -w",
};

/// Built from the module of the control plane, with which they have most packages in common.
const CLIENTS: GoModule = GoModule {
    what: "kubectl and Helm 4",
    folder: "go/control-plane",
    packages: &["./kubectl", "helm.sh/helm/v4/cmd/helm"],
    tags: "",
    ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
              -X k8s.io/component-base/version.gitMajor=1 \
              -X k8s.io/component-base/version.gitMinor=36 \
              -X helm.sh/helm/v4/internal/version.version=v4.2.4",
};

const HELM_3: GoModule = GoModule {
    what: "Helm 3",
    folder: "go/helm-3",
    packages: &["helm.sh/helm/v3/cmd/helm"],
    // The same as in its own build, so that it renders for the Kubernetes of its libraries.
    tags: "",
    ldflags: "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0 \
              -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 \
              -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=37",
};

/// KEDA's generated client alone builds in seconds.
const KEDA_CLIENT: GoModule = GoModule {
    what: "KEDA's client of external scalers",
    folder: "go/keda",
    packages: &["."],
    tags: "",
    ldflags: "-s -w",
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
    /// cores the first time, nothing afterwards. The results are kept in `~/.cache/foretide-rig`, in a
    /// folder named by a hash of the pinned versions. A program found in the folder that
    /// `KUBEBUILDER_ASSETS` names is run instead.
    ///
    /// # Errors
    /// [`Error::NoGo`](crate::Error::NoGo) when something must be built and there is no Go; [`Error::Build`](crate::Error::Build) with the output of the
    /// compiler when it fails.
    pub fn ensure() -> Result<Self> {
        static BUILT: Mutex<Option<Binaries>> = Mutex::new(None);
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(binaries) = built.as_ref() {
            return Ok(binaries.clone());
        }
        let assets = environment("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let needed = |module: &GoModule, components: &[Component]| {
            let is_given = |one: &Component| given(assets.as_deref(), *one).is_some();
            if components.iter().all(is_given) {
                return Ok(PathBuf::new());
            }
            module.ensure()
        };
        let binaries = Self {
            control_plane: needed(&CONTROL_PLANE, &CONTROL_PLANE_COMPONENTS)?,
            prometheus: needed(&PROMETHEUS, &[Component::Prometheus, Component::Promtool])?,
            assets,
        };
        *built = Some(binaries.clone());
        Ok(binaries)
    }

    /// A command that runs `component`; its flags are to be added.
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

/// The programs that a user of clusters types: `kubectl` and `helm`.
#[derive(Debug, Clone)]
pub struct Clients {
    folder: PathBuf,
}

impl Clients {
    /// Makes sure that `kubectl` and the `helm` of version 4 exist, building what is missing: some minutes the first time.
    ///
    /// # Errors
    /// As [`Binaries::ensure`].
    pub fn ensure() -> Result<Self> {
        let folder = CLIENTS.ensure()?;
        Ok(Self { folder })
    }

    /// Makes sure that the `helm` of version 3 exists, which is alone in its folder.
    ///
    /// # Errors
    /// As [`Binaries::ensure`].
    pub fn ensure_helm_3() -> Result<Self> {
        let folder = HELM_3.ensure()?;
        Ok(Self { folder })
    }

    /// The folder with the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// A program that asks an external scaler with KEDA's own client, and prints its answers as lines of JSON.
#[derive(Debug, Clone)]
pub struct KedaClient {
    folder: PathBuf,
}

impl KedaClient {
    /// Makes sure that the program exists, building it if it is missing: half a minute the first time.
    ///
    /// # Errors
    /// As [`Binaries::ensure`].
    pub fn ensure() -> Result<Self> {
        let folder = KEDA_CLIENT.ensure()?;
        Ok(Self { folder })
    }

    /// The program.
    pub fn program(&self) -> PathBuf {
        self.folder.join("keda")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_name_the_versions_that_they_are_built_from() {
        let ours = include_str!("../go/control-plane/go.mod");
        let helm_3 = include_str!("../go/helm-3/go.mod");
        let kubernetes = "gitVersion=v1.";
        let [helm_4, of_helm_3] = [
            "v4/internal/version.version=",
            "v3/internal/version.version=",
        ];
        for (module, pins, flag, dependency) in [
            (&CONTROL_PLANE, ours, kubernetes, "k8s.io/kubernetes v1."),
            (&CLIENTS, ours, kubernetes, "k8s.io/kubectl v0."),
            (&CLIENTS, ours, helm_4, "helm.sh/helm/v4 "),
            (&HELM_3, helm_3, of_helm_3, "helm.sh/helm/v3 "),
        ] {
            let after = |text: &str, before: &str| {
                let (_, rest) = text.split_once(before)?;
                rest.split_whitespace().next().map(str::to_owned)
            };
            let flag = after(module.ldflags, flag);
            assert!(flag.is_some(), "{}", module.what);
            assert_eq!(flag, after(pins, dependency), "{}", module.what);
        }
    }
}
