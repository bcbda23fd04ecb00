//! Compares our observed proposal with the real HPA controller: the same count at every step of a scripted load.
//!
//! Each subject is a Deployment with one metric. Its script gives the values of every step and the count that the
//! algorithm computes from them. The child HPA must settle there, and our proposal must be equal.

use std::time::Duration;

use foretide_domain::quantity::Quantity;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use rig::{
    ClusterOptions, Component, FakeMetrics, MetricsApi, NodeSize, PodUsage, Reading, eventually,
};
use serde_json::{Value, json};

use crate::world::{Controller, NAMESPACE, TIMEOUT, World};

/// The syncs of each workload in which a new value is read and the status is written.
const SYNCS_OF_A_STEP: u64 = 3;
/// The initial replicas of every subject, and its `minReplicas`.
const START: u32 = 2;
/// `maxReplicas` of every subject.
const MAX: u32 = 12;

/// A Deployment under one metric.
struct Subject {
    name: &'static str,
    /// CPU request of its one container.
    request: &'static str,
    /// The node that its pods run on.
    node: &'static str,
    metric: Value,
    behavior: Option<Value>,
    script: Vec<Step>,
}

/// One step of a script.
struct Step {
    load: Load,
    /// The count where both settle.
    settles: i32,
    /// Our observed proposal at that count, before the bounds.
    proposal: i32,
    /// The value that the child then reports.
    reading: &'static str,
}

/// The metric of a subject from this step on. Pods created later have no value.
enum Load {
    /// Every running pod has this value.
    Each(&'static str),
    /// The first running pods by name have this value, the others none.
    First(usize, &'static str),
    /// The last pod by name stops being ready; the others have this value.
    LastUnready(&'static str),
    /// The series of a metric that is not about pods.
    Series(&'static [&'static str]),
    /// The series of a metric that is not about pods, while the last pod by name stops being ready.
    SeriesAndLastUnready(&'static [&'static str]),
}

const fn step(load: Load, settles: i32, proposal: i32, reading: &'static str) -> Step {
    Step {
        load,
        settles,
        proposal,
        reading,
    }
}

fn subject(name: &'static str, metric: Value, script: Vec<Step>) -> Subject {
    Subject {
        name,
        request: "20m",
        node: "node-1",
        metric,
        behavior: None,
        script,
    }
}

fn average(value: &str) -> Value {
    json!({ "type": "AverageValue", "averageValue": value })
}

fn container_cpu() -> Value {
    let target = json!({ "type": "Utilization", "averageUtilization": 50 });
    json!({
        "type": "ContainerResource",
        "containerResource": { "name": "cpu", "container": "app", "target": target },
    })
}

fn of_service(metric: &str, target: &Value) -> Value {
    json!({ "type": "Object", "object": {
        "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "front" },
        "metric": { "name": metric },
        "target": target,
    } })
}

fn external(metric: &str, target: &Value) -> Value {
    let chosen = json!({ "name": metric, "selector": { "matchLabels": { "counts": "yes" } } });
    json!({ "type": "External", "external": { "metric": chosen, "target": target } })
}

/// The subjects of the fake metric APIs. "Missing" pods have no value; "unready" pods do not count upwards; a scale-up
/// without `behavior` at most doubles.
fn subjects() -> Vec<Subject> {
    use Load::{Each, First, LastUnready, Series, SeriesAndLastUnready};
    let plain = json!({ "type": "Value", "value": "100" });
    vec![
        subject(
            "container",
            container_cpu(),
            vec![
                step(Each("10m"), 2, 2, "50"),
                // 1.7 x 2; then two have no value: 34 of 80 is 42 %, which is the other direction.
                step(Each("17m"), 4, 4, "85"),
                step(Each("10m"), 4, 4, "50"),
                // 20 % of three; the pod without a value counts as 100 %: 32 of 80, 0.8 x 4.
                step(First(3, "4m"), 4, 4, "20"),
                step(Each("2m"), 2, 1, "10"),
                step(Each("17m"), 4, 4, "85"),
                // 95 %, but the unready pod counts as idle: 57 of 80 is 71 %, 1.42 x 4; then 57 of 120.
                step(LastUnready("19m"), 6, 6, "95"),
            ],
        ),
        Subject {
            request: "5",
            node: "node-0",
            // Three pods fit on the node; the others stay pending and count as idle.
            ..subject(
                "wide",
                container_cpu(),
                vec![
                    step(Each("2500m"), 2, 2, "50"),
                    step(Each("5"), 4, 4, "100"),
                    step(Each("5"), 6, 6, "100"),
                    // 0.4 x 3 that run, and further down in the same way.
                    step(Each("1"), 2, 1, "20"),
                ],
            )
        },
        subject(
            "memory",
            json!({ "type": "Resource", "resource": { "name": "memory", "target": average("100Mi") } }),
            vec![
                step(Each("100Mi"), 2, 2, "100Mi"),
                step(Each("160Mi"), 4, 4, "160Mi"),
                step(Each("104Mi"), 4, 4, "104Mi"),
                step(Each("50Mi"), 2, 1, "50Mi"),
            ],
        ),
        subject(
            "pods",
            json!({ "type": "Pods", "pods": { "metric": { "name": "rate" }, "target": average("10") } }),
            vec![
                step(Each("10"), 2, 2, "10"),
                // Doubled to 4, then 60 over 4 is 15: 6, and 60 over 6 is the target.
                step(Each("30"), 6, 6, "30"),
                step(Each("5"), 2, 1, "5"),
                // Readiness does not matter to this type, so the unready pod has its reading too.
                step(LastUnready("20"), 4, 4, "20"),
                step(First(3, "9500m"), 4, 4, "9500m"),
            ],
        ),
        subject(
            "object-value",
            of_service("object-value", &plain),
            vec![
                step(Series(&["100"]), 2, 2, "100"),
                step(Series(&["250"]), 12, 30, "250"),
                step(Series(&["105"]), 12, 12, "105"),
                step(Series(&["40"]), 2, 1, "40"),
                // Only ready pods are multiplied.
                step(SeriesAndLastUnready(&["250"]), 12, 28, "250"),
            ],
        ),
        subject(
            "object-average",
            of_service("object-average", &average("10")),
            vec![
                step(Series(&["20"]), 2, 2, "10"),
                step(Series(&["75"]), 8, 8, "9375m"),
                step(Series(&["31"]), 4, 4, "7750m"),
                step(SeriesAndLastUnready(&["120"]), 12, 12, "10"),
            ],
        ),
        subject(
            "external-value",
            external("external-value", &plain),
            vec![
                step(Series(&["60", "40"]), 2, 2, "100"),
                step(Series(&["100", "50"]), 12, 18, "150"),
                step(Series(&["90"]), 12, 12, "90"),
                step(Series(&["0"]), 2, 0, "0"),
            ],
        ),
        Subject {
            behavior: Some(json!({
                "scaleUp": { "policies": [{ "type": "Pods", "value": 3, "periodSeconds": 4 }] },
                "scaleDown": { "stabilizationWindowSeconds": 6 },
            })),
            ..subject(
                "external-average",
                external("external-average", &average("10")),
                vec![
                    step(Series(&["12", "8"]), 2, 2, "10"),
                    step(Series(&["80", "15"]), 10, 10, "9500m"),
                    step(Series(&["36"]), 4, 4, "9"),
                    step(Series(&["300"]), 12, 30, "25"),
                ],
            )
        },
    ]
}

fn named<'a>(subjects: &'a [Subject], name: &str) -> &'a Subject {
    let mut all = subjects.iter();
    all.find(|subject| subject.name == name).unwrap()
}

impl Subject {
    fn deployment(&self) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": self.name, "namespace": NAMESPACE },
            "spec": {
                "replicas": START,
                "selector": { "matchLabels": { "app": self.name } },
                "template": {
                    "metadata": { "labels": { "app": self.name } },
                    "spec": {
                        "nodeSelector": { "kubernetes.io/hostname": self.node },
                        "containers": [{
                            "name": "app", "image": "app:1",
                            "resources": { "requests": { "cpu": self.request } },
                        }],
                    },
                },
            },
        })
    }

    fn autoscaler(&self) -> Value {
        let mut spec = json!({
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": self.name },
            "minReplicas": START,
            "maxReplicas": MAX,
            "metrics": [self.metric],
        });
        if let Some(behavior) = &self.behavior {
            spec["behavior"] = behavior.clone();
        }
        json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": { "name": self.name, "namespace": NAMESPACE },
            "spec": spec,
        })
    }

    /// Starts pods and sets the values of the first step, before there is any autoscaler.
    async fn prepare(&self, stage: &Stage<'_>) {
        stage.world.apply(&self.deployment().to_string()).await;
        stage.world.ready(self.name, "all", |_| true).await;
        stage.set(self, &self.script[0].load).await;
        stage.world.apply(&self.autoscaler().to_string()).await;
    }

    /// Sets each further load and compares, and again after `syncs`: the first answer may be to the previous load.
    async fn perform(&self, stage: &Stage<'_>, controller: &Controller, syncs: u64) {
        for step in &self.script[1..] {
            stage.set(self, &step.load).await;
            stage.settled(self, step).await;
            controller.further_syncs(syncs).await;
            stage.settled(self, step).await;
        }
    }
}

/// The world in which the scripts run.
struct Stage<'a> {
    world: &'a World,
    fake: FakeMetrics,
}

impl Stage<'_> {
    async fn pods(&self, subject: &Subject) -> Vec<Pod> {
        let api: Api<Pod> = Api::namespaced(self.world.client.clone(), NAMESPACE);
        let chosen = ListParams::default().labels(&format!("app={}", subject.name));
        let mut pods = api.list(&chosen).await.unwrap().items;
        pods.retain(|pod| {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        });
        pods.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        pods
    }

    async fn set(&self, subject: &Subject, load: &Load) {
        match load {
            Load::Each(value) => self.set_pods(subject, usize::MAX, value).await,
            Load::First(count, value) => self.set_pods(subject, *count, value).await,
            Load::Series(values) => self.set_total(subject, values),
            Load::LastUnready(value) => {
                self.make_last_unready(subject).await;
                self.set_pods(subject, usize::MAX, value).await;
            }
            Load::SeriesAndLastUnready(values) => {
                self.make_last_unready(subject).await;
                self.set_total(subject, values);
            }
        }
    }

    async fn set_pods(&self, subject: &Subject, count: usize, value: &str) {
        for (position, pod) in self.pods(subject).await.into_iter().enumerate() {
            let name = pod.metadata.name.unwrap();
            match subject.name {
                "pods" if position < count => {
                    self.fake
                        .set_pod_metric(NAMESPACE, &name, "rate", Reading::new(value));
                }
                "pods" => self.fake.remove_pod_metric(NAMESPACE, &name, "rate"),
                _ if position >= count => self.fake.remove_pod_usage(NAMESPACE, &name),
                "memory" => {
                    let usage = PodUsage {
                        containers: [("app".to_owned(), ("1m".to_owned(), value.to_owned()))]
                            .into(),
                    };
                    self.fake.set_pod_usage(NAMESPACE, &name, usage);
                }
                // The metric does not select the other container.
                _ => {
                    let usage = PodUsage::cpu("app", value).with("proxy", "7", "1Mi");
                    self.fake.set_pod_usage(NAMESPACE, &name, usage);
                }
            }
        }
    }

    fn set_total(&self, subject: &Subject, values: &[&str]) {
        if subject.name.starts_with("object") {
            let front = ("services", "front");
            self.fake
                .set_object_metric(NAMESPACE, front, subject.name, Reading::new(values[0]));
            return;
        }
        let series = values
            .iter()
            .map(|value| Reading::new(value).label("counts", "yes"));
        let other = Reading::new("9000").label("counts", "no");
        self.fake
            .set_external(NAMESPACE, subject.name, series.chain([other]).collect());
    }

    /// Marks the last pod as a running one that was never ready.
    async fn make_last_unready(&self, subject: &Subject) {
        let api: Api<Pod> = Api::namespaced(self.world.client.clone(), NAMESPACE);
        let pod = self.pods(subject).await.pop().unwrap();
        let started = pod.status.unwrap().start_time.unwrap();
        let unready = json!({ "type": "Ready", "status": "False", "lastTransitionTime": started });
        let patch = Patch::Strategic(json!({ "status": { "conditions": [unready] } }));
        let name = pod.metadata.name.unwrap();
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Waits until the child has read the value of this step and settled, and our status requests the same count.
    async fn settled(&self, subject: &Subject, step: &Step) {
        let what = format!(
            "{} settles at {} by {}",
            subject.name, step.settles, step.reading
        );
        eventually(TIMEOUT, &what, || async {
            let observed = Observed::of(self.world, subject.name).await?;
            observed
                .is(step)
                .then_some(())
                .ok_or_else(|| format!("{observed:?}"))
        })
        .await;
    }
}

/// Both sides of one subject: the child and our status.
#[derive(Debug)]
pub(crate) struct Observed {
    replicas: i32,
    child_current: i32,
    child_desired: i32,
    child_reading: String,
    our_desired: Option<i64>,
    our_proposal: Option<i64>,
}

impl Observed {
    pub(crate) async fn of(world: &World, name: &str) -> Result<Self, String> {
        let hpa = world
            .hpas()
            .get(&format!("ehpa-{name}"))
            .await
            .map_err(|no| no.to_string())?;
        let child = hpa.status.ok_or("no status of the child yet")?;
        let ehpa = world.ehpas().get(name).await.map_err(|no| no.to_string())?;
        let decision = ehpa
            .status
            .and_then(|status| status.decision)
            .ok_or("no decision yet")?;
        let decision = serde_json::to_value(decision).map_err(|no| no.to_string())?;
        let metrics = serde_json::to_value(&child.current_metrics).map_err(|no| no.to_string())?;
        Ok(Self {
            replicas: world.replicas(name).await,
            child_current: child.current_replicas.unwrap_or(0),
            child_desired: child.desired_replicas,
            child_reading: reading(&metrics).ok_or_else(|| format!("no metric: {metrics}"))?,
            our_desired: decision["desired"].as_i64(),
            our_proposal: decision["proposals"][0]["replicas"].as_i64(),
        })
    }

    fn is(&self, step: &Step) -> bool {
        let number = |text: &str| text.parse::<Quantity>().unwrap().milli_value().value;
        self.agrees_on(step.settles)
            && number(&self.child_reading) == number(step.reading)
            && self.our_proposal == Some(i64::from(step.proposal))
    }

    /// Returns true if the target has this count, and both sides ask for it.
    pub(crate) fn agrees_on(&self, count: i32) -> bool {
        [self.replicas, self.child_current, self.child_desired] == [count; 3]
            && self.our_desired == Some(i64::from(count))
    }
}

/// The value that the first of some metric statuses reports: percent before an average.
fn reading(metrics: &Value) -> Option<String> {
    let mut blocks = metrics.get(0)?.as_object()?.values();
    let current = blocks.find_map(|block| block.get("current"))?;
    let percent = current.get("averageUtilization").and_then(Value::as_i64);
    let text = |name: &str| Some(current.get(name)?.as_str()?.to_owned());
    percent
        .map(|n| n.to_string())
        .or_else(|| text("averageValue"))
        .or_else(|| text("value"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_metric_gives_the_count_of_the_real_hpa_controller() {
    let options = ClusterOptions::named("conformance")
        .nodes(2, NodeSize::new("16", "64Gi", 110))
        .pod_startup(Duration::from_millis(500));
    let world = World::start(options).await;
    let apis = [
        MetricsApi::Resource,
        MetricsApi::Custom,
        MetricsApi::External,
    ];
    let fake = FakeMetrics::start(&world.cluster, &apis).await.unwrap();
    let stage = Stage {
        world: &world,
        fake,
    };
    let subjects = subjects();
    join_all(subjects.iter().map(|subject| subject.prepare(&stage))).await;

    // Faster than the HPA controller, so that every value it reads is one that we read.
    let controller = Controller::run(world.config());
    for subject in &subjects {
        stage.settled(subject, &subject.script[0]).await;
    }
    let syncs = SYNCS_OF_A_STEP * subjects.len() as u64;
    let performed = subjects
        .iter()
        .map(|subject| subject.perform(&stage, &controller, syncs));
    join_all(performed).await;
    drop(controller);

    // A controller without tolerance is detected: our count is not an echo of the child's.
    let mut mistaken = world.config();
    mistaken.settings.tolerance = 0.0;
    let _controller = Controller::run(mistaken);
    let queue = named(&subjects, "external-value");
    stage.set(queue, &Load::Series(&["106"])).await;
    eventually(TIMEOUT, "a proposal above the child's count", || async {
        let observed = Observed::of(&world, queue.name).await?;
        let differs = observed.child_reading == "106"
            && [observed.child_current, observed.child_desired] == [2, 2]
            && observed.our_proposal == Some(3);
        differs.then_some(()).ok_or_else(|| format!("{observed:?}"))
    })
    .await;
    world.assert_nothing_forbidden();
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_from_the_real_metrics_server_gives_the_count_of_the_real_hpa_controller() {
    let options = ClusterOptions::named("metrics-server").with(Component::MetricsServer);
    let world = World::start(options).await;
    world.deployment("web", 2, "100m").await;
    let target = json!({ "type": "Utilization", "averageUtilization": 50 });
    let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
    let web = Subject {
        metric,
        ..subject("web", Value::Null, Vec::new())
    };
    world.apply(&web.autoscaler().to_string()).await;
    let _controller = Controller::run(world.config());
    // The pods share the load: 0.1 cores each are the target.
    for (cores, expected) in [(0.2, 2), (0.8, 8), (0.3, 3)] {
        let what = format!("{cores} cores settle at {expected}");
        eventually(TIMEOUT, &what, || async {
            world
                .cluster
                .share_cpu(NAMESPACE, "app=web", cores)
                .await
                .map_err(|no| no.to_string())?;
            let observed = Observed::of(&world, "web").await?;
            let all = [
                observed.replicas,
                observed.child_current,
                observed.child_desired,
            ];
            let percent: f64 = observed
                .child_reading
                .parse()
                .map_err(|_| format!("{observed:?}"))?;
            let there = (percent - cores / f64::from(expected) * 500.0).abs() < 1.5;
            let ours =
                [observed.our_desired, observed.our_proposal] == [Some(i64::from(expected)); 2];
            (all == [expected; 3] && there && ours)
                .then_some(())
                .ok_or_else(|| format!("{observed:?}"))
        })
        .await;
    }
    world.assert_nothing_forbidden();
}
