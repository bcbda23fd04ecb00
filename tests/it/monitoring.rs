//! `deploy/monitoring` and its runbook, read as data: dashboards and rules are well formed, each alert has an entry, and
//! every metric that is named exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use foretide_api::ports::{CredentialExpiry, ServerHealth};
use foretide_base::telemetry::{
    BudgetGauges, Counts, ForecastQuality, MemberGauges, ObjectLabels, Telemetry, WatchHealth,
};
use foretide_domain::proposal::Source;
use jiff::Timestamp;
use promql_parser::{label::MatchOp, parser};
use regex::Regex;
use serde_json::{Value, json};

const RULES: &str = include_str!("../../deploy/monitoring/prometheusrule.yaml");
const RUNBOOK: &str = include_str!("../../docs/operations.md");
const METRICS: &str = include_str!("../../docs/metrics.md");
const KUSTOMIZATION: &str = include_str!("../../deploy/monitoring/Kustomization");
const KUSTOMIZE: &str = include_str!("../../deploy/24-metrics-rbac.yaml");

/// Beginning of a link to the runbook.
const RUNBOOK_URL: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/operations.md#"
);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/monitoring")
}

/// The dashboards by file name.
fn dashboards() -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(folder().join("dashboards")).unwrap();
    let read = files.map(|file| {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        (name, serde_json::from_str(&text).unwrap())
    });
    read.collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn rules() -> Vec<Value> {
    let object: Value = serde_saphyr::from_str(RULES).unwrap();
    let groups = array(&object["spec"]["groups"]).iter();
    groups
        .flat_map(|group| array(&group["rules"]).to_vec())
        .collect()
}

/// The queries of all panels, with Grafana's own variable replaced.
fn queries() -> Vec<String> {
    let dashboards = dashboards();
    let panels = dashboards
        .values()
        .flat_map(|dashboard| array(&dashboard["panels"]));
    let targets = panels.flat_map(|panel| array(&panel["targets"]));
    targets
        .map(|target| text(&target["expr"]).replace("$__rate_interval", "4m"))
        .collect()
}

/// The expressions of rules and dashboards.
fn expressions() -> Vec<String> {
    let rules = rules();
    let rules = rules.iter().map(|rule| text(&rule["expr"]).to_owned());
    rules.chain(queries()).collect()
}

fn matches(pattern: &str, text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    let found = pattern.captures_iter(text).map(|found| found[1].to_owned());
    found.collect()
}

/// The names of the metrics in a text. Names of a histogram end as its series do.
fn metrics_in(text: &str) -> BTreeSet<String> {
    matches(r"\b(foretide_[a-z_]+[a-z])\b", text)
        .iter()
        .map(|name| name.trim_end_matches("_bucket").to_owned())
        .collect()
}

/// A controller's metrics, each with a series.
fn telemetry() -> Telemetry {
    let telemetry = Telemetry::default();
    let object = ObjectLabels {
        kind: "federatedhpa",
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    let counts = Counts {
        current: 1,
        desired: 2,
        proposed: BTreeMap::from([
            (Source::Observed, 3),
            (Source::Forecast, 4),
            (Source::Cron, 5),
        ]),
        min: Some(1),
        max: Some(9),
    };
    telemetry.decided(&object, &counts);
    telemetry.set_unhealthy(&object, [("Ready", "InvalidSpec")]);
    let quality = ForecastQuality {
        skill: Some(0.1),
        coverage: Some(0.2),
        quantile: Some(0.9),
        minute_readings: Some(0.97),
        model_age_seconds: Some(3.0),
    };
    telemetry.set_forecast_quality(&object, "resource.cpu", &quality);
    let health = WatchHealth {
        age_seconds: 1.0,
        errors: 0,
        unreadable: 0,
    };
    telemetry.watched("pods", health);
    telemetry.turned("federatedhpa", 0.0);
    telemetry.set_objects("federatedhpa", 1);
    telemetry.set_open_circuits("kubernetes", &["apps".to_owned()]);
    telemetry.members([MemberGauges {
        name: "west",
        ready: true,
        silent: Some(1.0),
        usable: true,
        restarts: 0,
    }]);
    let shares = [("west", [Some(1); 6])].into_iter();
    telemetry.set_shares(&object, &mut BTreeSet::new(), shares);
    telemetry.refused("NoData");
    telemetry.rejected("Negative");
    telemetry.set_forecasts_left_out(1);
    telemetry.set_left_out([(("".into(), "shop".into()), 1)].into());
    publish_server(&telemetry);
    telemetry.set_budgets([BudgetGauges {
        namespace: "shop",
        price: 0.01,
        cost_percent: 12.0,
    }]);
    telemetry.set_slow_namespaces(&["shop".into()].into());
    telemetry
}

/// A Prometheus server with a credential.
fn publish_server(telemetry: &Telemetry) {
    let credential = CredentialExpiry {
        credential: "client certificate",
        valid_from: None,
        expires: Timestamp::UNIX_EPOCH,
    };
    let server = ServerHealth {
        name: "hub".to_owned(),
        is_circuit_open: false,
        expiries: vec![credential],
        credential_problem: None,
    };
    telemetry.set_servers(&[server], Timestamp::UNIX_EPOCH);
}

/// The names of all metrics in the exposition of the code, in the form of series.
fn exposed() -> BTreeSet<String> {
    let exposition = telemetry().encode();
    let types = Regex::new(r"(?m)^# TYPE (\w+) (\w+)$").unwrap();
    let found = types
        .captures_iter(&exposition)
        .map(|found| match &found[2] {
            "counter" => format!("{}_total", &found[1]),
            _ => found[1].to_owned(),
        });
    found.collect()
}

/// The labels of every metric.
fn labels() -> BTreeMap<String, BTreeSet<String>> {
    let series = Regex::new(r"(?m)^(foretide_\w+?)(?:\{(.*)\})? \S+$").unwrap();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for found in series.captures_iter(&telemetry().encode()) {
        let names = found.get(2).map_or("", |labels| labels.as_str());
        let names = matches(r#"(\w+)=""#, names);
        all.entry(found[1].to_owned()).or_default().extend(names);
    }
    all
}

/// All metrics that the code of the registry names are above.
#[test]
fn every_registered_metric_has_a_series_in_this_test() {
    let additions = Regex::new(r#"\.add(_seconds|_durations)?\(\s*""#).unwrap();
    let mut registered = 0;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/base/src");
    let files = std::fs::read_dir(folder.join("telemetry")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    for file in files.chain([folder.join("telemetry.rs")]) {
        let source = std::fs::read_to_string(file).unwrap();
        registered += additions.find_iter(&source).count();
    }
    assert_eq!(exposed().len(), registered);
}

#[test]
fn every_metric_is_documented_and_no_other_is_named() {
    let exposed = exposed();
    let rows = METRICS
        .lines()
        .filter(|line| line.starts_with("| `foretide_"));
    let documented: BTreeSet<String> = rows.flat_map(|row| matches(r"^\| `(\w+)`", row)).collect();
    assert_eq!(documented, exposed);
    let named = expressions().join("\n") + RUNBOOK + METRICS;
    let unknown: Vec<_> = metrics_in(&named).difference(&exposed).cloned().collect();
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn every_metric_is_in_a_rule_or_on_a_dashboard() {
    let used = metrics_in(&expressions().join("\n"));
    let unused: Vec<_> = exposed().difference(&used).cloned().collect();
    assert_eq!(unused, Vec::<String>::new());
}

/// The selectors of an expression: name and matchers.
fn selectors(tree: &parser::Expr, found: &mut Vec<parser::VectorSelector>) {
    match tree {
        parser::Expr::Aggregate(it) => selectors(&it.expr, found),
        parser::Expr::Unary(it) => selectors(&it.expr, found),
        parser::Expr::Binary(it) => {
            selectors(&it.lhs, found);
            selectors(&it.rhs, found);
        }
        parser::Expr::Paren(it) => selectors(&it.expr, found),
        parser::Expr::Subquery(it) => selectors(&it.expr, found),
        parser::Expr::Call(it) => it.args.args.iter().for_each(|arg| selectors(arg, found)),
        parser::Expr::VectorSelector(it) => found.push(it.clone()),
        parser::Expr::MatrixSelector(it) => found.push(it.vs.clone()),
        parser::Expr::NumberLiteral(_)
        | parser::Expr::StringLiteral(_)
        | parser::Expr::Extension(_) => {}
    }
}

#[test]
fn expressions_parse_and_select_by_labels_that_the_metrics_have() {
    let labels = labels();
    for expression in expressions() {
        let tree = parser::parse(&expression);
        let tree = tree.unwrap_or_else(|error| panic!("{expression}: {error}"));
        let mut all = Vec::new();
        selectors(&tree, &mut all);
        for selector in all {
            let name = selector.name.clone().unwrap();
            let name = name.trim_end_matches("_bucket");
            for matcher in &selector.matchers.matchers {
                let label = &matcher.name;
                let has = labels.get(name).is_some_and(|known| known.contains(label));
                // The label of the target itself is selected in one place only.
                let is_job = name == "up" && label == "job" && matches!(matcher.op, MatchOp::Re(_));
                assert!(has || is_job, "{expression}: {name} has no label {label}");
            }
        }
    }
}

#[test]
fn the_rules_are_an_object_of_the_operator_with_the_labels_of_the_other_files() {
    let object: Value = serde_saphyr::from_str(RULES).unwrap();
    let other: Value = serde_saphyr::from_multiple(KUSTOMIZE).unwrap().remove(0);
    let labels = &other["metadata"]["labels"];
    let metadata = json!({"name": "foretide", "namespace": "foretide-system", "labels": labels});
    assert_eq!(object["apiVersion"], "monitoring.coreos.com/v1");
    assert_eq!(object["kind"], "PrometheusRule");
    assert_eq!(object["metadata"], metadata);
    let mut names = BTreeSet::new();
    for rule in rules() {
        let alert = text(&rule["alert"]).to_owned();
        assert!(alert.starts_with("Foretide"), "{alert}");
        let severity = text(&rule["labels"]["severity"]);
        assert!(
            ["critical", "warning"].contains(&severity),
            "{alert}: {severity}"
        );
        let annotations = rule["annotations"].as_object().unwrap();
        let keys: Vec<_> = annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["description", "runbook_url", "summary"], "{alert}");
        for key in ["summary", "description"] {
            assert!(text(&annotations[key]).ends_with('.'), "{alert}: {key}");
        }
        let anchor = format!("{RUNBOOK_URL}{}", alert.to_lowercase());
        assert_eq!(text(&annotations["runbook_url"]), anchor);
        assert!(names.insert(alert), "an alert is defined twice");
    }
}

#[test]
fn every_alert_has_a_section_of_the_runbook_and_every_section_an_alert() {
    let sections = matches(r"(?m)^### (\w+)$", RUNBOOK);
    let rules = rules();
    let alerts: BTreeSet<String> = rules
        .iter()
        .map(|rule| text(&rule["alert"]).to_owned())
        .collect();
    assert_eq!(sections, alerts);
    let linked = matches(r"\(#(foretide\w+)\)", RUNBOOK);
    let anchors = alerts.iter().map(|alert| alert.to_lowercase()).collect();
    assert!(linked.is_subset(&anchors), "{linked:?}");
}

#[test]
fn dashboards_have_identifiers_variables_and_units() {
    let mut uids = BTreeSet::new();
    for (file, dashboard) in dashboards() {
        assert_eq!(dashboard["id"], Value::Null, "{file}");
        let stem = file.trim_end_matches(".json");
        assert_eq!(dashboard["uid"], format!("foretide-{stem}"));
        assert!(uids.insert(text(&dashboard["uid"]).to_owned()));
        assert_eq!(dashboard["schemaVersion"], 39);
        let variables: BTreeSet<_> = array(&dashboard["templating"]["list"])
            .iter()
            .map(|variable| text(&variable["name"]).to_owned())
            .collect();
        let mut used = matches(r"\$\{?([a-z]+)", &array_text(&dashboard["panels"]));
        used.extend(matches(
            r"\$\{?([a-z]+)",
            &dashboard["templating"].to_string(),
        ));
        assert_eq!(used, variables, "{file}");
        let source = json!({"type": "prometheus", "uid": "${datasource}"});
        for panel in array(&dashboard["panels"]) {
            let title = text(&panel["title"]);
            let kind = text(&panel["type"]);
            assert!(
                ["stat", "state-timeline", "table", "timeseries"].contains(&kind),
                "{title}: {kind}"
            );
            assert!(text(&panel["description"]).ends_with('.'), "{title}");
            assert!(
                panel["fieldConfig"]["defaults"]["unit"].is_string(),
                "{title}"
            );
            assert_eq!(panel["datasource"], source, "{title}");
            for (target, id) in array(&panel["targets"]).iter().zip('A'..) {
                assert_eq!(target["refId"], id.to_string(), "{title}");
                assert_eq!(target["datasource"], source, "{title}");
            }
        }
    }
}

/// The text of the values, without Grafana's own variables.
fn array_text(value: &Value) -> String {
    value.to_string().replace("$__rate_interval", "")
}

#[test]
fn panels_have_a_place_of_their_own() {
    for (file, dashboard) in dashboards() {
        let panels = array(&dashboard["panels"]);
        let ids: BTreeSet<_> = panels
            .iter()
            .map(|panel| panel["id"].as_u64().unwrap())
            .collect();
        let titles: BTreeSet<_> = panels.iter().map(|panel| text(&panel["title"])).collect();
        assert_eq!(ids.len(), panels.len(), "{file}");
        assert_eq!(titles.len(), panels.len(), "{file}");
        let mut taken = BTreeSet::new();
        for panel in panels {
            let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            let (x, y, w, h) = (side("x"), side("y"), side("w"), side("h"));
            assert!(w > 0 && h > 0 && x + w <= 24, "{file}: {panel}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{file}: {} overlaps", panel["title"]);
            }
        }
    }
}

#[test]
fn the_kustomization_has_every_file() {
    let object: Value = serde_saphyr::from_str(KUSTOMIZATION).unwrap();
    let resources = json!(["prometheusrule.yaml", "servicemonitor.yaml"]);
    assert_eq!(object["resources"], resources);
    let files: Vec<_> = dashboards()
        .keys()
        .map(|name| format!("dashboards/{name}"))
        .collect();
    assert_eq!(object["configMapGenerator"][0]["files"], json!(files));
    let options = &object["generatorOptions"];
    assert_eq!(options["disableNameSuffixHash"], true);
    assert_eq!(options["labels"]["grafana_dashboard"], "1");
}

#[test]
fn the_command_of_the_runbook_makes_a_rule_file() {
    let command = r"sed -n '/^  groups:/,$p' deploy/monitoring/prometheusrule.yaml | sed 's/^  //'";
    assert!(RUNBOOK.contains(command));
    let run = std::process::Command::new("sh")
        .args(["-c", command])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let made: Value = serde_saphyr::from_str(&String::from_utf8(run.stdout).unwrap()).unwrap();
    let object: Value = serde_saphyr::from_str(RULES).unwrap();
    assert_eq!(made, object["spec"]);
}
