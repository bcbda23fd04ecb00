//! The HPA controller of a simulated cluster: the algorithm of upstream, checked by the vectors, on the objects of the
//! server.

use std::{collections::BTreeMap, sync::Arc};

use foretide_domain::{
    ReplicaBounds, Replicas, Scale,
    hpa::{
        Behavior, Hpa, Log, MetricSpec, PolicyKind, PolicySelect, ScalingPolicy, ScalingRules,
        Settings, Target,
    },
    observation::{
        Container, ContainerUsage, Measured, Phase, Pod, PodUsage, Readiness, Requests, Status,
    },
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use simkube::{
    SimKube,
    world::{self, World, milli},
};

use crate::cluster::HPAS;
use crate::hpa_controller::{Applied, Condition, Conditions, ControllerPass, Reads};

const CONTROLLER: &str = "horizontal-pod-autoscaler";

/// The controller, with its memory of each autoscaler by UID.
pub(crate) struct HpaController {
    server: SimKube,
    settings: Settings,
    logs: BTreeMap<String, Log>,
}

impl HpaController {
    pub(crate) fn new(server: &SimKube, settings: Settings) -> Self {
        Self {
            server: server.clone(),
            settings,
            logs: BTreeMap::new(),
        }
    }

    /// One pass over all autoscalers.
    pub(crate) fn step(&mut self, world: &World, now: Timestamp) {
        let targets = self.server.objects("deployments.apps");
        for hpa in self.server.objects(HPAS) {
            let target = targets.iter().find(|target| {
                let (of, it) = (&hpa["metadata"]["namespace"], &target["metadata"]);
                *of == it["namespace"] && hpa["spec"]["scaleTargetRef"]["name"] == it["name"]
            });
            if let Some(target) = target {
                self.reconcile(&hpa, target, world, now);
            }
        }
    }

    fn reconcile(&mut self, hpa: &Value, target: &Value, world: &World, now: Timestamp) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let [namespace, name] = ["namespace", "name"].map(|field| text(&target["metadata"][field]));
        let metrics = metrics(&hpa["spec"]);
        let behavior = &hpa["spec"]["behavior"];
        let behavior = behavior.is_object().then(|| Behavior {
            scale_up: rules(&behavior["scaleUp"]),
            scale_down: rules(&behavior["scaleDown"]),
        });
        let spec = Hpa {
            bounds: ReplicaBounds::new(
                count(&hpa["spec"]["minReplicas"]),
                count(&hpa["spec"]["maxReplicas"]),
            ),
            metrics: &metrics,
            behavior: behavior.as_ref(),
        };
        let pods = world::pods(&self.server, &namespace, &name);
        let usage = world.usage(&namespace);
        let usage = usage
            .iter()
            .filter(|item| item["metadata"]["labels"][world::APP] == *name);
        let usage = usage.map(|item| Arc::new(pod_usage(item, now))).collect();
        let conditions = conditions(&hpa["status"]);
        let reads = Reads {
            scale: Ok(Scale {
                spec: count(&target["spec"]["replicas"]),
                status: count(&target["status"]["replicas"]),
            }),
            selector: Ok(()),
            pods: &pods
                .iter()
                .map(|pod| Arc::new(domain_pod(pod)))
                .collect::<Vec<_>>(),
            readings: &[Ok(Measured::Usage(usage))],
            conditions: &conditions,
        };
        let log = self.logs.entry(text(&hpa["metadata"]["uid"])).or_default();
        let pass = ControllerPass::run(&spec, &reads, log, &self.settings, now);
        if pass.desired != pass.current {
            let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale");
            let replicas = json!({"spec": {"replicas": pass.desired.get()}});
            self.server.ask(CONTROLLER, "PATCH", &path, &replicas);
        }
        let pass = pass.applied(&spec, &self.settings, Applied::Written, now);
        *log = pass.log.clone();
        self.report(hpa, &pass);
    }

    fn report(&self, hpa: &Value, pass: &ControllerPass) {
        let conditions = pass.conditions.0.iter().map(
            |one| json!({"type": one.kind, "status": one.status.as_str(), "reason": one.reason}),
        );
        let mut status = json!({
            "currentReplicas": pass.current.get(),
            "desiredReplicas": pass.desired.get(),
            "conditions": conditions.collect::<Vec<_>>(),
        });
        if hpa["metadata"]["generation"].is_number() {
            status["observedGeneration"] = hpa["metadata"]["generation"].clone();
        }
        if hpa["status"] != status {
            let text = |field: &str| hpa["metadata"][field].as_str().unwrap();
            let path = format!(
                "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers/{}/status",
                text("namespace"),
                text("name")
            );
            self.server
                .ask(CONTROLLER, "PATCH", &path, &json!({"status": status}));
        }
    }
}

fn count(value: &Value) -> Replicas {
    Replicas::new(u32::try_from(value.as_u64().unwrap_or_default()).unwrap())
}

/// The rules of one direction.
fn rules(rules: &Value) -> ScalingRules {
    let policy = |policy: &Value| ScalingPolicy {
        kind: if policy["type"] == "Pods" {
            PolicyKind::Pods
        } else {
            PolicyKind::Percent
        },
        value: i32::try_from(policy["value"].as_i64().unwrap()).unwrap(),
        period: SignedDuration::from_secs(policy["periodSeconds"].as_i64().unwrap()),
    };
    let window = rules["stabilizationWindowSeconds"].as_i64();
    let policies = rules["policies"].as_array();
    ScalingRules {
        window: window.map(SignedDuration::from_secs),
        select: rules["selectPolicy"].as_str().map(|select| match select {
            "Disabled" => PolicySelect::Disabled,
            "Min" => PolicySelect::Min,
            _ => PolicySelect::Max,
        }),
        policies: policies.map(|all| all.iter().map(policy).collect()),
        tolerance: None,
    }
}

/// The one metric that the workloads here are scaled by: the utilization of cpu.
fn metrics(spec: &Value) -> Vec<MetricSpec> {
    let metrics = spec["metrics"].as_array().into_iter().flatten();
    let utilization = metrics.filter_map(|metric| {
        let percent = metric["resource"]["target"]["averageUtilization"].as_i64()?;
        Some(MetricSpec::Resource {
            name: "cpu".into(),
            target: Target::Utilization(i32::try_from(percent).unwrap()),
        })
    });
    utilization.collect()
}

fn conditions(status: &Value) -> Conditions {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let known = conditions.filter_map(|one| {
        let text = |field: &str| one[field].as_str();
        Condition::known(
            text("type")?,
            self::status(text("status")?),
            text("reason")?,
        )
    });
    known.collect()
}

fn status(text: &str) -> Status {
    match text {
        "True" => Status::True,
        "False" => Status::False,
        _ => Status::Unknown,
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn domain_pod(pod: &Value) -> Pod {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions
        .filter(|one| one["type"] == "Ready")
        .find_map(|one| {
            Some(Readiness {
                status: status(one["status"].as_str()?),
                since: time(&one["lastTransitionTime"])?,
            })
        });
    let containers = pod["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| {
            let cpu = container["resources"]["requests"]["cpu"].as_str();
            Container {
                name: container["name"].as_str().unwrap().into(),
                requests: cpu
                    .into_iter()
                    .map(|cpu| ("cpu", thousandths(cpu)))
                    .collect(),
            }
        });
    Pod {
        name: pod["metadata"]["name"].as_str().unwrap().into(),
        phase: if pod["status"]["phase"] == "Running" {
            Phase::Running
        } else {
            Phase::Pending
        },
        deleting: pod["metadata"]["deletionTimestamp"].is_string(),
        created: time(&pod["metadata"]["creationTimestamp"]),
        ready,
        started: time(&pod["status"]["startTime"]),
        containers: containers.collect(),
        pod_level_requests: None,
    }
}

fn pod_usage(item: &Value, now: Timestamp) -> PodUsage {
    let containers = item["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| {
            let cpu = thousandths(container["usage"]["cpu"].as_str().unwrap());
            ContainerUsage {
                name: container["name"].as_str().unwrap().into(),
                usage: Requests::from_iter([("cpu", cpu)]),
            }
        });
    PodUsage {
        pod: item["metadata"]["name"].as_str().unwrap().into(),
        at: now,
        window: SignedDuration::from_secs(15),
        containers: containers.collect(),
    }
}

fn thousandths(quantity: &str) -> i64 {
    i64::try_from(milli(quantity).unwrap()).unwrap()
}
