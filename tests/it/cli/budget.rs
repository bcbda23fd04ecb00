//! `foretide backtest --max-cost-percent`: several autoscalers that share a budget.

use std::sync::LazyLock;

use super::*;

const MINUTES: u32 = 62 * 60;

/// Writes three days of minutes of a wave with bursts of a size, from a minute on.
fn history(name: &str, burst: f64, first: u32) -> String {
    let line = |minute: u32| {
        let wave = 60.0 + 30.0 * (f64::from(minute % 1440) / 229.2).sin();
        let noise = |factor: f64| {
            let wave = (f64::from(minute) * factor).sin() * 43_758.545;
            wave.rem_euclid(1.0)
        };
        let bursts = if noise(12.9898) > 0.97 {
            burst * noise(78.233)
        } else {
            0.0
        };
        let demand = wave + 5.0 * noise(12.9898) + bursts;
        format!("{},{demand:.3}\n", 1_772_323_200 + u64::from(minute) * 60)
    };
    let lines = (first..first + MINUTES).map(line);
    written(&format!("budget-{name}.csv"), lines.collect::<String>())
}

fn manifests() -> String {
    let one = |(name, prediction): (&str, &str)| {
        format!(
            "---\napiVersion: autoscaling.crane.io/v1alpha1\nkind: EffectiveHorizontalPodAutoscaler\n\
             metadata: {{name: {name}, namespace: shop}}\nspec:\n  scaleTargetRef: {{apiVersion: apps/v1, kind: \
             Deployment, name: {name}}}\n  minReplicas: 1\n  maxReplicas: 100\n  prediction: {prediction}\n  metrics:\n  - \
             {{type: External, external: {{metric: {{name: queue}}, target: {{type: AverageValue, averageValue: 10}}}}}}\n"
        )
    };
    let all = [
        ("bursty", "{}"),
        ("steady", "{}"),
        ("own", "{quantile: 0.95}"),
    ];
    written("budget.yaml", all.map(one).concat())
}

/// The files of all tests.
static FILES: LazyLock<(String, [String; 3])> = LazyLock::new(|| {
    let histories = [("bursty", 90.0), ("steady", 0.0), ("own", 45.0)];
    (
        manifests(),
        histories.map(|(name, burst)| history(name, burst, 0)),
    )
});

fn line() -> String {
    let (manifests, [bursty, steady, own]) = &*FILES;
    format!(
        "backtest -f {manifests} --csv bursty={bursty} --csv steady={steady} --csv own/external.queue={own} --warm-up 48h"
    )
}

/// The figure of a run of all autoscalers: 0 as plain HPAs, 1 as written, 2 in the budget.
fn sum(report: &Value, run: usize, figure: &str) -> f64 {
    report["sum"][run][figure].as_f64().unwrap()
}

#[test]
fn the_budget_chooses_the_quantiles_that_the_specs_do_not() {
    let line = line();
    let at = |percent: u32| as_json(&format!("{line} --max-cost-percent {percent} -o json"));
    let (least, most) = (at(0), at(60));
    assert_eq!(least["kind"], "BudgetBacktest");
    for report in [&least, &most] {
        let own = &report["autoscalers"][2];
        assert_eq!(own["sharesBudget"], false);
        assert_eq!(own["candidates"][1]["score"], own["candidates"][2]["score"]);
        assert_eq!(own["candidates"][2]["quantile"], 0.95);
    }
    let short = |report| sum(report, 2, "underProvisionedMinutes");
    assert!(short(&most) < short(&least), "{most} {least}");
    let cost = |report| sum(report, 2, "replicaHoursPercent");
    assert!(cost(&least) < cost(&most) && cost(&most) < 60.0, "{most}");
    let price = |report: &Value| report["price"].as_f64().unwrap();
    assert!(price(&most) < price(&least));
}

#[test]
fn the_table_has_every_run_and_the_sums_in_80_columns() {
    let output = run(&format!("{} --max-cost-percent 15%", line())).unwrap();
    assert_narrow(&output.text);
    matches_snapshot("backtest-budget.txt", &output.text);
}

#[test]
fn what_a_shared_budget_cannot_use_is_reported() {
    let (manifests, [_, steady, own]) = &*FILES;
    let one = format!("backtest -f {manifests} --max-cost-percent 15");
    let apart = line().replace(steady, &history("later", 0.0, MINUTES));
    for (line, exit, expected) in [
        (
            format!("{one} -o csv"),
            Exit::Usage,
            "--max-cost-percent: expected -o table or json",
        ),
        (
            one.clone(),
            Exit::Usage,
            "--csv FILE or --prometheus URL is required: the history of external.queue",
        ),
        (
            format!("{one} --warm-up 48h --name own --csv {own}"),
            Exit::Usage,
            "--max-cost-percent: expected an autoscaler with spec.prediction of the algorithm auto, without quantile and \
             maxUnderProvisionedPercent, and with a target per replica",
        ),
        (
            format!("{apart} --max-cost-percent 15"),
            Exit::Usage,
            "nothing to evaluate: the evaluated parts of the histories have no minute in common, the last begins at \
             2026-03-05T14:00:00Z and the first ends at 2026-03-03T13:59:00Z",
        ),
        (
            "backtest -f - --max-cost-percent 15".to_owned(),
            Exit::Usage,
            "-f -: expected files, which are read once for each autoscaler",
        ),
    ] {
        assert_eq!(failure(&line), (exit, expected.to_owned()), "{line}");
    }
}
