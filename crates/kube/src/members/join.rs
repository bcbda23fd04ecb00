//! The steps that make a cluster a member and can fail half way; each error names the objects that exist by then.
//!
//! Nothing is cleaned up, because an object that was applied may have existed before.

use std::time::Duration;

use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::admin::{AdminClient, describe};
use super::{connection::UNAUTHORIZED, secret::LEAVING};
use crate::api_server::CallError;
use foretide_api::ports::ClusterError;

/// A failed [`AdminClient::join`].
#[derive(Debug, Clone, PartialEq)]
pub struct JoinFailure {
    /// The objects that were applied before.
    pub applied: Vec<String>,
    /// The error of the step that failed.
    pub error: ClusterError,
}

/// Reasons why a member is not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// HTTP 401.
    #[error("{UNAUTHORIZED}")]
    Unauthorized,
    /// There was no answer within the deadline.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The member reports that it is not ready, or cannot be connected to.
    #[error("{0}")]
    Other(String),
}

impl AdminClient {
    /// Checks that this hub accepts the Secret of a member, whose Secrets have `label` (`KEY=VALUE` or `KEY`). Nothing
    /// is written.
    ///
    /// # Errors
    /// The server rejects it or does not answer, or another Secret has that name.
    pub async fn check_secret(&self, secret: &Value, label: &str) -> Result<(), ClusterError> {
        let what = describe(secret);
        let found = match self.get::<PartialObjectMeta>(secret).await {
            Ok(found) => found.metadata,
            // Finds out that the hub refuses the Secret before anything is created in the member.
            Err(error) if error.is_status(404) => return self.dry_run(secret).await,
            Err(error) => return Err(error.about(what)),
        };
        let annotations = found.annotations.unwrap_or_default();
        if annotations
            .get(LEAVING)
            .is_some_and(|value| value == "true")
        {
            let message = format!(
                "the member leaves; wait until it has, or remove the annotation {LEAVING} to keep it"
            );
            return Err(ClusterError::Refused { what, message });
        }
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        if let Some(found) = found.labels.unwrap_or_default().get(key)
            && (value.is_empty() || found == value)
        {
            return self.dry_run(secret).await;
        }
        let message = format!(
            "it exists without the label {label}, so it does not belong to a member; give the member another name, or label the Secret"
        );
        Err(ClusterError::Refused { what, message })
    }

    /// Applies the objects of the hub's account in a member, in their order, and returns the token of `secret`, which
    /// is one of them.
    ///
    /// # Errors
    /// The server rejects an object or does not answer.
    pub async fn join(
        &self,
        objects: &[Value],
        namespace: &str,
        secret: &str,
    ) -> Result<String, JoinFailure> {
        let mut applied = Vec::new();
        for object in objects {
            if let Err(error) = self.apply(object).await {
                return Err(JoinFailure { applied, error });
            }
            applied.push(describe(object));
        }
        let waiting = self.token(namespace, secret);
        waiting
            .await
            .map_err(|error| JoinFailure { applied, error })
    }

    /// Asks a member for `/readyz`, and judges the answer as the controller does.
    ///
    /// # Errors
    /// It is not ready, or rejects the credentials.
    pub async fn check_ready(&self) -> Result<(), Unready> {
        match self.calls.read_text("/readyz").await {
            Ok(_) => Ok(()),
            Err(CallError::Status { code: 401, .. }) => Err(Unready::Unauthorized),
            Err(CallError::Timeout(limit)) => Err(Unready::Timeout(limit)),
            Err(error @ CallError::Status { code, .. }) if code != 401 && code < 500 => {
                // The credentials may lack the permission, or a proxy the path: the member answers.
                tracing::debug!(%error, "readiness probe answered with an error");
                Ok(())
            }
            // A server may send a page of HTML.
            Err(error) => Err(Unready::Other(
                error.to_string().chars().take(200).collect(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::sample::admin_client, *};
    use simkube::client::Reply;

    fn object(kind: &str, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "ns"}})
    }

    #[tokio::test]
    async fn a_secret_is_checked_by_a_dry_run_and_must_have_the_label_of_members() {
        for (labels, label, taken) in [
            (None, "a=b", true),
            (Some(json!({"a": "b"})), "a=b", true),
            (Some(json!({"a": "c"})), "a=b", false),
            (Some(json!({"a": "c"})), "a", true),
            (Some(json!({})), "a", false),
            (Some(Value::Null), "a=b", false),
        ] {
            let found = labels.clone();
            let (server, hub) = admin_client(move |sent, _| match &found {
                None if sent.line.starts_with("GET") => Reply::Fail(404, "none"),
                labels => Reply::Ok(json!({"metadata": {"labels": labels}})),
            });
            let checked = hub.check_secret(&object("Secret", "east"), label).await;
            assert_eq!(checked.is_ok(), taken, "{labels:?} {label}: {checked:?}");
            let mut writes = server.lines();
            writes.retain(|line| !line.starts_with("GET"));
            assert_eq!(writes.len(), usize::from(taken));
            assert!(
                writes.iter().all(|line| line.ends_with("&dryRun=All")),
                "{writes:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_failed_join_names_the_applied_objects() {
        let objects = [
            object("Namespace", "ns"),
            object("ServiceAccount", "hub"),
            object("Secret", "token"),
        ];
        let (_, member) = admin_client(|_, before| match before {
            0 | 1 => Reply::Ok(json!({})),
            _ => Reply::Fail(403, "no"),
        });
        let Err(JoinFailure { applied, .. }) = member.join(&objects, "ns", "token").await else {
            panic!("the server rejects an object")
        };
        assert_eq!(applied, ["Namespace ns/ns", "ServiceAccount ns/hub"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_reason_why_a_member_is_not_ready_depends_on_its_answer() {
        let other = |words: &str| Err(Unready::Other(words.to_owned()));
        for (reply, expected) in [
            (None, Err(Unready::Timeout(Duration::from_secs(5)))),
            (Some(401), Err(Unready::Unauthorized)),
            (Some(403), Ok(())),
            (Some(404), Ok(())),
            (Some(500), other("words (HTTP 500)")),
        ] {
            let (_, member) = admin_client(move |_, _| match reply {
                None => Reply::Hang,
                Some(code) => Reply::Fail(code, "words"),
            });
            assert_eq!(member.check_ready().await, expected);
        }
        let timeout = Unready::Timeout(Duration::from_secs(5));
        assert_eq!(timeout.to_string(), "no answer within 5 s");
    }
}
