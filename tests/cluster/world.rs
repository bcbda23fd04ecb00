//! The environment of one scenario: a cluster with the manifests of Foretide, and controllers to run in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use foretide::{
    app,
    config::{Config, ConfigFile, MetricsAuth},
};
use foretide_api::ports::CertificateFiles;
use foretide_api::validation::TargetRules;
use foretide_base::{
    machine::Machine,
    telemetry::{Telemetry, start_logging},
};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_domain::{cron::Zone, hpa::Settings};
use foretide_kube::KubeAccess;
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::Deployment, authorization::v1::SubjectAccessReview,
    autoscaling::v2::HorizontalPodAutoscaler,
};
use kube::{Api, Client, api::PostParams};
use rig::{AuditEvent, Cluster, ClusterOptions, HpaFlags, Identity, Span, eventually};
use serde_json::{Value, json};
use tokio::{process::Command, task::JoinHandle};

/// The time limit of a step of a scenario.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);
/// The user name of the controller's requests at the API server.
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

impl Controller {
    /// Runs a controller until it is dropped.
    pub(crate) fn run(config: Config) -> Self {
        let telemetry = Arc::new(Telemetry::default());
        let seen = Arc::clone(&telemetry);
        let task = tokio::spawn(async move {
            let run = app::run(config, Machine::system(), seen, std::future::pending());
            let outcome = run.await;
            panic!("the controller exited: {outcome:?}");
        });
        Self { telemetry, task }
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

    /// The requests of the controller to the API server so far.
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

/// A folder with credentials, mounted like a Secret: it is removed with the value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("credentials-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file as the kubelet does: a reader finds either the old contents or the new ones.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, next) = (self.0.join(name), self.0.join(format!("{name}.next")));
        fs::write(&next, text).unwrap();
        fs::rename(&next, &path).unwrap();
        path
    }

    pub(crate) fn identity(&self, name: &str, identity: &Identity) -> CertificateFiles {
        CertificateFiles {
            certificate: self.write(&format!("{name}.crt"), &identity.certificate),
            key: self.write(&format!("{name}.key"), &identity.key),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970")]
pub(crate) fn seconds(at: Timestamp) -> f64 {
    at.as_second() as f64
}

/// The minutes of four days until now, and of an hour beyond.
pub(crate) fn four_days(now: Timestamp) -> Span {
    Span {
        start: seconds(now) - 4.0 * 86_400.0,
        end: seconds(now) + 3_600.0,
        step: 60.0,
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
        "fleets/rbac.yaml",
    ] {
        let manifests = std::fs::read_to_string(deploy.join(file)).unwrap();
        cluster.apply(&manifests).await.unwrap();
    }
    cluster
        .service_account_kubeconfig("foretide-system", "foretide-controller")
        .await
        .unwrap()
}

/// Returns whether a user may do something, as the API server decides.
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

/// The configuration of a controller with these permissions, which syncs every second of its clock and knows the flags
/// of the controller managers around it.
pub(crate) fn config(kubeconfig: &Path, flags: &HpaFlags) -> Config {
    let span = |duration: Duration| SignedDuration::try_from(duration).unwrap();
    Config {
        targets: TargetRules::default(),
        page_memory: 16 << 20,
        metrics_auth: MetricsAuth::Open,
        access: KubeAccess::Kubeconfig {
            path: Some(kubeconfig.to_path_buf()),
            context: None,
        },
        listen: "127.0.0.1:0".parse().unwrap(),
        sync_period: SignedDuration::from_secs(1),
        local_zone: Zone::utc(),
        settings: Settings {
            downscale_stabilization: span(flags.downscale_stabilization),
            cpu_initialization_period: span(flags.cpu_initialization_period),
            initial_readiness_delay: span(flags.initial_readiness_delay),
            ..Settings::default()
        },
        ..ConfigFile::default().config().unwrap()
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

/// The command of the optional servers, which a build of the workspace puts beside `foretide`.
pub(crate) fn servers() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_foretide")).with_file_name("foretide-servers")
}
