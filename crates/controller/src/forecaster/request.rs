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
    let Some(source) =
        ForecastSource::of(autoscaler, local).filter(|source| source.workload.prediction.is_some())
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

    use super::*;
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
}
