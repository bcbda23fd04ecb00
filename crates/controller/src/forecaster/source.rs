//! The autoscalers that have a prediction, of one cluster or of a fleet, and the series that each needs.
//!
//! | autoscaler | series per metric |
//! |---|---|
//! | of one cluster | one |
//! | of a fleet that divides replicas | one: the sum over its members |
//! | of a `Duplicated` fleet | one for each member whose demand syncs report; else one, the sum |
//! | of a fleet, for a metric of the fleet that no pod has | one |

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use foretide_crds::Prediction;
use foretide_domain::{
    cron::Zone,
    forecast::Refused,
    hpa::{MetricSpec, Settings},
    proposal::Reason,
    workload::Workload,
};
use jiff::SignedDuration;
use serde_json::Value;

use super::{forecasts::Forecasts, history::QueryPart, series_key::SeriesKey, shares::FleetMember};
use foretide_api::ports::{Cluster, Demand, DemandQueries, ListedAutoscalers, MemberSeries};
use foretide_api::{autoscaler::Autoscaler, ownership::owned_by, validation};

/// An autoscaler with a prediction, in its last valid version.
#[derive(Debug)]
pub struct ForecastSource {
    pub autoscaler: Autoscaler,
    pub workload: Workload,
    fleet: Option<FleetMetrics>,
}

/// The parts of a fleet's spec that decide which series it needs.
#[derive(Debug)]
struct FleetMetrics {
    duplicated: bool,
    /// Identifiers of the metrics that are measured once for the fleet.
    scopes: BTreeSet<String>,
}

/// A series that an autoscaler needs.
#[derive(Debug, Clone)]
pub struct SourceSeries<'a> {
    pub key: SeriesKey,
    pub metric: &'a MetricSpec,
    pub scope: SeriesScope,
}

/// The pods whose demand a series measures.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesScope {
    /// All pods, in a single query.
    AllPods,
    /// The pods in some members, with a query for each.
    Members {
        /// The members that are added up.
        summed: Arc<[FleetMember]>,
        /// All members of the fleet: some may share a Prometheus endpoint.
        fleet: Arc<[FleetMember]>,
    },
    /// The pods in members that no sync has reported yet.
    Unknown,
}

/// All autoscalers of a cluster, with a prediction or without, and the UIDs of those that cannot be decoded.
pub fn autoscalers<C: Cluster>(cluster: &C) -> (impl Iterator<Item = Autoscaler>, HashSet<String>) {
    let ListedAutoscalers {
        objects,
        unreadable,
    } = cluster.autoscalers();
    let ehpas = objects.into_iter().map(Autoscaler::Effective);
    let fleets = cluster.federated().into_iter().map(Autoscaler::Federated);
    (ehpas.chain(fleets), unreadable)
}

// === impl ForecastSource ===

impl ForecastSource {
    /// The source of an autoscaler, if its spec is valid.
    pub fn of(autoscaler: Autoscaler, local: &Zone) -> Option<Self> {
        let (workload, fleet) = match &autoscaler {
            Autoscaler::Effective(ehpa) => (validation::workload(ehpa, local).ok()?, None),
            Autoscaler::Federated(fdhpa) => {
                // The series depend neither on the sync period nor on the settings.
                let (period, settings) = (SignedDuration::ZERO, Settings::default());
                let read = validation::fleet(fdhpa, local, period, &settings).ok()?;
                let fleet_metrics = FleetMetrics {
                    duplicated: !read.course.divides,
                    scopes: read.scopes,
                };
                (read.workload, Some(fleet_metrics))
            }
        };
        Some(Self {
            autoscaler,
            workload,
            fleet,
        })
    }

    /// True if it was read from this version of an object: the store has a new `Arc` for an object that changed.
    pub fn is_of(&self, autoscaler: &Autoscaler) -> bool {
        match (&self.autoscaler, autoscaler) {
            (Autoscaler::Effective(one), Autoscaler::Effective(other)) => Arc::ptr_eq(one, other),
            (Autoscaler::Federated(one), Autoscaler::Federated(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub fn uid(&self) -> &str {
        self.autoscaler.uid()
    }

    pub fn namespace(&self) -> &str {
        self.autoscaler.namespace()
    }

    pub fn prediction(&self) -> Prediction {
        (self.autoscaler.spec().prediction.clone()).unwrap_or_default()
    }

    /// Time ahead for which the forecast is used.
    pub fn window(&self) -> SignedDuration {
        let prediction = self.workload.floor.prediction.as_ref();
        prediction.map_or(SignedDuration::ZERO, |prediction| prediction.window)
    }

    /// Name of its `TimeSeriesPrediction`.
    pub fn prediction_name(&self) -> String {
        self.autoscaler.kind().child_name(self.autoscaler.name())
    }

    /// Metadata of its `TimeSeriesPrediction`.
    pub fn prediction_metadata(&self) -> Value {
        match &self.autoscaler {
            Autoscaler::Effective(ehpa) => owned_by(&**ehpa, &self.prediction_name()),
            Autoscaler::Federated(fdhpa) => owned_by(&**fdhpa, &self.prediction_name()),
        }
    }

    /// The series that it needs: one per distinct metric, or one per metric and member.
    pub fn series<'a>(&'a self, forecasts: &Forecasts) -> Vec<SourceSeries<'a>> {
        let members = match &self.fleet {
            Some(_) => forecasts.shares().members(self.uid()),
            None => None,
        };
        let (mut seen, mut series) = (BTreeSet::new(), Vec::new());
        for metric in &self.workload.metrics {
            if !seen.insert(metric.identifier()) {
                continue;
            }
            let mut own = match &members {
                Some(members) => self.of_each_member(forecasts, metric, members),
                None => Vec::new(),
            };
            // Also of a `Duplicated` fleet until a sync has reported the demand of a member.
            if own.is_empty() {
                own.push(self.of_all_pods(metric, members.as_ref()));
            }
            series.append(&mut own);
        }
        series
    }

    /// The series of each member of a `Duplicated` fleet for which syncs report demand.
    fn of_each_member<'a>(
        &self,
        forecasts: &Forecasts,
        metric: &'a MetricSpec,
        members: &Arc<[FleetMember]>,
    ) -> Vec<SourceSeries<'a>> {
        let identifier = metric.identifier();
        if !(self.fleet.as_ref())
            .is_some_and(|fleet| fleet.duplicated && !fleet.scopes.contains(&identifier))
        {
            return Vec::new();
        }
        let history = forecasts.demand_history();
        (members.iter())
            .map(|member| SourceSeries {
                key: SeriesKey {
                    uid: SeriesKey::of_member(self.uid(), &member.name),
                    metric: identifier.clone(),
                },
                metric,
                scope: SeriesScope::Members {
                    summed: Arc::new([member.clone()]),
                    fleet: Arc::clone(members),
                },
            })
            .filter(|series| history.workload_facts(&series.key).is_some())
            .collect()
    }

    /// The series of all pods, wherever they run.
    pub fn of_all_pods<'a>(
        &self,
        metric: &'a MetricSpec,
        members: Option<&Arc<[FleetMember]>>,
    ) -> SourceSeries<'a> {
        let key = SeriesKey {
            uid: self.uid().to_owned(),
            metric: metric.identifier(),
        };
        let scope = match (&self.fleet, members) {
            (None, _) => SeriesScope::AllPods,
            // A metric of the fleet that no pod has is one number, so one query answers for all members.
            (Some(fleet), _) if !metric.is_of_pods() && fleet.scopes.contains(&key.metric) => {
                SeriesScope::AllPods
            }
            (Some(_), Some(members)) => SeriesScope::Members {
                summed: Arc::clone(members),
                fleet: Arc::clone(members),
            },
            (Some(_), None) => SeriesScope::Unknown,
        };
        SourceSeries { key, metric, scope }
    }

    /// The name of a series in its `TimeSeriesPrediction`: the metric, after the name of the member if it is a member's
    /// own.
    pub fn identifier(&self, key: &SeriesKey) -> String {
        let member = (key.uid.strip_prefix(self.uid())).and_then(|rest| rest.strip_prefix('/'));
        match member {
            Some(member) => format!("{member}/{}", key.metric),
            None => key.metric.clone(),
        }
    }

    /// True if a query that the user wrote covers all of a series: not if the series is a member's own.
    pub fn is_covered_by_written_query(&self, key: &SeriesKey) -> bool {
        key.uid == self.uid()
    }
}

// === impl SeriesScope ===

impl SeriesScope {
    /// The queries: one for all pods, or one for each member of a sum.
    ///
    /// # Errors
    /// The members are unknown, or there are none; those of the queries.
    pub fn parts<Q: DemandQueries>(
        &self,
        queries: &Q,
        demand: Demand<'_>,
    ) -> Result<Vec<QueryPart>, Refused> {
        match self {
            Self::AllPods => Ok(vec![QueryPart {
                member: None,
                query: queries.query(&demand)?,
            }]),
            Self::Unknown => {
                let message = "no sync has reported yet which clusters belong to the fleet";
                Err(Refused::new(Reason::Pending, message))
            }
            Self::Members { summed, .. } if summed.is_empty() => {
                let message = "no cluster belongs to the fleet, so its demand is unknown";
                Err(Refused::new(Reason::NoData, message))
            }
            Self::Members { summed, fleet } => (summed.iter())
                .map(|member| member_part(queries, demand, member, fleet))
                .collect(),
        }
    }

    /// The members in which nothing runs now.
    pub fn idle(&self) -> BTreeSet<Arc<str>> {
        match self {
            Self::Members { summed, .. } => (summed.iter().filter(|member| member.idle))
                .map(|member| Arc::clone(&member.name))
                .collect(),
            Self::AllPods | Self::Unknown => BTreeSet::new(),
        }
    }
}

/// The query of one member of a sum.
fn member_part<Q: DemandQueries>(
    queries: &Q,
    demand: Demand<'_>,
    member: &FleetMember,
    fleet: &[FleetMember],
) -> Result<QueryPart, Refused> {
    let series = MemberSeries {
        name: &member.name,
        endpoint: member.prometheus.as_deref(),
        alone: has_own_endpoint(member, fleet),
    };
    Ok(QueryPart {
        member: Some(Arc::clone(&member.name)),
        query: queries.query(&Demand {
            member: Some(series),
            ..demand
        })?,
    })
}

/// True if the member names an endpoint that no other member of the fleet names.
fn has_own_endpoint(member: &FleetMember, fleet: &[FleetMember]) -> bool {
    let mut others = fleet.iter().filter(|other| other.name != member.name);
    member.prometheus.is_some() && others.all(|other| other.prometheus != member.prometheus)
}
