//! Decoding of objects of the API.

use std::sync::Arc;

use foretide_domain::{
    Replicas, ScaleTarget,
    observation::{Container, Phase, Pod, Readiness, Requests, Scale, Status},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::super::{decode::milli_value, objects::StoredWorkload, pods::StoredPod, stored::Stored};
use foretide_api::ports::{HpaView, ScaleView};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn container(name: &str, requests: &[(&str, i64)]) -> Container {
    let requests = requests
        .iter()
        .map(|(resource, milli)| (*resource, *milli))
        .collect();
    Container {
        name: name.into(),
        requests,
    }
}

#[test]
fn a_pod_keeps_its_readiness_and_the_requests_of_containers_and_sidecars() {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": "web-1", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-01T01:00:00Z",
            "labels": {"app": "web"},
        },
        "spec": {
            "containers": [
                {"name": "app", "resources": {"requests": {"cpu": "250m", "memory": "1Ki"}}},
                {"name": "bare"},
            ],
            "initContainers": [
                {"name": "setup", "resources": {"requests": {"cpu": "9"}}},
                {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1n"}}},
            ],
            "resources": {"requests": {"cpu": "2"}},
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:01Z",
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": null},
                {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:05Z"},
            ],
        },
    });
    let stored = StoredPod::decode(object).unwrap();
    let want = Pod {
        name: "web-1".into(),
        phase: Phase::Running,
        deleting: true,
        created: Some(at("2026-01-01T00:00:00Z")),
        ready: Some(Readiness {
            status: Status::False,
            since: at("2026-01-01T00:00:05Z"),
        }),
        started: Some(at("2026-01-01T00:00:01Z")),
        containers: Arc::new([
            container("app", &[("cpu", 250), ("memory", 1_024_000)]),
            container("bare", &[]),
            container("proxy", &[("cpu", 1)]),
        ]),
        pod_level_requests: Some(Requests::from_iter([("cpu", 2000)])),
    };
    assert_eq!(*stored.pod, want);
    assert_eq!(stored.labels().unwrap().get("app"), Some("web"));
}

#[test]
fn a_pod_without_a_status_has_an_unknown_phase_and_no_readiness() {
    let object = json!({"metadata": {"name": "new"}, "spec": {"containers": []}});
    let Pod {
        phase,
        ready,
        started,
        deleting,
        pod_level_requests,
        ..
    } = Pod::clone(&StoredPod::decode(object).unwrap().pod);
    assert_eq!(
        (phase, ready, started, deleting, pod_level_requests),
        (Phase::Unknown, None, None, false, None)
    );
}

#[test]
fn a_field_that_cannot_be_decoded_is_named() {
    let pod = |amount: &str| {
        json!({"metadata": {"name": "a"}, "spec": {"containers": [
            {"name": "app", "resources": {"requests": {"cpu": amount}}},
        ]}})
    };
    let complaint = StoredPod::decode(pod("much")).unwrap_err();
    assert!(
        complaint.starts_with("requests.cpu of app: quantity \"much\""),
        "{complaint}"
    );
    let complaint = StoredPod::decode(json!({"metadata": {"name": "a"}})).unwrap_err();
    assert!(complaint.contains("spec"), "{complaint}");
}

#[test]
fn a_workload_becomes_its_scale_with_the_selector_as_text() {
    let object = |replicas: Value, status: Value| {
        json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "9"},
            "spec": {
                "replicas": replicas,
                "selector": {
                    "matchLabels": {"app": "web", "tier": "front"},
                    "matchExpressions": [{"key": "track", "operator": "NotIn", "values": ["canary"]}],
                },
                "template": {
                    "metadata": {"creationTimestamp": null},
                    "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]},
                },
            },
            "status": status,
        })
    };
    let want = |spec, status| ScaleView {
        scale: Scale {
            spec: Replicas::new(spec),
            status: Replicas::new(status),
        },
        selector: "app=web,tier=front,track notin (canary)".into(),
        resource_version: "9".into(),
        uid: "u".into(),
        template: Some(Arc::new([container("app", &[("cpu", 1000)])])),
        expected_pods: Replicas::new(spec.min(status)),
        owned_pods: Replicas::ZERO,
    };
    for (object, want) in [
        (object(json!(3), json!({"replicas": 2})), want(3, 2)),
        (object(json!(0), json!({})), want(0, 0)),
        (object(Value::Null, Value::Null), want(1, 0)),
    ] {
        assert_eq!(StoredWorkload::decode(object).map(|w| w.view), Ok(want));
    }
}

#[test]
fn an_hpa_keeps_unknown_fields() {
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 4, "futureField": {"x": [1]},
    });
    let status = json!({"lastScaleTime": "2026-01-01T00:00:00Z", "desiredReplicas": 3, "new": 1});
    let view = HpaView::decode(json!({
        "metadata": {
            "namespace": "shop", "name": "ehpa-web", "uid": "u", "generation": 3, "resourceVersion": "17",
            "annotations": {"a": "b"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "other"},
                {"apiVersion": "v1", "kind": "Y", "name": "y", "uid": "mine", "controller": true},
            ],
        },
        "spec": spec, "status": status,
    }));
    let want = HpaView {
        namespace: "shop".into(),
        name: "ehpa-web".into(),
        uid: "u".into(),
        resource_version: "17".into(),
        controller: Some(OwnerReference {
            uid: "mine".into(),
            api_version: "v1".into(),
            kind: "Y".into(),
            name: "y".into(),
            controller: Some(true),
            block_owner_deletion: None,
        }),
        labels: json!({}),
        annotations: json!({"a": "b"}),
        target: ScaleTarget {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: "web".into(),
        },
        spec,
        status,
        generation: Some(3),
        last_scale: Some(at("2026-01-01T00:00:00Z")),
    };
    assert_eq!(view, Ok(want));
}

#[test]
fn quantities_round_up_to_milli_units() {
    for (text, want) in [
        ("123456789n", 124),
        ("64Mi", 67_108_864_000),
        ("2", 2000),
        ("0", 0),
    ] {
        assert_eq!(milli_value(text), Ok(want), "{text}");
    }
    assert!(milli_value("").is_err());
}
