//! The memory limit of the process: the series that go without a forecast, and their condition.

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

/// The autoscalers whose `PredictionReady` has this reason.
fn those_with(world: &ForecastWorld, reason: &str) -> String {
    let fake = &world.world.fake;
    let mut names: Vec<String> = fake.state().autoscalers.keys().cloned().collect();
    names.retain(|name| {
        let mut conditions = fake.status(name).conditions.unwrap().into_iter();
        conditions.any(|one| one.type_ == "PredictionReady" && one.reason == reason)
    });
    names.join(" ")
}

#[tokio::test]
async fn the_newest_of_the_namespace_that_holds_most_go_without_a_forecast_until_there_is_room() {
    let mut world = world();
    for (seconds, ready, left_out) in [
        ([0, 15, 75, 90], "ads cms web", "api"),
        ([105, 110, 120, 135], "api cms web", ""),
    ] {
        for second in seconds {
            world.step(second).await;
        }
        assert_eq!(those_with(&world, "ForecastReady"), ready);
        assert_eq!(those_with(&world, "MemoryLimit"), left_out);
        let counted = format!("foretide_forecasts_left_out {}\n", left_out.len().min(1));
        let text = world.telemetry.encode();
        assert!(text.contains(&counted), "{text}");
        world.world.fake.state().autoscalers.remove("ads");
    }
}
