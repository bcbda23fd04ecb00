//! Streams in paused time.

use axum::http::StatusCode;
use futures::FutureExt as _;

use super::*;
use crate::{
    clock::Clock,
    http::{page::tests::StandingClock, quota::Quota},
};

#[test]
fn one_reader_has_eight_streams_and_of_all_who_has_most_gives_way() {
    let streams = Quota::<Arc<str>>::new(STREAMS, Clock::system());
    let open = |reader: &str| streams.acquire(reader.into());
    let mut of_four: Vec<_> = (0..32)
        .map(|number| open(["ann", "bob", "eve", "joe"][number % 4]).unwrap())
        .collect();
    let refused = Refusal::from(open("ann").unwrap_err());
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let _other = open("zoe").unwrap();
    let is_evicted = |permit: &mut Permit<_>| permit.evicted().now_or_never().is_some();
    assert_eq!(
        of_four
            .iter_mut()
            .filter_map(|it| is_evicted(it).then_some(()))
            .count(),
        1
    );
    assert_eq!(streams.count(), 32);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_another_reader_needs_its_place() {
    let streams = Quota::<Arc<str>>::new(
        Limits {
            total: 2,
            ..STREAMS
        },
        Clock::system(),
    );
    let permits = ["ann", "ann"].map(|reader| streams.acquire(reader.into()).unwrap());
    let page = Arc::new(Page::new(Arc::default(), Arc::new(StandingClock)));
    let [first, second] = permits.map(|permit| {
        let watched = Watched {
            changes: page.log().changes(),
            page: Arc::clone(&page),
            visible: Visible::All,
            of: None,
            sent: None,
            looks: looks(),
        };
        Box::pin(watched.events(permit))
    });
    let [mut first, mut second] = [first, second];
    assert!(first.next().await.is_some() && second.next().await.is_some());
    let _other = streams.acquire("bob".into()).unwrap();
    assert!(second.next().await.is_none());
    assert!(first.next().now_or_never().is_none(), "it goes on");
}

#[test]
fn an_autoscaler_is_named_in_full_or_not_at_all() {
    let query = |resource: Option<&str>, name: Option<&str>| StreamQuery {
        resource: resource.map(str::to_owned),
        namespace: resource.map(str::to_owned),
        name: name.map(str::to_owned),
    };
    assert_eq!(watched(query(None, None)).unwrap(), None);
    assert_eq!(
        watched(query(Some("a"), Some("b"))).unwrap().unwrap().name,
        "b"
    );
    assert!(watched(query(Some("a"), None)).is_err());
    assert!(watched(query(None, Some("b"))).is_err());
}
