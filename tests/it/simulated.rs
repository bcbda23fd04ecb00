//! Two replicas of the controller in virtual time, over connections in memory to a small API server: equal seeds give
//! equal runs, request by request.
//!
//! The server knows lists, watches, patches and leases, delays and fails requests by its seed, and notes all it is asked.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::body::{Body, Bytes, to_bytes};
use foretide::{
    adapters::kube::{Connection, KubeCluster, KubeLease, WriteGate},
    clock::{Clock, Monotonic},
    controller::{EffectiveController, Setup, Shared},
    leadership::{self, Campaign, Timing},
    machine::{Dial, Machine, Stream},
    telemetry::Telemetry,
};
use foretide_domain::{cron::Zone, hpa::Settings};
use futures::{FutureExt as _, future::BoxFuture, stream};
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinSet, time::sleep};

const START: i64 = 1_767_225_600;
const SYNC_PERIOD: Duration = Duration::from_secs(15);
/// When in a period the objects of the namespace are due. Replicas stop then, so that two branches of a `select!` are
/// ready at once.
const DUE: Duration = Duration::from_millis(8_906);
const EHPAS: &str = "apis/autoscaling.crane.io/v1alpha1/effectivehorizontalpodautoscalers";
const DEPLOYMENTS: &str = "apis/apps/v1/deployments";

/// The API server.
struct Server {
    state: Mutex<State>,
    moved: Notify,
    clock: Clock,
}

/// Objects by collection, namespace and name; all changes with their version; and a line for each request.
#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<Key, Value>,
    changes: Vec<(u64, String, Value)>,
    log: Vec<String>,
    random: u64,
}

type Key = (String, String, String);

/// The way of one replica to the server.
#[derive(Clone)]
struct Network {
    replica: &'static str,
    server: Arc<Server>,
}

impl Dial for Network {
    fn dial(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        assert_eq!((host, port), ("hub", 80));
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let network = self.clone();
        let service = service_fn(move |request| network.clone().serve(request));
        // Its dates would be those of the wall clock.
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).auto_date_header(false);
        tokio::spawn(http.serve_connection(TokioIo::new(theirs), service));
        let stream: Box<dyn Stream> = Box::new(ours);
        std::future::ready(Ok(stream)).boxed()
    }
}

impl Network {
    async fn serve(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await.unwrap();
        let server = &self.server;
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        server.note(
            self.replica,
            &format!("{} {} {body}", parts.method, parts.uri),
        );
        // Often none, and else in steps, so that answers and timers are due at the same time.
        sleep(Duration::from_millis(500) * server.below(10).saturating_sub(7)).await;
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        if server.below(20) == 0 {
            return Ok(response(
                503,
                &json!({"kind": "Status", "message": "overloaded", "code": 503}),
            ));
        }
        if query.contains("watch=true") {
            return Ok(Response::new(self.server.watch(path, query)));
        }
        let (code, answer) = server.answer(parts.method.as_str(), path, body);
        Ok(response(code, &answer))
    }
}

fn response(code: u16, body: &Value) -> Response<Body> {
    let response = Response::builder()
        .status(code)
        .header("content-type", "application/json");
    response.body(Body::from(body.to_string())).unwrap()
}

/// The key in a path, with an empty name for a collection, and the subresource.
fn key(path: &str) -> (Key, Option<String>) {
    let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let group = if parts[0] == "api" { 2 } else { 3 };
    let group: Vec<_> = parts.drain(..group.min(parts.len())).collect();
    let mut namespace = "";
    if parts.first() == Some(&"namespaces") && parts.len() > 2 {
        namespace = parts[1];
        parts.drain(..2);
    }
    let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_owned();
    let collection = format!("{}/{}", group.join("/"), part(0));
    let key = (collection, namespace.to_owned(), part(1));
    (key, parts.get(2).map(|part| (*part).to_owned()))
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A random number below a bound, by the linear congruence of Knuth.
    fn below(&self, bound: u32) -> u32 {
        let mut state = self.state();
        state.random = state
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u32::try_from(state.random >> 33).unwrap() % bound
    }

    fn note(&self, replica: &str, what: &str) {
        let line = format!("{} {replica} {what}", self.clock.now());
        self.state().log.push(line);
    }

    /// Stores an object; returns it as it is stored.
    fn put(&self, key: Key, mut object: Value) -> Value {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(key.2);
        metadata["namespace"] = json!(key.1);
        metadata["resourceVersion"] = json!(version.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{version}"));
            metadata["creationTimestamp"] = json!(self.clock.now());
            metadata["generation"] = json!(1);
        }
        let collection = key.0.clone();
        let before = state.objects.insert(key, object.clone());
        let kind = before.map_or("ADDED", |_| "MODIFIED");
        let event = json!({"type": kind, "object": object});
        state.changes.push((version, collection, event));
        drop(state);
        self.moved.notify_waiters();
        object
    }

    fn answer(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let failed = |code: u16| {
            (
                code,
                json!({"kind": "Status", "message": "no", "code": code}),
            )
        };
        let (mut key, subresource) = key(path);
        let stored = self.state().objects.get(&key).cloned();
        match (method, stored) {
            ("GET", _) if key.2.is_empty() => {
                let state = self.state();
                let of_kind = state.objects.iter().filter(|(known, _)| known.0 == key.0);
                let items: Vec<_> = of_kind.map(|(_, object)| object).collect();
                let metadata = json!({"resourceVersion": state.version.to_string()});
                (
                    200,
                    json!({"kind": "List", "metadata": metadata, "items": items}),
                )
            }
            ("GET", Some(object)) => (200, object),
            ("POST", _) => {
                let name = body["metadata"]["name"].as_str();
                key.2 = name.map_or_else(|| format!("event-{}", self.state().version), Into::into);
                if self.state().objects.contains_key(&key) {
                    return failed(409);
                }
                (201, self.put(key, body))
            }
            ("PUT", Some(stored))
                if body["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"] =>
            {
                (200, self.put(key, body))
            }
            ("PUT", Some(_)) => failed(409),
            ("PATCH", stored) => {
                let mut object = stored.unwrap_or_else(|| json!({}));
                if !patch(&mut object, &body) {
                    return failed(422);
                }
                let stored = self.put(key, object);
                let (metadata, replicas) = (&stored["metadata"], &stored["spec"]["replicas"]);
                match subresource.as_deref() {
                    Some("scale") => (
                        200,
                        json!({
                            "metadata": metadata, "spec": {"replicas": replicas}, "status": {"replicas": replicas},
                        }),
                    ),
                    _ => (200, stored),
                }
            }
            _ => failed(404),
        }
    }

    /// The changes of a collection after a version, for 25 seconds.
    fn watch(self: &Arc<Self>, path: &str, query: &str) -> Body {
        let collection = key(path).0.0;
        let version = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="));
        let from: u64 = version.unwrap().parse().unwrap();
        let end = self.clock.now() + Duration::from_secs(25);
        let events = stream::unfold((Arc::clone(self), from), move |(server, from)| {
            let collection = collection.clone();
            async move {
                let (at, event) = server.next_change(from, &collection, end).await?;
                let line = Ok::<_, Infallible>(Bytes::from(format!("{event}\n")));
                Some((line, (server, at)))
            }
        });
        Body::from_stream(events)
    }

    async fn next_change(&self, from: u64, of: &str, end: Timestamp) -> Option<(u64, Value)> {
        let clock = &self.clock;
        while clock.now() < end {
            let moved = self.moved.notified();
            let next = {
                let state = self.state();
                let mut changes = state.changes.iter();
                changes
                    .find(|(at, known, _)| *at > from && known == of)
                    .cloned()
            };
            if let Some((at, _, event)) = next {
                return Some((at, event));
            }
            tokio::select! {
                biased;
                () = moved => {}
                () = clock.sleep(end.duration_since(clock.now())) => {}
            }
        }
        None
    }
}

/// Applies a JSON patch, or else a merge patch; returns whether all tests of the patch hold.
fn patch(object: &mut Value, patch: &Value) -> bool {
    let Some(operations) = patch.as_array() else {
        merge(object, patch);
        return true;
    };
    operations.iter().all(|operation| {
        let (field, value) = (operation["path"].as_str().unwrap(), &operation["value"]);
        if operation["op"] == "test" {
            return object.pointer(field).unwrap_or(&Value::Null) == value;
        }
        let (parent, name) = field.rsplit_once('/').unwrap();
        object.pointer_mut(parent).is_some_and(|parent| {
            parent[name.replace("~1", "/")] = value.clone();
            true
        })
    })
}

fn merge(into: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| merge(&mut into[name], value)),
        value => *into = value.clone(),
    }
}

/// One replica, until the objects are due in a period of its machine: its watches, its election, and its controller.
async fn replica(machine: &Machine, last_period: u32) {
    let awake = machine.clock().monotonic().since(Monotonic::default());
    let stop = || sleep((SYNC_PERIOD * last_period + DUE).saturating_sub(awake));
    let connection = Connection::new(kube::Config::new("http://hub".parse().unwrap()), machine);
    let (connection, clock) = (connection.unwrap(), machine.clock().clone());
    let (timing, telemetry) = (Timing::default(), Arc::<Telemetry>::default());
    let lease = KubeLease::new(
        &connection,
        "foretide-system",
        "foretide",
        timing.request_deadline(),
    );
    let identity = leadership::identity(machine);
    let campaign = Campaign::new(
        lease,
        identity,
        timing,
        clock.clone(),
        Arc::clone(&telemetry),
    );
    let leadership = campaign.leadership().clone();
    let gate = WriteGate::of(leadership.clone());
    let hub = Arc::new(KubeCluster::new(connection, &[], gate));
    let setup = Setup {
        sync_period: SignedDuration::try_from(SYNC_PERIOD).unwrap(),
        local_zone: Zone::utc(),
        settings: Settings::default(),
        targets: Arc::default(),
        read_deadline: Setup::READ_DEADLINE,
        member_deadline: Setup::MEMBER_DEADLINE,
    };
    let shared = Shared {
        forecasts: Arc::default(),
        telemetry,
        page: Arc::default(),
    };
    let controller = EffectiveController::new(Arc::clone(&hub), clock, setup, shared);
    let controller = controller.led_by(leadership);
    let mut watches = JoinSet::new();
    watches.spawn(async move { hub.run().await });
    tokio::join!(controller.run(stop()), campaign.run(stop()));
}

/// An object that is scaled, and its autoscaler with a window of three minutes in each six.
fn objects(name: &str, mode: &str) -> [(Key, Value); 2] {
    let key = |collection: &str| (collection.to_owned(), "shop".to_owned(), name.to_owned());
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": {}},
        "status": {"replicas": 2},
    });
    let ehpa = json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 9, "mode": mode,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
            }}],
            "crons": [{"name": "rush", "start": "*/6 * * * *", "end": "3-59/6 * * * *", "targetReplicas": 6}],
        },
    });
    [(key(DEPLOYMENTS), deployment), (key(EHPAS), ehpa)]
}

/// Six minutes of two replicas, of which one is started again each minute; all requests.
async fn run(seed: u64) -> Vec<String> {
    let clock = || Clock::simulated(Timestamp::from_second(START).unwrap());
    let server = Arc::new(Server {
        state: Mutex::new(State {
            random: seed,
            ..State::default()
        }),
        moved: Notify::new(),
        clock: clock(),
    });
    for (name, mode) in [("web", "Delegated"), ("api", "Direct"), ("batch", "Direct")] {
        for (key, object) in objects(name, mode) {
            server.put(key, object);
        }
    }
    let mut replicas = JoinSet::new();
    for (number, name) in [(0, "pod-0"), (1, "pod-1")] {
        let network = Network {
            replica: name,
            server: Arc::clone(&server),
        };
        let machine = Machine::simulated(name, clock(), network, seed + u64::from(number));
        replicas.spawn(async move {
            for restart in 0.. {
                replica(&machine, 4 * (2 * restart + number)).await;
            }
        });
    }
    sleep(Duration::from_mins(6)).await;
    let state = &mut *server.state();
    std::mem::take(&mut state.log)
}

/// A run on a thread of its own, because the order of some maps differs from thread to thread.
fn run_apart(seed: u64) -> Vec<String> {
    let run = move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(seed))
    };
    std::thread::spawn(run).join().unwrap()
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 1..=3 {
        let (one, two) = (run_apart(seed), run_apart(seed));
        let differs = one.iter().zip(&two).find(|(one, two)| one != two);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.len(), two.len(), "seed {seed}");
    }
}

#[test]
fn a_run_elects_scales_and_reports() {
    let log = run_apart(1);
    let due = format!(":{:06.3}Z pod-", (SYNC_PERIOD + DUE).as_secs_f64());
    for part in [
        due.as_str(),
        "PUT /apis/coordination.k8s.io/v1",
        "PATCH /apis/apps/v1/namespaces/shop/deployments/api/scale",
        "horizontalpodautoscalers/",
        "/status",
        "pod-0",
        "pod-1",
    ] {
        let count = log.iter().filter(|line| line.contains(part)).count();
        assert!(count > 0, "{part}: {count} of {}", log.len());
    }
    assert_ne!(log, run_apart(2));
}
