//! The page of an autoscaler shows the reports of its syncs.

use foretide_controller::Shared;
use foretide_page::{
    Host, Page, Visible,
    api::{ObjectKey, SpanQuery, Word},
};
use jiff::{SignedDuration, Timestamp};

use super::{Arc, CPU, World, predict};
use crate::fake_cluster::FakeCluster;

/// A host with this time.
#[derive(Debug)]
struct At(Timestamp);

impl Host for At {
    fn now(&self) -> Timestamp {
        self.0
    }
}

#[tokio::test]
async fn the_page_shows_what_was_decided_and_expected_and_forgets_what_is_deleted() {
    let fake = FakeCluster::default();
    let prediction = "prediction: {leadTimeSeconds: 60}";
    let spec = format!("mode: Direct, minReplicas: 1, maxReplicas: 10, {prediction}, {CPU}");
    fake.put("web", 2, &spec);
    fake.state().millicores = 350;
    let mut world = World::new(fake.clone());
    let shared = Shared {
        page: Arc::default(),
        forecasts: Arc::default(),
        telemetry: Arc::default(),
    };
    let (log, forecasts) = (Arc::clone(&shared.page), Arc::clone(&shared.forecasts));
    world.controller = World::controller_of(&fake, &world.clock, shared);
    predict(&forecasts, world.start, Some(1.2));
    for pass in 0..=20 {
        world.sync(pass * 15).await;
    }
    let now = world.start + SignedDuration::from_mins(5);
    let page = Page::new(log, Arc::new(At(now)));
    let key = ObjectKey {
        resource: "effectivehorizontalpodautoscalers".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    let view = page.autoscaler(&key, &Visible::All).unwrap();
    let decision = fake.status("web").decision.unwrap();
    assert_eq!(view.row.desired, decision.desired);
    // The forecast asks for 12, and maxReplicas is 10.
    assert_eq!(view.row.word, Word::Capped, "{view:?}");
    let shown = view.decision.unwrap();
    assert_eq!(
        (shown.maximum, shown.winner),
        (decision.maximum, decision.winner)
    );
    let history = page
        .history(&key, &Visible::All, &SpanQuery::default())
        .unwrap();
    let minutes: Vec<_> = (0..=5)
        .map(|minute| world.start.as_second() + minute * 60)
        .collect();
    assert_eq!(history.times, minutes);
    let desired = decision.desired.and_then(|count| u32::try_from(count).ok());
    assert_eq!(history.desired.last().copied().flatten(), desired);
    // The first two minutes were not expected: the lead time is two minutes.
    let twelve = Some(12.0);
    let expected = [None, None, twelve, twelve, twelve, twelve];
    assert_eq!(history.expected, expected);
    assert!(history.needed.iter().all(Option::is_some), "{history:?}");
    assert_eq!(
        history.sentences.last().map(|said| &said.text),
        decision.message.as_ref()
    );
    assert!(history.ahead.times.len() > 100, "{:?}", history.ahead);

    fake.state().autoscalers.clear();
    world.sync(315).await;
    assert!(page.autoscaler(&key, &Visible::All).is_err());
}
