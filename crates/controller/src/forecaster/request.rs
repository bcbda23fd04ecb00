//! The request of a forecast of one series, and everything that it is built from.

use std::{collections::BTreeSet, sync::Arc};

use foretide_domain::{
    cron::Zone,
    forecast::{Refused, forecast_length},
    hpa::MetricSpec,
    lead_time::LeadTime,
    pod_names::PodNames,
    proposal::Reason,
};
use foretide_models::{Algorithm, Forecaster};
use jiff::SignedDuration;

use super::history::QueryPart;
use super::minutes::resolution;
use super::source::{ForecastSource, SeriesScope, SourceSeries};
use foretide_api::ports::{Demand, DemandQueries, QUERY_ANNOTATION, Resolution};
use foretide_api::{
    autoscaler::Autoscaler,
    validation::{self, WorkloadFacts},
};

/// Everything that a request is built from: equal inputs give an equal request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestInputs {
    generation: Option<i64>,
    /// The query in the object's annotation. It is no part of the generation, which only a change of the spec raises.
    written_query: Option<String>,
    facts: WorkloadFacts,
    scope: SeriesScope,
    /// The names of the workload's pods, if its kind does not tell them.
    pods: Option<Arc<PodNames>>,
    /// Version of the query rules.
    rules: u64,
}

/// Request of a forecast of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct RefreshRequest {
    /// The query of its history, or one for each member of a fleet.
    pub parts: Vec<QueryPart>,
    /// The resolution of its values.
    pub resolution: Resolution<Vec<QueryPart>>,
    /// The members in which nothing runs now.
    pub idle: BTreeSet<Arc<str>>,
    pub algorithm: Algorithm,
    /// The time by which the forecast reaches beyond the history.
    pub horizon: SignedDuration,
    /// The lead time and its origin; algorithms that use the lead time have it in their settings, too.
    pub lead_time: LeadTime,
}

/// Refusals of the queries in the annotations of an autoscaler's metrics, each with its annotation.
pub fn refused_queries<Q: DemandQueries>(
    queries: &Q,
    autoscaler: Autoscaler,
    local: &Zone,
) -> Vec<(String, Refused)> {
    let Some(source) = ForecastSource::of(autoscaler, local)
        .filter(|source| source.workload.floor.prediction.is_some())
    else {
        return Vec::new();
    };
    (source.workload.metrics.iter())
        .filter_map(|metric| {
            let series = source.of_all_pods(metric, None);
            let inputs = RequestInputs::new(&source, &series, WorkloadFacts::default(), None, 0);
            inputs.written_query.as_ref()?;
            let refused = RefreshRequest::build(queries, &source, &series, &inputs).err()?;
            Some((query_annotation(metric), refused))
        })
        .collect()
}

/// The annotation that may have the query of a metric's history.
fn query_annotation(metric: &MetricSpec) -> String {
    format!("{QUERY_ANNOTATION}{}", metric.identifier())
}

// === impl RequestInputs ===

impl RequestInputs {
    pub fn new(
        source: &ForecastSource,
        series: &SourceSeries<'_>,
        facts: WorkloadFacts,
        pods: Option<Arc<PodNames>>,
        rules: u64,
    ) -> Self {
        let annotation = query_annotation(series.metric);
        Self {
            generation: source.autoscaler.generation(),
            written_query: source.autoscaler.annotation(&annotation).cloned(),
            facts,
            scope: series.scope.clone(),
            pods,
            rules,
        }
    }

    /// True if the request is still the one that was built from `before`.
    pub fn are_those_of(&self, before: Option<&Self>) -> bool {
        // An object without a generation may have changed without a sign of it.
        self.generation.is_some() && before == Some(self)
    }
}

// === impl RefreshRequest ===

impl RefreshRequest {
    /// The request of a series, with the forecaster for it.
    ///
    /// # Errors
    /// The prediction is invalid, its demand cannot be queried, or does not divide among pods.
    pub fn build<Q: DemandQueries>(
        queries: &Q,
        source: &ForecastSource,
        series: &SourceSeries<'_>,
        inputs: &RequestInputs,
    ) -> Result<(Self, Box<dyn Forecaster>), Refused> {
        let prediction = source.prediction();
        let lead_time = valid(validation::lead_time(&prediction, inputs.facts))?;
        let algorithm = valid(validation::algorithm(&prediction, inputs.facts))?;
        if inputs.facts.not_divided {
            return Err(Refused::not_divided());
        }
        let forecaster = valid(validation::build(algorithm.clone()))?;
        let written = inputs.written_query.as_deref();
        let demand = Demand {
            target: &source.workload.target,
            metric: series.metric,
            pods: inputs.pods.as_deref(),
            written,
            span: forecaster.history_length(),
            member: None,
        };
        // A written query returns the demand of all members, so it is not asked member by member.
        let scope = if written.is_some() && source.is_covered_by_written_query(&series.key) {
            &SeriesScope::AllPods
        } else {
            &series.scope
        };
        let parts = scope.parts(queries, demand)?;
        let request = Self {
            resolution: resolution(queries, &parts),
            parts,
            idle: scope.idle(),
            algorithm,
            horizon: forecast_length(source.window(), forecaster.sample_interval()),
            lead_time,
        };
        Ok((request, forecaster))
    }
}

/// Refuses a prediction that violates a rule.
fn valid<T>(result: Result<T, validation::Violation>) -> Result<T, Refused> {
    result.map_err(|violation| Refused::new(Reason::InvalidSpec, violation.to_string()))
}

#[cfg(test)]
pub mod tests {
    use foretide_models::auto;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::forecaster::{
        demand_history::DemandSample, forecasts::Forecasts, series_key::SeriesKey,
        shares::FleetMember,
    };
    use foretide_api::ports::HistoryQuery;

    pub fn part(text: &str) -> QueryPart {
        QueryPart {
            member: None,
            query: HistoryQuery {
                namespace: "shop".into(),
                endpoint: None,
                text: text.into(),
            },
        }
    }

    /// A request of a minute ahead, by `auto`.
    pub fn request() -> RefreshRequest {
        RefreshRequest {
            parts: vec![part("demand")],
            resolution: Resolution::Unknown,
            idle: BTreeSet::new(),
            algorithm: Algorithm::Auto(auto::Config::default()),
            horizon: SignedDuration::from_mins(1),
            lead_time: LeadTime::of(None, None),
        }
    }

    /// Queries by the written text, or by the name of the member, at the endpoint that the member names.
    struct ByMember;

    impl DemandQueries for ByMember {
        fn query(&self, demand: &Demand<'_>) -> Result<HistoryQuery, Refused> {
            let member = demand.member;
            let name = member.map_or("whole", |member| member.name);
            let text = demand.written.unwrap_or(name);
            let shared = member.is_some_and(|member| member.endpoint.is_some() && !member.alone);
            let text = format!("{text}{}", if shared { " by its label" } else { "" });
            Ok(HistoryQuery {
                namespace: demand.target.namespace.as_str().into(),
                endpoint: member.and_then(|member| member.endpoint).map(Into::into),
                text: text.into(),
            })
        }

        fn version(&self) -> u64 {
            0
        }
    }

    const DIVIDED: &str = "Aggregated";
    const EACH: &str = "Duplicated";

    /// A fleet with a metric of cpu and one of a queue, of which the former's query may be written.
    fn fleet(kind: &str, written: Option<&str>) -> ForecastSource {
        let target = json!({"type": "AverageValue", "averageValue": 10});
        let mut object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": 1},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 9,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                    {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}},
                ],
                "prediction": {},
                "federatedHPAAssignment": {"federatedHPAAssignmentType": kind},
            },
        });
        if let Some(query) = written {
            let annotation = format!("{QUERY_ANNOTATION}resource.cpu");
            object["metadata"]["annotations"] = json!({annotation: query});
        }
        let fdhpa = Arc::new(serde_json::from_value(object).unwrap());
        ForecastSource::of(Autoscaler::Federated(fdhpa), &Zone::utc()).unwrap()
    }

    /// Name, endpoint and whether nothing runs there.
    type Reported<'a> = (&'a str, Option<&'a str>, bool);

    const ALL: [Reported<'_>; 3] = [
        ("east", Some("thanos"), false),
        ("north", None, true),
        ("west", None, false),
    ];

    /// Forecasts to which syncs have reported these members, and the demand of each if `measured`.
    fn reported(members: &[Reported<'_>], measured: bool) -> Forecasts {
        let forecasts = Forecasts::default();
        let member = |(name, prometheus, idle): &Reported<'_>| FleetMember {
            name: (*name).into(),
            prometheus: prometheus.map(Into::into),
            idle: *idle,
        };
        let all = members.iter().map(member).collect();
        forecasts.shares().report("u", all);
        for (name, ..) in members.iter().filter(|_| measured) {
            let samples = [("resource.cpu".to_owned(), DemandSample::default())];
            let history = forecasts.demand_history();
            let uid = SeriesKey::of_member("u", name);
            history.report(&uid, None, samples, Timestamp::UNIX_EPOCH);
        }
        forecasts
    }

    /// The series, as its identifier and its queries, or the reason for their absence.
    fn asked(source: &ForecastSource, forecasts: &Forecasts) -> Vec<(String, String)> {
        let series = source.series(forecasts).into_iter();
        let asked = series.map(|series| {
            let inputs = RequestInputs::new(source, &series, WorkloadFacts::default(), None, 0);
            let built = RefreshRequest::build(&ByMember, source, &series, &inputs);
            let asked = built.map_or_else(
                |refused| format!("{}: {refused}", refused.reason.as_str()),
                |(request, _)| {
                    let parts = request.parts.iter().map(|part| {
                        let endpoint = part.query.endpoint.as_deref().unwrap_or("hub");
                        format!("{} at {endpoint}", part.query.text)
                    });
                    parts.collect::<Vec<_>>().join(", ")
                },
            );
            (source.identifier(&series.key), asked)
        });
        asked.collect()
    }

    fn series(all: &[(&str, &str)]) -> Vec<(String, String)> {
        let all = all.iter();
        all.map(|(name, asked)| ((*name).to_owned(), (*asked).to_owned()))
            .collect()
    }

    #[test]
    fn a_dividing_fleet_is_the_sum_of_its_members_and_a_metric_that_no_pod_has_is_asked_once() {
        let queue = ("external.queue", "whole at hub");
        let sum = ("resource.cpu", "east at thanos, north at hub, west at hub");
        let source = fleet(DIVIDED, None);
        assert_eq!(asked(&source, &reported(&ALL, true)), series(&[sum, queue]));
        let idle = source.series(&reported(&ALL, true))[0].scope.idle();
        assert_eq!(idle, ["north".into()].into());
        // A member has left.
        let rest = ("resource.cpu", "east at thanos, north at hub");
        assert_eq!(
            asked(&source, &reported(&ALL[..2], true)),
            series(&[rest, queue])
        );
        // A written query has the demand of all members.
        let written = ("resource.cpu", "sum(x) at hub");
        assert_eq!(
            asked(&fleet(DIVIDED, Some("sum(x)")), &reported(&ALL, true)),
            series(&[written, queue])
        );
        let metadata = source.prediction_metadata();
        let owner = &metadata["ownerReferences"][0];
        let found = [&metadata["name"], &owner["kind"], &owner["apiVersion"]];
        let expected = [
            "fdhpa-web",
            "FederatedHPA",
            "autoscaling.foretide.io/v1alpha1",
        ];
        assert_eq!(found.map(|value| value.as_str().unwrap()), expected);
    }

    #[test]
    fn in_a_duplicated_fleet_each_member_has_its_own_series_once_its_demand_is_reported() {
        let queue = ("external.queue", "whole at hub");
        let source = fleet(EACH, None);
        let own = [
            ("east/resource.cpu", "east at thanos"),
            ("north/resource.cpu", "north at hub"),
            ("west/resource.cpu", "west at hub"),
            queue,
        ];
        assert_eq!(asked(&source, &reported(&ALL, true)), series(&own));
        let sum = ("resource.cpu", "east at thanos, north at hub, west at hub");
        assert_eq!(
            asked(&source, &reported(&ALL, false)),
            series(&[sum, queue])
        );
    }

    #[test]
    fn members_that_name_the_same_endpoint_are_distinguished_by_their_cluster_label() {
        let shared = [
            ("east", Some("thanos"), false),
            ("north", Some("mimir"), false),
            ("west", Some("thanos"), false),
        ];
        for kind in [DIVIDED, EACH] {
            let all = asked(&fleet(kind, None), &reported(&shared, true));
            let all = all.iter().filter(|(name, _)| !name.starts_with("external"));
            let all: Vec<_> = all.map(|(_, asked)| asked.as_str()).collect();
            let expected =
                "east by its label at thanos, north at mimir, west by its label at thanos";
            assert_eq!(all.join(", "), expected);
        }
    }

    #[test]
    fn a_forecast_needs_a_reported_list_of_clusters_that_is_not_empty() {
        let source = fleet(DIVIDED, None);
        let cpu = |forecasts: &Forecasts| asked(&source, forecasts).swap_remove(0).1;
        let unknown = cpu(&Forecasts::default());
        assert!(
            unknown.starts_with("Pending: ") && unknown.contains("which clusters"),
            "{unknown}"
        );
        let none = cpu(&reported(&[], false));
        assert!(none.starts_with("NoData: "), "{none}");
    }
}
