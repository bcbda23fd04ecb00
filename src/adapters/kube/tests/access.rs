//! Reviews of tokens: exact requests, and what each response means.

use serde_json::{Value, json};

use super::super::KubeAccessReviewer;
use crate::{
    adapters::api_server::{
        Connection,
        fake::{FakeServer, Reply},
    },
    ports::{Access, AccessReviewer, BearerToken, ClusterError, ResourceAccess, User},
};

const TOKENS: &str = "POST /apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";
const TOKEN: &str = "abcdef0123456789.ghijkl";

/// A server with these statuses of the two reviews.
fn reviewer(
    token: Value,
    access: Value,
    audience: Option<&str>,
) -> (FakeServer, KubeAccessReviewer) {
    let (server, client) = FakeServer::new(move |sent, _| {
        let status = if sent.line == TOKENS { &token } else { &access };
        let mut object = sent.body.clone();
        object["status"] = status.clone();
        Reply::Ok(object)
    });
    let connection = Connection::over(client);
    (server, KubeAccessReviewer::new(&connection, audience))
}

fn token() -> BearerToken {
    BearerToken::of_header(&format!("Bearer {TOKEN}")).unwrap()
}

fn scraper() -> Value {
    json!({
        "authenticated": true,
        "user": {
            "username": "system:serviceaccount:monitoring:prometheus", "uid": "u-7",
            "groups": ["system:serviceaccounts"], "extra": {"node": ["a", "b"]},
        },
        "audiences": ["foretide"],
    })
}

#[tokio::test]
async fn the_user_of_a_token_is_asked_about_with_everything_that_is_known_of_it() {
    let (server, reviewer) = reviewer(scraper(), json!({"allowed": true}), None);
    assert_eq!(reviewer.review(&token()).await, Ok(Verdict::Allowed));
    let [tokens, access] = &server.sent()[..] else {
        panic!("two requests")
    };
    assert_eq!((&*tokens.line, &*access.line), (TOKENS, ACCESS));
    assert_eq!(tokens.body["spec"], json!({"token": TOKEN}));
    assert_eq!(tokens.body["kind"], "TokenReview");
    assert_eq!(
        access.body["spec"],
        json!({
            "user": "system:serviceaccount:monitoring:prometheus", "uid": "u-7",
            "groups": ["system:serviceaccounts"], "extra": {"node": ["a", "b"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        })
    );
    assert!(!access.body.to_string().contains(TOKEN));
}

#[tokio::test]
async fn a_user_who_may_not_is_named_and_a_token_of_no_user_is_not_asked_about() {
    let user = "system:serviceaccount:monitoring:prometheus".to_owned();
    for access in [
        json!({"allowed": false}),
        json!({"allowed": true, "denied": true}),
    ] {
        let (_server, reviewer) = reviewer(scraper(), access, None);
        let forbidden = Verdict::Forbidden { user: user.clone() };
        assert_eq!(reviewer.review(&token()).await, Ok(forbidden));
    }
    for status in [
        json!({"authenticated": false, "error": "expired", "user": {"username": "eve"}}),
        json!({"user": {"username": "eve"}}),
        json!({"authenticated": true}),
        json!({"authenticated": true, "user": {"username": ""}}),
    ] {
        let (server, reviewer) = reviewer(status, json!({"allowed": true}), None);
        let verdict = reviewer.review(&token()).await;
        assert_eq!(verdict, Ok(Verdict::Unauthenticated));
        assert_eq!(server.lines(), [TOKENS]);
    }
}

#[tokio::test]
async fn a_token_must_be_for_the_audience_and_the_server_must_say_so() {
    let allowed = || json!({"allowed": true});
    let (server, ours) = reviewer(scraper(), allowed(), Some("foretide"));
    assert_eq!(ours.review(&token()).await, Ok(Verdict::Allowed));
    let spec = json!({"token": TOKEN, "audiences": ["foretide"]});
    assert_eq!(server.sent()[0].body["spec"], spec);
    for audiences in [json!(null), json!([]), json!(["other"])] {
        let mut status = scraper();
        status["audiences"] = audiences;
        let (_server, reviewer) = reviewer(status, allowed(), Some("foretide"));
        let verdict = reviewer.review(&token()).await;
        assert_eq!(verdict, Ok(Verdict::Unauthenticated));
    }
}

#[tokio::test]
async fn a_review_without_an_answer_is_an_error_without_the_token() {
    let (_server, reviewer) = reviewer(json!(null), json!({"allowed": true}), None);
    assert!(matches!(
        reviewer.review(&token()).await,
        Err(ClusterError::Invalid { .. })
    ));
    for message in [
        "tokenreviews is forbidden",
        "invalid token abcdef0123456789.ghijkl",
    ] {
        let (_server, client) = FakeServer::always(move || Reply::Fail(403, message));
        let reviewer = KubeAccessReviewer::new(&Connection::over(client), None);
        let error = reviewer.review(&token()).await.unwrap_err().to_string();
        assert!(
            error.contains("the review of a token for /metrics"),
            "{error}"
        );
        assert!(!error.contains("abcdef0123"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_gives_no_verdict() {
    let (_server, client) = FakeServer::always(|| Reply::Hang);
    let reviewer = KubeAccessReviewer::new(&Connection::over(client), None);
    let error = reviewer.review(&token()).await.unwrap_err();
    assert!(matches!(error, ClusterError::Unreachable { .. }), "{error}");
}
