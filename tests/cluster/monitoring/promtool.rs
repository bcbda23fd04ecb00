//! The rules with their full durations, in promtool.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Output,
};

use rig::{Binaries, Component};
use serde_json::Value;

use super::{rule_groups, rules};
use crate::world::Folder;

/// The tests: times, samples, and the alerts that fire.
const TESTS: &str = include_str!("rules_test.yaml");

/// Runs promtool in a folder; returns whether it agrees, and its output.
fn promtool(folder: &Folder, arguments: &[&str]) -> (bool, String) {
    let mut promtool = Binaries::ensure().unwrap().command(Component::Promtool);
    let run = promtool.args(arguments).current_dir(&folder.0).output();
    let Output {
        status,
        stdout,
        stderr,
    } = run.unwrap();
    let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    (status.success() && text.contains("SUCCESS"), text)
}

#[test]
fn the_rules_fire_after_their_full_durations_and_resolve() {
    let mut rules = rule_groups();
    let folder = Folder::new("promtool");
    folder.write("rules.json", &rules.to_string());
    folder.write("rules_test.yaml", TESTS);
    let lint = ["check", "rules", "--lint=all", "--lint-fatal", "rules.json"];
    let (passed, text) = promtool(&folder, &lint);
    assert!(passed, "{text}");
    // The tests expect labels and no texts, so promtool shows the texts of every alert.
    let (_, text) = promtool(&folder, &["test", "rules", "rules_test.yaml"]);
    let alerts = super::rules(&rules).map(|rule| &rule["annotations"]["runbook_url"]);
    let missing: Vec<_> = alerts
        .filter(|url| !text.contains(&url.to_string()))
        .collect();
    assert!(missing.is_empty(), "{missing:?} in {text}");
    for broken in ["<no value>", "<error", "{{"] {
        assert!(!text.contains(broken), "{broken:?} in {text}");
    }
    for group in rules["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            rule.as_object_mut().unwrap().remove("annotations");
        }
    }
    folder.write("rules.json", &rules.to_string());
    let (passed, text) = promtool(&folder, &["test", "rules", "rules_test.yaml"]);
    assert!(passed, "{text}");
}

/// The alerts that a test checks before they fire, while they fire and after that.
fn whole(test: &Value) -> BTreeSet<String> {
    let mut fires: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for check in test["alert_rule_test"].as_array().unwrap() {
        let alert = check["alertname"].as_str().unwrap();
        let is_firing = check.get("exp_alerts").is_some();
        fires.entry(alert).or_default().push(is_firing);
    }
    let is_whole =
        |fires: &[bool]| matches!(fires, [false, between @ .., false] if between.contains(&true));
    let whole = fires.into_iter().filter(|(_, fires)| is_whole(fires));
    whole.map(|(alert, _)| alert.to_owned()).collect()
}

#[test]
fn every_alert_is_tested_before_it_fires_while_it_fires_and_resolved() {
    let tests: Value = serde_saphyr::from_str(TESTS).unwrap();
    let tested = tests["tests"].as_array().unwrap().iter().flat_map(whole);
    let groups = rule_groups();
    let all = rules(&groups).map(|rule| rule["alert"].as_str().unwrap().to_owned());
    assert_eq!(tested.collect::<BTreeSet<_>>(), all.collect());
}
