//! One rule of a prometheus-adapter configuration, and the history query that it gives for a metric.
//!
//! The rule's template is filled in for a whole workload at once, and the result is restricted like a query that a user
//! wrote. Which rule serves a metric is decided in `config.rs`.

use std::time::Duration;

use super::{
    fields::{FieldError, Fields},
    labels::ResourceLabels,
    naming::{Naming, SeriesNames},
    template::{QueryTemplate, TemplateArgs, TemplateError},
};
use crate::{
    promql::{BuildError, LabelName, Match, Matcher, MetricName, Query},
    queries::{self, BuiltInError, Metric, WorkloadRef},
    scope::{self, AdmitError, PromqlScope, Tenant},
};

/// Maximum number of series that one metric may be derived from.
pub const SERIES_MAX: usize = 8;

/// The history that is wanted, and what the query may read.
#[derive(Debug, Clone, Copy)]
pub struct QueryRequest<'a> {
    /// The workload whose demand is wanted.
    pub workload: WorkloadRef<'a>,
    /// The metric that measures it.
    pub metric: Metric<'a>,
    /// Length of the history.
    pub history: Duration,
    /// The series that the query may read.
    pub scope: PromqlScope,
}

/// Reasons why a rule that serves a metric gives no query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// A field of the rule cannot be used.
    #[error("prometheus-adapter rule {0}")]
    Field(#[from] FieldError),
    /// The filled-in query of the rule is not accepted.
    #[error("the query of prometheus-adapter rule {field} is not accepted")]
    NotAccepted {
        /// The field that holds the query.
        field: String,
        /// The reason why it is not accepted.
        #[source]
        source: AdmitError,
    },
    /// The patterns of the rule do not determine which series the metric is derived from.
    #[error(
        "cannot determine which series prometheus-adapter rule {rule} derives {metric:?} from; \
         name the series in seriesQuery, or give a query in the annotation \
         metric-query.autoscaling.crane.io/<metric>"
    )]
    UnknownSeries {
        /// The rule.
        rule: String,
        /// The metric.
        metric: String,
    },
    /// More series than a metric is derived from in practice.
    #[error(
        "the prometheus-adapter rules derive {metric:?} from {count} series; at most {SERIES_MAX} are accepted"
    )]
    TooManySeries {
        /// The metric.
        metric: String,
        /// The number of series.
        count: usize,
    },
    /// `namespaced: false` where queries are bound to a namespace.
    #[error(
        "prometheus-adapter rule {0} reads across namespaces (resources.namespaced: false), which requires \
         --promql-scope=any"
    )]
    AcrossNamespaces(String),
    /// The metric's selector, or the described object, cannot be expressed in `PromQL`.
    #[error("the selector of the metric cannot be used in a query")]
    Selector(#[from] BuiltInError),
    /// A name or value that `PromQL` cannot hold.
    #[error("the selector of the metric cannot be used in a query")]
    Name(#[from] BuildError),
}

/// One of `rules` or `externalRules`.
#[derive(Debug, Clone)]
pub struct SeriesRule {
    /// The rule, as in `rules[2]`.
    pub path: String,
    naming: Naming,
    labels: ResourceLabels,
    query: RuleQuery,
}

/// `resourceRules.cpu` or `resourceRules.memory`.
#[derive(Debug, Clone)]
pub struct ResourceRule {
    path: String,
    pub resource: &'static str,
    container: Option<LabelName>,
    labels: ResourceLabels,
    query: RuleQuery,
}

/// The query template of a rule, or the reason why it cannot be used. Such a rule still serves its metrics: their
/// history is refused with that reason, because a built-in query would measure something else.
#[derive(Debug, Clone)]
struct RuleQuery {
    /// The field that holds the template, as in `rules[2].metricsQuery`.
    field: String,
    template: Result<QueryTemplate, FieldError>,
}

// === impl SeriesRule ===

impl SeriesRule {
    pub fn read(fields: &Fields<'_>) -> Result<(Self, Option<FieldError>), FieldError> {
        let query = RuleQuery::read(fields, "metricsQuery")?;
        let error = query.template.as_ref().err().cloned();
        let rule = Self {
            path: fields.path().to_owned(),
            naming: Naming::read(fields)?,
            labels: ResourceLabels::read(fields)?,
            query,
        };
        Ok((rule, error))
    }

    /// True if the adapter could serve a metric of this type by this rule.
    pub fn serves(&self, metric: &Metric<'_>) -> bool {
        match metric {
            Metric::Object { group, kind, .. } => self
                .labels
                .label_of(group, &kind.to_ascii_lowercase())
                .is_some(),
            Metric::Pods { .. } => self.labels.label_of("", "pod").is_some(),
            Metric::External { .. } => true,
            Metric::Resource { .. } | Metric::ContainerResource { .. } => false,
        }
    }

    /// The series that the adapter derives a metric from.
    pub fn series_of(&self, metric: &str) -> SeriesNames {
        self.naming.series_of(metric)
    }

    /// The query over one of the series of the metric.
    pub fn query(
        &self,
        series: &MetricName,
        request: &QueryRequest<'_>,
    ) -> Result<Query, RuleError> {
        let restricted = request.scope == PromqlScope::Namespace;
        if restricted && !self.labels.namespaced() {
            return Err(RuleError::AcrossNamespaces(self.path.clone()));
        }
        let mut matchers = self.selector_matchers(request)?;
        let mut group_by = Vec::new();
        if let Some((label, test)) = self.object_label(request)? {
            let matcher = Matcher::new(label.as_str(), test)?;
            // The selector of the metric may have it already.
            if !matchers.contains(&matcher) {
                matchers.push(matcher);
            }
            group_by.push(label);
        }
        let args = TemplateArgs {
            series: Some(series),
            matchers: &matchers,
            group_by: &group_by,
        };
        self.query.fill(args, &self.labels, request)
    }

    /// The conditions of the metric's selector, and the one on the namespace.
    fn selector_matchers(&self, request: &QueryRequest<'_>) -> Result<Vec<Matcher>, RuleError> {
        let namespace = request.workload.namespace;
        let selector = match request.metric {
            Metric::Pods { selector, .. }
            | Metric::Object { selector, .. }
            | Metric::External { selector, .. } => selector,
            Metric::Resource { .. } | Metric::ContainerResource { .. } => None,
        };
        let mut matchers = queries::selector_matchers(selector, namespace)?;
        if self.labels.namespaced() {
            let label = namespace_label(&self.labels);
            matchers.push(Matcher::equal(&label, namespace)?);
        }
        Ok(matchers)
    }

    /// The label of the pods or of the described object, and the condition on its value.
    fn object_label(
        &self,
        request: &QueryRequest<'_>,
    ) -> Result<Option<(LabelName, Match)>, RuleError> {
        Ok(match request.metric {
            Metric::Pods { .. } => {
                let label = self.labels.label_of("", "pod");
                label.map(|label| (label, pods_of(request.workload)))
            }
            Metric::Object {
                group, kind, name, ..
            } => {
                // Rejects the namespace of another tenant.
                queries::object_matcher(kind, name, request.workload.namespace)?;
                let label = self.labels.label_of(group, &kind.to_ascii_lowercase());
                label.map(|label| (label, Match::Equal(name.to_owned())))
            }
            Metric::External { .. }
            | Metric::Resource { .. }
            | Metric::ContainerResource { .. } => None,
        })
    }
}

// === impl ResourceRule ===

impl ResourceRule {
    /// Reads the rule of a resource; none without a `containerQuery`.
    pub fn read(
        resource: &'static str,
        fields: &Fields<'_>,
    ) -> Result<(Option<Self>, Option<FieldError>), FieldError> {
        if fields.string("containerQuery")?.trim().is_empty() {
            return Ok((None, None));
        }
        let query = RuleQuery::read(fields, "containerQuery")?;
        let error = query.template.as_ref().err().cloned();
        let container = match fields.string("containerLabel")? {
            "" => None,
            label => Some(
                LabelName::new(label)
                    .map_err(|error| fields.error("containerLabel", error.to_string()))?,
            ),
        };
        let rule = Self {
            path: fields.path().to_owned(),
            resource,
            container,
            labels: ResourceLabels::read(fields)?,
            query,
        };
        Ok((Some(rule), error))
    }

    fn unusable(&self, field: &str, why: &str) -> FieldError {
        FieldError::new(format!("{}.{field}", self.path), why)
    }

    /// The usage of all containers, or of one.
    pub fn query(
        &self,
        request: &QueryRequest<'_>,
        container: Option<&str>,
    ) -> Result<Query, RuleError> {
        let pod = self
            .labels
            .label_of("", "pod")
            .ok_or_else(|| self.unusable("resources", "names no label for pods"))?;
        let namespace = namespace_label(&self.labels);
        let mut matchers = vec![
            Matcher::equal(&namespace, request.workload.namespace)?,
            Matcher::new(pod.as_str(), pods_of(request.workload))?,
        ];
        if let Some(container) = container {
            let label = self.container.as_ref();
            let label = label.ok_or_else(|| self.unusable("containerLabel", "is missing"))?;
            matchers.push(Matcher::equal(label.as_str(), container)?);
        }
        let group_by: Vec<LabelName> = [Some(pod), self.container.clone()]
            .into_iter()
            .flatten()
            .collect();
        let args = TemplateArgs {
            series: None,
            matchers: &matchers,
            group_by: &group_by,
        };
        self.query.fill(args, &self.labels, request)
    }
}

// === impl RuleQuery ===

impl RuleQuery {
    fn read(fields: &Fields<'_>, name: &str) -> Result<Self, FieldError> {
        let template = QueryTemplate::read(fields.string(name)?);
        Ok(Self {
            field: fields.path_of(name),
            template: template.map_err(|error| fields.error(name, error.to_string())),
        })
    }

    /// Fills the template in, and checks the result as if a user had written it.
    fn fill(
        &self,
        args: TemplateArgs<'_>,
        labels: &ResourceLabels,
        request: &QueryRequest<'_>,
    ) -> Result<Query, RuleError> {
        let not_accepted = |source| RuleError::NotAccepted {
            field: self.field.clone(),
            source,
        };
        let template = self.template.as_ref().map_err(FieldError::clone)?;
        let text = template.total_query(args).map_err(|error| match error {
            TemplateError::Query(source) => not_accepted(source),
            other => FieldError::new(self.field.clone(), other.to_string()).into(),
        })?;
        let tenant = Tenant {
            label: &namespace_label(labels),
            namespace: request.workload.namespace,
        };
        scope::admit_for(&text, tenant, request.history, request.scope).map_err(not_accepted)
    }
}

/// Condition on the label of a pod's name for the pods of a workload.
fn pods_of(workload: WorkloadRef<'_>) -> Match {
    Match::Like(queries::pod_pattern(workload))
}

fn namespace_label(labels: &ResourceLabels) -> String {
    let label = labels.label_of("", "namespace");
    label.map_or_else(
        || scope::NAMESPACE.to_owned(),
        |label| label.as_str().to_owned(),
    )
}
