//! Answers that nobody takes.

use std::io::Read as _;

use axum::body::{Body, to_bytes};
use flate2::read::GzDecoder;

use super::*;

fn text(size: usize) -> Text {
    Text::new("text/plain", vec![b'a'; size])
}

#[tokio::test]
async fn answers_that_wait_have_a_budget_that_each_frees_when_it_is_sent() {
    let unsent = Unsent::default();
    let half = || unsent.admit(text(UNSENT_MAX as usize / 2));
    let (first, second) = (half().unwrap().into_response(), half().unwrap());
    let refused = unsent.admit(text(1)).err().unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    drop(second);
    // A part of an answer keeps all of it in memory.
    let body: Body = first.into_body();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let tail = bytes.slice(bytes.len() - 1..);
    drop(bytes);
    let _another = half().unwrap();
    assert!(half().is_err());
    drop(tail);
    drop(half().unwrap());
}

#[test]
fn an_answer_beyond_the_budget_waits_alone() {
    let unsent = Unsent::default();
    let all = unsent.admit(text(UNSENT_MAX as usize + 1)).unwrap();
    assert!(unsent.admit(text(1)).is_err());
    drop(all);
    assert!(unsent.admit(text(1)).is_ok());
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
