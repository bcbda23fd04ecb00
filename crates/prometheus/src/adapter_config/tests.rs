//! Stock configurations of prometheus-adapter, and the queries that they give.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{Metric, PromqlScope, QueryDefaults, WorkloadRef, queries::built_in, scope::is_bound};

/// Custom rules that the adapter's Helm chart installs, with resource and external rules beside them.
const CHART: &str = r#"
rules:
- seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
  seriesFilters: []
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: ^container_(.*)_seconds_total$, as: ""}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>,container!="POD"}[5m])) by (<<.GroupBy>>)
- seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
  seriesFilters: [{isNot: ^container_.*_seconds_total$}]
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: ^container_(.*)_total$, as: ""}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>,container!="POD"}[5m])) by (<<.GroupBy>>)
- seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
  seriesFilters: [{isNot: ^container_.*_total$}]
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: ^container_(.*)$, as: ""}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>,container!="POD"}) by (<<.GroupBy>>)
- seriesQuery: '{namespace!="",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: .*_total$}]
  resources: {template: <<.Resource>>}
  name: {matches: "", as: ""}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: '{namespace!="",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: .*_seconds_total}]
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$, as: ""}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)
- seriesQuery: '{namespace!="",__name__!~"^container_.*"}'
  seriesFilters: []
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_seconds_total$, as: ""}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)
"#;

/// The adapter's own manifest: resource metrics only.
const MANIFEST: &str = r#"
resourceRules:
  cpu:
    containerLabel: container
    containerQuery: |
      sum by (<<.GroupBy>>) (
        irate (
            container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!="",pod!=""}[4m]
        )
      )
    nodeQuery: sum by (<<.GroupBy>>) (irate(node_cpu_usage_seconds_total{<<.LabelMatchers>>}[4m]))
    resources: {overrides: {namespace: {resource: namespace}, node: {resource: node}, pod: {resource: pod}}}
  memory:
    containerLabel: container
    containerQuery: |
      sum by (<<.GroupBy>>) (
        container_memory_working_set_bytes{<<.LabelMatchers>>,container!="",pod!=""}
      )
    resources: {overrides: {namespace: {resource: namespace}, node: {resource: node}, pod: {resource: pod}}}
  window: 5m
"#;

/// Rules as people write them for one metric.
const OWN: &str = r#"
rules:
- seriesQuery: 'http_requests_total{kubernetes_namespace!="",kubernetes_pod_name!=""}'
  resources:
    overrides:
      kubernetes_namespace: {resource: namespace}
      kubernetes_pod_name: {resource: pod}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
- seriesQuery: 'ingress_requests{namespace!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      ingress: {group: networking.k8s.io, resource: ingress}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"^app_.*"}'
  resources: {template: "<<.Resource>>"}
  name: {matches: "^app_(.*)_(.*)$", as: "app_load"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: greedy
  resources: {template: "<<.Resource>>"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) + scalar(sum(secret{namespace="other"}))'
- seriesQuery: fancy
  resources: {template: "<<.Resource>>"}
  metricsQuery: '<<range .GroupBySlice>>x<<end>>'
externalRules:
- seriesQuery: '{__name__="queue_consumer_lag",name!=""}'
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (name)
- seriesQuery: '{__name__="queue_depth"}'
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
  resources: {namespaced: false}
"#;

const WEB: WorkloadRef<'_> = WorkloadRef {
    namespace: "shop",
    kind: "Deployment",
    name: "web",
    pods: None,
};

fn request(metric: Metric<'_>, scope: PromqlScope) -> QueryRequest<'_> {
    QueryRequest {
        workload: WEB,
        metric,
        history: Duration::from_hours(14 * 24),
        scope,
    }
}

fn query_text(config: &str, metric: Metric<'_>, scope: PromqlScope) -> Option<String> {
    let rules = AdapterConfig::read(config).unwrap();
    let query = rules.query(&request(metric, scope))?;
    Some(query.map_or_else(
        |error| foretide_base::error::chain(&error),
        |query| query.to_string(),
    ))
}

fn text(config: &str, metric: Metric<'_>) -> Option<String> {
    query_text(config, metric, PromqlScope::Namespace)
}

const fn pods<'a>(metric: &'a str, selector: Option<&'a str>) -> Metric<'a> {
    Metric::Pods { metric, selector }
}

const PODS: &str = r#"namespace="shop",pod=~"^web-[a-z0-9]+-[a-z0-9]{5}$""#;

#[test]
fn the_stock_resource_rules_give_the_total_of_all_containers_or_of_one() {
    let table = [
        (
            Metric::Resource { name: "cpu" },
            format!(
                r#"sum(irate(container_cpu_usage_seconds_total{{container!="",{PODS_AND_ANY}}}[4m]))"#
            ),
        ),
        (
            Metric::Resource { name: "memory" },
            format!(r#"sum(container_memory_working_set_bytes{{container!="",{PODS_AND_ANY}}})"#),
        ),
        (
            Metric::ContainerResource {
                name: "cpu",
                container: "app",
            },
            format!(
                r#"sum(irate(container_cpu_usage_seconds_total{{container!="",container="app",{PODS_AND_ANY}}}[4m]))"#
            ),
        ),
    ];
    for (metric, expected) in table {
        assert_eq!(text(MANIFEST, metric), Some(expected), "{metric:?}");
    }
    assert_eq!(text(MANIFEST, pods("http_requests", None)), None);
    assert_eq!(text(MANIFEST, Metric::Resource { name: "storage" }), None);
    assert_eq!(text(CHART, Metric::Resource { name: "cpu" }), None);
}

const PODS_AND_ANY: &str = r#"namespace="shop",pod!="",pod=~"^web-[a-z0-9]+-[a-z0-9]{5}$""#;

#[test]
fn the_charts_rules_query_every_series_that_could_make_the_metric_the_last_rule_first() {
    let selected = r#"namespace="shop",path="checkout",pod=~"^web-[a-z0-9]+-[a-z0-9]{5}$""#;
    assert_eq!(
        text(CHART, pods("http_requests", Some("path=checkout"))).unwrap(),
        [
            format!("sum(rate(http_requests_seconds_total{{{selected}}}[5m]))"),
            format!("sum(rate(http_requests_total{{{selected}}}[5m]))"),
            format!("sum(http_requests{{{selected}}})"),
            // The adapter strips `container_` from names, so these series could make the metric as well.
            format!(r#"sum(container_http_requests{{container!="POD",{selected}}})"#),
            format!(r#"sum(rate(container_http_requests_total{{container!="POD",{selected}}}[5m]))"#),
            format!(r#"sum(rate(container_http_requests_seconds_total{{container!="POD",{selected}}}[5m]))"#),
        ]
        .join(" or ")
    );
}

#[test]
fn pods_object_and_external_metrics_use_the_labels_of_their_rule() {
    let table = [
        (
            pods("http_requests_per_second", Some("verb in (GET,HEAD)")),
            r#"sum(rate(http_requests_total{kubernetes_namespace="shop",kubernetes_pod_name=~"^web-[a-z0-9]+-[a-z0-9]{5}$",verb=~"GET|HEAD"}[2m]))"#,
        ),
        (
            Metric::Object {
                metric: "ingress_requests",
                group: "networking.k8s.io",
                kind: "Ingress",
                name: "main.route",
                selector: None,
            },
            r#"sum(max by (ingress) (ingress_requests{ingress="main.route",namespace="shop"}))"#,
        ),
        (
            Metric::Object {
                metric: "ingress_requests",
                group: "",
                kind: "Namespace",
                name: "shop",
                selector: None,
            },
            r#"sum(max by (namespace) (ingress_requests{namespace="shop"}))"#,
        ),
        (
            Metric::External {
                metric: "queue_consumer_lag",
                selector: Some("name=orders"),
            },
            r#"sum(queue_consumer_lag{name="orders",namespace="shop"})"#,
        ),
    ];
    for (metric, expected) in table {
        assert_eq!(text(OWN, metric).as_deref(), Some(expected), "{metric:?}");
    }
}

#[test]
fn a_metric_that_no_rule_serves_is_left_to_the_built_in_query() {
    let service = Metric::Object {
        metric: "ingress_requests",
        group: "",
        kind: "Service",
        name: "web",
        selector: None,
    };
    for metric in [
        pods("http_requests_total", None),
        // This rule knows no label for pods.
        pods("ingress_requests", None),
        service,
        Metric::External {
            metric: "http_requests_per_second",
            selector: None,
        },
    ] {
        assert_eq!(text(OWN, metric), None, "{metric:?}");
    }
}

#[test]
fn a_rule_that_serves_a_metric_and_gives_no_query_is_an_error_with_its_path() {
    let depth = Metric::External {
        metric: "queue_depth",
        selector: None,
    };
    for (metric, expected) in [
        (
            pods("app_load", None),
            "cannot determine which series prometheus-adapter rule rules[2] derives \"app_load\" from",
        ),
        (
            pods("greedy", None),
            "the query of prometheus-adapter rule rules[3].metricsQuery is not accepted: \
             the query may read namespace \"shop\" only",
        ),
        (
            pods("fancy", None),
            "prometheus-adapter rule rules[4].metricsQuery: has the placeholder \"<<range .GroupBySlice>>\"",
        ),
        (
            depth,
            "prometheus-adapter rule externalRules[1] reads across namespaces",
        ),
        (
            pods("http_requests_per_second", Some("namespace=other")),
            "the selector of the metric cannot be used in a query: the metric selector compares label \"namespace\"",
        ),
        (
            pods("http_requests_per_second", Some("a=\"b\"")),
            "the selector of the metric cannot be used in a query: cannot read the metric selector",
        ),
    ] {
        let refused = text(OWN, metric).unwrap();
        assert!(refused.starts_with(expected), "{refused}");
    }
    assert_eq!(
        query_text(OWN, depth, PromqlScope::Any).as_deref(),
        Some("sum(queue_depth)")
    );
}

#[test]
fn an_invalid_rule_is_reported_and_leaves_the_others_in_use() {
    let rules = AdapterConfig::read(
        r"
rules:
- {seriesQuery: 'sum(', metricsQuery: x}
- 7
- {seriesQuery: a, name: {matches: '('}, metricsQuery: x}
- {seriesQuery: b, resources: {template: <<.Resource>>}}
- {seriesQuery: c, resources: {template: <<.Resource>>}, metricsQuery: 'sum(c{<<.LabelMatchers>>})', colour: red}
resourceRules:
  cpu: {containerQuery: x, containerLabel: a-b}
  memory: {nodeQuery: x}
",
    )
    .unwrap();
    let places: Vec<&str> = rules.errors().iter().map(|error| &*error.field).collect();
    assert_eq!(
        places,
        [
            "rules[0].seriesQuery",
            "rules[1]",
            "rules[2].name.matches",
            "rules[3].metricsQuery",
            "resourceRules.cpu.containerLabel"
        ]
    );
    assert!(
        rules
            .query(&request(pods("c", None), PromqlScope::Namespace))
            .unwrap()
            .is_ok()
    );
    let missing = rules.query(&request(pods("b", None), PromqlScope::Namespace));
    assert_eq!(
        missing.unwrap().unwrap_err().to_string(),
        "prometheus-adapter rule rules[3].metricsQuery: is missing"
    );
}

#[test]
fn a_configuration_of_another_type_is_an_error() {
    for (config, expected) in [
        (
            "- a",
            "the document: expected a mapping of fields, found a list",
        ),
        ("rules: 3", "rules: expected a list, found a number"),
        (
            "resourceRules: []",
            "resourceRules: expected a mapping of fields, found a list",
        ),
        ("rules: [", "the document: "),
    ] {
        let error = AdapterConfig::read(config).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(AdapterConfig::read("").unwrap().is_empty());
    assert!(AdapterConfig::read("rules: null").unwrap().is_empty());
}

#[test]
fn a_rule_for_a_plain_gauge_gives_the_built_in_query() {
    let rule = "rules: [{seriesQuery: gauge, resources: {template: <<.Resource>>}, \
                metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}]";
    let metric = pods("gauge", None);
    let built_in = built_in(WEB, metric, &QueryDefaults::default()).unwrap();
    assert_eq!(text(rule, metric), Some(built_in.to_string()));
    assert_eq!(built_in.to_string(), format!("sum(gauge{{{PODS}}})"));
}

/// Fragments of configurations and of attacks; the properties below concatenate them at random.
const FRAGMENTS: &[&str] = &[
    "<<.Series>>",
    "<<.LabelMatchers>>",
    "<<.GroupBy>>",
    "<<",
    ">>",
    "sum(",
    ")",
    " by (",
    "{",
    "}",
    "x",
    "[5m]",
    " or ",
    "secret",
    "{namespace=\"other\"}",
    "#",
    "\n",
    "'",
    "\"",
    "`",
    "\\",
    ",",
    "=~",
    "(.*)",
    "$1",
    "${1}",
    "^",
    "rules:",
    "- ",
    "seriesQuery: ",
    "name: ",
    "metricsQuery: ",
    "  ",
    ": ",
    "[",
    "]",
    "externalRules:",
    "<<index .LabelValuesByName \"pod\">>",
    "offset 5m",
    "0",
    "e9",
    "&a",
    "*a",
];

fn mixed(most: usize) -> impl Strategy<Value = String> {
    let fragment =
        (0..FRAGMENTS.len()).prop_map(|index| FRAGMENTS.get(index).copied().unwrap_or_default());
    prop::collection::vec(fragment, 0..most).prop_map(|fragments| fragments.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_selector_is_bound_to_the_namespace_for_any_rule_and_metric(
        query in mixed(12), metric in "[a-z_]{1,8}", name in ".{0,20}", value in mixed(6), namespace in ".{1,20}",
    ) {
        let template = format!("{query}sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)");
        let config = serde_json::json!({
            "rules": [{"seriesQuery": "{n!=\"\"}", "resources": {"template": "<<.Resource>>"}, "metricsQuery": template}],
            "externalRules": [{"seriesQuery": "{n!=\"\"}", "metricsQuery": query}],
        });
        let rules = AdapterConfig::read(&config.to_string()).unwrap();
        let workload = WorkloadRef { namespace: &namespace, kind: "StatefulSet", name: &name, pods: None };
        let object = Metric::Object { metric: &metric, group: "", kind: "Service", name: &value, selector: None };
        let external = Metric::External { metric: &metric, selector: Some(&value) };
        for metric in [pods(&metric, Some(&value)), object, external] {
            let request = QueryRequest { workload, ..request(metric, PromqlScope::Namespace) };
            if let Some(Ok(query)) = rules.query(&request) {
                prop_assert!(is_bound(query.as_str(), &namespace), "{}", query);
            }
        }
    }

    #[test]
    fn any_text_is_a_configuration_or_an_error(text in mixed(40)) {
        if let Ok(rules) = AdapterConfig::read(&text) {
            drop(rules.query(&request(pods("x", None), PromqlScope::Namespace)));
        }
    }
}
