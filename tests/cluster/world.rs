//! A world for one scenario: a cluster with our manifests applied, and controllers to run in it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use foretide::{
    app,
    clock::Clock,
    config::{Config, KubeAccess, ScopeArg},
    domain::{cron::Zone, hpa::Settings},
    telemetry::{Telemetry, start_logging},
};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::SignedDuration;
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use kube::{Api, Client};
use rig::{AuditEvent, Cluster, ClusterOptions, HpaFlags, eventually};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// How long a step of a scenario may take at most.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// The user that the API server sees our requests come from.
const CONTROLLER_USER: &str = "system:serviceaccount:foretide-system:foretide-controller";
/// The namespace of the scenarios' objects.
pub const NAMESPACE: &str = "default";

/// A cluster that is ready for Foretide.
pub struct World {
    pub cluster: Cluster,
    pub client: Client,
    kubeconfig: PathBuf,
    flags: HpaFlags,
}

/// A controller that runs until it is dropped.
pub struct Controller {
    pub telemetry: Arc<Telemetry>,
    task: JoinHandle<()>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    /// Starts a cluster and applies `crds/` and `deploy/`, as a user would.
    pub async fn start(options: ClusterOptions) -> Self {
        start_logging(
            option_env!("FORETIDE_TEST_LOG").unwrap_or("foretide=debug,warn"),
            false,
        );
        let flags = options.hpa.clone();
        let cluster = Cluster::start(options).await.unwrap();
        let client = cluster.client();
        for (_, yaml) in foretide_crds::manifests() {
            cluster.apply(yaml).await.unwrap();
        }
        let deploy = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy");
        for file in ["10-namespace.yaml", "20-controller-rbac.yaml", "21-user-rbac.yaml"] {
            cluster.apply(&std::fs::read_to_string(deploy.join(file)).unwrap()).await.unwrap();
        }
        let kubeconfig = cluster
            .service_account_kubeconfig("foretide-system", "foretide-controller")
            .await
            .unwrap();
        Self { cluster, client, kubeconfig, flags }
    }

    /// The configuration of a controller with the rights of `deploy/`, which syncs every second of
    /// its clock and knows the flags of this cluster's controller manager.
    pub fn config(&self) -> Config {
        let span = |duration: Duration| SignedDuration::try_from(duration).unwrap();
        Config {
            access: KubeAccess::Kubeconfig { path: self.kubeconfig.clone(), context: None },
            namespaces: Vec::new(),
            prometheus: None,
            promql_scope: ScopeArg::Namespace,
            listen: "127.0.0.1:0".parse().unwrap(),
            sync_period: SignedDuration::from_secs(1),
            local_zone: Zone::utc(),
            settings: Settings {
                downscale_stabilization: span(self.flags.downscale_stabilization),
                cpu_initialization_period: span(self.flags.cpu_initialization_period),
                initial_readiness_delay: span(self.flags.initial_readiness_delay),
                ..Settings::default()
            },
        }
    }

    /// The flags of this cluster's HPA controller.
    pub const fn hpa_flags(&self) -> &HpaFlags {
        &self.flags
    }

    /// The identity of a controller, for one that runs as a process.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs a controller.
    pub fn run(&self, config: Config, clock: Clock) -> Controller {
        let telemetry = Arc::new(Telemetry::default());
        let seen = Arc::clone(&telemetry);
        let task = tokio::spawn(async move {
            let outcome = app::run_with(config, clock, seen, std::future::pending()).await;
            panic!("the controller ended: {outcome:?}");
        });
        Controller { telemetry, task }
    }

    /// Applies manifests as a user would.
    pub async fn apply(&self, yaml: &str) {
        self.cluster.apply(yaml).await.unwrap();
    }

    /// A Deployment of one container with a CPU request of 200m; its pods use `cpu`.
    pub async fn deployment(&self, name: &str, replicas: u32, cpu: &str) {
        let manifest = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": {
                        "labels": { "app": name },
                        "annotations": { rig::CPU_ANNOTATION: cpu },
                    },
                    "spec": { "containers": [{
                        "name": "app", "image": "app:1",
                        "resources": { "requests": { "cpu": "200m" } },
                    }] },
                },
            },
        });
        self.cluster.apply(&manifest.to_string()).await.unwrap();
    }

    pub fn ehpas(&self) -> Api<EffectiveHorizontalPodAutoscaler> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn hpas(&self) -> Api<HorizontalPodAutoscaler> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// `spec.replicas` of a Deployment.
    pub async fn replicas(&self, name: &str) -> i32 {
        let deployment = self.deployments().get(name).await.unwrap();
        deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1)
    }

    /// Waits until a Deployment has a count that `wanted` accepts, pods ready.
    pub async fn ready(&self, name: &str, what: &str, wanted: impl Fn(i32) -> bool) -> i32 {
        eventually(PATIENCE, &format!("{name} has {what} ready replicas"), || async {
            let deployment = self.deployments().get(name).await.map_err(|error| error.to_string())?;
            let asked = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
            let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or(0);
            if wanted(asked) && asked == ready { Ok(asked) } else { Err(format!("{ready} of {asked}")) }
        })
        .await
    }

    /// Waits until the status of an autoscaler is as `wanted` says.
    pub async fn status<T>(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> Option<T>,
    ) -> T {
        eventually(PATIENCE, &format!("{name} shows {what}"), || async {
            let ehpa = self.ehpas().get(name).await.map_err(|error| error.to_string())?;
            let status = serde_json::to_value(ehpa.status).map_err(|error| error.to_string())?;
            wanted(&status).ok_or_else(|| without_history(&status))
        })
        .await
    }

    /// What our controller asked of the API server so far.
    pub fn requests(&self) -> Vec<AuditEvent> {
        let mut events = self.cluster.audit().unwrap();
        events.retain(|event| event.user == CONTROLLER_USER);
        events
    }

    /// Fails if the API server ever refused the controller a right.
    pub fn assert_nothing_forbidden(&self) {
        let forbidden: Vec<_> =
            self.requests().into_iter().filter(|event| event.code == 403).collect();
        assert!(forbidden.is_empty(), "rights are missing in deploy/: {forbidden:#?}");
    }
}

fn without_history(status: &Value) -> String {
    let mut status = status.clone();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("history");
    }
    status.to_string()
}
