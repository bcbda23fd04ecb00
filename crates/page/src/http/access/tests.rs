//! Admission with a reviewer whose users have rights of their own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::http::{HeaderValue, StatusCode, header};
use futures::future::{join, join_all};
use jiff::Timestamp;
use tokio::time::timeout;

use super::*;
use foretide_api::ports::BearerToken;

/// A review: the user, and the namespace and the resource that the user would list.
type Asked = (String, String, String);

#[derive(Clone, Default)]
struct FakeReviewer {
    asked: Arc<Mutex<Vec<Asked>>>,
    /// The reviewed tokens.
    tokens: Arc<Mutex<Vec<String>>>,
    /// Namespaces in which a user may list a resource; an empty one for all.
    rights: BTreeMap<&'static str, Vec<(&'static str, &'static str)>>,
}

impl AccessReviewer for FakeReviewer {
    async fn user(&self, token: &BearerToken) -> Result<Option<User>, ClusterError> {
        let name = token.expose().to_owned();
        self.tokens.lock().unwrap().push(name.clone());
        if let Some(number) = name.strip_prefix("minted-") {
            let name = format!("system:serviceaccount:team:account-{number}");
            return Ok(Some(User {
                name,
                ..User::default()
            }));
        }
        if name == "fails" {
            return Err(ClusterError::Unreachable {
                what: "the review".into(),
                message: "HTTP 500".into(),
            });
        }
        let is_known = self.rights.contains_key(&*name);
        Ok(is_known.then(|| User {
            name,
            ..User::default()
        }))
    }

    async fn is_allowed(&self, user: &User, access: &Access) -> Result<bool, ClusterError> {
        let Access::Resource(access) = access else {
            panic!("{access:?}");
        };
        assert_eq!(access.verb, "list");
        let asked = (
            user.name.clone(),
            access.namespace.clone(),
            access.resource.clone(),
        );
        self.asked.lock().unwrap().push(asked);
        if access.namespace.starts_with("slow") {
            sleep(Duration::from_secs(1)).await;
        }
        let wanted = (&*access.namespace, &*access.resource);
        let rights = self.rights.get(&*user.name);
        Ok(rights.is_some_and(|rights| rights.contains(&wanted)))
    }
}

const EHPAS: &str = "effectivehorizontalpodautoscalers";
const FLEETS: &str = "federatedhpas";

/// Admission while autoscalers are in the namespaces `shop` and `bank`.
struct Door {
    reviewer: FakeReviewer,
    clock: Clock,
    access: PageAccess<FakeReviewer>,
}

impl Door {
    fn new() -> Self {
        let rights = BTreeMap::from([
            ("root", vec![("", EHPAS), ("", FLEETS)]),
            (
                "shopkeeper",
                vec![("shop", EHPAS), ("shop", FLEETS), ("garden", EHPAS)],
            ),
            // One kind of autoscalers alone is not enough.
            ("half", vec![("", EHPAS), ("bank", FLEETS), ("shop", EHPAS)]),
            ("nobody", vec![]),
        ]);
        let reviewer = FakeReviewer {
            rights,
            ..FakeReviewer::default()
        };
        let clock = Clock::standing_at(Timestamp::UNIX_EPOCH);
        let access = PageAccess::new(reviewer.clone(), clock.clone());
        Self {
            reviewer,
            clock,
            access,
        }
    }

    async fn admit(&self, authorization: &[&'static str]) -> Result<Visible, Refusal> {
        self.admit_among(authorization, None, &["bank", "shop"])
            .await
    }

    async fn admit_among(
        &self,
        authorization: &[&'static str],
        named: Option<&str>,
        namespaces: &[&str],
    ) -> Result<Visible, Refusal> {
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
        }
        let namespaces: BTreeSet<String> = namespaces.iter().map(ToString::to_string).collect();
        let namespaces = move || namespaces.clone();
        let peer = IpAddr::from([10, 0, 0, 1]);
        let reader = self
            .access
            .admit(peer, &headers, named, &namespaces)
            .await?;
        Ok(reader.visible)
    }

    /// Admission of the bearer of one token from another machine, among namespaces whose reviews take long.
    async fn admit_from(&self, peer: u8, token: &str) -> Result<Visible, Refusal> {
        let header = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, header)]);
        let slow = (0..20).map(|number| format!("slow-{number}"));
        let there: BTreeSet<_> = slow.chain(["shop".to_owned()]).collect();
        let namespaces = move || there.clone();
        let peer = IpAddr::from([10, 0, 0, peer]);
        let reader = self.access.admit(peer, &headers, None, &namespaces).await?;
        Ok(reader.visible)
    }

    fn asked(&self) -> usize {
        std::mem::take(&mut *self.reviewer.asked.lock().unwrap()).len()
    }
}

fn only(namespaces: &[&str]) -> Visible {
    Visible::Namespaces(namespaces.iter().map(ToString::to_string).collect())
}

#[tokio::test]
async fn a_reader_sees_the_namespaces_where_both_kinds_may_be_listed() {
    let door = Door::new();
    assert_eq!(door.admit(&["Bearer root"]).await, Ok(Visible::All));
    assert_eq!(door.asked(), 2, "no namespace is asked about");
    assert_eq!(
        door.admit(&["Bearer shopkeeper"]).await,
        Ok(only(&["shop"]))
    );
    let refused = door.admit(&["Bearer half"]).await.unwrap_err();
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let refused = door.admit(&["Bearer nobody"]).await.unwrap_err();
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(
        refused.message.starts_with("user \"nobody\" cannot list"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn where_no_autoscaler_is_known_only_who_sees_all_namespaces_is_let_in() {
    let door = Door::new();
    for token in ["Bearer nobody", "Bearer shopkeeper"] {
        let refused = door.admit_among(&[token], None, &[]).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(
            refused.message.contains("a standby knows none"),
            "{refused:?}"
        );
    }
    let root = door.admit_among(&["Bearer root"], None, &[]).await;
    assert_eq!(root, Ok(Visible::All));
}

#[tokio::test(start_paused = true)]
async fn who_mints_tokens_keeps_no_other_reader_waiting() {
    let door = Door::new();
    let tokens: Vec<_> = (0..60).map(|number| format!("minted-{number}")).collect();
    let peers = 1_u8..;
    let flood = peers
        .zip(&tokens)
        .map(|(peer, token)| door.admit_from(peer, token));
    let other = timeout(Duration::from_secs(4), door.admit_from(100, "root"));
    let (refused, other) = join(join_all(flood), other).await;
    assert!(refused.iter().all(Result::is_err));
    assert_eq!(other, Ok(Ok(Visible::All)));
}

#[tokio::test]
async fn wrong_tokens_do_not_replace_what_is_known_of_a_reader() {
    let door = Door::new();
    let first = door.admit_from(1, "root").await;
    for number in 0..3 * TOKENS.results {
        let wrong = door.admit_from(1, &format!("wrong-{number}")).await;
        assert_eq!(wrong.unwrap_err().status, StatusCode::UNAUTHORIZED);
    }
    door.reviewer.tokens.lock().unwrap().clear();
    door.asked();
    assert_eq!(door.admit_from(1, "root").await, first);
    assert_eq!(door.reviewer.tokens.lock().unwrap().len(), 0);
    assert_eq!(door.asked(), 0);
}

#[test]
fn the_service_accounts_of_a_namespace_have_one_share() {
    for (user, expected) in [
        ("ann", "ann"),
        ("oidc:team:ann", "oidc:team:ann"),
        ("system:serviceaccount:team:a", "system:serviceaccount:team"),
        ("system:serviceaccount:team:b", "system:serviceaccount:team"),
        ("", ""),
    ] {
        assert_eq!(&*tenant(user), expected);
    }
}

#[tokio::test]
async fn a_missing_or_wrong_token_is_401_and_an_unknown_verdict_503() {
    let door = Door::new();
    for (authorization, status) in [
        (&[][..], StatusCode::UNAUTHORIZED),
        (&["Bearer stranger"], StatusCode::UNAUTHORIZED),
        (&["Basic cm9vdDo="], StatusCode::UNAUTHORIZED),
        (&["Bearer root", "Bearer root"], StatusCode::UNAUTHORIZED),
        (&["Bearer fails"], StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let refused = door.admit(authorization).await.unwrap_err();
        assert_eq!(refused.status, status, "{authorization:?}");
    }
}

#[tokio::test]
async fn a_verdict_is_used_for_ten_seconds() {
    let door = Door::new();
    let first = door.admit(&["Bearer shopkeeper"]).await;
    assert!(door.asked() > 0);
    door.clock.advance(std::time::Duration::from_secs(9));
    assert_eq!(door.admit(&["Bearer shopkeeper"]).await, first);
    assert_eq!(door.asked(), 0);
    door.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(door.admit(&["Bearer shopkeeper"]).await, first);
    assert!(door.asked() > 0);
}

#[tokio::test]
async fn of_a_request_that_names_a_namespace_only_that_one_is_asked_about() {
    let door = Door::new();
    let admit = async |token, named| {
        let there = ["bank", "shop"];
        door.admit_among(&[token], Some(named), &there).await
    };
    assert_eq!(
        admit("Bearer shopkeeper", "shop").await,
        Ok(only(&["shop"]))
    );
    assert_eq!(door.asked(), 1 + 2, "all, and shop");
    // Nothing shows whether a namespace exists that the reader may not see.
    for named in ["bank", "absent"] {
        assert_eq!(admit("Bearer shopkeeper", named).await, Ok(only(&[])));
    }
    assert_eq!(admit("Bearer root", "shop").await, Ok(Visible::All));
    let refused = admit("Bearer stranger", "shop").await.unwrap_err();
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn what_was_reviewed_in_time_counts() {
    let door = Door::new();
    let slow = (0..20).map(|number| format!("slow-{number}"));
    let mut there: Vec<String> = slow.collect();
    there.insert(0, "shop".to_owned());
    let there: Vec<&str> = there.iter().map(|name| &**name).collect();
    let found = door.admit_among(&["Bearer shopkeeper"], None, &there).await;
    assert_eq!(found, Ok(only(&["shop"])));
    let refused = door.admit_among(&["Bearer nobody"], None, &there).await;
    let message = refused.unwrap_err().message;
    assert!(
        message.contains(" could not; open an autoscaler"),
        "{message}"
    );
}

#[tokio::test]
async fn five_hundred_namespaces_are_asked_about_and_the_rest_is_said() {
    let door = Door::new();
    let there: Vec<String> = (0..NAMESPACES_MAX + 7)
        .map(|it| format!("n{it:03}"))
        .collect();
    let there: Vec<&str> = there.iter().map(|name| &**name).collect();
    let refused = door.admit_among(&["Bearer nobody"], None, &there).await;
    let message = refused.unwrap_err().message;
    assert!(message.contains("but 7 could not"), "{message}");
}

#[test]
fn both_kinds_are_asked_about_by_their_names() {
    let definitions = foretide_crds::definitions();
    for (group, plural) in KINDS {
        let mut specs = definitions.iter().map(|definition| &definition.spec);
        let is_defined = specs.any(|spec| spec.group == group && spec.names.plural == plural);
        assert!(is_defined, "{group} {plural}");
    }
}
