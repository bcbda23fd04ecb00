//! The budget of a namespace chooses the quantiles of its forecasts, and of no others.

use super::*;

/// A world with a prediction in namespace `shop`, after three refreshes.
async fn settled(prediction: &str, limits: &[&str]) -> ForecastWorld {
    let limits = CostLimits::parse(limits).unwrap();
    settle(ForecastWorld::with_limits(prediction, limits)).await
}

/// The world after three refreshes.
async fn settle(mut world: ForecastWorld) -> ForecastWorld {
    for second in [0, 15, 75, 90, 150, 165] {
        world.step(second).await;
    }
    world
}

/// The quantile of the forecast in force.
fn quantile(world: &ForecastWorld) -> f64 {
    let key = SeriesKey {
        uid: "uid-web".into(),
        metric: "resource.cpu".into(),
    };
    let forecast = world.forecasts.in_force(&key, world.world.clock.now());
    forecast.unwrap().direct().unwrap().quantile
}

#[tokio::test]
async fn a_budget_chooses_the_quantile_and_the_status_says_so() {
    let [none, shop, others] = [&[][..], &["shop=0"], &["*=400"]].map(|it| settled("{}", it));
    let (none, shop, others) = (none.await, shop.await, others.await);
    // The demand is smooth: the highest quantile costs no more than a plain HPA.
    assert!(quantile(&none) < 0.99, "{}", quantile(&none));
    assert_eq!(quantile(&shop).to_bits(), 0.998_f64.to_bits());
    assert_eq!(quantile(&others).to_bits(), 0.998_f64.to_bits());
    let said = shop.forecast().message.unwrap_or_default();
    assert_eq!(
        said,
        "the quantile is chosen by the budget of namespace shop: at most 0 % more replicas than a plain HPA"
    );
    assert_eq!(none.forecast().message, None);
}

#[tokio::test]
async fn a_larger_budget_buys_higher_quantiles() {
    let mut quantiles = Vec::new();
    for limit in ["shop=0", "shop=20", "*=100"] {
        let limits = CostLimits::parse([limit]).unwrap();
        let world = ForecastWorld::with_limits("{}", limits);
        let annotation = "metric-query.autoscaling.crane.io/resource.cpu".to_owned();
        world.world.fake.edit("web", |ehpa| {
            let annotations = ehpa.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation, BURSTS.to_owned());
        });
        quantiles.push(quantile(&settle(world).await));
    }
    assert!(
        quantiles.is_sorted_by(|one, next| one < next),
        "{quantiles:?}"
    );
}

#[tokio::test]
async fn an_edit_does_not_take_a_series_out_of_the_budget() {
    let mut world = settled("{}", &["shop=400"]).await;
    world.world.fake.edit("web", |ehpa| {
        let prediction = ehpa.spec.prediction.get_or_insert_default();
        prediction.lead_time_seconds = Some(120);
    });
    world.step(180).await;
    assert!(world.telemetry.encode().contains("foretide_budget_price{"));
}

#[tokio::test]
async fn the_price_and_the_cost_are_metrics_of_the_namespace() {
    let text = settled("{}", &["shop=400"]).await.telemetry.encode();
    assert!(text.contains(r#"foretide_budget_price{namespace="shop"} 0"#));
    let cost = text
        .lines()
        .find_map(|line| line.strip_prefix(r#"foretide_budget_cost_percent{namespace="shop"} "#));
    assert!(cost.unwrap().parse::<f64>().unwrap() <= 400.0);
    let text = settled("{}", &["blog=10"]).await.telemetry.encode();
    assert!(!text.contains("foretide_budget_price{"));
}

#[tokio::test]
async fn a_quantile_or_an_algorithm_of_the_spec_takes_no_part() {
    for prediction in [
        "{quantile: 0.9}",
        "{maxUnderProvisionedPercent: 1}",
        "{predictionAlgorithm: {algorithmType: seasonalNaive}}",
    ] {
        let [with, without] = [&["shop=0"][..], &[]].map(|it| settled(prediction, it));
        let (with, without) = (with.await, without.await);
        assert_eq!(with.forecast(), without.forecast(), "{prediction}");
        assert!(!with.telemetry.encode().contains("foretide_budget_price{"));
    }
}
