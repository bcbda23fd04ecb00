//! The values that the fake metric APIs serve. A test writes them and a request reads them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::MetricsApi;

/// All values.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By namespace and pod.
    pub(super) usage: BTreeMap<(String, String), PodUsage>,
    /// By namespace, resource, name and metric.
    pub(super) custom: BTreeMap<[String; 4], Reading>,
    /// By namespace and metric.
    pub(super) external: BTreeMap<(String, String), Vec<Reading>>,
    pub(super) failing: BTreeSet<MetricsApi>,
    pub(super) hanging: BTreeSet<MetricsApi>,
}

/// The time of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// This long before each request: it never grows older.
    Ago(Duration),
    /// At that instant.
    At(Timestamp),
}

/// The usage of the containers of a pod, as metrics-server reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUsage {
    /// CPU and memory by container name, as quantities (`170m`, `64Mi`).
    pub containers: BTreeMap<String, (String, String)>,
    /// The end of the window; just now by default.
    pub taken: Taken,
    /// The length of the window; 10 s by default.
    pub window: Duration,
}

/// One value of a custom or external metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// A quantity: `12`, `500m`, `1.5k`.
    pub value: String,
    /// Labels of the series; metric selectors are matched with them.
    pub labels: BTreeMap<String, String>,
    /// The time; just now by default.
    pub taken: Taken,
    /// The length of the window; an instant by default.
    pub window: Option<Duration>,
}

impl Taken {
    pub(super) fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(instant) => instant,
            Self::Ago(age) => SignedDuration::try_from(age)
                .ok()
                .and_then(|age| now.checked_sub(age).ok())
                .unwrap_or(Timestamp::MIN),
        }
    }
}

impl PodUsage {
    /// One container that uses `cpu`, and 1Mi of memory.
    #[must_use]
    pub fn cpu(container: &str, cpu: &str) -> Self {
        let containers = BTreeMap::new();
        let none = Self {
            containers,
            taken: Taken::Ago(Duration::ZERO),
            window: Duration::from_secs(10),
        };
        none.with(container, cpu, "1Mi")
    }

    /// The same with one more container.
    #[must_use]
    pub fn with(mut self, container: &str, cpu: &str, memory: &str) -> Self {
        self.containers
            .insert(container.to_owned(), (cpu.to_owned(), memory.to_owned()));
        self
    }

    /// Sets the time of the reading.
    #[must_use]
    pub fn taken(mut self, taken: Taken) -> Self {
        self.taken = taken;
        self
    }
}

impl Reading {
    /// A value without labels, taken just now.
    #[must_use]
    pub fn new(value: &str) -> Self {
        Self {
            value: value.to_owned(),
            labels: BTreeMap::new(),
            taken: Taken::Ago(Duration::ZERO),
            window: None,
        }
    }

    /// The same with a label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets the time of the reading.
    #[must_use]
    pub fn taken(mut self, taken: Taken) -> Self {
        self.taken = taken;
        self
    }
}
