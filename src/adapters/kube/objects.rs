//! What we keep of each kind of object, and how it is read.
//!
//! Everything becomes a domain or port value here, once. A field that cannot be read makes its object
//! unreadable, with a sentence that names the field; nothing is guessed. Times stay wall-clock times
//! here: [`OnClock`] carries them to the controller's clock at every read, so that ages go on growing.

use std::{collections::BTreeMap, sync::Arc};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA, TimeSeriesPrediction};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    selector,
    store::{Label, Stored},
};
use crate::{
    clock::Clock,
    domain::{
        Replicas, ScaleTarget,
        observation::{Container, Phase, Pod, Readiness, Requests, Scale, Status},
        quantity::{Quantity, QuantityError},
    },
    ports::{HpaView, ScaleView},
};

/// A value with wall-clock times in it, as it looks on another clock.
pub(super) trait OnClock: Clone {
    /// The same value with its times carried over by their age.
    fn on(&self, clock: &Clock) -> Self;
}

/// A pod, and the labels it is found by.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredPod {
    labels: Box<[Label]>,
    /// The pod; its times are wall-clock times.
    pub(super) pod: Arc<Pod>,
    /// The node that it is bound to, or since when there is none for it.
    pub(super) place: Place,
    /// Its effective requests, where they are not simply the sum of those of its containers.
    pub(super) effective: Option<Box<Requests>>,
}

/// Where a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// On a node.
    Node(Arc<str>),
    /// The scheduler has not looked, or has found one just now.
    Nowhere,
    /// No node has room for it, since then.
    Unschedulable(Timestamp),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    namespace: String,
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize)]
struct Owner {
    uid: String,
    controller: Option<bool>,
}

#[derive(Deserialize)]
struct PodObject {
    metadata: Meta,
    spec: PodSpec,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    containers: Vec<ContainerSpec>,
    init_containers: Option<Vec<ContainerSpec>>,
    resources: Option<Resources>,
    node_name: Option<String>,
    overhead: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerSpec {
    name: String,
    restart_policy: Option<String>,
    resources: Option<Resources>,
}

#[derive(Deserialize)]
struct Resources {
    requests: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    phase: Option<String>,
    start_time: Option<Timestamp>,
    conditions: Option<Vec<PodCondition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    last_transition_time: Option<Timestamp>,
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
}

#[derive(Deserialize)]
struct Template {
    spec: Option<PodSpec>,
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
    scale_target_ref: TargetRef,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetRef {
    #[serde(default)]
    api_version: String,
    kind: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HpaStatus {
    last_scale_time: Option<Timestamp>,
}

// === autoscalers and predictions ===

impl Stored for EffectiveHorizontalPodAutoscaler {
    fn decode(object: Value) -> Result<Self, String> {
        read(object)
    }

    fn asks_the_same_as(&self, before: &Self) -> bool {
        let (new, old) = (&self.metadata, &before.metadata);
        new.uid == old.uid
            && new.generation == old.generation
            && new.annotations == old.annotations
            && new.deletion_timestamp == old.deletion_timestamp
    }
}

impl Stored for FederatedHPA {
    fn decode(object: Value) -> Result<Self, String> {
        read(object)
    }

    fn asks_the_same_as(&self, before: &Self) -> bool {
        let (new, old) = (&self.metadata, &before.metadata);
        new.uid == old.uid
            && new.generation == old.generation
            && new.annotations == old.annotations
            && new.deletion_timestamp == old.deletion_timestamp
    }
}

impl Stored for TimeSeriesPrediction {
    fn decode(object: Value) -> Result<Self, String> {
        read(object)
    }
}

// === pods ===

impl Stored for StoredPod {
    fn decode(object: Value) -> Result<Self, String> {
        let PodObject {
            metadata,
            spec,
            status,
        } = read(object)?;
        let ready = status.as_ref().and_then(PodStatus::readiness);
        let waits = status.as_ref().and_then(PodStatus::unschedulable);
        let place = match (&spec.node_name, waits) {
            (Some(node), _) if !node.is_empty() => Place::Node(node.as_str().into()),
            (_, Some(since)) => Place::Unschedulable(since),
            _ => Place::Nowhere,
        };
        let effective = spec.effective()?.map(Box::new);
        let pod = Pod {
            name: metadata.name.into(),
            phase: status.as_ref().map_or(Phase::Unknown, PodStatus::phase),
            deleting: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp,
            ready,
            started: status.and_then(|status| status.start_time),
            pod_level_requests: spec.pod_level_requests()?,
            containers: spec.containers()?,
        };
        let labels = metadata.labels.unwrap_or_default();
        let labels = labels
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        Ok(Self {
            labels,
            pod: Arc::new(pod),
            place,
            effective,
        })
    }

    fn labels(&self) -> &[Label] {
        &self.labels
    }
}

impl StoredPod {
    /// Since when no node has room for it, if so; wall clock.
    pub(super) fn unschedulable(&self) -> Option<Timestamp> {
        match self.place {
            Place::Unschedulable(since) if !self.pod.deleting => Some(since),
            _ => None,
        }
    }
}

impl OnClock for Pod {
    fn on(&self, clock: &Clock) -> Self {
        let ready = |at: Readiness| Readiness {
            since: clock.from_wall(at.since),
            ..at
        };
        Self {
            ready: self.ready.map(ready),
            created: self.created.map(|at| clock.from_wall(at)),
            started: self.started.map(|at| clock.from_wall(at)),
            ..self.clone()
        }
    }
}

impl PodStatus {
    fn phase(&self) -> Phase {
        match self.phase.as_deref() {
            Some("Pending") => Phase::Pending,
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Unknown,
        }
    }

    fn unschedulable(&self) -> Option<Timestamp> {
        let conditions = self.conditions.as_ref()?;
        let waits = conditions.iter().find(|c| {
            c.kind == "PodScheduled"
                && c.status == "False"
                && c.reason.as_deref() == Some("Unschedulable")
        });
        Some(waits?.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH))
    }

    fn readiness(&self) -> Option<Readiness> {
        let ready = self
            .conditions
            .as_ref()?
            .iter()
            .find(|c| c.kind == "Ready")?;
        let status = match ready.status.as_str() {
            "True" => Status::True,
            "False" => Status::False,
            _ => Status::Unknown,
        };
        // The API server demands no transition time; the zero time is what upstream reads then.
        let since = ready.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH);
        Some(Readiness { status, since })
    }
}

impl PodSpec {
    /// App containers and native sidecars: those whose requests count for as long as the pod runs.
    fn containers(self) -> Result<Arc<[Container]>, String> {
        let sidecars = self.init_containers.into_iter().flatten();
        let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
        let container = |c: ContainerSpec| {
            let requests = requests(c.resources, &c.name)?.unwrap_or_default();
            Ok(Container {
                name: c.name.into(),
                requests,
            })
        };
        self.containers
            .into_iter()
            .chain(sidecars)
            .map(container)
            .collect()
    }

    /// What the scheduler counts, where that is not simply the sum of the containers and sidecars: the pod's own
    /// requests before those of its containers, init containers that need more for a while, an overhead.
    ///
    /// Per resource `max(containers + sidecars, max over init containers of it and the sidecars before it) + overhead`.
    fn effective(&self) -> Result<Option<Requests>, String> {
        let of_pod = self.pod_level_requests()?;
        if self.init_containers.is_none() && self.overhead.is_none() && of_pod.is_none() {
            return Ok(None);
        }
        let mut most = self.peak()?;
        for (name, milli) in of_pod.unwrap_or_default().iter() {
            most.insert(name.to_owned(), milli);
        }
        let overhead = self.overhead.clone().map(|amounts| Resources {
            requests: Some(amounts),
        });
        add(
            &mut most,
            &requests(overhead, "spec.overhead")?.unwrap_or_default(),
        );
        Ok(Some(most.into_iter().collect()))
    }

    /// The largest amounts that the containers need at any time.
    fn peak(&self) -> Result<BTreeMap<String, i64>, String> {
        let (mut sidecars, mut most) = (BTreeMap::new(), BTreeMap::new());
        for init in self.init_containers.iter().flatten() {
            let own = init.requests()?;
            let mut now = sidecars.clone();
            add(&mut now, &own);
            if init.restart_policy.as_deref() == Some("Always") {
                sidecars.clone_from(&now);
            }
            raise(&mut most, now);
        }
        for container in &self.containers {
            add(&mut sidecars, &container.requests()?);
        }
        raise(&mut most, sidecars);
        Ok(most)
    }

    fn pod_level_requests(&self) -> Result<Option<Requests>, String> {
        let requests_of_pod = self.resources.as_ref().and_then(|r| r.requests.clone());
        requests(
            Some(Resources {
                requests: requests_of_pod,
            }),
            "the pod itself",
        )
    }
}

impl ContainerSpec {
    fn requests(&self) -> Result<Requests, String> {
        let amounts = self.resources.as_ref().and_then(|r| r.requests.clone());
        let resources = amounts.map(|requests| Resources {
            requests: Some(requests),
        });
        Ok(requests(resources, &self.name)?.unwrap_or_default())
    }
}

fn add(to: &mut BTreeMap<String, i64>, amounts: &Requests) {
    for (name, milli) in amounts.iter() {
        let sum = to.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(milli);
    }
}

fn raise(to: &mut BTreeMap<String, i64>, amounts: BTreeMap<String, i64>) {
    for (name, milli) in amounts {
        let most = to.entry(name).or_insert(milli);
        *most = milli.max(*most);
    }
}

fn requests(resources: Option<Resources>, of: &str) -> Result<Option<Requests>, String> {
    let Some(requests) = resources.and_then(|resources| resources.requests) else {
        return Ok(None);
    };
    let milli = |(resource, amount): (String, String)| match milli_value(&amount) {
        Ok(milli) => Ok((resource, milli)),
        Err(expected) => Err(format!("requests.{resource} of {of}: {expected}")),
    };
    requests
        .into_iter()
        .map(milli)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// A quantity in milli-units, rounded away from zero as the HPA does; beyond an `i64`, its last value.
pub(in crate::adapters) fn milli_value(text: &str) -> Result<i64, String> {
    let quantity: Quantity = text
        .parse()
        .map_err(|error: QuantityError| error.to_string())?;
    Ok(quantity.milli_value().value)
}

// === workloads ===

impl Stored for ScaleView {
    fn decode(object: Value) -> Result<Self, String> {
        let WorkloadObject {
            metadata,
            spec,
            status,
        } = read(object)?;
        let template = spec.template.and_then(|template| template.spec);
        let status = status.and_then(|status| status.replicas).unwrap_or(0);
        Ok(Self {
            scale: Scale {
                spec: Replicas::from_i32(spec.replicas.unwrap_or(1)),
                status: Replicas::from_i32(status),
            },
            selector: selector::text(spec.selector).map_err(|e| format!("spec.selector: {e}"))?,
            resource_version: metadata.resource_version,
            uid: metadata.uid,
            template: template.map(PodSpec::containers).transpose()?,
        })
    }
}

// === horizontal pod autoscalers ===

impl Stored for HpaView {
    fn decode(object: Value) -> Result<Self, String> {
        let part = |pointer| object.pointer(pointer).cloned().unwrap_or_default();
        let or_empty = |value: Value| {
            if value.is_null() {
                Value::Object(serde_json::Map::new())
            } else {
                value
            }
        };
        let (labels, annotations) = (part("/metadata/labels"), part("/metadata/annotations"));
        let (spec, status) = (part("/spec"), part("/status"));
        let HpaObject {
            metadata,
            spec: HpaSpec {
                scale_target_ref: target,
            },
            status: known,
        } = read(object)?;
        let owners = metadata.owner_references.unwrap_or_default();
        let controller = owners
            .into_iter()
            .find(|owner| owner.controller == Some(true));
        Ok(Self {
            target: ScaleTarget {
                api_version: target.api_version,
                kind: target.kind,
                namespace: metadata.namespace.clone(),
                name: target.name,
            },
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            controller_uid: controller.map(|owner| owner.uid),
            labels: or_empty(labels),
            annotations: or_empty(annotations),
            spec: or_empty(spec),
            status: or_empty(status),
            generation: metadata.generation,
            last_scale: known.and_then(|status| status.last_scale_time),
        })
    }
}

impl OnClock for HpaView {
    fn on(&self, clock: &Clock) -> Self {
        Self {
            last_scale: self.last_scale.map(|at| clock.from_wall(at)),
            ..self.clone()
        }
    }
}

/// Reads a whole object; the error names the field, as far as the parser knows it.
pub(in crate::adapters) fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}
