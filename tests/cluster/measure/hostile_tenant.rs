//! A tenant with `edit` in one namespace creates and changes objects at every limit, beside a hundred autoscalers of
//! another namespace, while the controller has the memory of `deploy/` and one CPU: restarts, memory, and how much later
//! the decisions about the others come.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::SignedDuration;
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, Patch, PatchParams},
    core::{GroupVersionKind, TypeMeta},
};
use rig::{
    ClusterOptions, Component, FakeMetrics, History, MetricsApi, NodeSize, Prometheus, Reading,
    Series, Span as Instants, eventually,
};
use serde_json::{Value, json};

use super::{
    decisions::{Object, Span},
    hostile::{self, AUTOSCALERS, DEPLOYMENTS, FLOOD, TENANT},
    machine::{CpuTime, Limits},
    now,
    process::{Launch, Process},
    until,
};
use crate::world::{NAMESPACE, TIMEOUT, World};

/// The others, in namespace `default`.
const OTHERS: usize = 100;
/// Writes of the tenant per second: more, and the API server itself is late on two cores.
const WRITES: u64 = 5;
/// Series of the tenant's metric.
const SERIES: usize = 20_000;
/// How long the tenant writes, unless the environment says another number of `MINUTES`.
const MINUTES: i64 = 10;

/// The controller, started again when it ends.
struct Supervised {
    launch: Launch,
    limits: Limits,
    process: Process,
    restarts: u32,
    peak_resident: u64,
}

/// What the API server answered to the tenant, by what was written.
type Answers = Arc<Mutex<BTreeMap<String, usize>>>;

#[ignore = "measures for a quarter of an hour; run it with `just hostile-tenant`"]
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_tenant_beside_a_hundred_others() {
    let options = ClusterOptions::named("hostile")
        .without(Component::KubeControllerManager)
        .without(Component::KubeScheduler)
        .without(Component::Kwok)
        .nodes(0, NodeSize::new("1", "1Gi", 1));
    let world = World::start(options).await;
    let metrics = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    let prometheus = Prometheus::start(&history()).await.unwrap();
    let others = create_others(&world, &metrics).await;
    let tenant = admit_tenant(&world).await;

    let flags = ["--prometheus".to_owned(), prometheus.url()].to_vec();
    let mut controller = Supervised::start(Launch::new(world.kubeconfig(), flags));
    controller.settle(&others).await;
    let quiet = controller.run_for(SignedDuration::from_secs(150)).await;
    println!("settled; peak resident {} MiB", controller.peak_resident);
    let answers = Answers::default();
    let attack = tokio::spawn(write(tenant, Arc::clone(&answers)));
    let (machine, used) = (CpuTime::now(), controller.process.cpu_seconds());
    let attacked = controller
        .run_for(SignedDuration::from_mins(minutes()))
        .await;
    attack.abort();

    println!("the tenant's writes: {:#?}", answers.lock().unwrap());
    println!("warnings: {:#?}", controller.launch.decisions().warnings);
    let used = controller.process.cpu_seconds() - used;
    println!(
        "machine busy: {} %; CPU of the controller: {used:.0} s",
        machine.busy_percent()
    );
    controller.print_table(&others, (quiet, attacked));
    assert_eq!(controller.restarts, 0);
    assert!(controller.peak_resident <= memory_limit());
    let without = controller
        .launch
        .decisions()
        .without_metric(&others, attacked);
    assert_eq!(without, 0, "decisions without their metric");
}

// === impl Supervised ===

impl Supervised {
    fn start(launch: Launch) -> Self {
        // Without limits nothing would be shown about them.
        let limits = Limits::new(memory_limit()).unwrap();
        let process = Self::process(&launch, &limits);
        Self {
            launch,
            limits,
            process,
            restarts: 0,
            peak_resident: 0,
        }
    }

    fn process(launch: &Launch, limits: &Limits) -> Process {
        let process = launch.start();
        limits.hold(process.id()).unwrap();
        process
    }

    async fn settle(&self, others: &[Object]) {
        eventually(TIMEOUT, "every object has its decisions", || async {
            let decided = self.launch.decisions().decided(others, 3);
            (decided == others.len()).then_some(()).ok_or(decided)
        })
        .await;
    }

    async fn run_for(&mut self, length: SignedDuration) -> Span {
        let from = now();
        while now() < from + length {
            tokio::select! {
                () = until(now() + SignedDuration::from_secs(1)) => {}
                status = self.process.ended() => {
                    println!("the controller ended: {status}");
                    self.restarts += 1;
                    self.process = Self::process(&self.launch, &self.limits);
                }
            }
            self.peak_resident = self.peak_resident.max(self.process.peak_resident());
        }
        Span { from, to: now() }
    }

    fn print_table(&self, others: &[Object], (quiet, attacked): (Span, Span)) {
        let decisions = self.launch.decisions();
        let (before, during) = (
            decisions.ages(others, quiet),
            decisions.ages(others, attacked),
        );
        let (undisturbed, p99) = (before.percentile(99), during.percentile(99));
        println!("| | |");
        println!("|---|---|");
        println!("| restarts | {} |", self.restarts);
        let limit = memory_limit();
        println!(
            "| peak resident | {} MiB of {limit} MiB |",
            self.peak_resident
        );
        println!(
            "| p99 age of the others' decisions, undisturbed | {undisturbed:.2} s of {} |",
            before.count()
        );
        println!(
            "| p99 age beside the tenant | {p99:.2} s of {}, worst {:.2} s |",
            during.count(),
            during.worst()
        );
        let without = decisions.without_metric(others, attacked);
        println!("| decisions without their metric | {without} |");
        println!("| ratio | **{:.3}** |", p99 / undisturbed);
    }
}

/// The memory limit of `deploy/`, in MiB.
fn memory_limit() -> u64 {
    let manifest = include_str!("../../../deploy/30-controller.yaml");
    let limits = manifest.split("limits:").nth(1).unwrap();
    let memory = limits.split("memory:").nth(1).unwrap();
    let memory = memory.split_whitespace().next().unwrap();
    memory.strip_suffix("Mi").unwrap().parse().unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person chooses how long the measurement runs"
)]
fn minutes() -> i64 {
    let chosen = std::env::var("MINUTES").ok();
    chosen
        .and_then(|minutes| minutes.parse().ok())
        .unwrap_or(MINUTES)
}

/// The tenant's metric with many series, and one for each fifth of the others.
fn history() -> History {
    let now = now().as_duration().as_secs_f64();
    let span = |days: f64, step: f64| Instants {
        start: now - days * 86_400.0,
        end: now + 7200.0,
        step,
    };
    let mut history = History::new();
    for n in 0..SERIES {
        let labels = [("namespace", TENANT), ("series", &*format!("s{n}"))];
        history = history.gauge(FLOOD, Series::of(&labels, span(0.1, 300.0), |_| 1.0));
    }
    for n in (0..OTHERS).step_by(5) {
        let labels = [("namespace", NAMESPACE)];
        history = history.gauge(
            &format!("load_{n}"),
            Series::of(&labels, span(3.5, 60.0), |_| 5.0),
        );
    }
    history
}

fn deployment(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
            },
        },
    })
}

/// The others: each with a metric, every fifth with a forecast.
async fn create_others(world: &World, metrics: &FakeMetrics) -> Vec<Object> {
    let name = |n: usize| format!("web-{n}");
    for n in 0..OTHERS {
        let metric = format!("load_{n}");
        metrics.set_external(NAMESPACE, &metric, vec![Reading::new("5")]);
        let name = name(n);
        let mut spec = json!({
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
            "minReplicas": 1,
            "maxReplicas": 10,
            "mode": "Direct",
            "metrics": [{ "type": "External", "external": {
                "metric": { "name": metric },
                "target": { "type": "AverageValue", "averageValue": "10" },
            }}],
        });
        if n % 5 == 0 {
            spec["prediction"] = json!({
                "predictionWindowSeconds": 3600,
                "predictionAlgorithm": {
                    "algorithmType": "dsp",
                    "dsp": { "sampleInterval": "60s", "historyLength": "3d" },
                },
            });
        }
        let autoscaler = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": spec,
        });
        world.apply(&deployment(NAMESPACE, &name).to_string()).await;
        world.apply(&autoscaler.to_string()).await;
    }
    let object = |n| (NAMESPACE.to_owned(), name(n));
    (0..OTHERS).map(object).collect()
}

/// A client of the tenant, who may edit one namespace and has Deployments there.
async fn admit_tenant(world: &World) -> Client {
    world.cluster.namespace(TENANT).await.unwrap();
    // Without a controller manager the role `edit` is empty; these are its parts.
    for role in ["system:aggregate-to-edit", "ehpa-editor"] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": { "name": role, "namespace": TENANT },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT }],
        });
        world.apply(&binding.to_string()).await;
    }
    let deployments = (0..DEPLOYMENTS).map(|n| deployment(TENANT, &format!("web-{n}")).to_string());
    let applied = deployments.map(|manifest| async move { world.apply(&manifest).await });
    stream::iter(applied).buffer_unordered(8).count().await;
    world.cluster.client_as(TENANT, &["tenants"]).await.unwrap()
}

/// Writes hostile objects at a steady rate until it is aborted: every fourth is an HPA.
async fn write(tenant: Client, answers: Answers) {
    let mut beat = tokio::time::interval(Duration::from_millis(1000 / WRITES));
    for n in 0.. {
        beat.tick().await;
        let (form, object) = if n % 4 == 3 {
            let at = n / 4;
            let object = hostile::forged_hpa(at % AUTOSCALERS, at / AUTOSCALERS);
            ("forged HPA", object)
        } else {
            let at = n / 4 * 3 + n % 4;
            hostile::autoscaler(at % AUTOSCALERS, at / AUTOSCALERS)
        };
        let (tenant, answers) = (tenant.clone(), Arc::clone(&answers));
        tokio::spawn(async move {
            let answer = apply(&tenant, object).await;
            *answers
                .lock()
                .unwrap()
                .entry(format!("{form}: {answer}"))
                .or_default() += 1;
        });
    }
}

/// Applies an object; returns what the API server answered.
async fn apply(client: &Client, object: Value) -> String {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types: &TypeMeta = object.types.as_ref().unwrap();
    let kind = GroupVersionKind::try_from(types).unwrap();
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), TENANT, &resource);
    let name = object.metadata.name.clone().unwrap_or_default();
    let parameters = PatchParams::apply(TENANT).force();
    match api.patch(&name, &parameters, &Patch::Apply(&object)).await {
        Ok(_) => "accepted".to_owned(),
        Err(kube::Error::Api(status)) => {
            format!(
                "{} {}",
                status.code,
                status.message.chars().take(160).collect::<String>()
            )
        }
        Err(error) => error.to_string(),
    }
}
