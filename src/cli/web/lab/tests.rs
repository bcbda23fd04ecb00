//! Experiments over the routes, as a page sends them.

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use foretide_domain::cron::Zone;
use futures::FutureExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tower::ServiceExt as _;

use super::*;
use crate::cli::output::Screen;
use foretide_base::clock::Clock;
use foretide_page::http::PageSite;

const MANIFEST: &str = include_str!("../../demo/autoscaler.yaml");

fn context() -> CommandContext {
    CommandContext {
        screen: Screen::default(),
        local: Zone::utc(),
        now: Timestamp::UNIX_EPOCH,
        machine: foretide_base::machine::Machine::system(),
    }
}

fn router() -> Router {
    routes(&context())
}

/// The Lab behind the guard of a page.
fn page() -> Router {
    let (page, _) = crate::cli::demo::web::start(&context(), 0.0).unwrap();
    PageSite::open(page, &Clock::system())
        .with_lab(router())
        .router()
}

async fn send(router: &Router, line: &str, body: &Value) -> (StatusCode, String) {
    let (method, path) = line.split_once(' ').unwrap();
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

/// Four days of a demand that rises and falls, every five minutes.
fn experiment() -> Value {
    let begin = 1_772_409_600;
    let lines = (0..4 * 288).map(|step| {
        let demand = 2.0
            + f64::from(step % 288)
                .mul_add(std::f64::consts::TAU / 288.0, 0.0)
                .sin();
        format!("{},{demand:.3}\n", begin + i64::from(step) * 300)
    });
    let history = json!({ "name": "demand.csv", "text": lines.collect::<String>() });
    json!({
        "manifests": [{ "name": "web.yaml", "text": MANIFEST }],
        "histories": [history],
        "requests": ["cpu=500m"],
        "sweep": [0.5, 0.95],
    })
}

#[tokio::test]
async fn an_experiment_that_cannot_be_used_says_why() {
    let router = router();
    let mut broken = experiment();
    broken["manifests"][0]["text"] = json!("kind: [");
    let (status, _) = send(&router, "POST /lab/v1/experiments", &broken).await;
    assert_eq!(status, StatusCode::CREATED);
    let (_, events) = send(&router, "GET /lab/v1/experiments/1/events", &Value::Null).await;
    assert!(
        events.contains("event: finished\ndata: {\"error\":\"web.yaml"),
        "{events}"
    );
    let (status, text) = send(&router, "GET /lab/v1/experiments/1", &Value::Null).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(text.starts_with(r#"{"error":"web.yaml"#), "{text}");
    let (status, text) = send(
        &router,
        "POST /lab/v1/experiments",
        &json!({ "quantile": 1 }),
    )
    .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(text.contains("invalid experiment: "), "{text}");
}

#[tokio::test]
async fn a_cancelled_experiment_ends_and_eight_are_kept() {
    let router = router();
    let mut broken = experiment();
    broken["manifests"][0]["text"] = json!("kind: [");
    for id in 1..=9 {
        let (status, _) = send(&router, "POST /lab/v1/experiments", &broken).await;
        assert_eq!(status, StatusCode::CREATED);
        let line = format!("GET /lab/v1/experiments/{id}/events");
        let (_, events) = send(&router, &line, &Value::Null).await;
        assert!(events.contains("finished"));
    }
    let (status, _) = send(&router, "GET /lab/v1/experiments/1", &Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = send(&router, "GET /lab/v1/experiments/2", &Value::Null).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);

    let mut kept = Kept::default();
    let runs: Vec<_> = (0..KEPT_MAX).map(|_| kept.begin().unwrap()).collect();
    assert!(kept.begin().is_err(), "none of them has ended");
    runs[3].end(Err("cancelled".to_owned()));
    assert_eq!(runs[3].advance(0.5), ControlFlow::Break(()));
    assert_eq!(runs[4].advance(0.5), ControlFlow::Continue(()));
}

#[tokio::test]
async fn an_experiment_that_is_cancelled_while_it_waits_leaves_at_once() {
    let lab = Arc::new(Lab {
        turn: Arc::new(Semaphore::new(0)),
        ..Lab::new(context())
    });
    let run = lab.kept.lock().begin().unwrap();
    let waits = tokio::spawn(Arc::clone(&lab).run(Experiment::default(), Arc::clone(&run)));
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    let cancelled = cancel(State(Arc::clone(&lab)), Id("1".to_owned())).await;
    assert_eq!(cancelled.unwrap(), StatusCode::NO_CONTENT);
    waits.await.unwrap();
    assert_eq!(run.advance(0.5), ControlFlow::Break(()));
}

#[tokio::test]
async fn two_bodies_are_received_at_a_time() {
    let lab = Arc::new(Lab::new(context()));
    let unending = || {
        Request::new(Body::from_stream(stream::pending::<
            Result<String, Infallible>,
        >()))
    };
    let json = ("content-type", "application/json");
    let begin = || {
        let mut request = unending();
        request
            .headers_mut()
            .insert(json.0, json.1.parse().unwrap());
        Box::pin(super::begin(State(Arc::clone(&lab)), request))
    };
    let mut received = [begin(), begin()];
    for begun in &mut received {
        assert!(begun.now_or_never().is_none());
    }
    let refused = begin().await.unwrap_err().into_response();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(received);
    assert!(begin().now_or_never().is_none());
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_in_a_sentence() {
    let router = page();
    let to = |line: &str| {
        let (method, path) = line.split_once(' ').unwrap();
        Request::builder().method(method).uri(path)
    };
    let here = [
        ("host", "localhost:8090"),
        ("content-type", "application/json"),
    ];
    let experiments = "POST /lab/v1/experiments";
    let one = "GET /lab/v1/experiments";
    for (line, other, status) in [
        (experiments, Some(("content-type", "text/plain")), 415),
        (experiments, Some(("host", "evil.example")), 421),
        (experiments, Some(("origin", "https://evil.example")), 403),
        (experiments, Some(("origin", "null")), 403),
        (experiments, Some(("sec-fetch-site", "cross-site")), 403),
        (experiments, Some(("sec-fetch-site", "same-site")), 403),
        (experiments, None, 400),
        (&format!("{one}/1/chart.svg?width=x"), None, 400),
        (&format!("{one}/1/sweep.svg?width=-1"), None, 400),
        (&format!("{one}/%ff"), None, 400),
        (&format!("{one}/%ff/report.html"), None, 400),
        (&format!("{one}/..%2f1"), None, 404),
        (&format!("{one}/../experiments"), None, 404),
        (&format!("{one}//report.html"), None, 404),
        (&format!("{one}/1/../../../api/v1/overview"), None, 404),
        (one, None, 405),
        ("DELETE /lab/v1/experiments/1", None, 404),
        ("PUT /lab/v1/experiments/1", None, 405),
    ] {
        let mut request = to(line);
        for (name, value) in here {
            let other = other.filter(|(changed, _)| *changed == name);
            request = request.header(name, other.map_or(value, |(_, value)| value));
        }
        if let Some((name, value)) = other.filter(|(name, _)| !here.iter().any(|it| it.0 == *name))
        {
            request = request.header(name, value);
        }
        let request = request.body(Body::from("{")).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let found = response.status();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(found, status, "{line} {other:?}: {text}");
        assert!(
            text.starts_with("{\"error\":\""),
            "{line} {other:?}: {text}"
        );
        assert!(!text.contains("Failed to deserialize"), "{text}");
    }
}

#[test]
fn the_oldest_results_make_room_for_new_ones() {
    let mut kept = Kept::default();
    for _ in 0..4 {
        let run = kept.begin().unwrap();
        let results = Results {
            json: String::new(),
            html: "a".repeat(KEPT_BYTES_MAX / 3),
            manifest: String::new(),
            notes: Vec::new(),
            charts: Default::default(),
            sweeps: None,
        };
        run.state
            .send_replace(RunState::Finished(Arc::new(Ok(results))));
        kept.shrink();
    }
    let ids: Vec<u64> = kept.runs.iter().map(|run| run.id).collect();
    assert_eq!(ids, [2, 3, 4]);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let text = "a".repeat(BODY_MAX);
    let (status, _) = send(
        &router(),
        "POST /lab/v1/experiments",
        &json!({ "manifests": text }),
    )
    .await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}
