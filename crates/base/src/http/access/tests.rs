//! The router with a reviewer whose verdict depends on the token.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use futures::future::{join, pending};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use tokio::time::timeout;

use super::*;
use crate::http::{reviews::REVIEW_DEADLINE, router};

/// Reviews by token, and the number of reviews so far.
#[derive(Clone, Default)]
struct FakeReviewer {
    reviews: Arc<Mutex<Vec<String>>>,
}

impl AccessReviewer for FakeReviewer {
    async fn user(&self, token: &BearerToken) -> Result<Option<User>, ClusterError> {
        let token = token.expose();
        self.reviews.lock().unwrap().push(token.to_owned());
        tokio::time::sleep(Duration::from_millis(10)).await;
        if token.starts_with("hangs") {
            pending::<()>().await;
        }
        let user = User {
            name: token.to_owned(),
            ..User::default()
        };
        match token {
            "allowed" | "eve" => Ok(Some(user)),
            "fails" => Err(ClusterError::Unreachable {
                what: "the review".into(),
                message: "HTTP 500".into(),
            }),
            _ => Ok(None),
        }
    }

    async fn is_allowed(&self, user: &User, access: &Access) -> Result<bool, ClusterError> {
        let get = Access::Path {
            verb: "get".to_owned(),
            path: "/metrics".to_owned(),
        };
        assert_eq!(access, &get);
        Ok(user.name == "allowed")
    }
}

/// A port whose clock stands.
struct Port {
    reviewer: FakeReviewer,
    clock: Clock,
    router: Router,
}

impl Port {
    fn new() -> Self {
        let clock = Clock::standing_at(Timestamp::UNIX_EPOCH);
        let reviewer = FakeReviewer::default();
        let access = MetricsAccess::new(reviewer.clone(), clock.clone());
        Self {
            router: router(Arc::default(), clock.clone(), Some(access)),
            reviewer,
            clock,
        }
    }

    fn reviews(&self) -> Vec<String> {
        std::mem::take(&mut self.reviewer.reviews.lock().unwrap())
    }

    /// The status of `/metrics` with this token.
    async fn scrape(&self, token: &str) -> u16 {
        let header = format!("Bearer {token}");
        get(&self.router, "/metrics", &[&header]).await.0
    }
}

/// The status, the scheme that is asked for and the body of a response.
async fn get(router: &Router, path: &str, authorization: &[&str]) -> (u16, String, String) {
    let mut request = Request::get(path);
    for value in authorization {
        request = request.header("authorization", *value);
    }
    let service = TowerToHyperService::new(router.clone());
    let request = request.body(Body::empty()).unwrap();
    let response = service.call(request).await.unwrap();
    let status = response.status().as_u16();
    let scheme = response.headers().get("www-authenticate");
    let scheme = scheme
        .map_or("", |value| value.to_str().unwrap())
        .to_owned();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, scheme, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_scrape_needs_a_token_of_a_user_who_may_and_a_probe_needs_none() {
    let port = Port::new();
    for path in ["/healthz", "/readyz"] {
        let (status, _, _) = get(&port.router, path, &[]).await;
        assert!([200, 503].contains(&status), "{path}");
    }
    let metrics = async |authorization: &[&str]| get(&port.router, "/metrics", authorization).await;
    for refused in [
        &[][..],
        &["Bearer"],
        &["Basic allowed"],
        &["Bearer wrong"],
        &["Bearer allowed", "Bearer allowed"],
    ] {
        let (status, scheme, body) = metrics(refused).await;
        assert_eq!((status, &*scheme), (401, "Bearer"), "{refused:?}");
        assert!(!body.contains("foretide_"), "{body}");
    }
    let (status, _, body) = metrics(&["Bearer eve"]).await;
    assert_eq!(status, 403);
    assert_eq!(
        body,
        "user \"eve\" cannot get path /metrics; bind the ClusterRole foretide-metrics-reader to it\n"
    );
    let (status, _, body) = metrics(&["bearer allowed"]).await;
    assert_eq!(status, 200);
    assert!(body.contains("foretide_leader"), "{body}");
    assert_eq!(port.reviews(), ["wrong", "eve", "allowed"]);
}

#[tokio::test(start_paused = true)]
async fn without_access_control_the_metrics_need_no_token() {
    let clock = Clock::standing_at(Timestamp::UNIX_EPOCH);
    let open = router(Arc::default(), clock, None::<MetricsAccess<FakeReviewer>>);
    assert_eq!(get(&open, "/metrics", &[]).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_verdict_is_used_for_ten_seconds_and_requests_at_once_share_a_review() {
    let port = Port::new();
    for (token, status) in [("allowed", 200), ("eve", 403), ("wrong", 401)] {
        let both = join(port.scrape(token), port.scrape(token)).await;
        assert_eq!(both, (status, status));
        assert_eq!(port.scrape(token).await, status);
        assert_eq!(port.reviews(), [token]);
    }
    port.clock.advance(Duration::from_millis(9_999));
    assert_eq!(port.scrape("allowed").await, 200);
    assert_eq!(port.reviews(), <[&str; 0]>::default());
    port.clock.advance(Duration::from_millis(1));
    assert_eq!(port.scrape("allowed").await, 200);
    assert_eq!(port.reviews(), ["allowed"]);
}

#[tokio::test(start_paused = true)]
async fn a_review_that_fails_or_hangs_is_503_in_time_and_no_verdict() {
    let port = Port::new();
    for token in ["fails", "hangs"] {
        for _again in 0..2 {
            let latest = REVIEW_DEADLINE + Duration::from_millis(10);
            let status = timeout(latest, port.scrape(token)).await;
            assert_eq!(status, Ok(503), "{token}");
        }
        assert_eq!(port.reviews(), [token, token]);
    }
}

/// A check of a token that comes from a peer.
async fn check(access: &MetricsAccess<FakeReviewer>, peer: u8, token: &str) -> Result<(), Denied> {
    let header = format!("Bearer {token}").parse().unwrap();
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, header)]);
    access.check(IpAddr::from([10, 0, 0, peer]), &headers).await
}

#[tokio::test(start_paused = true)]
async fn a_peer_whose_reviews_hang_keeps_no_other_waiting() {
    let clock = Clock::standing_at(Timestamp::UNIX_EPOCH);
    let access = MetricsAccess::new(FakeReviewer::default(), clock);
    let hanging: Vec<_> = (0..60).map(|n| format!("hangs-{n}")).collect();
    let flood = hanging.iter().map(|token| check(&access, 1, token));
    let flood = futures::future::join_all(flood);
    let other = timeout(REVIEW_DEADLINE / 2, check(&access, 2, "allowed"));
    let (hung, other) = join(flood, other).await;
    assert_eq!(hung, vec![Err(Denied::Unknown); 60]);
    assert_eq!(other, Ok(Ok(())));
    assert_eq!(check(&access, 1, "allowed").await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn of_wrong_tokens_only_some_hashes_are_kept_and_none_for_a_right_one() {
    let clock = Clock::standing_at(Timestamp::UNIX_EPOCH);
    let access = MetricsAccess::new(FakeReviewer::default(), clock);
    assert_eq!(check(&access, 1, "allowed").await, Ok(()));
    for n in 0..3 * REVIEWS.results {
        let wrong = check(&access, 1, &format!("t{n}")).await;
        assert_eq!(wrong, Err(Denied::Unauthorized));
    }
    let kept = access.verdicts.keys();
    assert!(kept.len() <= REVIEWS.results, "{}", kept.len());
    assert!(!format!("{kept:?} {:?}", access.verdicts).contains("t1"));
    access.reviewer.reviews.lock().unwrap().clear();
    assert_eq!(check(&access, 1, "allowed").await, Ok(()));
    assert!(access.reviewer.reviews.lock().unwrap().is_empty());
}
