//! Fleets on the command line: divided, planned, validated, explained.

use foretide_crds::FederatedHPA;

use super::*;

const CLUSTERS: &str = "--clusters examples/clusters.yaml --at 2026-03-02T12:00:00Z";
const POLICIES: [&str; 5] = [
    "duplicated",
    "aggregated",
    "static-weighted",
    "dynamic-weighted",
    "prioritized",
];

fn assign(policy: &str) -> String {
    format!("assign -f examples/federated-{policy}.yaml {CLUSTERS}")
}

/// Name, fewest and most replicas of each cluster that takes part.
fn budgets(assignment: &Value) -> Vec<(&str, u64, u64)> {
    let clusters = assignment["clusters"].as_array().unwrap().iter();
    let budgets = clusters.filter_map(|cluster| {
        let (name, budget) = (cluster["name"].as_str()?, &cluster["budget"]);
        Some((name, budget["min"].as_u64()?, budget["max"].as_u64()?))
    });
    budgets.collect()
}

#[test]
fn an_assignment_shows_clusters_division_and_decisions_in_80_columns() {
    for policy in POLICIES {
        let text = run(&assign(policy)).unwrap().text;
        assert_narrow(&text);
        matches_snapshot(&format!("assign-{policy}.txt"), &text);
    }
}

#[test]
fn the_proposals_weights_divide_ten_into_one_four_and_five() {
    let assignment = as_json(&format!("{} -o json", assign("static-weighted")));
    assert_eq!(assignment["kind"], "Assignment");
    assert_eq!(assignment["apiVersion"], cli::API_VERSION);
    let expected = [("frankfurt", 1, 4), ("munich", 1, 1), ("cloud-eu", 1, 5)];
    assert_eq!(budgets(&assignment), expected);
}

#[test]
fn excluded_clusters_have_a_reason() {
    let assignment = as_json(&format!("{} -o json", assign("prioritized")));
    let clusters = assignment["clusters"].as_array().unwrap();
    let outside: Vec<_> = clusters
        .iter()
        .filter(|cluster| cluster["candidate"] == false)
        .map(|cluster| (&cluster["name"], &cluster["reasons"]))
        .collect();
    let expected = json!([["cloud-us", ["NotSelected"]], ["lab", ["Tainted"]]]);
    assert_eq!(json!(outside), expected);
}

#[test]
fn a_second_assignment_continues_from_the_first() {
    let first = run(&format!("{} -o json", assign("prioritized"))).unwrap();
    let path = written("first.json", &first.text);
    let first: Value = serde_json::from_str(&first.text).unwrap();
    let line = format!(
        "assign -f examples/federated-prioritized.yaml --after {path} \
         --clusters tests/it/manifests/clusters-blocked.yaml --at 2026-03-02T12:15:00Z -o json"
    );
    let second = as_json(&line);
    let early = failure(&line.replace("12:15", "11:00"));
    // Munich has four pods placed; the rest of its six goes to the next tier.
    let expected = [("frankfurt", 6, 16), ("munich", 2, 4), ("cloud-eu", 1, 20)];
    assert_eq!(budgets(&second), expected, "{second:#}");
    assert_eq!(budgets(&first)[1], ("munich", 2, 6));
    let message = "--at 2026-03-02T11:00:00Z is before the time of --after, 2026-03-02T12:00:00Z";
    assert_eq!(early, (Exit::Usage, message.to_owned()));
}

#[test]
fn a_missing_input_of_assign_is_reported() {
    for (line, exit, expected) in [
        (
            format!("assign -f examples/php-apache-dsp.yaml {CLUSTERS}"),
            Exit::Invalid,
            "no FederatedHPA in the manifests; add its file with -f",
        ),
        (
            format!("assign -f examples --name nobody {CLUSTERS}"),
            Exit::Invalid,
            "no FederatedHPA nobody in the manifests",
        ),
        (
            format!("assign -f tests/it/manifests/broken-fleet.yaml --name no-priority {CLUSTERS}"),
            Exit::Invalid,
            "tests/it/manifests/broken-fleet.yaml:20: spec.tolerationSeconds: tolerationSeconds must be between 0 \
             and 86400 (a day); 300 is usual\ntests/it/manifests/broken-fleet.yaml:23: \
             spec.federatedHPAAssignment.clusterAutoscalingPreference: Prioritized needs the priority of at least \
             one cluster; add it to clusterAutoscalingPreference",
        ),
        (
            format!("plan -f examples/federated-prioritized.yaml --csv {HISTORY}"),
            Exit::Usage,
            "--clusters FILE is required: the clusters of the FederatedHPA, as in examples/clusters.yaml",
        ),
        (
            format!(
                "plan -f examples/php-apache-dsp.yaml --csv {HISTORY} --clusters examples/clusters.yaml"
            ),
            Exit::Usage,
            "--clusters is for a FederatedHPA; this is an EffectiveHorizontalPodAutoscaler",
        ),
        (
            format!(
                "plan -f examples/federated-duplicated.yaml --csv {HISTORY} --clusters examples/clusters.yaml"
            ),
            Exit::Usage,
            "--clusters is for policies that divide; under Duplicated each cluster decides from its own demand, so \
             leave it out to plan one of them from its history, or see the bounds with `foretide assign`",
        ),
        (
            format!("backtest -f examples/federated-prioritized.yaml --csv {HISTORY}"),
            Exit::Invalid,
            "no EffectiveHorizontalPodAutoscaler, HorizontalPodAutoscaler or ScaledObject in the manifests; add its file with -f",
        ),
    ] {
        assert_eq!(failure(&line), (exit, expected.to_owned()), "{line}");
    }
    let error = parse("assign -f examples/federated-prioritized.yaml").unwrap_err();
    assert_eq!(error.exit_code(), 2);
}

const PLAN_FLEET: &str = "plan -f examples/federated-prioritized.yaml -f examples/php-apache-deployment.yaml \
     --csv examples/history/php-apache-cpu.csv --clusters examples/clusters.yaml --at 2026-03-05T16:40:00Z";

#[test]
fn a_duplicated_fleet_is_planned_as_one_cluster() {
    let line = PLAN_FLEET.replace("prioritized", "duplicated");
    let line = line.replace("--clusters examples/clusters.yaml", "");
    let plan = as_json(&format!("{line} --replicas 4 -o json"));
    let (bounds, assumptions) = (&plan["bounds"], plan["assumptions"].to_string());
    assert_eq!(*bounds, json!({"min": 2, "max": 10}));
    assert_eq!(plan["division"], Value::Null);
    assert!(
        assumptions.contains("one cluster of the fleet"),
        "{assumptions}"
    );
    // 0.708 cores of four pods that request 0.2 each.
    let message = "8 replicas: cpu at 88 % against a target of 50 % asks for 8";
    assert_eq!(plan["decision"]["message"], message, "{plan:#}");
}

#[test]
fn a_plan_of_a_fleet_decides_its_total_and_divides_it() {
    let text = run(PLAN_FLEET).unwrap().text;
    assert_narrow(&text);
    matches_snapshot("plan-fleet.txt", &text);
}

#[test]
fn a_plan_of_a_fleet_as_json_divides_its_own_floor() {
    let plan = as_json(&format!("{PLAN_FLEET} -o json"));
    assert_eq!(plan["decision"]["currentReplicas"], 16);
    assert_eq!(
        plan["decision"]["floor"],
        plan["division"]["total"]["floor"]
    );
    let clusters = plan["division"]["clusters"].as_array().unwrap();
    let floors = clusters
        .iter()
        .filter_map(|cluster| cluster["floor"].as_u64());
    assert_eq!(
        Some(floors.sum::<u64>()),
        plan["decision"]["floor"].as_u64()
    );
}

#[test]
fn validation_of_a_fleet_names_file_line_and_field() {
    let output = run("validate -f tests/it/manifests/broken-fleet.yaml").unwrap();
    assert_eq!(output.exit, Exit::Invalid);
    matches_snapshot("validate-fleet.txt", &output.text);
}

#[test]
fn a_fleets_status_is_explained_with_a_sentence_for_each_cluster() {
    let text = run("explain -f tests/it/manifests/explained-fleet.yaml")
        .unwrap()
        .text;
    assert_narrow(&text);
    matches_snapshot("explain-fleet.txt", &text);
    let explained = as_json("explain -f tests/it/manifests/explained-fleet.yaml -o json");
    let file = std::fs::read_to_string("tests/it/manifests/explained-fleet.yaml").unwrap();
    let fleet: FederatedHPA = serde_saphyr::from_str(&file).unwrap();
    let status = serde_json::to_value(fleet.status).unwrap();
    assert_eq!(explained["kind"], "Explanation");
    for part in [
        "decision",
        "conditions",
        "observedGeneration",
        "clusters",
        "unassigned",
    ] {
        assert_eq!(explained[part], status[part], "{part}");
    }
}
