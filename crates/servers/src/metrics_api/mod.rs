//! The metric adapter: `external.metrics.k8s.io` and `custom.metrics.k8s.io` as an aggregated API server serves them.
//!
//! The answers come from the statuses of autoscalers, so that every replica answers alike; requests for other metrics
//! are passed on to one other adapter. Users are authorized before ([`protected`]).
//!
//! | path after `/apis` | answer |
//! |---|---|
//! | nothing, `/GROUP`, `/GROUP/VERSION` | discovery (`discovery`) |
//! | `/external.metrics.k8s.io/v1beta1/namespaces/N/METRIC` | a forecast, or the count of the cron windows (`external`) |
//! | `/custom.metrics.k8s.io/VERSION/namespaces/N/pods/POD/METRIC` | the cpu forecast by pod (`custom`) |
//! | others of these groups | from the other adapter (`pass_through`) |
//!
//! A metric that is not known now is an error and never zero: a `HorizontalPodAutoscaler` then does not scale down.

mod custom;
mod discovery;
mod external;
mod handlers;
mod pass_through;
mod shares;
mod target;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use jiff::Timestamp;
use tokio::{sync::Semaphore, time::timeout};

pub use self::discovery::MetricApi;
use super::{
    failure::Failure,
    identity::{AccessControl, protect},
};
use foretide_api::ports::{AccessReviewer, Autoscalers, PodLister, UpstreamAdapter};
use foretide_api::published::Unpublished;
use foretide_base::clock::Clock;

/// Number of authorized requests that are answered at once. The HPA controller has 5 workers by default, the aggregator
/// 5 checks.
const REQUESTS_MAX: usize = 256;
/// The time for an answer, authorization included.
const DEADLINE: Duration = Duration::from_secs(10);

/// Sources of the metric adapter's answers.
#[derive(Debug)]
pub struct MetricSources<A, P, U> {
    /// The APIs that are served.
    pub apis: Vec<MetricApi>,
    /// The autoscalers.
    pub autoscalers: Arc<A>,
    /// The pods of the autoscalers' workloads.
    pub pods: P,
    /// The adapter for other metrics, if there is one.
    pub upstream: Option<U>,
    /// The clock by which statuses are too old.
    pub clock: Clock,
}

/// The APIs as a router.
pub fn router<A, P, U>(sources: MetricSources<A, P, U>) -> Router
where
    A: Autoscalers,
    P: PodLister,
    U: UpstreamAdapter,
{
    let mut router = Router::new().route("/apis", get(handlers::groups));
    for api in &sources.apis {
        let group = format!("/apis/{}", api.group());
        router = router.route(&group, get(handlers::group));
        for version in api.versions() {
            let root = format!("{group}/{version}");
            router = router.route(&root, get(handlers::resources));
            router = match api {
                MetricApi::External => router.route(
                    &format!("{root}/namespaces/{{namespace}}/{{metric}}"),
                    get(handlers::external),
                ),
                MetricApi::Custom => router
                    .route(
                        &format!(
                            "{root}/namespaces/{{namespace}}/{{resource}}/{{name}}/{{metric}}"
                        ),
                        get(handlers::custom),
                    )
                    .route(
                        &format!("{root}/namespaces/{{namespace}}/metrics/{{metric}}"),
                        get(handlers::of_namespace),
                    )
                    .route(
                        &format!("{root}/{{resource}}/{{name}}/{{metric}}"),
                        get(handlers::custom),
                    ),
            };
        }
    }
    router
        .fallback(handlers::unknown_path)
        .method_not_allowed_fallback(handlers::not_a_get)
        .with_state(Arc::new(sources))
}

/// A router that answers requests of users who may send them: a limited number at once, and each within a deadline.
/// Requests beyond these get 429 or 504. A request has a slot only after it is authorized, so that unauthorized
/// requests take none.
pub fn protected<R: AccessReviewer>(router: Router, control: Arc<AccessControl<R>>) -> Router {
    let router = protect(within_limits(router), control);
    router.layer(from_fn(end_in_time))
}

fn within_limits(router: Router) -> Router {
    let slots = Arc::new(Semaphore::new(REQUESTS_MAX));
    router.layer(from_fn_with_state(slots, limit))
}

async fn limit(State(slots): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let Ok(_slot) = slots.try_acquire() else {
        return Failure::too_many().into_response();
    };
    next.run(request).await
}

async fn end_in_time(request: Request, next: Next) -> Response {
    timeout(DEADLINE, next.run(request))
        .await
        .unwrap_or_else(|_elapsed| {
            let code = axum::http::StatusCode::GATEWAY_TIMEOUT;
            Failure::new(code, format!("no answer within {DEADLINE:?}")).into_response()
        })
}

/// A time as `metav1.Time` is written: in whole seconds.
fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).map_or_else(|_| at.to_string(), |at| at.to_string())
}

impl From<Unpublished> for Failure {
    fn from(unpublished: Unpublished) -> Self {
        match unpublished {
            Unpublished::Stale { .. } => Self::unavailable(unpublished.to_string()),
            Unpublished::Undecided { .. }
            | Unpublished::NoForecast { .. }
            | Unpublished::NoFloor { .. }
            | Unpublished::NoCrons { .. } => Self::not_found(unpublished.to_string()),
        }
    }
}
