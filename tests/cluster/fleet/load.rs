//! Load on the shop, as the members' metrics APIs report it: measured in the replicas that it needs, and shared among
//! the ready pods of the fleet. A pod that was ready and no longer is uses nothing.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::WatchParams};
use rig::{Change, Cluster, FakeMetrics, MetricsApi, PodUsage, follow};
use tokio::task::JoinHandle;

use super::world::SHOP;
use crate::world::NAMESPACE;

/// What a replica of the shop is meant to use, of the 200m it requests.
const TARGET: f64 = 100.0;
/// The interval at which the load is shared again.
const BEAT: Duration = Duration::from_millis(200);

/// The load of one scenario.
pub(crate) struct Load {
    /// In replicas.
    total: Arc<Mutex<f64>>,
    sharing: JoinHandle<()>,
}

/// A member with the pods that receive its load.
struct Site {
    metrics: FakeMetrics,
    pods: Arc<Mutex<BTreeMap<String, Pod>>>,
    watching: JoinHandle<()>,
}

impl Load {
    /// Serves the resource metrics of these members. There is no load yet.
    pub(crate) async fn start(members: &[(&str, &Cluster)]) -> Self {
        let opening = members.iter();
        let sites = join_all(opening.map(|(_, cluster)| Site::open(cluster))).await;
        let total = Arc::new(Mutex::new(0.0));
        let now = Arc::clone(&total);
        let sharing = tokio::spawn(async move {
            let mut beat = tokio::time::interval(BEAT);
            loop {
                beat.tick().await;
                share(&sites, *now.lock().unwrap());
            }
        });
        Self { total, sharing }
    }

    /// From now on the load needs this number of replicas, and every pod receives the same.
    pub(crate) fn evenly(&self, replicas: f64) {
        *self.total.lock().unwrap() = replicas;
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.sharing.abort();
    }
}

impl Site {
    async fn open(cluster: &Cluster) -> Self {
        let metrics = FakeMetrics::start(cluster, &[MetricsApi::Resource]).await;
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        let store = Arc::<Mutex<BTreeMap<String, Pod>>>::default();
        let stored = Arc::clone(&store);
        let (mut all, mut is_listed) = (BTreeMap::new(), false);
        let only = WatchParams::default().labels(&format!("app={SHOP}"));
        let watching = tokio::spawn(follow(pods, only, move |change| {
            match change {
                Change::Begun => (all, is_listed) = (BTreeMap::new(), false),
                Change::Present(pod) => drop(all.insert(pod.name_any(), pod)),
                Change::Deleted(pod) => drop(all.remove(&pod.name_any())),
                Change::Listed => is_listed = true,
            }
            // Half a list would show a member without pods.
            if is_listed {
                stored.lock().unwrap().clone_from(&all);
            }
            ControlFlow::Continue(())
        }));
        Self {
            metrics: metrics.unwrap(),
            pods: store,
            watching,
        }
    }

    /// The pods that `wanted` accepts.
    fn pods(&self, wanted: fn(&Pod) -> bool) -> Vec<String> {
        let pods = self.pods.lock().unwrap();
        let wanted = pods.iter().filter(|(_, pod)| wanted(pod));
        wanted.map(|(name, _)| name.clone()).collect()
    }

    /// The pods that receive load.
    fn serving(&self) -> Vec<String> {
        self.pods(is_ready)
    }

    fn carry(&self, pods: &[String], replicas: f64) {
        let each = format!("{}u", (replicas * TARGET * 1000.0).round());
        for pod in pods {
            let usage = PodUsage::cpu("app", &each);
            self.metrics.set_pod_usage(NAMESPACE, pod, usage);
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Every pod of the fleet gets the same.
fn share(sites: &[Site], total: f64) {
    let serving: Vec<Vec<String>> = sites.iter().map(Site::serving).collect();
    let all: usize = serving.iter().map(Vec::len).sum();
    let each = total / f64::from(u32::try_from(all.max(1)).unwrap());
    for (site, pods) in sites.iter().zip(&serving) {
        site.carry(pods, each);
        site.carry(&site.pods(is_out_of_service), 0.0);
    }
}

/// Whether a pod receives load.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|one| one.type_ == "Ready" && one.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a pod runs without receiving load.
fn is_out_of_service(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let is_ending = pod.metadata.deletion_timestamp.is_some();
    phase == Some("Running") && !is_ending && !is_ready(pod)
}
