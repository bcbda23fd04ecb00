//! The steps of enrolling that may fail half way, each so that what is left behind is known.
//!
//! It refuses to clean up: what was applied to a member may have been there before.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use super::admin::{AdminClient, shown};
use crate::{adapters::api_server::CallError, ports::ClusterError};

/// A step in a member that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Interrupted {
    /// The objects that are there now, as messages name them.
    pub remains: Vec<String>,
    /// Why it went no further.
    pub error: ClusterError,
}

#[derive(Deserialize)]
struct Labelled {
    metadata: Labels,
}

#[derive(Deserialize)]
struct Labels {
    labels: Option<BTreeMap<String, String>>,
}

/// Why a member that was asked once is not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// HTTP 401.
    #[error("it does not accept our credentials (HTTP 401); renew them in its Secret")]
    Refused,
    /// There was no answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// It says that it is not ready, or cannot be connected to.
    #[error("{0}")]
    Other(String),
}

impl AdminClient {
    /// Whether this hub would take the Secret of a member, found by `label` (`KEY=VALUE` or `KEY`). Nothing is written.
    ///
    /// # Errors
    /// The server refuses, does not answer, or has a Secret of that name which is not a member's.
    pub async fn would_take(&self, secret: &Value, label: &str) -> Result<(), ClusterError> {
        let what = shown(secret);
        let found = match self.get::<Labelled>(secret).await {
            Ok(found) => found.metadata.labels.unwrap_or_default(),
            Err(error) if error.is_status(404) => return self.rehearse(secret).await,
            Err(error) => return Err(error.about(what)),
        };
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        let is_member = found
            .get(key)
            .is_some_and(|found| value.is_empty() || found == value);
        if is_member {
            return self.rehearse(secret).await;
        }
        let message = format!(
            "it exists without the label {label}, so it is not a member's; give the member another name, or label that Secret"
        );
        Err(ClusterError::Refused { what, message })
    }

    /// Applies the objects of a member, in their order, and gives the token of the Secret among them.
    ///
    /// # Errors
    /// The server refuses or does not answer, and what remains.
    pub async fn prepare(
        &self,
        objects: &[Value],
        (namespace, token): (&str, &str),
    ) -> Result<String, Interrupted> {
        let mut remains = Vec::new();
        for object in objects {
            if let Err(error) = self.apply(object).await {
                return Err(Interrupted { remains, error });
            }
            remains.push(shown(object));
        }
        let token = self.token(namespace, token).await;
        token.map_err(|error| Interrupted { remains, error })
    }

    /// What the hub judges a member's health by: how it answers when it is asked whether it is ready.
    ///
    /// # Errors
    /// It is not ready, or does not accept the credentials.
    pub async fn ready(&self) -> Result<(), Unready> {
        match self.read_text("/readyz").await {
            Ok(_) => Ok(()),
            Err(CallError::Status { code: 401, .. }) => Err(Unready::Refused),
            Err(CallError::Timeout(limit)) => Err(Unready::Silent(limit)),
            Err(error @ CallError::Status { code, .. }) if code != 401 && code < 500 => {
                tracing::debug!(%error, "answered all the same");
                Ok(())
            }
            Err(error) => Err(Unready::Other(
                error.to_string().chars().take(200).collect(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adapters::api_server::{
        Connection,
        fake::{FakeServer, Reply, Sent},
    };

    fn desk(
        reply: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static,
    ) -> (FakeServer, AdminClient) {
        let (server, client) = FakeServer::new(reply);
        (server, AdminClient::over(Connection::over(client)))
    }

    fn object(kind: &str, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "ns"}})
    }

    #[tokio::test]
    async fn the_hub_is_asked_without_writing_and_a_secret_of_somebody_else_is_left_alone() {
        for (labels, label, taken) in [
            (None, "a=b", true),
            (Some(json!({"a": "b"})), "a=b", true),
            (Some(json!({"a": "c"})), "a=b", false),
            (Some(json!({"a": "c"})), "a", true),
            (Some(json!({})), "a", false),
            (Some(Value::Null), "a=b", false),
        ] {
            let found = labels.clone();
            let (server, hub) = desk(move |sent, _| match &found {
                None if sent.line.starts_with("GET") => Reply::Fail(404, "none"),
                labels => Reply::Ok(json!({"metadata": {"labels": labels}})),
            });
            let asked = hub.would_take(&object("Secret", "east"), label).await;
            assert_eq!(asked.is_ok(), taken, "{labels:?} {label}: {asked:?}");
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
    async fn what_remains_in_a_member_is_known() {
        let objects = [
            object("Namespace", "ns"),
            object("ServiceAccount", "hub"),
            object("Secret", "token"),
        ];
        let (_, member) = desk(|_, before| match before {
            0 | 1 => Reply::Ok(json!({})),
            _ => Reply::Fail(403, "no"),
        });
        let Err(Interrupted { remains, .. }) = member.prepare(&objects, ("ns", "token")).await
        else {
            panic!("it was refused")
        };
        assert_eq!(remains, ["Namespace ns/ns", "ServiceAccount ns/hub"]);
    }

    #[tokio::test]
    async fn a_member_is_ready_as_the_hub_judges_it() {
        for (code, ready) in [(403, true), (404, true), (401, false), (500, false)] {
            let (_, member) = desk(move |_, _| Reply::Fail(code, "words"));
            assert_eq!(member.ready().await.is_ok(), ready, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn why_a_member_is_not_ready_is_told_by_what_it_answers() {
        let other = |words: &str| Err(Unready::Other(words.to_owned()));
        for (reply, expected) in [
            (None, Err(Unready::Silent(Duration::from_secs(5)))),
            (Some(401), Err(Unready::Refused)),
            (Some(403), Ok(())),
            (Some(500), other("words (HTTP 500)")),
        ] {
            let (_, member) = desk(move |_, _| match reply {
                None => Reply::Hang,
                Some(code) => Reply::Fail(code, "words"),
            });
            assert_eq!(member.ready().await, expected);
        }
        let silent = Unready::Silent(Duration::from_secs(5));
        assert_eq!(silent.to_string(), "no answer within 5 s");
    }
}
