//! From a metric of the domain to the query that answers for its history.
//!
//! A query that the user wrote comes first, then a prometheus-adapter rule for the metric, both restricted as
//! configured; else the built-in one of the metric's type. It asks nothing of the server.

use std::time::Duration;

use super::{
    Metric, Owner, PromqlScope, RuleBook, Settings, admit, built_in,
    rules::{Asked, RuleError},
};
use crate::{
    domain::{forecast::Refused, hpa::MetricSpec, proposal::Reason},
    ports::{Demand, DemandQueries},
    validate::chain,
};

/// How queries are made: which series resource metrics are, and what free-form queries may read.
#[derive(Debug, Clone, Default)]
pub struct QueryRules {
    /// Conditions of the built-in queries.
    pub settings: Settings,
    /// What a query that a user wrote may reach.
    pub scope: PromqlScope,
    /// The rules of prometheus-adapter in force.
    pub adapter: RuleBook,
}

// === impl QueryRules ===

impl DemandQueries for QueryRules {
    fn query(&self, demand: &Demand<'_>) -> Result<String, Refused> {
        let target = demand.target;
        let owner = Owner {
            namespace: &target.namespace,
            kind: &target.kind,
            name: &target.name,
        };
        let history = Duration::try_from(demand.span).unwrap_or_default();
        let query = if let Some(text) = demand.written {
            admit(text, owner.namespace, history, self.scope).map_err(|error| refused(&error))
        } else {
            let asked = Asked {
                owner,
                metric: of(demand.metric)?,
                history,
                scope: self.scope,
            };
            match self.adapter.rules().query(&asked) {
                Some(query) => query.map_err(|error: RuleError| refused(&error)),
                None => {
                    built_in(owner, asked.metric, &self.settings).map_err(|error| refused(&error))
                }
            }
        };
        query.map(|query| query.as_str().to_owned())
    }

    fn version(&self) -> u64 {
        self.adapter.version()
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
            group: described
                .api_version
                .split_once('/')
                .map_or("", |(group, _version)| group),
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
            };
            queries.query(&demand).map_err(|refused| refused.message)
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
}
