//! `foretide ui`: a page of a controller, read at its address and through the port-forward of a fake API server, with the
//! token of a kubeconfig or of a service account.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get as on_get, post},
};
use foretide_base::{
    clock::Clock,
    http::{PortLimits, serve_tls},
    machine::Machine,
};
use foretide_kube::remote_page::{
    PageLocation, RemotePage, RemotePageError, RemotePageSettings, ServiceAccount,
};
use foretide_page::{
    Host, Page,
    http::{PageAccess, PageSite, proxy},
};
use futures::{FutureExt as _, SinkExt as _, StreamExt as _};
use jiff::Timestamp;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

use super::{Answer, answer, attacks::Reviewer, get, request};

const OVERVIEW: &str = "/api/v1/overview";
const LIMITS: PortLimits = PortLimits {
    connections: 8,
    connections_of_peer: 8,
    requests: 8,
};

/// A process of the controller that leads or stands by.
#[derive(Debug)]
struct Process {
    leads: bool,
}

impl Host for Process {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn leads(&self) -> bool {
        self.leads
    }
}

/// Serves a router on this machine; returns its port, and a handle that ends it.
async fn serve(router: Router) -> (u16, AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move { axum::serve(listener, router).await });
    (port, served.abort_handle())
}

/// The controller's own router: readers need a token of [`Reviewer`].
async fn controller(leads: bool) -> (u16, AbortHandle) {
    let clock = Clock::standing_at(Timestamp::UNIX_EPOCH);
    let page = Page::new(Arc::default(), Arc::new(Process { leads }));
    let site = PageSite::open(Arc::new(page), &Clock::system());
    serve(site.guarded(PageAccess::new(Reviewer, clock)).router()).await
}

/// Writes a file of this test.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ui-{name}"));
    fs::write(&path, text).unwrap();
    path
}

/// A kubeconfig whose user has these fields.
fn kubeconfig(name: &str, server: u16, user: &Value) -> PathBuf {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{server}") } }],
        "users": [{ "name": "test", "user": user }],
    });
    file(&format!("{name}.kubeconfig"), &config.to_string())
}

fn address(kubeconfig: PathBuf, url: &str, account: Option<&str>) -> RemotePageSettings {
    RemotePageSettings {
        kubeconfig: Some(kubeconfig),
        context: None,
        location: PageLocation::Address {
            url: url.parse().unwrap(),
            ca_file: None,
        },
        account: account.map(|name| ServiceAccount {
            namespace: "monitoring".to_owned(),
            name: name.to_owned(),
        }),
    }
}

fn in_pods(kubeconfig: PathBuf) -> RemotePageSettings {
    RemotePageSettings {
        location: PageLocation::Pods {
            namespace: "foretide-system".to_owned(),
        },
        ..address(kubeconfig, "http://localhost", None)
    }
}

async fn open(settings: RemotePageSettings) -> Result<RemotePage, RemotePageError> {
    RemotePage::open(
        settings,
        Machine::system().with_clock(Clock::standing_at(Timestamp::UNIX_EPOCH)),
    )
    .await
}

/// The page as `foretide ui` serves it.
async fn ui(settings: RemotePageSettings) -> Router {
    let page = Arc::new(open(settings).await.unwrap());
    let fetch = move |request: foretide_page::http::RemoteRequest| {
        let page = Arc::clone(&page);
        async move {
            let answer = page.get(&request.path, HeaderMap::new()).await?;
            Ok(answer.map(Body::new))
        }
        .boxed()
    };
    proxy(fetch, Router::new())
}

/// The page of the process at this port, for the reader with this token.
async fn page_at(name: &str, port: u16, token: &str) -> Router {
    let file = kubeconfig(name, 1, &json!({ "token": token }));
    ui(address(file, &format!("http://127.0.0.1:{port}"), None)).await
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.text).unwrap()
}

#[tokio::test]
async fn the_token_of_the_kubeconfig_reads_a_page_at_an_address() {
    let (port, _controller) = controller(true).await;
    let router = page_at("address", port, "root").await;
    let overview = json_of(&get(&router, OVERVIEW).await);
    assert_eq!(overview["reader"], "root");
    assert_eq!(overview["lab"], true);
    // A browser's own headers are not passed on.
    let other = request(OVERVIEW).header("authorization", "Bearer shopkeeper");
    let other = answer(&router, other.body(Body::empty()).unwrap()).await;
    assert_eq!(json_of(&other)["reader"], "root");
    for (path, status) in [
        ("/", 200),
        ("/api/v1/autoscalers?limit=10", 200),
        ("/api/v1/autoscalers?limit=x", 400),
        ("/api/v1/stream", 200),
        ("/metrics", 404),
        ("/healthz", 404),
        ("/api/v1/overview/../../metrics", 404),
        ("/apis/apps/v1/deployments", 404),
    ] {
        assert_eq!(get(&router, path).await.status, status, "{path}");
    }
    let foreign = Request::get(OVERVIEW).header("host", "evil.example");
    let foreign = answer(&router, foreign.body(Body::empty()).unwrap()).await;
    assert_eq!(foreign.status, StatusCode::MISDIRECTED_REQUEST);

    let of_stranger = page_at("stranger", port, "stranger").await;
    let refused = get(&of_stranger, OVERVIEW).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    let error = json_of(&refused)["error"].to_string();
    assert!(error.contains("token"), "{error}");
}

/// Serves a router with a certificate for this machine, until the sender is dropped; returns its port, and the certificate.
async fn serve_https(router: Router) -> (u16, String, watch::Sender<Option<Arc<ServerConfig>>>) {
    let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.signing_key.serialize_pem().as_bytes());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key.unwrap())
        .unwrap();
    let configs = watch::Sender::new(Some(Arc::new(config)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (read, mut stop) = (configs.subscribe(), configs.subscribe());
    tokio::spawn(serve_tls(listener, read, router, LIMITS, async move {
        while stop.changed().await.is_ok() {}
    }));
    (port, identity.cert.pem(), configs)
}

#[tokio::test]
async fn the_certificate_at_an_address_is_verified_against_the_authorities_of_the_file() {
    let router = Router::new().fallback(|| async { Json(json!({ "lab": false })) });
    let (port, own, _serves) = serve_https(router).await;
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = other.cert.pem();
    let user = kubeconfig("ca", 1, &json!({ "token": "root" }));
    let url = format!("https://localhost:{port}");
    let with = |ca_file: Option<PathBuf>| RemotePageSettings {
        location: PageLocation::Address {
            url: url.parse().unwrap(),
            ca_file,
        },
        ..address(user.clone(), &url, None)
    };
    for (name, authorities, is_trusted) in [
        ("own", Some(own.clone()), true),
        ("both", Some(format!("{other}{own}")), true),
        ("other", Some(other.clone()), false),
        ("those of this machine", None, false),
    ] {
        let ca_file = authorities.map(|text| file(&format!("{name}.crt"), &text));
        let found = get(&ui(with(ca_file)).await, OVERVIEW).await;
        let expected = if is_trusted {
            StatusCode::OK
        } else {
            StatusCode::BAD_GATEWAY
        };
        assert_eq!(found.status, expected, "{name}: {}", found.text);
        assert_eq!(
            found.text.contains("certificate"),
            !is_trusted,
            "{name}: {}",
            found.text
        );
    }
    for ca_file in [file("empty.crt", "none"), "absent.crt".into()] {
        let error = open(with(Some(ca_file.clone())))
            .await
            .unwrap_err()
            .to_string();
        let expected = "expected a file of certificates in PEM form";
        assert_eq!(error, format!("{}: {expected}", ca_file.display()));
    }
}

#[tokio::test]
async fn of_an_answer_only_what_a_page_needs_passes() {
    const HEADERS: [(&str, &str); 4] = [
        ("set-cookie", "a=b"),
        ("access-control-allow-origin", "*"),
        ("server", "x"),
        ("location", "https://evil.example"),
    ];
    let answers = Router::new().fallback(|| async { (HEADERS, Json(json!({ "lab": false }))) });
    let (port, _controller) = serve(answers).await;
    let router = page_at("headers", port, "root").await;
    let found = get(&router, OVERVIEW).await;
    assert_eq!(json_of(&found), json!({ "lab": true }));
    for (name, _) in HEADERS {
        assert_eq!(found.header(name), "", "{name}");
    }
}

/// A user whose plugin prints these credentials.
fn plugin(status: &Value) -> Value {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    });
    json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "echo",
        "args": [credential.to_string()],
        "interactiveMode": "Never",
    } })
}

#[tokio::test]
async fn a_user_whose_rights_cannot_be_passed_on_is_refused() {
    let identity = rcgen::generate_simple_self_signed(["person".to_owned()]).unwrap();
    let certificate = plugin(&json!({
        "clientCertificateData": identity.cert.pem(),
        "clientKeyData": identity.signing_key.serialize_pem(),
    }));
    let impersonates = json!({ "token": "root", "as": "shopkeeper" });
    let in_group = json!({ "token": "root", "as-groups": ["shopkeepers"] });
    for (name, user, expected) in [
        ("none", json!({}), "has no token"),
        ("certificate", certificate, "has no token"),
        ("as", impersonates, "impersonates"),
        ("as-groups", in_group, "impersonates"),
    ] {
        let file = || kubeconfig(&format!("refused-{name}"), 1, &user);
        let at_address = open(address(file(), "http://127.0.0.1:1", None)).await;
        for opened in [at_address, open(in_pods(file())).await] {
            let error = opened.unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
            assert!(error.contains("--service-account"), "{name}: {error}");
        }
    }
}

#[tokio::test]
async fn an_address_is_checked_before_the_kubeconfig() {
    for url in [
        "http://foretide.example",
        "ftp://localhost",
        "localhost:8090",
    ] {
        let opened = open(address("absent.kubeconfig".into(), url, None)).await;
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("expected https"), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_controller_that_is_not_there_is_named() {
    let router = page_at("absent", 1, "root").await;
    let said = sentence(&get(&router, OVERVIEW).await);
    let expected = "the controller cannot be reached: ";
    assert!(said.starts_with(expected), "{said}");
}

/// The `ReplicaSet` of the controller, and two of its pods.
const SET: &str = "foretide-controller-6d";
const A: &str = "foretide-controller-6d-a";
const B: &str = "foretide-controller-6d-b";

/// Ports that a fake API server forwards to, and the requests that it got.
struct Cluster {
    /// Pods by name, and the port of the process in each.
    pods: Vec<(&'static str, u16)>,
    /// Holder of the Lease; absent without a Lease, and `forbidden` if it may not be read.
    lease: Option<&'static str>,
    /// Name and UID of the `ReplicaSet` that the pods are of.
    owner: Option<(&'static str, &'static str)>,
    /// The status of answers about a `ReplicaSet`.
    replica_sets: u16,
    got: Mutex<Vec<String>>,
}

impl Cluster {
    /// Pods of the controller at these ports, of which the Lease names this one.
    fn of(pods: &[(&'static str, u16)], lease: Option<&'static str>) -> Self {
        Self {
            pods: pods.to_vec(),
            lease,
            owner: Some((SET, "u-1")),
            replica_sets: 200,
            got: Mutex::default(),
        }
    }

    async fn serve(self) -> (Arc<Self>, u16) {
        let cluster = Arc::new(self);
        let base = "/api/v1/namespaces";
        let router = Router::new()
            .route(&format!("{base}/foretide-system/pods"), on_get(list))
            .route(
                &format!("{base}/foretide-system/pods/{{pod}}/portforward"),
                on_get(forward),
            )
            .route(
                &format!("{base}/monitoring/serviceaccounts/reader/token"),
                post(token),
            )
            .route(
                "/apis/coordination.k8s.io/v1/namespaces/foretide-system/leases/foretide",
                on_get(lease),
            )
            .route(
                "/apis/apps/v1/namespaces/foretide-system/replicasets/{name}",
                on_get(replica_set),
            )
            .with_state(Arc::clone(&cluster));
        let (port, _) = serve(router).await;
        (cluster, port)
    }

    fn got(&self) -> Vec<String> {
        std::mem::take(&mut self.got.lock().unwrap())
    }
}

async fn token(
    State(cluster): State<Arc<Cluster>>,
    headers: HeaderMap,
    Json(asked): Json<Value>,
) -> Json<Value> {
    let by = headers["authorization"].to_str().unwrap();
    let of = format!(
        "token for {by}, to be sent to {}",
        asked["spec"]["audiences"]
    );
    cluster.got.lock().unwrap().push(of);
    Json(json!({ "status": { "token": "root" } }))
}

async fn lease(State(cluster): State<Arc<Cluster>>) -> (StatusCode, Json<Value>) {
    let status = match cluster.lease {
        None => StatusCode::NOT_FOUND,
        Some("forbidden") => StatusCode::FORBIDDEN,
        Some(_) => StatusCode::OK,
    };
    let pod = cluster.lease.filter(|pod| !pod.is_empty());
    let holder = pod.map(|pod| format!("{pod}_0123456789abcdef"));
    let lease = json!({ "metadata": { "name": "foretide" }, "spec": { "holderIdentity": holder } });
    (status, Json(lease))
}

fn owned_by(kind: &str, name: &str, uid: &str) -> Value {
    json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true }])
}

async fn replica_set(State(cluster): State<Arc<Cluster>>) -> (StatusCode, Json<Value>) {
    let owners = owned_by("Deployment", "foretide-controller", "u-0");
    let set = json!({ "metadata": { "name": SET, "uid": "u-1", "ownerReferences": owners } });
    let status = StatusCode::from_u16(cluster.replica_sets).unwrap();
    (status, Json(set))
}

async fn list(State(cluster): State<Arc<Cluster>>) -> Json<Value> {
    let owners = cluster
        .owner
        .map(|(name, uid)| owned_by("ReplicaSet", name, uid));
    let pods = cluster.pods.iter().map(|(name, _)| {
        json!({
            "metadata": { "name": name, "ownerReferences": owners },
            "spec": { "containers": [{ "name": "controller", "ports": [{ "name": "http", "containerPort": 9090 }] }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        })
    });
    let pods: Vec<Value> = pods.collect();
    Json(json!({ "kind": "PodList", "metadata": { "resourceVersion": "1" }, "items": pods }))
}

/// Joins a websocket with a port, in the protocol `v4.channel.k8s.io`: channel 0 is data, 1 errors; each begins with the
/// number of the port.
async fn forward(State(cluster): State<Arc<Cluster>>, mut request: Request) -> Response {
    let pod = request.uri().path().split('/').nth(6).unwrap().to_owned();
    assert!(request.uri().query().unwrap().ends_with("ports=9090"));
    cluster.got.lock().unwrap().push(pod.clone());
    let port = cluster
        .pods
        .iter()
        .find(|(name, _)| *name == pod)
        .unwrap()
        .1;
    let accept = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let stream = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        let number = 9090_u16.to_le_bytes();
        for channel in [0, 1] {
            let begin = vec![channel, number[0], number[1]];
            socket.send(Message::binary(begin)).await.unwrap();
        }
        let Ok(mut process) = TcpStream::connect(("127.0.0.1", port)).await else {
            return;
        };
        let mut buffer = vec![0; 16 * 1024];
        loop {
            tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(Message::Binary(data))) if data.first() == Some(&0) => {
                        process.write_all(&data[1..]).await.unwrap();
                    }
                    Some(Ok(_)) => {}
                    _ => return,
                },
                read = process.read(&mut buffer) => match read {
                    Ok(count) if count > 0 => {
                        let mut data = vec![0];
                        data.extend(&buffer[..count]);
                        socket.send(Message::binary(data)).await.unwrap();
                    }
                    _ => return,
                },
            }
        }
    });
    let headers = [
        (header::CONNECTION, "Upgrade".to_owned()),
        (header::UPGRADE, "websocket".to_owned()),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
        (
            header::SEC_WEBSOCKET_PROTOCOL,
            "v4.channel.k8s.io".to_owned(),
        ),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

#[tokio::test]
async fn a_service_account_reads_with_tokens_that_are_good_for_the_page_alone() {
    let (port, _controller) = controller(true).await;
    let (cluster, server) = Cluster::of(&[], None).serve().await;
    let file = kubeconfig("account", server, &json!({ "token": "person" }));
    let url = format!("http://127.0.0.1:{port}");
    let router = ui(address(file.clone(), &url, Some("reader"))).await;
    for _ in 0..2 {
        assert_eq!(json_of(&get(&router, OVERVIEW).await)["reader"], "root");
    }
    let asked = "token for Bearer person, to be sent to [\"foretide-page\"]";
    assert_eq!(cluster.got(), [asked]);
    let router = ui(address(file, &url, Some("absent"))).await;
    let said = sentence(&get(&router, OVERVIEW).await);
    assert!(said.contains("serviceaccounts/token"), "{said}");
}

/// A fake API server with these pods, whose Lease names one of them, and the page for its reader.
async fn page_in(name: &str, cluster: Cluster) -> (Arc<Cluster>, Router) {
    let (cluster, server) = cluster.serve().await;
    let file = kubeconfig(name, server, &json!({ "token": "root" }));
    (cluster, ui(in_pods(file)).await)
}

fn sentence(answer: &Answer) -> String {
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    json_of(answer)["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_pod_that_leads_is_read_and_no_other_gets_the_token() {
    let (standby, _standby) = controller(false).await;
    let (leader, _leader) = controller(true).await;
    let pods = [
        (A, standby),
        (B, leader),
        ("labeled-by-a-stranger", standby),
    ];
    let (cluster, router) = page_in("pods", Cluster::of(&pods, Some(B))).await;
    let overview = json_of(&get(&router, OVERVIEW).await);
    assert_eq!(overview["leads"], true);
    assert_eq!(overview["reader"], "root");
    assert_eq!(cluster.got(), [B]);
    assert_eq!(get(&router, "/api/v1/autoscalers").await.status, 200);
    assert_eq!(
        cluster.got(),
        [] as [&str; 0],
        "the connection is used again"
    );
}

#[tokio::test]
async fn the_only_pod_is_read_where_there_is_no_election_and_of_several_none() {
    let (port, _process) = controller(true).await;
    let (cluster, router) = page_in("one", Cluster::of(&[(A, port)], None)).await;
    assert_eq!(get(&router, OVERVIEW).await.status, StatusCode::OK);
    assert_eq!(cluster.got(), [A]);
    let two = Cluster::of(&[(A, port), (B, port)], None);
    let (cluster, router) = page_in("two", two).await;
    let said = sentence(&get(&router, OVERVIEW).await);
    assert!(said.starts_with("2 pods with the label"), "{said}");
    assert_eq!(cluster.got(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_pod_that_is_not_of_the_deployment_gets_no_token() {
    let (port, _process) = controller(true).await;
    for (name, replica_set, answer) in [
        ("no-owner", None, 403),
        ("other-deployment", Some("other-6d"), 403),
        ("other-uid", Some(SET), 200),
        ("absent-set", Some(SET), 404),
    ] {
        let cluster = Cluster {
            owner: replica_set.map(|set| (set, "forged")),
            replica_sets: answer,
            ..Cluster::of(&[(A, port)], Some(A))
        };
        let (cluster, router) = page_in(name, cluster).await;
        let said = sentence(&get(&router, OVERVIEW).await);
        assert!(
            said.contains("is not of the Deployment foretide-controller"),
            "{name}: {said}"
        );
        assert_eq!(cluster.got(), [] as [&str; 0], "{name}");
    }
    // Without the right to read ReplicaSets, the owner that the pod states is believed.
    let cluster = Cluster {
        replica_sets: 403,
        ..Cluster::of(&[(A, port)], Some(A))
    };
    let (_cluster, router) = page_in("no-right", cluster).await;
    assert_eq!(get(&router, OVERVIEW).await.status, StatusCode::OK);
}

#[tokio::test]
async fn why_no_pod_is_read_is_a_sentence_that_says_what_to_do() {
    let (_cluster, router) = page_in("no-pods", Cluster::of(&[], None)).await;
    let expected = "no pod with the label app.kubernetes.io/name=foretide is ready in namespace foretide-system; name the \
                    namespace of the controller with --namespace, or its address with --url";
    assert_eq!(sentence(&get(&router, OVERVIEW).await), expected);
    for (name, lease, expected) in [
        ("gone", B, "leads by the Lease foretide, and is not ready"),
        ("released", "", "no pod leads by the Lease foretide"),
        ("forbidden", "forbidden", "you need the right to get it"),
    ] {
        let (cluster, router) = page_in(name, Cluster::of(&[(A, 1)], Some(lease))).await;
        let said = sentence(&get(&router, OVERVIEW).await);
        assert!(said.contains(expected), "{name}: {said}");
        assert_eq!(cluster.got(), [] as [&str; 0], "{name}");
    }
}
