//! Registrations: exact requests, and those that are not ours.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::{ApiServices, RegistrationError, ServiceName};
use crate::api_server::Connection;
use foretide_base::clock::Clock;
use simkube::client::{FakeServer, Reply};

const EXTERNAL: &str =
    "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io";
const CUSTOM: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.custom.metrics.k8s.io";
const SERVED: [&str; 2] = [
    "v1beta1.external.metrics.k8s.io",
    "v1beta2.custom.metrics.k8s.io",
];

fn ours() -> ServiceName {
    ServiceName {
        namespace: "foretide-system".to_owned(),
        name: "foretide-adapter".to_owned(),
    }
}

fn of_service(service: &Value, bundle: Option<&str>) -> Value {
    json!({
        "metadata": {
            "resourceVersion": "7",
            "labels": {"app.kubernetes.io/name": "keda", "app.kubernetes.io/managed-by": "Helm", "x": "y"},
            "annotations": {"meta.helm.sh/release-name": "scaling"},
        },
        "spec": {"service": service, "caBundle": bundle.map(|bundle| STANDARD.encode(bundle))},
    })
}

fn registered(namespace: &str, name: &str, bundle: Option<&str>) -> Value {
    let service = json!({"namespace": namespace, "name": name, "port": 443});
    of_service(&service, bundle)
}

/// A server with these registrations; null for one that is absent.
fn registrations(external: Value, custom: Value) -> (FakeServer, ApiServices) {
    let (server, client) = FakeServer::new(move |sent, _| {
        let (_, path) = sent.line.split_once(' ').unwrap();
        match if path == EXTERNAL { &external } else { &custom } {
            Value::Null => Reply::Fail(404, "not found"),
            object => Reply::Ok(object.clone()),
        }
    });
    let connection = Connection::over(client);
    (
        server,
        ApiServices::new(&connection, ours(), SERVED.map(str::to_owned).to_vec()),
    )
}

#[tokio::test]
async fn a_registration_of_another_service_ends_the_start() {
    let ours_too = registered("foretide-system", "foretide-adapter", None);
    for (foreign, owner) in [
        (
            registered("keda", "keda-metrics", None),
            "service keda/keda-metrics (meta.helm.sh/release-name: scaling, app.kubernetes.io/name: keda, \
             app.kubernetes.io/managed-by: Helm)",
        ),
        (of_service(&Value::Null, None), "the API server itself"),
    ] {
        let (server, services) = registrations(ours_too.clone(), foreign);
        let refused = services.check(&Clock::system()).await.unwrap_err();
        let expected = RegistrationError::Foreign {
            name: "v1beta2.custom.metrics.k8s.io".to_owned(),
            owner: owner.to_owned(),
            expected: ours(),
        };
        assert_eq!(refused, expected);
        let message = refused.to_string();
        assert!(
            message.contains(owner) && message.contains("does not take it over"),
            "{message}"
        );
        assert_eq!(
            server.lines(),
            [format!("GET {EXTERNAL}"), format!("GET {CUSTOM}")]
        );
    }
    for fine in [
        registered("foretide-system", "foretide-adapter", None),
        Value::Null,
    ] {
        let (_server, services) = registrations(fine, Value::Null);
        assert_eq!(services.check(&Clock::system()).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_until_every_registration_can_be_read() {
    let (_server, client) = FakeServer::new(|_, before| match before {
        0 => Reply::Fail(403, "apiservices is forbidden"),
        _ => Reply::Ok(registered("foretide-system", "foretide-adapter", None)),
    });
    let services = ApiServices::new(
        &Connection::over(client),
        ours(),
        SERVED.map(str::to_owned).to_vec(),
    );
    let clock = Clock::system();
    let early = timeout(Duration::from_secs(1), services.check(&clock)).await;
    assert!(early.is_err(), "{early:?}");
    let awaited = services.awaited().unwrap();
    assert!(awaited.contains("apiservices is forbidden"), "{awaited}");
    assert_eq!(services.check(&clock).await, Ok(()));
    assert_eq!(services.awaited(), None);
}

#[tokio::test]
async fn only_the_bundle_of_our_registrations_is_written_at_the_version_that_was_seen() {
    for (external, custom, written) in [
        (
            registered("foretide-system", "foretide-adapter", None),
            Value::Null,
            vec![EXTERNAL],
        ),
        (
            registered("foretide-system", "foretide-adapter", Some("old")),
            registered("foretide-system", "foretide-adapter", Some("new")),
            vec![EXTERNAL],
        ),
        (
            registered("foretide-system", "other", Some("old")),
            registered("other", "foretide-adapter", Some("old")),
            vec![],
        ),
        (of_service(&Value::Null, None), Value::Null, vec![]),
    ] {
        let (server, services) = registrations(external, custom);
        let observed = services.observe().await;
        services.publish(&observed, "new").await;
        let sent = server.sent();
        let writes: Vec<_> = sent
            .iter()
            .filter(|sent| !sent.line.starts_with("GET"))
            .collect();
        let lines: Vec<&str> = writes.iter().map(|sent| &*sent.line).collect();
        let expected: Vec<String> = written.iter().map(|path| format!("PATCH {path}")).collect();
        assert_eq!(lines, expected);
        for write in writes {
            let patch = json!({
                "metadata": {"resourceVersion": "7"}, "spec": {"caBundle": STANDARD.encode("new")},
            });
            assert_eq!(write.body, patch);
            assert_eq!(
                write.content_type.as_deref(),
                Some("application/merge-patch+json")
            );
        }
    }
}

#[tokio::test]
async fn an_authority_is_everywhere_if_each_registration_of_ours_was_read_and_has_it() {
    let with = |bundle| registered("foretide-system", "foretide-adapter", bundle);
    for (external, custom, everywhere) in [
        (with(Some("a\nb\n")), with(Some("b\n")), true),
        (with(Some("a\nb\n")), with(Some("a\n")), false),
        (with(Some("b\n")), with(None), false),
        (with(Some("b\n")), Value::Null, true),
        (
            with(Some("b\n")),
            registered("keda", "keda-metrics", None),
            true,
        ),
        (with(Some("b\n")), json!({"metadata": {}}), false),
    ] {
        let (_server, services) = registrations(external, custom);
        let observed = services.observe().await;
        assert_eq!(observed.has_everywhere("b\n"), everywhere, "{observed:?}");
    }
}
