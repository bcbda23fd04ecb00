//! The memory limit of the process: which series go without a forecast, and that they say so.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

/// Memory for three forecasts: a tenth is kept free, and each is taken for 256 KiB, or 236 once it is measured.
const THREE: usize = 900 << 10;

/// A world with three autoscalers in `shop`, of which `api` is the newest, and `cms` in `blog`, which is newer.
fn world() -> ForecastWorld {
    let memory = Some(Memory::unused(THREE));
    let world = ForecastWorld::with("{}", ByName::default(), CostLimits::default(), memory);
    let spec = format!("mode: Direct, maxReplicas: 50, {CPU}, prediction: {{}}");
    world.world.fake.put("ads", 3, &spec);
    world.world.fake.put("api", 3, &spec);
    world.world.fake.put_in("blog", "cms", 3, &spec);
    for (name, second) in [("ads", 1), ("web", 2), ("api", 3), ("cms", 9)] {
        world.world.fake.edit(name, |ehpa| {
            let created = Timestamp::from_second(second).unwrap();
            ehpa.metadata.creation_timestamp = Some(Time(created));
        });
    }
    world
}

/// The reason of `PredictionReady` of each autoscaler.
fn reasons(world: &ForecastWorld) -> Vec<(String, String)> {
    let names: Vec<String> = world
        .world
        .fake
        .state()
        .autoscalers
        .keys()
        .cloned()
        .collect();
    let of = |name: String| {
        let conditions = world.world.fake.status(&name).conditions.unwrap();
        let mut conditions = conditions.into_iter();
        let ready = conditions.find(|condition| condition.type_ == "PredictionReady");
        (name, ready.unwrap().reason)
    };
    names.into_iter().map(of).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, reason): &(&str, &str)| ((*name).to_owned(), (*reason).to_owned());
    expected.iter().map(owned).collect()
}

#[tokio::test]
async fn the_newest_of_the_namespace_that_holds_most_go_without_a_forecast_until_there_is_room() {
    let mut world = world();
    for second in [0, 15, 75, 90] {
        world.step(second).await;
    }
    let expected = [
        ("ads", "ForecastReady"),
        ("api", "MemoryLimit"),
        ("cms", "ForecastReady"),
        ("web", "ForecastReady"),
    ];
    assert_eq!(reasons(&world), pairs(&expected));
    let text = world.telemetry.encode();
    assert!(text.contains("foretide_forecasts_left_out 1\n"), "{text}");
    world.world.fake.state().autoscalers.remove("ads");
    for second in [105, 120, 135] {
        world.step(second).await;
    }
    assert_eq!(
        reasons(&world),
        pairs(&["api", "cms", "web"].map(|name| (name, "ForecastReady")))
    );
    let text = world.telemetry.encode();
    assert!(text.contains("foretide_forecasts_left_out 0\n"), "{text}");
}
