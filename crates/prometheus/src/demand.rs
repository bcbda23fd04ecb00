//! Choice of the query that gives the history of a metric.
//!
//! A query that the user wrote takes precedence, then a prometheus-adapter rule for the metric, then the built-in query
//! of the metric's type. For one member cluster it is the same query at the member's own endpoint, or at the hub's with
//! the cluster label. Nothing is sent from here.

use std::{sync::Arc, time::Duration};

use foretide_domain::{api_group, forecast::Refused, hpa::MetricSpec, proposal::Reason};

use super::{
    adapter_config::{QueryRequest, RuleError, RulesCache},
    endpoints::EndpointNames,
    promql::{BuildError, Match, Matcher, Query, RegexValue},
    queries::{Metric, QueryDefaults, WorkloadRef, built_in, built_in_part},
    resolution::resolution,
    scope::{self, PromqlScope, admit},
};
use foretide_api::ports::{
    Demand, DemandQueries, HistoryQuery, MemberSeries, QUERY_ANNOTATION, Resolution,
};
use foretide_base::error::chain;

/// The rules by which history queries are made.
#[derive(Debug, Clone, Default)]
pub struct QueryRules {
    /// The configurable parts of the built-in queries.
    pub defaults: QueryDefaults,
    /// The series that a query of a user may read.
    pub scope: PromqlScope,
    /// The rules of prometheus-adapter in use.
    pub adapter: RulesCache,
    /// The configured endpoints, and the label of the member.
    pub endpoints: EndpointNames,
}

// === impl QueryRules ===

impl DemandQueries for QueryRules {
    fn query(&self, demand: &Demand<'_>) -> Result<HistoryQuery, Refused> {
        let endpoint = self.endpoint(demand.member)?;
        let mut query = self.without_cluster_label(demand)?;
        if let Some(member) = demand.member {
            let matcher = self.member_matcher(member).map_err(|it| refused(&it))?;
            query = scope::with_matcher(&query, &matcher).map_err(|error| refused(&error))?;
        }
        Ok(HistoryQuery {
            namespace: demand.target.namespace.as_str().into(),
            endpoint,
            text: query.as_str().into(),
        })
    }

    fn resolution(&self, query: &HistoryQuery) -> Resolution {
        resolution(&query.text).map(|minutes| HistoryQuery {
            text: minutes.as_str().into(),
            ..query.clone()
        })
    }

    fn version(&self) -> u64 {
        self.adapter.version()
    }
}

impl QueryRules {
    /// The query for an endpoint that holds the series of one cluster only.
    fn without_cluster_label(&self, demand: &Demand<'_>) -> Result<Query, Refused> {
        let target = demand.target;
        let workload = WorkloadRef {
            namespace: &target.namespace,
            kind: &target.kind,
            name: &target.name,
            pods: demand.pods,
        };
        let history = Duration::try_from(demand.span).unwrap_or_default();
        if let Some(text) = demand.written {
            return admit(text, workload.namespace, history, self.scope).map_err(|error| {
                let metric = demand.metric.identifier();
                let message = format!("annotation {QUERY_ANNOTATION}{metric}: {}", chain(&error));
                Refused::new(Reason::QueryRefused, message)
            });
        }
        let request = QueryRequest {
            workload,
            metric: metric_of(demand.metric)?,
            history,
            scope: self.scope,
        };
        if let Some(query) = self.adapter.rules().query(&request) {
            return query.map_err(|error: RuleError| refused(&error));
        }
        match demand.member {
            Some(_) => built_in_part(workload, request.metric, &self.defaults),
            None => built_in(workload, request.metric, &self.defaults),
        }
        .map_err(|error| refused(&error))
    }

    /// The matcher that selects the series of one member: its label. At an endpoint that only this member's Secret
    /// names, series without the label are the member's too, because a Prometheus of one cluster does not label its
    /// series. Where another member names the endpoint as well, the label is required, or both would count them.
    fn member_matcher(&self, member: MemberSeries<'_>) -> Result<Matcher, BuildError> {
        let label = &self.endpoints.cluster_label;
        if member.endpoint.is_none() || !member.alone {
            return Matcher::equal(label, member.name);
        }
        // The server of a single cluster may have no cluster label.
        let own_or_none = RegexValue::new().pattern("|").literal(member.name);
        Matcher::new(label, Match::Like(own_or_none))
    }

    /// The endpoint to query; that of the hub where the member names none.
    fn endpoint(&self, member: Option<MemberSeries<'_>>) -> Result<Option<Arc<str>>, Refused> {
        let named = member.and_then(|member| Some((member.name, member.endpoint?)));
        let Some((member, name)) = named else {
            if self.endpoints.hub {
                return Ok(None);
            }
            let message = "no Prometheus endpoint of the hub is configured: start the controller with --prometheus URL, \
                           or name an endpoint in the Secret of each member";
            return Err(Refused::new(Reason::QueryError, message));
        };
        let known = self.endpoints.named.iter().find(|known| &***known == name);
        known.cloned().map(Some).ok_or_else(|| {
            let list = self.endpoints.named.join(", ");
            let known = if list.is_empty() { "none" } else { &list };
            let message = format!(
                "the Secret of cluster {member} names the Prometheus endpoint {name:?}, which is not configured \
                 (known: {known}); start the controller with --prometheus-endpoint {name}=URL"
            );
            Refused::new(Reason::QueryError, message)
        })
    }
}

fn refused(error: &dyn std::error::Error) -> Refused {
    Refused::new(Reason::QueryRefused, chain(error))
}

fn metric_of(metric: &MetricSpec) -> Result<Metric<'_>, Refused> {
    Ok(match metric {
        MetricSpec::Resource { name, .. } => Metric::Resource { name },
        MetricSpec::ContainerResource {
            name, container, ..
        } => Metric::ContainerResource { name, container },
        MetricSpec::Pods {
            metric, selector, ..
        } => Metric::Pods {
            metric,
            selector: selector.as_deref(),
        },
        MetricSpec::Object {
            described,
            metric,
            selector,
            ..
        } => Metric::Object {
            metric,
            group: api_group(&described.api_version),
            kind: &described.kind,
            name: &described.name,
            selector: selector.as_deref(),
        },
        MetricSpec::External {
            metric, selector, ..
        } => Metric::External {
            metric,
            selector: selector.as_deref(),
        },
        MetricSpec::Unknown(kind) => {
            let message = format!("metric type {kind:?} has no history query");
            return Err(Refused::new(Reason::NotForecastable, message));
        }
    })
}

#[cfg(test)]
mod tests {
    use foretide_domain::{ScaleTarget, hpa::Target};
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_users_query_takes_precedence_over_a_rule_and_a_rule_over_the_built_in_query() {
        let queries = QueryRules::default();
        let target = ScaleTarget {
            api_version: "apps/v1".to_owned(),
            kind: "StatefulSet".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        let metric = MetricSpec::Pods {
            metric: "hits_per_second".to_owned(),
            selector: None,
            target: Target::AverageValue(1000),
        };
        let query = |written| {
            let demand = Demand {
                target: &target,
                metric: &metric,
                pods: None,
                written,
                span: SignedDuration::from_hours(48),
                member: None,
            };
            let query = queries.query(&demand).map_err(|refused| refused.message)?;
            Ok::<_, String>(query.text.to_string())
        };
        let pods = r#"namespace="shop",pod=~"^web-[0-9]+$""#;
        let built_in = format!("sum(hits_per_second{{{pods}}})");
        let by_rule = format!("sum(rate(hits_total{{{pods}}}[1m]))");
        let config = r#"rules: [{seriesQuery: hits_total, name: {as: hits_per_second}, resources: {template: <<.Resource>>},
            metricsQuery: "sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)"}]"#;

        assert_eq!(query(None), Ok(built_in.clone()));
        queries.adapter.reload(Ok(Some(config.to_owned())));
        assert_eq!(query(None), Ok(by_rule));
        assert_eq!(
            query(Some("sum(x)")),
            Ok(r#"sum(x{namespace="shop"})"#.to_owned())
        );
        queries.adapter.reload(Ok(None));
        assert_eq!(query(None), Ok(built_in));
        let refused = query(Some(r#"sum(x{a=~"\\w{99}"})"#)).unwrap_err();
        let annotation = "annotation metric-query.autoscaling.crane.io/";
        assert!(refused.starts_with(annotation), "{refused}");
        assert!(refused.contains("at most 4096 bytes"), "{refused}");
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn a_member_is_queried_at_its_endpoint_or_by_its_label() {
        let endpoints = EndpointNames {
            named: vec!["east-thanos".into()],
            ..EndpointNames::default()
        };
        let queries = QueryRules {
            endpoints,
            ..QueryRules::default()
        };
        let target = ScaleTarget {
            api_version: "apps/v1".to_owned(),
            kind: "StatefulSet".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        let cpu = MetricSpec::Resource {
            name: "cpu".to_owned(),
            target: Target::Utilization(50),
        };
        let member_query = |endpoint, alone, written| {
            let demand = Demand {
                target: &target,
                metric: &cpu,
                pods: None,
                written,
                span: SignedDuration::from_hours(48),
                member: Some(MemberSeries {
                    name: "east",
                    endpoint,
                    alone,
                }),
            };
            let query = queries.query(&demand).map_err(|refused| refused.message)?;
            Ok::<_, String>((query.endpoint, query.text.to_string()))
        };
        let query = |endpoint, written| member_query(endpoint, true, written);
        let usage = r#"sum(rate(container_cpu_usage_seconds_total{cluster="east",container!="",namespace="shop",pod=~"^web-[0-9]+$"}[3m]))"#;
        let nodes = r#"-count(machine_cpu_cores{cluster="east"})"#;
        assert_eq!(query(None, None), Ok((None, format!("{usage} or {nodes}"))));
        let (endpoint, text) = query(Some("east-thanos"), None).unwrap();
        assert_eq!(endpoint.as_deref(), Some("east-thanos"));
        assert_eq!(text.matches(r#"cluster=~"|east""#).count(), 2, "{text}");
        let (endpoint, text) = member_query(Some("east-thanos"), false, None).unwrap();
        assert_eq!(endpoint.as_deref(), Some("east-thanos"));
        assert_eq!(
            text,
            format!("{usage} or {nodes}"),
            "series without the label could be another member's"
        );
        assert_eq!(
            query(None, Some("sum(x) / scalar(sum(y offset 1h))")),
            Ok((
                None,
                "sum(x{cluster=\"east\",namespace=\"shop\"}) / scalar(sum(y{cluster=\"east\",namespace=\"shop\"} offset 1h))"
                    .to_owned()
            ))
        );
        let unknown = query(Some("west"), None).unwrap_err();
        assert!(
            unknown.contains("(known: east-thanos)")
                && unknown.contains("--prometheus-endpoint west=URL"),
            "{unknown}"
        );
    }
}
