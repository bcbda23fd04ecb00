//! A fake cluster: objects, pods and usage as a test sets them, and every write in order.
//!
//! Writes are stored and answered at once. `tests/cluster` covers the same behavior on a real control plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use foretide_api::ports::{
    Cluster, ClusterError, ControllerRef, EventNote, HpaView, KedaPause, ListedAutoscalers,
    MetricQuery, ObjectKey, ScaleView, UnusableCopies, Workloads,
};
use foretide_api::{
    autoscaler::{Autoscaler, Status as WireStatus},
    ownership::OwnerKind,
    validation::TargetRules,
};
use foretide_base::clock::Clock;
use foretide_controller::Setup;
use foretide_crds::{
    EffectiveHorizontalPodAutoscaler as Ehpa, EffectiveHorizontalPodAutoscalerStatus, FederatedHPA,
    TimeSeriesPrediction, TimeSeriesPredictionStatus,
};
use foretide_domain::{
    Replicas, Scale, ScaleTarget,
    cron::Zone,
    hpa::{ObjectRef, Settings},
    observation::{
        Cause, Container, ContainerUsage, NamespaceUsage, Phase, Pod, PodSample, PodUsage,
        Readiness, Status, Unavailable,
    },
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Objects by name, and every write in order.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) autoscalers: BTreeMap<String, Ehpa>,
    /// UIDs of the autoscalers that fail to parse.
    pub(crate) undecoded: BTreeSet<String>,
    pub(crate) hpas: BTreeMap<String, HpaView>,
    /// State of KEDA's pause of every target.
    pub(crate) keda_pause: KedaPause,
    pub(crate) replicas: BTreeMap<String, u32>,
    pub(crate) millicores: i64,
    pub(crate) stale_predictions: bool,
    /// The series of every external metric, in milli-units.
    pub(crate) external: Option<i64>,
    /// The last `resourceVersion` of an HPA.
    versions: u32,
    /// Writes of predictions are refused.
    pub(crate) refuses: bool,
    pub(crate) unselective: bool,
    /// Namespaces in which writes of predictions never return, until they are removed here.
    pub(crate) predictions_hang: BTreeSet<String>,
    /// Number of writes of the status of each prediction, by namespace and name.
    pub(crate) published: BTreeMap<String, u32>,
    pub(crate) writes: Vec<String>,
    /// The time of measurements.
    pub(crate) now: Timestamp,
    /// The seconds that pods took to start.
    pub(crate) start_up: i64,
    pub(crate) predicted: Option<TimeSeriesPredictionStatus>,
    /// The last prediction that was written.
    pub(crate) prediction: Value,
}

impl State {
    /// Stores an applied HPA; a conflict unless the manifest names the present version.
    pub(crate) fn accept_hpa(&mut self, manifest: &Value) -> Result<HpaView, ClusterError> {
        let text = |path: &str| {
            manifest
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let name = text("/metadata/name").to_owned();
        let before = self.hpas.get(&name).cloned();
        let metadata = &manifest["metadata"];
        let is_other = |hpa: &HpaView| {
            metadata["uid"] != *hpa.uid || metadata["resourceVersion"] != *hpa.resource_version
        };
        if before.as_ref().is_some_and(is_other) {
            return Err(ClusterError::Conflict { what: name });
        }
        self.versions += 1;
        let merged = |path: &str, before: Option<&Value>| {
            let mut all = before.and_then(Value::as_object).cloned();
            let more = manifest.pointer(path).and_then(Value::as_object).cloned();
            let all = all.get_or_insert_default();
            all.extend(more.into_iter().flatten());
            Value::Object(std::mem::take(all))
        };
        let view = HpaView {
            namespace: text("/metadata/namespace").to_owned(),
            uid: before
                .as_ref()
                .map_or_else(|| format!("uid-{name}"), |hpa| hpa.uid.clone()),
            resource_version: self.versions.to_string(),
            controller: manifest
                .pointer("/metadata/ownerReferences/0")
                .map(controller),
            labels: merged("/metadata/labels", before.as_ref().map(|hpa| &hpa.labels)),
            annotations: merged(
                "/metadata/annotations",
                before.as_ref().map(|hpa| &hpa.annotations),
            ),
            target: ScaleTarget {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                namespace: "shop".into(),
                name: text("/spec/scaleTargetRef/name").to_owned(),
            },
            spec: manifest["spec"].clone(),
            status: before.map(|hpa| hpa.status).unwrap_or_default(),
            generation: None,
            last_scale: None,
            name: name.clone(),
        };
        self.hpas.insert(name, view.clone());
        Ok(view)
    }
}

fn controller(owner: &Value) -> ControllerRef {
    let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    ControllerRef {
        uid: text("uid"),
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
    }
}

/// A status in the form in which an API server stores it.
fn stored<S: Serialize + DeserializeOwned>(status: &S) -> S {
    serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap()
}

/// A controller of objects that are synced every 15 s, with the default settings.
pub(crate) fn setup(targets: Arc<TargetRules>) -> Setup {
    Setup {
        sync_period: SignedDuration::from_secs(15),
        local_zone: Zone::utc(),
        settings: Settings::default(),
        targets,
        read_deadline: Setup::READ_DEADLINE,
        member_deadline: Setup::MEMBER_DEADLINE,
    }
}

/// Rules by which only Deployments are scaled, and not in `kube-system`.
pub(crate) fn targets() -> Arc<TargetRules> {
    Arc::new(TargetRules {
        denied_namespaces: ["kube-system".to_owned()].into(),
        allowed_kinds: ["Deployment.apps".parse().unwrap()].into(),
    })
}

/// A cluster; clones share it.
#[derive(Clone, Default)]
pub(crate) struct FakeCluster(Arc<Mutex<State>>);

/// Lets a stopped clock run to a later time, or sets it to an earlier one.
pub(crate) fn run_to(clock: &Clock, at: Timestamp) {
    match Duration::try_from(at.duration_since(clock.now())) {
        Ok(passes) => clock.advance(passes),
        Err(_) => clock.set(at),
    }
}

impl FakeCluster {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Records a write that was accepted.
    fn record(&self, write: String) {
        self.state().writes.push(write);
    }

    /// Adds an autoscaler of Deployment `name` with this number of replicas.
    pub(crate) fn put(&self, name: &str, replicas: u32, spec: &str) {
        self.put_in("shop", name, replicas, spec);
    }

    /// Adds an autoscaler like [`put`](Self::put), in another namespace; names must differ nevertheless.
    pub(crate) fn put_in(&self, namespace: &str, name: &str, replicas: u32, spec: &str) {
        let yaml = format!(
            "apiVersion: autoscaling.crane.io/v1alpha1\nkind: EffectiveHorizontalPodAutoscaler\n\
             metadata: {{name: {name}, namespace: {namespace}, uid: uid-{name}, generation: 1}}\n\
             spec: {{scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}, {spec}}}"
        );
        let ehpa: Ehpa = serde_saphyr::from_str(&yaml).unwrap();
        self.state().autoscalers.insert(name.to_owned(), ehpa);
        self.state().replicas.insert(name.to_owned(), replicas);
    }

    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Ehpa)) {
        let mut state = self.state();
        let ehpa = state.autoscalers.get_mut(name).unwrap();
        change(ehpa);
        ehpa.metadata.generation = ehpa.metadata.generation.map(|generation| generation + 1);
    }

    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().writes)
    }

    pub(crate) fn status(&self, name: &str) -> EffectiveHorizontalPodAutoscalerStatus {
        self.state().autoscalers[name]
            .status
            .clone()
            .unwrap_or_default()
    }

    pub(crate) fn ready(&self, name: &str) -> (String, String) {
        let conditions = self.status(name).conditions.unwrap_or_default();
        let ready = conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready")
            .unwrap();
        (ready.status, ready.reason)
    }

    fn pod(name: &str, start_up: i64) -> Arc<Pod> {
        let requests = [("cpu", 200_i64)].into_iter().collect();
        Arc::new(Pod {
            name: name.into(),
            phase: Phase::Running,
            deleting: false,
            created: None,
            ready: Some(Readiness {
                status: Status::True,
                since: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(start_up),
            }),
            started: Some(Timestamp::UNIX_EPOCH),
            containers: [Container {
                name: "app".into(),
                requests,
            }]
            .into(),
            pod_level_requests: None,
        })
    }

    /// Returns when writes of predictions do not hang any more; needs paused time.
    async fn prediction_call(&self, namespace: &str) -> Result<(), ClusterError> {
        while self.state().predictions_hang.contains(namespace) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if self.state().refuses {
            return Err(ClusterError::Refused {
                what: "prediction".to_owned(),
                message: "quota".to_owned(),
            });
        }
        Ok(())
    }

    fn pods_of(&self, name: &str) -> Vec<Arc<Pod>> {
        let state = self.state();
        let count = state.replicas.get(name).copied().unwrap_or_default();
        let start_up = state.start_up;
        (0..count)
            .map(|n| Self::pod(&format!("{name}-{n:03}"), start_up))
            .collect()
    }
}

impl Workloads for FakeCluster {
    fn is_synced(&self) -> bool {
        true
    }

    fn stale(&self, _: &ScaleTarget) -> Option<UnusableCopies> {
        None
    }

    fn hpas(&self, _: &str) -> Vec<Arc<HpaView>> {
        self.every_hpa()
    }

    fn every_hpa(&self) -> Vec<Arc<HpaView>> {
        self.state().hpas.values().cloned().map(Arc::new).collect()
    }

    async fn keda_pause(&self, _: &ScaleTarget) -> KedaPause {
        self.state().keda_pause.clone()
    }

    fn pods(&self, _: &str, selector: &str) -> Result<Vec<Arc<Pod>>, ClusterError> {
        Ok(self.pods_of(selector))
    }

    async fn scale(&self, target: &ScaleTarget) -> Result<ScaleView, ClusterError> {
        let name = &target.name;
        let replicas = self.state().replicas.get(name).copied();
        let replicas = replicas.ok_or_else(|| ClusterError::NotFound { what: name.clone() })?;
        let replicas = Replicas::new(replicas);
        Ok(ScaleView {
            scale: Scale {
                spec: replicas,
                status: replicas,
            },
            selector: if self.state().unselective {
                String::new()
            } else {
                target.name.clone()
            },
            resource_version: "1".into(),
            uid: format!("target-{}", target.name),
            ..ScaleView::default()
        })
    }

    async fn usage(&self, _: &str) -> Result<NamespaceUsage, Unavailable> {
        let (names, total, now) = {
            let state = self.state();
            let names: Vec<_> = state.replicas.keys().cloned().collect();
            (names, state.millicores, state.now)
        };
        if total < 0 {
            return Err(Unavailable::new(Cause::NotRead, "no metrics today"));
        }
        let mut usage = NamespaceUsage::default();
        for name in names {
            let pods = self.pods_of(&name);
            let share = total / i64::try_from(pods.len().max(1)).unwrap();
            for pod in pods.iter().map(|pod| Arc::clone(&pod.name)) {
                usage.pods.push(Arc::new(PodUsage {
                    pod,
                    at: now,
                    window: SignedDuration::from_secs(30),
                    containers: vec![ContainerUsage {
                        name: "app".into(),
                        usage: [("cpu", share)].into_iter().collect(),
                    }],
                }));
            }
        }
        Ok(usage)
    }

    async fn pods_metric(&self, _: &MetricQuery<'_>) -> Result<Vec<PodSample>, Unavailable> {
        Err(Unavailable::new(Cause::NotRead, "no custom metrics here"))
    }

    async fn object_metric(&self, _: &ObjectRef, _: &MetricQuery<'_>) -> Result<i64, Unavailable> {
        Err(Unavailable::new(Cause::NotRead, "no custom metrics here"))
    }

    async fn external_metric(&self, _: &MetricQuery<'_>) -> Result<Vec<i64>, Unavailable> {
        let value = self.state().external;
        value
            .map(|value| vec![value])
            .ok_or_else(|| Unavailable::new(Cause::NotRead, "no external metrics here"))
    }

    async fn write_scale(
        &self,
        target: &ScaleTarget,
        _: &ScaleView,
        replicas: Replicas,
    ) -> Result<Replicas, ClusterError> {
        let name = target.name.clone();
        self.state().replicas.insert(name, replicas.get());
        self.record(format!("scale {} {replicas}", target.name));
        Ok(replicas)
    }

    async fn apply_hpa(&self, manifest: &Value) -> Result<Arc<HpaView>, ClusterError> {
        let version = &manifest["metadata"]["resourceVersion"];
        assert!(version.is_string(), "not conditional: {manifest}");
        let view = self.state().accept_hpa(manifest)?;
        self.record(format!(
            "hpa {} min {}",
            view.name, view.spec["minReplicas"]
        ));
        Ok(Arc::new(view))
    }

    async fn patch_hpa(&self, _: &str, _: &str, _: &Value) -> Result<Arc<HpaView>, ClusterError> {
        unreachable!("no HPA is adopted here")
    }

    async fn delete_hpa(&self, _: &str, name: &str, _: &str) -> Result<(), ClusterError> {
        self.state().hpas.remove(name);
        self.record(format!("delete hpa {name}"));
        Ok(())
    }
}

impl Cluster for FakeCluster {
    async fn changed(&self, _: OwnerKind) -> BTreeSet<ObjectKey> {
        std::future::pending().await
    }

    fn stale_autoscalers(&self, _: OwnerKind, _: Option<&str>) -> Option<UnusableCopies> {
        None
    }

    fn stale_predictions(&self) -> Option<UnusableCopies> {
        let is_stale = self.state().stale_predictions;
        is_stale.then_some(UnusableCopies::Stale {
            kind: "TimeSeriesPrediction",
            since: None,
        })
    }

    fn autoscalers(&self) -> ListedAutoscalers {
        let state = self.state();
        let unreadable = state.undecoded.iter().cloned().collect();
        let all = state.autoscalers.values().filter(|ehpa| {
            let uid = ehpa.metadata.uid.as_ref();
            uid.is_none_or(|uid| !state.undecoded.contains(uid))
        });
        ListedAutoscalers {
            objects: all.cloned().map(Arc::new).collect(),
            unreadable,
        }
    }

    fn every_prediction(&self) -> Vec<Arc<TimeSeriesPrediction>> {
        Vec::new()
    }

    async fn apply_prediction(&self, manifest: &Value) -> Result<String, ClusterError> {
        let namespace = manifest["metadata"]["namespace"].as_str().unwrap();
        self.prediction_call(namespace).await?;
        self.state().prediction = manifest.clone();
        Ok("uid-prediction".to_owned())
    }

    async fn write_prediction_status(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        status: &TimeSeriesPredictionStatus,
    ) -> Result<(), ClusterError> {
        assert!(!uid.is_empty());
        self.prediction_call(namespace).await?;
        let mut state = self.state();
        state.predicted = Some(status.clone());
        let written = state.published.entry(format!("{namespace}/{name}"));
        *written.or_default() += 1;
        Ok(())
    }

    async fn delete_prediction(&self, _: &str, _: &str, _: &str) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn write_status(
        &self,
        about: &Autoscaler,
        status: WireStatus,
    ) -> Result<(), ClusterError> {
        let name = match about {
            Autoscaler::Effective(ehpa) => {
                let name = ehpa.name_any();
                if let Some(ehpa) = self.state().autoscalers.get_mut(&name) {
                    ehpa.status = Some(stored(&status.common));
                }
                name
            }
            Autoscaler::Federated(_) => unreachable!("there are no fleets here"),
        };
        self.record(format!("status {name}"));
        Ok(())
    }

    async fn emit(
        &self,
        _: OwnerKind,
        about: &ObjectMeta,
        event: &EventNote,
    ) -> Result<(), ClusterError> {
        self.record(format!(
            "event {} {}",
            about.name.as_ref().unwrap(),
            event.reason
        ));
        Ok(())
    }

    async fn identity(&self) -> Result<String, ClusterError> {
        Ok("hub-1".to_owned())
    }

    fn knows_federated(&self) -> bool {
        true
    }

    fn federated(&self) -> Vec<Arc<FederatedHPA>> {
        Vec::new()
    }

    fn every_federated(&self) -> Option<Vec<Arc<FederatedHPA>>> {
        Some(self.federated())
    }

    async fn write_ledger(&self, _: &FederatedHPA, _: &str) -> Result<(), ClusterError> {
        unreachable!("there are no fleets here")
    }

    async fn patch_federated(&self, _: &str, _: &str, _: &Value) -> Result<(), ClusterError> {
        unreachable!("there are no fleets here")
    }

    async fn object(&self, _: &ScaleTarget) -> Result<Value, ClusterError> {
        unreachable!("there are no fleets here")
    }
}
