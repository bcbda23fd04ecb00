//! The query of single minutes beside that of the values, which are means over a longer time.

use super::*;

const BY_MINUTE: &str = "web by minute";

fn world() -> ForecastWorld {
    ForecastWorld::with_queries("{}", ByName { of_means: true })
}

#[tokio::test]
async fn minutes_are_queried_at_the_start_and_with_each_comparison_and_syncs_measure_the_others() {
    let mut world = world();
    let mut asked = Vec::new();
    for quarter in 0..4 * 75 {
        world.step(quarter * 15).await;
        if quarter % 4 == 3 {
            asked.push(world.prometheus.asked_for(BY_MINUTE));
        }
    }
    // With each query of the values, until half an hour of live minutes can be compared.
    let (before, after) = asked.split_at(32);
    assert!(before.iter().sum::<usize>() >= 28, "{asked:?}");
    assert_eq!(after.iter().sum::<usize>(), 0, "{asked:?}");
    for minute in 75..100 {
        world.step(minute * 60).await;
    }
    assert_eq!(world.prometheus.asked_for(BY_MINUTE), 1);
}

#[tokio::test(start_paused = true)]
async fn a_query_of_minutes_that_never_returns_costs_two_seconds_once_an_hour() {
    let mut world = world();
    world.prometheus.silence(BY_MINUTE);
    #[expect(clippy::disallowed_methods, reason = "virtual time alone is measured")]
    let began = tokio::time::Instant::now();
    let waited = || began.elapsed().as_millis();
    world.step(0).await;
    world.step(15).await;
    assert!(
        world.proposal().replicas.is_some(),
        "{:?}",
        world.proposal()
    );
    assert!((2000..2100).contains(&waited()), "{}", waited());
    for minute in 1..60 {
        world.step(minute * 60).await;
        world.step(minute * 60 + 15).await;
    }
    assert!((2000..2100).contains(&waited()), "{}", waited());
    assert_eq!(world.prometheus.asked_for(BY_MINUTE), 1);
    assert!(world.proposal().replicas.is_some());
}

#[tokio::test]
async fn a_query_of_minutes_that_fails_leaves_the_forecast_of_the_values() {
    let mut world = world();
    world.prometheus.fail(BY_MINUTE);
    world.step(0).await;
    world.step(15).await;
    let proposal = world.proposal();
    assert!(proposal.replicas.is_some(), "{proposal:?}");
    assert_eq!(world.prometheus.asked_for(BY_MINUTE), 1);
}
