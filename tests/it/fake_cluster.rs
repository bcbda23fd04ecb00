//! A fake cluster: objects, pods and usage as a test sets them, and every write in order.
//!
//! Writes are stored and answered at once. `tests/cluster` covers the same behavior on a real control plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use foretide_api::ports::{
    Cluster, ClusterError, ControllerRef, EventNote, HpaView, KedaPause, ListedAutoscalers, Member,
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
    FederatedHPAStatus, TimeSeriesPrediction, TimeSeriesPredictionStatus,
};
use foretide_domain::{
    Replicas, Scale, ScaleTarget,
    cron::Zone,
    hpa::{ObjectRef, Settings},
    observation::{
        Cause, Container, ContainerUsage, NamespaceUsage, Phase, Pod, PodSample, PodUsage,
        Readiness, StaleSample, Status, Unavailable,
    },
};
use foretide_federate::{Estimate, PodShape};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Objects by name, and every write in order.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct State {
    pub(crate) autoscalers: BTreeMap<String, Ehpa>,
    /// UIDs of the autoscalers that fail to parse.
    pub(crate) undecoded: BTreeSet<String>,
    pub(crate) federated: BTreeMap<String, FederatedHPA>,
    /// Federated autoscalers in the view of a late watch.
    pub(crate) late: Option<BTreeMap<String, FederatedHPA>>,
    /// Federated autoscalers that fail to parse, which lists leave out.
    pub(crate) unreadable: BTreeMap<String, FederatedHPA>,
    pub(crate) hpas: BTreeMap<String, HpaView>,
    /// State of KEDA's pause of every target.
    pub(crate) keda_pause: KedaPause,
    pub(crate) replicas: BTreeMap<String, u32>,
    /// Complete objects, for workloads that are read or placed as such.
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) millicores: i64,
    /// The kind whose copies are out of date.
    pub(crate) stale_copies: Option<&'static str>,
    /// Age of the samples of all pods, if they are too old.
    pub(crate) stale_for: Option<SignedDuration>,
    /// The series of every external metric, in milli-units.
    pub(crate) external: Option<i64>,
    /// The number of writes of scales and HPAs that meet a conflict.
    pub(crate) conflicts: u32,
    /// The last `resourceVersion` of an HPA.
    versions: u32,
    pub(crate) refuses: bool,
    pub(crate) unselective: bool,
    /// Calls never return.
    pub(crate) hangs: bool,
    /// Calls to the metrics APIs never return.
    pub(crate) metrics_hang: bool,
    /// Writes of statuses and events do not return until this is unset.
    pub(crate) reports_hang: bool,
    /// The only namespace in which such writes do not return.
    pub(crate) reports_hang_in: Option<String>,
    /// Namespaces in which writes of predictions never return, until they are removed here.
    pub(crate) predictions_hang: BTreeSet<String>,
    /// Number of writes of the status of each prediction, by namespace and name.
    pub(crate) published: BTreeMap<String, u32>,
    /// Targets for which every call hangs.
    pub(crate) hanging: BTreeSet<String>,
    /// Targets for which every call panics.
    pub(crate) poison: BTreeSet<String>,
    /// Writes of HPAs panic.
    pub(crate) poisons_writes: bool,
    /// The number of calls that need a request.
    pub(crate) calls: u32,
    /// The number of replicas that the nodes can run.
    pub(crate) capacity: Option<u32>,
    /// The number of pods without a node, with the time since which they have none.
    pub(crate) unschedulable: (u32, Option<Timestamp>),
    /// The last writer of the replicas, unless it is an HPA or Foretide.
    pub(crate) writer: Option<String>,
    pub(crate) writes: Vec<String>,
    /// The problem that the member's connection reports.
    pub(crate) problem: Option<String>,
    /// The problem is an unusable Secret.
    pub(crate) unusable: bool,
    /// The problem is that the member rejects the hub's credentials.
    pub(crate) rejects_credentials: bool,
    /// The time of measurements.
    pub(crate) now: Timestamp,
    /// The seconds that pods took to start.
    pub(crate) start_up: i64,
    pub(crate) predicted: Option<TimeSeriesPredictionStatus>,
    /// The last prediction that was written.
    pub(crate) prediction: Value,
}

impl State {
    /// The next version of an HPA; a conflict unless the manifest names the present version.
    fn version_for(
        &mut self,
        manifest: &Value,
        before: Option<&HpaView>,
    ) -> Result<(), ClusterError> {
        let metadata = &manifest["metadata"];
        let same = |hpa: &HpaView| {
            metadata["uid"] == *hpa.uid && metadata["resourceVersion"] == *hpa.resource_version
        };
        if before.is_some_and(|hpa| !same(hpa)) || self.conflicts > 0 {
            self.conflicts = self.conflicts.saturating_sub(1);
            let what = metadata["name"].to_string();
            return Err(ClusterError::Conflict { what });
        }
        self.versions += 1;
        Ok(())
    }

    fn accept_scale(
        &mut self,
        target: &ScaleTarget,
        replicas: Replicas,
    ) -> Result<(), ClusterError> {
        let what = target.name.clone();
        self.permit(&what)?;
        if self.conflicts > 0 {
            self.conflicts -= 1;
            return Err(ClusterError::Conflict { what });
        }
        self.replicas.insert(what, replicas.get());
        Ok(())
    }

    /// Stores an applied HPA.
    pub(crate) fn accept_hpa(&mut self, manifest: &Value) -> Result<HpaView, ClusterError> {
        self.permit("horizontalpodautoscaler")?;
        let text = |path: &str| {
            manifest
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let name = text("/metadata/name").to_owned();
        let before = self.hpas.get(&name).cloned();
        self.version_for(manifest, before.as_ref())?;
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

    fn accept_patch(&mut self, name: &str, operations: &Value) -> Result<HpaView, ClusterError> {
        self.versions += 1;
        let version = self.versions.to_string();
        assert_eq!(operations[0]["op"], "test", "not conditional: {operations}");
        if self.refuses {
            self.writes.push(format!("refused patch hpa {name}"));
            return Err(ClusterError::Refused {
                what: name.to_owned(),
                message: "quota".into(),
            });
        }
        let hpa = self.hpas.get_mut(name);
        let hpa = hpa.ok_or_else(|| ClusterError::NotFound {
            what: name.to_owned(),
        })?;
        let expected = [
            ("/metadata/uid", &hpa.uid),
            ("/metadata/resourceVersion", &hpa.resource_version),
        ];
        let is_expected = |operation: &Value| {
            let mut same = expected.iter();
            same.all(|(path, value)| operation["path"] != *path || operation["value"] == **value)
        };
        if !operations.as_array().unwrap().iter().all(is_expected) {
            let what = name.to_owned();
            return Err(ClusterError::Conflict { what });
        }
        hpa.resource_version = version;
        for operation in operations.as_array().unwrap() {
            let path = operation["path"].as_str().unwrap();
            let field = path.rsplit('/').next().unwrap().replace("~1", "/");
            match (operation["op"].as_str().unwrap(), path) {
                ("replace", "/spec") => hpa.spec = operation["value"].clone(),
                ("remove", path) if path.starts_with("/metadata/annotations/") => {
                    hpa.annotations.as_object_mut().unwrap().remove(&field);
                }
                ("remove", path) if path.starts_with("/metadata/labels/") => {
                    hpa.labels.as_object_mut().unwrap().remove(&field);
                }
                _ => {}
            }
        }
        Ok(hpa.clone())
    }

    fn accept_deletion(&mut self, name: &str) -> Result<(), ClusterError> {
        self.permit(name)?;
        self.hpas.remove(name);
        Ok(())
    }

    fn accept_finalizers(&mut self, name: &str, value: Option<Value>) {
        let Some(fdhpa) = self.federated.get_mut(name) else {
            return;
        };
        fdhpa.metadata.finalizers = value.and_then(|value| serde_json::from_value(value).ok());
        if fdhpa.metadata.finalizers.iter().flatten().next().is_none()
            && fdhpa.metadata.deletion_timestamp.is_some()
        {
            self.federated.remove(name);
        }
    }

    fn accept_workload(&mut self, name: &str, manifest: &Value) {
        let metadata = &manifest["metadata"];
        // The UID of `scale`, or no workload.
        let seen = if self.replicas.contains_key(name) {
            metadata["uid"] == format!("target-{name}")
        } else {
            metadata["resourceVersion"].is_string()
        };
        assert!(seen, "not conditional: {manifest}");
        // A workload without replicas starts with the API's default.
        self.replicas.entry(name.to_owned()).or_insert(1);
        let mut stored = manifest.clone();
        for condition in ["uid", "resourceVersion"] {
            stored["metadata"]
                .as_object_mut()
                .unwrap()
                .remove(condition);
        }
        self.objects.insert(name.to_owned(), stored);
    }

    fn accept_removal(&mut self, name: &str) {
        self.replicas.remove(name);
        self.objects.remove(name);
    }

    /// Refuses a write while the cluster refuses all writes.
    fn permit(&self, what: &str) -> Result<(), ClusterError> {
        if self.refuses {
            return Err(ClusterError::Refused {
                what: what.to_owned(),
                message: "quota".into(),
            });
        }
        Ok(())
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

    /// Adds an HPA that claims to have been adopted for an autoscaler that does not exist.
    pub(crate) fn forge_adopted(&self, name: &str) {
        let annotations = json!({
            "autoscaling.foretide.io/adopted-by": "nobody",
            "autoscaling.foretide.io/original-spec": "{}",
        });
        let forged = json!({
            "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
            "spec": {"scaleTargetRef": {"name": "other"}},
        });
        self.state().accept_hpa(&forged).unwrap();
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

    /// Never returns while calls hang.
    async fn call(&self) {
        self.state().calls += 1;
        if self.state().hangs {
            std::future::pending::<()>().await;
        }
    }

    /// Like [`FakeCluster::call`], for a metrics API.
    async fn metrics_call(&self) {
        self.call().await;
        if self.state().metrics_hang {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when reports do not hang any more; needs paused time.
    async fn report_call(&self, about: &ObjectMeta) {
        let namespace = &about.namespace;
        let hangs = |state: &State| {
            state.reports_hang || namespace.is_some() && state.reports_hang_in == *namespace
        };
        while hangs(&self.state()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns that the copies of these kinds are out of date, if they are.
    fn stale_of(&self, kinds: &[&str]) -> Option<UnusableCopies> {
        let stale = self.state().stale_copies;
        let kind = stale.filter(|kind| kinds.contains(kind))?;
        let since = Timestamp::UNIX_EPOCH;
        Some(UnusableCopies::Stale {
            kind,
            since: Some(since),
        })
    }

    /// Returns when writes of predictions do not hang any more; needs paused time.
    async fn prediction_call(&self, namespace: &str) -> Result<(), ClusterError> {
        while self.state().predictions_hang.contains(namespace) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.state().permit("prediction")
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

    fn stale(&self, target: &ScaleTarget) -> Option<UnusableCopies> {
        self.stale_of(&["Pod", &target.kind])
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
        self.call().await;
        let name = &target.name;
        let is_poison = self.state().poison.contains(name);
        assert!(!is_poison, "poison");
        if self.state().hanging.contains(name) {
            std::future::pending::<()>().await;
        }
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
        self.metrics_call().await;
        let (names, total, now, stale_for) = {
            let state = self.state();
            let names: Vec<_> = state.replicas.keys().cloned().collect();
            (names, state.millicores, state.now, state.stale_for)
        };
        if total < 0 {
            return Err(Unavailable::new(Cause::NotRead, "no metrics today"));
        }
        let mut usage = NamespaceUsage::default();
        for name in names {
            let pods = self.pods_of(&name);
            let share = total / i64::try_from(pods.len().max(1)).unwrap();
            for pod in pods.iter().map(|pod| Arc::clone(&pod.name)) {
                if let Some(age) = stale_for {
                    usage.stale.push(StaleSample { pod, age });
                    continue;
                }
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
        self.metrics_call().await;
        Err(Unavailable::new(Cause::NotRead, "no custom metrics here"))
    }

    async fn object_metric(&self, _: &ObjectRef, _: &MetricQuery<'_>) -> Result<i64, Unavailable> {
        Err(Unavailable::new(Cause::NotRead, "no custom metrics here"))
    }

    async fn external_metric(&self, _: &MetricQuery<'_>) -> Result<Vec<i64>, Unavailable> {
        self.metrics_call().await;
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
        self.call().await;
        self.state().accept_scale(target, replicas)?;
        self.record(format!("scale {} {replicas}", target.name));
        Ok(replicas)
    }

    async fn apply_hpa(&self, manifest: &Value) -> Result<Arc<HpaView>, ClusterError> {
        self.call().await;
        // Read first: a panic must not poison the state.
        let panics = self.state().poisons_writes;
        assert!(!panics, "poison");
        let version = &manifest["metadata"]["resourceVersion"];
        assert!(version.is_string(), "not conditional: {manifest}");
        let view = self.state().accept_hpa(manifest)?;
        self.record(format!(
            "hpa {} min {}",
            view.name, view.spec["minReplicas"]
        ));
        Ok(Arc::new(view))
    }

    async fn patch_hpa(
        &self,
        _: &str,
        name: &str,
        operations: &Value,
    ) -> Result<Arc<HpaView>, ClusterError> {
        self.call().await;
        let patched = self.state().accept_patch(name, operations)?;
        self.record(format!("patch hpa {name}"));
        Ok(Arc::new(patched))
    }

    async fn delete_hpa(&self, _: &str, name: &str, _: &str) -> Result<(), ClusterError> {
        self.call().await;
        self.state().accept_deletion(name)?;
        self.record(format!("delete hpa {name}"));
        Ok(())
    }
}

impl Cluster for FakeCluster {
    async fn changed(&self, _: OwnerKind) -> BTreeSet<ObjectKey> {
        std::future::pending().await
    }

    fn stale_autoscalers(&self, kind: OwnerKind, _: Option<&str>) -> Option<UnusableCopies> {
        self.stale_of(&[match kind {
            OwnerKind::Effective => "EffectiveHorizontalPodAutoscaler",
            OwnerKind::Federated => "FederatedHPA",
        }])
    }

    fn stale_predictions(&self) -> Option<UnusableCopies> {
        self.stale_of(&["TimeSeriesPrediction"])
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
                self.report_call(&ehpa.metadata).await;
                let name = ehpa.name_any();
                if let Some(ehpa) = self.state().autoscalers.get_mut(&name) {
                    ehpa.status = Some(stored(&status.common));
                }
                name
            }
            Autoscaler::Federated(fdhpa) => {
                self.report_call(&fdhpa.metadata).await;
                let name = fdhpa.name_any();
                if let Some(fdhpa) = self.state().federated.get_mut(&name) {
                    fdhpa.status = Some(stored(&FederatedHPAStatus::from(status)));
                }
                name
            }
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
        self.report_call(about).await;
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
        let state = self.state();
        let shown = state.late.as_ref().unwrap_or(&state.federated);
        shown.values().cloned().map(Arc::new).collect()
    }

    fn every_federated(&self) -> Option<Vec<Arc<FederatedHPA>>> {
        let is_whole = self.state().unreadable.is_empty();
        is_whole.then(|| self.federated())
    }

    async fn write_ledger(&self, about: &FederatedHPA, ledger: &str) -> Result<(), ClusterError> {
        let name = &about.name_any();
        self.call().await;
        self.state().permit(&format!("status of {name}"))?;
        if let Some(fdhpa) = self.state().federated.get_mut(name) {
            let status = fdhpa.status.get_or_insert_default();
            status.ledger = Some(ledger.to_owned());
        }
        self.record(format!("ledger {name}"));
        Ok(())
    }

    async fn patch_federated(
        &self,
        _: &str,
        name: &str,
        operations: &Value,
    ) -> Result<(), ClusterError> {
        let finalizers = operations.as_array().unwrap().iter().rfind(|operation| {
            let path = operation["path"].as_str().unwrap();
            path.starts_with("/metadata/finalizers") && operation["op"] != "test"
        });
        let value = finalizers.map(|operation| operation["value"].clone());
        self.state().accept_finalizers(name, value);
        self.record(format!("finalizers {name}"));
        Ok(())
    }

    async fn object(&self, target: &ScaleTarget) -> Result<Value, ClusterError> {
        let object = self.state().objects.get(&target.name).cloned();
        object.ok_or_else(|| ClusterError::NotFound {
            what: target.to_string(),
        })
    }
}

impl Member for FakeCluster {
    fn capacity(&self, _: &ScaleTarget, _: &str, _: &PodShape) -> Option<Estimate> {
        self.state().capacity.map(|replicas| Estimate {
            replicas: Replicas::new(replicas),
            is_soft: false,
        })
    }

    fn unschedulable(
        &self,
        _: &ScaleTarget,
        _: &str,
        _: Replicas,
    ) -> Result<(Replicas, Option<Timestamp>), ClusterError> {
        let (count, since) = self.state().unschedulable;
        Ok((Replicas::new(count), since))
    }

    async fn replicas_written_by(&self, _: &ScaleTarget) -> Result<Option<String>, ClusterError> {
        self.call().await;
        Ok(self.state().writer.clone())
    }

    async fn placed_for(&self, target: &ScaleTarget) -> Result<Option<String>, ClusterError> {
        self.call().await;
        let state = self.state();
        let object = state.objects.get(&target.name);
        let annotation = "/metadata/annotations/autoscaling.foretide.io~1fleet-uid";
        let uid = object.and_then(|object| object.pointer(annotation)?.as_str());
        Ok(uid.map(str::to_owned))
    }

    async fn place(&self, manifest: &Value) -> Result<(), ClusterError> {
        self.call().await;
        let name = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        self.state().accept_workload(&name, manifest);
        self.record(format!("place {name}"));
        Ok(())
    }

    async fn remove(&self, target: &ScaleTarget, _: &str) -> Result<(), ClusterError> {
        self.call().await;
        self.state().accept_removal(&target.name);
        self.record(format!("remove {}", target.name));
        Ok(())
    }
}
