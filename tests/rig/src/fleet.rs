//! A hub and its members: separate clusters, started together, each member behind a relay that can be blocked. It
//! starts them and makes their Secrets; permissions in a member and the use of the fleet are left to the caller.

use std::{collections::BTreeMap, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{Cluster, ClusterOptions, Error, Relay, Result};

/// The label of member Secrets, as in multicluster-runtime.
const MEMBER_LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// A hub and members by name, all of them real clusters.
#[derive(Debug)]
pub struct Fleet {
    /// The hub, where federated objects are.
    pub hub: Cluster,
    members: BTreeMap<String, Member>,
}

/// A member cluster, and the relay through which others reach its API server.
#[derive(Debug)]
pub struct Member {
    /// The cluster itself; its own clients bypass the relay.
    pub cluster: Cluster,
    relay: Relay,
}

impl Fleet {
    /// Starts all clusters at once. Members have the names of their options.
    ///
    /// # Errors
    /// As [`Cluster::start`], of the first cluster that fails.
    pub async fn start(hub: ClusterOptions, members: Vec<ClusterOptions>) -> Result<Self> {
        let mut starting: JoinSet<Result<(String, Member)>> = JoinSet::new();
        for options in members {
            let name = options.name.clone();
            starting.spawn(async move { Ok((name, Member::start(options).await?)) });
        }
        let hub = Cluster::start(hub).await?;
        let mut members = BTreeMap::new();
        while let Some(started) = starting.join_next().await {
            let started = started.map_err(|gone| Error::Spawn {
                program: "a member".to_owned(),
                source: gone.into(),
            })?;
            members.extend([started?]);
        }
        Ok(Self { hub, members })
    }

    /// The members, in the order of their names.
    pub fn members(&self) -> impl Iterator<Item = (&str, &Member)> {
        let members = self.members.iter();
        members.map(|(name, member)| (name.as_str(), member))
    }

    /// A member.
    ///
    /// # Panics
    /// When there is none of that name.
    #[expect(clippy::panic, reason = "a scenario names the members that it started")]
    pub fn member(&self, name: &str) -> &Member {
        let found = self.members.get(name);
        found.unwrap_or_else(|| panic!("no member is called {name}"))
    }

    /// Registers a member with the hub: a Secret of its name in `namespace`, with a kubeconfig that goes through the
    /// relay. `metadata` may hold labels and annotations. A repeated call replaces the Secret: a rotation.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn register_member(
        &self,
        name: &str,
        namespace: &str,
        kubeconfig: &str,
        metadata: &Value,
    ) -> Result<()> {
        let mut labels = metadata.get("labels").cloned().unwrap_or(json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(MEMBER_LABEL.to_owned(), json!("true"));
        }
        let secret = json!({
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": metadata.get("annotations"),
            },
            "type": "Opaque",
            "data": {"kubeconfig": STANDARD.encode(kubeconfig)},
        });
        let secrets: Api<Secret> = Api::namespaced(self.hub.client(), namespace);
        self.hub.put(&secrets, &secret).await.map(drop)
    }
}

impl Member {
    async fn start(options: ClusterOptions) -> Result<Self> {
        let cluster = Cluster::start(options).await?;
        let relay = cluster.relay().await?;
        Ok(Self { cluster, relay })
    }

    /// A self-contained kubeconfig through the relay for an existing service account, with a token that is valid for a
    /// day.
    ///
    /// # Errors
    /// When the account does not exist.
    pub async fn kubeconfig(&self, namespace: &str, account: &str) -> Result<String> {
        let token = self
            .cluster
            .service_account_token(namespace, account)
            .await?;
        let pki = &self.cluster.layout().pki;
        Ok(pki.kubeconfig(&self.server(), &json!({"token": token})))
    }

    /// A kubeconfig through the relay with all permissions.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn admin_kubeconfig(&self) -> Result<PathBuf> {
        let layout = self.cluster.layout();
        let admin = layout.pki.client("admin", Some("system:masters"))?;
        let content = layout.pki.kubeconfig(&self.server(), &admin.user());
        layout.folder.write("relay.kubeconfig", content)
    }

    /// Blocks the relay: connections are accepted and hang, and existing ones transfer nothing.
    pub fn block(&self) {
        self.relay.block();
    }

    /// Unblocks the relay.
    pub fn unblock(&self) {
        self.relay.unblock();
    }

    fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.relay.port())
    }
}
