//! The values that the fake metric APIs serve, each as taken just now. A test writes them and a request reads them.

use std::collections::BTreeMap;

/// All values.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Usage by namespace and pod.
    pub(super) usage: BTreeMap<(String, String), PodUsage>,
    pub(super) usage_of_others: Option<PodUsage>,
    /// Readings by namespace, resource, name and metric.
    pub(super) custom: BTreeMap<[String; 4], Reading>,
    /// Readings by namespace and metric.
    pub(super) external: BTreeMap<(String, String), Vec<Reading>>,
}

/// The usage of the containers of a pod, as metrics-server reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUsage {
    /// CPU and memory by container name, as quantities (`170m`, `64Mi`).
    pub containers: BTreeMap<String, (String, String)>,
}

/// One value of a custom or external metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// A quantity: `12`, `500m`, `1.5k`.
    pub value: String,
    /// Labels of the series; metric selectors are matched with them.
    pub labels: BTreeMap<String, String>,
}

impl PodUsage {
    /// One container that uses `cpu`, and 1Mi of memory.
    pub fn cpu(container: &str, cpu: &str) -> Self {
        let containers = BTreeMap::new();
        Self { containers }.with(container, cpu, "1Mi")
    }

    /// The usage with one more container.
    #[must_use]
    pub fn with(mut self, container: &str, cpu: &str, memory: &str) -> Self {
        self.containers
            .insert(container.to_owned(), (cpu.to_owned(), memory.to_owned()));
        self
    }
}

impl Reading {
    /// A value without labels.
    pub fn new(value: &str) -> Self {
        Self {
            value: value.to_owned(),
            labels: BTreeMap::new(),
        }
    }

    /// The reading with one more label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }
}
