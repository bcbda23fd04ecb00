//! Limits and retries of single requests.

use std::time::Duration;

use futures::poll;
use http::Method;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::{
    client::{Body, Calls, Connection, Limits},
    error::CallError,
    write_gate::WriteGate,
};

use foretide_api::ports::ClusterError;
use foretide_base::{
    breaker,
    clock::{Clock, Monotonic},
    leadership::{Leadership, Token},
};
use simkube::client::{FakeServer, Reply};

/// Limits without a pause before a retry.
fn limits() -> Limits {
    Limits {
        backoff: Duration::ZERO,
        ..Limits::default()
    }
}

/// A process that is not the leader, and its clock, which stands.
fn standby() -> (Leadership, Clock) {
    let clock = Clock::standing_at(Timestamp::UNIX_EPOCH);
    (Leadership::standby(clock.clone()), clock)
}

/// A token that ends this many seconds after the start of the clock.
fn token(seconds: u64) -> Token {
    Token {
        epoch: 1,
        valid_until: Monotonic::after_origin(Duration::from_secs(seconds)),
    }
}

fn gated(client: Client, limits: Limits, leadership: &Leadership) -> Calls {
    let gate = WriteGate::of(leadership.clone());
    Connection::over(client).calls_within(limits, gate)
}

#[tokio::test]
async fn a_read_is_retried_twice_after_a_transient_failure_and_then_fails() {
    let (server, client) = FakeServer::always(|| Reply::Fail(503, "overloaded"));
    let error = Calls::new(client, limits())
        .read::<Value>("/api/v1/pods")
        .await
        .unwrap_err();
    assert_eq!(server.lines(), ["GET /api/v1/pods"; 3]);
    assert_eq!(
        error.about("Pod shop/web"),
        ClusterError::Unreachable {
            what: "Pod shop/web".into(),
            message: "overloaded (HTTP 503)".into()
        }
    );
}

#[tokio::test]
async fn only_reads_are_retried_and_only_after_a_transient_failure() {
    for code in [400, 401, 403, 404, 409, 410, 422, 500] {
        let (server, client) = FakeServer::always(move || Reply::Fail(code, "no"));
        assert!(
            Calls::new(client, limits())
                .read::<Value>("/x")
                .await
                .is_err()
        );
        assert_eq!(server.lines().len(), 1, "{code}");
    }
    let (server, client) = FakeServer::always(|| Reply::Fail(503, "overloaded"));
    let patch = json!({});
    let calls = Calls::new(client, limits());
    let written = calls
        .write::<Value>(Method::PATCH, "/x", Body::merge_patch(&patch))
        .await;
    assert!(written.unwrap_err().is_status(503));
    assert_eq!(server.lines(), ["PATCH /x"]);
}

#[tokio::test]
async fn a_request_without_a_response_fails_at_the_deadline() {
    let (_server, client) = FakeServer::always(|| Reply::Hang);
    let calls = Calls::new(
        client,
        Limits {
            deadline: Duration::ZERO,
            ..limits()
        },
    );
    let error = calls.read::<Value>("/x").await.unwrap_err();
    assert!(
        matches!(error, CallError::Timeout(Duration::ZERO)),
        "{error}"
    );
    assert!(matches!(error.about("x"), ClusterError::Unreachable { .. }));
}

#[test]
fn every_http_status_has_its_port_error() {
    let what = || "Deployment shop/web".to_owned();
    let message = || "the message".to_owned();
    let refused = ClusterError::Refused {
        what: what(),
        message: message(),
    };
    let down = |message: &str| ClusterError::Unreachable {
        what: what(),
        message: message.into(),
    };
    for (code, want) in [
        (400, refused.clone()),
        (401, refused.clone()),
        (403, refused.clone()),
        (404, ClusterError::NotFound { what: what() }),
        (409, ClusterError::Conflict { what: what() }),
        (422, refused),
        (429, down("the message")),
        (500, down("the message (HTTP 500)")),
        (504, down("the message (HTTP 504)")),
    ] {
        let error = CallError::status(code, &message());
        assert_eq!(error.about(what()), want, "{code}");
    }
}

#[tokio::test]
async fn a_closed_gate_refuses_writes_and_allows_reads() {
    let (server, client) = FakeServer::always(|| Reply::Ok(json!({})));
    let (leadership, clock) = standby();
    let calls = gated(client, limits(), &leadership);
    let nothing = json!({});
    let write = || calls.write::<Value>(Method::PATCH, "/x", Body::json(&nothing));
    let refused = write().await.unwrap_err();
    assert!(matches!(refused, CallError::NotLeader), "{refused}");
    calls.read::<Value>("/x").await.unwrap();
    leadership.set(Some(token(10)));
    write().await.unwrap();
    assert_eq!(server.lines(), ["GET /x", "PATCH /x"]);
    // A write may take five seconds, which may be too long.
    for (passed, admitted) in [(5_000, true), (1, false), (10_000, false)] {
        clock.advance(Duration::from_millis(passed));
        assert_eq!(write().await.is_ok(), admitted, "{passed}");
    }
}

#[tokio::test]
async fn a_write_that_waited_in_the_queue_until_the_token_ended_is_not_sent() {
    let (server, client) = FakeServer::always(|| Reply::Hang);
    let (leadership, clock) = standby();
    leadership.set(Some(token(10)));
    let one_slot = Limits {
        slots: 1,
        ..limits()
    };
    let calls = gated(client, one_slot, &leadership);
    let nothing = json!({});
    let mut first = Box::pin(calls.write::<Value>(Method::PATCH, "/first", Body::json(&nothing)));
    assert!(poll!(&mut first).is_pending());
    let mut second = Box::pin(calls.write::<Value>(Method::PATCH, "/x", Body::json(&nothing)));
    assert!(poll!(&mut second).is_pending());
    clock.advance(Duration::from_secs(6));
    drop(first);
    let refused = second.await.unwrap_err();
    assert!(matches!(refused, CallError::NotLeader), "{refused}");
    assert!(!server.lines().iter().any(|line| line.contains("/x")));
}

#[tokio::test]
async fn responses_and_error_messages_have_a_maximum_length() {
    const LONG: &str = match str::from_utf8(&[b'x'; 10_000]) {
        Ok(text) => text,
        Err(_) => "",
    };
    let (_, client) = FakeServer::always(|| Reply::Ok(json!("x".repeat(33 << 20))));
    let calls = Calls::new(client, limits());
    let error = calls.read::<Value>("/api/v1/pods").await.unwrap_err();
    let expected = "invalid response: longer than the limit of 32768 KiB";
    assert_eq!(error.to_string(), expected);

    let (_, client) = FakeServer::always(|| Reply::Fail(403, LONG));
    let calls = Calls::new(client, limits());
    let error = calls.read::<Value>("/api/v1/pods").await.unwrap_err();
    assert_eq!(error.to_string(), format!("{} (HTTP 403)", "x".repeat(500)));
}

/// The outcome of a read from a server that asks once to retry after this many seconds, and the seconds that it took.
async fn read_from_one_that_asks_to_wait(asked: &'static str) -> (Result<Value, CallError>, f64) {
    let (_server, client) = FakeServer::new(move |_sent, before| match before {
        0 => Reply::FailUntil(429, asked),
        _ => Reply::Ok(json!("later")),
    });
    let before = Clock::system().monotonic();
    let outcome = Calls::new(client, limits()).read("/x").await;
    let passed = Clock::system().monotonic().since(before);
    (outcome, passed.as_secs_f64().round())
}

#[tokio::test(start_paused = true)]
async fn a_read_is_repeated_when_the_server_asks_for_it_if_that_is_before_its_deadline() {
    for (asked, waited) in [
        ("3", 3.0),
        ("0", 0.0),
        ("", 0.0),
        // A date would need the clock of the other machine.
        ("Wed, 25 Nov 2026 10:00:00 GMT", 0.0),
        ("99999999999999999999", 0.0),
    ] {
        let (outcome, passed) = read_from_one_that_asks_to_wait(asked).await;
        assert_eq!((outcome.ok(), passed), (Some(json!("later")), waited));
    }
    let (outcome, passed) = read_from_one_that_asks_to_wait("30").await;
    let error = outcome.unwrap_err();
    assert_eq!(
        error.to_string(),
        "slow down; the server asks to retry after 30s, beyond the deadline of 5s (HTTP 429)"
    );
    assert_eq!(
        (error.retry_after(), passed),
        (Some(Duration::from_secs(30)), 0.0)
    );
}

#[tokio::test(start_paused = true)]
async fn what_one_read_is_asked_to_wait_for_holds_for_every_read_of_the_url() {
    let (server, client) = FakeServer::new(|sent, before| match (&*sent.line, before) {
        ("GET /x", 0) => Reply::FailUntil(429, "30"),
        _ => Reply::Ok(json!("later")),
    });
    let calls = Calls::new(client, limits());
    let read = async |path| calls.read::<Value>(path).await;
    read("/x").await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(15)).await;
    let refused = read("/x").await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "slow down; the server asks to retry after 15s, beyond the deadline of 5s (HTTP 429)"
    );
    assert_eq!(read("/y").await.unwrap(), json!("later"));
    tokio::time::sleep(Duration::from_secs(13)).await;
    assert_eq!(read("/x").await.unwrap(), json!("later"));
    assert_eq!(server.lines(), ["GET /x", "GET /y", "GET /x"]);
}

#[tokio::test]
async fn the_error_of_a_write_says_when_the_server_asks_to_retry() {
    let (server, client) = FakeServer::always(|| Reply::FailUntil(503, "2"));
    let calls = Calls::new(client, limits());
    let written = calls
        .write::<Value>(Method::PATCH, "/x", Body::json(&json!({})))
        .await;
    let asked = written.unwrap_err().retry_after();
    assert_eq!(asked, Some(Duration::from_secs(2)));
    assert_eq!(server.lines(), ["PATCH /x"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_while_the_server_has_it_wait_is_no_timeout() {
    let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/queue";
    let (_server, client) = FakeServer::always(|| Reply::FailUntil(429, "3"));
    let calls = Calls::new(client, limits());
    for _request in 0..2 * breaker::FAILURES {
        let read = calls.read::<Value>(path);
        let given_up = tokio::time::timeout(Duration::from_secs(2), read).await;
        assert!(given_up.is_err());
    }
    assert_eq!(calls.open_circuits(), Vec::<String>::new());
}
