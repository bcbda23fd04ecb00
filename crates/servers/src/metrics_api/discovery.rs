//! The discovery documents, with the served groups, versions and metrics. Clients find the APIs by them and need no
//! group to read them.

use std::collections::HashSet;

use serde_json::{Value, json};

use foretide_api::published::{CRON_METRIC, POD_CPU_METRIC, PREDICTION_METRIC};

/// One of the metric APIs that are served: a value of `--apis`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum MetricApi {
    /// external.metrics.k8s.io
    External,
    /// custom.metrics.k8s.io
    Custom,
}

// === impl MetricApi ===

impl MetricApi {
    /// API group.
    pub const fn group(self) -> &'static str {
        match self {
            Self::External => "external.metrics.k8s.io",
            Self::Custom => "custom.metrics.k8s.io",
        }
    }

    /// Versions of the group, the preferred one first.
    pub const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::External => &["v1beta1"],
            Self::Custom => &["v1beta2", "v1beta1"],
        }
    }

    /// The resources that stand for our metrics.
    fn resources(self) -> Vec<Value> {
        match self {
            Self::External => [PREDICTION_METRIC, CRON_METRIC]
                .map(|metric| resource(metric, "ExternalMetricValueList"))
                .to_vec(),
            Self::Custom => vec![resource(
                &format!("pods/{POD_CPU_METRIC}"),
                "MetricValueList",
            )],
        }
    }
}

fn resource(name: &str, kind: &str) -> Value {
    json!({
        "name": name,
        "singularName": "",
        "namespaced": true,
        "kind": kind,
        "verbs": ["get"],
    })
}

/// `/apis`.
pub fn groups(apis: &[MetricApi]) -> Value {
    let groups: Vec<Value> = apis.iter().map(|api| group(*api)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub fn group(api: MetricApi) -> Value {
    let versions: Vec<Value> = api
        .versions()
        .iter()
        .map(|version| {
            json!({ "groupVersion": format!("{}/{version}", api.group()), "version": version })
        })
        .collect();
    json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": api.group(),
        "versions": versions,
        "preferredVersion": versions.first(),
    })
}

/// `/apis/GROUP/VERSION`, with the resources of another adapter's document after ours.
pub fn resources(api: MetricApi, version: &str, upstream: Option<Value>) -> Value {
    let mut resources = api.resources();
    let name_of = |resource: &Value| resource["name"].as_str().map(str::to_owned);
    let mut names: HashSet<String> = resources.iter().filter_map(name_of).collect();
    let theirs = upstream.and_then(|mut document| {
        let listed = document.get_mut("resources").map(Value::take)?;
        serde_json::from_value::<Vec<Value>>(listed).ok()
    });
    for resource in theirs.unwrap_or_default() {
        // A metric of the same name is answered here, and never passed on.
        if name_of(&resource).is_some_and(|name| names.insert(name)) {
            resources.push(resource);
        }
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{}/{version}", api.group()),
        "resources": resources,
    })
}
