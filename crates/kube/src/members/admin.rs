//! A client for the commands that add, list and check member clusters.
//!
//! Sends single requests, each with a deadline, and keeps no stores. The user's own kubeconfig may run commands and
//! read files. That of a member is parsed by [`Access`] and may not.

use std::{num::ParseIntError, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::version::Info};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    connect::connect,
    inventory::{Inventory, InventoryEntry},
    kubeconfig::Access,
    permissions::{AccessReview, access_reviews},
    secret::taint_text,
    settings::MemberSettings,
};
use crate::{
    api_server::{
        About as _, Body, CallError, Calls, ConnectError, Connection, Resource, query, root,
        segment,
    },
    cluster::{Changes, text_at},
};
use foretide_api::ports::ClusterError;
use foretide_base::machine::Machine;

/// Field manager of the objects that the commands apply.
const MANAGER: &str = "foretide-members";
/// Number of times that the token of a service account is read, half a second apart, until it exists.
const TOKEN_ATTEMPTS: u32 = 20;
/// Number of times that an object is applied until there is an answer: a second apply changes nothing, and a cluster
/// that has just started may be slow.
const APPLY_ATTEMPTS: u32 = 3;

/// A client of one cluster, for the command line.
#[derive(Debug)]
pub struct AdminClient {
    connection: Connection,
    pub(crate) calls: Calls,
}

/// The API server of a kubeconfig, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiServer {
    /// Base URL.
    pub url: String,
    /// The name that its certificate must have, if not that of the URL.
    pub tls_server_name: Option<String>,
    /// The certificate authority in PEM; empty when the kubeconfig has none.
    pub certificate_authority: String,
}

/// One member of the hub's inventory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListedMember {
    /// The name.
    pub name: String,
    /// Host and port of its server, if its Secret can be used.
    pub host: Option<String>,
    /// The provider, region and zones.
    pub location: [String; 3],
    /// The taints, in the form of `kubectl taint`.
    pub taints: Vec<String>,
    /// The problem with its Secret.
    pub problem: Option<String>,
    /// Name of its Secret, if it has one.
    pub secret: Option<String>,
    /// True if a `ClusterProfile` describes it.
    pub has_profile: bool,
    /// True if it leaves on purpose.
    pub leaving: bool,
    /// The address and credentials, if its Secret can be used.
    pub access: Option<Access>,
}

// === impl ApiServer ===

impl ApiServer {
    /// The server of a context in the user's kubeconfig; nothing is sent.
    ///
    /// # Errors
    /// The file cannot be read, or has no such context.
    pub async fn from_kubeconfig(
        file: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Self, ConnectError> {
        let config = Connection::config(file, context).await?;
        let certificates = config.root_cert.iter().flatten();
        Ok(Self {
            url: config.cluster_url.to_string(),
            tls_server_name: config.tls_server_name.clone(),
            certificate_authority: certificates.map(|der| pem(der)).collect(),
        })
    }
}

/// A DER certificate as PEM.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    // The line length of PEM (RFC 7468).
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines: Vec<_> = lines.collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

// === impl AdminClient ===

impl AdminClient {
    /// A client for a context of the user's kubeconfig; without a file, of `$KUBECONFIG` or `~/.kube/config`.
    ///
    /// # Errors
    /// The file cannot be read, or has no such context.
    pub async fn open(
        file: Option<&Path>,
        context: Option<&str>,
        machine: &Machine,
    ) -> Result<Self, ConnectError> {
        let connection = Connection::from_kubeconfig(file, context, machine).await?;
        Ok(Self::new(connection))
    }

    /// A client for a member, with the credentials of the hub.
    ///
    /// # Errors
    /// The certificates or keys cannot be used.
    pub fn for_member(access: &Access, machine: &Machine) -> Result<Self, ConnectError> {
        connect(access, machine).map(Self::new)
    }

    pub(crate) fn new(connection: Connection) -> Self {
        let calls = connection.calls();
        Self { connection, calls }
    }

    /// Server-side apply of an object of one of the kinds that joining a member needs.
    ///
    /// # Errors
    /// The server rejects the request, or does not answer three times.
    pub async fn apply(&self, manifest: &Value) -> Result<(), ClusterError> {
        self.apply_as(MANAGER, manifest).await
    }

    /// Server-side apply as by [`Self::apply`], with another field manager.
    pub(crate) async fn apply_as(
        &self,
        manager: &str,
        manifest: &Value,
    ) -> Result<(), ClusterError> {
        // Forced: the API server refuses to change a field that another manager has taken over.
        let parameters = [("fieldManager", manager), ("force", "true")];
        for _attempt in 1..APPLY_ATTEMPTS {
            match self.patch(manifest, &parameters).await {
                Err(ClusterError::Unreachable { .. }) => {}
                answered => return answered,
            }
        }
        self.patch(manifest, &parameters).await
    }

    /// Server-side apply as a dry run.
    pub(crate) async fn dry_run(&self, manifest: &Value) -> Result<(), ClusterError> {
        let parameters = [
            ("fieldManager", MANAGER),
            ("force", "true"),
            ("dryRun", "All"),
        ];
        self.patch(manifest, &parameters).await
    }

    /// Reads the object that a manifest names.
    pub(crate) async fn get<T: DeserializeOwned>(&self, manifest: &Value) -> Result<T, CallError> {
        self.calls.read(&path(manifest)?).await
    }

    async fn patch(
        &self,
        manifest: &Value,
        parameters: &[(&str, &str)],
    ) -> Result<(), ClusterError> {
        let applying = async {
            let url = format!("{}{}", path(manifest)?, query(parameters));
            let body = Body::apply(manifest);
            self.calls.write::<Value>(Method::PATCH, &url, body).await
        };
        applying.await.map(drop).about(describe(manifest))
    }

    /// Waits for the token that the cluster adds to a Secret of a service account.
    ///
    /// # Errors
    /// There is no token after ten seconds, or the Secret cannot be read.
    pub(crate) async fn token(&self, namespace: &str, name: &str) -> Result<String, ClusterError> {
        let object = Resource::SECRET.object(namespace, name);
        for _attempt in 0..TOKEN_ATTEMPTS {
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
                "the cluster added no token; check that its service account token controller runs"
                    .to_owned(),
        })
    }

    /// The members in the inventory of this hub, by name; and why `ClusterProfile`s cannot be read, if the hub serves
    /// them.
    ///
    /// # Errors
    /// The Secrets cannot be read.
    pub async fn members(
        &self,
        settings: &MemberSettings,
    ) -> Result<(Vec<ListedMember>, Option<ClusterError>), ClusterError> {
        let inventory = Inventory::new(
            self.connection.clone(),
            settings,
            &std::sync::Arc::new(Changes::default()),
        );
        let unread = inventory.list_once(&self.calls, settings).await?;
        let members = inventory.members(settings).into_iter();
        Ok((members.map(ListedMember::new).collect(), unread))
    }

    /// Major and minor version of the API server.
    ///
    /// # Errors
    /// It does not answer, or its answer is not a version.
    pub async fn version(&self) -> Result<(u32, u32), ClusterError> {
        let version: Info = self.calls.read("/version").await.about("/version")?;
        match (number(&version.major), number(&version.minor)) {
            (Ok(major), Ok(minor)) => Ok((major, minor)),
            _ => Err(ClusterError::Invalid {
                what: "/version".to_owned(),
                message: "expected a major and a minor version".to_owned(),
            }),
        }
    }

    /// The permissions that the hub needs in a member, each with true if it is granted; `place` adds those for placing
    /// workloads. With `namespaces`, namespaced resources are reviewed in each of them.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn review_access(
        &self,
        place: bool,
        namespaces: &[String],
    ) -> Result<Vec<(AccessReview, bool)>, ClusterError> {
        let requests = access_reviews(place, namespaces)
            .into_iter()
            .map(|review| async move {
                let allowed = self.is_allowed(&review).await?;
                Ok((review, allowed))
            });
        // One by one would take long: each namespace adds a review for each verb.
        stream::iter(requests).buffered(8).try_collect().await
    }

    async fn is_allowed(&self, review: &AccessReview) -> Result<bool, ClusterError> {
        let (resource, subresource) = review
            .resource
            .split_once('/')
            .unwrap_or((review.resource, ""));
        let request = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "group": review.group,
                "resource": resource,
                "subresource": subresource,
                "verb": review.verb,
                "namespace": review.namespace.as_deref().unwrap_or_default(),
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let body = Body::json(&request);
        let asking = self.calls.write::<Value>(Method::POST, path, body);
        let answer = asking.await.about("SelfSubjectAccessReview")?;
        Ok(answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
    }
}

impl ListedMember {
    fn new((name, entry): (String, InventoryEntry)) -> Self {
        let InventoryEntry {
            info,
            access,
            secret,
            has_profile,
            ..
        } = entry;
        let (access, unusable) = match access {
            Ok(access) => (Some(access), None),
            Err(problem) => (None, Some(problem)),
        };
        let profile = &info.profile;
        Self {
            name,
            host: access.as_ref().map(Access::host),
            location: [
                profile.provider.clone(),
                profile.region.clone(),
                profile.zones.join(","),
            ],
            taints: info.taints.iter().map(taint_text).collect(),
            problem: unusable.or_else(|| info.problem.clone()),
            secret,
            has_profile,
            leaving: info.leaving,
            access,
        }
    }
}

/// The kind, namespace and name of an object, for messages.
pub fn describe(manifest: &Value) -> String {
    let name = text_at(manifest, "/metadata/name");
    let kind = text_at(manifest, "/kind");
    match text_at(manifest, "/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// A part of a version; some providers report a minor version such as `33+`.
fn number(text: &str) -> Result<u32, ParseIntError> {
    text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse()
}

/// The URL path of an object of one of the kinds that joining a member needs.
fn path(manifest: &Value) -> Result<String, CallError> {
    let plural = match text_at(manifest, "/kind") {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Secret" => "secrets",
        other => {
            let message = format!("unexpected kind {other:?}; joining a member does not need it");
            return Err(CallError::Request(message));
        }
    };
    let root = root(text_at(manifest, "/apiVersion"))?;
    let name = segment(text_at(manifest, "/metadata/name"))?;
    match text_at(manifest, "/metadata/namespace") {
        "" => Ok(format!("{root}/{plural}/{name}")),
        namespace => {
            let namespace = segment(namespace)?;
            Ok(format!("{root}/namespaces/{namespace}/{plural}/{name}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::sample::{admin_client, settings},
        *,
    };
    use simkube::client::Reply;

    #[tokio::test(start_paused = true)]
    async fn a_token_is_waited_for_until_it_is_there() {
        let (server, client) = admin_client(|_, before| {
            let data = if before == 0 {
                json!({})
            } else {
                json!({"token": "dG9rZW4="})
            };
            Reply::Ok(json!({"data": data}))
        });
        assert_eq!(client.token("ns", "t").await, Ok("token".to_owned()));
        assert_eq!(server.lines().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_applied_again_when_there_was_no_answer() {
        let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
        let (server, client) = admin_client(|_, before| match before {
            0 => Reply::Hang,
            _ => Reply::Ok(json!({})),
        });
        assert_eq!(client.apply(&manifest).await, Ok(()));
        assert_eq!(server.lines().len(), 2);
    }

    #[tokio::test]
    async fn every_permission_is_reviewed_by_itself() {
        let (server, client) = admin_client(|sent, _| {
            let scale = sent.body.pointer("/spec/resourceAttributes/subresource");
            let allowed = scale != Some(&json!("scale"));
            Reply::Ok(json!({"status": {"allowed": allowed}}))
        });
        let answers = client.review_access(false, &[]).await.unwrap();
        let missing: Vec<String> = answers
            .iter()
            .filter(|(_, allowed)| !allowed)
            .map(|(review, _)| review.to_string())
            .collect();
        let expected = [
            "patch deployments/scale (apps)",
            "patch statefulsets/scale (apps)",
            "patch replicasets/scale (apps)",
        ];
        assert_eq!(missing, expected);
        assert_eq!(server.lines().len(), answers.len());
        assert!(client.review_access(true, &[]).await.unwrap().len() == answers.len() + 9);
    }

    #[tokio::test]
    async fn permissions_are_reviewed_in_each_of_the_given_namespaces() {
        let (server, client) = admin_client(|sent, _| {
            let shop = sent.body.pointer("/spec/resourceAttributes/namespace");
            Reply::Ok(json!({"status": {"allowed": shop == Some(&json!("shop"))}}))
        });
        let namespaces = ["shop".to_owned(), "back".to_owned()];
        let answers = client.review_access(false, &namespaces).await.unwrap();
        let shown = |allowed: bool| -> Vec<String> {
            let of = answers.iter().filter(|(_, found)| *found == allowed);
            of.map(|(review, _)| review.to_string()).collect()
        };
        assert!(shown(true).contains(&"list pods in shop".to_owned()));
        assert!(shown(false).contains(&"list pods in back".to_owned()));
        // Nodes are cluster-scoped, so no Role can grant them.
        let nodes = |review: &String| review.contains("nodes");
        let nodes: Vec<_> = shown(false).into_iter().filter(nodes).collect();
        assert_eq!(nodes, ["list nodes", "watch nodes"]);
        assert_eq!(server.lines().len(), answers.len());
    }

    /// The error of a hub that answers the list of profiles with this status.
    async fn unread(code: u16) -> Option<String> {
        let (_, client) = admin_client(move |sent, _| {
            if sent.line.contains("profiles") {
                Reply::Fail(code, "words")
            } else {
                Reply::Ok(json!({"metadata": {"resourceVersion": "1"}, "items": []}))
            }
        });
        let (_, unread) = client.members(&settings()).await.unwrap();
        unread.map(|error| error.to_string())
    }

    #[tokio::test]
    async fn profiles_that_cannot_be_read_are_reported_and_missing_ones_are_not() {
        assert_eq!(unread(404).await, None);
        let error = unread(403).await.unwrap();
        let expected = "the list of kind ClusterProfile in namespace foretide-system";
        assert!(error.contains(expected), "{error}");
    }

    #[tokio::test]
    async fn version_numbers_with_a_vendor_suffix_are_read() {
        for (minor, expected) in [("33", Some((1, 33))), ("34+", Some((1, 34))), ("x", None)] {
            let minor = minor.to_owned();
            let (_, client) =
                admin_client(move |_, _| Reply::Ok(json!({"major": "1", "minor": minor})));
            assert_eq!(client.version().await.ok(), expected);
        }
    }

    #[test]
    fn an_object_is_applied_at_the_path_of_its_kind() {
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
