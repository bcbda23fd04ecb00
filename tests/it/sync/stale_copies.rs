//! Nothing is written from copies that may be out of date.

use super::{CPU, World};
use crate::fake_cluster::FakeCluster;

#[tokio::test]
async fn nothing_is_scaled_from_copies_that_are_out_of_date_and_the_object_says_so() {
    for kind in ["Pod", "Deployment", "EffectiveHorizontalPodAutoscaler"] {
        let fake = FakeCluster::default();
        fake.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
        fake.state().millicores = 100;
        let mut world = World::new(fake);
        world.sync(0).await;
        world.fake.state().millicores = 400;
        world.fake.state().stale_copies = Some(kind);
        assert_eq!(
            world.sync(15).await,
            ["event web CacheStale", "status web"],
            "{kind}"
        );
        assert_eq!(
            world.sync(30).await,
            Vec::<String>::new(),
            "said once: {kind}"
        );
        let conditions = world.fake.status("web").conditions.unwrap();
        for of in ["Ready", "AbleToScale"] {
            let condition = conditions.iter().find(|known| known.type_ == of).unwrap();
            assert_eq!(
                (&*condition.status, &*condition.reason),
                ("False", "CacheStale")
            );
            let expected = format!(
                "the watch of {kind} has delivered nothing since 1970-01-01T00:00:00Z; nothing is written until it does: \
                 check the connection to the API server"
            );
            assert_eq!(condition.message, expected);
        }
        world.fake.state().stale_copies = None;
        let writes = world.sync(45).await;
        assert!(
            writes.contains(&"scale web 4".to_owned()),
            "{kind}: {writes:?}"
        );
    }
}

#[tokio::test]
async fn nothing_is_cleaned_up_by_autoscalers_that_are_out_of_date() {
    let fake = FakeCluster::default();
    fake.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
    let mut world = World::new(fake);
    world.sync(0).await;
    world.fake.forge_adopted("theirs");
    world.fake.state().stale_copies = Some("EffectiveHorizontalPodAutoscaler");
    let of_theirs = |writes: &[String]| writes.iter().any(|write| write.contains("theirs"));
    assert!(!of_theirs(&world.sync(15).await));
    world.fake.state().stale_copies = None;
    assert!(of_theirs(&world.sync(30).await));
}
