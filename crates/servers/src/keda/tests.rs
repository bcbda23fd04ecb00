//! The service without a connection: sources, refusals, and streams.

use std::{
    net::Ipv4Addr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use axum::body::{Bytes, to_bytes};
use futures::{FutureExt as _, StreamExt, stream};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::{sync::watch, task::unconstrained, time::timeout};
use tonic::Code;
use tower::ServiceExt as _;

use super::{
    proto::{MetricSpec, MetricValue},
    *,
};

const NOW: &str = "2026-03-01T10:00:00Z";

/// Autoscalers that a test sets.
pub(crate) struct Fake {
    objects: Mutex<Option<Vec<Arc<EffectiveHorizontalPodAutoscaler>>>>,
    changed: watch::Sender<()>,
    /// Number of lookups.
    reads: AtomicUsize,
}

impl Autoscalers for Fake {
    fn is_synced(&self) -> bool {
        self.objects.lock().unwrap().is_some()
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Arc<EffectiveHorizontalPodAutoscaler>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut all = self.of_namespace(namespace).into_iter();
        all.find(|object| object.metadata.name.as_deref() == Some(name))
    }

    fn of_namespace(&self, namespace: &str) -> Vec<Arc<EffectiveHorizontalPodAutoscaler>> {
        let objects = self.objects.lock().unwrap();
        let all = objects.iter().flatten().cloned();
        all.filter(|object| object.metadata.namespace.as_deref() == Some(namespace))
            .collect()
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let changes = stream::unfold(self.changed.subscribe(), |mut changed| async {
            changed.changed().await.ok()?;
            Some(((), changed))
        });
        changes.boxed()
    }
}

impl Fake {
    /// Returns these autoscalers; none before they are listed.
    pub fn of(objects: Option<Vec<Arc<EffectiveHorizontalPodAutoscaler>>>) -> Arc<Self> {
        Arc::new(Self {
            objects: Mutex::new(objects),
            changed: watch::channel(()).0,
            reads: AtomicUsize::default(),
        })
    }

    fn set(&self, objects: &[Value]) {
        let parsed = objects
            .iter()
            .map(|object| Arc::new(serde_json::from_value(object.clone()).unwrap()));
        *self.objects.lock().unwrap() = Some(parsed.collect());
        self.changed.send_replace(());
    }

    /// Changes one autoscaler, as a watch does.
    fn change(&self, object: &Value) {
        let changed: EffectiveHorizontalPodAutoscaler =
            serde_json::from_value(object.clone()).unwrap();
        let mut objects = self.objects.lock().unwrap();
        let mut all = objects.iter_mut().flatten();
        let found = all.find(|one| one.metadata.name == changed.metadata.name);
        *found.unwrap() = Arc::new(changed);
        drop(objects);
        self.changed.send_replace(());
    }
}

fn scaler() -> (Arc<Fake>, Scaler) {
    let fake = Fake::of(None);
    let statuses = Statuses {
        autoscalers: fake.clone(),
        clock: Clock::standing_at(NOW.parse().unwrap()),
    };
    (fake, Scaler::new(statuses))
}

/// Updates the answers of streams.
fn updates(scaler: &Scaler) -> impl Future<Output = ()> + use<> {
    let (activity, specs) = (Arc::clone(&scaler.activity), Arc::clone(&scaler.specs));
    async move {
        futures::join!(activity.run(), specs.run());
    }
}

/// An autoscaler of namespace `shop` with these proposals and floor.
fn web(proposals: &Value, floor: Option<i32>) -> Value {
    json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 100,
            "crons": [{"name": "day"}],
            "metrics": [{"type": "Resource"}],
        },
        "status": {"decision": {
            "time": "2026-03-01T09:59:00Z", "currentReplicas": 7, "proposals": proposals, "floor": floor,
        }},
    })
}

fn forecast(metric: &str, value: &str, target: &str) -> Value {
    json!({"source": "forecast", "name": metric, "replicas": 9, "value": value, "target": target})
}

fn window(replicas: Option<i32>) -> Value {
    json!({"source": "cron", "name": "day", "replicas": replicas})
}

fn object(metadata: &[(&str, &str)]) -> ScaledObjectRef {
    let pairs = metadata.iter();
    let owned = pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ScaledObjectRef {
        name: "web-scaler".to_owned(),
        namespace: "shop".to_owned(),
        scaler_metadata: owned.collect(),
    }
}

/// The trigger for the forecast of this metric.
fn of_forecast(metric: &str) -> ScaledObjectRef {
    object(&[
        ("autoscaler", "web"),
        ("source", "forecast"),
        ("metric", metric),
    ])
}

fn of_source(source: &str) -> ScaledObjectRef {
    object(&[("autoscaler", "web"), ("source", source)])
}

async fn active(scaler: &Scaler, object: ScaledObjectRef) -> Result<bool, Status> {
    let answer = scaler.is_active(Request::new(object)).await?;
    Ok(answer.into_inner().result)
}

async fn spec(scaler: &Scaler, object: ScaledObjectRef) -> Result<MetricSpec, Status> {
    let answer = scaler.get_metric_spec(Request::new(object)).await?;
    let [spec] = answer.into_inner().metric_specs.try_into().unwrap();
    Ok(spec)
}

async fn value(
    scaler: &Scaler,
    object: ScaledObjectRef,
    name: &str,
) -> Result<MetricValue, Status> {
    let request = GetMetricsRequest {
        scaled_object_ref: Some(object),
        metric_name: name.to_owned(),
    };
    let answer = scaler.get_metrics(Request::new(request)).await?;
    let [value] = answer.into_inner().metric_values.try_into().unwrap();
    Ok(value)
}

/// Answers about a source, whose metric has this name: the target and the value, each as a whole number and as a double,
/// and whether it is active.
async fn told(scaler: &Scaler, source: &str, name: &str) -> ([(i64, f64); 2], bool) {
    let spec = spec(scaler, of_source(source)).await.unwrap();
    let value = value(scaler, of_source(source), name).await.unwrap();
    assert_eq!([spec.metric_name, value.metric_name], [name; 2]);
    let target = (spec.target_size, spec.target_size_float);
    let total = (value.metric_value, value.metric_value_float);
    let is_active = active(scaler, of_source(source)).await.unwrap();
    ([target, total], is_active)
}

fn assert_refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, message: &str) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(message), "{status}");
}

#[tokio::test]
async fn counts_have_target_one_and_are_active_while_a_proposal_asks_for_replicas() {
    let (fake, scaler) = scaler();
    let cpu = forecast("resource.cpu", "0.9", "0.1");
    let two_windows = json!([window(Some(5)), window(None), cpu]);
    for (proposals, floor, source, count, is_active) in [
        (json!([window(Some(5)), cpu]), Some(9), "floor", 9, true),
        (json!([window(None)]), Some(7), "floor", 7, true),
        (json!([window(None)]), Some(2), "floor", 0, false),
        (json!([window(None)]), None, "floor", 0, false),
        (two_windows, Some(9), "cron", 5, true),
        (json!([window(Some(0))]), Some(2), "cron", 0, false),
        (json!([window(None), cpu]), Some(9), "cron", 0, false),
    ] {
        fake.set(&[web(&proposals, floor)]);
        let found = told(&scaler, source, &format!("foretide-{source}-web")).await;
        let expected = [(1, 1.0), (count.into(), count.into())];
        assert_eq!(found, (expected, is_active), "{source} of {proposals}");
    }
}

#[tokio::test]
async fn a_forecast_gives_its_total_and_the_target_per_pod_as_the_nearest_double() {
    let (fake, scaler) = scaler();
    for (total, target, totals, targets) in [
        ("0.9", "0.35", (1, 0.9), (1, 0.35)),
        ("0.123456789", "0.001", (1, 0.123_456_789), (1, 0.001)),
        ("123456.7", "1000", (123_457, 123_456.7), (1000, 1000.0)),
        (
            "1073741824",
            "536870912",
            (1_073_741_824, 1_073_741_824.0),
            (536_870_912, 536_870_912.0),
        ),
        ("0", "0.5", (0, 0.0), (1, 0.5)),
    ] {
        fake.set(&[web(&json!([forecast("resource.cpu", total, target)]), None)]);
        let found = told(&scaler, "forecast", "foretide-forecast-web-resource-cpu").await;
        assert_eq!(found, ([targets, totals], totals.0 > 0));
    }
}

#[tokio::test]
async fn refusals_say_what_is_expected_and_whether_to_try_again() {
    let (fake, scaler) = scaler();
    let ours = "EffectiveHorizontalPodAutoscaler shop/web";
    let unlisted = active(&scaler, of_source("floor")).await;
    assert_refused(unlisted, Code::Unavailable, "");
    let cpu = forecast("resource.cpu", "0.9", "0.1");
    let memory = forecast("resource.memory", "9", "0.0001");
    fake.set(&[web(&json!([cpu, memory, window(None)]), Some(9))]);

    let unknown = active(&scaler, object(&[("autoscaler", "api")])).await;
    let message = "no EffectiveHorizontalPodAutoscaler shop/api: expected one of that name in the namespace of the \
                   ScaledObject";
    assert_refused(unknown, Code::NotFound, message);
    let other = ScaledObjectRef {
        namespace: "bank".to_owned(),
        ..of_source("floor")
    };
    assert_refused(spec(&scaler, other).await, Code::NotFound, "bank/web");
    let several = active(&scaler, of_source("forecast")).await;
    let message = format!(
        "{ours} forecasts resource.cpu, resource.memory: set metric in the trigger metadata to one of them"
    );
    assert_refused(several, Code::InvalidArgument, &message);
    let small = spec(&scaler, of_forecast("resource.memory")).await;
    let message = "the target of resource.memory is 100u per pod";
    assert_refused(small, Code::FailedPrecondition, message);
    let absent = active(&scaler, of_forecast("pods.requests")).await;
    let message = format!("{ours} has no forecast of pods.requests: it is not forecast");
    assert_refused(absent, Code::Unavailable, &message);
    let misnamed = value(&scaler, of_source("floor"), "s0-x").await;
    let message =
        "metric \"s0-x\" is not the metric of the trigger: expected \"foretide-floor-web\"";
    assert_refused(misnamed, Code::InvalidArgument, message);
    let invalid = object(&[("autoscaler", "web"), ("namespace", "bank")]);
    assert_refused(active(&scaler, invalid).await, Code::InvalidArgument, "");
}

#[tokio::test]
async fn an_autoscaler_without_crons_or_forecasts_cannot_be_read_for_them() {
    let (fake, scaler) = scaler();
    let ours = "EffectiveHorizontalPodAutoscaler shop/web";
    let mut no_crons = web(&json!([window(None)]), None);
    no_crons["spec"]["crons"] = json!([]);
    fake.set(&[no_crons]);
    let of_cron = active(&scaler, of_source("cron")).await;
    let message = format!("{ours} has no crons");
    assert_refused(of_cron, Code::FailedPrecondition, &message);
    let of_forecast = spec(&scaler, of_source("forecast")).await;
    let message = format!("{ours} forecasts no metric");
    assert_refused(of_forecast, Code::FailedPrecondition, &message);
}

#[tokio::test]
async fn a_status_that_is_too_old_gives_the_metric_but_no_value() {
    let (fake, scaler) = scaler();
    let both = json!([window(Some(5)), forecast("resource.cpu", "1", "0.5")]);
    fake.set(&[web(&both, Some(5))]);
    scaler.statuses.clock.advance(Duration::from_mins(15));
    for (source, metric) in [
        ("floor", "foretide-floor-web"),
        ("cron", "foretide-cron-web"),
        ("forecast", "foretide-forecast-web-resource-cpu"),
    ] {
        let spec = spec(&scaler, of_source(source)).await.unwrap();
        assert_eq!(spec.metric_name, metric);
        for message in [
            "does the controller run?",
            "a ScaledObject of the same target",
        ] {
            let value = value(&scaler, of_source(source), metric).await;
            assert_refused(value, Code::Unavailable, message);
            let active = active(&scaler, of_source(source)).await;
            assert_refused(active, Code::Unavailable, message);
        }
    }
    // Without any decision, a count has a target and a forecast has none.
    let mut undecided = web(&json!([]), None);
    undecided["status"] = json!({});
    fake.set(&[undecided]);
    assert!(spec(&scaler, of_source("floor")).await.is_ok());
    let of_forecast = spec(&scaler, of_source("forecast")).await;
    assert_refused(of_forecast, Code::Unavailable, "has no decision yet");
}

#[tokio::test(start_paused = true)]
async fn a_stream_answers_at_once_and_at_each_change_of_the_answer() {
    let (fake, scaler) = scaler();
    let open = web(&json!([window(Some(5))]), Some(5));
    let closed = web(&json!([window(None)]), None);
    fake.set(std::slice::from_ref(&closed));
    let _updates = tokio::spawn(updates(&scaler));
    let request = Request::new(of_source("cron"));
    let mut answers = scaler.stream_is_active(request).await.unwrap().into_inner();
    let mut next = async || {
        answers
            .next()
            .await
            .map(|answer| answer.map(|active| active.result))
    };
    assert!(!next().await.unwrap().unwrap());
    fake.set(&[closed]);
    fake.set(&[open]);
    assert!(next().await.unwrap().unwrap());
    // Time alone makes the status too old.
    let pass = async { scaler.statuses.clock.advance(Duration::from_mins(30)) };
    let waiting = timeout(Duration::from_mins(1), next());
    let (answer, ()) = futures::join!(waiting, pass);
    let answer = answer.unwrap();
    assert_eq!(answer.unwrap().unwrap_err().code(), Code::Unavailable);
    assert!(next().await.is_none());
    assert_eq!(scaler.activity.count(), 0);
}

#[tokio::test]
async fn a_stream_that_is_cancelled_is_released() {
    let (fake, scaler) = scaler();
    fake.set(&[web(&json!([window(Some(5))]), Some(5))]);
    let mut updates = Box::pin(updates(&scaler));
    let request = Request::new(of_source("cron"));
    let mut answers = scaler.stream_is_active(request).await.unwrap().into_inner();
    assert!(answers.next().await.unwrap().unwrap().result);
    assert!(futures::poll!(answers.next()).is_pending());
    assert_eq!((scaler.activity.count(), scaler.streams().count()), (1, 1));
    drop(answers);
    fake.set(&[]);
    assert!(futures::poll!(&mut updates).is_pending());
    assert_eq!((scaler.activity.count(), scaler.streams().count()), (0, 0));
}

#[tokio::test]
async fn a_stream_of_metrics_answers_when_the_target_changes() {
    let (fake, scaler) = scaler();
    let with_target = |target: &str| web(&json!([forecast("resource.cpu", "1", target)]), None);
    fake.set(&[with_target("0.5")]);
    let _updates = tokio::spawn(updates(&scaler));
    let request = Request::new(of_source("forecast"));
    let mut answers = scaler
        .stream_metric_spec(request)
        .await
        .unwrap()
        .into_inner();
    let mut next = async || {
        let specs = answers.next().await?.unwrap().metric_specs;
        Some(
            specs
                .iter()
                .map(|spec| spec.target_size_float)
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(next().await, Some(vec![0.5]));
    fake.set(&[with_target("0.25")]);
    assert_eq!(next().await, Some(vec![0.25]));
}

const KEDA: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn stranger(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 9, number])
}

/// The result, if it is ready. Unconstrained, because many streams in one test exceed the cooperative budget of a task.
fn now<F: Future>(future: F) -> Option<F::Output> {
    unconstrained(future).now_or_never()
}

type Activity = BoxStream<'static, Result<IsActiveResponse, Status>>;

/// A stream of a peer, for the autoscaler of this name.
async fn listen(scaler: &Scaler, peer: IpAddr, name: &str) -> Result<Activity, Status> {
    let mut request = Request::new(object(&[("autoscaler", name), ("source", "cron")]));
    request.extensions_mut().insert(PeerAddress(peer));
    let answer = scaler.stream_is_active(request).await?;
    Ok(answer.into_inner())
}

/// Autoscalers of these names, whose windows are closed.
fn closed(count: usize) -> Vec<Value> {
    let named = |number: usize| named(&format!("web-{number}"), None);
    (0..count).map(named).collect()
}

fn named(name: &str, replicas: Option<i32>) -> Value {
    let mut object = web(&json!([window(replicas)]), replicas);
    object["metadata"]["name"] = json!(name);
    object
}

/// Number of times that a task was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_change_is_computed_once_for_all_streams_of_its_trigger_and_wakes_no_other() {
    let (fake, scaler) = scaler();
    fake.set(&closed(2));
    let mut updates = Box::pin(updates(&scaler));
    assert_eq!(now(&mut updates), None);
    let mut of_changed = Vec::new();
    for _ in 0..100 {
        of_changed.push(listen(&scaler, KEDA, "web-0").await.unwrap());
    }
    let mut of_other = listen(&scaler, KEDA, "web-1").await.unwrap();
    for answers in of_changed.iter_mut().chain([&mut of_other]) {
        assert!(!now(answers.next()).unwrap().unwrap().unwrap().result);
    }
    let wakes = Arc::<Wakes>::default();
    let of_task = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&of_task);
    assert!(of_other.poll_next_unpin(&mut context).is_pending());

    let reads = fake.reads.load(Ordering::Relaxed);
    fake.change(&named("web-0", Some(5)));
    assert_eq!(now(&mut updates), None);
    for answers in &mut of_changed {
        assert!(now(answers.next()).unwrap().unwrap().unwrap().result);
    }
    // One read for each of the two topics.
    assert_eq!(fake.reads.load(Ordering::Relaxed) - reads, 2);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    fake.change(&named("web-1", Some(5)));
    assert_eq!(now(&mut updates), None);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    // A new object with the same answer wakes no stream.
    assert!(of_other.next().await.unwrap().unwrap().result);
    assert!(of_other.poll_next_unpin(&mut context).is_pending());
    fake.change(&named("web-1", Some(6)));
    assert_eq!(now(&mut updates), None);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn idle_streams_of_strangers_do_not_exclude_keda() {
    let (fake, scaler) = scaler();
    let objects = STREAMS.total / 64;
    fake.set(&closed(objects));
    let mut open = Vec::new();
    for number in 0..STREAMS.total {
        let peer = stranger(u8::try_from(number % 2).unwrap());
        let name = format!("web-{}", number % objects);
        open.push(listen(&scaler, peer, &name).await.unwrap());
    }
    // A stranger is at its limit; KEDA gets an equal share, taken from the peers with the most streams.
    let refused = listen(&scaler, stranger(0), "web-0").await.map(drop);
    let message = "too many streams: at most 4096 per address and 8192 in total; use type external";
    assert_refused(refused, Code::ResourceExhausted, message);
    let share = STREAMS.total / 3;
    let mut of_keda = Vec::new();
    for number in 0..share {
        let name = format!("web-{}", number % objects);
        of_keda.push(listen(&scaler, KEDA, &name).await.unwrap());
    }
    for answers in &mut of_keda {
        assert!(!now(answers.next()).unwrap().unwrap().unwrap().result);
        assert!(now(answers.next()).is_none());
    }
    assert_eq!(scaler.streams().count(), STREAMS.total);
    let mut ended = Vec::new();
    for answers in &mut open {
        let first = now(answers.next());
        let second = now(answers.next());
        if let Some(Err(status)) = [first, second].into_iter().flatten().flatten().last() {
            ended.push(status);
        }
    }
    assert_eq!(ended.len(), share);
    assert_eq!(ended[0].code(), Code::ResourceExhausted);
    drop((open, of_keda));
    assert_eq!(scaler.streams().count(), 0);
}

#[tokio::test]
async fn each_trigger_has_a_limit() {
    let (fake, scaler) = scaler();
    fake.set(&closed(2));
    let mut open = Vec::new();
    for _ in 0..128 {
        open.push(listen(&scaler, stranger(1), "web-0").await.unwrap());
    }
    let refused = listen(&scaler, stranger(1), "web-0").await.map(drop);
    let message = "too many streams of this trigger: at most 128 per address and 256 in total";
    assert_refused(refused, Code::ResourceExhausted, message);
    // The permit of the refused stream is released.
    assert_eq!(scaler.streams().count(), open.len());
    for (peer, name) in [(KEDA, "web-0"), (stranger(1), "web-1")] {
        assert!(listen(&scaler, peer, name).await.is_ok());
    }
}

/// A call of `IsActive` that sends the first `sent` bytes of its message; an incomplete one never ends.
fn call(peer: IpAddr, sent: usize) -> axum::extract::Request {
    let message = object(&[("autoscaler", "web-0"), ("source", "cron")]).encode_to_vec();
    let mut framed = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
    framed.extend(message);
    let is_whole = sent >= framed.len();
    framed.truncate(sent);
    let chunk = stream::iter([Ok::<_, Status>(Bytes::from(framed))]);
    let body = if is_whole {
        Body::from_stream(chunk)
    } else {
        Body::from_stream(chunk.chain(stream::pending()))
    };
    let mut request = axum::extract::Request::post("/externalscaler.ExternalScaler/IsActive")
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap();
    request.extensions_mut().insert(PeerAddress(peer));
    request
}

/// The status of a call that was refused before it reached the service.
fn status_of(response: &HttpResponse) -> Code {
    let header = response.headers().get("grpc-status");
    header.map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()))
}

#[tokio::test(start_paused = true)]
async fn requests_that_do_not_arrive_end_and_exclude_no_others() {
    let (fake, scaler) = scaler();
    fake.set(&closed(1));
    let router = router(scaler, Quota::new(ARRIVING, Clock::system()));
    let ask = |peer, sent| router.clone().oneshot(call(peer, sent));
    let mut pending = Vec::new();
    for number in 0..2 * ARRIVING.per_holder {
        let peer = stranger(u8::try_from(number % 2).unwrap());
        let mut request = Box::pin(ask(peer, 7));
        assert!(futures::poll!(&mut request).is_pending());
        pending.push(request);
    }
    let refused = now(ask(stranger(0), 7)).expect("at once").unwrap();
    assert_eq!(status_of(&refused), Code::ResourceExhausted);
    // A request that arrives at once needs no permit; one that arrives in parts evicts a request of a stranger.
    let answered = ask(KEDA, usize::MAX).await.unwrap();
    assert_eq!(status_of(&answered), Code::Ok);
    let body = to_bytes(answered.into_body(), 64).await.unwrap();
    // A message with the value false, which has no bytes.
    assert_eq!(&body[..], [0; 5]);
    let mut slow = Box::pin(ask(KEDA, 7));
    assert!(futures::poll!(&mut slow).is_pending());
    let mut evicted = 0;
    for request in &mut pending {
        if let Some(response) = request.now_or_never() {
            assert_eq!(status_of(&response.unwrap()), Code::ResourceExhausted);
            evicted += 1;
        }
    }
    assert_eq!(evicted, 1);
    let late = timeout(2 * ARRIVAL_TIMEOUT, slow).await.unwrap().unwrap();
    assert_eq!(status_of(&late), Code::DeadlineExceeded);
}
