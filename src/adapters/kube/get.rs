//! One look at one object: for commands that do not run a controller, and for what is too small to watch.

use std::collections::BTreeMap;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use serde::Deserialize;

use crate::{
    adapters::api_server::{CallError, Connection, Resource},
    ports::ClusterError,
};

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl Connection {
    /// One autoscaler, as it stands in the cluster.
    ///
    /// # Errors
    /// It is not there, may not be read, or the server does not answer.
    pub async fn autoscaler(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<EffectiveHorizontalPodAutoscaler, ClusterError> {
        let told = |error: CallError| error.about(Resource::EHPA.shown(namespace, name));
        let url = Resource::EHPA.object(namespace, name).map_err(told)?;
        let calls = self.calls();
        calls.read(&url).await.map_err(told)
    }

    /// One federated autoscaler, as it stands in the cluster.
    ///
    /// # Errors
    /// As [`Self::autoscaler`].
    pub async fn federated(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<FederatedHPA, ClusterError> {
        let told = |error: CallError| error.about(Resource::FEDERATED.shown(namespace, name));
        let url = Resource::FEDERATED.object(namespace, name).map_err(told)?;
        let calls = self.calls();
        calls.read(&url).await.map_err(told)
    }

    /// The text under a key of a `ConfigMap`; none without the `ConfigMap` or the key.
    ///
    /// # Errors
    /// It may not be read, or the server does not answer.
    pub async fn config_text(
        &self,
        namespace: &str,
        name: &str,
        key: &str,
    ) -> Result<Option<String>, ClusterError> {
        let told = |error: CallError| error.about(Resource::CONFIG_MAP.shown(namespace, name));
        let url = Resource::CONFIG_MAP.object(namespace, name).map_err(told)?;
        let calls = self.calls();
        match calls.read::<ConfigMap>(&url).await.map_err(told) {
            Ok(mut found) => Ok(found.data.remove(key)),
            Err(ClusterError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
