//! The stream of changes, in paused time, while the demo's cluster goes on.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use foretide_base::clock::Clock;
use foretide_page::http::PageSite;
use futures::StreamExt as _;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::{AUTOSCALERS, Demo, request};

const FLEET: &str = "/api/v1/stream";
const WEB: &str =
    "/api/v1/stream?resource=effectivehorizontalpodautoscalers&namespace=shop&name=web";

const CHART: &str = "/api/v1/autoscalers/effectivehorizontalpodautoscalers/shop/web/chart.svg";

/// The next text of a stream within this many seconds.
async fn next(stream: &mut BodyDataStream, seconds: u64) -> Option<String> {
    let frame = timeout(Duration::from_secs(seconds), stream.next())
        .await
        .ok()?;
    frame.map(|bytes| String::from_utf8(bytes.unwrap().to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_stream_tells_of_changes_every_two_seconds_and_of_nothing_else() {
    let (page, mut demo) = Demo::start();
    demo.minutes(2).await;
    let router = PageSite::open(page, &Clock::system()).router();
    let open = async |path: &str| {
        let request = request(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().into_data_stream()
    };
    for path in [FLEET, WEB] {
        let mut stream = open(path).await;
        let first = next(&mut stream, 0).await.unwrap();
        assert!(
            first.starts_with("event: changed\ndata: {\"version\":"),
            "{first}"
        );
        assert_eq!(next(&mut stream, 19).await, None, "nothing changes");
        assert_eq!(next(&mut stream, 2).await.as_deref(), Some(":\n\n"));
        demo.minutes(1).await;
        let second = next(&mut stream, 1).await.unwrap();
        assert!(
            second.starts_with("event: changed\n") && second != first,
            "{second}"
        );
        demo.minutes(1).await;
        demo.minutes(1).await;
        assert_eq!(next(&mut stream, 1).await, None, "{path}");
        assert!(
            next(&mut stream, 2)
                .await
                .unwrap()
                .starts_with("event: changed\n")
        );
        assert_eq!(next(&mut stream, 19).await, None, "one event for both");
    }
    let mut stream = open(FLEET).await;
    let mut heartbeats = 0;
    while next(&mut stream, 30).await.is_some() {
        heartbeats += 1;
    }
    assert_eq!(heartbeats, 30, "it ends after ten minutes");
}

#[tokio::test]
async fn one_reader_has_eight_streams() {
    let router = PageSite::open(super::demo_page().await, &Clock::system()).router();
    let open = async || {
        let request = request(FLEET).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(open().await);
    }
    let refused = open().await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "5");
    streams.pop();
    assert_eq!(open().await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn readers_that_do_not_read_delay_no_sync() {
    let (page, mut demo) = Demo::start();
    demo.minutes(2).await;
    let version = page.log().changes();
    let router = PageSite::open(page, &Clock::system()).router();
    let open = async |path: &str| {
        let request = request(path).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap().into_body()
    };
    let mut unread = Vec::new();
    for _ in 0..5 {
        unread.extend([open(FLEET).await, open(CHART).await]);
    }
    let before = *version.borrow();
    demo.minutes(3).await;
    assert!(*version.borrow() >= before + 3 * AUTOSCALERS as u64);
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn a_stream_looks_for_changes_at_most_every_two_seconds() {
    let (page, mut demo) = Demo::start();
    demo.minutes(1).await;
    let router = PageSite::open(page, &Clock::system()).router();
    let request = request(WEB).body(Body::empty()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let mut stream = response.into_body().into_data_stream();
    let mut told = 0;
    for _ in 0..6 {
        // A minute of all autoscalers, each in its turn; one of them is watched.
        for _ in 0..AUTOSCALERS {
            demo.turn().await;
            told += usize::from(next(&mut stream, 0).await.is_some());
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!((2..=4).contains(&told), "{told} events in six seconds");
}
