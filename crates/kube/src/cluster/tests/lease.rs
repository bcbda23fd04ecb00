//! The lease: read, created once, and replaced at the version that was seen.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use simkube::SimKube;

use super::super::{
    KubeLease,
    lease::{spec as written, stored},
};
use crate::api_server::Connection;
use foretide_api::ports::{ClusterError, LeaseRecord, LeaseStore};
use simkube::client::{FakeServer, Reply, Sent, simulated};

fn lease(reply: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static) -> (FakeServer, KubeLease) {
    let (server, client) = FakeServer::new(reply);
    let connection = Connection::over(client);
    let lease = KubeLease::new(&connection, "ops", "foretide", Duration::from_secs(5));
    (server, lease)
}

fn record() -> LeaseRecord {
    LeaseRecord {
        holder: "me".into(),
        duration: Some(Duration::from_secs(15)),
        acquired: Some(at("2026-01-01T00:00:00Z")),
        renewed: Some(at("2026-01-01T00:00:02.5Z")),
        transitions: 4,
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn spec() -> Value {
    json!({
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:02.500000Z",
        "leaseTransitions": 4,
    })
}

fn object(spec: &Value) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": "ops", "name": "foretide", "uid": "u", "resourceVersion": "7",
            "labels": {"team": "platform"},
        },
        "spec": spec,
    })
}

#[tokio::test]
async fn its_renewals_measure_the_clock_of_the_server_for_the_whole_connection() {
    const LONG_AGO: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let (_server, client) = FakeServer::new(|_, _| Reply::Dated(object(&spec()), LONG_AGO));
    let connection = Connection::over(client);
    let others = connection.calls();
    assert!(others.clock_skew().is_zero());

    let lease = KubeLease::new(&connection, "ops", "foretide", Duration::from_secs(5));
    lease.read().await.unwrap();

    assert!(others.clock_skew().is_negative());
}

#[tokio::test]
async fn a_lease_of_nobody_may_lack_every_field() {
    for spec in [
        json!({}),
        json!({"holderIdentity": "", "leaseDurationSeconds": 0}),
    ] {
        let (_server, store) = lease(move |_, _| Reply::Ok(object(&spec)));
        let nobody = LeaseRecord {
            holder: String::new(),
            duration: None,
            acquired: None,
            renewed: None,
            transitions: 0,
        };
        assert_eq!(store.read().await.unwrap().unwrap().record, nobody);
    }
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_or_without_a_version_is_an_error() {
    let (_server, store) = lease(|_, before| match before {
        0 => Reply::Fail(403, "forbidden"),
        _ => Reply::Ok(json!({"metadata": {"resourceVersion": ""}})),
    });
    let refused = store.read().await;
    assert!(matches!(refused, Err(ClusterError::Refused { .. })));
    let without_version = store.read().await;
    assert!(matches!(without_version, Err(ClusterError::Invalid { .. })));
}

#[tokio::test]
async fn a_lease_is_created_once_and_replaced_at_the_version_that_was_seen() {
    let server = SimKube::new(1, Arc::new(|| Timestamp::UNIX_EPOCH));
    let connection = Connection::over(simulated(&server));
    let store = KubeLease::new(&connection, "default", "foretide", Duration::from_secs(5));
    assert_eq!(store.read().await, Ok(None));
    assert_eq!(store.create(&record()).await.unwrap().record, record());
    let again = store.create(&record()).await;
    assert!(matches!(again, Err(ClusterError::Conflict { .. })));

    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/foretide";
    let labels = json!({"metadata": {"labels": {"team": "platform"}}});
    server.ask("kubectl", "PATCH", path, &labels);
    let seen = store.read().await.unwrap().unwrap();
    assert_eq!(seen.record, record());
    let other = LeaseRecord {
        holder: "other".into(),
        ..record()
    };
    assert_eq!(store.replace(&seen, &other).await.unwrap().record, other);
    let conflict = store.replace(&seen, &record()).await;
    assert!(matches!(conflict, Err(ClusterError::Conflict { .. })));
    let stored = &server.objects("leases.coordination.k8s.io")[0];
    assert_eq!(stored["metadata"]["labels"]["team"], "platform");
}

#[test]
fn lease_record() {
    let values = [
        Value::Null,
        json!(-1),
        json!(0),
        json!(i64::MAX),
        json!(i32::MIN),
        json!(0.5),
        json!(""),
        json!("9999-12-30T22:00:00.999999999Z"),
        json!("-009999-01-02T01:59:59Z"),
        json!("2026-01-01T00:00:00+14:00"),
        json!([]),
        json!({}),
        json!("\u{1f980}"),
    ];
    let fields: Vec<String> = spec().as_object().unwrap().keys().cloned().collect();
    bolero::check!()
        .with_iterations(3_000)
        .with_type::<Vec<u8>>()
        .for_each(|bytes| {
            if let Ok(value) = serde_json::from_slice(bytes) {
                reads_back(value);
            }
            let mut changed = object(&spec());
            for change in bytes.chunks_exact(2) {
                let field = &fields[usize::from(change[0]) % fields.len()];
                let value = values[usize::from(change[1]) % values.len()].clone();
                changed["spec"][field] = value;
            }
            reads_back(changed);
        });
}

/// A lease that is read has a version, and its record is written and read back as the same to the microsecond.
fn reads_back(object: Value) {
    let Ok(read) = stored(object) else { return };
    assert!(!read.version.is_empty());
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_microsecond);
    let same = |record: LeaseRecord| {
        let times = (micros(record.acquired), micros(record.renewed));
        (record.holder, record.duration, record.transitions, times)
    };
    let mut object = read.object;
    object["spec"] = written(&read.record);
    let again = stored(object).unwrap();
    assert_eq!(same(again.record), same(read.record));
}
