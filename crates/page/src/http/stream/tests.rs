//! Streams in paused time.

use futures::FutureExt as _;

use super::*;
use crate::http::tests::StandingClock;
use foretide_base::{clock::Clock, http::Quota};

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_another_reader_needs_its_place() {
    let mut limits = STREAMS;
    limits.total = 2;
    let streams = Quota::<Arc<str>>::new(limits, Clock::system());
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
