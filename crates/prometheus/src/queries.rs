//! Built-in history queries: one per metric type, a total over the pods of a workload, bound to its namespace.
//!
//! Past pods have no workload that could be looked up, so they are selected by the name pattern of the workload's kind.
//! A metric that `PromQL` can only express by guessing is rejected; the error names the annotation for a query.

use foretide_domain::{
    ParseSelectorError, Requirement,
    pod_names::{self, PodNames, Segment},
};

use super::{
    promql::{
        BuildError, Match, Matcher, MetricName, Query, QueryExpression, RateWindow, RegexValue,
        SeriesSelector, excerpt,
    },
    scope,
};

const CPU_USAGE: &str = "container_cpu_usage_seconds_total";
const MEMORY_USAGE: &str = "container_memory_working_set_bytes";
/// One series per node, from the same scrape as the usage of its containers. Where it exists and the series of a
/// workload's containers do not, no pod of the workload ran.
const NODES: &str = "machine_cpu_cores";

/// The workload whose pods are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkloadRef<'a> {
    /// The namespace, to which every query is bound.
    pub namespace: &'a str,
    /// The kind, such as `Deployment`.
    pub kind: &'a str,
    /// The name.
    pub name: &'a str,
    /// The names of its pods, as far as they were seen; used for kinds whose pods have names of no known shape.
    pub pods: Option<&'a PodNames>,
}

/// A metric whose history is wanted. Selectors are Kubernetes label selectors in their text form.
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
        /// The name of the series.
        metric: &'a str,
        /// The selector of the metric.
        selector: Option<&'a str>,
    },
    /// A metric of one object in the namespace.
    Object {
        /// The name of the series.
        metric: &'a str,
        /// The API group of the described object's kind; empty for the core group.
        group: &'a str,
        /// The described object's kind; in lower case, the label that holds its name.
        kind: &'a str,
        /// The described object's name.
        name: &'a str,
        /// The selector of the metric.
        selector: Option<&'a str>,
    },
    /// A metric that belongs to no object of the cluster.
    External {
        /// The name of the series.
        metric: &'a str,
        /// The selector of the metric.
        selector: Option<&'a str>,
    },
}

/// The parts of the built-in queries that an administrator can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryDefaults {
    /// Matchers of every resource metric, such as `job="kubelet"`, which exclude workloads that expose series of the
    /// same name. None by default, because job names differ between installations.
    pub resource_matchers: Vec<Matcher>,
    /// Range over which `rate` looks back.
    pub rate_window: RateWindow,
}

impl Default for QueryDefaults {
    fn default() -> Self {
        Self {
            resource_matchers: Vec::new(),
            rate_window: RateWindow::THREE_MINUTES,
        }
    }
}

/// Reasons why there is no built-in query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuiltInError {
    /// A resource other than CPU and memory.
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
    /// Not a label selector.
    #[error(
        "cannot read the metric selector at {0:?}; expected a Kubernetes label selector \
         such as `queue=worker,tier in (a,b),!canary`"
    )]
    Selector(String),
    /// A selector that names another namespace, or compares the namespace with an operator other than equality.
    #[error(
        "the metric selector compares label {label:?}, but the history is bound to namespace \
         {namespace:?}; remove that requirement"
    )]
    Namespace {
        /// The label.
        label: String,
        /// The namespace of the workload.
        namespace: String,
    },
}

/// The built-in query: always a `sum`, so its result is one series.
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
/// [`BuiltInError`].
pub fn built_in(
    workload: WorkloadRef<'_>,
    metric: Metric<'_>,
    defaults: &QueryDefaults,
) -> Result<Query, BuiltInError> {
    Ok(Query::build(&expression_of(workload, metric, defaults)?)?)
}

/// The query of [`built_in`] for the part of one member cluster. For `Resource` and `ContainerResource` it is `sum(...)
/// or -count(machine_cpu_cores{})`: a value below zero means that Prometheus scraped the cluster's nodes while none of
/// the pods ran. For the other types, a workload without pods looks like one that is not scraped.
///
/// # Errors
/// As [`built_in`].
pub fn built_in_part(
    workload: WorkloadRef<'_>,
    metric: Metric<'_>,
    defaults: &QueryDefaults,
) -> Result<Query, BuiltInError> {
    let total = expression_of(workload, metric, defaults)?;
    let expression = match metric {
        Metric::Resource { .. } | Metric::ContainerResource { .. } => {
            let nodes = SeriesSelector {
                metric: MetricName::new(NODES)?,
                matchers: Vec::new(),
            };
            QueryExpression::OrBelowZero(Box::new(total), nodes)
        }
        Metric::Pods { .. } | Metric::Object { .. } | Metric::External { .. } => total,
    };
    Ok(Query::build(&expression)?)
}

fn expression_of(
    workload: WorkloadRef<'_>,
    metric: Metric<'_>,
    defaults: &QueryDefaults,
) -> Result<QueryExpression, BuiltInError> {
    let namespace = Matcher::equal("namespace", workload.namespace)?;
    let pods = || Matcher::new("pod", Match::Like(pod_pattern(workload)));
    Ok(match metric {
        Metric::Resource { name } => {
            // cAdvisor also reports the whole pod, with an empty container: it would count twice.
            let any_container = Matcher::new("container", Match::NotEqual(String::new()))?;
            usage_of(name, vec![namespace, pods()?, any_container], defaults)?
        }
        Metric::ContainerResource { name, container } => {
            let this_container = Matcher::equal("container", container)?;
            usage_of(name, vec![namespace, pods()?, this_container], defaults)?
        }
        Metric::Pods { metric, selector } => sum_of(
            metric,
            vec![namespace, pods()?],
            selector,
            workload.namespace,
        )?,
        Metric::Object {
            metric,
            kind,
            name,
            selector,
            ..
        } => {
            let mut matchers = vec![namespace];
            matchers.extend(object_matcher(kind, name, workload.namespace)?);
            sum_of(metric, matchers, selector, workload.namespace)?
        }
        Metric::External { metric, selector } => {
            sum_of(metric, vec![namespace], selector, workload.namespace)?
        }
    })
}

/// The pattern of the names of a workload's pods, which matches as few other names as possible: that of its kind, else
/// that of the pods that were seen; before one was seen `n-...`, which also matches pods of other workloads, such as
/// `n-admin-0`.
pub fn pod_pattern(workload: WorkloadRef<'_>) -> RegexValue {
    // With `^` and `$`, which Prometheus adds by itself, so that the patterns are those of crane's `GetPodNameReg`.
    let begin = RegexValue::new().pattern("^");
    if let Some(suffix) = pod_names::suffix(workload.kind) {
        return begin.literal(workload.name).pattern(suffix).pattern("$");
    }
    let shapes = workload.pods.into_iter().flat_map(PodNames::shapes);
    let seen = shapes.fold(None, |seen: Option<RegexValue>, shape| {
        let before = seen.map_or_else(|| begin.clone().pattern("(?:"), |seen| seen.pattern("|"));
        Some(
            shape
                .iter()
                .enumerate()
                .fold(before, |value, (index, segment)| {
                    with_segment(if index > 0 { value.pattern("-") } else { value }, segment)
                }),
        )
    });
    match seen {
        Some(seen) => seen.pattern(")$"),
        None => begin.literal(workload.name).pattern("-.*$"),
    }
}

fn with_segment(value: RegexValue, segment: &Segment) -> RegexValue {
    match segment {
        Segment::Literal(text) => value.literal(text),
        Segment::Number => value.pattern("[0-9]+"),
        Segment::Suffix => value.pattern("[a-z0-9]{5}"),
        Segment::Hash => value.pattern("[a-z0-9]{6,10}"),
    }
}

fn usage_of(
    name: &str,
    mut matchers: Vec<Matcher>,
    defaults: &QueryDefaults,
) -> Result<QueryExpression, BuiltInError> {
    matchers.extend(defaults.resource_matchers.iter().cloned());
    let selector =
        |metric: &str| MetricName::new(metric).map(|metric| SeriesSelector { metric, matchers });
    match name {
        "cpu" => Ok(QueryExpression::SumOfRate(
            selector(CPU_USAGE)?,
            defaults.rate_window,
        )),
        "memory" => Ok(QueryExpression::Sum(selector(MEMORY_USAGE)?)),
        other => Err(BuiltInError::Resource(excerpt(other))),
    }
}

fn sum_of(
    metric: &str,
    mut matchers: Vec<Matcher>,
    selector: Option<&str>,
    namespace: &str,
) -> Result<QueryExpression, BuiltInError> {
    matchers.extend(selector_matchers(selector, namespace)?);
    Ok(QueryExpression::Sum(SeriesSelector {
        metric: MetricName::new(metric)?,
        matchers,
    }))
}

/// The matchers of a metric's selector. One on the namespace must name that of the workload, and is left out, because
/// every query has it.
pub fn selector_matchers(
    selector: Option<&str>,
    namespace: &str,
) -> Result<Vec<Matcher>, BuiltInError> {
    let mut matchers = Vec::new();
    for matcher in selector.map_or_else(|| Ok(Vec::new()), parse_selector)? {
        let label = matcher.label().as_str();
        if !scope::is_tenant_label(label) {
            matchers.push(matcher);
        } else if matcher != Matcher::equal(label, namespace)? {
            let label = label.to_owned();
            return Err(BuiltInError::Namespace {
                label,
                namespace: namespace.to_owned(),
            });
        }
    }
    Ok(matchers)
}

/// The matcher that selects one object; none for the workload's own namespace, to which the query is bound already.
pub fn object_matcher(
    kind: &str,
    name: &str,
    namespace: &str,
) -> Result<Option<Matcher>, BuiltInError> {
    let label = kind.to_ascii_lowercase();
    if label != "namespace" {
        return Ok(Some(Matcher::equal(&label, name)?));
    }
    if name == namespace {
        return Ok(None);
    }
    Err(BuiltInError::Namespace {
        label,
        namespace: namespace.to_owned(),
    })
}

/// Translates a Kubernetes label selector. An absent label counts as the empty value in both languages, so all
/// operators on texts have exact `PromQL` forms: `k in (a,b)` is `k=~"a|b"`, `k` is `k!=""`, `!k` is `k=""`.
fn parse_selector(text: &str) -> Result<Vec<Matcher>, BuiltInError> {
    let selector: foretide_domain::Selector =
        text.parse().map_err(|error: ParseSelectorError| {
            let invalid = match error.requirement.as_str() {
                "" => text,
                requirement => requirement,
            };
            BuiltInError::Selector(excerpt(invalid))
        })?;
    selector.requirements().iter().map(matcher).collect()
}

fn matcher(requirement: &Requirement) -> Result<Matcher, BuiltInError> {
    let condition = match requirement {
        Requirement::Equal(_, value) => Match::Equal(value.clone()),
        Requirement::NotEqual(_, value) => Match::NotEqual(value.clone()),
        Requirement::In(_, values) => Match::Like(any_of(values)),
        Requirement::NotIn(_, values) => Match::Unlike(any_of(values)),
        Requirement::Exists(_) => Match::NotEqual(String::new()),
        Requirement::DoesNotExist(_) => Match::Equal(String::new()),
        // PromQL compares values of series, not of labels.
        Requirement::GreaterThan(key, _) | Requirement::LessThan(key, _) => {
            return Err(BuiltInError::Selector(excerpt(key)));
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

    const WEB: WorkloadRef<'_> = WorkloadRef {
        namespace: "shop",
        kind: "Deployment",
        name: "web",
        pods: None,
    };

    fn text(metric: Metric<'_>) -> String {
        built_in(WEB, metric, &QueryDefaults::default())
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
    fn object_and_external_metrics_are_bound_to_the_namespace() {
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
    fn pods_are_selected_by_the_name_pattern_of_the_kind() {
        for (kind, expected) in [
            ("Deployment", r"^a\.b-[a-z0-9]+-[a-z0-9]{5}$"),
            ("ReplicaSet", r"^a\.b-[a-z0-9]{5}$"),
            ("DaemonSet", r"^a\.b-[a-z0-9]{5}$"),
            ("StatefulSet", r"^a\.b-[0-9]+$"),
            ("Rollout", r"^a\.b-[a-z0-9]+-[a-z0-9]{5}$"),
            ("LeaderWorkerSet", r"^a\.b-[0-9]+$"),
            ("CloneSet", r"^a\.b-[a-z0-9]{5}$"),
            ("FlinkDeployment", r"^a\.b-.*$"),
        ] {
            let workload = WorkloadRef {
                kind,
                name: "a.b",
                ..WEB
            };
            assert_eq!(pod_pattern(workload).as_str(), expected, "{kind}");
        }
    }

    #[test]
    fn pods_of_another_kind_are_selected_by_the_shapes_of_the_names_that_were_seen() {
        for (pods, expected) in [
            (&["a.b-1", "a.b-23"][..], r"^(?:a\.b-[0-9]+)$"),
            (
                &["a.b-x2x4z", "a.b-6f7d8b9c4-55b55"],
                r"^(?:a\.b-[a-z0-9]{5}|a\.b-[a-z0-9]{6,10}-[a-z0-9]{5})$",
            ),
            (
                &["a.b-taskmanager-1-1"],
                r"^(?:a\.b-taskmanager-[0-9]+-[0-9]+)$",
            ),
            (&[], r"^a\.b-.*$"),
        ] {
            let mut names = PodNames::default();
            for pod in pods {
                names.learn(pod);
            }
            let workload = WorkloadRef {
                kind: "Odd",
                name: "a.b",
                pods: Some(&names),
                ..WEB
            };
            let pattern = pod_pattern(workload);
            assert_eq!(pattern.as_str(), expected);
            let matches = |pod: &str| regex::Regex::new(pattern.as_str()).unwrap().is_match(pod);
            assert!(pods.iter().all(|pod| matches(pod)));
            assert_eq!(matches("a.b-db-0"), pods.is_empty(), "{expected}");
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
    fn a_metric_that_promql_cannot_express_is_rejected_with_advice() {
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
            built_in(WEB, metric, &QueryDefaults::default()).unwrap_err();
        }
        assert!(text(external("a-b", None)).contains("metric-query.autoscaling.crane.io"));
    }

    #[test]
    fn the_configured_matchers_apply_to_resource_metrics_only() {
        let defaults = QueryDefaults {
            resource_matchers: vec![Matcher::equal("job", "kubelet").unwrap()],
            rate_window: RateWindow::from_secs(90).unwrap(),
        };
        let query = |metric| built_in(WEB, metric, &defaults).unwrap().to_string();
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
            let workload = WorkloadRef { namespace: &namespace, kind: "Deployment", name: &name, pods: None };
            let metric = Metric::ContainerResource { name: "cpu", container: &container };
            let query = built_in(workload, metric, &QueryDefaults::default()).unwrap();
            prop_assert!(scope::is_bound(query.as_str(), &namespace));
        }
    }
}
