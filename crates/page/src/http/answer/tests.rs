//! Answers whose readers do not take them.

use std::io::Read as _;

use axum::{
    body::{Body, to_bytes},
    http::StatusCode,
};
use flate2::read::GzDecoder;

use super::*;

fn text(size: usize) -> Text {
    Text::new("text/plain", vec![b'a'; size])
}

fn unsent() -> Unsent {
    Unsent::new(Clock::system())
}

fn body(answer: Result<Admitted, Refusal>) -> Body {
    answer.unwrap().into_response().into_body()
}

#[tokio::test]
async fn an_answer_frees_its_part_when_it_is_sent_or_its_reader_has_left() {
    let unsent = unsent();
    let half = || unsent.admit("ann".into(), text(UNSENT.per_holder / 2));
    let (first, second) = (body(half()), body(half()));
    let refused = half().err().unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    drop(first);
    until_free(&unsent, UNSENT.per_holder / 2).await;
    let sent = to_bytes(second, usize::MAX).await.unwrap();
    assert_eq!(sent, vec![b'a'; UNSENT.per_holder / 2]);
    until_free(&unsent, 0).await;
}

/// Lets the tasks that hand answers over end, until only this many bytes wait.
async fn until_free(unsent: &Unsent, waits: usize) {
    while unsent.0.count() > waits {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_takes_nothing_gives_way_to_who_lets_less_wait() {
    let unsent = unsent();
    let large = |reader: &str| unsent.admit(reader.into(), text(1 << 20));
    let of_two = |reader: &'static str| (0..8).map(move |_| body(large(reader)));
    let mut slow: Vec<_> = of_two("ann").chain(of_two("bob")).collect();
    let _other = body(large("eve"));
    let newest = slow.pop().unwrap();
    let ended = to_bytes(newest, usize::MAX).await.unwrap();
    assert!(ended.len() < 1 << 20, "it breaks off");
    let others = slow.into_iter().map(|body| to_bytes(body, usize::MAX));
    for whole in futures::future::join_all(others).await {
        assert_eq!(whole.unwrap().len(), 1 << 20);
    }
}

#[tokio::test]
async fn an_answer_beyond_the_part_of_a_reader_waits_alone() {
    let unsent = unsent();
    let admit = |size| unsent.admit("ann".into(), text(size));
    let response = admit(UNSENT.per_holder + 1).unwrap().into_response();
    let length = response.headers()["content-length"].to_str().unwrap();
    assert_eq!(length, (UNSENT.per_holder + 1).to_string());
    assert!(admit(1).is_err());
}

#[test]
fn gzip_is_for_those_who_take_it() {
    for (accepted, takes) in [
        (&[][..], false),
        (&["gzip"], true),
        (&["deflate, GZIP ;q=0.5"], true),
        (&["br", "gzip"], true),
        (&["gzip;q=0"], false),
        (&["gzip;q=odd"], false),
        (&["gzipped, *"], false),
    ] {
        let mut headers = HeaderMap::new();
        for value in accepted {
            let value = HeaderValue::from_static(value);
            headers.append(header::ACCEPT_ENCODING, value);
        }
        assert_eq!(takes_gzip(&headers), takes, "{accepted:?}");
    }
}

#[test]
fn what_is_compressed_is_the_same_text() {
    let packed = text(5000).compressed();
    assert!(packed.is_compressed && packed.bytes.len() < 500);
    let mut unpacked = Vec::new();
    GzDecoder::new(&*packed.bytes)
        .read_to_end(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, [b'a'; 5000]);
    assert!(!text(100).compressed().is_compressed);
}
