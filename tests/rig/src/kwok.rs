//! The configuration of kwok: the life cycle of nodes and pods, and the usage of their containers. The usage of a pod
//! is set by its annotations, so that a test changes it with a patch. The format is that of kwok 0.8; `cluster` starts
//! the process.

use std::time::Duration;

use serde_json::{Value, json};

/// The annotation of a pod with the CPU usage of each of its containers, as a Kubernetes quantity (`170m`); without it
/// 1m. Set it in a pod template, on a pod, or with [`Cluster::share_cpu`](crate::Cluster::share_cpu).
pub const CPU_ANNOTATION: &str = "rig/cpu";

/// The path of the resource metrics of a node, with the placeholders of its annotation.
pub(crate) fn metrics_path(node: &str) -> String {
    format!("/metrics/nodes/{node}/metrics/resource")
}

/// kwok's configuration: stages for nodes and pods, usage, and the kubelet's resource metrics.
pub(crate) fn configuration(pod_startup: Duration) -> String {
    let documents = [
        node_ready(),
        node_heartbeat(),
        pod_ready(pod_startup),
        pod_deleted(),
        usage(),
        resource_metrics(),
    ];
    // JSON documents separated as YAML ones.
    documents
        .map(|document| format!("{document:#}\n"))
        .join("---\n")
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

fn stage(name: &str, kind: &str, when: &Value, rest: &Value) -> Value {
    let mut spec = json!({
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": when},
    });
    if let (Some(spec), Some(rest)) = (spec.as_object_mut(), rest.as_object()) {
        spec.extend(rest.clone());
    }
    object("Stage", name, &spec)
}

const READY: &str = r#".status.conditions.[] | select( .type == "Ready" ) | .status"#;
const DELETED: &str = ".metadata.deletionTimestamp";

const NODE_CONDITIONS: &str = r"
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
";

/// Capacity and allocatable come with the node; the rest is added here.
fn node_ready() -> Value {
    let status = format!(
        "{NODE_CONDITIONS}
addresses:
- type: InternalIP
  address: {{{{ NodeIP | Quote }}}}
- type: Hostname
  address: {{{{ NodeName | Quote }}}}
daemonEndpoints:
  kubeletEndpoint:
    Port: {{{{ NodePort }}}}
phase: Running
"
    );
    stage(
        "node-ready",
        "Node",
        &json!([{"key": READY, "operator": "NotIn", "values": ["True"]}]),
        &json!({"next": {"statusTemplate": status}}),
    )
}

/// The lease is the heartbeat; the status is only renewed now and then.
fn node_heartbeat() -> Value {
    stage(
        "node-heartbeat",
        "Node",
        &json!([{"key": READY, "operator": "In", "values": ["True"]}]),
        &json!({
            "delay": {"durationMilliseconds": 300_000, "jitterDurationMilliseconds": 310_000},
            "next": {"statusTemplate": NODE_CONDITIONS},
        }),
    )
}

const POD_RUNNING: &str = r#"
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
hostIP: 127.0.0.1
podIP: {{ index (PodIPsWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace) 0 | Quote }}
conditions:
{{ range $type := (list "Initialized" "ContainersReady" "Ready") }}
- type: {{ $type }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
"#;

fn pod_ready(startup: Duration) -> Value {
    let delay = u64::try_from(startup.as_millis()).unwrap_or(u64::MAX);
    stage(
        "pod-ready",
        "Pod",
        &json!([
            {"key": DELETED, "operator": "DoesNotExist"},
            {"key": ".spec.nodeName", "operator": "Exists"},
            {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
        ]),
        &json!({
            "delay": {"durationMilliseconds": delay},
            "next": {"statusTemplate": POD_RUNNING},
        }),
    )
}

fn pod_deleted() -> Value {
    stage(
        "pod-deleted",
        "Pod",
        &json!([{"key": DELETED, "operator": "Exists"}]),
        &json!({"next": {"delete": true}}),
    )
}

fn usage() -> Value {
    let cpu = format!(
        "\"{CPU_ANNOTATION}\" in pod.metadata.annotations \
         ? Quantity(pod.metadata.annotations[\"{CPU_ANNOTATION}\"]) : Quantity(\"1m\")"
    );
    let usage = json!({
        "cpu": { "expression": cpu },
        "memory": { "value": "1Mi" },
    });
    object(
        "ClusterResourceUsage",
        "usage",
        &json!({"usages": [{"usage": usage}]}),
    )
}

/// The six families that metrics-server reads. It wants a start time that never moves backwards.
fn resource_metrics() -> Value {
    let container = |name: &str, kind: &str, value: &str| {
        json!({
            "name": name, "dimension": "container", "kind": kind, "value": value,
            "labels": [
                {"name": "container", "value": "container.name"},
                {"name": "namespace", "value": "pod.metadata.namespace"},
                {"name": "pod", "value": "pod.metadata.name"},
            ],
        })
    };
    let node = |name: &str, kind: &str, value: &str| json!({"name": name, "dimension": "node", "kind": kind, "value": value});
    let cpu = r#"pod.CumulativeUsage("cpu", container.name)"#;
    let memory = r#"pod.Usage("memory", container.name)"#;
    let metrics = json!([
        node("scrape_error", "gauge", "0"),
        node(
            "node_cpu_usage_seconds_total",
            "counter",
            r#"node.CumulativeUsage("cpu")"#
        ),
        node(
            "node_memory_working_set_bytes",
            "gauge",
            r#"node.Usage("memory")"#
        ),
        container("container_start_time_seconds", "gauge", "pod.SinceSecond()"),
        container("container_cpu_usage_seconds_total", "counter", cpu),
        container("container_memory_working_set_bytes", "gauge", memory),
    ]);
    let spec = json!({"path": metrics_path("{nodeName}"), "metrics": metrics});
    object("Metric", "resource", &spec)
}
