//! The parts of a cluster besides its API server: the controllers of workloads, the scheduler, the kubelets, and the
//! metrics of pods. All act on the objects of the server only, as the real ones do.
//!
//! ```text
//! Deployment ──► deployments ──► Pod, pending ──► scheduler ──► on a node ──► kubelet ──► ready ──► metrics.k8s.io
//!                    └─ status ◄────────────────────────────────────────────────┘             demand / ready pods
//! ```
//!
//! The HPA controller is not here: it needs the algorithm, which this crate does not know.

mod deployments;
mod kubelet;
mod metrics;
pub mod prometheus;
mod scheduler;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use self::metrics::Defects;
use crate::{Now, SimKube};

/// Total usage of the pods of an app at a time, in thousandths of a cpu.
pub type Demand = Arc<dyn Fn(&str, Timestamp) -> u64 + Send + Sync>;

/// The label that identifies the pods of an app.
pub const APP: &str = "app";

/// The rest of a cluster.
pub struct World {
    server: SimKube,
    now: Now,
    /// Time from the assignment of a node to a pod's readiness.
    start_up: Duration,
    demand: Demand,
    defects: Arc<Mutex<Defects>>,
    created: u64,
}

impl World {
    /// A cluster with this many nodes of `cpu` thousandths each, whose pods need `start_up` to become ready, and have
    /// the usage of `demand`.
    pub fn new(
        server: &SimKube,
        now: Now,
        nodes: (usize, u64),
        start_up: Duration,
        demand: Demand,
    ) -> Self {
        for node in 0..nodes.0 {
            let name = format!("node-{node}");
            let capacity = json!({"cpu": format!("{}m", nodes.1), "memory": "64Gi", "pods": "110"});
            let ready = json!({"type": "Ready", "status": "True"});
            let status =
                json!({"allocatable": capacity, "capacity": capacity, "conditions": [ready]});
            let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
            server.ask("kubelet", "POST", "/api/v1/nodes", &object);
            server.ask(
                "kubelet",
                "PATCH",
                &format!("/api/v1/nodes/{name}/status"),
                &json!({"status": status}),
            );
        }
        let defects = Arc::<Mutex<Defects>>::default();
        metrics::serve(
            server,
            Arc::clone(&now),
            Arc::clone(&demand),
            Arc::clone(&defects),
        );
        metrics::serve_external(server, Arc::clone(&now), Arc::clone(&demand));
        Self {
            server: server.clone(),
            now,
            start_up,
            demand,
            defects,
            created: 0,
        }
    }

    /// Runs every controller once.
    pub fn step(&mut self) {
        self.server.collect_garbage();
        self.reconcile_deployments();
        self.schedule();
        self.run_pods();
    }

    /// Makes the existing pods look as if they had been ready for this span.
    pub fn has_run_for(&mut self, span: SignedDuration) {
        self.step();
        let since = (self.now)() - span;
        for pod in self.server.objects("pods") {
            self.report_pod(&pod, since, "True", since);
        }
    }

    /// Silences `metrics.k8s.io` about a namespace from now on.
    pub fn silence_metrics(&self, namespace: &str) {
        let mut defects = self.defects.lock().unwrap_or_else(PoisonError::into_inner);
        defects.silent.insert(namespace.to_owned());
    }

    /// Lets `metrics.k8s.io` answer with the usage of this span ago from now on.
    pub fn age_metrics(&self, age: SignedDuration) {
        let mut defects = self.defects.lock().unwrap_or_else(PoisonError::into_inner);
        defects.age = age;
    }

    /// The usage of the pods of a namespace, as the items that `metrics.k8s.io` lists.
    pub fn usage(&self, namespace: &str) -> Vec<Value> {
        metrics::usage(&self.server, namespace, (self.now)(), &self.demand)
    }

    /// Merges a patch into an object, or its subresource.
    fn patch(&self, controller: &str, path: &str, change: &Value) {
        self.server.ask(controller, "PATCH", path, change);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The backends of the metrics hold servers, which hold them: without this none is ever freed.
        self.server.end_aggregation();
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// The pods of an app, in the order of their names.
pub fn pods(server: &SimKube, namespace: &str, app: &str) -> Vec<Arc<Value>> {
    let of_app = |pod: &Arc<Value>| {
        let metadata = &pod["metadata"];
        metadata["namespace"] == namespace && metadata["labels"][APP] == app
    };
    server.objects("pods").into_iter().filter(of_app).collect()
}

/// Returns whether a pod is ready.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// The cpu that the containers of a pod request, in thousandths.
fn requests(pod: &Value) -> u64 {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers
        .filter_map(|container| milli(container["resources"]["requests"]["cpu"].as_str()?))
        .sum()
}

/// Parses `250m` or `2`, in thousandths.
pub fn milli(quantity: &str) -> Option<u64> {
    match quantity.strip_suffix('m') {
        Some(milli) => milli.parse().ok(),
        None => quantity.parse::<u64>().ok().map(|whole| whole * 1_000),
    }
}

fn path_of(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    format!(
        "/api/v1/namespaces/{}/pods/{}",
        text("namespace"),
        text("name")
    )
}
