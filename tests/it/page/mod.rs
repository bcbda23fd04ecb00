//! The page over its router: its API against its description, and the refusals.

mod attacks;
mod live;
mod openapi;
mod remote;
mod schema;
mod size;

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode},
};
use foretide::cli::{CommandContext, Screen};
use foretide_domain::cron::Zone;
use foretide_page::Page;
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use tokio::sync::OnceCell;
use tower::ServiceExt as _;

/// Number of autoscalers in the demo, without the fleet.
const AUTOSCALERS: usize = 11;
/// Number of their minutes that are played.
const MINUTES: usize = 10;
const BODY_MAX: usize = 16 << 20;

/// Response of the router.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

// === impl Answer ===

impl Answer {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

fn context() -> CommandContext {
    CommandContext {
        screen: Screen::default(),
        local: Zone::utc(),
        now: Timestamp::UNIX_EPOCH,
        machine: foretide_base::machine::Machine::system(),
    }
}

/// The cluster of the demo, which goes on at each turn.
struct Demo(BoxFuture<'static, ()>);

impl Demo {
    fn start() -> (Arc<Page>, Self) {
        let (page, simulation) = foretide::cli::demo::web::start(&context(), 0.0).unwrap();
        (page, Self(simulation.boxed()))
    }

    /// Lets one autoscaler have its turn; the fleet is the last.
    async fn turn(&mut self) {
        assert!(futures::poll!(&mut self.0).is_pending());
    }

    async fn minutes(&mut self, count: usize) {
        for _ in 0..AUTOSCALERS * count {
            self.turn().await;
        }
    }
}

/// The page of the demo's cluster, after some of its minutes.
async fn demo_page() -> Arc<Page> {
    static PAGE: OnceCell<Arc<Page>> = OnceCell::const_new();
    let page = PAGE.get_or_init(async || {
        let (page, mut demo) = Demo::start();
        demo.minutes(MINUTES).await;
        page
    });
    Arc::clone(page.await)
}

/// A request of a browser that shows the page.
fn request(path: &str) -> axum::http::request::Builder {
    Request::get(path).header("host", "127.0.0.1:8090")
}

async fn answer(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let is_stream = parts
        .headers
        .get("content-type")
        .is_some_and(|media| media == "text/event-stream");
    let bytes = if is_stream {
        axum::body::Bytes::new()
    } else {
        to_bytes(body, BODY_MAX).await.unwrap()
    };
    Answer {
        status: parts.status,
        headers: parts.headers,
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

async fn get(router: &Router, path: &str) -> Answer {
    answer(router, request(path).body(Body::empty()).unwrap()).await
}
