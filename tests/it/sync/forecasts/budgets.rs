//! The budget of a namespace chooses the quantiles of its forecasts, and of no others.

use super::*;

/// A world with a prediction in namespace `shop`, after three refreshes.
async fn settled(prediction: &str, limits: &[&str]) -> ForecastWorld {
    let limits = CostLimits::parse(limits).unwrap();
    let mut world = ForecastWorld::with_limits(prediction, limits);
    for second in [0, 15, 75, 90, 150, 165] {
        world.step(second).await;
    }
    world
}

fn quantile(world: &ForecastWorld) -> f64 {
    number(world.forecast().quantile.as_ref())
}

#[tokio::test]
async fn a_larger_budget_has_a_higher_quantile_and_the_status_says_who_chose_it() {
    let [none, least, most] = [&[][..], &["shop=0"], &["*=400"]].map(|it| settled("{}", it));
    let (none, least, most) = (none.await, least.await, most.await);
    assert!(quantile(&least) < quantile(&none), "{}", quantile(&least));
    assert!(quantile(&none) < quantile(&most), "{}", quantile(&most));
    let said = least.forecast().message.unwrap_or_default();
    assert_eq!(
        said,
        "the quantile is chosen by the budget of namespace shop: at most 0 % more replicas than a plain HPA"
    );
    assert_eq!(none.forecast().message, None);
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
