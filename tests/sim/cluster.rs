//! A cluster with replicas of the product, as a scenario sees it.

use std::{
    backtrace::Backtrace,
    collections::BTreeMap,
    io,
    mem::take,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use foretide::{
    app,
    config::{Config, ConfigFile, Election, MemberArgs, MetricsAuth},
};
use foretide_api::ports::{Authorization, CertificateLifetimes, CredentialFiles, HistoryServer};
use foretide_api::validation::{CostLimits, TargetRules};
use foretide_base::{
    clock::Clock,
    leadership::Timing,
    machine::{Dial, Machine, Stream},
    memory::Memory,
    telemetry::Telemetry,
};
use foretide_domain::{cron::Zone, hpa::Settings};
use foretide_kube::KubeAccess;
use foretide_servers::{
    config::{AdapterConfig, MetricServerConfig, ServiceConfig},
    metrics_api::MetricApi,
};
use futures::{FutureExt as _, future::BoxFuture};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use simkube::{
    Now, SimKube,
    faults::Plan,
    host::{DataCenter, stop_here},
    network::{Effect, Network, Trouble, Way},
    world::{Demand, World, is_ready, pods, prometheus::Prometheus},
};
use tokio::sync::oneshot;
use tower::Service as _;

use crate::{
    fleet::world::{LOST_AFTER, Members, SYSTEM},
    hpa::HpaController,
    laws::Laws,
    log::{Log, SECRET},
};

/// Start of a run, at midnight.
pub(crate) const START: Timestamp = Timestamp::constant(1_767_225_600, 0);
/// The name by which the replicas know the API server.
pub(crate) const HUB: &str = "hub";
/// The name by which the replicas know Prometheus.
pub(crate) const PROMETHEUS: &str = "prometheus";
/// The collections of autoscalers, their statuses and HPAs.
pub(crate) const EHPAS: &str = "effectivehorizontalpodautoscalers.autoscaling.crane.io";
pub(crate) const STATUSES: &str = "effectivehorizontalpodautoscalers.autoscaling.crane.io/status";
pub(crate) const HPAS: &str = "horizontalpodautoscalers.autoscaling";
pub(crate) const SHOP: &str = "shop";
pub(crate) const TENANT: &str = "tenant";
/// The namespace in which the flags forbid to scale.
pub(crate) const DENIED: &str = "denied";
pub(crate) const PERIOD: Duration = Duration::from_secs(15);
/// Thousandths of a cpu that a pod aims to use, half of the 200 that it requests.
pub(crate) const PER_POD: u64 = 100;
/// The most replicas of an autoscaler.
pub(crate) const MAX: u64 = 12;
/// The stabilization window of a decrease.
const STABILIZATION: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
const SLICE: Duration = Duration::from_millis(10);
/// Time until an ended process is started again.
const BACK_OFF: Duration = Duration::from_secs(3);
const START_UP: Duration = Duration::from_secs(8);
const ACCOUNT: &str = "system:serviceaccount:foretide-system:foretide-controller";
const ADAPTER: &str = "system:serviceaccount:foretide-system:foretide-adapter";
const HPA_CONTROLLER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// Faults that keep a host from seeing the cluster as it is: watches that begin and are silent, and lists that fail at
/// their second page.
const HELD: [(&[&str], Effect); 2] = [
    (&["watch=true"], Effect::Silent),
    (&["continue="], Effect::Refused(500)),
];

/// A simulated cluster.
pub(crate) struct Cluster {
    pub(crate) server: SimKube,
    pub(crate) load: Load,
    /// The replicas elect a leader; without an election each leads.
    pub(crate) elects: bool,
    pub(crate) world: World,
    /// The member clusters, if this is a hub.
    pub(crate) members: Members,
    /// The limits of what forecasts may cost, and the memory of each replica; there are none at first.
    pub(crate) cost_limits: CostLimits,
    pub(crate) memory: Option<Memory>,
    prometheus: Option<HistoryServer>,
    data_center: DataCenter<Result<(), String>>,
    hpas: HpaController,
    laws: Laws,
    log: Log,
    /// The router of the metric adapter, and its answers.
    adapter: Arc<Mutex<Option<Router>>>,
    answers: Answers,
    seed: u64,
    /// Replica of the product on each host.
    replicas: BTreeMap<String, Replica>,
    seconds: u64,
    /// The part of the present second that has passed.
    passed: Duration,
}

struct Replica {
    clock: Clock,
    telemetry: Arc<Telemetry>,
    interruption: Interruption,
    stop: Option<oneshot::Sender<()>>,
    ahead: i64,
    restarts: u64,
    /// Second in which an ended process is started again.
    back: Option<u64>,
    /// End of the last process.
    ended: Option<Result<(), String>>,
}

/// The next stop of a process, by the readings of its clocks, and the function whose reading panics next.
type Interruption = Arc<Mutex<(Option<Stop>, Option<&'static str>)>>;

/// A stop of a process, as by a signal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    /// Readings of its clocks before the stop.
    pub(crate) readings: u32,
    /// The stop is in the middle of a reading, and not between two polls.
    pub(crate) is_inside: bool,
    pub(crate) span: Duration,
}

/// The demand of each app, as steps of a time and an amount.
#[derive(Clone, Default)]
pub(crate) struct Load(Arc<Mutex<BTreeMap<String, Steps>>>);

type Steps = Vec<(Timestamp, u64)>;

/// The way of a host into the network.
struct Wire {
    host: String,
    network: Network,
    /// Place for the router that answers on the host's port.
    adapter: Weak<Mutex<Option<Router>>>,
}

/// The codes and texts of answers.
type Answers = Arc<Mutex<Vec<(u16, String)>>>;

impl Dial for Wire {
    fn dial(&self, server: &str, _port: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let (network, host, server) = (self.network.clone(), self.host.clone(), server.to_owned());
        async move {
            let socket: Box<dyn Stream> = Box::new(network.dial(&host, &server).await?);
            Ok(socket)
        }
        .boxed()
    }

    fn serve(&self, router: Router) {
        if let Some(adapter) = self.adapter.upgrade() {
            *adapter.lock().unwrap() = Some(router);
        }
    }
}

// === impl Load ===

impl Load {
    /// The demand as a function for the world.
    fn demand(&self) -> Demand {
        let load = self.clone();
        Arc::new(move |app: &str, time| load.at(app, time))
    }

    pub(crate) fn set(&self, app: &str, now: Timestamp, milli: u64) {
        let mut load = self.0.lock().unwrap();
        load.entry(app.to_owned()).or_default().push((now, milli));
    }

    pub(crate) fn at(&self, app: &str, time: Timestamp) -> u64 {
        let load = self.0.lock().unwrap();
        let mut steps = load.get(app).into_iter().flatten();
        steps
            .rfind(|(since, _)| *since <= time)
            .map_or(0, |(_, milli)| *milli)
    }

    /// The least demand between two times.
    pub(crate) fn least_between(&self, app: &str, since: Timestamp, until: Timestamp) -> u64 {
        let load = self.0.lock().unwrap();
        let steps = load.get(app).into_iter().flatten();
        let later = steps
            .filter(|(at, _)| *at > since && *at <= until)
            .map(|(_, milli)| *milli)
            .min();
        drop(load);
        self.at(app, since).min(later.unwrap_or(u64::MAX))
    }
}

// === impl Cluster ===

impl Cluster {
    /// A cluster with the rights of `deploy/`, and without replicas of the product.
    pub(crate) fn new(seed: u64, plan: Plan) -> Self {
        Self::starting_at(START, seed, plan)
    }

    /// A cluster without faults, of which each replica leads.
    pub(crate) fn without_election() -> Self {
        Self {
            elects: false,
            ..Self::new(1, Plan::default())
        }
    }

    /// A cluster like that of [`Cluster::new`], at another time.
    pub(crate) fn starting_at(start: Timestamp, seed: u64, plan: Plan) -> Self {
        let data_center = DataCenter::new(start, plan);
        let server = SimKube::new(1, data_center.clock());
        data_center.network().add(HUB, server.clone());
        server.add_token(&token("controller"), ACCOUNT);
        for object in INSTALLATION.iter() {
            server.create(object);
        }
        let load = Load::default();
        let world = World::new(
            &server,
            data_center.clock(),
            (4, 8_000),
            START_UP,
            load.demand(),
        );
        Self {
            hpas: HpaController::new(&server, settings()),
            laws: Laws::new(&server, &load),
            log: Log::begin(seed),
            adapter: Arc::default(),
            answers: Answers::default(),
            server,
            load,
            elects: true,
            world,
            members: Members::default(),
            cost_limits: CostLimits::default(),
            memory: None,
            prometheus: None,
            data_center,
            seed,
            replicas: BTreeMap::new(),
            seconds: 0,
            passed: Duration::ZERO,
        }
    }

    /// Adds a Prometheus that has scraped since some time.
    pub(crate) fn add_prometheus(&mut self, since: Timestamp) -> Prometheus {
        let prometheus = Prometheus::new(self.clock(), since, self.load.demand());
        let network = self.network();
        network.add_other(PROMETHEUS, self.clock(), prometheus.backend());
        let url = format!("http://{PROMETHEUS}:9090");
        self.prometheus = Some(HistoryServer::at(&url).unwrap());
        prometheus
    }

    /// Configures a Prometheus that asks for a token, and does not exist.
    pub(crate) fn expect_prometheus(&mut self) {
        let file = file("simulated-prometheus", &token("prometheus"));
        let credentials = CredentialFiles {
            authorization: Some(Authorization::Bearer { token: file }),
            ..CredentialFiles::default()
        };
        let url = format!("https://{PROMETHEUS}:9090");
        self.prometheus = Some(HistoryServer::new(&url, credentials).unwrap());
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.data_center.now()
    }

    pub(crate) fn clock(&self) -> Now {
        self.data_center.clock()
    }

    /// The hosts of all replicas.
    pub(crate) fn hosts(&self) -> Vec<String> {
        self.replicas.keys().cloned().collect()
    }

    /// Returns how often processes were started again.
    pub(crate) fn restarts(&self) -> u64 {
        self.replicas.values().map(|replica| replica.restarts).sum()
    }

    pub(crate) fn network(&self) -> &Network {
        self.data_center.network()
    }

    /// A Deployment with an autoscaler of 1 to [`MAX`] replicas, and what else is in its `spec`.
    pub(crate) fn autoscaler(&self, name: &str, replicas: u64, mode: &str, rest: &Value) {
        self.autoscaler_in(SHOP, name, (replicas, mode), rest);
    }

    /// Creates a Deployment with an autoscaler, as [`Cluster::autoscaler`] does, in another namespace.
    pub(crate) fn autoscaler_in(
        &self,
        namespace: &str,
        name: &str,
        (replicas, mode): (u64, &str),
        rest: &Value,
    ) {
        let deployment = deployment(namespace, name, replicas);
        let mut spec = json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": MAX, "mode": mode, "metrics": [cpu()],
        });
        let rest = rest.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(rest);
        let ehpa = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        for object in [deployment, ehpa] {
            self.server.create(&object);
        }
    }

    /// An autoscaler whose target does not exist.
    pub(crate) fn autoscaler_without_target(&self, namespace: &str, name: &str, api: &str) {
        let target = json!({"apiVersion": api, "kind": "Deployment", "name": "nothing"});
        let ehpa = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": MAX, "mode": "Direct", "metrics": []},
        });
        self.server.create(&ehpa);
    }

    pub(crate) fn namespace(&self, name: &str) {
        self.server.create(&namespace(name));
    }

    /// An HPA that was made by hand with at most 3 replicas: to be adopted by the autoscaler of this name, or marked as
    /// adopted by this UID.
    pub(crate) fn adopted_hpa(&self, namespace: &str, name: &str, by: Option<&str>) {
        let spec = json!({"minReplicas": 1, "maxReplicas": 3, "metrics": [cpu()]});
        let mut hpa = hpa(namespace, name, name, spec);
        if let Some(uid) = by {
            hpa["metadata"]["annotations"] = json!({
                "autoscaling.foretide.io/adopted-by": uid,
                "autoscaling.foretide.io/original-spec": hpa["spec"].to_string(),
            });
            hpa["spec"]["maxReplicas"] = json!(9);
        } else {
            self.annotate_in(namespace, name, "autoscaling.foretide.io/adopt", "true");
        }
        self.server.create(&hpa);
    }

    /// Gives an autoscaler an annotation.
    pub(crate) fn annotate_in(&self, namespace: &str, name: &str, key: &str, value: &str) {
        let change = json!({"metadata": {"annotations": {key: value}}});
        self.patch_in(namespace, name, &change);
    }

    /// Sets the number of pods that an app needs from now on.
    pub(crate) fn needs(&self, app: &str, pods: u64) {
        self.load.set(app, self.now(), pods * PER_POD);
    }

    /// Each ready pod of an app uses what it is to use, however many there are.
    pub(crate) fn uses_per_pod(&self, app: &str) {
        let pods = pods(&self.server, SHOP, app);
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        self.needs(app, u64::try_from(ready).unwrap());
    }

    /// Pauses a Deployment in the middle of an update, with this many pods more than its spec asks for.
    pub(crate) fn pause_update(&self, name: &str, surge: &str) {
        let strategy = json!({"rollingUpdate": {"maxSurge": surge}});
        let change = json!({"spec": {"paused": true, "strategy": strategy}});
        self.server.patch("deployments.apps", SHOP, name, &change);
    }

    /// Starts a replica of the product on a host.
    pub(crate) fn start(&mut self, host: &str) {
        self.start_ahead(host, 0);
    }

    /// Starts a replica on a host whose clock is ahead by this many seconds.
    pub(crate) fn start_ahead(&mut self, host: &str, ahead: i64) {
        self.laws.stranded_since(host, None);
        let before = self.replicas.remove(host);
        let restarts = before.as_ref().map_or(0, |before| before.restarts + 1);
        let wire = Wire {
            host: host.to_owned(),
            network: self.network().clone(),
            adapter: Arc::downgrade(&self.adapter),
        };
        let seed = self.seed ^ (restarts << 8) ^ u64::from(host.bytes().last().unwrap());
        let (stop, stopped) = oneshot::channel();
        let mut config = config(self.elects, !self.members.is_empty());
        config.prometheus = self.prometheus.clone();
        config.cost_limits = self.cost_limits.clone();
        let memory = self.memory.clone();
        let interruption = Interruption::default();
        let armed = Arc::clone(&interruption);
        let telemetry = Arc::<Telemetry>::default();
        let shown = Arc::clone(&telemetry);
        let clock = self.data_center.start(host, |now| {
            let start = now + SignedDuration::from_secs(ahead);
            let clock = Clock::interrupted(start, move || interrupt(&armed));
            let machine = Machine::simulated(host, clock.clone(), wire, seed).with_memory(memory);
            let stopped = stopped.map(|_stop| ());
            let run = app::run(config, machine, shown, stopped);
            let run = run.map(|ended| ended.map_err(|error| error.to_string()));
            (run, clock)
        });
        let ended = before.and_then(|before| before.ended);
        let replica = Replica {
            clock,
            telemetry,
            interruption,
            stop: Some(stop),
            ahead,
            restarts,
            back: None,
            ended,
        };
        self.replicas.insert(host.to_owned(), replica);
    }

    /// Installs the metric adapter for the custom metrics API, and starts a replica of it that is far from the API
    /// server.
    pub(crate) fn start_adapter(&mut self, host: &str) {
        self.server.add_token(&token("adapter"), ADAPTER);
        self.server.add_token(&token("hpa"), HPA_CONTROLLER);
        let reader = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "extension-apiserver-authentication-reader", "namespace": "kube-system"},
            "rules": [{
                "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"],
                "resourceNames": ["extension-apiserver-authentication"],
            }],
        });
        let authorities = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
            "data": {"client-ca-file": certificate()},
        });
        let theirs = "v1beta1.external.metrics.k8s.io";
        self.server
            .delete("apiservices.apiregistration.k8s.io", "", theirs);
        let files = ["rbac", "certificates", "custom", "external"]
            .map(|name| format!("deploy/adapter/{name}.yaml"));
        for object in files
            .iter()
            .flat_map(|file| manifests(file))
            .chain([reader, authorities])
        {
            self.server.create(&object);
        }
        self.reach(host, Way::Open(Duration::from_millis(300)));
        let wire = Wire {
            host: host.to_owned(),
            network: self.network().clone(),
            adapter: Arc::downgrade(&self.adapter),
        };
        let seed = self.seed;
        self.data_center.start(host, |now| {
            let machine = Machine::simulated(host, Clock::simulated(now), wire, seed);
            let run =
                foretide_servers::adapter::run(adapter_config(), machine, std::future::pending());
            (
                run.map(|ended| ended.map_err(|error| error.to_string())),
                (),
            )
        });
    }

    /// Asks the metric adapter on a host, as the HPA controller does.
    pub(crate) fn ask_adapter(&self, host: &str, path: &str) {
        let Some(mut adapter) = self.adapter.lock().unwrap().clone() else {
            return;
        };
        let request =
            Request::get(path).header("Authorization", format!("Bearer {}", token("hpa")));
        let (request, answers) = (
            request.body(Body::empty()).unwrap(),
            Arc::clone(&self.answers),
        );
        let answer = async move {
            let answer = adapter.call(request).await.unwrap();
            let code = answer.status().as_u16();
            let text = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
            let text = String::from_utf8_lossy(&text).into_owned();
            answers.lock().unwrap().push((code, text));
        };
        self.data_center.within(host, || drop(tokio::spawn(answer)));
    }

    /// The answers since the last look.
    pub(crate) fn answers(&self) -> Vec<(u16, String)> {
        take(&mut *self.answers.lock().unwrap())
    }

    /// The registrations of an API group.
    pub(crate) fn registrations(&self, group: &str) -> Vec<Arc<Value>> {
        let all = self.server.objects("apiservices.apiregistration.k8s.io");
        let of_group = all.into_iter().filter(|one| one["spec"]["group"] == group);
        of_group.collect()
    }

    /// Kills the process of a host; it stays down.
    pub(crate) fn kill(&mut self, host: &str) {
        self.data_center.kill(host);
    }

    /// Kills the process of a host, which is started again after this many seconds.
    pub(crate) fn crash(&mut self, host: &str, seconds: u64) {
        self.data_center.kill(host);
        let back = self.seconds + seconds;
        self.replicas.get_mut(host).unwrap().back = Some(back);
    }

    /// Lets everything go on that is paused, cut off or slow, and fails nothing any more.
    pub(crate) fn heal(&mut self) {
        self.network().plan().end();
        self.network().end_all();
        self.laws.healed(self.data_center.now());
        for host in self.replicas.keys().cloned().collect::<Vec<_>>() {
            self.reach(&host, Way::Open(Duration::ZERO));
            self.resume(&host);
        }
    }

    pub(crate) fn pause(&mut self, host: &str) {
        self.data_center.pause(host);
    }

    /// Suspends the machine of a host for some time, in which nothing else happens in the cluster.
    pub(crate) fn sleep(&mut self, host: &str, span: Duration) {
        self.pause(host);
        self.data_center.run_for(span);
        self.resume(host);
    }

    /// Pauses a host in the middle of what it has to do now.
    pub(crate) fn stop_after(&mut self, host: &str, turns: u32) {
        self.data_center.stop_after(host, turns);
    }

    /// Stops a host for some time after this many more readings of its clocks.
    pub(crate) fn stop_reading(&self, host: &str, stop: Stop) {
        if let Some(replica) = self.replicas.get(host) {
            replica.interruption.lock().unwrap().0 = Some(stop);
        }
    }

    /// Panics in this function of a host's process the next time that it reads its clocks.
    pub(crate) fn panic_in(&self, host: &str, function: &'static str) {
        self.replicas[host].interruption.lock().unwrap().1 = Some(function);
    }

    /// Returns whether a stop of a host by its readings is still due.
    pub(crate) fn will_stop(&self, host: &str) -> bool {
        let replica = self.replicas.get(host);
        replica.is_some_and(|replica| replica.interruption.lock().unwrap().0.is_some())
    }

    /// Steps the wall clock of a host by this many seconds.
    pub(crate) fn step_clock(&mut self, host: &str, seconds: i64) {
        let replica = self.replicas.get_mut(host).unwrap();
        replica.ahead += seconds;
        let clock = &replica.clock;
        let step = || clock.set(clock.now() + SignedDuration::from_secs(seconds));
        self.data_center.within(host, step);
    }

    /// Makes the connections of a host to the API server silent, though they stay open.
    pub(crate) fn strand(&mut self, host: &str) {
        self.network().strand(host, HUB);
        let now = self.now();
        self.laws.stranded_since(host, Some(now));
    }

    /// Makes watches of a host, or of all, silent and lists incomplete from now on.
    pub(crate) fn hold(&mut self, host: &str) {
        for client in self.hosts_named(host) {
            for (parts, effect) in HELD {
                self.network().begin(Trouble {
                    client: client.clone(),
                    method: "GET",
                    parts,
                    effect,
                });
            }
            self.server.limit_pages(2);
            self.network().reset(&client, HUB);
            let now = self.now();
            self.laws.stale_since(&client, Some(now));
        }
    }

    /// Ends the effects of [`Cluster::hold`].
    pub(crate) fn release(&mut self, host: &str) {
        for (parts, _) in HELD {
            self.network().end(parts);
        }
        for client in self.hosts_named(host) {
            self.network().reset(&client, HUB);
            self.laws.stale_since(&client, None);
        }
    }

    /// Makes the samples of the metrics of pods this old; 0 makes them new again.
    pub(crate) fn age_metrics(&mut self, seconds: u64) {
        let age = SignedDuration::from_secs(i64::try_from(seconds).unwrap());
        self.world.age_metrics(age);
        let since = (!age.is_zero()).then(|| self.now());
        self.laws.blind_since("", since);
    }

    /// Keeps the state of the API server for [`Cluster::restore`].
    pub(crate) fn back_up(&mut self) {
        self.server.back_up();
        self.laws.backed_up(self.now());
    }

    /// Goes on from the last backup of the API server, if there is one.
    pub(crate) fn restore(&mut self) {
        if self.server.restore() {
            self.laws.restored(self.now());
            for host in self.hosts() {
                self.network().reset(&host, HUB);
            }
        }
    }

    fn hosts_named(&self, host: &str) -> Vec<String> {
        let all = self
            .replicas
            .keys()
            .filter(|name| host.is_empty() || *name == host);
        all.cloned().collect()
    }

    pub(crate) fn resume(&mut self, host: &str) {
        self.data_center.resume(host);
    }

    /// Asks the process of a host to end, as SIGTERM does; it is started again.
    pub(crate) fn terminate(&mut self, host: &str) {
        drop(self.replicas.get_mut(host).unwrap().stop.take());
    }

    /// Returns the result of the last process of a host that has ended by itself.
    pub(crate) fn ended(&self, host: &str) -> Option<&Result<(), String>> {
        self.replicas[host].ended.as_ref()
    }

    /// The metrics of the process of a host, as they are scraped.
    pub(crate) fn metrics(&self, host: &str) -> String {
        self.replicas[host].telemetry.encode()
    }

    /// Changes how a host reaches the API server.
    pub(crate) fn reach(&self, host: &str, way: Way) {
        self.network().set(host, HUB, way);
    }

    /// The host whose process holds the lease; empty if none does.
    pub(crate) fn leader(&self) -> String {
        let leases = self.server.objects("leases.coordination.k8s.io");
        let holder = leases
            .first()
            .and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        let host = holder.and_then(|identity| identity.split('_').next());
        host.unwrap_or_default().to_owned()
    }

    pub(crate) fn replicas(&self, name: &str) -> u64 {
        let deployments = self.server.objects("deployments.apps");
        let found = deployments
            .iter()
            .find(|one| one["metadata"]["name"] == name);
        found.unwrap()["spec"]["replicas"].as_u64().unwrap()
    }

    /// Returns how often replicas of the product wrote the scale of a Deployment.
    pub(crate) fn scaled(&self, name: &str) -> usize {
        let entries = self.server.audit().into_iter();
        let scales = entries.filter(|entry| {
            let is_scale =
                entry.access.resource == "deployments/scale" && entry.access.name == name;
            is_scale && entry.client.starts_with("pod-") && entry.written.is_some()
        });
        scales.count()
    }

    /// Takes the permission to read the Secrets of members away.
    pub(crate) fn revoke_secrets(&mut self) {
        self.laws.may_be_refused = "secrets";
        let bindings = "rolebindings.rbac.authorization.k8s.io";
        self.server
            .delete(bindings, "foretide-system", "foretide-members");
    }

    /// Sets a count as `kubectl scale` does.
    pub(crate) fn scale_by_hand(&self, name: &str, count: u64) {
        self.scale_by_hand_in(SHOP, name, count);
    }

    /// Sets a count as [`Cluster::scale_by_hand`] does, in another namespace.
    pub(crate) fn scale_by_hand_in(&self, namespace: &str, name: &str, count: u64) {
        let (scale, change) = (
            format!("{name}/scale"),
            json!({"spec": {"replicas": count}}),
        );
        self.server
            .patch("deployments.apps", namespace, &scale, &change);
    }

    /// Deletes a Deployment, and creates it with two replicas.
    pub(crate) fn recreate(&mut self, name: &str) {
        self.replace(name, &deployment(SHOP, name, 2));
        self.laws.blind_since(name, None);
    }

    /// Recreates a Deployment with a second container without requests.
    pub(crate) fn recreate_without_request(&mut self, name: &str) {
        let mut deployment = deployment(SHOP, name, 2);
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array_mut();
        containers
            .unwrap()
            .push(json!({"name": "sidecar", "image": "sidecar:1"}));
        self.replace(name, &deployment);
        self.laws.blind_since(name, Some(self.now()));
    }

    fn replace(&self, name: &str, deployment: &Value) {
        self.server.delete("deployments.apps", SHOP, name);
        self.server.create(deployment);
    }

    /// A Deployment without replicas whose annotation is as large as the API server admits.
    pub(crate) fn large_deployment(&self, namespace: &str, number: usize) {
        let mut large = deployment(namespace, &format!("large-{number}"), 0);
        large["metadata"]["annotations"] = json!({"note": "x".repeat(250 << 10)});
        self.server.create(&large);
    }

    /// Changes the `spec` of an autoscaler as a user does.
    pub(crate) fn edit(&self, name: &str, spec: &Value) {
        self.edit_in(SHOP, name, spec);
    }

    pub(crate) fn edit_in(&self, namespace: &str, name: &str, spec: &Value) {
        self.patch_in(namespace, name, &json!({"spec": spec}));
    }

    fn patch_in(&self, namespace: &str, name: &str, change: &Value) {
        self.server.patch(EHPAS, namespace, name, change);
    }

    /// Deletes an autoscaler of the shop, as a user does.
    pub(crate) fn delete(&self, name: &str) {
        self.server.delete(EHPAS, SHOP, name);
    }

    /// Changes an HPA of the shop, as a user does.
    pub(crate) fn edit_hpa(&self, name: &str, change: &Value) {
        self.server.patch(HPAS, SHOP, name, change);
    }

    /// An HPA of the shop, if it is there.
    pub(crate) fn hpa(&self, name: &str) -> Option<Value> {
        let all = self.server.objects(HPAS);
        let found = all.iter().find(|one| one["metadata"]["name"] == name)?;
        Some((**found).clone())
    }

    /// A condition of an autoscaler, as `status/reason: message`.
    pub(crate) fn said(&self, name: &str, kind: &str) -> String {
        let condition = condition(&self.ehpa(name)["status"], kind);
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        format!("{}/{}: {}", text("status"), text("reason"), text("message"))
    }

    /// Checks how a condition of an autoscaler begins.
    #[track_caller]
    pub(crate) fn assert_said(&self, name: &str, kind: &str, begin: &str) {
        let said = self.said(name, kind);
        assert!(said.starts_with(begin), "{said}");
    }

    /// Returns how often a host wrote objects of a collection such as `deployments.apps/scale`.
    pub(crate) fn writes(&self, host: &str, collection: &str) -> usize {
        let entries = self.server.audit().into_iter();
        let written = entries.filter(|entry| {
            let is_meant = entry.client == host && entry.collection() == collection;
            is_meant && entry.written.is_some()
        });
        written.count()
    }

    /// Lets requests of every host with this method, and with these parts in their path and query, have this effect.
    pub(crate) fn trouble(
        &self,
        method: &'static str,
        parts: &'static [&'static str],
        effect: Effect,
    ) {
        self.network().begin(Trouble {
            client: String::new(),
            method,
            parts,
            effect,
        });
    }

    /// The status of an autoscaler, as text.
    pub(crate) fn status(&self, name: &str) -> String {
        self.ehpa(name)["status"].to_string()
    }

    /// Returns whether the status of an autoscaler is about its present spec.
    pub(crate) fn is_reported(&self, name: &str) -> bool {
        let ehpa = self.ehpa(name);
        ehpa["status"]["observedGeneration"] == ehpa["metadata"]["generation"]
    }

    /// Returns whether an autoscaler reports that a metric has no value.
    pub(crate) fn lacks_metrics(&self, name: &str) -> bool {
        self.said(name, "ScalingActive").starts_with("False/Failed")
    }

    pub(crate) fn ehpa(&self, name: &str) -> Arc<Value> {
        let ehpas = self.server.objects(EHPAS);
        let found = ehpas
            .into_iter()
            .find(|one| one["metadata"]["name"] == name);
        found.unwrap()
    }

    /// Lets a second pass, or the rest of it; returns the law that is broken after it.
    pub(crate) fn second(&mut self) -> Result<(), String> {
        self.pass(SECOND.saturating_sub(self.passed))
    }

    /// Lets a second pass in small slices, after each of which `sees` may change the cluster; returns the law that is
    /// broken.
    pub(crate) fn sliced_second(&mut self, mut sees: impl FnMut(&mut Self)) -> Result<(), String> {
        for _slice in 0..SECOND.as_millis() / SLICE.as_millis() {
            self.pass(SLICE)?;
            sees(self);
        }
        Ok(())
    }

    /// Lets a part of a second pass. At its beginning the rest of the cluster does its work.
    fn pass(&mut self, span: Duration) -> Result<(), String> {
        if self.passed.is_zero() {
            self.world.step();
            let (hpas, now) = (self.seconds.is_multiple_of(PERIOD.as_secs()), self.now());
            if hpas {
                self.hpas.step(&self.world, now);
            }
            self.members.step(hpas, now);
        }
        self.data_center.run_for(span);
        self.passed += span;
        if self.passed == SECOND {
            self.passed = Duration::ZERO;
            self.seconds += 1;
        }
        self.laws.check(self.data_center.now())?;
        // An election asks in a period of its own.
        let impatient = self.network().impatient();
        let mut impatient = impatient
            .iter()
            .filter(|(_, what)| !what.contains("/leases/"));
        if let Some((sent, what)) = impatient.next() {
            return Err(format!(
                "patience: {what} was refused, and is sent again at {sent}"
            ));
        }
        self.log.check()?;
        self.supervise()
    }

    /// Starts processes again that have ended, as a kubelet does.
    fn supervise(&mut self) -> Result<(), String> {
        let mut due = Vec::new();
        for (host, replica) in &mut self.replicas {
            if let Some(ended) = self.data_center.ended(host) {
                if ended.is_ok() {
                    self.laws.check_release(host)?;
                }
                replica
                    .back
                    .get_or_insert(self.seconds + BACK_OFF.as_secs());
                replica.ended = Some(ended);
            }
            if replica.back.is_some_and(|back| back <= self.seconds) {
                due.push((host.clone(), replica.ahead));
            }
        }
        for (host, ahead) in due {
            self.start_ahead(&host, ahead);
        }
        Ok(())
    }

    /// Lets time pass.
    pub(crate) fn run_for(&mut self, seconds: u64) {
        for _second in 0..seconds {
            self.second()
                .unwrap_or_else(|broken| panic!("{}: {broken}", self.now()));
        }
    }

    /// Lets time pass until a condition holds, and stops within the second in which it does.
    pub(crate) fn until_just(&mut self, seconds: u64, what: &str, holds: impl Fn(&Self) -> bool) {
        for _instant in 0..100 * seconds {
            if holds(self) {
                return;
            }
            let passed = self.pass(SLICE);
            passed.unwrap_or_else(|broken| panic!("{}: {broken}", self.now()));
        }
        panic!("{}: not within {seconds} s: {what}", self.now());
    }

    /// Lets time pass until a condition holds; a failure shows the fleet, if there is one.
    pub(crate) fn until(&mut self, seconds: u64, what: &str, holds: impl Fn(&Self) -> bool) {
        for _second in 0..seconds {
            if holds(self) {
                return;
            }
            self.run_for(1);
        }
        assert!(
            holds(self),
            "{}: not within {seconds} s: {what}\n{}",
            self.now(),
            self.show()
        );
    }

    /// Lets time pass until a Deployment has this many replicas.
    pub(crate) fn until_has(&mut self, seconds: u64, name: &str, count: u64) {
        let what = format!("{name} has {count}");
        self.until(seconds, &what, |cluster| cluster.replicas(name) == count);
    }

    /// Lets time pass until the condition `Ready` of an autoscaler begins with this text.
    pub(crate) fn until_ready(&mut self, seconds: u64, name: &str, begin: &str) {
        self.until(seconds, begin, |cluster| {
            cluster.said(name, "Ready").starts_with(begin)
        });
    }
}

/// Counts a reading of the clocks, and stops the process if that is due, or panics.
fn interrupt(armed: &Mutex<(Option<Stop>, Option<&'static str>)>) {
    let mut armed = armed.lock().unwrap();
    let is_there = |function: &str| Backtrace::force_capture().to_string().contains(function);
    if let Some(function) = armed.1.take_if(|function| is_there(function)) {
        drop(armed);
        panic!("in {function}");
    }
    let Some(stop) = &mut armed.0 else {
        return;
    };
    if let Some(left) = stop.readings.checked_sub(1) {
        stop.readings = left;
        return;
    }
    let Stop {
        is_inside, span, ..
    } = *stop;
    armed.0 = None;
    drop(armed);
    if is_inside {
        stop_here(span);
    } else {
        tokio::spawn(async move { stop_here(span) });
    }
}

/// The condition of this type in a status; null if there is none.
pub(crate) fn condition(status: &Value, kind: &str) -> Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut of_kind = conditions.filter(|one| one["type"] == kind);
    of_kind.next().cloned().unwrap_or_default()
}

/// A namespace.
pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A Deployment whose pods aim at half of their requests.
pub(crate) fn deployment(namespace: &str, name: &str, replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "app", "image": "app:1",
                    "resources": {"requests": {"cpu": format!("{}m", 2 * PER_POD)}},
                }]},
            },
        },
    })
}

/// A window that is always open.
pub(crate) fn window(replicas: u64) -> Value {
    json!([{"name": "floor", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": replicas}])
}

/// A window that is always open, as part of a `spec`.
pub(crate) fn always(replicas: u64) -> Value {
    json!({"crons": window(replicas)})
}

/// An HPA of a Deployment that somebody else made, with this `spec`.
pub(crate) fn hpa(namespace: &str, name: &str, target: &str, mut spec: Value) -> Value {
    spec["scaleTargetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": target});
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

/// The cpu metric with a target of [`PER_POD`].
pub(crate) fn cpu() -> Value {
    cpu_at(50)
}

/// The cpu metric with a target of this many percent.
pub(crate) fn cpu_at(percent: u64) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// An external metric with a target of [`PER_POD`] as the only one.
pub(crate) fn external(metric: &str) -> Value {
    json!({"metrics": [{"type": "External", "external": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": "100m"},
    }}]})
}

pub(crate) fn settings() -> Settings {
    Settings {
        downscale_stabilization: SignedDuration::try_from(STABILIZATION).unwrap(),
        ..Settings::default()
    }
}

fn config(elects: bool, has_members: bool) -> Config {
    let defaults = ConfigFile::default().config().unwrap();
    Config {
        targets: TargetRules {
            denied_namespaces: [DENIED.to_owned()].into(),
            ..TargetRules::default()
        },
        page_memory: 1 << 20,
        metrics_auth: MetricsAuth::Open,
        access: access("controller"),
        members: MemberArgs {
            namespace: has_members.then(|| SYSTEM.to_owned()),
            lost_after: LOST_AFTER,
            ..defaults.members
        },
        election: elects.then(|| Election {
            namespace: Some("foretide-system".to_owned()),
            timing: Timing::default(),
        }),
        listen: "127.0.0.1:0".parse().unwrap(),
        sync_period: SignedDuration::try_from(PERIOD).unwrap(),
        local_zone: Zone::utc(),
        settings: settings(),
        ..defaults
    }
}

fn adapter_config() -> AdapterConfig {
    AdapterConfig {
        server: MetricServerConfig {
            access: access("adapter"),
            namespaces: Vec::new(),
            listen: "127.0.0.1:0".parse().unwrap(),
            probe_listen: "127.0.0.1:0".parse().unwrap(),
        },
        apis: vec![MetricApi::External, MetricApi::Custom],
        service: ServiceConfig {
            name: "foretide-adapter".to_owned(),
            namespace: Some("foretide-system".to_owned()),
            certificate: None,
            secret: "foretide-adapter-certificates".to_owned(),
            lifetimes: CertificateLifetimes::PUBLISHED,
        },
        upstream: None,
    }
}

/// The credential of an account.
fn token(account: &str) -> String {
    format!("{SECRET}{account}")
}

fn access(account: &str) -> KubeAccess {
    KubeAccess::Kubeconfig {
        path: Some(KUBECONFIGS[account].clone()),
        context: None,
    }
}

static WRITTEN: AtomicU64 = AtomicU64::new(0);

static KUBECONFIGS: LazyLock<BTreeMap<&str, PathBuf>> = LazyLock::new(|| {
    ["controller", "adapter"]
        .map(|account| (account, kubeconfig(account)))
        .into()
});

fn kubeconfig(account: &str) -> PathBuf {
    // Connections in memory need no CA. Without one, each process would read those of the system.
    let unused = STANDARD.encode(certificate());
    let cluster = json!({"server": format!("http://{HUB}"), "certificate-authority-data": unused});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "hub",
        "clusters": [{"name": "hub", "cluster": cluster}],
        "users": [{"name": "hub", "user": {"token": token(account)}}],
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "hub"}}],
    });
    file(
        &format!("simulated-hub-{account}.yaml"),
        &config.to_string(),
    )
}

/// Writes a file, which is whole also for another run of these tests that reads or writes it at the same time.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let own = path.with_extension(format!("{}-{number}", std::process::id()));
    std::fs::write(&own, text).unwrap();
    std::fs::rename(&own, &path).unwrap();
    path
}

fn certificate() -> String {
    let certified = rcgen::generate_simple_self_signed([HUB.to_owned()]);
    certified.unwrap().cert.pem()
}

/// The definitions and rights that the product is installed with, and the namespaces of two users.
static INSTALLATION: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let files = [
        "crds/autoscaling.crane.io_effectivehorizontalpodautoscalers.yaml",
        "crds/autoscaling.foretide.io_federatedhpas.yaml",
        "crds/prediction.crane.io_timeseriespredictions.yaml",
        "deploy/10-namespace.yaml",
        "deploy/20-controller-rbac.yaml",
        "deploy/fleets/rbac.yaml",
        "deploy/23-leader-rbac.yaml",
    ];
    let mut objects = vec![namespace(SHOP), namespace(TENANT)];
    objects.extend(files.into_iter().flat_map(manifests));
    objects
});

fn manifests(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}
