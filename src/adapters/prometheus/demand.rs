//! From a metric of the domain to the query that answers for its history.
//!
//! A query that the user wrote comes first, restricted as configured; else the built-in one of the
//! metric's type. It asks nothing of the server.

use std::time::Duration;

use super::{Metric, Owner, PromqlScope, Settings, admit, built_in};
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
}

// === impl QueryRules ===

impl DemandQueries for QueryRules {
    fn query(&self, demand: &Demand<'_>) -> Result<String, Refused> {
        match demand.written {
            Some(text) => self.written(text, demand),
            None => self.built_in(demand),
        }
    }
}

impl QueryRules {
    fn written(&self, text: &str, demand: &Demand<'_>) -> Result<String, Refused> {
        let span = Duration::try_from(demand.span).unwrap_or_default();
        admit(text, &demand.target.namespace, span, self.scope)
            .map(|query| query.as_str().to_owned())
            .map_err(|refusal| Refused::new(Reason::QueryRefused, chain(&refusal)))
    }

    fn built_in(&self, demand: &Demand<'_>) -> Result<String, Refused> {
        let target = demand.target;
        let owner = Owner {
            namespace: &target.namespace,
            kind: &target.kind,
            name: &target.name,
        };
        built_in(owner, of(demand.metric)?, &self.settings)
            .map(|query| query.as_str().to_owned())
            .map_err(|refused| Refused::new(Reason::QueryRefused, chain(&refused)))
    }
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
