//! The options of a cluster. Values only; [`Cluster::start`](crate::Cluster::start) reads them.

use std::{collections::BTreeSet, time::Duration};

use crate::Component;

/// The components of a cluster, and their behavior. The default is a quick small cluster: two nodes of 16 cores, pods
/// ready at once, the HPA controller every two seconds, no metrics-server.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// A name for folders and messages.
    pub name: String,
    /// The components to run. etcd and kube-apiserver always run; Prometheus is not part of a cluster.
    pub components: BTreeSet<Component>,
    /// The nodes, `node-0` first.
    pub nodes: Vec<NodeSize>,
    /// The time from a pod's scheduling until it is Running and Ready.
    pub pod_startup: Duration,
    /// Flags of the HPA controller.
    pub hpa: HpaFlags,
}

/// The allocatable resources of a node, as Kubernetes quantities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSize {
    /// Allocatable CPU.
    pub cpu: String,
    /// Allocatable memory.
    pub memory: String,
    /// Number of pods that fit.
    pub pods: u32,
}

/// The `--horizontal-pod-autoscaler-*` flags of the controller-manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HpaFlags {
    /// `sync-period`.
    pub sync_period: Duration,
    /// `downscale-stabilization`.
    pub downscale_stabilization: Duration,
    /// `cpu-initialization-period`.
    pub cpu_initialization_period: Duration,
    /// `initial-readiness-delay`.
    pub initial_readiness_delay: Duration,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            name: "cluster".to_owned(),
            components: BTreeSet::from([
                Component::Etcd,
                Component::KubeApiserver,
                Component::KubeControllerManager,
                Component::KubeScheduler,
                Component::Kwok,
            ]),
            nodes: vec![NodeSize::new("16", "64Gi", 110); 2],
            pod_startup: Duration::ZERO,
            hpa: HpaFlags::quick(),
        }
    }
}

impl ClusterOptions {
    /// The default with this name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Adds this component.
    #[must_use]
    pub fn with(mut self, component: Component) -> Self {
        self.components.insert(component);
        self
    }

    /// Removes this component.
    #[must_use]
    pub fn without(mut self, component: Component) -> Self {
        self.components.remove(&component);
        self
    }

    /// `count` nodes of one size.
    #[must_use]
    pub fn nodes(mut self, count: usize, size: NodeSize) -> Self {
        self.nodes = vec![size; count];
        self
    }

    /// Sets the time that pods take to become ready.
    #[must_use]
    pub fn pod_startup(mut self, startup: Duration) -> Self {
        self.pod_startup = startup;
        self
    }

    /// Sets the flags of the HPA controller.
    #[must_use]
    pub fn hpa(mut self, flags: HpaFlags) -> Self {
        self.hpa = flags;
        self
    }
}

impl NodeSize {
    /// A size from Kubernetes quantities.
    pub fn new(cpu: &str, memory: &str, pods: u32) -> Self {
        Self {
            cpu: cpu.to_owned(),
            memory: memory.to_owned(),
            pods,
        }
    }
}

impl HpaFlags {
    /// Short periods for tests: 2 s, 10 s, 2 s, 1 s.
    pub const fn quick() -> Self {
        Self {
            sync_period: Duration::from_secs(2),
            downscale_stabilization: Duration::from_secs(10),
            cpu_initialization_period: Duration::from_secs(2),
            initial_readiness_delay: Duration::from_secs(1),
        }
    }

    /// The defaults of Kubernetes: 15 s, 5 min, 5 min, 30 s.
    pub const fn upstream() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_mins(5),
            cpu_initialization_period: Duration::from_mins(5),
            initial_readiness_delay: Duration::from_secs(30),
        }
    }
}
