//! Streams in paused time.

use super::*;

#[test]
fn one_reader_has_eight_streams_and_all_have_thirty_two() {
    let streams = Arc::new(Streams::default());
    let eight: Vec<Place> = (0..8)
        .map(|_| streams.enter(Some("ann".to_owned())).unwrap())
        .collect();
    let refused = streams.enter(Some("ann".to_owned())).err().unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let mut others: Vec<Place> = (0..24)
        .map(|number| streams.enter(Some(format!("bob{}", number % 4))).unwrap())
        .collect();
    assert!(streams.enter(Some("eve".to_owned())).is_err());
    others.pop();
    assert!(streams.enter(Some("ann".to_owned())).is_err());
    drop(streams.enter(Some("eve".to_owned())).unwrap());
    drop(eight);
    drop(streams.enter(Some("ann".to_owned())).unwrap());
    drop(others);
    assert!(streams.0.lock().unwrap().is_empty());
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
