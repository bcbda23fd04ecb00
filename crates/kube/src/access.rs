//! Access of a process to the Kubernetes API: by its flags, or else by its surroundings.

use std::{env, path::PathBuf};

use crate::api_server::{ConnectError, Connection};
use foretide_base::machine::Machine;

/// Access to the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeAccess {
    /// The service account of the pod of this process.
    InCluster,
    /// A kubeconfig and optionally one of its contexts.
    Kubeconfig {
        /// Path of the file; absent means `$KUBECONFIG`, else `~/.kube/config`.
        path: Option<PathBuf>,
        /// Name of the context; absent means the current one.
        context: Option<String>,
    },
}

/// Flags that select an API server; each can be given as `FORETIDE_...` in the environment.
#[derive(Debug, Clone, clap::Args)]
pub struct KubeArgs {
    /// Kubeconfig file. Without it $KUBECONFIG; without that the service account of the pod, or outside of one
    /// ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it, its current context.
    #[arg(long)]
    pub context: Option<String>,
    /// Surroundings of this process.
    #[arg(skip = Surroundings::detect())]
    pub surroundings: Surroundings,
}

/// Surroundings of a process that decide on its access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// The variable `$KUBECONFIG` is set.
    pub names_kubeconfig: bool,
    /// The process runs in a pod of a cluster.
    pub is_pod: bool,
}

// === impl KubeAccess ===

impl KubeAccess {
    /// A connection to the API server, from a machine.
    ///
    /// # Errors
    /// The account of the pod or the kubeconfig cannot be used.
    pub async fn connect(&self, machine: &Machine) -> Result<Connection, ConnectError> {
        match self {
            Self::InCluster => Connection::in_cluster(machine),
            Self::Kubeconfig { path, context } => {
                Connection::from_kubeconfig(path.as_deref(), context.as_deref(), machine).await
            }
        }
    }
}

// === impl KubeArgs ===

impl KubeArgs {
    /// The access of the flags. Without any flag the order is that of controller-runtime: `$KUBECONFIG`, the account of
    /// the pod, `~/.kube/config`.
    pub fn access(&self) -> KubeAccess {
        let Surroundings {
            names_kubeconfig,
            is_pod,
        } = self.surroundings;
        let is_named = self.kubeconfig.is_some() || self.context.is_some();
        if is_pod && !is_named && !names_kubeconfig {
            return KubeAccess::InCluster;
        }
        KubeAccess::Kubeconfig {
            path: self.kubeconfig.clone(),
            context: self.context.clone(),
        }
    }
}

// === impl Surroundings ===

impl Surroundings {
    /// A pod without a kubeconfig of its own.
    pub const POD: Self = Self {
        names_kubeconfig: false,
        is_pod: true,
    };

    fn detect() -> Self {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            names_kubeconfig: is_set("KUBECONFIG"),
            // The kubelet sets this variable in every pod.
            is_pod: is_set("KUBERNETES_SERVICE_HOST"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_that_is_named_comes_first_and_then_the_account_of_the_pod() {
        let by = |path: Option<&str>, context: Option<&str>| KubeAccess::Kubeconfig {
            path: path.map(PathBuf::from),
            context: context.map(str::to_owned),
        };
        for (kubeconfig, context, names_kubeconfig, is_pod, expected) in [
            (None, None, false, true, KubeAccess::InCluster),
            (None, None, true, true, by(None, None)),
            (None, None, true, false, by(None, None)),
            (None, None, false, false, by(None, None)),
            (None, Some("b"), false, true, by(None, Some("b"))),
            (Some("k"), None, true, true, by(Some("k"), None)),
            (Some("k"), Some("b"), false, false, by(Some("k"), Some("b"))),
        ] {
            let args = KubeArgs {
                kubeconfig: kubeconfig.map(PathBuf::from),
                context: context.map(str::to_owned),
                surroundings: Surroundings {
                    names_kubeconfig,
                    is_pod,
                },
            };
            assert_eq!(args.access(), expected, "{args:?}");
        }
    }
}
