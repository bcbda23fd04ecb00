//! One look at one object, for commands that do not run a controller.

use foretide_crds::EffectiveHorizontalPodAutoscaler;

use super::{
    client::{Calls, Connection, Limits},
    error::CallError,
    url::Resource,
};
use crate::ports::ClusterError;

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
        let calls = Calls::new(self.unary.clone(), Limits::default());
        calls.read(&url).await.map_err(told)
    }
}
