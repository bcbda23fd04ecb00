//! Reviews of tokens and requests: exact requests, and the meaning of each response.

use serde_json::{Value, json};

use super::super::KubeAccessReviewer;
use crate::api_server::Connection;
use foretide_api::ports::{
    Access, AccessReviewer, BearerToken, ClusterError, ResourceAccess, User,
};
use simkube::client::{FakeServer, Reply};

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

/// The user of [`scraper`].
fn user() -> User {
    User {
        name: "system:serviceaccount:monitoring:prometheus".to_owned(),
        uid: Some("u-7".to_owned()),
        groups: vec!["system:serviceaccounts".to_owned()],
        extra: [("node".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into(),
    }
}

/// A `get` of the path `/metrics`.
fn scrape() -> Access {
    Access::Path {
        verb: "get".to_owned(),
        path: "/metrics".to_owned(),
    }
}

#[tokio::test]
async fn the_user_of_a_token_is_asked_about_with_everything_that_is_known_of_it() {
    let (server, reviewer) = reviewer(scraper(), json!({"allowed": true}), None);
    assert_eq!(reviewer.user(&token()).await, Ok(Some(user())));
    assert_eq!(reviewer.is_allowed(&user(), &scrape()).await, Ok(true));
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
async fn a_request_about_a_resource_is_asked_about_with_what_it_names() {
    let (server, reviewer) = reviewer(scraper(), json!({"allowed": true}), None);
    let hpa = User {
        name: "hpa".to_owned(),
        ..User::default()
    };
    let list = Access::Resource(ResourceAccess {
        verb: "list".to_owned(),
        group: "external.metrics.k8s.io".to_owned(),
        version: "v1beta1".to_owned(),
        namespace: "shop".to_owned(),
        resource: "qps".to_owned(),
        ..ResourceAccess::default()
    });
    assert_eq!(reviewer.is_allowed(&hpa, &list).await, Ok(true));
    assert_eq!(
        server.sent()[0].body["spec"],
        json!({
            "user": "hpa",
            "resourceAttributes": {
                "verb": "list", "group": "external.metrics.k8s.io", "version": "v1beta1",
                "namespace": "shop", "resource": "qps",
            },
        })
    );
}

#[tokio::test]
async fn a_user_who_may_not_is_known_and_a_token_of_no_user_has_none() {
    for access in [
        json!({"allowed": false}),
        json!({"allowed": true, "denied": true}),
    ] {
        let (_server, reviewer) = reviewer(scraper(), access, None);
        assert_eq!(reviewer.is_allowed(&user(), &scrape()).await, Ok(false));
    }
    for status in [
        json!({"authenticated": false, "error": "expired", "user": {"username": "eve"}}),
        json!({"user": {"username": "eve"}}),
        json!({"authenticated": true}),
        json!({"authenticated": true, "user": {"username": ""}}),
    ] {
        let (server, reviewer) = reviewer(status, json!({"allowed": true}), None);
        assert_eq!(reviewer.user(&token()).await, Ok(None));
        assert_eq!(server.lines(), [TOKENS]);
    }
}

#[tokio::test]
async fn a_token_must_be_for_the_audience_and_the_server_must_say_so() {
    let allowed = || json!({"allowed": true});
    let (server, ours) = reviewer(scraper(), allowed(), Some("foretide"));
    assert_eq!(ours.user(&token()).await, Ok(Some(user())));
    let spec = json!({"token": TOKEN, "audiences": ["foretide"]});
    assert_eq!(server.sent()[0].body["spec"], spec);
    for audiences in [json!(null), json!([]), json!(["other"])] {
        let mut status = scraper();
        status["audiences"] = audiences;
        let (_server, reviewer) = reviewer(status, allowed(), Some("foretide"));
        assert_eq!(reviewer.user(&token()).await, Ok(None));
    }
}

#[tokio::test]
async fn a_token_for_the_audience_is_tried_before_one_for_the_server() {
    let (server, client) = FakeServer::new(|sent, _| {
        let mut object = sent.body.clone();
        let is_for_page = sent.body["spec"].get("audiences").is_some();
        object["status"] = if is_for_page {
            json!({"authenticated": false})
        } else {
            scraper()
        };
        Reply::Ok(object)
    });
    let connection = Connection::over(client);
    let reviewer = KubeAccessReviewer::new(&connection, Some("foretide-page"));
    assert_eq!(reviewer.user(&token()).await, Ok(None));
    let reviewer = reviewer.or_for_the_api_server();
    assert_eq!(reviewer.user(&token()).await, Ok(Some(user())));
    let specs = server
        .sent()
        .into_iter()
        .skip(1)
        .map(|sent| sent.body["spec"].clone());
    let for_page = json!({"token": TOKEN, "audiences": ["foretide-page"]});
    assert_eq!(
        specs.collect::<Vec<_>>(),
        [for_page, json!({"token": TOKEN})]
    );
}

#[tokio::test]
async fn a_review_without_an_answer_is_an_error_without_the_token() {
    let (_server, without) = reviewer(json!(null), json!(null), None);
    let invalid = |error: ClusterError| matches!(error, ClusterError::Invalid { .. });
    assert!(without.user(&token()).await.is_err_and(invalid));
    let allowed = without.is_allowed(&user(), &scrape()).await;
    assert!(allowed.is_err_and(invalid));
    for message in [
        "tokenreviews is forbidden",
        "invalid token abcdef0123456789.ghijkl",
    ] {
        let (_server, client) = FakeServer::always(move || Reply::Fail(403, message));
        let reviewer = KubeAccessReviewer::new(&Connection::over(client), None);
        let error = reviewer.user(&token()).await.unwrap_err().to_string();
        assert!(error.contains("the review of a token"), "{error}");
        assert!(!error.contains("abcdef0123"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_gives_no_verdict() {
    let (_server, client) = FakeServer::always(|| Reply::Hang);
    let reviewer = KubeAccessReviewer::new(&Connection::over(client), None);
    let error = reviewer.user(&token()).await.unwrap_err();
    assert!(matches!(error, ClusterError::Unreachable { .. }), "{error}");
}
