//! A protected router: the identity that a handler sees, and refusals.

use std::{collections::BTreeMap, sync::Mutex as StdMutex, time::Duration};

use axum::{
    Extension,
    body::{Body, to_bytes},
    http::HeaderMap,
};
use futures::future::{join, join_all, pending};
use jiff::Timestamp;
use rig::{Identity, Pki};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::*;
use crate::metrics_api::protected;
use foretide_api::ports::{BearerToken, ClusterError, RequestHeader};
use foretide_base::http::REVIEW_DEADLINE;

const PODS: &str =
    "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/crane_pod_cpu_usage";
/// More requests than the adapter answers at once.
const REQUESTS: usize = 512;
const FRONT_PROXY: &str = "front-proxy-client";

/// A reviewer that knows the tokens of `hpa` and `eve`; `hpa` and users with `may` in their name may do anything.
#[derive(Clone, Default)]
struct FakeReviewer {
    reviews: Arc<StdMutex<Vec<String>>>,
    silent: Arc<StdMutex<bool>>,
}

impl FakeReviewer {
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.reviews.lock().unwrap())
    }

    async fn review(&self, about: String) {
        self.reviews.lock().unwrap().push(about);
        let is_silent = *self.silent.lock().unwrap();
        if is_silent {
            pending::<()>().await;
        }
    }
}

impl AccessReviewer for FakeReviewer {
    async fn user(&self, token: &BearerToken) -> Result<Option<User>, ClusterError> {
        let token = token.expose();
        self.review(format!("token {token}")).await;
        match token {
            "hpa" | "eve" => Ok(Some(named(token))),
            _ if token.starts_with("hangs") => pending().await,
            "fails" => Err(ClusterError::Unreachable {
                what: "the review".into(),
                message: "HTTP 500".into(),
            }),
            _ => Ok(None),
        }
    }

    async fn is_allowed(&self, user: &User, access: &Access) -> Result<bool, ClusterError> {
        let verb = match access {
            Access::Path { verb, path } => format!("{verb} {path}"),
            Access::Resource(access) => format!("{} {}", access.verb, access.resource),
        };
        self.review(format!("{}: {verb}", user.name)).await;
        Ok(user.name == "hpa" || user.name.contains("may"))
    }
}

fn named(name: &str) -> User {
    User {
        name: name.to_owned(),
        ..User::default()
    }
}

/// A protected router, two authorities, and a clock that stands.
struct Adapter {
    users: Pki,
    proxies: Pki,
    reviewer: FakeReviewer,
    clock: Clock,
    authorities: watch::Sender<Option<Arc<ClientAuthorities>>>,
    router: Router,
}

/// Status and body of an answer.
type Answer = (u16, Value);

impl Adapter {
    fn new() -> Self {
        let (users, proxies) = (Pki::new().unwrap(), Pki::new().unwrap());
        // Certificates are valid from today.
        let clock = Clock::standing_at(Clock::system().now());
        let reviewer = FakeReviewer::default();
        let (authorities, newest) = watch::channel(None);
        let control = AccessControl::new(reviewer.clone(), newest, clock.clone());
        let answer = |Extension(user): Extension<User>, headers: HeaderMap| async move {
            let names: Vec<String> = headers.keys().map(ToString::to_string).collect();
            axum::Json(json!({
                "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra, "headers": names,
            }))
        };
        let router = Router::new().fallback(answer);
        let adapter = Self {
            router: protected(router, Arc::new(control)),
            users,
            proxies,
            reviewer,
            clock,
            authorities,
        };
        adapter.trust(&[FRONT_PROXY], adapter.proxies.ca_pem());
        adapter
    }

    /// Sets the authority and the common names of front proxies.
    fn trust(&self, allowed_names: &[&str], ca: &str) {
        let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        self.authorities
            .send_replace(Some(Arc::new(ClientAuthorities {
                client_ca: Some(self.users.ca_pem().to_owned()),
                request_header: Some(RequestHeader {
                    ca: ca.to_owned(),
                    allowed_names: texts(allowed_names),
                    username_headers: texts(&["X-Remote-User", "X-Name"]),
                    uid_headers: texts(&["X-Remote-Uid"]),
                    group_headers: texts(&["X-Remote-Group"]),
                    extra_header_prefixes: texts(&["X-Remote-Extra-", "X-More-"]),
                }),
            })));
    }

    async fn get(
        &self,
        path: &str,
        identity: Option<&Identity>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let chain = identity.map(|one| CertificateDer::from_pem_slice(one.certificate.as_bytes()));
        let chain: Vec<_> = chain.into_iter().map(Result::unwrap).collect();
        let request = request.extension(PeerCertificates(chain.into()));
        let request = request.body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    /// A request with this token.
    async fn get_with(&self, token: &str, path: &str) -> Answer {
        let token = format!("Bearer {token}");
        self.get(path, None, &[("authorization", &token)]).await
    }

    /// A request in the name of `user`, with the certificate of `identity`.
    async fn get_as(&self, user: &str, identity: &Identity) -> u16 {
        self.get(PODS, Some(identity), &[("x-remote-user", user)])
            .await
            .0
    }
}

#[tokio::test]
async fn the_front_proxy_names_the_user_of_a_request() {
    let adapter = Adapter::new();
    let proxy = adapter.proxies.client(FRONT_PROXY, None).unwrap();
    let headers = [
        ("X-Remote-User", "may-jane"),
        ("X-Remote-Uid", "u-1"),
        ("X-Remote-Group", "devs"),
        ("X-Remote-Group", "ops"),
        ("X-Remote-Extra-Example.com%2Fnode", "a"),
        ("X-Remote-Extra-Example.com%2Fnode", "b"),
        ("X-More-scope", "c"),
        ("X-Remote-Other", "d"),
        ("Authorization", "Bearer eve"),
        ("Accept", "*/*"),
    ];
    let expected = json!({
        "user": "may-jane", "uid": "u-1", "groups": ["devs", "ops", "system:authenticated"],
        "extra": {"example.com/node": ["a", "b"], "scope": ["c"]}, "headers": ["accept"],
    });
    assert_eq!(
        adapter.get(PODS, Some(&proxy), &headers).await,
        (200, expected)
    );
    assert_eq!(adapter.reviewer.taken(), ["may-jane: get pods"]);
    // A request without a user is passed on as an anonymous one, and is authorized as such.
    let anonymous = [
        ("x-name", "system:anonymous"),
        ("x-remote-group", "system:unauthenticated"),
    ];
    let (status, body) = adapter.get(PODS, Some(&proxy), &anonymous).await;
    assert_eq!(status, 403, "{body}");
}

#[test]
fn every_known_user_gets_the_group_of_known_users() {
    for (name, groups, expected) in [
        ("eve", &[][..], &[AUTHENTICATED][..]),
        ("eve", &["devs"], &["devs", AUTHENTICATED]),
        ("eve", &[AUTHENTICATED], &[AUTHENTICATED]),
        ("eve", &[UNAUTHENTICATED], &[UNAUTHENTICATED]),
        // The name alone marks an unknown user.
        (ANONYMOUS, &[], &[]),
        (ANONYMOUS, &["devs"], &["devs"]),
    ] {
        let user = User {
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..named(name)
        };
        assert_eq!(with_group(user).groups, expected, "{name} {groups:?}");
    }
}

#[tokio::test]
async fn forged_headers_do_not_count_and_no_handler_sees_them() {
    let adapter = Adapter::new();
    let (users, proxies) = (&adapter.users, &adapter.proxies);
    let foreign = Pki::new().unwrap();
    let forged = [
        ("x-remote-user", "may-admin"),
        ("x-remote-group", MASTERS),
        ("x-more-a", "b"),
    ];
    for identity in [
        None,
        // An unknown common name.
        Some(proxies.client("kubelet", None).unwrap()),
        Some(proxies.client_valid(FRONT_PROXY, &(-9..-2)).unwrap()),
        Some(proxies.client_valid(FRONT_PROXY, &(2..9)).unwrap()),
        Some(foreign.client(FRONT_PROXY, None).unwrap()),
        // A certificate for servers.
        Some(proxies.server(FRONT_PROXY).unwrap()),
    ] {
        let (status, body) = adapter.get(PODS, identity.as_ref(), &forged).await;
        assert_eq!((status, &body["reason"]), (401, &json!("Unauthorized")));
    }
    assert_eq!(adapter.reviewer.taken(), <[&str; 0]>::default());
    // A certificate of this name by the authority of users belongs to a user, not to the front proxy.
    let user = users.client(FRONT_PROXY, Some("may")).unwrap();
    let (status, body) = adapter.get(PODS, Some(&user), &forged).await;
    assert_eq!(status, 403, "{body}");
    assert_eq!(adapter.reviewer.taken(), ["front-proxy-client: get pods"]);
    // A token makes the request one of the token's user.
    let mut with_token = forged.to_vec();
    with_token.push(("authorization", "Bearer hpa"));
    let expected = json!({
        "user": "hpa", "uid": null, "groups": [AUTHENTICATED], "extra": {}, "headers": [],
    });
    assert_eq!(adapter.get(PODS, None, &with_token).await, (200, expected));
}

#[tokio::test]
async fn without_allowed_names_every_certificate_of_the_front_proxy_authority_counts() {
    let adapter = Adapter::new();
    let other = adapter.proxies.client("other", None).unwrap();
    assert_eq!(adapter.get_as("may-jane", &other).await, 401);
    adapter.trust(&[], adapter.proxies.ca_pem());
    assert_eq!(adapter.get_as("may-jane", &other).await, 200);
    let user = adapter.users.client("other", None).unwrap();
    assert_eq!(adapter.get_as("may-jane", &user).await, 403);
}

#[tokio::test]
async fn authorities_change_while_connections_are_open() {
    let adapter = Adapter::new();
    let new = Pki::new().unwrap();
    let [before, after] =
        [&adapter.proxies, &new].map(|pki| pki.client(FRONT_PROXY, None).unwrap());
    assert_eq!(adapter.get_as("may-jane", &before).await, 200);
    assert_eq!(adapter.get_as("may-jane", &after).await, 401);
    let both = format!("{}{}", adapter.proxies.ca_pem(), new.ca_pem());
    adapter.trust(&[FRONT_PROXY], &both);
    assert_eq!(adapter.get_as("may-jane", &before).await, 200);
    assert_eq!(adapter.get_as("may-jane", &after).await, 200);
    adapter.trust(&[FRONT_PROXY], new.ca_pem());
    assert_eq!(adapter.get_as("may-jane", &before).await, 401);
    assert_eq!(adapter.get_as("may-jane", &after).await, 200);
    adapter.trust(&[FRONT_PROXY], "no certificate");
    assert_eq!(adapter.get_as("may-jane", &after).await, 401);
    adapter.authorities.send_replace(None);
    assert_eq!(adapter.get_as("may-jane", &after).await, 503);
}

#[tokio::test]
async fn a_certificate_of_a_user_names_it_and_its_groups() {
    let adapter = Adapter::new();
    let user = adapter.users.client("may-jane", Some("devs")).unwrap();
    let (status, body) = adapter.get(PODS, Some(&user), &[]).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        (&body["user"], &body["groups"]),
        (&json!("may-jane"), &json!(["devs", AUTHENTICATED]))
    );
    // An expired certificate is ignored, and a token counts.
    let expired = adapter.users.client_valid("may-jane", &(-9..-2)).unwrap();
    assert_eq!(adapter.get(PODS, Some(&expired), &[]).await.0, 401);
    let token = [("authorization", "Bearer hpa")];
    assert_eq!(
        adapter.get(PODS, Some(&expired), &token).await.1["user"],
        "hpa"
    );
}

#[tokio::test]
async fn what_is_forbidden_is_said_in_the_words_of_the_api_server() {
    let adapter = Adapter::new();
    let external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/qps";
    for (path, message) in [
        (
            PODS,
            r#"pods/crane_pod_cpu_usage.custom.metrics.k8s.io "*" is forbidden: User "eve" cannot get resource "pods/crane_pod_cpu_usage" in API group "custom.metrics.k8s.io" in the namespace "shop""#,
        ),
        (
            external,
            r#"qps.external.metrics.k8s.io "" is forbidden: User "eve" cannot list resource "qps" in API group "external.metrics.k8s.io" in the namespace "shop""#,
        ),
        (
            "/apis/custom.metrics.k8s.io/v1beta2/nodes/n1/load",
            r#"nodes/load.custom.metrics.k8s.io "n1" is forbidden: User "eve" cannot get resource "nodes/load" in API group "custom.metrics.k8s.io" at the cluster scope"#,
        ),
        ("/apis", r#"forbidden: User "eve" cannot get path "/apis""#),
    ] {
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": "Forbidden", "code": 403,
        });
        assert_eq!(adapter.get_with("eve", path).await, (403, expected));
    }
}

#[tokio::test]
async fn masters_need_no_review_and_odd_paths_get_none() {
    let adapter = Adapter::new();
    let proxy = adapter.proxies.client(FRONT_PROXY, None).unwrap();
    let masters = [("x-remote-user", "eve"), ("x-remote-group", MASTERS)];
    let (status, body) = adapter.get(PODS, Some(&proxy), &masters).await;
    assert_eq!((status, &body["user"]), (200, &json!("eve")));
    assert_eq!(adapter.get("/apis/g/v1//m", None, &[]).await.0, 400);
    let long = format!("/{}", "a".repeat(PATH_MAX));
    assert_eq!(adapter.get(&long, None, &[]).await.0, 400);
    assert_eq!(adapter.reviewer.taken(), <[&str; 0]>::default());
}

#[tokio::test]
async fn a_result_is_used_for_ten_seconds_for_the_same_user_and_request() {
    let adapter = Adapter::new();
    for _again in 0..3 {
        assert_eq!(adapter.get_with("hpa", PODS).await.0, 200);
        assert_eq!(adapter.get_with("eve", PODS).await.0, 403);
    }
    let reviews = ["token hpa", "hpa: get pods", "token eve", "eve: get pods"];
    assert_eq!(adapter.reviewer.taken(), reviews);
    assert_eq!(adapter.get_with("eve", "/apis").await.0, 403);
    assert_eq!(adapter.reviewer.taken(), ["eve: get /apis"]);
    // Results are kept for each set of groups.
    let proxy = adapter.proxies.client(FRONT_PROXY, None).unwrap();
    for group in ["a", "b"] {
        let headers = [("x-remote-user", "eve"), ("x-remote-group", group)];
        assert_eq!(adapter.get(PODS, Some(&proxy), &headers).await.0, 403);
    }
    assert_eq!(adapter.reviewer.taken(), ["eve: get pods"; 2]);
    adapter.clock.advance(Duration::from_millis(9_999));
    assert_eq!(adapter.get_with("eve", PODS).await.0, 403);
    assert_eq!(adapter.reviewer.taken(), <[&str; 0]>::default());
    adapter.clock.advance(Duration::from_millis(1));
    assert_eq!(adapter.get_with("eve", PODS).await.0, 403);
    assert_eq!(adapter.reviewer.taken(), ["token eve", "eve: get pods"]);
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_of_the_api_server_nothing_is_served() {
    let adapter = Adapter::new();
    let proxy = adapter.proxies.client(FRONT_PROXY, None).unwrap();
    let failing = adapter.get_with("fails", PODS).await;
    assert_eq!(
        (failing.0, &failing.1["reason"]),
        (503, &json!("ServiceUnavailable"))
    );
    *adapter.reviewer.silent.lock().unwrap() = true;
    let latest = REVIEW_DEADLINE + Duration::from_secs(1);
    let by_token = adapter.get_with("hpa", PODS);
    assert_eq!(timeout(latest, by_token).await.unwrap().0, 503);
    let by_proxy = adapter.get_as("may-jane", &proxy);
    assert_eq!(timeout(latest, by_proxy).await.unwrap(), 503);
    *adapter.reviewer.silent.lock().unwrap() = false;
    assert_eq!(adapter.get_as("may-jane", &proxy).await, 200);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_nobody_knows_hold_no_other_request() {
    let adapter = Adapter::new();
    let proxy = adapter.proxies.client(FRONT_PROXY, None).unwrap();
    assert_eq!(adapter.get_with("hpa", PODS).await.0, 200);
    let flood = (0..REQUESTS).map(async |n| adapter.get_with(&format!("hangs-{n}"), PODS).await.0);
    let others = async {
        assert_eq!(adapter.get_as("may-jane", &proxy).await, 200);
        assert_eq!(adapter.get_with("hpa", PODS).await.0, 200);
    };
    let second = Duration::from_secs(1);
    let (codes, in_time) = join(join_all(flood), timeout(second, others)).await;
    assert!(in_time.is_ok(), "the others waited");
    let count = |code| codes.iter().filter(|&&one| one == code).count();
    assert_eq!(
        (count(503), count(429)),
        (TOKEN_REVIEWS_MAX, REQUESTS - TOKEN_REVIEWS_MAX)
    );
}

#[test]
fn headers_of_a_front_proxy() {
    let names = RequestHeader {
        username_headers: vec!["X-Remote-User".to_owned()],
        extra_header_prefixes: vec!["X-Remote-Extra-".to_owned()],
        ..RequestHeader::default()
    };
    bolero::check!()
        .with_iterations(2_000)
        .with_type::<(Vec<u8>, String, Vec<u8>)>()
        .for_each(|(name, key, value)| {
            let mut map = HeaderMap::new();
            let header = |name: &str, value: &[u8]| {
                let name = axum::http::HeaderName::from_bytes(name.as_bytes()).ok()?;
                Some((name, axum::http::HeaderValue::from_bytes(value).ok()?))
            };
            map.extend(header("x-remote-user", name).map(|(name, value)| (Some(name), value)));
            let extra = header(&format!("x-remote-extra-{key}"), value);
            map.extend(extra.map(|(name, value)| (Some(name), value)));
            if let Some(User { name, extra, .. }) = headers::user(&map, &names) {
                let keys: BTreeMap<String, Vec<String>> = extra;
                assert!(!name.is_empty() && keys.len() <= 1);
            }
            headers::remove(&mut map, &names);
            assert!(map.is_empty(), "{map:?}");
        });
}

#[test]
fn times_before_1970_are_no_reason_to_panic() {
    let (_sender, newest) = watch::channel(None);
    let clock = Clock::standing_at(Timestamp::MIN);
    let control = AccessControl::new(FakeReviewer::default(), newest, clock);
    assert_eq!(control.now().as_secs(), 0);
}
