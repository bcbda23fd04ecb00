//! The steps by which a member leaves on purpose: its Secret says so, the controller moves its shares to others, and
//! then the Secret is deleted.
//!
//! A Secret without a kubeconfig says it as well, so that a cluster that is gone together with its Secret can leave.

use foretide_crds::{ClusterStatus, FederatedHPAStatus};
use foretide_federate::Ledger;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{admin::AdminClient, secret::LEAVING};
use crate::api_server::{About as _, Body, Resource};
use foretide_api::ports::ClusterError;
use foretide_api::status::stored_ledger;

/// Field manager of the annotation. It differs from that of the other commands, because an apply removes what its
/// manager leaves out.
const MANAGER: &str = "foretide-members-remove";

/// The share of a fleet in a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetShare {
    /// The fleet, as `NAMESPACE/NAME`.
    pub fleet: String,
    /// The member's name.
    pub member: String,
    /// Number of replicas that run in the member, as far as it is known.
    pub current: Option<i32>,
    /// The reason for the bounds of the member.
    pub reason: String,
}

/// The fields of a fleet that are read: others may be in a form that this version does not know.
#[derive(Deserialize)]
struct FleetObject {
    metadata: ObjectMeta,
    status: Option<FederatedHPAStatus>,
}

impl AdminClient {
    /// Shares of the fleets of this hub in members, by their ledgers.
    ///
    /// # Errors
    /// The fleets cannot be read.
    pub async fn fleet_shares(&self) -> Result<Vec<FleetShare>, ClusterError> {
        let what = "the list of kind FederatedHPA";
        let path = Resource::FEDERATED_HPA.collection(None).about(what)?;
        let fleets: Vec<FleetObject> = match self.calls.list(&path, &[]).await {
            // A hub without the kind has no fleets.
            Err(error) if error.is_status(404) => return Ok(Vec::new()),
            listed => listed.about(what)?,
        };
        let shares: Result<Vec<_>, _> = fleets.iter().map(shares_of).collect();
        Ok(shares?.into_iter().flatten().collect())
    }

    /// Marks a member as leaving: in its Secret of this name, or in a new one that has only the `label` of members
    /// (`KEY=VALUE` or `KEY`), by which it is found.
    ///
    /// # Errors
    /// The server rejects the Secret or does not answer, or another Secret has the name of the new one.
    pub async fn leave(
        &self,
        namespace: &str,
        secret: &str,
        label: Option<&str>,
    ) -> Result<(), ClusterError> {
        let mut manifest = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": secret, "namespace": namespace, "annotations": {LEAVING: "true"},
            },
        });
        if let Some(label) = label {
            let (key, value) = label.split_once('=').unwrap_or((label, "true"));
            manifest["metadata"]["labels"] = json!({key: value});
            // A Secret of that name that is no member's must not become one, and be deleted in the end.
            self.check_secret(&manifest, label).await?;
        }
        self.apply_as(MANAGER, &manifest).await
    }

    /// Deletes the Secret of a member that has left; one that does not exist is a success.
    ///
    /// # Errors
    /// The server rejects the request or does not answer.
    pub async fn forget(&self, namespace: &str, secret: &str) -> Result<(), ClusterError> {
        let object = Resource::SECRET.object(namespace, secret);
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        let deleting = async {
            let (path, body) = (object.path()?, Body::json(&options));
            self.calls.write::<Value>(Method::DELETE, &path, body).await
        };
        match deleting.await {
            Err(error) if error.is_status(404) => Ok(()),
            deleted => deleted.map(drop).about(object),
        }
    }
}

/// Shares of a fleet in members; an error if its ledger cannot be read, because then they are unknown.
fn shares_of(fleet: &FleetObject) -> Result<Vec<FleetShare>, ClusterError> {
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let fleet_name = fleet.metadata.name.as_deref().unwrap_or_default();
    let status = fleet.status.as_ref();
    let stored = status.and_then(|status| status.ledger.as_deref());
    let ledger = match stored.map(stored_ledger) {
        None => Ledger::default(),
        Some(Some(ledger)) => ledger,
        Some(None) => {
            return Err(ClusterError::Invalid {
                what: format!("FederatedHPA {namespace}/{fleet_name}"),
                message:
                    "status.ledger cannot be read, so what the fleet has in members is unknown; \
                          the controller writes it again within minutes"
                        .to_owned(),
            });
        }
    };
    let listed = status.and_then(|status| status.clusters.as_deref());
    let rows = listed.unwrap_or_default();
    let shares = ledger.members.into_keys().map(|member| {
        let row = rows.iter().find(|row: &&ClusterStatus| row.name == member);
        FleetShare {
            fleet: format!("{namespace}/{fleet_name}"),
            current: row.and_then(|row| row.current),
            reason: row.and_then(|row| row.reason.clone()).unwrap_or_default(),
            member,
        }
    });
    Ok(shares.collect())
}

#[cfg(test)]
mod tests {
    use super::{super::sample::admin_client, *};
    use simkube::client::Reply;

    const SECRET: &str = "/api/v1/namespaces/ns/secrets/east";

    #[tokio::test]
    async fn an_existing_secret_is_annotated_and_keeps_the_fields_of_other_commands() {
        let (server, hub) = admin_client(|_, _| Reply::Ok(json!({})));
        assert_eq!(hub.leave("ns", "east", None).await, Ok(()));
        let sent = server.sent();
        let line = format!("PATCH {SECRET}?fieldManager=foretide-members-remove&force=true");
        assert_eq!(sent[0].line, line);
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "east",
                "namespace": "ns",
                "annotations": {"foretide.io/leaving": "true"},
            },
        });
        assert_eq!(sent[0].body, expected);
    }

    #[tokio::test]
    async fn a_missing_secret_is_created_by_its_label_unless_another_one_has_its_name() {
        for (found, is_created) in [(None, true), (Some(json!({"metadata": {}})), false)] {
            let (server, hub) = admin_client(move |sent, _| match &found {
                None if sent.line.starts_with("GET") => Reply::Fail(404, "none"),
                found => Reply::Ok(found.clone().unwrap_or_default()),
            });
            let left = hub.leave("ns", "east", Some("a=b")).await;
            assert_eq!(left.is_ok(), is_created, "{left:?}");
            let mut sent = server.sent();
            sent.retain(|sent| sent.line.ends_with("&force=true"));
            let labels: Vec<_> = sent.iter().map(|s| &s.body["metadata"]["labels"]).collect();
            let expected = json!({"a": "b"});
            assert_eq!(labels, if is_created { vec![&expected] } else { vec![] });
        }
    }

    #[tokio::test]
    async fn a_secret_that_is_gone_is_forgotten() {
        for (reply, expected) in [(200, true), (404, true), (403, false)] {
            let (server, hub) = admin_client(move |_, _| match reply {
                200 => Reply::Ok(json!({})),
                code => Reply::Fail(code, "words"),
            });
            assert_eq!(hub.forget("ns", "east").await.is_ok(), expected, "{reply}");
            assert_eq!(server.lines(), [format!("DELETE {SECRET}")]);
        }
    }

    #[tokio::test]
    async fn the_shares_of_fleets_are_those_of_their_ledgers() {
        let fleet = |name: &str, status: Value| {
            json!({
                "apiVersion": "autoscaling.foretide.io/v1alpha1",
                "kind": "FederatedHPA",
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                    "maxReplicas": 9,
                },
                "status": status,
            })
        };
        let status = json!({
            "ledger": r#"{"members":{"east":{"min":1,"max":4},"west":{"min":1,"max":5}}}"#,
            "clusters": [
                {"name": "east", "current": 3, "reason": "Steady: nothing to change"},
                {"name": "north", "reason": "Leaving: it leaves"},
            ],
        });
        let items = [fleet("web", status), fleet("new", Value::Null)];
        let fleets = json!({"metadata": {"resourceVersion": "1"}, "items": items});
        let (server, hub) = admin_client(move |_, _| Reply::Ok(fleets.clone()));
        let share = |member: &str, current, reason: &str| FleetShare {
            fleet: "shop/web".into(),
            member: member.into(),
            current,
            reason: reason.into(),
        };
        let expected = vec![
            share("east", Some(3), "Steady: nothing to change"),
            share("west", None, ""),
        ];
        assert_eq!(hub.fleet_shares().await, Ok(expected));
        let line = "GET /apis/autoscaling.foretide.io/v1alpha1/federatedhpas?limit=64";
        assert_eq!(server.lines(), [line]);
    }

    #[tokio::test]
    async fn a_ledger_that_cannot_be_read_does_not_mean_no_shares() {
        let fleet = json!({
            "metadata": {"name": "web", "namespace": "shop"}, "status": {"ledger": "{"},
        });
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": [fleet]});
        let (_, hub) = admin_client(move |_, _| Reply::Ok(list.clone()));
        let error = hub.fleet_shares().await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("FederatedHPA shop/web is not valid: status.ledger"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_hub_without_fleets_has_no_shares() {
        let (_, hub) = admin_client(|_, _| Reply::Fail(404, "no such kind"));
        assert_eq!(hub.fleet_shares().await, Ok(Vec::new()));
    }
}
