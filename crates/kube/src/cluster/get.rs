//! Single objects, for commands that do not run a controller.

use std::sync::Arc;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use foretide_domain::ScaleTarget;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api_server::{About as _, Connection, Discovery, Resource};
use foretide_api::ports::ClusterError;

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

    /// The autoscaler of a name, as it is stored: an `EffectiveHorizontalPodAutoscaler`, else a
    /// `HorizontalPodAutoscaler`, else a `ScaledObject`.
    ///
    /// # Errors
    /// As [`Self::autoscaler`]; that of the first kind that may not be read, if none is found.
    pub async fn any_autoscaler(&self, namespace: &str, name: &str) -> Result<Value, ClusterError> {
        let mut refused = None;
        for resource in [Resource::EHPA, Resource::HPA, Resource::SCALED_OBJECT] {
            match self.calls().get(resource.object(namespace, name)).await {
                Ok(found) => return Ok(found),
                Err(ClusterError::NotFound { .. }) => {}
                Err(error @ ClusterError::Refused { .. }) => {
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        let what = format!("{namespace}/{name}");
        Err(refused.unwrap_or(ClusterError::NotFound { what }))
    }

    /// The object that an autoscaler scales, as it is stored.
    ///
    /// # Errors
    /// As [`Self::autoscaler`]; the cluster cannot scale that kind.
    pub async fn scale_target(&self, target: &ScaleTarget) -> Result<Value, ClusterError> {
        let calls = Arc::new(self.calls());
        let path = Discovery::new(Arc::clone(&calls)).path(target).await?;
        calls.read(&path).await.about(target)
    }

    /// The autoscalers and the federated ones of a namespace, or of all; none of a kind that the cluster does not have.
    ///
    /// # Errors
    /// They may not be read, or the server does not respond.
    pub async fn autoscalers(
        &self,
        namespace: Option<&str>,
    ) -> Result<(Vec<EffectiveHorizontalPodAutoscaler>, Vec<FederatedHPA>), ClusterError> {
        let ehpas = self.all(Resource::EHPA, namespace).await?;
        Ok((ehpas, self.all(Resource::FEDERATED_HPA, namespace).await?))
    }

    async fn all<T: DeserializeOwned + Send>(
        &self,
        resource: Resource,
        namespace: Option<&str>,
    ) -> Result<Vec<T>, ClusterError> {
        let listed = async {
            let collection = resource.collection(namespace)?;
            self.calls().list(&collection, &[]).await
        };
        match listed.await {
            // The definition of this kind is not installed.
            Err(error) if error.is_status(404) => Ok(Vec::new()),
            listed => listed.about(resource.plural),
        }
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
