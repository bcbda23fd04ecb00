//! The page: what Foretide sees, expects and decided, and why, for people who look.
//!
//! ```text
//! sync, or a simulated run --record--> DecisionLog --Page--> api (JSON), charts (SVG)
//! ```
//!
//! Views are pure but for a lock: they are computed from pointers that are cloned under it, so that a reader delays no
//! sync. [`http`] serves them, with the assets and the rights of the reader; a demo fills the log of a simulated run.
//!
//! The crate stands on `foretide-base` and [`foretide_chart`], and knows no cluster, no Prometheus and no controller.
//!
//! ```
//! # use std::sync::Arc;
//! # use jiff::Timestamp;
//! use foretide_page::{Autoscaler, DecisionLog, Host, Page, Record, Status, Visible};
//!
//! #[derive(Debug)]
//! struct Process;
//!
//! impl Host for Process {
//!     fn now(&self) -> Timestamp {
//!         Timestamp::UNIX_EPOCH
//!     }
//! }
//!
//! let page = Page::new(Arc::new(DecisionLog::default()), Arc::new(Process));
//! let object = serde_json::json!({
//!     "metadata": { "namespace": "shop", "name": "web" },
//!     "spec": { "scaleTargetRef": { "kind": "Deployment", "name": "web" }, "maxReplicas": 10 },
//! });
//! page.log().record(Record {
//!     at: Timestamp::UNIX_EPOCH,
//!     autoscaler: &Autoscaler::Effective(Arc::new(serde_json::from_value(object)?)),
//!     status: &Status::default(),
//!     decided: None,
//! });
//! let fleet = page.fleet(&Visible::All, &Default::default())?;
//! assert_eq!(fleet.rows[0].target, "Deployment web");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod api;
mod block;
mod chart;
mod fleet;
mod history;
pub mod http;
mod log;
mod minutes;
mod record;
pub mod remedy;
mod rows;
#[cfg(test)]
mod tests;
mod windows;
mod word;
mod workload;
mod worth;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use jiff::Timestamp;

use self::api::{
    ClusterShare, ClusterView, ClustersView, HealthView, ObjectKey, Overview, SourceHealth, Word,
};
pub use self::log::{DecisionLog, key_of};
pub use self::{
    block::MetricRecord,
    record::{Decided, Record},
};
use self::{record::Recorded, worth::WorthTable};
pub use foretide_api::autoscaler::{Autoscaler, FleetStatus, Status};

/// The namespaces that a reader may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// All namespaces.
    All,
    /// Only these namespaces.
    Namespaces(BTreeSet<String>),
}

/// Reason for the refusal of a view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// There is no such autoscaler, or the reader may not see it: the answer is the same.
    #[error("no {kind} {namespace}/{name}, or no permission to see it", kind = .0.resource.trim_end_matches('s'), namespace = .0.namespace, name = .0.name)]
    NotFound(ObjectKey),
    /// A parameter has no value that can be used.
    #[error("{0}")]
    BadQuery(String),
}

/// The process that decides, as the page shows it.
pub trait Host: fmt::Debug + Send + Sync {
    /// Time of the process; in a demo that of the simulation.
    fn now(&self) -> Timestamp;
    /// Seconds of that time per second of real time.
    fn speed(&self) -> f64 {
        1.0
    }
    /// `cluster` or `demo`.
    fn source(&self) -> &'static str {
        "cluster"
    }
    /// Returns whether the process leads.
    fn leads(&self) -> bool {
        true
    }
    /// The namespace of its pod, if it runs in the cluster.
    fn namespace(&self) -> Option<String> {
        None
    }
    /// Identity of the leader in the lease, if it is known.
    fn leader(&self) -> Option<String> {
        None
    }
    /// Health of the sources that the process reads.
    fn health(&self) -> Health {
        Health::default()
    }
    /// The member clusters that the process knows.
    fn members(&self) -> Vec<MemberState> {
        Vec::new()
    }
}

/// Readiness of a process and health of its sources.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Reason for which the process is not ready, if there is one.
    pub unready: Option<String>,
    /// Seconds for which the most overdue autoscaler has been due.
    pub lag_seconds: f64,
    /// Health of each watch and each server of metrics.
    pub sources: Vec<SourceHealth>,
}

/// State of one member cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberState {
    /// Name of the member.
    pub name: String,
    /// The member answers.
    pub ready: bool,
    /// Seconds for which the member has not answered, if it does not.
    pub silent_seconds: Option<f64>,
}

/// Everything that can be seen.
#[derive(Debug)]
pub struct Page {
    log: Arc<DecisionLog>,
    host: Arc<dyn Host>,
    worth: WorthTable,
}

// === impl Visible ===

impl Visible {
    /// Returns whether the reader may see the objects of a namespace.
    pub fn allows(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(allowed) => allowed.contains(namespace),
        }
    }
}

// === impl Page ===

impl Page {
    /// The page of what `host` records in `log`.
    pub fn new(log: Arc<DecisionLog>, host: Arc<dyn Host>) -> Self {
        Self {
            log,
            host,
            worth: WorthTable::default(),
        }
    }

    /// The recorded decisions.
    pub fn log(&self) -> &Arc<DecisionLog> {
        &self.log
    }

    /// Checks that an autoscaler is recorded and that the reader may see it.
    ///
    /// # Errors
    /// [`ViewError::NotFound`].
    pub(crate) fn check(&self, key: &ObjectKey, visible: &Visible) -> Result<(), ViewError> {
        if visible.allows(&key.namespace) && self.log.contains(key) {
            return Ok(());
        }
        Err(ViewError::NotFound(key.clone()))
    }

    /// Changes whenever something that the reader sees has changed: of one autoscaler, or of any.
    pub(crate) fn version(&self, visible: &Visible, of: Option<&ObjectKey>) -> u64 {
        match of {
            Some(key) if visible.allows(&key.namespace) => {
                self.log.version_of(key).unwrap_or_default()
            }
            Some(_) => 0,
            None => self.log.version(visible),
        }
    }

    /// Identity of this process and age of its data.
    pub fn overview(&self, visible: &Visible, reader: Option<String>) -> Overview {
        let namespaces = match visible {
            Visible::All => None,
            Visible::Namespaces(all) => Some(all.iter().cloned().collect()),
        };
        Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: self.host.now().to_string(),
            speed: self.host.speed(),
            source: self.host.source().to_owned(),
            leads: self.host.leads(),
            leader: self.host.leader(),
            reader,
            namespaces,
            lab: false,
            unreviewed_namespaces: None,
            recorded_since: self.log.since(visible).map(|it| at(it).to_string()),
            memory: format!(
                "minutes are kept in memory since this process leads: at most 14 days, and {} MiB for all autoscalers \
                 (--page-memory), of which each has the same share",
                self.log.bytes() >> 20
            ),
        }
    }

    /// The members of fleets.
    pub fn clusters(&self, visible: &Visible) -> ClustersView {
        let members = self.host.members();
        let mut clusters = BTreeMap::new();
        for latest in self.log.all(visible) {
            for status in latest.status.fleet.clusters.iter().flatten() {
                let view = clusters.entry(status.name.clone()).or_insert_with(|| {
                    let member = members.iter().find(|member| member.name == status.name);
                    ClusterView {
                        name: status.name.clone(),
                        ready: member.map(|member| member.ready),
                        silent_seconds: member.and_then(|member| member.silent_seconds),
                        shares: Vec::new(),
                    }
                });
                view.shares.push(ClusterShare {
                    autoscaler: latest.key.clone(),
                    status: status.clone(),
                });
            }
        }
        let clusters = clusters.into_values().collect();
        ClustersView { clusters }
    }

    /// Health of the sources that Foretide reads.
    pub fn health(&self, visible: &Visible) -> HealthView {
        let Health {
            unready,
            lag_seconds,
            sources,
        } = self.host.health();
        let mut all = self.log.all(visible);
        all.retain(|latest| latest.word == Word::Conflict);
        all.sort_by(|one, other| one.key.cmp(&other.key));
        let (unready, sources) = match visible {
            Visible::All => (unready, sources),
            Visible::Namespaces(_) => {
                let said = "it is not ready; a reader of all namespaces sees why";
                (unready.map(|_| said.to_owned()), vec![summed(&sources)])
            }
        };
        HealthView {
            unready,
            lag_seconds,
            sources,
            conflicts: all.iter().map(|latest| fleet::row(latest, None)).collect(),
        }
    }

    fn recorded(&self, key: &ObjectKey, visible: &Visible) -> Result<Recorded, ViewError> {
        Some(key)
            .filter(|key| visible.allows(&key.namespace))
            .and_then(|key| self.log.recorded(key))
            .ok_or_else(|| ViewError::NotFound(key.clone()))
    }
}

/// Sums up the health of all sources for a reader of some namespaces, who may not see their addresses and problems.
fn summed(sources: &[SourceHealth]) -> SourceHealth {
    let stale = sources.iter().filter(|source| !source.healthy).count();
    SourceHealth {
        name: format!("{} watches and servers of metrics", sources.len()),
        healthy: stale == 0,
        age_seconds: None,
        errors: 0,
        problem: match stale {
            0 => String::new(),
            stale => format!("{stale} of them not current; a reader of all namespaces sees which"),
        },
    }
}

/// An instant by its seconds since 1970.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH)
}
