//! What is forecast for: an autoscaler of one cluster or of a fleet, as one thing with series.
//!
//! An autoscaler of one cluster has one series per metric. So has a fleet: the total over its members. Where every
//! member is a fleet of its own (`Duplicated`), each of which syncs tell by itself has its own series instead, of the
//! metrics that it measures for itself. It refuses to read anything.

use std::{collections::BTreeSet, sync::Arc};

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerSpec, FederatedHPA,
    Prediction,
};
use jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::Value;

use super::{
    forecasts::{Forecasts, SeriesKey},
    history::Part,
    shares::FleetMember,
};
use crate::{
    api::ownership::{OwnerKind, owned_by},
    api::spec,
    domain::{
        cron::Zone,
        federate::Kind,
        forecast::Refused,
        hpa::{MetricSpec, Settings},
        proposal::Reason,
        workload::Workload,
    },
    ports::{Demand, DemandQueries, MemberSeries},
};

/// An autoscaler with a prediction, as it last was valid, and what it means.
#[derive(Debug, Clone)]
pub(super) struct ForecastSource {
    object: Object,
    pub(super) workload: Workload,
    fleet: Option<Division>,
}

#[derive(Debug, Clone)]
pub(super) enum Object {
    One(Arc<EffectiveHorizontalPodAutoscaler>),
    Fleet(Arc<FederatedHPA>),
}

/// What of a fleet's policy matters to its series.
#[derive(Debug, Clone)]
struct Division {
    duplicated: bool,
    /// Identifiers of the metrics that are measured once for the fleet.
    scopes: BTreeSet<String>,
}

/// One series that is wanted.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'a> {
    pub(super) key: SeriesKey,
    pub(super) metric: &'a MetricSpec,
    pub(super) whose: SeriesScope,
}

/// Whose history a series is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SeriesScope {
    /// That of all pods there are, asked for once.
    Whole,
    /// The sum over members.
    Members {
        /// Those that are added up.
        summed: Arc<[FleetMember]>,
        /// All of the fleet, these among them: who shares an endpoint with whom.
        fleet: Arc<[FleetMember]>,
    },
    /// The sum over members that no sync has named yet.
    Unknown,
}

// === impl Object ===

impl Object {
    pub(super) fn uid(&self) -> String {
        match self {
            Self::One(ehpa) => ehpa.uid(),
            Self::Fleet(fdhpa) => fdhpa.uid(),
        }
        .unwrap_or_default()
    }

    pub(super) fn is_leaving(&self) -> bool {
        match self {
            Self::One(ehpa) => ehpa.metadata.deletion_timestamp.is_some(),
            Self::Fleet(fdhpa) => fdhpa.metadata.deletion_timestamp.is_some(),
        }
    }

    pub(super) fn predicts(&self) -> bool {
        self.spec().prediction.is_some()
    }

    fn spec(&self) -> &EffectiveHorizontalPodAutoscalerSpec {
        match self {
            Self::One(ehpa) => &ehpa.spec,
            Self::Fleet(fdhpa) => &fdhpa.spec.autoscaling,
        }
    }

    /// What it means, if its spec is valid.
    pub(super) fn read(self, local: &Zone) -> Option<ForecastSource> {
        let (workload, fleet) = match &self {
            Self::One(ehpa) => (spec::workload(ehpa, local).ok()?, None),
            Self::Fleet(fdhpa) => {
                // Neither the period nor the constants of syncs say anything about series.
                let (period, settings) = (SignedDuration::ZERO, Settings::default());
                let read = spec::fleet(fdhpa, local, period, &settings).ok()?;
                let division = Division {
                    duplicated: read.policy.kind == Kind::Duplicated,
                    scopes: read.scopes,
                };
                (read.workload, Some(division))
            }
        };
        Some(ForecastSource {
            object: self,
            workload,
            fleet,
        })
    }
}

// === impl ForecastSource ===

impl ForecastSource {
    pub(super) fn uid(&self) -> String {
        self.object.uid()
    }

    pub(super) fn generation(&self) -> Option<i64> {
        match &self.object {
            Object::One(ehpa) => ehpa.metadata.generation,
            Object::Fleet(fdhpa) => fdhpa.metadata.generation,
        }
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&String> {
        match &self.object {
            Object::One(ehpa) => ehpa.annotations().get(name),
            Object::Fleet(fdhpa) => fdhpa.annotations().get(name),
        }
    }

    pub(super) fn prediction(&self) -> Prediction {
        self.object.spec().prediction.clone().unwrap_or_default()
    }

    /// How far ahead forecasts count.
    pub(super) fn window(&self) -> SignedDuration {
        let prediction = self.workload.prediction.as_ref();
        prediction.map_or(SignedDuration::ZERO, |prediction| prediction.window)
    }

    /// Name of the prediction that shows its forecasts.
    pub(super) fn shown_as(&self) -> String {
        match &self.object {
            Object::One(ehpa) => OwnerKind::Effective.child_name(&ehpa.name_any()),
            Object::Fleet(fdhpa) => OwnerKind::Federated.child_name(&fdhpa.name_any()),
        }
    }

    /// Metadata of that prediction.
    pub(super) fn metadata(&self) -> Value {
        match &self.object {
            Object::One(ehpa) => owned_by(&**ehpa, &self.shown_as()),
            Object::Fleet(fdhpa) => owned_by(&**fdhpa, &self.shown_as()),
        }
    }

    /// Its series: of two metrics of one identifier the first.
    pub(super) fn wanted<'a>(&'a self, forecasts: &Forecasts) -> Vec<Wanted<'a>> {
        let uid = self.uid();
        let members = self
            .fleet
            .as_ref()
            .and_then(|_| forecasts.fleets().members(&uid));
        let mut told = BTreeSet::new();
        let metrics = self.workload.metrics.iter();
        let distinct = metrics.filter(|metric| told.insert(metric.identifier()));
        let mut wanted = Vec::new();
        for metric in distinct {
            let each = members.iter().flat_map(|fleet| {
                let each = fleet.iter();
                each.map(move |member| (member, fleet))
            });
            let of_each = each.filter_map(|member| self.of_member(forecasts, metric, member));
            let before = wanted.len();
            wanted.extend(of_each);
            if wanted.len() == before {
                wanted.push(self.of_all(metric, members.as_ref()));
            }
        }
        wanted
    }

    /// The series of one member, if it has its own.
    fn of_member<'a>(
        &self,
        forecasts: &Forecasts,
        metric: &'a MetricSpec,
        (member, fleet): (&FleetMember, &Arc<[FleetMember]>),
    ) -> Option<Wanted<'a>> {
        let division = self.fleet.as_ref().filter(|fleet| fleet.duplicated)?;
        let key = SeriesKey {
            uid: SeriesKey::of_member(&self.uid(), &member.name),
            metric: metric.identifier(),
        };
        let told = forecasts.feed().situation(&key).is_some();
        let own = told && !division.scopes.contains(&key.metric);
        own.then(|| Wanted {
            key,
            metric,
            whose: SeriesScope::Members {
                summed: Arc::new([member.clone()]),
                fleet: Arc::clone(fleet),
            },
        })
    }

    /// The series of all pods, wherever they are.
    fn of_all<'a>(
        &self,
        metric: &'a MetricSpec,
        members: Option<&Arc<[FleetMember]>>,
    ) -> Wanted<'a> {
        let key = SeriesKey {
            uid: self.uid(),
            metric: metric.identifier(),
        };
        // What belongs to no pod is one number for the fleet; what pods have is theirs.
        let of_no_pod = matches!(
            metric,
            MetricSpec::External { .. } | MetricSpec::Object { .. }
        );
        let once = |fleet: &Division| of_no_pod && fleet.scopes.contains(&key.metric);
        let whose = match members {
            _ if self.fleet.as_ref().is_none_or(once) => SeriesScope::Whole,
            Some(members) => SeriesScope::Members {
                summed: Arc::clone(members),
                fleet: Arc::clone(members),
            },
            None => SeriesScope::Unknown,
        };
        Wanted { key, metric, whose }
    }

    /// How its prediction names a series: by the metric, with the member's name before it where each has its own.
    pub(super) fn identifier(&self, key: &SeriesKey) -> String {
        match key
            .uid
            .strip_prefix(&self.uid())
            .and_then(|rest| rest.strip_prefix('/'))
        {
            Some(member) => format!("{member}/{}", key.metric),
            None => key.metric.clone(),
        }
    }

    /// Whether a query that the user wrote answers for a series as it is: it does, but where a member has its own.
    pub(super) fn is_written_for(&self, key: &SeriesKey) -> bool {
        key.uid == self.uid()
    }
}

// === impl SeriesScope ===

impl SeriesScope {
    /// What is read: a query for each member of a sum, or one for the whole.
    ///
    /// # Errors
    /// Those whose members are not known, or are none; those of the queries.
    pub(super) fn parts<Q: DemandQueries>(
        &self,
        queries: &Q,
        demand: Demand<'_>,
    ) -> Result<Vec<Part>, Refused> {
        let (members, fleet) = match self {
            Self::Whole => {
                let (member, query) = (None, queries.query(&demand)?);
                return Ok(vec![Part { member, query }]);
            }
            Self::Unknown => {
                let message = "no sync has told yet which clusters the fleet consists of";
                return Err(Refused::new(Reason::Pending, message));
            }
            Self::Members { summed, .. } if summed.is_empty() => {
                let message = "no cluster belongs to the fleet: nothing is known of its demand";
                return Err(Refused::new(Reason::NoData, message));
            }
            Self::Members { summed, fleet } => (summed.iter(), fleet),
        };
        let part = |member: &FleetMember| {
            let series = MemberSeries {
                name: &member.name,
                endpoint: member.prometheus.as_deref(),
                alone: is_alone(member, fleet),
            };
            Ok(Part {
                member: Some(Arc::clone(&member.name)),
                query: queries.query(&Demand {
                    member: Some(series),
                    ..demand
                })?,
            })
        };
        members.map(part).collect()
    }

    /// The members in which nothing runs now.
    pub(super) fn idle(&self) -> BTreeSet<Arc<str>> {
        let Self::Members { summed, .. } = self else {
            return BTreeSet::new();
        };
        let idle = summed.iter().filter(|member| member.idle);
        idle.map(|member| Arc::clone(&member.name)).collect()
    }
}

/// Whether nobody else of the fleet names the endpoint that the member names.
fn is_alone(member: &FleetMember, fleet: &[FleetMember]) -> bool {
    let mut others = fleet.iter().filter(|other| other.name != member.name);
    member.prometheus.is_some() && others.all(|other| other.prometheus != member.prometheus)
}
