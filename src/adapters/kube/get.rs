//! Single objects, for commands that do not run a controller.

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::{
    adapters::api_server::{Connection, Resource},
    ports::ClusterError,
};

impl Connection {
    /// One autoscaler.
    ///
    /// # Errors
    /// It does not exist, may not be read, or the server does not respond.
    pub async fn autoscaler(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<EffectiveHorizontalPodAutoscaler, ClusterError> {
        let object = Resource::EHPA.object(namespace, name);
        self.calls().get(object).await
    }

    /// One federated autoscaler.
    ///
    /// # Errors
    /// As [`Self::autoscaler`].
    pub async fn federated(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<FederatedHPA, ClusterError> {
        let object = Resource::FEDERATED_HPA.object(namespace, name);
        self.calls().get(object).await
    }

    /// The text under a key of a `ConfigMap`; `None` without the `ConfigMap` or the key.
    ///
    /// # Errors
    /// It may not be read, or the server does not respond.
    pub async fn config_text(
        &self,
        namespace: &str,
        name: &str,
        key: &str,
    ) -> Result<Option<String>, ClusterError> {
        let object = Resource::CONFIG_MAP.object(namespace, name);
        match self.calls().get::<ConfigMap>(object).await {
            Ok(found) => Ok(found.data.unwrap_or_default().remove(key)),
            Err(ClusterError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
