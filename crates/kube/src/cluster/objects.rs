//! Stored forms of our own objects, of workloads, and of HPAs.
//!
//! An object is decoded once, into a domain or port value. If a field cannot be decoded, the whole object is excluded
//! with an error that names the field.

use std::{collections::BTreeMap, fmt::Debug};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA, TimeSeriesPrediction};
use foretide_domain::{Labels, Replicas, ScaleTarget, observation::Scale};
use foretide_federate::PodShape;
use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::v2::CrossVersionObjectReference,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    decode::{Conditions, Meta, read, selector_text},
    nodes::scheduling::SchedulingConstraints,
    pods::PodSpec,
    size::estimate,
    stored::Stored,
};
use foretide_api::ports::{HpaView, ScaleView};

/// A workload with a scale subresource.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredWorkload {
    pub view: ScaleView,
    /// Requirements of one of its pods on a node.
    pub shape: Option<Box<PodShape>>,
    /// Time since when pods cannot be created; wall clock.
    pub replica_failure: Option<Timestamp>,
    /// UID of the object that owns it, unless that is a Deployment, which selects the pods of all that it owns.
    pub owner: Option<Box<str>>,
}

#[derive(Deserialize)]
struct WorkloadObject {
    metadata: Meta,
    spec: WorkloadSpec,
    status: Option<WorkloadStatus>,
}

#[derive(Deserialize)]
struct WorkloadSpec {
    replicas: Option<i32>,
    selector: LabelSelector,
    template: Option<Template>,
}

#[derive(Deserialize)]
struct WorkloadStatus {
    replicas: Option<i32>,
    conditions: Option<Conditions>,
}

#[derive(Deserialize)]
struct Template {
    metadata: Option<TemplateMeta>,
    spec: Option<PodSpec>,
}

#[derive(Deserialize)]
struct TemplateMeta {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct HpaObject {
    metadata: Meta,
    spec: HpaSpec,
    status: Option<HpaStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HpaSpec {
    scale_target_ref: CrossVersionObjectReference,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HpaStatus {
    last_scale_time: Option<Timestamp>,
}

// === autoscalers and predictions ===

/// The memory of an autoscaler in a controller: beside the copy the version that was synced last, and with a prediction
/// the one that forecasts were requested for, each with what is derived from its spec.
fn managed_size(object: &impl Stored, spec: &impl Debug, has_prediction: bool) -> usize {
    let held = 1 + usize::from(has_prediction);
    let size = object.size();
    size + held * (size + estimate(spec))
}

impl Stored for EffectiveHorizontalPodAutoscaler {
    const IS_WHOLE: bool = true;

    fn decode(object: Value) -> Result<Self, String> {
        read(object)
    }

    fn managed_size(&self) -> usize {
        let has_prediction = self.spec.prediction.is_some();
        managed_size(self, &self.spec, has_prediction)
    }

    fn equals(&self, kept: &Self) -> bool {
        self == kept
    }

    fn spec_eq(&self, before: &Self) -> bool {
        generation_eq(&self.metadata, &before.metadata)
    }
}

impl Stored for FederatedHPA {
    const IS_WHOLE: bool = true;

    fn decode(object: Value) -> Result<Self, String> {
        read(object)
    }

    fn managed_size(&self) -> usize {
        let has_prediction = self.spec.autoscaling.prediction.is_some();
        managed_size(self, &self.spec, has_prediction)
    }

    fn equals(&self, kept: &Self) -> bool {
        self == kept
    }

    fn spec_eq(&self, before: &Self) -> bool {
        generation_eq(&self.metadata, &before.metadata)
    }
}

impl Stored for TimeSeriesPrediction {
    const IS_WHOLE: bool = true;

    fn decode(object: Value) -> Result<Self, String> {
        read(object)
    }
}

/// True if only the status, the labels or the finalizers differ.
fn generation_eq(new: &ObjectMeta, old: &ObjectMeta) -> bool {
    new.uid == old.uid
        && new.generation == old.generation
        && new.annotations == old.annotations
        && new.deletion_timestamp == old.deletion_timestamp
}

// === workloads ===

impl Stored for StoredWorkload {
    fn decode(object: Value) -> Result<Self, String> {
        let constraints = SchedulingConstraints::of(object.pointer("/spec/template/spec"));
        let WorkloadObject {
            mut metadata,
            spec,
            status,
        } = read(object)?;
        let template = spec.template.and_then(Template::pod_and_labels);
        let shape = template
            .as_ref()
            .map(|(pod, labels)| pod.shape(&constraints, labels));
        let (current, replica_failure) = status.map_or((0, None), |status| {
            (status.replicas.unwrap_or(0), status.replica_failure())
        });
        let controller = metadata.take_controller();
        let scale = Scale {
            // 1 is the default of the API server.
            spec: Replicas::from_i32(spec.replicas.unwrap_or(1)),
            status: Replicas::from_i32(current),
        };
        let view = ScaleView {
            scale,
            selector: selector_text(spec.selector).map_err(|e| format!("spec.selector: {e}"))?,
            resource_version: metadata.resource_version,
            uid: metadata.uid,
            template: template.map(|(pod, _)| pod.containers()).transpose()?,
            expected_pods: scale.spec.min(scale.status),
            owned_pods: Replicas::ZERO,
        };
        Ok(Self {
            view,
            shape: shape.transpose()?.map(Box::new),
            replica_failure,
            owner: controller
                .filter(|owner| owner.kind != "Deployment")
                .map(|owner| owner.uid.into()),
        })
    }
}

impl Template {
    fn pod_and_labels(self) -> Option<(PodSpec, Labels)> {
        let labels = self.metadata.and_then(|metadata| metadata.labels);
        Some((self.spec?, labels.unwrap_or_default()))
    }
}

impl WorkloadStatus {
    fn replica_failure(self) -> Option<Timestamp> {
        let failure = self.conditions?.with_status("ReplicaFailure", "True")?;
        Some(failure.since())
    }
}

// === horizontal pod autoscalers ===

impl Stored for HpaView {
    const IS_WHOLE: bool = true;

    fn decode(object: Value) -> Result<Self, String> {
        // Kept as JSON, so that fields of newer API versions are not lost.
        let [labels, annotations, spec, status] = [
            "/metadata/labels",
            "/metadata/annotations",
            "/spec",
            "/status",
        ]
        .map(|pointer| part(&object, pointer));
        let HpaObject {
            mut metadata,
            spec: HpaSpec {
                scale_target_ref: target,
            },
            status: parsed_status,
        } = read(object)?;
        Ok(Self {
            controller: metadata.take_controller(),
            target: ScaleTarget {
                api_version: target.api_version.unwrap_or_default(),
                kind: target.kind,
                namespace: metadata.namespace.clone(),
                name: target.name,
            },
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            labels,
            annotations,
            spec,
            status,
            generation: metadata.generation,
            last_scale: parsed_status.and_then(|status| status.last_scale_time),
        })
    }
}

/// The part of an object at a JSON pointer; an empty one if there is none.
fn part(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
        Some(part) => part.clone(),
    }
}
