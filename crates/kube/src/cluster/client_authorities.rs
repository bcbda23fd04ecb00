//! The authorities of an API server's clients, from the `ConfigMap` that it publishes for aggregated API servers.
//!
//! It is watched, because these authorities change: the last readable ones count.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::Value;
use tokio::{sync::watch, task::JoinSet};

use super::{
    Connection, WatchReport, read,
    store::Store,
    stored::Stored,
    watch::{WatchTimeouts, Watched},
};
use crate::api_server::Resource;
use foretide_api::ports::{ClientAuthorities, RequestHeader};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// The authorities of the clients of one API server, kept up to date by a watch.
#[derive(Debug)]
pub struct KubeClientAuthorities {
    connection: Connection,
    store: Arc<Store<ClientAuthorities>>,
    newest: watch::Sender<Option<Arc<ClientAuthorities>>>,
}

#[derive(Deserialize)]
struct ConfigMapObject {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

// === impl KubeClientAuthorities ===

impl KubeClientAuthorities {
    /// The authorities of this API server; none until [`KubeClientAuthorities::run`].
    pub fn new(connection: Connection) -> Self {
        let scopes = [Some(NAMESPACE.to_owned())];
        Self {
            connection,
            store: Arc::new(Store::new(Resource::CONFIG_MAP, &scopes).with_name(NAME)),
            newest: watch::Sender::new(None),
        }
    }

    /// The newest authorities; none while they have not been read.
    pub fn authorities(&self) -> watch::Receiver<Option<Arc<ClientAuthorities>>> {
        self.newest.subscribe()
    }

    /// The state of the watch.
    pub fn watch(&self) -> WatchReport {
        self.store.report()
    }

    /// Keeps the authorities up to date until it is dropped; returns only if a watch task panics.
    pub async fn run(&self) {
        let mut tasks = JoinSet::new();
        let store = Arc::clone(&self.store);
        let mut changed = store.subscribe();
        store.watch(&self.connection, WatchTimeouts::default(), &mut tasks);
        let pass_on = async {
            while changed.changed().await.is_ok() {
                self.pass_on();
            }
        };
        tokio::select! {
            biased;
            () = pass_on => {}
            ended = tasks.join_next() => if let Some(Err(error)) = ended {
                tracing::error!(%error, "watch task exited unexpectedly");
            },
        }
    }

    fn pass_on(&self) {
        if let Some(read) = self.store.get(NAMESPACE, NAME) {
            self.newest.send_if_modified(|newest| {
                let is_new = newest.as_ref() != Some(&read);
                if is_new {
                    *newest = Some(read);
                }
                is_new
            });
        }
    }
}

impl Stored for ClientAuthorities {
    fn decode(object: Value) -> Result<Self, String> {
        let ConfigMapObject { data } = read(object)?;
        authorities(data.unwrap_or_default())
    }
}

/// The authorities in the data of the `ConfigMap`. Without a field, nobody is trusted by it.
fn authorities(mut data: BTreeMap<String, String>) -> Result<ClientAuthorities, String> {
    let request_header = RequestHeader {
        ca: String::new(),
        allowed_names: texts(&data, "requestheader-allowed-names")?,
        username_headers: texts(&data, "requestheader-username-headers")?,
        uid_headers: texts(&data, "requestheader-uid-headers")?,
        group_headers: texts(&data, "requestheader-group-headers")?,
        extra_header_prefixes: texts(&data, "requestheader-extra-headers-prefix")?,
    };
    let ca = data.remove("requestheader-client-ca-file");
    Ok(ClientAuthorities {
        client_ca: data.remove("client-ca-file"),
        request_header: ca.map(|ca| RequestHeader {
            ca,
            ..request_header
        }),
    })
}

/// The texts under a key; none without the key.
fn texts(data: &BTreeMap<String, String>, key: &str) -> Result<Vec<String>, String> {
    let Some(text) = data.get(key) else {
        return Ok(Vec::new());
    };
    serde_json::from_str(text)
        .map_err(|_| format!("expected a JSON array of strings in data.{key}"))
}
