//! Another metric adapter, which has the metrics that are not ours: the port [`UpstreamAdapter`].
//!
//! Its certificate is always verified, against the certificates of one file, which is read again every minute. Requests
//! are made as this process: with a bearer token of a file, or with none. The identity of the user who asked is not
//! forwarded; the caller has authorized the request. Redirects are not followed.

use std::{path::Path, sync::Arc, time::Duration};

use kube::config::{AuthInfo, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;
use tokio::{sync::Mutex, time::timeout};

use super::api_server::{CallError, Calls, Connection, Limits, WriteGate, query, segment};
use foretide_api::ports::{UpstreamAdapter, UpstreamError, UpstreamRequest, UpstreamSettings};
use foretide_base::{clock::Monotonic, error::chain, machine::Machine};

/// Largest age of the certificates that a connection is verified with.
const READ_PERIOD: Duration = Duration::from_mins(1);
/// Timeout for reading the file with the certificates.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest file of certificates that is used.
const FILE_MAX: usize = 1 << 20;
/// Total time of a request; its callers have shorter ones.
const DEADLINE: Duration = Duration::from_secs(8);

/// A client of another adapter.
#[derive(Debug)]
pub struct HttpsUpstream {
    settings: UpstreamSettings,
    name: String,
    machine: Machine,
    current: Mutex<Option<Current>>,
}

/// The client in use, and the certificates that it trusts.
#[derive(Debug)]
struct Current {
    authorities: Vec<u8>,
    read_at: Monotonic,
    clients: Arc<Clients>,
}

/// Clients with limits and a circuit of their own: a list of many metrics that is slow opens no circuit for metrics.
#[derive(Debug)]
struct Clients {
    metrics: Calls,
    lists: Calls,
}

// === impl HttpsUpstream ===

impl HttpsUpstream {
    /// A client; nothing is read or sent yet.
    pub fn new(settings: UpstreamSettings, machine: Machine) -> Self {
        Self {
            name: settings.url.as_str().trim_end_matches('/').to_owned(),
            settings,
            machine,
            current: Mutex::default(),
        }
    }

    /// The client for the certificates that the file holds now. A file that cannot be used leaves the last client.
    async fn clients(&self) -> Result<Arc<Clients>, String> {
        // Held while the file is read, so that concurrent requests read it once.
        let mut current = self.current.lock().await;
        let now = self.machine.clock().monotonic();
        if let Some(current) = current.as_ref()
            && now.since(current.read_at) < READ_PERIOD
        {
            return Ok(Arc::clone(&current.clients));
        }
        let loaded = self.load(current.as_ref(), now).await;
        match (loaded, current.as_mut()) {
            (Ok(loaded), _) => {
                let clients = Arc::clone(&loaded.clients);
                *current = Some(loaded);
                Ok(clients)
            }
            (Err(problem), Some(last)) => {
                tracing::warn!(upstream = %self.name, problem, "keeping the last certificates of the upstream adapter");
                // The next attempt is after READ_PERIOD, and not with each request.
                last.read_at = now;
                Ok(Arc::clone(&last.clients))
            }
            (Err(problem), None) => Err(problem),
        }
    }

    async fn load(&self, last: Option<&Current>, now: Monotonic) -> Result<Current, String> {
        let authorities = read(&self.settings.ca_file).await?;
        // The same clients: new ones would have no open connections, and would forget the state of their circuits.
        if let Some(last) = last.filter(|last| last.authorities == authorities) {
            return Ok(Current {
                authorities,
                read_at: now,
                clients: Arc::clone(&last.clients),
            });
        }
        let opened = Connection::new(self.config(&authorities)?, &self.machine);
        let connection = opened.map_err(|error| chain(&error))?;
        Ok(Current {
            authorities,
            read_at: now,
            clients: Arc::new(Clients::new(&connection)),
        })
    }

    fn config(&self, authorities: &[u8]) -> Result<Config, String> {
        let path = self.settings.ca_file.display();
        let certificates = CertificateDer::pem_slice_iter(authorities)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| format!("{path} is not a file of certificates in PEM form"))?;
        if certificates.is_empty() {
            return Err(format!("{path} holds no certificate in PEM form"));
        }
        let uri = self.name.parse();
        let uri = uri.map_err(|_| format!("{} is not the base URL of a server", self.name))?;
        let mut config = Config::new(uri);
        config.root_cert = Some(certificates.iter().map(|der| der.to_vec()).collect());
        config.auth_info = AuthInfo {
            token_file: self
                .settings
                .token_file
                .as_ref()
                .map(|path| path.display().to_string()),
            ..AuthInfo::default()
        };
        Ok(config)
    }
}

// === impl Clients ===

impl Clients {
    fn new(connection: &Connection) -> Self {
        let limits = Limits {
            deadline: DEADLINE,
            queue: DEADLINE,
            retries: 0,
            ..Limits::default()
        };
        Self {
            metrics: connection.calls_within(limits, WriteGate::default()),
            lists: connection.calls_within(limits, WriteGate::default()),
        }
    }

    fn of(&self, request: &UpstreamRequest<'_>) -> &Calls {
        if request.is_list {
            &self.lists
        } else {
            &self.metrics
        }
    }
}

impl UpstreamAdapter for HttpsUpstream {
    fn name(&self) -> &str {
        &self.name
    }

    async fn get(&self, request: &UpstreamRequest<'_>) -> Result<Value, UpstreamError> {
        let path = path(request).map_err(|error| UpstreamError::Path(error.to_string()))?;
        let read = async {
            let clients = self.clients().await.map_err(UpstreamError::Unavailable)?;
            let read = clients.of(request).read(&path);
            read.await.map_err(|error| match error {
                CallError::Status { code, message, .. } => UpstreamError::Status { code, message },
                other => UpstreamError::Unavailable(other.to_string()),
            })
        };
        let late = format!("no response within {:?}", request.deadline);
        let read = timeout(request.deadline, read);
        read.await.unwrap_or(Err(UpstreamError::Unavailable(late)))
    }
}

/// The path and the query of a request; no name reaches a path other than its own.
fn path(request: &UpstreamRequest<'_>) -> Result<String, CallError> {
    let mut path = "/apis".to_owned();
    for part in &request.path {
        path.push('/');
        path.push_str(&segment(part)?);
    }
    path.push_str(&query(&request.parameters));
    Ok(path)
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let read = timeout(READ_TIMEOUT, tokio::fs::read(path)).await;
    let read = read.map_err(|_elapsed| format!("timed out reading {shown}"))?;
    let bytes = read.map_err(|error| format!("cannot read {shown}: {error}"))?;
    if bytes.len() > FILE_MAX {
        return Err(format!("{shown} is too long for a file of certificates"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use axum::{BoxError, Json, Router, extract::Request, http::HeaderName};
    use futures::{StreamExt as _, channel::mpsc};
    use jiff::Timestamp;
    use kube::client::{ClientBuilder, ConfigExt as _};
    use rig::{Pki, RunFolder};
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;
    use foretide_base::breaker;
    use foretide_base::clock::Clock;
    use simkube::client::{FakeServer, Reply};

    fn request<'a>(path: &[&'a str]) -> UpstreamRequest<'a> {
        UpstreamRequest {
            path: path.to_vec(),
            parameters: vec![("labelSelector", "a=b,c in (d)")],
            deadline: Duration::from_secs(1),
            is_list: false,
        }
    }

    fn upstream(ca_file: &Path) -> HttpsUpstream {
        let settings = UpstreamSettings {
            url: "https://adapter.monitoring:6443".parse().unwrap(),
            ca_file: ca_file.to_owned(),
            token_file: None,
        };
        HttpsUpstream::new(
            settings,
            Machine::system().with_clock(Clock::standing_at(Timestamp::UNIX_EPOCH)),
        )
    }

    #[tokio::test]
    async fn it_is_asked_with_the_token_of_the_file_and_without_a_user() {
        let folder = RunFolder::new("upstream-token").unwrap();
        let mut upstream = upstream(folder.path());
        upstream.settings.token_file = Some(folder.write("token", "t0ken").unwrap());
        let config = upstream.config(Pki::new().unwrap().ca_pem().as_bytes());
        let config = config.unwrap();
        let (requests, mut received) = mpsc::unbounded();
        let router = Router::new().fallback(move |request: Request| {
            requests.unbounded_send(request).unwrap();
            async { Json(json!({})) }
        });
        let service =
            ServiceExt::<http::Request<kube::client::Body>>::map_err(router, BoxError::from);
        let client = ClientBuilder::new(service, "default").with_layer(&config.base_uri_layer());
        let client = client
            .with_layer(&config.auth_layer().unwrap().unwrap())
            .build();
        let clients = Clients::new(&Connection::over(client));
        let answer: Value = clients.metrics.read("/apis/g/v1").await.unwrap();
        assert_eq!(answer, json!({}));
        let request = received.next().await.unwrap();
        assert_eq!(request.uri(), "https://adapter.monitoring:6443/apis/g/v1");
        assert_eq!(request.headers()["authorization"], "Bearer t0ken");
        let mut names = request.headers().keys().map(HeaderName::as_str);
        assert!(!names.any(|name| name.starts_with("x-")));
    }

    #[tokio::test]
    async fn new_certificates_are_used_after_a_minute_and_broken_ones_are_not() {
        let folder = RunFolder::new("upstream-certificates").unwrap();
        let [old, new] = [(); 2].map(|()| Pki::new().unwrap().ca_pem().to_owned());
        let upstream = upstream(&folder.write("ca.crt", &old).unwrap());
        let first = upstream.clients().await.unwrap();
        for broken in ["", "no certificate"] {
            folder.write("ca.crt", broken).unwrap();
            upstream.machine.clock().advance(READ_PERIOD);
            let kept = upstream.clients().await.unwrap();
            assert!(Arc::ptr_eq(&kept, &first), "{broken:?}");
        }
        folder.write("ca.crt", &new).unwrap();
        let early = upstream.clients().await.unwrap();
        assert!(Arc::ptr_eq(&early, &first), "read again too early");
        upstream.machine.clock().advance(READ_PERIOD);
        let changed = upstream.clients().await.unwrap();
        assert!(!Arc::ptr_eq(&changed, &first));
        upstream.machine.clock().advance(READ_PERIOD);
        let same = upstream.clients().await.unwrap();
        assert!(Arc::ptr_eq(&same, &changed), "connections are kept");
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_hang_do_not_keep_metrics_from_being_read() {
        let (_server, client) = FakeServer::new(|sent, _| match sent.line.as_str() {
            "GET /apis/custom.metrics.k8s.io/v1beta2" => Reply::Hang,
            _ => Reply::Ok(json!({})),
        });
        let clients = Clients::new(&Connection::over(client));
        let of = |is_list| UpstreamRequest {
            is_list,
            ..request(&[])
        };
        let list = clients.of(&of(true));
        for _request in 0..breaker::FAILURES {
            let hangs = list
                .read::<Value>("/apis/custom.metrics.k8s.io/v1beta2")
                .await;
            assert!(hangs.is_err());
        }
        assert_eq!(list.open_circuits(), ["custom.metrics.k8s.io"]);
        let metric = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/hits";
        let read = clients.of(&of(false)).read::<Value>(metric).await;
        assert_eq!(read.ok(), Some(json!({})));
    }

    #[test]
    fn a_name_stays_within_its_own_path_segment() {
        for (path, expected) in [
            (
                vec!["g", "v1", "namespaces", "shop", "queue length"],
                Some(
                    "/apis/g/v1/namespaces/shop/queue%20length?labelSelector=a%3Db%2Cc%20in%20%28d%29",
                ),
            ),
            (
                vec!["g", "*"],
                Some("/apis/g/%2A?labelSelector=a%3Db%2Cc%20in%20%28d%29"),
            ),
            (vec!["g", "..", "api"], None),
            (vec!["g", "a/b"], None),
            (vec!["g", ""], None),
        ] {
            let found = super::path(&request(&path)).ok();
            assert_eq!(found.as_deref(), expected, "{path:?}");
        }
    }

    #[tokio::test]
    async fn without_usable_certificates_nothing_is_asked() {
        let missing = upstream(Path::new("/missing/ca.crt"));
        assert_eq!(missing.name(), "https://adapter.monitoring:6443");
        let refused = missing.get(&request(&["g"])).await.unwrap_err();
        let text = refused.to_string();
        assert!(text.starts_with("cannot read /missing/ca.crt: "), "{text}");
        let unusable = upstream(Path::new("ca.crt"));
        for content in [
            "",
            "no certificate",
            "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n",
        ] {
            let problem = unusable
                .config(content.as_bytes())
                .err()
                .unwrap_or_default();
            assert!(problem.starts_with("ca.crt "), "{content:?}: {problem}");
            assert!(problem.contains("in PEM form"), "{content:?}: {problem}");
        }
    }
}
