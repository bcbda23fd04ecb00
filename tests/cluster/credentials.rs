//! Credentials for Prometheus: every form against real servers and a proxy with tenants, what each failure says, and a
//! rotation without a restart.

mod leaks;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use foretide::{
    adapters::prometheus::{Endpoints, Prometheus as Reader},
    clock::Clock,
    machine::Machine,
    ports::{
        Authorization, CertificateFiles, CredentialFiles, CustomHeader, HistoryError, HistoryQuery,
        HistoryReader as _, HistoryServer, ServerHealth, Setting,
    },
};
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use rig::{
    ClusterOptions, Component, History, Identity, Pki, Prometheus, Series, Span, TenantProxy,
    WebSecurity, eventually,
};
use tokio::process::Command;

use crate::{
    metrics_access::{free_address, get},
    world::{NAMESPACE, TIMEOUT, World, binary},
};

/// A token of the proxy, and the one after it; neither may be shown.
const TOKENS: [&str; 2] = ["first-token-0123456789", "second-token-9876543210"];
const TENANT_HEADER: &str = "X-Scope-OrgID";

/// A folder with credentials, as a Secret is mounted: it is gone with the value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("credentials-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file as the kubelet does: a reader finds either the old contents or the new ones.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, next) = (self.0.join(name), self.0.join(format!("{name}.next")));
        fs::write(&next, text).unwrap();
        fs::rename(&next, &path).unwrap();
        path
    }

    pub(crate) fn identity(&self, name: &str, identity: &Identity) -> CertificateFiles {
        CertificateFiles {
            certificate: self.write(&format!("{name}.crt"), &identity.certificate),
            key: self.write(&format!("{name}.key"), &identity.key),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970")]
pub(crate) fn seconds(at: Timestamp) -> f64 {
    at.as_second() as f64
}

/// An hour of a metric, which ends now.
fn history(metric: &str, now: Timestamp) -> History {
    let end = seconds(now);
    let span = Span {
        start: end - 3_600.0,
        end,
        step: 60.0,
    };
    let labels = [("namespace", NAMESPACE)];
    History::new().gauge(metric, Series::of(&labels, span, |_| 1.0))
}

/// The last half an hour of the metric `up`, or what the server says instead. One that refuses a certificate closes the
/// connection while the request is on its way to it, and what it says can be lost with the connection; one that stalls
/// does not connect within three seconds: then it is asked again. A refusal that arrives is taken at once.
async fn up(reader: &Reader, now: Timestamp) -> Result<Vec<Sample>, HistoryError> {
    let from = now - SignedDuration::from_mins(30);
    let step = SignedDuration::from_mins(1);
    let query = HistoryQuery {
        namespace: NAMESPACE.into(),
        endpoint: None,
        text: "sum(up)".into(),
    };
    eventually(TIMEOUT, "an answer to the query", || async {
        match reader.range(&query, from, now, step).await {
            Err(lost @ (HistoryError::Unreachable { .. } | HistoryError::Timeout { .. })) => {
                Err(format!("{lost:?}"))
            }
            answer => Ok(answer),
        }
    })
    .await
}

/// The reason and the message of the error that a server gives.
async fn refusal(server: HistoryServer, now: Timestamp) -> (&'static str, String) {
    let error = up(&Reader::new(&server, &Machine::system()), now)
        .await
        .unwrap_err();
    (error.reason(), error.to_string())
}

/// What its client knows of a server.
fn health(reader: &Reader) -> ServerHealth {
    let endpoints = Endpoints {
        hub: Some(reader.clone()),
        ..Endpoints::default()
    };
    endpoints.servers().remove(0)
}

fn basic(password: &Path) -> Authorization {
    Authorization::Basic {
        username: Setting::Value(WebSecurity::USER.to_owned()),
        password: password.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_with_tls_a_password_and_client_certificates_is_read_and_failures_are_told() {
    let now = Clock::system().now();
    let (pki, other) = (Pki::new().unwrap(), Pki::new().unwrap());
    let folder = Folder::new("web");
    let security = WebSecurity {
        server: pki.server("prometheus").unwrap(),
        ca_pem: pki.ca_pem().to_owned(),
        client: Some(pki.client("rig", None).unwrap()),
        basic_auth: true,
    };
    let prometheus = Prometheus::start_secured(&history("up", now), security)
        .await
        .unwrap();
    let ca = folder.write("ca.crt", pki.ca_pem());
    let password = folder.write("password", &format!("{}\n", WebSecurity::PASSWORD));
    let client = folder.identity("client", &pki.client("foretide", None).unwrap());
    let credentials = CredentialFiles {
        authorization: Some(basic(&password)),
        headers: Vec::new(),
        ca: Some(ca.clone()),
        client_certificate: Some(client.clone()),
    };
    let server = |credentials: &CredentialFiles| {
        HistoryServer::new(&prometheus.url(), credentials.clone()).unwrap()
    };
    let reader = Reader::new(&server(&credentials), &Machine::system());
    assert!(up(&reader, now).await.unwrap().len() >= 30);

    let wrong = CredentialFiles {
        authorization: Some(basic(&folder.write("wrong", "s3cr3t-but-wrong"))),
        ..credentials.clone()
    };
    let (reason, message) = refusal(server(&wrong), now).await;
    assert_eq!(reason, "Unauthorized", "{message}");
    assert!(message.contains("status 401"), "{message}");
    assert!(message.contains("the password of"), "{message}");

    let missing = CredentialFiles {
        authorization: Some(basic(&folder.0.join("absent"))),
        ..credentials.clone()
    };
    let (reason, message) = refusal(server(&missing), now).await;
    assert_eq!(reason, "CredentialsUnreadable", "{message}");
    assert!(message.contains("absent: No such file"), "{message}");

    let anonymous = CredentialFiles {
        client_certificate: None,
        ..credentials.clone()
    };
    let (reason, message) = refusal(server(&anonymous), now).await;
    assert_eq!(reason, "TlsFailed", "{message}");
    assert!(
        message.contains("asks for the certificate of the client"),
        "{message}"
    );

    let expired = pki.client_valid("foretide", &(-9..-2)).unwrap();
    let expired = CredentialFiles {
        client_certificate: Some(folder.identity("expired", &expired)),
        ..credentials.clone()
    };
    let (reason, message) = refusal(server(&expired), now).await;
    assert_eq!(reason, "TlsFailed", "{message}");
    assert!(message.contains("expired.crt has expired"), "{message}");

    let foreign = CredentialFiles {
        ca: Some(folder.write("other.crt", other.ca_pem())),
        ..credentials.clone()
    };
    let (reason, message) = refusal(server(&foreign), now).await;
    assert_eq!(reason, "TlsFailed", "{message}");
    assert!(
        message.contains("not signed by an authority in"),
        "{message}"
    );

    // A rotation that is half done: the new certificate is there, its key is not yet. The old pair stays in force.
    let next = pki.client_valid("foretide", &(-1..3)).unwrap();
    folder.write("client.crt", &next.certificate);
    eventually(TIMEOUT, "the half rotation is noticed", || async {
        up(&reader, now).await.map_err(|error| error.to_string())?;
        let health = health(&reader);
        let problem = health.credential_problem.unwrap_or_default();
        let noticed = problem.contains("cannot be used together");
        noticed.then_some(()).ok_or(problem)
    })
    .await;
    folder.write("client.key", &next.key);
    let next = eventually(TIMEOUT, "the new certificate is in use", || async {
        up(&reader, now).await.map_err(|error| error.to_string())?;
        let health = health(&reader);
        let mut own = health.expiries.into_iter();
        let own = own
            .find(|one| one.credential == "client certificate")
            .unwrap();
        let is_next = own.expires < now + SignedDuration::from_hours(4 * 24);
        is_next.then_some(own).ok_or(format!("{own:?}"))
    })
    .await;
    assert!(!next.is_soon(now) && next.is_soon(next.expires));

    // The certificate of the server itself expires.
    let expired = pki.server_valid("prometheus", &(-9..-2)).unwrap();
    prometheus.show_certificate(&expired).unwrap();
    let (reason, message) = refusal(server(&credentials), now).await;
    assert_eq!(reason, "TlsFailed", "{message}");
    assert!(message.contains("its certificate has expired"), "{message}");
}

/// What a proxy is sent: the token in a file, and the name of a tenant.
fn of_tenant(token: &Path, ca: &Path, tenant: &str) -> CredentialFiles {
    CredentialFiles {
        authorization: Some(Authorization::Bearer {
            token: token.to_owned(),
        }),
        headers: vec![CustomHeader {
            name: TENANT_HEADER.to_owned(),
            value: Setting::Value(tenant.to_owned()),
        }],
        ca: Some(ca.to_owned()),
        client_certificate: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_with_tenants_is_read_by_token_and_header_and_a_new_token_is_followed() {
    let now = Clock::system().now();
    let pki = Pki::new().unwrap();
    let folder = Folder::new("tenants");
    let (of_us, empty) = (history("up", now), history("down", now));
    let (of_us, empty) = tokio::join!(Prometheus::start(&of_us), Prometheus::start(&empty));
    let (of_us, empty) = (of_us.unwrap(), empty.unwrap());
    let tenants = [("us", of_us.url()), ("nobody", empty.url())];
    let certificate = pki.server("mimir").unwrap();
    let proxy = TenantProxy::start(&certificate, TOKENS[0], &tenants)
        .await
        .unwrap();
    let token = folder.write("token", TOKENS[0]);
    let ca = folder.write("ca.crt", pki.ca_pem());
    let server =
        |tenant: &str| HistoryServer::new(&proxy.url(), of_tenant(&token, &ca, tenant)).unwrap();
    let reader = Reader::new(&server("us"), &Machine::system());
    assert!(up(&reader, now).await.unwrap().len() >= 30);
    assert_eq!(refusal(server("nobody"), now).await.0, "NoData");

    let (reason, message) = refusal(server("unknown"), now).await;
    assert_eq!(reason, "Unauthorized", "{message}");
    assert!(message.contains("no org id"), "{message}");
    assert!(message.contains("X-Scope-OrgID: unknown"), "{message}");

    // The proxy wants another token, and quotes the one that it was sent.
    proxy.accept(TOKENS[1]);
    let refused = up(&reader, now).await.unwrap_err().to_string();
    assert!(
        refused.contains("not accepted: Bearer [hidden]"),
        "{refused}"
    );
    assert!(!refused.contains(TOKENS[0]), "{refused}");
    folder.write("token", TOKENS[1]);
    assert!(up(&reader, now).await.unwrap().len() >= 30);
}

/// The minutes of four days until now, and of an hour beyond.
pub(crate) fn four_days(now: Timestamp) -> Span {
    Span {
        start: seconds(now) - 4.0 * 86_400.0,
        end: seconds(now) + 3_600.0,
        step: 60.0,
    }
}

/// Four days of the cpu usage of a pod of [`AUTOSCALER`], with a daily wave.
fn wave(now: Timestamp) -> History {
    let usage = |at: f64| 0.3 - 0.2 * (at / 86_400.0 * std::f64::consts::TAU).cos();
    let pod = [NAMESPACE, "php-apache-6d5f8c9b7d-x2v9k", "app"];
    History::new().cpu_usage(pod, four_days(now), usage)
}

/// A spec with a prediction of the cpu usage, whose history is in Prometheus.
const AUTOSCALER: &str = include_str!("../../examples/php-apache-dsp.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_tells_that_its_token_is_refused_and_follows_a_rotation() {
    let world =
        World::start(ClusterOptions::named("credentials").with(Component::MetricsServer)).await;
    let now = Clock::system().now();
    let full = wave(now);
    let empty = history("down", now);
    let (full, empty) = tokio::join!(Prometheus::start(&full), Prometheus::start(&empty));
    let (full, empty) = (full.unwrap(), empty.unwrap());
    let pki = Pki::new().unwrap();
    let tenants = [("us", full.url()), ("nobody", empty.url())];
    let certificate = pki.server_valid("mimir", &(-60..5)).unwrap();
    let proxy = TenantProxy::start(&certificate, TOKENS[1], &tenants)
        .await
        .unwrap();
    let folder = Folder::new("controller");
    folder.write("token", TOKENS[0]);
    folder.write("ca.crt", pki.ca_pem());
    folder.write("tenant", "nobody");
    let config = format!(
        "apiVersion: foretide.io/v1alpha1\n\
         kind: ControllerConfig\n\
         logJson: true\n\
         prometheus:\n\
         \x20 url: {}\n\
         \x20 bearerTokenFile: token\n\
         \x20 headers: [{{name: {TENANT_HEADER}, valueFile: tenant}}]\n\
         \x20 tls: {{caFile: ca.crt}}\n",
        proxy.url()
    );
    let config = folder.write("config.yaml", &config);
    world.deployment("php-apache", 1, "20m").await;
    world.apply(AUTOSCALER).await;
    let log = folder.0.join("log");
    let listen = free_address();
    let mut command = binary(world.kubeconfig(), world.hpa_flags());
    command
        .arg("--config")
        .arg(&config)
        .args(["--listen", &listen.to_string()]);
    command.stderr(fs::File::create(&log).unwrap());
    // A system without certificate authorities, as an image may be.
    for variable in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        command.env(variable, folder.0.join("absent"));
    }
    let controller = command.spawn().unwrap();

    let told = prediction_is(&world, "Unauthorized").await;
    assert!(told.contains("not accepted"), "{told}");
    let explained = explain(&world).await;
    assert!(
        explained.contains("refused the request (status 401)"),
        "{explained}"
    );
    assert!(
        explained.contains("Suggested action: check the credentials"),
        "{explained}"
    );

    folder.write("token", TOKENS[1]);
    let told = prediction_is(&world, "NoData").await;
    assert!(told.contains("the query returned no samples"), "{told}");
    folder.write("tenant", "us");
    prediction_is(&world, "ForecastReady").await;
    let (_, metrics) = get(listen, "/metrics", None).await.unwrap();
    let soon = r#"expires_soon{endpoint="hub",credential="server certificate"} 1"#;
    assert!(metrics.contains(soon), "{metrics}");
    drop(controller);

    let events: Api<Event> = Api::namespaced(world.client.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap();
    let ehpa = world.ehpas().get("php-apache").await.unwrap();
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("expires soon"), "{log}");
    let outputs = [
        log,
        metrics,
        explained,
        serde_json::to_string(&events.items).unwrap(),
        serde_json::to_string(&ehpa).unwrap(),
    ];
    for output in outputs {
        for token in TOKENS {
            assert!(!output.contains(token), "{output}");
        }
    }
    world.assert_nothing_forbidden();
}

/// Waits for the reason of the condition `PredictionReady`; returns its message.
async fn prediction_is(world: &World, reason: &str) -> String {
    world
        .status("php-apache", reason, |status| {
            let conditions = status.get("conditions")?.as_array()?;
            let mut conditions = conditions.iter();
            let found = conditions.find(|one| one["type"] == "PredictionReady")?;
            (found["reason"] == reason)
                .then(|| found["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
}

async fn explain(world: &World) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretide"));
    command
        .arg("explain")
        .arg(format!("{NAMESPACE}/php-apache"));
    command
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig_path());
    let output = command.stdin(Stdio::null()).output().await.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    // Long sentences are wrapped.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
