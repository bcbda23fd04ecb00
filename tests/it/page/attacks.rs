//! Requests that the page must refuse, and names that it must show as text: requests of other sites and other machines,
//! wrong paths and parameters, tokens of strangers, and names that are scripts.

use std::collections::BTreeSet;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use foretide_api::ports::{Access, AccessReviewer, BearerToken, ClusterError, User};
use foretide_base::clock::Clock;
use foretide_page::http::{PageAccess, PageSite};
use jiff::Timestamp;
use tower::ServiceExt as _;

use super::{Answer, answer, demo_page, get, request};

const EHPA: &str = "/api/v1/autoscalers/effectivehorizontalpodautoscalers";
const OVERVIEW: &str = "/api/v1/overview";

/// Users by their tokens: `root` may list everything, `shopkeeper` in `shop`; other tokens have no user.
pub(super) struct Reviewer;

impl AccessReviewer for Reviewer {
    async fn user(&self, token: &BearerToken) -> Result<Option<User>, ClusterError> {
        let name = token.expose().to_owned();
        let is_known = ["root", "shopkeeper", "nobody"].contains(&&*name);
        Ok(is_known.then(|| User {
            name,
            ..User::default()
        }))
    }

    async fn is_allowed(&self, user: &User, access: &Access) -> Result<bool, ClusterError> {
        let Access::Resource(access) = access else {
            return Ok(false);
        };
        Ok(match &*user.name {
            "root" => true,
            "shopkeeper" => access.namespace == "shop",
            _ => false,
        })
    }
}

/// A page that all machines may reach, and bearers of tokens may read.
async fn guarded() -> Router {
    let clock = Clock::standing_at(Timestamp::UNIX_EPOCH);
    let site = PageSite::open(demo_page().await, &Clock::system());
    site.guarded(PageAccess::new(Reviewer, clock)).router()
}

async fn open() -> Router {
    PageSite::open(demo_page().await, &Clock::system()).router()
}

async fn with(router: &Router, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    answer(router, request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn only_names_of_this_machine_are_answered_where_no_token_is_asked_for() {
    let router = open().await;
    for (host, status) in [
        ("127.0.0.1:8090", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.8.9.1:8090", 200),
        ("[::1]:8090", 200),
        ("foretide.example", 421),
        ("127.0.0.1.example:8090", 421),
        ("localhost.example", 421),
        ("10.0.0.1", 421),
        ("0.0.0.0:8090", 421),
        ("[::]:8090", 421),
        ("2130706433", 421),
        ("me@localhost", 421),
        ("", 421),
    ] {
        for path in ["/", OVERVIEW, "/app.js", "/nothing"] {
            let found = with(&router, path, &[("host", host)]).await;
            let is_absent = status == 200 && path == "/nothing";
            let expected = if is_absent { 404 } else { status };
            assert_eq!(found.status, expected, "{host} {path}");
        }
    }
    assert_eq!(with(&router, OVERVIEW, &[]).await.status, 421);
    let two = [("host", "localhost"), ("host", "localhost")];
    assert_eq!(with(&router, OVERVIEW, &two).await.status, 421);
    let evil = "http://evil.example/api/v1/overview";
    let whole = with(&router, evil, &[("host", "localhost")]).await;
    assert_eq!(whole.status, 421);
    let whole = "http://localhost/api/v1/overview";
    for (host, status) in [("evil.example", 421), ("LOCALHOST", 200)] {
        assert_eq!(with(&router, whole, &[("host", host)]).await.status, status);
    }
}

#[tokio::test]
async fn what_another_site_causes_is_refused() {
    let router = open().await;
    let other = ("sec-fetch-site", "cross-site");
    for (path, headers, status) in [
        (OVERVIEW, &[("sec-fetch-site", "same-origin")][..], 200),
        (OVERVIEW, &[("sec-fetch-site", "none")], 200),
        (OVERVIEW, &[other], 403),
        (OVERVIEW, &[("sec-fetch-site", "same-site")], 403),
        (OVERVIEW, &[other, ("sec-fetch-mode", "navigate")], 403),
        ("/", &[other, ("sec-fetch-mode", "navigate")], 200),
        ("/", &[other, ("sec-fetch-mode", "no-cors")], 403),
        ("/app.js", &[other], 403),
        (OVERVIEW, &[("origin", "http://localhost:8090")], 200),
        (OVERVIEW, &[("origin", "http://localhost:8091")], 403),
        (OVERVIEW, &[("origin", "https://localhost:8090")], 403),
        (OVERVIEW, &[("origin", "https://evil.example")], 403),
        (OVERVIEW, &[("origin", "null")], 403),
        (OVERVIEW, &[("origin", "")], 403),
    ] {
        let mut headers = headers.to_vec();
        headers.push(("host", "localhost:8090"));
        let found = with(&router, path, &headers).await;
        assert_eq!(found.status, status, "{path} {headers:?}");
        assert_eq!(found.header("access-control-allow-origin"), "");
        assert_eq!(found.header("set-cookie"), "");
    }
}

#[tokio::test]
async fn a_header_of_browsers_that_is_there_twice_is_refused() {
    let router = open().await;
    for (name, values) in [
        ("origin", ["http://localhost:8090", "http://evil.example"]),
        ("sec-fetch-site", ["same-origin", "cross-site"]),
    ] {
        let headers = values.map(|value| (name, value));
        let headers = [("host", "localhost:8090"), headers[0], headers[1]];
        let found = with(&router, OVERVIEW, &headers).await;
        assert_eq!(found.status, 403, "{name}");
    }
}

#[tokio::test]
async fn every_answer_has_the_headers_that_keep_others_out() {
    let router = open().await;
    for path in [
        "/",
        "/app.js",
        OVERVIEW,
        "/nothing",
        "/api/v1/autoscalers?word=odd",
    ] {
        let found = get(&router, path).await;
        let policy = found.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(found.header("x-content-type-options"), "nosniff");
        assert_eq!(found.header("referrer-policy"), "no-referrer");
    }
    let overview = get(&router, OVERVIEW).await;
    assert_eq!(overview.header("cache-control"), "no-store");
}

#[tokio::test]
async fn wrong_paths_and_parameters_are_refused() {
    let router = open().await;
    let long = format!("{EHPA}/{}/web", "a".repeat(60_000));
    for (path, status) in [
        ("/../etc/passwd", 404),
        ("/%2e%2e/etc/passwd", 404),
        ("//api/v1/overview", 404),
        ("/api//v1/overview", 404),
        ("/api/v1/overview/", 404),
        ("/api/v1/./overview", 404),
        ("/assets/app.js", 404),
        ("/app.js%00", 404),
        ("/lab/v1/experiments", 404),
        ("/api/v1/autoscalers/x/shop/web", 404),
        (&format!("{EHPA}/shop/%2e%2e"), 404),
        (&format!("{EHPA}/shop/web%2Fhistory"), 404),
        (&format!("{EHPA}/shop/web%00"), 404),
        (&format!("{EHPA}/shop/%ff"), 400),
        (&format!("{EHPA}/shop/WEB"), 404),
        (&long, 404),
        ("/api/v1/autoscalers?word=%3Cscript%3E", 400),
        ("/api/v1/autoscalers?limit=-1", 400),
        ("/api/v1/autoscalers?limit=99999999999999999999", 400),
        ("/api/v1/autoscalers?offset=1e9", 400),
        ("/api/v1/autoscalers?more=1", 400),
        ("/api/v1/autoscalers?word=fine&word=fine", 400),
        ("/api/v1/calendar?weeks=4000000000", 400),
        ("/api/v1/calendar?zone=../../etc/passwd", 400),
        ("/api/v1/calendar?from=9223372036854775807", 400),
        ("/api/v1/clusters.svg?width=4000000000", 400),
        (&format!("{EHPA}/shop/web/history?from=9&until=1"), 400),
        (&format!("{EHPA}/shop/web/history?from={}", i64::MIN), 400),
        (&format!("{EHPA}/shop/web/chart.svg?width=1"), 400),
        (&format!("{EHPA}/shop/web/chart.svg?zone=%00"), 400),
        ("/api/v1/stream?name=web", 400),
        ("/api/v1/stream?resource=a&namespace=b&name=c", 404),
    ] {
        let found = get(&router, path).await;
        assert_eq!(found.status, status, "{path:.90}: {}", found.text);
        let media = found.header("content-type");
        assert_eq!(media, "application/json", "{path:.90}");
        assert!(found.text.starts_with("{\"error\":\""), "{}", found.text);
    }
}

#[tokio::test]
async fn it_is_only_read() {
    let router = open().await;
    for path in ["/", OVERVIEW, "/api/v1/stream"] {
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
            let request = request(path).method(method).body(Body::empty()).unwrap();
            let found = answer(&router, request).await;
            assert_eq!(found.status, 405, "{method} {path}");
        }
        let head = request(path).method("HEAD").body(Body::empty()).unwrap();
        let head = answer(&router, head).await;
        assert_eq!((head.status.as_u16(), &*head.text), (200, ""), "{path}");
    }
}

#[tokio::test]
async fn data_need_a_token_that_is_valid_and_files_need_none() {
    let router = guarded().await;
    for (headers, status) in [
        (&[][..], 401),
        (&[("authorization", "Bearer expired")], 401),
        (&[("authorization", "Bearer ")], 401),
        (&[("authorization", "Bearer nobody")], 403),
        (&[("authorization", "Bearer shopkeeper")], 200),
    ] {
        let found = with(&router, OVERVIEW, headers).await;
        assert_eq!(found.status, status, "{headers:?}");
        assert_eq!(with(&router, "/", headers).await.status, 200);
    }
    // A proxy before the page may speak TLS.
    for (origin, status) in [
        ("https://foretide.example", 200),
        ("http://foretide.example", 200),
        ("evil://foretide.example", 403),
    ] {
        let host = ("host", "foretide.example");
        let headers = [("authorization", "Bearer root"), host, ("origin", origin)];
        let found = with(&router, OVERVIEW, &headers).await;
        assert_eq!(found.status, status, "{origin}");
    }
    // Headers that a browser would add by itself.
    for path in [OVERVIEW, "/api/v1/stream", "/api/v1/openapi.json"] {
        let cookie = [("cookie", "token=root; Authorization=Bearer root")];
        let found = with(&router, path, &cookie).await;
        assert_eq!(found.status, 401, "{path}");
        assert_eq!(found.header("www-authenticate"), "Bearer");
        let in_query = with(&router, &format!("{path}?token=root"), &[]).await;
        assert_eq!(in_query.status, 401);
    }
}

#[tokio::test]
async fn objects_of_other_namespaces_are_not_there() {
    let router = guarded().await;
    let token = [("authorization", "Bearer shopkeeper")];
    let root = [("authorization", "Bearer root")];
    let fleet = with(&router, "/api/v1/autoscalers?limit=200", &token).await;
    let fleet: serde_json::Value = serde_json::from_str(&fleet.text).unwrap();
    let rows = fleet["rows"].as_array().unwrap().iter();
    let namespaces: BTreeSet<_> = rows.map(|row| row["namespace"].as_str().unwrap()).collect();
    assert_eq!(namespaces, BTreeSet::from(["shop"]));
    for path in [
        "",
        "/history",
        "/chart.svg",
        "/history.csv",
        "/manifest.yaml",
        "/worth",
    ] {
        let of = |name: &str| format!("{EHPA}/{name}{path}");
        let own = with(&router, &of("shop/web"), &token).await;
        assert_eq!(own.status, 200, "{path}");
        let there = with(&router, &of("edge/api"), &root).await;
        assert_eq!(there.status, 200, "it is there: {path}");
        let other = with(&router, &of("edge/api"), &token).await;
        let absent = with(&router, &of("edge/apj"), &token).await;
        let statuses = [&other, &absent].map(|found| found.status.as_u16());
        assert_eq!(statuses, [404, 404], "{path}");
        let as_absent = absent.text.replace("apj", "api");
        assert_eq!(other.text, as_absent, "the same as if it did not exist");
    }
    let other = "/api/v1/stream?resource=effectivehorizontalpodautoscalers&namespace=edge&name=api";
    assert_eq!(with(&router, other, &token).await.status, 404);
    let clusters = with(&router, "/api/v1/clusters", &token).await;
    assert!(!clusters.text.contains("edge"), "{}", clusters.text);
    let all = with(&router, "/api/v1/calendar", &root).await;
    let other = "\"namespace\":\"data\"";
    assert!(all.text.contains(other), "it is there: {}", all.text);
    for path in ["/api/v1/worth", "/api/v1/calendar", "/api/v1/health"] {
        let found = with(&router, path, &token).await;
        assert_eq!(found.status, 200, "{path}");
        assert!(!found.text.contains(other), "{path}: {}", found.text);
    }
}

#[tokio::test]
async fn the_files_are_sent_once() {
    let router = open().await;
    for path in ["/", "/page.css", "/chart.css", "/app.js"] {
        let first = get(&router, path).await;
        let tag = first.header("etag").to_owned();
        for known in [tag.clone(), format!("W/\"other\", {tag}")] {
            let request = request(path).header("if-none-match", known);
            let again = answer(&router, request.body(Body::empty()).unwrap()).await;
            assert_eq!((again.status.as_u16(), &*again.text), (304, ""), "{path}");
        }
        let request = request(path).header("if-none-match", "W/\"other\"");
        let changed = answer(&router, request.body(Body::empty()).unwrap()).await;
        assert_eq!(changed.status, 200);
    }
}

#[tokio::test]
async fn files_and_views_are_compressed_for_those_who_take_it() {
    let router = open().await;
    for path in ["/app.js", "/chart.css", "/api/v1/autoscalers"] {
        let size = async |encoding: &str| {
            let request = request(path).header("accept-encoding", encoding);
            let request = request.body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.headers()["vary"], "accept-encoding", "{path}");
            let is_compressed = response.headers().contains_key("content-encoding");
            assert_eq!(is_compressed, encoding == "gzip", "{path}");
            to_bytes(response.into_body(), usize::MAX)
                .await
                .unwrap()
                .len()
        };
        assert!(size("gzip").await * 2 < size("br").await, "{path}");
    }
}
