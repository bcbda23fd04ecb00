//! The command line as its users see it, over the examples and a few broken files.
//!
//! Commands run as functions: text in, text and exit code out. Long answers are compared with files
//! under `snapshots/`; `UPDATE=1` writes them.

mod ahead;
mod bad_input;
mod budget;
mod config;
mod fleet;
mod prometheus;
mod report;

use std::{path::Path, sync::Arc};

use clap::Parser;
use foretide::cli::{self, Cli, CommandContext, CommandOutput, Exit, Failure, Screen};
use foretide_api::autoscaler::Autoscaler;
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_domain::cron::Zone;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

const PLAIN: Screen = Screen {
    color: false,
    unicode: true,
    size: None,
};
/// When commands run whose test names no other time.
const NOW: &str = "2026-03-02T12:00:00Z";
const HISTORY: &str = "examples/history/php-apache-cpu.csv";

/// A plain screen in UTC.
fn context(now: Timestamp) -> CommandContext {
    CommandContext {
        screen: PLAIN,
        local: Zone::utc(),
        now,
        machine: foretide_base::machine::Machine::system(),
    }
}

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(["foretide"].into_iter().chain(line.split_whitespace()))
}

/// Runs one command line, whose words are separated by spaces.
pub(crate) fn run(line: &str) -> Result<CommandOutput, Failure> {
    cli::execute(&parse(line).unwrap(), &context(NOW.parse().unwrap()))
}

fn failure(line: &str) -> (Exit, String) {
    let failure = run(line).unwrap_err();
    (failure.exit, failure.message)
}

fn as_json(line: &str) -> Value {
    serde_json::from_str(&run(line).unwrap().text).unwrap()
}

pub(crate) fn matches_snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/snapshots")
        .join(name);
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, stored, "{name} differs; UPDATE=1 writes it");
}

fn assert_narrow(text: &str) {
    let narrow = text.lines().all(|line| line.chars().count() <= 80);
    assert!(narrow, "{text}");
}

/// Writes a file of the tests; returns its path.
fn written(name: &str, content: impl AsRef<[u8]>) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("cli")
        .join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

fn autoscaler(file: &str) -> EffectiveHorizontalPodAutoscaler {
    serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn every_example_is_valid() {
    let output = run("validate -f examples").unwrap();
    let expected = "13 autoscalers valid, 0 errors, 0 warnings; 6 other objects skipped (Clusters, \
                    Deployment, HorizontalPodAutoscaler, ScaledObject, TriggerAuthentication)\n";
    assert_eq!((output.exit, output.text.as_str()), (Exit::Ok, expected));
}

#[test]
fn validation_errors_name_file_line_and_field() {
    let output = run("validate -f tests/it/manifests/broken.yaml").unwrap();
    assert_eq!(output.exit, Exit::Invalid);
    matches_snapshot("validate-broken.txt", &output.text);
}

#[test]
fn a_query_that_the_controller_refuses_is_an_error_at_its_annotation() {
    let object = |kind: &str, namespace: &str, query: &str, prediction: &str| {
        format!(
            "{kind}\nmetadata:\n  name: web\n{namespace}  annotations:\n    a: b\n    \
             metric-query.autoscaling.crane.io/resource.cpu: '{query}'\nspec:\n  scaleTargetRef: {{apiVersion: apps/v1, \
             kind: Deployment, name: web}}\n  maxReplicas: 3\n{prediction}---\n"
        )
    };
    let ehpa = "apiVersion: autoscaling.crane.io/v1alpha1\nkind: EffectiveHorizontalPodAutoscaler";
    let fleet = "apiVersion: autoscaling.foretide.io/v1alpha1\nkind: FederatedHPA";
    let predicted = "  prediction: {predictionWindowSeconds: 3600}\n";
    let in_shop = "  namespace: shop\n";
    let subquery = "max_over_time(up[1h:1m])";
    let of_shop = r#"sum(up{namespace="shop"})"#;
    let text = [
        object(ehpa, "", subquery, predicted),
        object(fleet, in_shop, "sum(", predicted),
        object(ehpa, "", of_shop, predicted),
        object(ehpa, in_shop, of_shop, predicted),
        object(ehpa, "", subquery, ""),
    ];
    let path = written("queries.yaml", text.concat());

    let output = run(&format!("validate -f {path}")).unwrap();
    let found: Vec<&str> = output.text.lines().collect();
    let error = |line: u8, why: &str| {
        let annotation = "annotation metric-query.autoscaling.crane.io/resource.cpu";
        format!("{path}:{line}: error: {annotation}: {why}")
    };
    assert_eq!(output.exit, Exit::Invalid);
    assert_eq!(found.len(), 4, "{}", output.text);
    let why = "subqueries are not accepted; use a recording rule";
    assert_eq!(found[0], error(7, why));
    let why = "the query cannot be parsed: ";
    assert!(found[1].starts_with(&error(20, why)), "{}", found[1]);
    let why = "the query may read namespace \"default\" only: ";
    assert!(found[2].starts_with(&error(32, why)), "{}", found[2]);

    let output = run(&format!("validate --promql-scope any -f {path}")).unwrap();
    assert_eq!(output.exit, Exit::Ok, "{}", output.text);
}

#[test]
fn a_validation_report_is_json_on_request() {
    let report = as_json("validate -o json -f tests/it/manifests/broken.yaml");
    assert_eq!(report["kind"], "ValidationReport");
    assert_eq!(report["apiVersion"], cli::API_VERSION);
    assert_eq!(report["items"][0]["line"], 6);
    assert_eq!(report["items"][0]["severity"], "error");
}

#[test]
fn a_missing_file_does_not_hide_the_results_of_others() {
    let output = run("validate -f nowhere.yaml -f examples/php-apache-dsp.yaml").unwrap();
    assert_eq!(output.exit, Exit::Invalid);
    let text = output.text;
    let [first, last] = [
        "nowhere.yaml: error: cannot be read: ",
        "1 autoscaler valid, 1 error, 0 warnings\n",
    ];
    assert!(text.starts_with(first) && text.ends_with(last), "{text}");
}

const PLAN: &str = "plan -f examples/php-apache-dsp.yaml -f examples/php-apache-deployment.yaml \
                    --csv examples/history/php-apache-cpu.csv --at 2026-03-05T08:00:00Z";

#[test]
fn a_plan_shows_history_forecast_proposals_and_decision_in_80_columns() {
    let text = run(PLAN).unwrap().text;
    assert_narrow(&text);
    matches_snapshot("plan.txt", &text);
}

#[test]
fn a_plan_is_drawn_in_ascii_on_request() {
    let text = run(&format!("{PLAN} --ascii")).unwrap().text;
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn a_plan_has_the_same_decision_as_json_and_as_text() {
    let plan = as_json(&format!("{PLAN} -o json"));
    let text = run(PLAN).unwrap().text;
    assert_eq!(plan["kind"], "Plan");
    assert_eq!(plan["apiVersion"], cli::API_VERSION);
    let desired = plan["decision"]["desired"].as_i64().unwrap();
    assert!(text.contains(&format!("desired {desired}")), "{text}");
    let message = plan["decision"]["message"].as_str().unwrap();
    assert!(text.replace('\n', " ").contains(message), "{text}");
    assert!(plan["forecasts"][0]["samples"].as_array().unwrap().len() > 60);
}

#[test]
fn a_request_flag_replaces_the_deployment() {
    let with = |rest: &str| {
        let line = format!("plan -f examples/php-apache-dsp.yaml --csv {HISTORY} -o json {rest}");
        as_json(&format!("{line} --at 2026-03-05T07:00:00Z"))["decision"].clone()
    };
    let by_request = with("--request cpu=200m");
    assert_eq!(by_request, with("-f examples/php-apache-deployment.yaml"));
    let twice = with("--request cpu=400m");
    assert!(
        twice["desired"].as_i64() < by_request["desired"].as_i64(),
        "{twice}"
    );
}

#[test]
fn a_plan_starts_from_the_replicas_of_the_flag_and_ends_at_the_bounds() {
    let decision = |rest: &str| as_json(&format!("{PLAN} {rest} -o json"))["decision"].clone();
    let started = decision("--replicas 2");
    assert_eq!(started["currentReplicas"], 2);
    // 0.367 cores on two pods that request 0.2 each.
    assert_eq!(started["proposals"][0]["value"], "91");
    let capped = decision("--request cpu=50m");
    assert_eq!(capped["desired"], 10);
    assert_eq!(capped["limit"], "TooManyReplicas");
}

#[test]
fn a_plan_of_crons_alone_needs_no_history() {
    let at = "2026-03-05T07:00:00Z";
    let line = format!("plan -f examples/php-apache-local.yaml --at {at} --replicas 3 -o json");
    let plan = as_json(&line);
    assert_eq!(plan["decision"]["desired"], 80);
    assert_eq!(plan["decision"]["winner"], "cron");
}

#[test]
fn a_plan_long_after_the_history_has_neither_demand_nor_forecast() {
    let later = PLAN.replace("2026-03-05", "2026-03-09");
    let plan = as_json(&format!("{later} -o json"));
    let proposals = plan["decision"]["proposals"].as_array().unwrap();
    assert_eq!(proposals[0]["reason"], "NoSamples");
    let mut counts = proposals.iter().map(|proposal| &proposal["replicas"]);
    assert!(counts.all(Value::is_null), "{plan}");
}

#[test]
fn a_missing_input_of_plan_is_reported_with_its_flag() {
    let ehpa = "plan -f examples/php-apache-dsp.yaml";
    for (line, exit, expected) in [
        (
            ehpa.to_owned(),
            Exit::Usage,
            "--csv FILE or --prometheus URL is required: the history of resource.cpu",
        ),
        (
            format!("{ehpa} --csv {HISTORY}"),
            Exit::Usage,
            "the cpu request of a pod is unknown: add the workload's manifest with -f, or set \
             --request cpu=200m",
        ),
        (
            format!("{ehpa} --csv tests/it/manifests/broken.csv"),
            Exit::Invalid,
            "tests/it/manifests/broken.csv:3: found \"2026-03-05T00:05:00Z,0,4\", expected timestamp,value; \
             a decimal comma needs ; between the two",
        ),
        (
            format!("{ehpa} --csv {HISTORY} --at 2020-01-01T00:00:00Z"),
            Exit::Usage,
            "--at 2020-01-01T00:00:00Z is before the history begins, at 2026-03-01T00:00:00Z",
        ),
        (
            format!("{ehpa} --csv {HISTORY} --csv {HISTORY}"),
            Exit::Usage,
            "--csv: two histories of resource.cpu; use --csv METRIC=FILE, where METRIC is one of resource.cpu",
        ),
        (
            "plan -f examples".to_owned(),
            Exit::Usage,
            "several autoscalers; select one with --name: php-apache, shop, php-apache-aggregated, \
             php-apache-duplicated, php-apache-dynamic-weighted, php-apache, php-apache-prioritized, \
             php-apache-static-weighted, worker, php-apache, php-apache-local, php-apache-multi-dimensions, php-apache",
        ),
        (
            "plan -f examples/php-apache-deployment.yaml".to_owned(),
            Exit::Invalid,
            "no EffectiveHorizontalPodAutoscaler, FederatedHPA, HorizontalPodAutoscaler or ScaledObject in the manifests; add \
             its file with -f",
        ),
        (
            "plan -f tests/it/manifests/broken.yaml --name crossed".to_owned(),
            Exit::Invalid,
            "tests/it/manifests/broken.yaml:17: spec.minReplicas: minReplicas must not exceed \
             maxReplicas; lower minReplicas or raise maxReplicas",
        ),
    ] {
        assert_eq!(failure(&line), (exit, expected.to_owned()), "{line}");
    }
}

const BACKTEST: &str = "backtest -f examples/php-apache-dsp.yaml -f examples/php-apache-deployment.yaml \
                        --csv examples/history/php-apache-cpu.csv";

#[test]
fn a_backtest_shows_both_runs_and_their_difference_in_80_columns() {
    let output = run(BACKTEST).unwrap();
    assert_eq!((output.exit, output.notes.as_str()), (Exit::Ok, ""));
    assert_narrow(&output.text);
    matches_snapshot("backtest.txt", &output.text);
}

#[test]
fn a_backtest_has_the_same_numbers_as_json_and_as_csv() {
    let rest = "--from 2026-03-04T00:00:00Z --until 2026-03-05T00:00:00Z";
    let report = as_json(&format!("{BACKTEST} {rest} -o json"));
    assert_eq!(report["kind"], "Backtest");
    assert_eq!(report["apiVersion"], cli::API_VERSION);
    let csv = run(&format!("{BACKTEST} {rest} -o csv")).unwrap().text;
    let mut rows = csv.lines();
    let heading =
        "time,resource.cpu,needed,foreseen,foretide_asked,foretide_ready,hpa_asked,hpa_ready";
    assert_eq!(rows.next(), Some(heading));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len(), 1440);
    let number = |row: &Vec<&str>, column: usize| row[column].parse::<f64>().unwrap();
    for (candidate, asked) in [(0, 4), (1, 6)] {
        let candidate = &report["candidates"][candidate];
        let hours = rows.iter().map(|row| number(row, asked)).sum::<f64>() / 60.0;
        assert!((candidate["replicaHours"].as_f64().unwrap() - hours).abs() < 1e-6);
        let short = |row: &&Vec<&str>| number(row, 2) > 1.1 * number(row, asked + 1) + 1e-9;
        let under = rows.iter().filter(short).count();
        assert_eq!(candidate["underProvisionedMinutes"], under, "{candidate}");
        assert_eq!(candidate["minutes"], 1440);
    }
    let message = report["difference"]["message"].as_str().unwrap();
    let text = run(&format!("{BACKTEST} {rest}")).unwrap().text;
    assert!(text.replace('\n', " ").contains(message), "{text}");
}

/// Four days of minutes with a hole of thirty hours on the last two: the path of the file.
fn history_with_a_hole() -> String {
    let start = 1_772_323_200;
    let hole = 60 * 55..60 * 85;
    let minutes = (0..96 * 60).filter(|minute| !hole.contains(minute));
    let line = |minute: i64| {
        let cores = 0.6 + 0.4 * (f64::from(i32::try_from(minute % 1440).unwrap()) / 229.2).sin();
        format!("{},{cores:.4}\n", start + minute * 60)
    };
    written("hole.csv", minutes.map(line).collect::<String>())
}

#[test]
fn a_backtest_counts_only_what_was_recorded_and_says_what_was_not() {
    let file = history_with_a_hole();
    let line = format!(
        "backtest -f examples/php-apache-dsp.yaml --request cpu=200m --csv {file} --warm-up 48h"
    );
    let output = run(&format!("{line} -o json")).unwrap();
    assert_eq!(
        output.notes,
        format!("foretide: {file}: no samples for 30h 1m after 2026-03-03T06:59:00Z\n")
    );
    let report: Value = serde_json::from_str(&output.text).unwrap();
    let csv = run(&format!("{line} -o csv")).unwrap().text;
    let rows = csv.lines().skip(1);
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(',').collect()).collect();
    let (known, unknown): (Vec<_>, Vec<_>) = rows.iter().partition(|row| !row[2].is_empty());
    // A value stands for five minutes.
    assert_eq!((known.len(), unknown.len()), (2879 - 1796, 1796));
    for (candidate, asked) in [(0, 4), (1, 6)] {
        let candidate = &report["candidates"][candidate];
        let counts = known.iter().map(|row| row[asked].parse::<f64>().unwrap());
        let hours = counts.sum::<f64>() / 60.0;
        assert!(
            (candidate["replicaHours"].as_f64().unwrap() - hours).abs() < 1e-6,
            "{candidate}"
        );
        assert_eq!(candidate["minutes"], 1083);
        assert_eq!(candidate["unknownMinutes"], 1796);
    }
    let message = report["difference"]["message"].as_str().unwrap();
    let skipped = "; 1,796 of 2,879 min have no recorded demand and are not evaluated";
    assert!(message.ends_with(skipped), "{message}");
    let alone = run(&format!("{line} --compare none")).unwrap().text;
    assert!(alone.contains(&skipped[2..]), "{alone}");
}

#[test]
fn a_history_of_another_form_is_read_or_refused_in_a_few_words() {
    let exported =
        "\"Time\",\"cpu\"\n2026-03-01 00:00:00,0.5 cores\n2026-03-01 00:01:00,0.5 cores\n";
    let grafana = written("grafana.csv", exported);
    let binary = written("binary.csv", [0x1f, 0x8b, 8, 0, 0xff]);
    let plan = "plan -f examples/php-apache-dsp.yaml --request cpu=200m -o json --csv";
    let planned = as_json(&format!("{plan} {grafana} --time-zone Europe/Berlin"));
    assert_eq!(planned["decision"]["time"], "2026-02-28T23:01:00Z");
    let (_, message) = failure(&format!("{plan} {grafana}"));
    assert_eq!(
        message,
        format!(
            "{grafana}:2: found \"2026-03-01 00:00:00,0.5 cores\", expected a time with its zone, such as \
             2026-03-02T08:00:00Z; or set --time-zone, such as --time-zone Europe/Berlin"
        )
    );
    for line in [format!("{plan} {binary}"), format!("plan -f {binary}")] {
        let expected = format!("{binary}: not a text file; expected UTF-8");
        assert_eq!(failure(&line), (Exit::Invalid, expected), "{line}");
    }
}

#[test]
fn a_backtest_of_several_years_is_refused() {
    let day = |day: i64| format!("{},1\n", day * 86_400);
    let path = written("years.csv", (0..2000).map(day).collect::<String>());
    let line = "backtest -f examples/php-apache-dsp.yaml --request cpu=200m --csv";
    let expected = "1992 days from 1970-01-08T00:00:00Z to 1975-06-23T00:00:00Z are too many to evaluate, expected at \
                    most 1000: set --from and --until";
    let found = failure(&format!("{line} {path}"));
    assert_eq!(found, (Exit::Usage, expected.to_owned()));
}

#[test]
fn an_exceeded_bound_of_backtest_has_its_own_exit_code() {
    let line = format!("{BACKTEST} --from 2026-03-05T00:00:00Z --fail-if");
    let fine = run(&format!("{line} under>50% --fail-if cost>100%")).unwrap();
    assert_eq!((fine.exit, fine.notes.as_str()), (Exit::Ok, ""));
    let failed = run(&format!("{line} actions>3 --fail-if under>50%")).unwrap();
    assert_eq!(failed.exit, Exit::Threshold);
    let actions = "foretide: --fail-if 'actions>3' exceeded: actions is ";
    assert!(failed.notes.starts_with(actions), "{}", failed.notes);
    assert_eq!(failed.notes.lines().count(), 1, "{}", failed.notes);
    let (exit, message) = failure(&format!("{line} cost>1% --compare none"));
    let expected =
        "--fail-if 'cost>1%' needs --compare hpa: it is relative to the plain HPA".to_owned();
    assert_eq!((exit, message), (Exit::Usage, expected));
}

#[test]
fn a_backtest_of_slower_pods_has_more_under_provisioned_minutes() {
    let under = |start_up: &str| {
        let report = as_json(&format!(
            "{BACKTEST} --from 2026-03-05T00:00:00Z --start-up {start_up} -o json"
        ));
        let under = report["candidates"][1]["underProvisionedMinutes"].as_u64();
        (report["startUpSeconds"].as_u64(), under.unwrap())
    };
    let (fast, slow) = (under("0s"), under("10m"));
    assert_eq!((fast.0, slow.0), (Some(0), Some(600)));
    assert!(fast.1 < slow.1, "{fast:?} {slow:?}");
}

#[test]
fn a_missing_input_of_backtest_is_reported() {
    let line = "backtest -f examples/php-apache-dsp.yaml --request cpu=200m";
    for (rest, exit, expected) in [
        (
            "--csv tests/it/manifests/short.csv",
            Exit::Invalid,
            "the history covers 26h; at least 72h are required: two days to train and one to evaluate \
             (two weeks are better); provide a longer history, or set a shorter --warm-up",
        ),
        (
            "--csv examples/history/php-apache-cpu.csv --from 2026-02-28T23:59:00Z",
            Exit::Usage,
            "--from: the history begins at 2026-03-01T00:00:00Z; give a longer one (--last), or a later time",
        ),
        (
            "--csv examples/history/php-apache-cpu.csv --from 2026-04-01T00:00:00Z",
            Exit::Usage,
            "nothing to evaluate between 2026-04-01T00:00:00Z and 2026-03-06T00:00:00Z: the history \
             covers 2026-03-01T00:00:00Z to 2026-03-06T00:00:00Z",
        ),
        (
            "",
            Exit::Usage,
            "--csv FILE or --prometheus URL is required: the history of resource.cpu",
        ),
    ] {
        let line = format!("{line} {rest}");
        assert_eq!(failure(&line), (exit, expected.to_owned()), "{line}");
    }
    let short = format!("{line} --csv tests/it/manifests/short.csv --warm-up 24h -o json");
    let report = as_json(&short);
    let absent = &report["candidates"][0]["withoutForecast"][0];
    assert_eq!(absent["reason"], "InsufficientHistory", "{report}");
    assert_eq!(absent["minutes"], 120);
}

#[test]
fn the_demo_is_a_picture_and_a_summary_in_80_columns_and_28_lines() {
    for scene in ["shop", "batch", "surge"] {
        let text = run(&format!("demo --scene {scene}")).unwrap().text;
        assert_narrow(&text);
        assert!(text.lines().count() <= 28, "{text}");
    }
    matches_snapshot("demo.txt", &run("demo").unwrap().text);
    assert!(run("demo --ascii").unwrap().text.is_ascii());
}

const FULL: &str = "plan -f tests/it/manifests/full.yaml --at 2026-03-05T08:00:00Z -o json";

#[test]
fn each_metric_has_its_own_history_and_metrics_without_one_are_ignored() {
    let plan = as_json(&format!(
        "{FULL} --csv pods.requests={HISTORY} --csv external.queue={HISTORY} --replicas 2"
    ));
    let proposals = plan["decision"]["proposals"].as_array().unwrap();
    let names: Vec<_> = proposals
        .iter()
        .map(|p| (&p["source"], &p["name"]))
        .collect();
    let expected = json!([
        ["observed", "pods.requests"],
        ["observed", "external.queue"],
        ["forecast", "pods.requests"],
        ["forecast", "external.queue"],
        ["cron", "day"],
    ]);
    assert_eq!(json!(names), expected);
    let assumptions = plan["assumptions"].as_array().unwrap().iter();
    let left_out: Vec<_> = assumptions
        .filter_map(|it| it.as_str()?.strip_prefix("without "))
        .collect();
    let expected = [
        "resource.cpu: no history is given",
        "container-resource.memory.app: no history is given",
        "object.requests: no history is given",
    ];
    assert_eq!(left_out, expected);
}

#[test]
fn the_requests_of_a_pod_are_those_of_its_containers_and_sidecars() {
    let decision = |rest: &str| {
        let line = format!("{FULL} --csv resource.cpu={HISTORY} {rest}");
        as_json(&line)["decision"].clone()
    };
    let written = decision("-f tests/it/manifests/workload.yaml");
    assert_eq!(written, decision("--request cpu=200m"));
}

#[test]
fn a_workload_without_requests_is_reported_with_its_line() {
    let line = format!(
        "plan -f examples/php-apache-dsp.yaml -f tests/it/manifests/workload.yaml --csv {HISTORY}"
    );
    let (exit, message) = failure(&line);
    assert_eq!(exit, Exit::Invalid);
    let place = "tests/it/manifests/workload.yaml:15: ";
    assert!(message.starts_with(place), "{message}");
    assert!(
        message.contains("container \"app\" has no cpu request"),
        "{message}"
    );
}

#[test]
fn invalid_flags_are_a_usage_error() {
    for line in [
        "plan",
        "explain shop/web/x",
        "explain -A web",
        "explain --watch",
        "explain --history",
        "plan -f x --request cpu=0",
        "cron",
        "validate --all",
        "backtest -f x --fail-if under<1%",
        "backtest -f x --warm-up 1d --from 2026-03-02T12:00:00Z",
        "backtest -f x --sweep=0.4",
        "plan -f x --at 2026-03-02T12:00:00Z --from 2026-03-02T12:00:00Z",
        "demo --speed 2",
        "demo --web --speed 0",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

fn explained(ehpa: EffectiveHorizontalPodAutoscaler) -> String {
    let autoscaler = Autoscaler::Effective(Arc::new(ehpa));
    cli::explain::text(&autoscaler, PLAIN, &Zone::utc())
}

#[test]
fn an_explanation_shows_the_status_as_text() {
    let text = explained(autoscaler("tests/it/manifests/explained.yaml"));
    assert_narrow(&text);
    matches_snapshot("explain.txt", &text);
}

#[test]
fn an_explanation_as_json_holds_the_status() {
    let ehpa = autoscaler("tests/it/manifests/explained.yaml");
    let written: Value = serde_json::to_value(&ehpa).unwrap();
    let ehpa = Autoscaler::Effective(Arc::new(ehpa));
    let explained: Value = serde_json::from_str(&cli::explain::json(&ehpa).text).unwrap();
    assert_eq!(explained["kind"], "Explanation");
    assert_eq!(explained["apiVersion"], cli::API_VERSION);
    for part in ["decision", "windows", "conditions", "observedGeneration"] {
        assert_eq!(explained[part], written["status"][part], "{part}");
    }
}

#[test]
fn the_history_of_an_object_names_each_change_with_its_reason() {
    let text = run("explain -f tests/it/manifests/explained.yaml --history");
    assert_eq!(
        text.unwrap().text,
        "Thu 2026-03-05 07:00 UTC  6 → 10\n  \
         10 replicas: the forecast for cpu (1.185 cores over the next 60 min at 0.1 per\n  \
         replica) asks for 12, above observed 6; capped at maxReplicas 10\n\
         Thu 2026-03-05 06:58 UTC  3 → 6\n  \
         6 replicas: cpu at 88 % against a target of 50 % asks for 6, above forecast 5\n"
    );
}

#[test]
fn an_object_in_conflict_is_explained_with_that_it_does_not_act_first() {
    let mut ehpa = autoscaler("tests/it/manifests/explained.yaml");
    let ready = &mut ehpa.status.as_mut().unwrap().conditions.as_mut().unwrap()[0];
    ready.status = "False".into();
    ready.reason = "TargetConflict".into();
    ready.message = "not acting: horizontalpodautoscaler web scales the same target".into();
    let text = explained(ehpa);
    let lines: Vec<_> = text.lines().take(7).collect();
    assert_eq!(
        lines,
        [
            "shop/php-apache  Deployment php-apache, 1 to 10 replicas, Auto, not acting",
            "",
            "Ready False TargetConflict",
            "  not acting: horizontalpodautoscaler web scales the same target",
            "  Suggested action: delete one of the two, adopt the HPA, or add the KEDA",
            "  trigger that the message names",
            "",
        ]
    );
    assert_eq!(text.matches("TargetConflict").count(), 1);
    assert!(
        text.contains("Not written: would scale from 6 to 10."),
        "{text}"
    );
}

#[test]
fn an_object_without_a_status_is_explained_with_what_to_check() {
    let text = explained(autoscaler("examples/php-apache-dsp.yaml"));
    assert_eq!(
        text,
        "/php-apache  Deployment php-apache, 1 to 10 replicas, Auto\n\n\
         No decision and no status yet: check that the controller runs and watches this\n\
         namespace.\n"
    );
}

#[test]
fn an_invalid_spec_is_explained_too() {
    let mut ehpa = autoscaler("examples/php-apache-dsp.yaml");
    ehpa.spec.min_replicas = Some(99);
    let text = explained(ehpa);
    assert!(text.contains("invalid: spec.minReplicas is 99"), "{text}");
}

#[test]
fn a_line_break_in_the_name_of_a_target_begins_no_line() {
    let mut ehpa = autoscaler("examples/php-apache-dsp.yaml");
    ehpa.spec.scale_target_ref.name = "web\ninvalid: nothing".into();
    let text = explained(ehpa);
    assert!(
        text.contains("Deployment web\\u000ainvalid: nothing, 1 to"),
        "{text}"
    );
}

#[test]
fn crds_are_printed_as_one_stream_of_yaml() {
    let text = run("crds").unwrap().text;
    let definitions: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&text).unwrap();
    let kinds: Vec<_> = definitions
        .iter()
        .map(|d| d.spec.names.kind.as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "EffectiveHorizontalPodAutoscaler",
            "FederatedHPA",
            "TimeSeriesPrediction"
        ]
    );
}

#[test]
fn the_next_firings_are_counted_from_now() {
    let output = run("cron next --expr @daily -n 1 -o json").unwrap();
    let firings: Value = serde_json::from_str(&output.text).unwrap();
    assert_eq!(firings["items"][0]["at"], "2026-03-03T00:00:00Z");
    let (exit, message) = failure("cron next --expr @never");
    assert_eq!(exit, Exit::Usage);
    assert!(message.starts_with("--expr is invalid: "), "{message}");
}

#[test]
fn every_shell_completes_and_every_command_has_a_page() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&format!("completions {shell}")).unwrap().text;
        assert!(
            script.contains("backtest") && script.contains("fail-if"),
            "{shell}"
        );
    }
    for (command, name) in [
        ("", "foretide"),
        ("backtest", "foretide-backtest"),
        ("cron next", "foretide-cron-next"),
    ] {
        let page = run(&format!("man {command}")).unwrap().text;
        let version = env!("CARGO_PKG_VERSION");
        let title = format!(".TH {name} 1  \"foretide {version}\" \n");
        assert!(page.contains(&title), "{page}");
    }
}
