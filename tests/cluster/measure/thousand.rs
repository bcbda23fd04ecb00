//! The thousand autoscalers of `isolation`, in groups that use different dependencies; their targets, and the history of
//! their metrics.

use std::{collections::BTreeMap, path::Path};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use rig::{
    Cluster, FakeMetrics, FakeScales, History, MetricsApi, PodUsage, Series, Span as Instants,
    eventually,
};
use serde_json::{Value, json};

use super::{decisions::Object, now};
use crate::world::TIMEOUT;

pub(super) const NAMESPACES: usize = 50;
pub(super) const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];

/// Objects that use the same dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// Deployments with a metric of `custom.metrics.k8s.io`.
    Custom,
    /// Targets of another API group, with a healthy metric.
    Queue,
    /// Deployments with a healthy metric, and a forecast from the hub's Prometheus.
    Forecast,
    /// Deployments with a healthy metric.
    Plain,
    /// Fleets in all three members, with a forecast from the other Prometheus.
    Spread,
    /// Fleets in two members, with a forecast from the other Prometheus.
    Near,
}

// === impl Group ===

impl Group {
    pub(super) const ALL: [Self; 6] = [
        Self::Custom,
        Self::Queue,
        Self::Forecast,
        Self::Plain,
        Self::Spread,
        Self::Near,
    ];

    /// Objects in each namespace; twenty in all.
    const fn count(self) -> usize {
        match self {
            Self::Custom => 6,
            Self::Queue | Self::Forecast => 5,
            Self::Plain => 2,
            Self::Spread | Self::Near => 1,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Custom => "custom",
            Self::Queue => "queue",
            Self::Forecast => "forecast",
            Self::Plain => "plain",
            Self::Spread => "spread",
            Self::Near => "near",
        }
    }

    pub(super) const fn is_fleet(self) -> bool {
        matches!(self, Self::Spread | Self::Near)
    }

    pub(super) fn members(self) -> &'static [&'static str] {
        match self {
            Self::Spread => &MEMBERS,
            Self::Near => &MEMBERS[..2],
            _ => &[],
        }
    }

    pub(super) fn objects(self) -> Vec<Object> {
        let in_one = |namespace: usize| {
            let named = move |n| (format!("team-{namespace}"), format!("{}-{n}", self.name()));
            (0..self.count()).map(named)
        };
        (0..NAMESPACES).flat_map(in_one).collect()
    }
}

/// The permission that the documentation asks for where kinds of another group are scaled.
pub(super) fn role() -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let mut blocks = readme
        .split("```yaml")
        .filter_map(|rest| rest.split("```").next());
    let block = blocks
        .find(|block| block.contains("rollouts/scale"))
        .unwrap();
    block
        .replace("argoproj.io", "work.example.com")
        .replace("rollouts", "queues")
}

/// Applies manifests, a few at a time.
pub(super) async fn apply_all(cluster: &Cluster, manifests: &[String]) {
    let applied = manifests.iter().map(|manifest| async move {
        cluster.apply(manifest).await.unwrap();
    });
    stream::iter(applied).buffer_unordered(8).count().await;
}

/// The external metric of an object.
pub(super) fn metric_of(name: &str) -> String {
    format!("load_{}", name.replace('-', "_"))
}

/// An autoscaler and, where the rig does not serve it, its target.
pub(super) fn manifests(group: Group, object: &Object) -> Vec<String> {
    let (namespace, name) = object;
    let (api_version, kind) = match group {
        Group::Queue => (FakeScales::API_VERSION, FakeScales::KIND),
        _ => ("apps/v1", "Deployment"),
    };
    let mut spec = json!({
        "scaleTargetRef": { "apiVersion": api_version, "kind": kind, "name": name },
        "minReplicas": 1,
        "maxReplicas": 10,
        "mode": "Direct",
        "metrics": [metric(group, name)],
    });
    if matches!(group, Group::Forecast | Group::Spread | Group::Near) {
        spec["prediction"] = json!({
            "predictionWindowSeconds": 3600,
            "predictionAlgorithm": {
                "algorithmType": "dsp",
                "dsp": { "sampleInterval": "120s", "historyLength": "3d" },
            },
        });
    }
    let (api_version, kind) = if group.is_fleet() {
        spec["minReplicas"] = json!(group.members().len());
        spec["clusterAffinity"] = json!({ "clusterNames": group.members() });
        let weights = group.members().iter().map(
            |member| json!({ "targetCluster": { "clusterNames": [member] }, "staticWeight": 1 }),
        );
        spec["federatedHPAAssignment"] = json!({
            "federatedHPAAssignmentType": "StaticWeighted",
            "clusterAutoscalingPreference": weights.collect::<Vec<_>>(),
        });
        ("autoscaling.foretide.io/v1alpha1", "FederatedHPA")
    } else {
        (
            "autoscaling.crane.io/v1alpha1",
            "EffectiveHorizontalPodAutoscaler",
        )
    };
    let autoscaler = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": { "name": name, "namespace": namespace },
        "spec": spec,
    });
    let target = matches!(group, Group::Custom | Group::Forecast | Group::Plain);
    let target = target.then(|| deployment(object));
    target
        .into_iter()
        .chain([autoscaler])
        .map(|manifest| manifest.to_string())
        .collect()
}

fn metric(group: Group, name: &str) -> Value {
    let target = json!({ "type": "AverageValue", "averageValue": "10" });
    match group {
        Group::Custom => json!({ "type": "Object", "object": {
            "describedObject": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
            "metric": { "name": "depth" }, "target": target,
        }}),
        Group::Spread | Group::Near => json!({ "type": "Resource", "resource": {
            "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 },
        }}),
        _ => json!({ "type": "External", "external": {
            "metric": { "name": metric_of(name) }, "target": target,
        }}),
    }
}

pub(super) fn deployment((namespace, name): &Object) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "app", "image": "app:1",
                    "resources": { "requests": { "cpu": "200m" } },
                }] },
            },
        },
    })
}

/// Serves the usage of all pods of a member, once they are there: what their autoscalers aim at.
pub(super) async fn serve_usage(cluster: &Cluster) -> FakeMetrics {
    let pods: Api<Pod> = Api::all(cluster.client());
    let ready = || async {
        let listed = pods
            .list(&ListParams::default())
            .await
            .map_err(|no| no.to_string())?;
        let runs = |pod: &Pod| {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            phase == Some("Running")
        };
        let waiting = listed.iter().filter(|pod| !runs(pod)).count();
        if waiting == 0 && listed.items.len() >= NAMESPACES {
            Ok(listed.items)
        } else {
            Err(format!("{waiting} of {} wait", listed.items.len()))
        }
    };
    let pods = eventually(TIMEOUT, "the members' pods run", ready).await;
    let usage = FakeMetrics::start(cluster, &[MetricsApi::Resource])
        .await
        .unwrap();
    for pod in pods {
        let namespace = pod.namespace().unwrap_or_default();
        usage.set_pod_usage(&namespace, &pod.name_any(), PodUsage::cpu("app", "100m"));
    }
    usage
}

/// From three and a half days ago to some hours from now.
fn instants() -> Instants {
    let now = now().as_duration().as_secs_f64();
    Instants {
        start: now - 3.5 * 86_400.0,
        end: now + 3.0 * 3600.0,
        step: 60.0,
    }
}

/// A daily wave between 0.4 and 1.
fn wave(at: f64) -> f64 {
    0.7 + 0.3 * (at / 86_400.0 * std::f64::consts::TAU).sin()
}

/// At most one replica's worth of each external metric.
pub(super) fn hub_history(objects: &BTreeMap<Group, Vec<Object>>) -> History {
    let mut history = History::new();
    for (namespace, name) in &objects[&Group::Forecast] {
        let series = Series::of(&[("namespace", namespace)], instants(), |at| 9.0 * wave(at));
        history = history.gauge(&metric_of(name), series);
    }
    history
}

/// At most one replica's worth of CPU in each member.
pub(super) fn members_history(objects: &BTreeMap<Group, Vec<Object>>) -> History {
    let mut history = History::new();
    for group in [Group::Spread, Group::Near] {
        for (namespace, name) in &objects[&group] {
            let pod = format!("{name}-6d5f8c9b7d-x2v9k");
            for member in group.members() {
                let container = [namespace, &*pod, "app"];
                history = history.cpu_usage_in(member, container, instants(), |at| 0.09 * wave(at));
            }
        }
    }
    history
}
