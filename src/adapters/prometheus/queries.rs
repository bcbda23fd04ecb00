//! The query that a metric's history is read with when nobody configured another: one per metric type, a total over
//! the workload's pods, bound to its namespace. Past pods have no live owner to ask, so they are found by the name
//! pattern of the target's kind. Refuses what cannot be said in `PromQL` without guessing, naming the annotation that
//! says it instead.

use super::promql::{
    BuildError, Expression, Match, Matcher, MetricName, Query, RegexValue, Selector, Window,
};
use crate::domain::{self, ParseSelectorError, Requirement};

const CPU_USAGE: &str = "container_cpu_usage_seconds_total";
const MEMORY_USAGE: &str = "container_memory_working_set_bytes";
/// One series per node, of the same scrape as the usage of its containers: where it is and they are not, nothing ran.
const NODES: &str = "machine_cpu_cores";

/// Whose pods are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The namespace of object and pods; every query is bound to it.
    pub namespace: &'a str,
    /// The target's kind, as in `Deployment`.
    pub kind: &'a str,
    /// The target's name.
    pub name: &'a str,
}

/// The metric whose history is wanted. Selectors are Kubernetes label selectors in their text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric<'a> {
    /// Usage of a resource (`cpu`, `memory`) by all containers.
    Resource {
        /// The resource.
        name: &'a str,
    },
    /// Usage of a resource by one container of each pod.
    ContainerResource {
        /// The resource.
        name: &'a str,
        /// The container.
        container: &'a str,
    },
    /// A metric of the workload's pods.
    Pods {
        /// The series' name.
        metric: &'a str,
        /// Further conditions.
        selector: Option<&'a str>,
    },
    /// A metric of one object in the namespace.
    Object {
        /// The series' name.
        metric: &'a str,
        /// The API group of the described object's kind; empty for the core group.
        group: &'a str,
        /// The described object's kind; in lower case the label that holds its name.
        kind: &'a str,
        /// The described object's name.
        name: &'a str,
        /// Further conditions.
        selector: Option<&'a str>,
    },
    /// A metric that belongs to no object of the cluster.
    External {
        /// The series' name.
        metric: &'a str,
        /// Further conditions.
        selector: Option<&'a str>,
    },
}

/// What the administrator can vary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Conditions on every resource metric, such as `job="kubelet"`, against workloads that expose series of the
    /// same name. None by default: job names differ between installations.
    pub resource_matchers: Vec<Matcher>,
    /// How far `rate` looks back.
    pub rate_window: Window,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            resource_matchers: Vec::new(),
            rate_window: Window::THREE_MINUTES,
        }
    }
}

/// Why there is no built-in query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A resource whose usage no known series holds.
    #[error(
        "no built-in history query for resource {0:?} (known: cpu, memory); \
         give one in the annotation metric-query.autoscaling.crane.io/<metric>"
    )]
    Resource(String),
    /// A name or value that `PromQL` cannot hold.
    #[error(
        "no built-in history query; give one in the annotation metric-query.autoscaling.crane.io/<metric>"
    )]
    Name(#[from] BuildError),
    /// A label selector that is not one.
    #[error(
        "cannot read the metric selector at {0:?}; expected a Kubernetes label selector \
         such as `queue=worker,tier in (a,b),!canary`"
    )]
    Selector(String),
    /// A selector that names another namespace, or compares the namespace in another way than by equality.
    #[error(
        "the metric selector compares label {label:?}; the history is bound to namespace \
         {namespace:?}, leave the condition out"
    )]
    Namespace {
        /// The label.
        label: String,
        /// The object's own namespace.
        namespace: String,
    },
}

impl Refused {
    /// The stable `UpperCamelCase` word for conditions.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        "NoHistoryQuery"
    }
}

/// The built-in query: always a `sum`, so it answers with one series.
///
/// | metric | query |
/// |---|---|
/// | Resource cpu | `sum(rate(container_cpu_usage_seconds_total{namespace=,pod=~,container!=""}[3m]))`, cores |
/// | Resource memory | `sum(container_memory_working_set_bytes{namespace=,pod=~,container!=""})`, bytes |
/// | `ContainerResource` | the same with `container="c"` |
/// | Pods | `sum(metric{namespace=,pod=~,selector...})` |
/// | Object | `sum(metric{namespace=,<kind>=name,selector...})` |
/// | External | `sum(metric{namespace=,selector...})` |
///
/// # Errors
/// [`Refused`].
pub fn built_in(
    owner: Owner<'_>,
    metric: Metric<'_>,
    settings: &Settings,
) -> Result<Query, Refused> {
    Ok(Query::build(&total_of(owner, metric, settings)?)?)
}

/// As [`built_in`], for one part of a total: for `Resource` and `ContainerResource` a value below zero says that the
/// cluster's nodes were watched while none of the pods ran, `sum(...) or -count(machine_cpu_cores{})`. For the other
/// types nothing tells a workload that sleeps from one that nobody watches.
///
/// # Errors
/// As [`built_in`].
pub fn built_in_part(
    owner: Owner<'_>,
    metric: Metric<'_>,
    settings: &Settings,
) -> Result<Query, Refused> {
    let total = total_of(owner, metric, settings)?;
    let expression = match metric {
        Metric::Resource { .. } | Metric::ContainerResource { .. } => {
            let nodes = Selector {
                metric: MetricName::new(NODES)?,
                matchers: Vec::new(),
            };
            Expression::OrBelowZero(Box::new(total), nodes)
        }
        Metric::Pods { .. } | Metric::Object { .. } | Metric::External { .. } => total,
    };
    Ok(Query::build(&expression)?)
}

fn total_of(
    owner: Owner<'_>,
    metric: Metric<'_>,
    settings: &Settings,
) -> Result<Expression, Refused> {
    let namespace = Matcher::equal("namespace", owner.namespace)?;
    let pods = || Matcher::new("pod", Match::Like(pod_pattern(owner.kind, owner.name)));
    Ok(match metric {
        Metric::Resource { name } => {
            let any = Matcher::new("container", Match::NotEqual(String::new()))?;
            resource(name, vec![namespace, pods()?, any], settings)?
        }
        Metric::ContainerResource { name, container } => {
            let only = Matcher::equal("container", container)?;
            resource(name, vec![namespace, pods()?, only], settings)?
        }
        Metric::Pods { metric, selector } => {
            total(metric, vec![namespace, pods()?], selector, owner.namespace)?
        }
        Metric::Object {
            metric,
            kind,
            name,
            selector,
            ..
        } => {
            let mut matchers = vec![namespace];
            matchers.extend(described(kind, name, owner.namespace)?);
            total(metric, matchers, selector, owner.namespace)?
        }
        Metric::External { metric, selector } => {
            total(metric, vec![namespace], selector, owner.namespace)?
        }
    })
}

/// The names of the pods that a workload of this kind makes, and as few others as names can tell.
///
/// Deployment `n-<hash>-<5>`, `ReplicaSet` and `DaemonSet` `n-<5>`, `StatefulSet` `n-<ordinal>`; any other
/// kind `n-...`,
/// which also catches siblings such as `n-admin-0`.
pub(super) fn pod_pattern(kind: &str, name: &str) -> RegexValue {
    let suffix = match kind {
        "Deployment" => "-[a-z0-9]+-[a-z0-9]{5}$",
        "ReplicaSet" | "DaemonSet" => "-[a-z0-9]{5}$",
        "StatefulSet" => "-[0-9]+$",
        _ => "-.*$",
    };
    RegexValue::new().pattern("^").literal(name).pattern(suffix)
}

fn resource(
    name: &str,
    mut matchers: Vec<Matcher>,
    settings: &Settings,
) -> Result<Expression, Refused> {
    matchers.extend(settings.resource_matchers.iter().cloned());
    let selector =
        |metric: &str| MetricName::new(metric).map(|metric| Selector { metric, matchers });
    match name {
        "cpu" => Ok(Expression::SumOfRate(
            selector(CPU_USAGE)?,
            settings.rate_window,
        )),
        "memory" => Ok(Expression::Sum(selector(MEMORY_USAGE)?)),
        other => Err(Refused::Resource(super::promql::excerpt(other))),
    }
}

fn total(
    metric: &str,
    mut matchers: Vec<Matcher>,
    selector: Option<&str>,
    namespace: &str,
) -> Result<Expression, Refused> {
    matchers.extend(conditions(selector, namespace)?);
    Ok(Expression::Sum(Selector {
        metric: MetricName::new(metric)?,
        matchers,
    }))
}

/// The conditions of a metric's selector; one on the namespace must be what holds anyway, and is left out.
pub(super) fn conditions(selector: Option<&str>, namespace: &str) -> Result<Vec<Matcher>, Refused> {
    let mut matchers = Vec::new();
    for matcher in selector.map_or_else(|| Ok(Vec::new()), parse_selector)? {
        let label = matcher.label().as_str();
        if !super::scope::is_tenant_label(label) {
            matchers.push(matcher);
        } else if matcher != Matcher::equal(label, namespace)? {
            let label = label.to_owned();
            return Err(Refused::Namespace {
                label,
                namespace: namespace.to_owned(),
            });
        }
    }
    Ok(matchers)
}

/// The condition that picks one object; none for the object's own namespace, which is bound already.
pub(super) fn described(
    kind: &str,
    name: &str,
    namespace: &str,
) -> Result<Option<Matcher>, Refused> {
    let label = kind.to_ascii_lowercase();
    if label != "namespace" {
        return Ok(Some(Matcher::equal(&label, name)?));
    }
    if name == namespace {
        return Ok(None);
    }
    Err(Refused::Namespace {
        label,
        namespace: namespace.to_owned(),
    })
}

/// Translates a Kubernetes label selector. An absent label counts as the empty value in both languages, so all operators
/// on texts have exact `PromQL` forms: `k in (a,b)` is `k=~"a|b"`, `k` is `k!=""`, `!k` is `k=""`.
fn parse_selector(text: &str) -> Result<Vec<Matcher>, Refused> {
    let selector: domain::Selector = text.parse().map_err(|error: ParseSelectorError| {
        let invalid = match error.requirement.as_str() {
            "" => text,
            requirement => requirement,
        };
        Refused::Selector(super::promql::excerpt(invalid))
    })?;
    selector.requirements().iter().map(matcher).collect()
}

fn matcher(requirement: &Requirement) -> Result<Matcher, Refused> {
    let condition = match requirement {
        Requirement::Equal(_, value) => Match::Equal(value.clone()),
        Requirement::NotEqual(_, value) => Match::NotEqual(value.clone()),
        Requirement::In(_, values) => Match::Like(any_of(values)),
        Requirement::NotIn(_, values) => Match::Unlike(any_of(values)),
        Requirement::Exists(_) => Match::NotEqual(String::new()),
        Requirement::Absent(_) => Match::Equal(String::new()),
        // PromQL compares values of series, not of labels.
        Requirement::Above(key, _) | Requirement::Below(key, _) => {
            return Err(Refused::Selector(super::promql::excerpt(key)));
        }
    };
    Ok(Matcher::new(requirement.key(), condition)?)
}

fn any_of(values: &[String]) -> RegexValue {
    let mut pattern = RegexValue::new();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            pattern = pattern.pattern("|");
        }
        pattern = pattern.literal(value);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WEB: Owner<'_> = Owner {
        namespace: "shop",
        kind: "Deployment",
        name: "web",
    };

    fn text(metric: Metric<'_>) -> String {
        built_in(WEB, metric, &Settings::default())
            .map_or_else(|e| e.to_string(), |q| q.to_string())
    }

    #[test]
    fn every_metric_type_has_its_query() {
        let pods = r#"namespace="shop",pod=~"^web-[a-z0-9]+-[a-z0-9]{5}$""#;
        let table = [
            (
                Metric::Resource { name: "cpu" },
                format!(
                    r#"sum(rate(container_cpu_usage_seconds_total{{{pods},container!=""}}[3m]))"#
                ),
            ),
            (
                Metric::Resource { name: "memory" },
                format!(r#"sum(container_memory_working_set_bytes{{{pods},container!=""}})"#),
            ),
            (
                Metric::ContainerResource {
                    name: "cpu",
                    container: "app",
                },
                format!(
                    r#"sum(rate(container_cpu_usage_seconds_total{{{pods},container="app"}}[3m]))"#
                ),
            ),
            (
                Metric::ContainerResource {
                    name: "memory",
                    container: "app",
                },
                format!(r#"sum(container_memory_working_set_bytes{{{pods},container="app"}})"#),
            ),
            (
                Metric::Pods {
                    metric: "http_requests",
                    selector: Some("path=checkout"),
                },
                format!(r#"sum(http_requests{{{pods},path="checkout"}})"#),
            ),
        ];
        for (metric, expected) in table {
            assert_eq!(text(metric), expected);
        }
    }

    #[test]
    fn metrics_of_objects_and_of_the_outside_are_bound_to_the_namespace() {
        let table = [
            (
                Metric::Object {
                    metric: "requests_per_second",
                    group: "networking.k8s.io",
                    kind: "Ingress",
                    name: "main.route",
                    selector: None,
                },
                r#"sum(requests_per_second{namespace="shop",ingress="main.route"})"#.to_owned(),
            ),
            (
                Metric::Object {
                    metric: "jobs",
                    group: "",
                    kind: "Namespace",
                    name: "shop",
                    selector: None,
                },
                r#"sum(jobs{namespace="shop"})"#.to_owned(),
            ),
            (
                Metric::External {
                    metric: "queue_length",
                    selector: Some("queue==work, namespace=shop"),
                },
                r#"sum(queue_length{namespace="shop",queue="work"})"#.to_owned(),
            ),
        ];
        for (metric, expected) in table {
            assert_eq!(text(metric), expected);
        }
    }

    #[test]
    fn pods_are_found_by_the_name_pattern_of_the_kind() {
        for (kind, expected) in [
            ("Deployment", r"^a\.b-[a-z0-9]+-[a-z0-9]{5}$"),
            ("ReplicaSet", r"^a\.b-[a-z0-9]{5}$"),
            ("DaemonSet", r"^a\.b-[a-z0-9]{5}$"),
            ("StatefulSet", r"^a\.b-[0-9]+$"),
            ("Rollout", r"^a\.b-.*$"),
        ] {
            assert_eq!(pod_pattern(kind, "a.b").as_str(), expected, "{kind}");
        }
    }

    #[test]
    fn a_label_selector_becomes_matchers() {
        for (selector, expected) in [
            ("a=b", r#"a="b""#),
            ("a==b", r#"a="b""#),
            ("a!=b", r#"a!="b""#),
            ("a = b , c = d", r#"a="b",c="d""#),
            ("a in (x, y.z)", r#"a=~"x|y\\.z""#),
            ("a notin (x),b", r#"a!~"x",b!="""#),
            ("!a,b=", r#"a="",b="""#),
            ("", ""),
        ] {
            let got: Vec<String> = parse_selector(selector)
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(got.join(","), expected, "{selector}");
        }
        for bad in [
            "a=b,",
            "a like (b)",
            "a in (b",
            "a=\"b\"",
            "app.kubernetes.io/name=x",
            "a in (b,c",
        ] {
            assert!(parse_selector(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_metric_that_promql_cannot_name_is_refused_with_the_way_out() {
        let external = |metric, selector| Metric::External { metric, selector };
        for metric in [
            external("sqs-queue-length", None),
            external(r#"up) or sum(secret{namespace="other"}) #"#, None),
            external("up", Some("namespace=other")),
            external("up", Some("exported_namespace!=shop")),
            Metric::Resource {
                name: "nvidia.com/gpu",
            },
            Metric::Object {
                metric: "up",
                group: "",
                kind: "Namespace",
                name: "other",
                selector: None,
            },
        ] {
            let refused = built_in(WEB, metric, &Settings::default()).unwrap_err();
            assert_eq!(refused.reason(), "NoHistoryQuery");
        }
        assert!(text(external("a-b", None)).contains("metric-query.autoscaling.crane.io"));
    }

    #[test]
    fn the_administrators_matchers_bind_resource_metrics_only() {
        let settings = Settings {
            resource_matchers: vec![Matcher::equal("job", "kubelet").unwrap()],
            rate_window: Window::from_secs(90).unwrap(),
        };
        let query = |metric| built_in(WEB, metric, &settings).unwrap().to_string();
        assert!(query(Metric::Resource { name: "cpu" }).ends_with(r#",job="kubelet"}[90s]))"#));
        let pods = query(Metric::Pods {
            metric: "m",
            selector: None,
        });
        assert!(!pods.contains("kubelet"), "{pods}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn every_built_in_query_is_bound_to_its_namespace(
            namespace in ".{1,40}", name in ".{0,40}", container in ".{0,20}",
        ) {
            let owner = Owner { namespace: &namespace, kind: "Deployment", name: &name };
            let metric = Metric::ContainerResource { name: "cpu", container: &container };
            let query = built_in(owner, metric, &Settings::default()).unwrap();
            prop_assert!(super::super::scope::is_bound(query.as_str(), &namespace));
        }
    }
}
