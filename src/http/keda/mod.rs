//! KEDA's external scaler over gRPC: what a trigger of a `ScaledObject` reads of an autoscaler of the same namespace.
//!
//! ```text
//! ScaledObject shop/web, trigger external {autoscaler: web, source: floor}
//!     KEDA ── GetMetricSpec, GetMetrics, IsActive ──► router ──► trigger ──► reading of status of shop/web
//!     KEDA ◄─ StreamIsActive, StreamMetricSpec ────── stream: at once, and at each change
//! ```
//!
//! Every answer comes from the status of the autoscaler, so that any replica gives it. A status that is too old is an
//! error, for which KEDA keeps the replicas that there are.

mod reading;
mod stream;
mod trigger;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::stream::BoxStream;
use tonic::{Request, Response, Status, service::Routes};

use self::{
    proto::{
        GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse,
        ScaledObjectRef,
        external_scaler_server::{ExternalScaler, ExternalScalerServer},
    },
    reading::{Reading, Refusal},
    trigger::{InvalidTrigger, Trigger},
};
use crate::{clock::Clock, ports::Autoscalers};

/// The messages of `proto/externalscaler.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    reason = "generated code"
)]
mod proto {
    tonic::include_proto!("externalscaler");
}

/// A request names one object and a few words of metadata.
const REQUEST_MAX: usize = 64 * 1024;

/// The service `externalscaler.ExternalScaler` over these autoscalers.
pub fn router(autoscalers: Arc<dyn Autoscalers>, clock: Clock) -> Router {
    let scaler = Scaler { autoscalers, clock };
    let service = ExternalScalerServer::new(scaler).max_decoding_message_size(REQUEST_MAX);
    Routes::new(service).into_axum_router()
}

/// The autoscalers as triggers read them.
#[derive(Clone)]
struct Scaler {
    autoscalers: Arc<dyn Autoscalers>,
    clock: Clock,
}

// === impl Scaler ===

impl Scaler {
    /// What `read` makes of the trigger's autoscaler as it is now.
    fn read<T>(
        &self,
        trigger: &Trigger,
        read: impl FnOnce(&Reading<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let object = self.autoscaler(trigger)?;
        read(&Reading::new(trigger, &object, self.clock.now()))
    }

    fn autoscaler(
        &self,
        trigger: &Trigger,
    ) -> Result<Arc<EffectiveHorizontalPodAutoscaler>, Refusal> {
        if !self.autoscalers.is_synced() {
            return Err(Refusal::NotSynced);
        }
        let named = self
            .autoscalers
            .get(&trigger.namespace, &trigger.autoscaler);
        named.ok_or_else(|| Refusal::NotFound {
            namespace: trigger.namespace.clone(),
            name: trigger.autoscaler.clone(),
        })
    }
}

#[tonic::async_trait]
impl ExternalScaler for Scaler {
    type StreamIsActiveStream = BoxStream<'static, Result<IsActiveResponse, Status>>;
    type StreamMetricSpecStream = BoxStream<'static, Result<GetMetricSpecResponse, Status>>;

    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        let trigger = parse(request.get_ref())?;
        let active = self.read(&trigger, is_active).map_err(refused)?;
        Ok(Response::new(active))
    }

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        let trigger = parse(request.get_ref())?;
        let answers = stream::of(self.clone(), trigger, is_active);
        Ok(Response::new(answers))
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        let trigger = parse(request.get_ref())?;
        let spec = self.read(&trigger, metric_spec).map_err(refused)?;
        Ok(Response::new(spec))
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let request = request.into_inner();
        let object = request.scaled_object_ref.unwrap_or_default();
        let trigger = parse(&object)?;
        let value = self.read(&trigger, |reading| reading.value(&request.metric_name));
        Ok(Response::new(GetMetricsResponse {
            metric_values: vec![value.map_err(refused)?],
        }))
    }

    async fn stream_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        let trigger = parse(request.get_ref())?;
        let answers = stream::of(self.clone(), trigger, metric_spec);
        Ok(Response::new(answers))
    }
}

fn parse(object: &ScaledObjectRef) -> Result<Trigger, Status> {
    Trigger::parse(object).map_err(|invalid: InvalidTrigger| refused(Refusal::from(invalid)))
}

fn is_active(reading: &Reading<'_>) -> Result<IsActiveResponse, Refusal> {
    let result = reading.is_active()?;
    Ok(IsActiveResponse { result })
}

fn metric_spec(reading: &Reading<'_>) -> Result<GetMetricSpecResponse, Refusal> {
    let metric_specs = vec![reading.spec()?];
    Ok(GetMetricSpecResponse { metric_specs })
}

fn refused(refusal: Refusal) -> Status {
    tracing::debug!(%refusal, "trigger has no answer");
    refusal.into()
}
