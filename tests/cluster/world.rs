//! The environment of one scenario: a cluster with our manifests applied, and controllers to run in it.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use foretide::{
    api::validation::{CostLimits, TargetRules},
    app,
    clock::Clock,
    config::{Config, KubeAccess, MemberArgs, MetricsAuth, ScopeArg},
    machine::Machine,
    telemetry::{Telemetry, start_logging},
};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_domain::{cron::Zone, hpa::Settings};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::Deployment, authorization::v1::SubjectAccessReview,
    autoscaling::v2::HorizontalPodAutoscaler,
};
use kube::{
    Api, Client, Resource,
    api::{PostParams, WatchParams},
};
use rig::{AuditEvent, Change, Cluster, ClusterOptions, HpaFlags, eventually, follow};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{process::Command, task::JoinHandle};

/// How long a step of a scenario may take at most.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);
/// The user name of our requests at the API server.
pub(crate) const CONTROLLER_USER: &str =
    "system:serviceaccount:foretide-system:foretide-controller";
/// The namespace of the scenarios' objects.
pub(crate) const NAMESPACE: &str = "default";
/// The large objects of a tenant: together longer than any response that is read.
pub(crate) const LARGE: usize = 300;

/// A cluster that is ready for Foretide.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    flags: HpaFlags,
}

/// A controller that runs until it is dropped.
pub(crate) struct Controller {
    pub(crate) telemetry: Arc<Telemetry>,
    task: JoinHandle<()>,
}

/// The values of a field over time, such as the replicas of a Deployment.
pub(crate) struct Counts {
    all: Arc<Mutex<Vec<i32>>>,
    task: JoinHandle<()>,
}

impl Controller {
    /// Runs a controller until it is dropped.
    pub(crate) fn run(config: Config, clock: Clock) -> Self {
        let telemetry = Arc::new(Telemetry::default());
        let seen = Arc::clone(&telemetry);
        let task = tokio::spawn(async move {
            let machine = Machine::system().with_clock(clock);
            let outcome = app::run_with(config, machine, seen, std::future::pending()).await;
            panic!("the controller exited: {outcome:?}");
        });
        Self { telemetry, task }
    }
}

impl Counts {
    /// Follows `spec.replicas` of a Deployment, from the count that it has now.
    pub(crate) async fn of(deployments: Api<Deployment>, name: &str) -> Self {
        let replicas = |deployment: &Deployment| deployment.spec.as_ref()?.replicas;
        Self::follow(deployments, name, replicas).await
    }

    /// Follows a count of an object, from its present value.
    pub(crate) async fn follow<K>(objects: Api<K>, name: &str, count: fn(&K) -> Option<i32>) -> Self
    where
        K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let task = tokio::spawn(follow(objects, only, move |change| {
            if let Change::Present(object) = change {
                seen.lock().unwrap().extend(count(&object));
            }
            ControlFlow::Continue(())
        }));
        let counts = Self { all, task };
        eventually(TIMEOUT, &format!("a first count of {name}"), || async {
            counts.all().first().copied().ok_or("nothing seen yet")
        })
        .await;
        counts
    }

    pub(crate) fn all(&self) -> Vec<i32> {
        self.all.lock().unwrap().clone()
    }

    pub(crate) fn lowest(&self) -> i32 {
        self.all().into_iter().min().unwrap_or_default()
    }

    /// The lowest and the highest count so far.
    pub(crate) fn range(&self) -> (i32, i32) {
        let most = self.all().into_iter().max();
        (self.lowest(), most.unwrap_or_default())
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    /// Starts a cluster and applies `crds/` and `deploy/`, as a user would.
    pub(crate) async fn start(options: ClusterOptions) -> Self {
        start_logging("foretide=debug,warn", false).unwrap();
        let flags = options.hpa.clone();
        let cluster = Cluster::start(options).await.unwrap();
        let client = cluster.client();
        let kubeconfig = install(&cluster).await;
        Self {
            cluster,
            client,
            kubeconfig,
            flags,
        }
    }

    /// The configuration of a controller with the permissions of `deploy/`, which syncs every second of its clock and
    /// knows the flags of this cluster's controller manager.
    pub(crate) fn config(&self) -> Config {
        config(&self.kubeconfig, &self.flags)
    }

    /// The flags of this cluster's HPA controller.
    pub(crate) const fn hpa_flags(&self) -> &HpaFlags {
        &self.flags
    }

    /// The kubeconfig of a controller that runs as a process.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs a controller.
    #[expect(clippy::unused_self, reason = "the world runs it, as a scenario says")]
    pub(crate) fn run(&self, config: Config, clock: Clock) -> Controller {
        Controller::run(config, clock)
    }

    /// Applies manifests as a user would.
    pub(crate) async fn apply(&self, yaml: &str) {
        self.cluster.apply(yaml).await.unwrap();
    }

    /// A Deployment of one container with a CPU request of 200m; its pods use `cpu`.
    pub(crate) async fn deployment(&self, name: &str, replicas: u32, cpu: &str) {
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

    pub(crate) fn ehpas(&self) -> Api<EffectiveHorizontalPodAutoscaler> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn hpas(&self) -> Api<HorizontalPodAutoscaler> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// `spec.replicas` of a Deployment.
    pub(crate) async fn replicas(&self, name: &str) -> i32 {
        let deployment = self.deployments().get(name).await.unwrap();
        deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1)
    }

    /// Waits until a Deployment has a count accepted by `wanted`, with all pods ready.
    pub(crate) async fn ready(&self, name: &str, what: &str, wanted: impl Fn(i32) -> bool) -> i32 {
        eventually(
            TIMEOUT,
            &format!("{name} has {what} ready replicas"),
            || async {
                let deployment = self
                    .deployments()
                    .get(name)
                    .await
                    .map_err(|error| error.to_string())?;
                let asked = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
                let ready = deployment
                    .status
                    .and_then(|status| status.ready_replicas)
                    .unwrap_or(0);
                if wanted(asked) && asked == ready {
                    Ok(asked)
                } else {
                    Err(format!("{ready} of {asked}"))
                }
            },
        )
        .await
    }

    /// Waits until `wanted` accepts the status of an autoscaler.
    pub(crate) async fn status<T>(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> Option<T>,
    ) -> T {
        eventually(TIMEOUT, &format!("{name} shows {what}"), || async {
            let ehpa = self
                .ehpas()
                .get(name)
                .await
                .map_err(|error| error.to_string())?;
            let status = serde_json::to_value(ehpa.status).map_err(|error| error.to_string())?;
            wanted(&status).ok_or_else(|| without_history(&status))
        })
        .await
    }

    /// The requests of our controller to the API server so far.
    pub(crate) fn requests(&self) -> Vec<AuditEvent> {
        let mut events = self.cluster.audit().unwrap();
        events.retain(|event| event.user == CONTROLLER_USER);
        events
    }

    /// Fails if the API server ever denied the controller a request.
    pub(crate) fn assert_nothing_forbidden(&self) {
        let forbidden: Vec<_> = self
            .requests()
            .into_iter()
            .filter(|event| event.code == 403)
            .collect();
        assert!(
            forbidden.is_empty(),
            "permissions are missing in deploy/: {forbidden:#?}"
        );
    }
}

/// Applies `crds/` and `deploy/` as a user would; returns the kubeconfig of the controller.
pub(crate) async fn install(cluster: &Cluster) -> PathBuf {
    for (_, yaml) in foretide_crds::manifests() {
        cluster.apply(yaml).await.unwrap();
    }
    let deploy = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy");
    for file in [
        "10-namespace.yaml",
        "20-controller-rbac.yaml",
        "21-user-rbac.yaml",
        "22-members-rbac.yaml",
    ] {
        let manifests = std::fs::read_to_string(deploy.join(file)).unwrap();
        cluster.apply(&manifests).await.unwrap();
    }
    cluster
        .service_account_kubeconfig("foretide-system", "foretide-controller")
        .await
        .unwrap()
}

/// Whether a user may do something, as the API server decides.
pub(crate) async fn may(client: &Client, user: &str, attributes: &Value) -> Result<bool, String> {
    let review = json!({ "spec": { "user": user, "resourceAttributes": attributes } });
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let reviewed = reviews.create(&PostParams::default(), &review).await;
    let reviewed = reviewed.map_err(|error| error.to_string())?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}

/// Creates Deployments without pods in a namespace, each nearly as large as the API allows.
pub(crate) async fn create_large(client: &Client, namespace: &str, count: usize) {
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let note = "x".repeat(250_000);
    let created = stream::iter(0..count).map(|n| {
        let name = format!("large-{n}");
        let deployment = json!({
            "metadata": { "name": name, "annotations": { "note": note } },
            "spec": {
                "replicas": 0,
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
                },
            },
        });
        let deployment = serde_json::from_value(deployment).unwrap();
        let deployments = &deployments;
        async move {
            deployments
                .create(&PostParams::default(), &deployment)
                .await
                .unwrap();
        }
    });
    created.buffer_unordered(8).collect::<()>().await;
}

/// Lets a clock run to a later time at once.
pub(crate) fn pass_to(clock: &Clock, at: Timestamp) {
    let passes = Duration::try_from(at.duration_since(clock.now()));
    clock.advance(passes.unwrap_or_default());
}

/// The configuration of a controller with these permissions, which syncs every second of its clock and knows the flags
/// of the controller managers around it.
pub(crate) fn config(kubeconfig: &Path, flags: &HpaFlags) -> Config {
    let span = |duration: Duration| SignedDuration::try_from(duration).unwrap();
    Config {
        targets: TargetRules::default(),
        object_metrics: true,
        page_memory: 16 << 20,
        cost_limits: CostLimits::default(),
        metrics_auth: MetricsAuth::Open,
        resource_matchers: None,
        access: KubeAccess::Kubeconfig {
            path: Some(kubeconfig.to_path_buf()),
            context: None,
        },
        namespaces: Vec::new(),
        prometheus: None,
        promql_scope: ScopeArg::Namespace,
        cluster_label: "cluster".to_owned(),
        prometheus_endpoints: BTreeMap::new(),
        members: MemberArgs::default(),
        adapter_config: None,
        election: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        sync_period: SignedDuration::from_secs(1),
        local_zone: Zone::utc(),
        settings: Settings {
            downscale_stabilization: span(flags.downscale_stabilization),
            cpu_initialization_period: span(flags.cpu_initialization_period),
            initial_readiness_delay: span(flags.initial_readiness_delay),
            ..Settings::default()
        },
    }
}

/// The released binary, started as `deploy/` does with this kubeconfig and the periods of [`config`].
pub(crate) fn binary(kubeconfig: &Path, flags: &HpaFlags) -> Command {
    let seconds = |span: Duration| format!("{}s", span.as_secs());
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretide"));
    command
        .arg("controller")
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--sync-period", "1s"])
        .args([
            "--hpa-downscale-stabilization",
            &seconds(flags.downscale_stabilization),
        ])
        .args([
            "--hpa-cpu-initialization-period",
            &seconds(flags.cpu_initialization_period),
        ])
        .args([
            "--hpa-initial-readiness-delay",
            &seconds(flags.initial_readiness_delay),
        ])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

fn without_history(status: &Value) -> String {
    let mut status = status.clone();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("history");
    }
    status.to_string()
}
