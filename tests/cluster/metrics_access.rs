//! The rights to read `/metrics` and the page of a controller, as a real API server decides: the metrics also of a
//! standby, which writes nothing.

use std::{net::SocketAddr, path::Path, process::Stdio};

use foretide::config::{Config, Election, MetricsAuth};
use foretide_base::leadership::Timing;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ServiceAccount};
use kube::{Api, api::PostParams};
use rig::eventually;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use crate::{
    permissions::{granted, used},
    world::{Controller, NAMESPACE, TIMEOUT, World},
};

pub(crate) const RIGHTS: &str = include_str!("../../deploy/24-metrics-rbac.yaml");

/// `scraper` may read the metrics.
pub(crate) const SCRAPER: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: scraper, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: foretide-metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: foretide-metrics-reader}
subjects: [{kind: ServiceAccount, name: scraper, namespace: default}]
";

/// `other` may not read the metrics; `viewer` may view another namespace, which has one of the autoscalers. Another
/// process leads, for longer than the scenario.
const OBJECTS: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: viewed}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: other, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: viewer, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: viewed}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ehpa-viewer}
subjects: [{kind: ServiceAccount, name: viewer, namespace: default}]
---
apiVersion: autoscaling.crane.io/v1alpha1
kind: EffectiveHorizontalPodAutoscaler
metadata: {name: seen, namespace: viewed}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: seen}, maxReplicas: 3}
---
apiVersion: autoscaling.crane.io/v1alpha1
kind: EffectiveHorizontalPodAutoscaler
metadata: {name: hidden, namespace: default}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: hidden}, maxReplicas: 3}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: foretide, namespace: foretide-system}
spec: {holderIdentity: another, leaseDurationSeconds: 3600, leaseTransitions: 1}
";

/// A token of an account, for an audience or for the API server.
pub(crate) async fn token(world: &World, account: &str, audience: Option<&str>) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), NAMESPACE);
    let audiences: Vec<&str> = audience.into_iter().collect();
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": { "audiences": audiences, "expirationSeconds": 3600 },
    });
    let parameters = PostParams::default();
    let made = accounts.create_subresource("token", account, &parameters, &request);
    let made: Value = made.await.unwrap();
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// An address of loopback that no process listens on.
pub(crate) fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], rig::free_port().unwrap()))
}

/// The status and the text of a response. HTTP/1.0 has no chunks.
pub(crate) async fn get(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
) -> Result<(u16, String), String> {
    let header = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let header = header.unwrap_or_default();
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{header}\r\n");
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let text = exchange.await.map_err(|error| error.to_string())?;
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.ok_or("no status")?, text))
}

/// The answer of the page's API, where no token is needed.
pub(crate) async fn of_page(address: SocketAddr, path: &str) -> Result<Value, String> {
    let (status, text) = get(address, &format!("/api/v1/{path}"), None).await?;
    (status == 200).then(|| json_of(&text)).ok_or(text)
}

/// Waits until the controller at an address is ready.
pub(crate) async fn ready(address: SocketAddr) {
    eventually(TIMEOUT, "the controller is ready", || async {
        match get(address, "/readyz", None).await? {
            (200, _) => Ok(()),
            (status, text) => Err(format!("{status}: {text}")),
        }
    })
    .await;
}

/// The JSON of an answer.
fn json_of(text: &str) -> Value {
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
    serde_json::from_str(body.unwrap_or_default()).unwrap_or_default()
}

/// Starts `foretide ui` as the user of a kubeconfig, with the rights of `viewer`; returns its address, too.
async fn ui(world: &World, controller: SocketAddr) -> (Child, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretide"));
    command
        .args([
            "ui",
            "--listen",
            "127.0.0.1:0",
            "--service-account",
            "default/viewer",
        ])
        .arg(format!("--url=http://{controller}"))
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig_path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = printed.next_line().await.unwrap().unwrap();
    let address = first
        .trim()
        .trim_start_matches("http://")
        .trim_end_matches('/');
    (child, address.parse().unwrap())
}

/// Checks that a user who may list the autoscalers of one namespace sees those on the page, with a token or through
/// `foretide ui`, and that others see nothing.
async fn the_page_shows_its_readers_their_namespaces(world: &World) {
    let config = Config {
        listen: free_address(),
        metrics_auth: MetricsAuth::Token { audience: None },
        ..world.config()
    };
    let controller = config.listen;
    let _running = Controller::run(config);
    ready(controller).await;
    let list = "/api/v1/autoscalers";
    let viewer = token(world, "viewer", None).await;
    let seen = async |address: SocketAddr, token: Option<&str>| {
        eventually(
            TIMEOUT,
            "only the autoscaler of the namespace is shown",
            || async {
                let (status, text) = get(address, list, token).await?;
                let shown = json_of(&text);
                let is_so =
                    status == 200 && shown["matching"] == 1 && shown["rows"][0]["name"] == "seen";
                is_so.then_some(()).ok_or(text)
            },
        )
        .await;
    };
    seen(controller, Some(&viewer)).await;
    let hidden = &*format!("{list}/effectivehorizontalpodautoscalers/default/hidden");
    let other = token(world, "other", None).await;
    let answers = [
        (hidden, Some(&*viewer), 404),
        (list, Some(&*other), 403),
        (list, Some("forged"), 401),
        (list, None, 401),
    ];
    for (path, token, status) in answers {
        is_answered(controller, path, token, status).await;
    }
    let (_ui, address) = ui(world, controller).await;
    seen(address, None).await;
    is_answered(address, hidden, None, 404).await;
    is_answered(address, "/metrics", None, 404).await;
}

/// Waits for an answer with a status: a review of a token or of access that takes too long is answered by 503.
async fn is_answered(address: SocketAddr, path: &str, token: Option<&str>, expected: u16) {
    eventually(
        TIMEOUT,
        &format!("{path} is answered by {expected}"),
        || async {
            let (status, text) = get(address, path, token).await?;
            (status == expected)
                .then_some(())
                .ok_or(format!("{status} {text}"))
        },
    )
    .await;
}

pub(crate) async fn metrics_are_for_accounts_with_the_role_and_tokens_of_the_audience(
    world: &World,
) {
    let leader = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/23-leader-rbac.yaml");
    world.apply(&std::fs::read_to_string(leader).unwrap()).await;
    world.apply(RIGHTS).await;
    world.apply(SCRAPER).await;
    world.apply(OBJECTS).await;
    let run = |audience: Option<&str>| {
        let config = Config {
            listen: free_address(),
            metrics_auth: MetricsAuth::Token {
                audience: audience.map(str::to_owned),
            },
            election: Some(Election {
                namespace: Some("foretide-system".to_owned()),
                timing: Timing {
                    lease_duration: std::time::Duration::from_hours(1),
                    ..Timing::default()
                },
            }),
            ..world.config()
        };
        (config.listen, Controller::run(config))
    };
    let (standby, _running) = run(None);
    let (of_audience, _also_running) = run(Some("foretide"));
    ready(standby).await;
    ready(of_audience).await;

    let metrics = async |address, token: &str| {
        // On a busy machine the API server may review a token later than a scrape waits for.
        eventually(TIMEOUT, "the token is reviewed", || async {
            match get(address, "/metrics", Some(token)).await.unwrap() {
                (503, text) => Err(text),
                answer => Ok(answer),
            }
        })
        .await
    };
    let scraper = token(world, "scraper", None).await;
    let (status, text) = metrics(standby, &scraper).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("foretide_leader 0"), "{text}");
    let other = token(world, "other", None).await;
    let (status, text) = metrics(standby, &other).await;
    assert_eq!(status, 403, "{text}");
    assert!(
        text.contains("system:serviceaccount:default:other"),
        "{text}"
    );
    assert_eq!(get(standby, "/metrics", None).await.unwrap().0, 401);
    let forged = format!("{scraper}x");
    assert_eq!(metrics(standby, &forged).await.0, 401);

    // A token is for the API server or for the controller, not for both.
    let of_controller = token(world, "scraper", Some("foretide")).await;
    assert_eq!(metrics(of_audience, &of_controller).await.0, 200);
    assert_eq!(metrics(of_audience, &scraper).await.0, 401);
    assert_eq!(metrics(standby, &of_controller).await.0, 401);

    the_page_shows_its_readers_their_namespaces(world).await;

    // Every granted permission was used, and the standby wrote nothing.
    let granted = granted(RIGHTS);
    let used = used(&world.requests(), &granted);
    assert_eq!(used.intersection(&granted).count(), granted.len());
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "foretide-system");
    let spec = leases.get("foretide").await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("another"));

    // Without the API server no right is known, and the probes go on.
    world.cluster.stop_apiserver();
    let fresh = format!("{of_controller}y");
    let answer = get(standby, "/metrics", Some(&fresh)).await.unwrap();
    assert_eq!(answer.0, 503);
    assert_eq!(get(standby, "/healthz", None).await.unwrap().0, 200);
}
