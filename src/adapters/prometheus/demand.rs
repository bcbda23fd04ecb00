//! From a metric of the domain to the query that answers for its history.
//!
//! A query that the user wrote comes first, then a prometheus-adapter rule for the metric, both restricted as
//! configured; else the built-in one of the metric's type. The part of one member cluster is the same query at its own
//! endpoint, or under its cluster label at the hub's. It asks nothing of the server.

use std::{sync::Arc, time::Duration};

use super::{
    Metric, Owner, PromqlScope, Query, Reach, RulesCache, Settings,
    adapter_config::{Asked, RuleError},
    admit, built_in, built_in_part,
    promql::{BuildError, Match, Matcher, RegexValue},
    scope,
};
use crate::{
    domain::{api_group, forecast::Refused, hpa::MetricSpec, proposal::Reason},
    error::chain,
    ports::{Demand, DemandQueries, HistoryQuery, MemberSeries},
};

/// How queries are made: which series resource metrics are, and what free-form queries may read.
#[derive(Debug, Clone, Default)]
pub struct QueryRules {
    /// Conditions of the built-in queries.
    pub settings: Settings,
    /// What a query that a user wrote may reach.
    pub scope: PromqlScope,
    /// The rules of prometheus-adapter in force.
    pub adapter: RulesCache,
    /// Which endpoints there are, and what tells members apart.
    pub reach: Reach,
}

// === impl QueryRules ===

impl DemandQueries for QueryRules {
    fn query(&self, demand: &Demand<'_>) -> Result<HistoryQuery, Refused> {
        let endpoint = self.endpoint(demand.member)?;
        let mut query = self.unlabelled(demand)?;
        if let Some(member) = demand.member {
            let condition = self.condition(member).map_err(|error| refused(&error))?;
            query = scope::within(&query, &condition).map_err(|error| refused(&error))?;
        }
        Ok(HistoryQuery {
            endpoint,
            text: query.as_str().into(),
        })
    }

    fn version(&self) -> u64 {
        self.adapter.version()
    }
}

impl QueryRules {
    /// The query where no other cluster's series are.
    fn unlabelled(&self, demand: &Demand<'_>) -> Result<Query, Refused> {
        let target = demand.target;
        let owner = Owner {
            namespace: &target.namespace,
            kind: &target.kind,
            name: &target.name,
        };
        let history = Duration::try_from(demand.span).unwrap_or_default();
        if let Some(text) = demand.written {
            return admit(text, owner.namespace, history, self.scope)
                .map_err(|error| refused(&error));
        }
        let asked = Asked {
            owner,
            metric: of(demand.metric)?,
            history,
            scope: self.scope,
        };
        if let Some(query) = self.adapter.rules().query(&asked) {
            return query.map_err(|error: RuleError| refused(&error));
        }
        let query = match demand.member {
            Some(_) => built_in_part(owner, asked.metric, &self.settings),
            None => built_in(owner, asked.metric, &self.settings),
        };
        query.map_err(|error| refused(&error))
    }

    /// What tells the series of one member: its label. At an endpoint that only its Secret names, series without that
    /// label are its own too: a Prometheus that watches one cluster only does not label what it keeps. Where another
    /// member names it as well, they could be of either, and both would count them.
    fn condition(&self, member: MemberSeries<'_>) -> Result<Matcher, BuildError> {
        let label = &self.reach.cluster_label;
        if member.endpoint.is_none() || !member.alone {
            return Matcher::equal(label, member.name);
        }
        let own_or_none = RegexValue::new().pattern("|").literal(member.name);
        Matcher::new(label, Match::Like(own_or_none))
    }

    /// The endpoint to ask; the hub's where a member names none.
    fn endpoint(&self, member: Option<MemberSeries<'_>>) -> Result<Option<Arc<str>>, Refused> {
        let named = member.and_then(|member| Some((member.name, member.endpoint?)));
        let Some((member, name)) = named else {
            let hub = self.reach.hub.then_some(None);
            return hub.ok_or_else(|| {
                let message = "no history of the hub is configured: start the controller with --prometheus URL, \
                               or name an endpoint in the Secret of each member";
                Refused::new(Reason::QueryError, message)
            });
        };
        let known = self.reach.named.iter().find(|known| &***known == name);
        known.cloned().map(Some).ok_or_else(|| {
            let known = self.reach.named.join(", ");
            let known = if known.is_empty() { "none" } else { &known };
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

fn of(metric: &MetricSpec) -> Result<Metric<'_>, Refused> {
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
    use jiff::SignedDuration;

    use super::*;
    use crate::domain::{ScaleTarget, hpa::Target};

    #[test]
    fn what_the_user_wrote_goes_before_a_rule_and_a_rule_before_the_built_in_query() {
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
                written,
                span: SignedDuration::from_hours(48),
                member: None,
            };
            let query = queries.query(&demand).map_err(|refused| refused.message)?;
            Ok::<_, String>(query.text.to_string())
        };
        let pods = r#"namespace="shop",pod=~"^web-[0-9]+$""#;
        let built_in = format!("sum(hits_per_second{{{pods}}})");
        let ruled = format!("sum(rate(hits_total{{{pods}}}[1m]))");
        let config = r#"rules: [{seriesQuery: hits_total, name: {as: hits_per_second}, resources: {template: <<.Resource>>},
            metricsQuery: "sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)"}]"#;

        assert_eq!(query(None), Ok(built_in.clone()));
        queries.adapter.shelve(Ok(Some(config.to_owned())));
        assert_eq!(query(None), Ok(ruled));
        assert_eq!(
            query(Some("sum(x)")),
            Ok(r#"sum(x{namespace="shop"})"#.to_owned())
        );
        queries.adapter.shelve(Ok(None));
        assert_eq!(query(None), Ok(built_in));
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn the_part_of_a_member_is_read_at_its_endpoint_or_under_its_label() {
        let reach = Reach {
            named: vec!["east-thanos".into()],
            ..Reach::default()
        };
        let queries = QueryRules {
            reach,
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
        let asked = |endpoint, alone, written| {
            let demand = Demand {
                target: &target,
                metric: &cpu,
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
        let query = |endpoint, written| asked(endpoint, true, written);
        let usage = r#"sum(rate(container_cpu_usage_seconds_total{cluster="east",container!="",namespace="shop",pod=~"^web-[0-9]+$"}[3m]))"#;
        let nodes = r#"-count(machine_cpu_cores{cluster="east"})"#;
        assert_eq!(query(None, None), Ok((None, format!("{usage} or {nodes}"))));
        let (endpoint, text) = query(Some("east-thanos"), None).unwrap();
        assert_eq!(endpoint.as_deref(), Some("east-thanos"));
        assert_eq!(text.matches(r#"cluster=~"|east""#).count(), 2, "{text}");
        let (endpoint, text) = asked(Some("east-thanos"), false, None).unwrap();
        assert_eq!(endpoint.as_deref(), Some("east-thanos"));
        assert_eq!(
            text,
            format!("{usage} or {nodes}"),
            "what has no label there could be another's"
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
