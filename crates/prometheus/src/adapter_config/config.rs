//! A configuration of prometheus-adapter, and the choice of the rules that serve a metric.

use serde_json::Value;

use super::{
    fields::{FieldError, Fields},
    naming::SeriesNames,
    rule::{QueryRequest, ResourceRule, RuleError, SERIES_MAX, SeriesRule},
};
use crate::{
    promql::{Query, excerpt},
    queries::Metric,
};
use foretide_base::error::yaml;

/// The rules of one configuration, in their order.
#[derive(Debug, Clone, Default)]
pub struct AdapterConfig {
    custom: Vec<SeriesRule>,
    external: Vec<SeriesRule>,
    resources: Vec<ResourceRule>,
    errors: Vec<FieldError>,
}

// === impl AdapterConfig ===

impl AdapterConfig {
    /// Parses a configuration: the text of the adapter's `--config` file.
    ///
    /// A rule that cannot be used does not affect the others, and is among the [errors](AdapterConfig::errors).
    ///
    /// # Errors
    /// The text is not a YAML mapping, or `rules`, `externalRules` or `resourceRules` has another type.
    pub fn read(text: &str) -> Result<Self, FieldError> {
        let document: Value = serde_saphyr::from_str(text)
            .map_err(|error| FieldError::new("the document", excerpt(&yaml(&error, text).1)))?;
        let root = Fields::root(&document)?;
        let mut config = Self::default();
        config.custom = config.usable(root.list("rules")?, SeriesRule::read);
        config.external = config.usable(root.list("externalRules")?, SeriesRule::read);
        let resources = root.mapping("resourceRules")?;
        // `resourceRules` has fields for these two only.
        for resource in ["cpu", "memory"] {
            let rules = config.usable(vec![resources.mapping(resource)], |fields| {
                ResourceRule::read(resource, fields)
            });
            config.resources.extend(rules.into_iter().flatten());
        }
        Ok(config)
    }

    /// The fields that cannot be used.
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// Number of usable rules.
    pub fn len(&self) -> usize {
        self.custom.len() + self.external.len() + self.resources.len()
    }

    /// True if no rule can be used.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The query for the total demand of a workload; none if no rule serves the metric.
    ///
    /// | metric | rules | series |
    /// |---|---|---|
    /// | Resource, `ContainerResource` | `resourceRules` | those of `containerQuery` |
    /// | Pods, Object | `rules` with a label for pods, or for the object | by `name`, read backwards |
    /// | External | `externalRules` | likewise |
    ///
    /// Where several series can make the metric, the query is `a or b`: the first of them that has a value, in the
    /// adapter's own order of precedence, the last rule first.
    ///
    /// # Errors
    /// `RuleError`, when a rule serves the metric but gives no query.
    pub fn query(&self, request: &QueryRequest<'_>) -> Option<Result<Query, RuleError>> {
        match request.metric {
            Metric::Resource { name } => self.resource_query(request, name, None),
            Metric::ContainerResource { name, container } => {
                self.resource_query(request, name, Some(container))
            }
            Metric::Pods { metric, .. } | Metric::Object { metric, .. } => {
                series_query(&self.custom, metric, request)
            }
            Metric::External { metric, .. } => series_query(&self.external, metric, request),
        }
    }

    fn resource_query(
        &self,
        request: &QueryRequest<'_>,
        resource: &str,
        container: Option<&str>,
    ) -> Option<Result<Query, RuleError>> {
        let rule = self.resources.iter().find(|it| it.resource == resource)?;
        Some(rule.query(request, container))
    }

    /// The items that can be read; the reasons why others cannot are added to the errors.
    fn usable<'a, T>(
        &mut self,
        items: Vec<Result<Fields<'a>, FieldError>>,
        read: impl Fn(&Fields<'a>) -> Result<(T, Option<FieldError>), FieldError>,
    ) -> Vec<T> {
        let mut usable = Vec::new();
        for item in items {
            match item.and_then(|fields| read(&fields)) {
                Ok((rule, error)) => {
                    usable.push(rule);
                    self.errors.extend(error);
                }
                Err(error) => self.errors.push(error),
            }
        }
        usable
    }
}

/// The query of those rules that can make a metric.
fn series_query(
    rules: &[SeriesRule],
    metric: &str,
    request: &QueryRequest<'_>,
) -> Option<Result<Query, RuleError>> {
    let mut sources = Vec::new();
    let mut unknown = None;
    let rules = rules.iter().rev();
    for rule in rules.filter(|rule| rule.serves(&request.metric)) {
        match rule.series_of(metric) {
            SeriesNames::Known(names) => sources.extend(names.into_iter().map(|name| (rule, name))),
            SeriesNames::Unknown => unknown = unknown.or(Some(rule)),
        }
    }
    match (&sources[..], unknown) {
        ([], None) => None,
        ([], Some(rule)) => Some(Err(RuleError::UnknownSeries {
            rule: rule.path.clone(),
            metric: excerpt(metric),
        })),
        (sources, _) if sources.len() > SERIES_MAX => Some(Err(RuleError::TooManySeries {
            metric: excerpt(metric),
            count: sources.len(),
        })),
        (sources, _) => {
            let queries = sources.iter().map(|(rule, name)| rule.query(name, request));
            Some(queries.collect::<Result<Vec<_>, _>>().map(first_of))
        }
    }
}

/// At each time, the first query that has a value: each gives one series without labels, so `or` hides those after it.
fn first_of(queries: Vec<Query>) -> Query {
    // Two rules may derive the metric from the same series by the same query.
    let mut distinct: Vec<String> = Vec::new();
    for query in queries {
        if !distinct.iter().any(|before| before == query.as_str()) {
            distinct.push(query.to_string());
        }
    }
    Query::admitted(distinct.join(" or "))
}
