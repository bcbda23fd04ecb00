//! KEDA's external scaler over gRPC: what a trigger of a `ScaledObject` reads from an autoscaler of the same namespace.
//!
//! ```text
//! ScaledObject shop/web, trigger external {autoscaler: web, source: floor}
//!     KEDA ── GetMetricSpec, GetMetrics, IsActive ──► router ──► trigger ──► reading of status of shop/web
//!     KEDA ◄─ StreamIsActive, StreamMetricSpec ────── stream: at once, and at each change
//! ```
//!
//! Every answer comes from the status of the autoscaler, so that any replica can give it. A status that is too old is an
//! error, and KEDA then keeps the current replicas.
//!
//! Unless client certificates are required, every client that reaches the port is answered. Open streams and requests are
//! limited, in total and for each address, so that idle streams of other clients cannot exclude KEDA.

mod reading;
mod stream;
mod trigger;

#[cfg(test)]
pub mod tests;

use std::{future::Future, net::IpAddr, pin::pin, sync::Arc, task::Poll, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::State,
    middleware::{Next, from_fn_with_state},
    response::Response as HttpResponse,
};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::{poll, stream::BoxStream};
use tonic::{Request, Response, Status, service::Routes};

use self::{
    proto::{
        GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse,
        ScaledObjectRef,
        external_scaler_server::{ExternalScaler, ExternalScalerServer},
    },
    reading::{Reading, Refusal},
    stream::Topics,
    trigger::{InvalidTrigger, Trigger},
};
use foretide_api::ports::Autoscalers;
use foretide_base::clock::Clock;
use foretide_base::http::{Exhausted, Limits, PeerAddress, PortLimits, Quota};

/// The messages of `proto/externalscaler.proto`.
#[allow(missing_docs, clippy::pedantic, reason = "generated code")]
mod proto {
    tonic::include_proto!("externalscaler");
}

/// A request names one object and a few words of metadata.
const REQUEST_MAX: usize = 64 * 1024;

/// The time for a request to arrive. KEDA sends each at once.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits of the connections and requests that are open at this port. KEDA's operator opens one connection for each set of
/// certificates that its triggers name, and sends all their requests on it.
///
/// The most memory that they use, of the 256 MiB that `deploy/keda` allows:
///
/// | | | MiB |
/// |---|---|---|
/// | `STREAMS` that are idle | 8,192 of 8 KiB: the request of HTTP/2, its task, two permits | 64 |
/// | `ARRIVING` requests | 256 of 128 KiB: a header and a message of 64 KiB each | 32 |
/// | connections | 128 of 320 KiB: TLS, and 256 KiB that are received and not read | 40 |
/// | refusals that one peer does not read, until its connection is closed (50 s) | 32 connections × 4,352 of 0.5 KiB | 68 |
///
/// An idle stream and its client, measured in one process without optimizations, use 9.3 KiB. Several peers that read
/// nothing exceed the last line: exclude other clients by a network policy or by certificates.
pub const LIMITS: PortLimits = PortLimits {
    connections: 128,
    connections_of_peer: 32,
    // Requests of one connection: all streams that a peer may have, and room for the other requests of KEDA, which
    // would otherwise wait.
    requests: 4_352,
};

/// Limits of streams: KEDA opens two for each trigger of type external-push.
const STREAMS: Limits = Limits {
    what: "streams",
    total: 8_192,
    per_holder: 4_096,
    holder: "address",
    advice: "use type external, which KEDA polls, instead of external-push in some triggers, and keep clients other \
             than KEDA out (docs/keda.md)",
};

/// Limits of requests whose message has not arrived yet.
const ARRIVING: Limits = Limits {
    what: "unfinished requests",
    total: 256,
    per_holder: 128,
    holder: "address",
    advice: "send each request in one piece, or try again",
};

/// The service `externalscaler.ExternalScaler` over these autoscalers, and the task that updates the answers of its streams.
pub fn service(
    autoscalers: Arc<dyn Autoscalers>,
    clock: Clock,
) -> (Router, impl Future<Output = ()> + Send + 'static) {
    let arriving = Quota::new(ARRIVING, clock.clone());
    let scaler = Scaler::new(Statuses { autoscalers, clock });
    let (activity, specs) = (Arc::clone(&scaler.activity), Arc::clone(&scaler.specs));
    let updates = async move {
        futures::join!(activity.run(), specs.run());
    };
    (router(scaler, arriving), updates)
}

fn router(scaler: Scaler, arriving: Arc<Quota<IpAddr>>) -> Router {
    let service = ExternalScalerServer::new(scaler).max_decoding_message_size(REQUEST_MAX);
    Routes::new(service)
        .into_axum_router()
        .layer(from_fn_with_state(arriving, arrive_in_time))
}

/// Answers a request if its message arrives in time; refuses it if too many other messages have not arrived yet.
async fn arrive_in_time(
    State(arriving): State<Arc<Quota<IpAddr>>>,
    request: axum::extract::Request,
    next: Next,
) -> HttpResponse {
    let peer = PeerAddress::of(request.extensions());
    let mut answered = pin!(next.run(request));
    // A request that has arrived needs no permit.
    if let Poll::Ready(response) = poll!(answered.as_mut()) {
        return response;
    }
    let mut permit = match arriving.acquire(peer) {
        Ok(permit) => permit,
        Err(refused) => return exhausted(&refused).into_http::<Body>(),
    };
    tokio::select! {
        biased;
        response = answered => response,
        evicted = permit.evicted() => exhausted(&evicted).into_http(),
        () = tokio::time::sleep(ARRIVAL_TIMEOUT) => {
            let message = format!("expected the whole request within {ARRIVAL_TIMEOUT:?}");
            Status::deadline_exceeded(message).into_http()
        }
    }
}

/// Status of a request that gets no permit, or loses it.
fn exhausted(reason: &Exhausted) -> Status {
    Status::resource_exhausted(reason.to_string())
}

/// The autoscalers as triggers read them.
#[derive(Clone)]
struct Statuses {
    autoscalers: Arc<dyn Autoscalers>,
    clock: Clock,
}

/// The gRPC service.
struct Scaler {
    statuses: Statuses,
    activity: Arc<Topics<IsActiveResponse>>,
    specs: Arc<Topics<GetMetricSpecResponse>>,
}

// === impl Statuses ===

impl Statuses {
    /// Applies `read` to the current state of the trigger's autoscaler.
    fn read<T>(
        &self,
        trigger: &Trigger,
        read: impl FnOnce(&Reading<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let object = self.autoscaler(trigger)?;
        self.read_of(&object, trigger, read)
    }

    /// Applies `read`, as [`Statuses::read`] does, to an autoscaler that was looked up before.
    fn read_of<T>(
        &self,
        object: &EffectiveHorizontalPodAutoscaler,
        trigger: &Trigger,
        read: impl FnOnce(&Reading<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        read(&Reading::new(trigger, object, self.clock.now()))
    }

    fn autoscaler(
        &self,
        trigger: &Trigger,
    ) -> Result<Arc<EffectiveHorizontalPodAutoscaler>, Refusal> {
        if !self.autoscalers.is_synced() {
            return Err(Refusal::NotSynced);
        }
        self.autoscalers
            .get(&trigger.namespace, &trigger.autoscaler)
            .ok_or_else(|| Refusal::NotFound {
                namespace: trigger.namespace.clone(),
                name: trigger.autoscaler.clone(),
            })
    }
}

// === impl Scaler ===

impl Scaler {
    fn new(statuses: Statuses) -> Self {
        let streams = Quota::new(STREAMS, statuses.clock.clone());
        let activity = Topics::new(statuses.clone(), is_active, Arc::clone(&streams));
        let specs = Topics::new(statuses.clone(), metric_spec, streams);
        Self {
            statuses,
            activity: Arc::new(activity),
            specs: Arc::new(specs),
        }
    }

    #[cfg(test)]
    fn streams(&self) -> &Quota<IpAddr> {
        self.activity.quota()
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
        let active = self.statuses.read(&trigger, is_active).map_err(refused)?;
        Ok(Response::new(active))
    }

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        let trigger = parse(request.get_ref())?;
        let answers = self
            .activity
            .stream(trigger, PeerAddress::of(request.extensions()))?;
        Ok(Response::new(answers))
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        let trigger = parse(request.get_ref())?;
        let spec = self.statuses.read(&trigger, metric_spec).map_err(refused)?;
        Ok(Response::new(spec))
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let request = request.into_inner();
        let object = request.scaled_object_ref.unwrap_or_default();
        let trigger = parse(&object)?;
        let value = self
            .statuses
            .read(&trigger, |reading| reading.value(&request.metric_name));
        Ok(Response::new(GetMetricsResponse {
            metric_values: vec![value.map_err(refused)?],
        }))
    }

    async fn stream_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        let trigger = parse(request.get_ref())?;
        let answers = self
            .specs
            .stream(trigger, PeerAddress::of(request.extensions()))?;
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
