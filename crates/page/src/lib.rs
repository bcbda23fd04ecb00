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
//! use foretide_page::DecisionLog;
//!
//! let log = DecisionLog::default();
//! assert!(format!("{log:?}").contains("DecisionLog"));
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

use std::{collections::BTreeSet, fmt, sync::Arc};

use jiff::Timestamp;

use self::api::{
    AutoscalerView, CalendarQuery, CalendarView, ChartQuery, ClusterShare, ClusterView,
    ClustersView, FleetQuery, FleetView, HealthView, HistoryQuery, HistoryView, ObjectKey,
    Overview, Sentence, SourceHealth, SpanQuery, Word, Worth,
};
pub use self::log::{DecisionLog, key_of};
pub use self::record::{Decided, MetricRecord, Record};
use self::{
    record::{Latest, Recorded},
    worth::WorthTable,
};
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
    #[must_use]
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
    #[must_use]
    pub fn new(log: Arc<DecisionLog>, host: Arc<dyn Host>) -> Self {
        Self {
            log,
            host,
            worth: WorthTable::default(),
        }
    }

    /// The recorded decisions.
    #[must_use]
    pub fn log(&self) -> &Arc<DecisionLog> {
        &self.log
    }

    /// Checks that an autoscaler is recorded and that the reader may see it.
    ///
    /// # Errors
    /// [`ViewError::NotFound`].
    pub fn check(&self, key: &ObjectKey, visible: &Visible) -> Result<(), ViewError> {
        let known = visible.allows(&key.namespace) && self.log.contains(key);
        known
            .then_some(())
            .ok_or_else(|| ViewError::NotFound(key.clone()))
    }

    /// The namespaces of recorded autoscalers.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<String> {
        self.log.namespaces()
    }

    /// Changes whenever something that the reader sees has changed: of one autoscaler, or of any.
    #[must_use]
    pub fn version(&self, visible: &Visible, of: Option<&ObjectKey>) -> u64 {
        match of {
            Some(key) if visible.allows(&key.namespace) => {
                self.log.version_of(key).unwrap_or_default()
            }
            Some(_) => 0,
            None => self.log.version(|namespace| visible.allows(namespace)),
        }
    }

    /// Identity of this process and age of its data.
    ///
    /// # Errors
    /// None yet.
    pub fn overview(
        &self,
        visible: &Visible,
        reader: Option<String>,
    ) -> Result<Overview, ViewError> {
        let namespaces = match visible {
            Visible::All => None,
            Visible::Namespaces(all) => Some(all.iter().cloned().collect()),
        };
        let since = self.log.since(|namespace| visible.allows(namespace));
        Ok(Overview {
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
            recorded_since: since.map(|since| at(since).to_string()),
            memory: format!(
                "minutes are kept in memory since this process leads: at most 14 days, and {} MiB for all autoscalers \
                 (--page-memory), of which each has the same share",
                self.log.bytes() >> 20
            ),
        })
    }

    /// A page of the fleet.
    ///
    /// # Errors
    /// [`ViewError::BadQuery`].
    pub fn fleet(&self, visible: &Visible, query: &FleetQuery) -> Result<FleetView, ViewError> {
        fleet::view(&self.visible(visible), self, query)
    }

    /// One autoscaler.
    ///
    /// # Errors
    /// [`ViewError::NotFound`].
    pub fn autoscaler(
        &self,
        key: &ObjectKey,
        visible: &Visible,
    ) -> Result<AutoscalerView, ViewError> {
        let recorded = self.recorded(key, visible)?;
        Ok(workload::view(&recorded, self))
    }

    /// The recorded history of an autoscaler; of a long span only the minutes of extremes.
    ///
    /// # Errors
    /// [`ViewError::NotFound`], [`ViewError::BadQuery`].
    pub fn history(
        &self,
        key: &ObjectKey,
        visible: &Visible,
        query: &SpanQuery,
    ) -> Result<HistoryView, ViewError> {
        let recorded = self.recorded(key, visible)?;
        let span = history::span(query.from, query.until, self.host.now())?;
        let mut view = history::view(&recorded, span, history::ROWS);
        let sentences = self.log.sentences(key, span.from, span.until);
        view.sentences = sentences.iter().map(|said| Sentence::clone(said)).collect();
        Ok(view)
    }

    /// The chart of the history, as SVG.
    ///
    /// # Errors
    /// [`ViewError::NotFound`], [`ViewError::BadQuery`].
    pub fn chart(
        &self,
        key: &ObjectKey,
        visible: &Visible,
        query: &ChartQuery,
    ) -> Result<String, ViewError> {
        let recorded = self.recorded(key, visible)?;
        let now = self.host.now();
        let span = history::span(query.from, query.until, now)?;
        let view = history::view(&recorded, span, usize::MAX);
        chart::svg(key, &view, span, query, now)
    }

    /// The recorded demand of one metric, as the Lab and `backtest --csv` read it.
    ///
    /// # Errors
    /// [`ViewError::NotFound`], [`ViewError::BadQuery`].
    pub fn history_csv(
        &self,
        key: &ObjectKey,
        visible: &Visible,
        query: &HistoryQuery,
    ) -> Result<String, ViewError> {
        let recorded = self.recorded(key, visible)?;
        history::csv(&recorded, query)
    }

    /// The object without its status as YAML, and its workload with the requests of a pod, if they are known.
    ///
    /// # Errors
    /// [`ViewError::NotFound`].
    pub fn manifest(&self, key: &ObjectKey, visible: &Visible) -> Result<String, ViewError> {
        let recorded = self.recorded(key, visible)?;
        Ok(workload::manifest(&recorded.latest))
    }

    /// The benefit of Foretide for one autoscaler compared with a plain HPA.
    ///
    /// # Errors
    /// [`ViewError::NotFound`].
    pub fn worth(&self, key: &ObjectKey, visible: &Visible) -> Result<Worth, ViewError> {
        let recorded = self.recorded(key, visible)?;
        Ok(self.worth.of(&recorded, self.host.now()))
    }

    /// The summed benefit of Foretide for all autoscalers that the reader may see.
    ///
    /// # Errors
    /// None yet.
    pub fn worth_of_all(&self, visible: &Visible) -> Result<Worth, ViewError> {
        Ok(self.worth.of_all(&self.visible(visible)))
    }

    /// Computes the worth of one autoscaler whose figures are missing or older than an hour, for
    /// [`Self::worth_of_all`]; returns whether there was one.
    pub fn refresh_worth(&self) -> bool {
        let all = self.log.all(|_| true);
        let Some(key) = self.worth.next(&all, self.host.now()) else {
            return false;
        };
        if let Some(recorded) = self.log.recorded(&key) {
            // The table keeps the result.
            drop(self.worth.of(&recorded, self.host.now()));
        }
        true
    }

    /// The windows of some weeks.
    ///
    /// # Errors
    /// [`ViewError::BadQuery`].
    pub fn calendar(
        &self,
        visible: &Visible,
        query: &CalendarQuery,
    ) -> Result<CalendarView, ViewError> {
        windows::calendar(&self.visible(visible), query, self.host.now())
    }

    /// The members of fleets.
    ///
    /// # Errors
    /// None yet.
    pub fn clusters(&self, visible: &Visible) -> Result<ClustersView, ViewError> {
        let all = self.visible(visible);
        let mut clusters = std::collections::BTreeMap::new();
        for latest in &all {
            for status in latest.status.fleet.clusters.iter().flatten() {
                let shares: &mut Vec<ClusterShare> =
                    clusters.entry(status.name.clone()).or_default();
                shares.push(ClusterShare {
                    autoscaler: latest.key.clone(),
                    status: status.clone(),
                });
            }
        }
        let members = self.host.members();
        let view = |(name, shares)| {
            let member = members.iter().find(|member| member.name == name);
            ClusterView {
                ready: member.map(|member| member.ready),
                silent_seconds: member.and_then(|member| member.silent_seconds),
                name,
                shares,
            }
        };
        Ok(ClustersView {
            clusters: clusters.into_iter().map(view).collect(),
        })
    }

    /// The members of fleets, as SVG.
    ///
    /// # Errors
    /// [`ViewError::BadQuery`].
    pub fn clusters_svg(&self, visible: &Visible, width: Option<u32>) -> Result<String, ViewError> {
        Ok(chart::clusters(
            &self.clusters(visible)?,
            chart::width(width)?,
        ))
    }

    /// Health of the sources that Foretide reads.
    ///
    /// # Errors
    /// None yet.
    pub fn health(&self, visible: &Visible) -> Result<HealthView, ViewError> {
        let Health {
            unready,
            lag_seconds,
            sources,
        } = self.host.health();
        let mut all = self.visible(visible);
        all.retain(|latest| latest.word == Word::Conflict);
        all.sort_by(|one, other| one.key.cmp(&other.key));
        let (unready, sources) = match visible {
            Visible::All => (unready, sources),
            Visible::Namespaces(_) => {
                let said = "it is not ready; a reader of all namespaces sees why";
                (unready.map(|_| said.to_owned()), vec![summed(&sources)])
            }
        };
        Ok(HealthView {
            unready,
            lag_seconds,
            sources,
            conflicts: all.iter().map(|latest| fleet::row(latest, None)).collect(),
        })
    }

    fn visible(&self, visible: &Visible) -> Vec<Arc<Latest>> {
        self.log.all(|namespace| visible.allows(namespace))
    }

    fn recorded(&self, key: &ObjectKey, visible: &Visible) -> Result<Recorded, ViewError> {
        let known = visible
            .allows(&key.namespace)
            .then(|| self.log.recorded(key));
        known
            .flatten()
            .ok_or_else(|| ViewError::NotFound(key.clone()))
    }
}

/// Sums up the health of all sources for a reader of some namespaces, who may not see their addresses and problems.
fn summed(sources: &[SourceHealth]) -> SourceHealth {
    let (all, stale) = (
        sources.len(),
        sources.iter().filter(|source| !source.healthy).count(),
    );
    SourceHealth {
        name: format!("{all} watches and servers of metrics"),
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
