//! A cluster as the person at the command line reaches it, for enrolling a member and for looking at one.
//!
//! Single requests, each bounded, no stores. The person's own kubeconfig may run commands and read files: it is theirs.
//! A member's is read by [`Access`] and may not.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt, stream};
use http::Method;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    Settings,
    connect::connect,
    inventory::{Inventory, Wanted},
    kubeconfig::Access,
    permissions::{AccessReview, deeds},
};
use crate::{
    adapters::{
        api_server::{
            Body, CallError, Calls, ConnectError, Connection, Resource, query, root, segment,
        },
        kube::Changes,
    },
    ports::ClusterError,
};

/// Field manager of what the command line applies.
const MANAGER: &str = "foretide-members";
/// How often the token of a service account is looked for, half a second apart.
const TOKEN_LOOKS: u32 = 20;

/// A cluster that single requests are sent to.
pub struct AdminClient {
    connection: Connection,
    calls: Calls,
}

/// What a kubeconfig says about its server, apart from who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Base URL.
    pub url: String,
    /// Name that its certificate is checked for, if not that of the URL.
    pub tls_server_name: Option<String>,
    /// Its certificate authority in PEM; empty when the context has none of its own.
    pub authority: String,
}

/// One member as it is written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Enrolled {
    /// Its name.
    pub name: String,
    /// Host and port of its server, if its Secret can be used.
    pub host: Option<String>,
    /// Who runs it, its region, its zones.
    pub place: [String; 3],
    /// Its taints, in the form of `kubectl taint`.
    pub taints: Vec<String>,
    /// What is wrong with its Secret.
    pub problem: Option<String>,
    /// Name of its Secret, if there is one.
    pub secret: Option<String>,
    /// How to reach it.
    pub access: Option<Access>,
}

#[derive(Deserialize)]
struct Version {
    major: String,
    minor: String,
}

// === impl Server ===

impl Server {
    /// The server of a context, as the person's kubeconfig names it; nothing is sent.
    ///
    /// # Errors
    /// The file cannot be read, or has no such context.
    pub async fn of(file: Option<&Path>, context: Option<&str>) -> Result<Self, ConnectError> {
        let config = Connection::config(file, context).await?;
        let certificates = config.root_cert.iter().flatten();
        Ok(Self {
            url: config.cluster_url.to_string(),
            tls_server_name: config.tls_server_name.clone(),
            authority: certificates.map(|der| pem(der)).collect(),
        })
    }
}

/// A certificate in its text form.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines: Vec<_> = lines.collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

// === impl AdminClient ===

impl AdminClient {
    /// A cluster of the person's kubeconfig; without a file, of `$KUBECONFIG` or `~/.kube/config`.
    ///
    /// # Errors
    /// The file cannot be read, or has no such context.
    pub async fn open(file: Option<&Path>, context: Option<&str>) -> Result<Self, ConnectError> {
        Ok(Self::over(
            Connection::from_kubeconfig(file, context).await?,
        ))
    }

    /// A member, as the hub reaches it.
    ///
    /// # Errors
    /// Its certificates or keys cannot be used.
    pub fn of_member(access: &Access) -> Result<Self, ConnectError> {
        connect(access).map(Self::over)
    }

    pub(super) fn over(connection: Connection) -> Self {
        let calls = connection.calls();
        Self { connection, calls }
    }

    /// Server-side apply of an object of one of the kinds that enrolling needs.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn apply(&self, manifest: &Value) -> Result<(), ClusterError> {
        self.patch(manifest, &[]).await
    }

    /// The same without an effect: whether it would be taken.
    pub(super) async fn rehearse(&self, manifest: &Value) -> Result<(), ClusterError> {
        self.patch(manifest, &[("dryRun", "All")]).await
    }

    /// An object, by its manifest.
    pub(super) async fn get<T: DeserializeOwned>(&self, manifest: &Value) -> Result<T, CallError> {
        self.calls.read(&path(manifest)?).await
    }

    pub(super) async fn read_text(&self, url: &str) -> Result<String, CallError> {
        self.calls.read_text(url).await
    }

    async fn patch(&self, manifest: &Value, more: &[(&str, &str)]) -> Result<(), ClusterError> {
        let what = shown(manifest);
        let always = [("fieldManager", MANAGER), ("force", "true")];
        let parameters = query(&[&always, more].concat());
        let applied = match path(manifest) {
            Ok(path) => {
                let url = format!("{path}{parameters}");
                let body = Body::apply(manifest);
                self.calls.write::<Value>(Method::PATCH, &url, body).await
            }
            Err(error) => Err(error),
        };
        applied.map(drop).map_err(|error| error.about(what))
    }

    /// The token that the cluster puts into a Secret of a service account, as soon as it has.
    ///
    /// # Errors
    /// There is none after ten seconds.
    pub async fn token(&self, namespace: &str, name: &str) -> Result<String, ClusterError> {
        let object = Resource::SECRET.object(namespace, name);
        for _look in 0..TOKEN_LOOKS {
            let secret: Secret = self.calls.get(object).await?;
            let token = secret.data.unwrap_or_default().remove("token");
            match token.map(|ByteString(bytes)| String::from_utf8(bytes)) {
                Some(Ok(token)) if !token.is_empty() => return Ok(token),
                _ => tokio::time::sleep(std::time::Duration::from_millis(500)).await,
            }
        }
        Err(ClusterError::Unreachable {
            what: object.to_string(),
            message:
                "the cluster has put no token there; does its service account token controller run?"
                    .to_owned(),
        })
    }

    /// The members that are written down in this cluster, by name, and why those of profiles are not among them, if the
    /// cluster has profiles and they cannot be read.
    ///
    /// # Errors
    /// The Secrets cannot be read.
    pub async fn enrolled(
        &self,
        settings: &Settings,
    ) -> Result<(Vec<Enrolled>, Option<ClusterError>), ClusterError> {
        let inventory = Inventory::new(
            self.connection.clone(),
            settings,
            &std::sync::Arc::new(Changes::default()),
        );
        let unread = inventory.look(&self.calls, settings).await?;
        let wanted = inventory.wanted(settings).into_iter();
        let enrolled = wanted.map(|(name, wanted)| Enrolled::of(name, wanted));
        Ok((enrolled.collect(), unread))
    }

    /// Major and minor version of the API server.
    ///
    /// # Errors
    /// It does not answer, or says something that is no version.
    pub async fn version(&self) -> Result<(u32, u32), ClusterError> {
        let what = || "/version".to_owned();
        let read = self.calls.read::<Version>("/version").await;
        let version = read.map_err(|error| error.about(what()))?;
        let number = |text: &str| {
            let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
            digits.parse::<u32>().ok()
        };
        match (number(&version.major), number(&version.minor)) {
            (Some(major), Some(minor)) => Ok((major, minor)),
            _ => Err(ClusterError::Invalid {
                what: what(),
                message: "expected a major and a minor version".to_owned(),
            }),
        }
    }

    /// What we may do of all that the hub does in a member; `place` adds placing workloads. Where there are
    /// `namespaces`, what lives in namespaces is asked for in each of them.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn may(
        &self,
        place: bool,
        namespaces: &[String],
    ) -> Result<Vec<(AccessReview, bool)>, ClusterError> {
        let asked = deeds(place, namespaces).map(|deed| async move {
            let allowed = self.may_do(&deed).await;
            (deed, allowed)
        });
        let answers: Vec<_> = stream::iter(asked).buffered(8).collect().await;
        answers
            .into_iter()
            .map(|(deed, allowed)| Ok((deed, allowed?)))
            .collect()
    }

    async fn may_do(&self, deed: &AccessReview) -> Result<bool, ClusterError> {
        let (resource, subresource) = deed.resource.split_once('/').unwrap_or((deed.resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "group": deed.group,
                "resource": resource,
                "subresource": subresource,
                "verb": deed.verb,
                "namespace": deed.namespace.as_deref().unwrap_or_default(),
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let body = Body::json(&review);
        let answer = self.calls.write::<Value>(Method::POST, path, body).await;
        let answer = answer.map_err(|error| error.about("SelfSubjectAccessReview"))?;
        Ok(answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
    }
}

impl std::fmt::Debug for AdminClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminClient").finish_non_exhaustive()
    }
}

impl Enrolled {
    fn of(name: String, wanted: Wanted) -> Self {
        let Wanted {
            tags,
            access,
            secret,
            ..
        } = wanted;
        let (access, refused) = match access {
            Ok(access) => (Some(access), None),
            Err(problem) => (None, Some(problem)),
        };
        let profile = &tags.profile;
        Self {
            name,
            host: access.as_ref().map(Access::host),
            place: [
                profile.provider.clone(),
                profile.region.clone(),
                profile.zones.join(","),
            ],
            taints: tags.taints.iter().map(super::secret::shown).collect(),
            problem: refused.or_else(|| tags.problem.clone()),
            secret,
            access,
        }
    }
}

/// How a message names an object.
#[must_use]
pub fn shown(manifest: &Value) -> String {
    let text = |pointer| manifest.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").unwrap_or_default();
    let kind = text("/kind").unwrap_or_default();
    match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Where an object of one of the kinds that enrolling needs lives.
fn path(manifest: &Value) -> Result<String, CallError> {
    let text = |pointer| {
        let text = manifest.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default()
    };
    let plural = match text("/kind") {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Secret" => "secrets",
        other => {
            let message = format!("kind {other:?} is not one that enrolling a member needs");
            return Err(CallError::Request(message));
        }
    };
    let (root, name) = (root(text("/apiVersion"))?, segment(text("/metadata/name"))?);
    match text("/metadata/namespace") {
        "" => Ok(format!("{root}/{plural}/{name}")),
        namespace => {
            let namespace = segment(namespace)?;
            Ok(format!("{root}/namespaces/{namespace}/{plural}/{name}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::api_server::fake::{FakeServer, Reply};

    #[tokio::test(start_paused = true)]
    async fn a_token_is_waited_for_until_it_is_there() {
        let (server, client) = FakeServer::new(|_, before| {
            let data = if before == 0 {
                json!({})
            } else {
                json!({"token": "dG9rZW4="})
            };
            Reply::Ok(json!({"data": data}))
        });
        let desk = AdminClient::over(Connection::over(client));
        assert_eq!(desk.token("ns", "t").await, Ok("token".to_owned()));
        assert_eq!(server.lines().len(), 2);
    }

    #[tokio::test]
    async fn every_right_is_asked_for_by_itself() {
        let (server, client) = FakeServer::new(|sent, _| {
            let scale = sent.body.pointer("/spec/resourceAttributes/subresource");
            let allowed = scale != Some(&json!("scale"));
            Reply::Ok(json!({"status": {"allowed": allowed}}))
        });
        let desk = AdminClient::over(Connection::over(client));
        let answers = desk.may(false, &[]).await.unwrap();
        let missing: Vec<String> = answers
            .iter()
            .filter(|(_, allowed)| !allowed)
            .map(|(deed, _)| deed.to_string())
            .collect();
        let expected = [
            "patch deployments/scale (apps)",
            "patch statefulsets/scale (apps)",
            "patch replicasets/scale (apps)",
        ];
        assert_eq!(missing, expected);
        assert_eq!(server.lines().len(), answers.len());
        assert!(desk.may(true, &[]).await.unwrap().len() == answers.len() + 9);
    }

    #[tokio::test]
    async fn rights_are_asked_for_in_the_namespaces_that_they_are_limited_to() {
        let (server, client) = FakeServer::new(|sent, _| {
            let shop = sent.body.pointer("/spec/resourceAttributes/namespace");
            Reply::Ok(json!({"status": {"allowed": shop == Some(&json!("shop"))}}))
        });
        let desk = AdminClient::over(Connection::over(client));
        let namespaces = ["shop".to_owned(), "back".to_owned()];
        let answers = desk.may(false, &namespaces).await.unwrap();
        let shown = |allowed: bool| -> Vec<String> {
            let of = answers.iter().filter(|(_, found)| *found == allowed);
            of.map(|(deed, _)| deed.to_string()).collect()
        };
        assert!(shown(true).contains(&"list pods in shop".to_owned()));
        assert!(shown(false).contains(&"list pods in back".to_owned()));
        // Nodes are in no namespace, so a role of one cannot grant them.
        let nodes = |deed: &String| deed.contains("nodes");
        let nodes: Vec<_> = shown(false).into_iter().filter(nodes).collect();
        assert_eq!(nodes, ["list nodes", "watch nodes"]);
        assert_eq!(server.lines().len(), answers.len());
    }

    /// The members of a hub where the list of profiles is answered so.
    async fn unread(code: u16) -> Option<String> {
        let (_, client) = FakeServer::new(move |sent, _| {
            if sent.line.contains("profiles") {
                Reply::Fail(code, "words")
            } else {
                Reply::Ok(json!({"items": []}))
            }
        });
        let desk = AdminClient::over(Connection::over(client));
        let settings = Settings {
            namespace: "ns".into(),
            label: "a=b".into(),
            key: "kubeconfig".into(),
            allow_loopback: false,
            namespaces: Vec::new(),
            patience: crate::adapters::members::Timeouts::of(jiff::SignedDuration::from_secs(45)),
        };
        let (_, unread) = desk.enrolled(&settings).await.unwrap();
        unread.map(|error| error.to_string())
    }

    #[tokio::test]
    async fn profiles_that_cannot_be_read_are_told_from_a_hub_that_has_none() {
        assert_eq!(unread(404).await, None);
        let told = unread(403).await.unwrap();
        assert!(
            told.contains("the list of kind ClusterProfile in namespace ns"),
            "{told}"
        );
    }

    #[tokio::test]
    async fn versions_of_vendors_are_read() {
        for (minor, expected) in [("33", Some((1, 33))), ("34+", Some((1, 34))), ("x", None)] {
            let minor = minor.to_owned();
            let (_, client) =
                FakeServer::new(move |_, _| Reply::Ok(json!({"major": "1", "minor": minor})));
            let desk = AdminClient::over(Connection::over(client));
            assert_eq!(desk.version().await.ok(), expected);
        }
    }

    #[test]
    fn objects_are_applied_where_they_live() {
        for (api, kind, namespace, expected) in [
            (
                "v1",
                "Secret",
                Some("a"),
                Some("/api/v1/namespaces/a/secrets/n"),
            ),
            ("v1", "Namespace", None, Some("/api/v1/namespaces/n")),
            (
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                None,
                Some("/apis/rbac.authorization.k8s.io/v1/clusterroles/n"),
            ),
            ("v1", "Pod", Some("a"), None),
        ] {
            let manifest = json!({
                "apiVersion": api, "kind": kind, "metadata": {"name": "n", "namespace": namespace},
            });
            assert_eq!(path(&manifest).ok().as_deref(), expected);
        }
    }
}
