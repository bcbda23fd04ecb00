//! prometheus-adapter's own configuration as a source of history queries: whoever serves custom metrics with it has
//! said there already how each is asked for. A metric is traced back to the series that the adapter makes it of, and
//! the rule's query is asked for the whole workload at once, bound to its namespace. Pure: text in, query text out;
//! the server is not asked which series there are. Read [`Rules`], then `naming.rs` and `template.rs`.

mod file;
mod labels;
mod naming;
mod reload;
mod template;

use std::time::Duration;

use serde_json::Value;

pub use self::{
    file::Fault,
    reload::{ReloadOutcome, RulesCache},
};
use self::{
    file::Fields,
    labels::Labels,
    naming::{Naming, Series},
    template::{Blanks, Template, TemplateError},
};
use super::{
    promql::{BuildError, LabelName, Match, Matcher, MetricName, Query, excerpt},
    queries::{self, Metric, Owner},
    scope::{self, PromqlScope, Refusal, Tenant},
};

/// The most series that one metric may be made of.
const SERIES_MAX: usize = 8;

/// The rules of one configuration.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    custom: Vec<Rule>,
    external: Vec<Rule>,
    resources: Vec<ResourceRule>,
    faults: Vec<Fault>,
}

/// One of `rules` or `externalRules`.
#[derive(Debug, Clone)]
struct Rule {
    at: String,
    naming: Naming,
    labels: Labels,
    query: Result<Template, Fault>,
}

/// `resourceRules.cpu` or `resourceRules.memory`.
#[derive(Debug, Clone)]
struct ResourceRule {
    at: String,
    resource: &'static str,
    container: Option<LabelName>,
    labels: Labels,
    query: Result<Template, Fault>,
}

/// What history is asked for, and how far the query may reach.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Whose demand it is.
    pub owner: Owner<'a>,
    /// Of which metric.
    pub metric: Metric<'a>,
    /// How far back the history goes.
    pub history: Duration,
    /// What a query may read.
    pub scope: PromqlScope,
}

/// Why the rule that is there for a metric is not asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The rule itself.
    #[error("prometheus-adapter rule {0}")]
    Fault(#[from] Fault),
    /// Its query, filled in.
    #[error("the query of prometheus-adapter rule {at} is not accepted")]
    NotAccepted {
        /// The rule.
        at: String,
        /// Why not.
        #[source]
        source: Refusal,
    },
    /// The naming cannot be read backwards.
    #[error(
        "which series prometheus-adapter rule {at} makes {metric:?} of cannot be told from its patterns; \
         name the series in seriesQuery, or give a query in the annotation \
         metric-query.autoscaling.crane.io/<metric>"
    )]
    Unknown {
        /// The rule.
        at: String,
        /// The metric.
        metric: String,
    },
    /// More series than anybody means.
    #[error(
        "the prometheus-adapter rules make {metric:?} of {count} series; at most {SERIES_MAX} are accepted"
    )]
    TooMany {
        /// The metric.
        metric: String,
        /// How many.
        count: usize,
    },
    /// `namespaced: false` where queries are bound to a namespace.
    #[error(
        "prometheus-adapter rule {0} reads across namespaces (resources.namespaced: false), which takes \
         --promql-scope=any"
    )]
    AcrossNamespaces(String),
    /// The metric's selector, or the object that is described.
    #[error("the conditions of the metric cannot be asked")]
    Conditions(#[from] queries::Refused),
    /// A name or value that `PromQL` cannot hold.
    #[error("the conditions of the metric cannot be asked")]
    Name(#[from] BuildError),
}

// === impl Rules ===

impl Rules {
    /// Reads a configuration: the text of the adapter's `--config` file.
    ///
    /// A rule that cannot be used does not spoil the others: it is among the [faults](Rules::faults).
    ///
    /// # Errors
    /// The text is no YAML mapping, or `rules`, `externalRules` or `resourceRules` has another shape.
    pub fn read(text: &str) -> Result<Self, Fault> {
        let document: Value = serde_saphyr::from_str(text).map_err(|error| {
            let message = error.without_snippet().to_string();
            Fault::new(
                "the document",
                excerpt(message.lines().next().unwrap_or_default()),
            )
        })?;
        let root = Fields::root(&document)?;
        let mut rules = Self::default();
        rules.custom = rules.kept(root.each("rules")?, Rule::read);
        rules.external = rules.kept(root.each("externalRules")?, Rule::read);
        let resources = root.fields("resourceRules")?;
        let cpu = rules.kept(vec![resources.fields("cpu")], |fields| {
            ResourceRule::read("cpu", fields)
        });
        let memory = rules.kept(vec![resources.fields("memory")], |fields| {
            ResourceRule::read("memory", fields)
        });
        rules.resources = cpu.into_iter().chain(memory).flatten().collect();
        Ok(rules)
    }

    /// What cannot be used, each named by its place.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// How many rules can be used.
    #[must_use]
    pub fn len(&self) -> usize {
        self.custom.len() + self.external.len() + self.resources.len()
    }

    /// Whether no rule can be used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The query for the total demand of a workload, if a rule is there for the metric.
    ///
    /// | metric | rules | series |
    /// |---|---|---|
    /// | Resource, `ContainerResource` | `resourceRules` | those of `containerQuery` |
    /// | Pods, Object | `rules` that know the label of the pods, or of the object | by `name`, read backwards |
    /// | External | `externalRules` | likewise |
    ///
    /// Where several series could make the metric, the query is `a or b`: the first of them that has a value, in the
    /// adapter's own order of precedence, the last rule first.
    ///
    /// # Errors
    /// [`RuleError`], when there is a rule and it cannot be asked.
    #[must_use]
    pub fn query(&self, asked: &Asked<'_>) -> Option<Result<Query, RuleError>> {
        match asked.metric {
            Metric::Resource { name } => self.usage(asked, name, None),
            Metric::ContainerResource { name, container } => {
                self.usage(asked, name, Some(container))
            }
            Metric::Pods { metric, .. } | Metric::Object { metric, .. } => {
                named(&self.custom, metric, asked)
            }
            Metric::External { metric, .. } => named(&self.external, metric, asked),
        }
    }

    fn usage(
        &self,
        asked: &Asked<'_>,
        resource: &str,
        container: Option<&str>,
    ) -> Option<Result<Query, RuleError>> {
        let mut rules = self.resources.iter();
        let rule = rules.find(|rule| rule.resource == resource)?;
        Some(rule.query(asked, container))
    }

    /// What can be read; the rest becomes faults.
    fn kept<'a, T>(
        &mut self,
        items: Vec<Result<Fields<'a>, Fault>>,
        read: impl Fn(&Fields<'a>) -> Result<(T, Option<Fault>), Fault>,
    ) -> Vec<T> {
        let mut kept = Vec::new();
        for item in items {
            match item.and_then(|fields| read(&fields)) {
                Ok((rule, fault)) => {
                    kept.push(rule);
                    self.faults.extend(fault);
                }
                Err(fault) => self.faults.push(fault),
            }
        }
        kept
    }
}

/// The query of those rules that can make a metric.
fn named(rules: &[Rule], metric: &str, asked: &Asked<'_>) -> Option<Result<Query, RuleError>> {
    let mut sources = Vec::new();
    let mut unknown = None;
    for rule in rules.iter().rev().filter(|rule| rule.serves(&asked.metric)) {
        match rule.naming.series_of(metric) {
            Series::Named(names) => sources.extend(names.into_iter().map(|name| (rule, name))),
            Series::Unknown => unknown = unknown.or(Some(rule)),
        }
    }
    let metric = || excerpt(metric);
    match (&sources[..], unknown) {
        ([], None) => None,
        ([], Some(rule)) => Some(Err(RuleError::Unknown {
            at: rule.at.clone(),
            metric: metric(),
        })),
        (sources, _) if sources.len() > SERIES_MAX => Some(Err(RuleError::TooMany {
            metric: metric(),
            count: sources.len(),
        })),
        (sources, _) => {
            let queries = sources.iter().map(|(rule, name)| rule.query(name, asked));
            Some(queries.collect::<Result<Vec<_>, _>>().map(first_of))
        }
    }
}

/// The first query that has a value, at each time: each is a sum or a vector of one number, without labels, so that one
/// with a value hides those after it.
fn first_of(queries: Vec<Query>) -> Query {
    let mut distinct: Vec<String> = Vec::new();
    for query in queries {
        if !distinct.iter().any(|before| before == query.as_str()) {
            distinct.push(query.to_string());
        }
    }
    Query::admitted(distinct.join(" or "))
}

// === impl Rule ===

impl Rule {
    fn read(fields: &Fields<'_>) -> Result<(Self, Option<Fault>), Fault> {
        let query = template(fields, "metricsQuery");
        let fault = query.as_ref().err().cloned();
        let rule = Self {
            at: fields.at().to_owned(),
            naming: Naming::read(fields)?,
            labels: Labels::read(fields)?,
            query,
        };
        Ok((rule, fault))
    }

    /// Whether the adapter could serve a metric of this type by this rule.
    fn serves(&self, metric: &Metric<'_>) -> bool {
        match metric {
            Metric::Object { group, kind, .. } => {
                self.labels.of(group, &kind.to_ascii_lowercase()).is_some()
            }
            Metric::Pods { .. } => self.labels.of("", "pod").is_some(),
            Metric::External { .. } => true,
            Metric::Resource { .. } | Metric::ContainerResource { .. } => false,
        }
    }

    fn query(&self, series: &MetricName, asked: &Asked<'_>) -> Result<Query, RuleError> {
        let restricted = asked.scope == PromqlScope::Namespace;
        if restricted && !self.labels.namespaced() {
            return Err(RuleError::AcrossNamespaces(self.at.clone()));
        }
        let (matchers, group_by) = self.conditions(asked)?;
        let blanks = Blanks {
            series: Some(series),
            matchers: &matchers,
            group_by: &group_by,
        };
        ask(
            (&self.at, "metricsQuery"),
            (&self.query, blanks),
            &self.labels,
            asked,
        )
    }

    /// `LabelMatchers` and `GroupBy`.
    fn conditions(&self, asked: &Asked<'_>) -> Result<(Vec<Matcher>, Vec<LabelName>), RuleError> {
        let namespace = asked.owner.namespace;
        let (selector, object) = match asked.metric {
            Metric::Pods { selector, .. } => (
                selector,
                self.labels
                    .of("", "pod")
                    .map(|label| (label, pods(asked.owner))),
            ),
            Metric::Object {
                group,
                kind,
                name,
                selector,
                ..
            } => {
                queries::described(kind, name, namespace)?;
                let label = self.labels.of(group, &kind.to_ascii_lowercase());
                (
                    selector,
                    label.map(|label| (label, Match::Equal(name.to_owned()))),
                )
            }
            Metric::External { selector, .. } => (selector, None),
            Metric::Resource { .. } | Metric::ContainerResource { .. } => (None, None),
        };
        let mut matchers = queries::conditions(selector, namespace)?;
        if self.labels.namespaced() {
            matchers.push(Matcher::equal(&namespace_label(&self.labels), namespace)?);
        }
        let mut group_by = Vec::new();
        if let Some((label, test)) = object {
            let matcher = Matcher::new(label.as_str(), test)?;
            if !matchers.contains(&matcher) {
                matchers.push(matcher);
            }
            group_by.push(label);
        }
        Ok((matchers, group_by))
    }
}

// === impl ResourceRule ===

impl ResourceRule {
    fn read(
        resource: &'static str,
        fields: &Fields<'_>,
    ) -> Result<(Option<Self>, Option<Fault>), Fault> {
        if fields.text("containerQuery")?.trim().is_empty() {
            return Ok((None, None));
        }
        let query = template(fields, "containerQuery");
        let fault = query.as_ref().err().cloned();
        let container = match fields.text("containerLabel")? {
            "" => None,
            label => Some(
                LabelName::new(label)
                    .map_err(|error| fields.fault("containerLabel", error.to_string()))?,
            ),
        };
        let rule = Self {
            at: fields.at().to_owned(),
            resource,
            container,
            labels: Labels::read(fields)?,
            query,
        };
        Ok((Some(rule), fault))
    }

    fn query(&self, asked: &Asked<'_>, container: Option<&str>) -> Result<Query, RuleError> {
        let missing = |field: &str, why: &str| Fault::new(format!("{}.{field}", self.at), why);
        let pod = self
            .labels
            .of("", "pod")
            .ok_or_else(|| missing("resources", "names no label for pods"))?;
        let mut matchers = vec![
            Matcher::equal(&namespace_label(&self.labels), asked.owner.namespace)?,
            Matcher::new(pod.as_str(), pods(asked.owner))?,
        ];
        if let Some(container) = container {
            let label = self.container.as_ref();
            let label = label.ok_or_else(|| missing("containerLabel", "is missing"))?;
            matchers.push(Matcher::equal(label.as_str(), container)?);
        }
        let group_by: Vec<LabelName> = [Some(pod), self.container.clone()]
            .into_iter()
            .flatten()
            .collect();
        let blanks = Blanks {
            series: None,
            matchers: &matchers,
            group_by: &group_by,
        };
        ask(
            (&self.at, "containerQuery"),
            (&self.query, blanks),
            &self.labels,
            asked,
        )
    }
}

fn template(fields: &Fields<'_>, field: &str) -> Result<Template, Fault> {
    let text = fields.text(field)?;
    Template::read(text).map_err(|error| fields.fault(field, error.to_string()))
}

fn pods(owner: Owner<'_>) -> Match {
    Match::Like(queries::pod_pattern(owner.kind, owner.name))
}

fn namespace_label(labels: &Labels) -> String {
    let said = labels.of("", "namespace");
    said.map_or_else(
        || scope::NAMESPACE.to_owned(),
        |label| label.as_str().to_owned(),
    )
}

/// Fills a rule's query in and has it admitted, as if a person had written it.
fn ask(
    (at, field): (&str, &str),
    (query, blanks): (&Result<Template, Fault>, Blanks<'_>),
    labels: &Labels,
    asked: &Asked<'_>,
) -> Result<Query, RuleError> {
    let at = format!("{at}.{field}");
    let filled = query.as_ref().map_err(Fault::clone)?.total(blanks);
    let refused = |source| RuleError::NotAccepted {
        at: at.clone(),
        source,
    };
    let text = filled.map_err(|error| match error {
        TemplateError::Query(refusal) => refused(refusal),
        other => Fault::new(at.clone(), other.to_string()).into(),
    })?;
    let tenant = Tenant {
        label: &namespace_label(labels),
        namespace: asked.owner.namespace,
    };
    scope::admit_for(&text, tenant, asked.history, asked.scope).map_err(refused)
}

#[cfg(test)]
mod tests;
