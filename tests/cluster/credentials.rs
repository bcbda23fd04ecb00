//! Credentials for Prometheus: TLS, a password and client certificates against a real one, what each failure says, and a
//! rotation without a restart. A controller with all of them, and behind a proxy with tenants, is in [`leaks`].

mod leaks;

use std::{
    fs,
    path::{Path, PathBuf},
};

use foretide::{
    adapters::prometheus::{Endpoints, Prometheus as Reader},
    clock::Clock,
    machine::Machine,
    ports::{
        Authorization, CertificateFiles, CredentialFiles, HistoryError, HistoryQuery,
        HistoryReader as _, HistoryServer, ServerHealth, Setting,
    },
};
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};
use rig::{History, Identity, Pki, Prometheus, Series, Span, WebSecurity, eventually};

use crate::world::{NAMESPACE, TIMEOUT};

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
