//! Reports as pages, sweeps over quantiles, and back-tests of texts: all have the figures of `backtest -o json`.

use std::{fs, ops::ControlFlow};

use foretide::cli::backtest::lab::{self, LabReport};
use foretide_page::api::{Changes, Experiment, MetricHistory, NamedText};
use proptest::prelude::*;

use super::*;

const AUTOSCALER: &str = "examples/php-apache.yaml";
const DEPLOYMENT: &str = "examples/php-apache-deployment.yaml";
const LINE: &str = "backtest -f examples/php-apache.yaml -f examples/php-apache-deployment.yaml \
                    --csv examples/history/php-apache-cpu.csv --from 2026-03-05T00:00:00Z";
const SCRIPT: &str = "<script>alert('1')</script>";

fn named(name: &str) -> NamedText {
    NamedText {
        name: name.to_owned(),
        text: fs::read_to_string(name).unwrap(),
    }
}

/// The experiment of [`LINE`].
fn experiment() -> Experiment {
    Experiment {
        manifests: vec![named(AUTOSCALER), named(DEPLOYMENT)],
        histories: vec![MetricHistory {
            metric: None,
            name: HISTORY.to_owned(),
            text: fs::read_to_string(HISTORY).unwrap(),
        }],
        from: Some("2026-03-05T00:00:00Z".parse().unwrap()),
        ..Experiment::default()
    }
}

fn result(experiment: &Experiment) -> Result<LabReport, Failure> {
    watched(experiment, |_| ControlFlow::Continue(()))
}

/// The result of an experiment that tells its progress to `watch`.
fn watched(
    experiment: &Experiment,
    mut watch: impl FnMut(f64) -> ControlFlow<()>,
) -> Result<LabReport, Failure> {
    lab::run(experiment, &context(NOW.parse().unwrap()), &mut watch)
}

/// The exact values in the row of a page's table that begins with `name`, in the table with this caption.
fn row(html: &str, caption: &str, name: &str) -> Vec<String> {
    let (_, table) = html.split_once(caption).unwrap();
    let (table, _) = table.split_once("</table>").unwrap();
    let row = table.split("<tr>").find(|row| row.contains(name));
    let values = row.unwrap().split("<data value=\"").skip(1);
    let value = |rest: &str| rest.split_once('"').unwrap().0.to_owned();
    values.map(value).collect()
}

fn figures(of: &Value, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| of[name].to_string()).collect()
}

const SCORE: [&str; 5] = [
    "underProvisionedMinutes",
    "underProvisionedPercent",
    "missingPercent",
    "replicaHours",
    "scaleActions",
];

#[test]
fn the_page_of_a_backtest_has_the_figures_of_its_json() {
    let json = as_json(&format!("{LINE} --sweep=0.5,0.99 -o json"));
    let html = run(&format!("{LINE} --sweep=0.5,0.99 -o html"))
        .unwrap()
        .text;
    for candidate in json["candidates"].as_array().unwrap() {
        let name = candidate["name"].as_str().unwrap();
        let of_page = row(&html, "minutes with a known demand", &format!(">{name}<"));
        assert_eq!(of_page, figures(candidate, &SCORE));
    }
    for quantile in json["sweep"].as_array().unwrap() {
        let name = format!("<data value=\"{}\">", quantile["quantile"]);
        let names = [&["quantile"], SCORE.as_slice(), &["replicaHoursPercent"]].concat();
        let of_page = row(&html, "spec.prediction.quantile", &name);
        assert_eq!(of_page, figures(quantile, &names));
    }
    let plain = &json["candidates"][1];
    for minute in plain["worstMinutes"].as_array().unwrap() {
        let names = ["demand", "neededReplicas", "readyReplicas", "askedReplicas"];
        let at = minute["at"].as_str().unwrap();
        assert_eq!(
            row(&html, "where the most replicas", at),
            figures(minute, &names)
        );
    }
    for hour in plain["worstHours"].as_array().unwrap() {
        let names = [
            "underProvisionedMinutes",
            "missingReplicaMinutes",
            "neededReplicas",
            "readyReplicas",
        ];
        let at = hour["at"].as_str().unwrap();
        assert_eq!(row(&html, "where the most was", at), figures(hour, &names));
    }
    let sentences = json["assumptions"].as_array().unwrap();
    let sentences = sentences.iter().chain([&json["difference"]["message"]]);
    for sentence in sentences {
        assert!(html.contains(sentence.as_str().unwrap()), "{sentence}");
    }
}

/// Fails unless every element of a document is closed in order; those without content are left out.
fn assert_balanced(html: &str) {
    let mut open = Vec::new();
    for tag in html.split('<').skip(1) {
        let name = tag.split([' ', '>', '\n']).next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "{tag}"),
            None if matches!(name, "!doctype" | "meta") => {}
            None if tag.split('>').next().unwrap_or_default().ends_with('/') => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn a_page_is_one_file_that_runs_and_loads_nothing() {
    let expected = format!("{} -o html", LINE.replace("backtest", "plan"));
    for line in [format!("{LINE} -o html"), expected] {
        let html = run(&line).unwrap().text;
        assert_balanced(&html);
        assert!(html.starts_with("<!doctype html>"));
        assert!(html.contains("default-src 'none'") || html.contains("default-src &#39;none&#39;"));
        for loads in ["<script", " src=", " href=", "@import", "url(", "http:"] {
            let found = html.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(loads), "{loads} in {line}");
        }
        // Styles for paper and for a dark screen.
        assert!(html.contains("@media print") && html.contains("prefers-color-scheme:dark"));
    }
}

/// [`experiment`] with an external metric, and this text wherever a person may write one.
fn hostile(text: &str) -> Experiment {
    let quoted = serde_json::to_string(text).unwrap();
    let metric = format!(
        "metrics: [{{type: External, external: {{metric: {{name: {quoted}}}, target: {{type: AverageValue, \
         averageValue: 100m}}}}}}]"
    );
    let manifest = format!(
        "apiVersion: autoscaling.crane.io/v1alpha1\nkind: EffectiveHorizontalPodAutoscaler\nmetadata:\n  name: web\n  \
         annotations: {{note: {quoted}}}\nspec:\n  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: \
         {quoted}}}\n  maxReplicas: 8\n  prediction: {{}}\n  {metric}\n"
    );
    let mut experiment = experiment();
    experiment.manifests = vec![NamedText {
        name: text.to_owned(),
        text: manifest,
    }];
    text.clone_into(&mut experiment.histories[0].name);
    experiment
}

#[test]
fn what_people_write_is_shown_as_text() {
    let html = result(&hostile(SCRIPT)).unwrap().html().unwrap();
    assert_balanced(&html);
    assert!(!html.contains("<script"));
    let shown = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;";
    for place in [
        format!("web: Deployment {shown}"),
        format!("external.{shown}</td>"),
        format!("note: {shown}"),
    ] {
        assert!(html.contains(&place), "{place}");
    }
}

#[test]
fn a_lab_has_exactly_the_output_of_the_command() {
    let lab = result(&Experiment {
        sweep: vec![0.99, 0.5],
        ..experiment()
    });
    let lab = lab.unwrap();
    for (output, of_lab) in [("json", lab.json()), ("html", lab.html().unwrap())] {
        let of_command = run(&format!("{LINE} --sweep=0.5,0.99 -o {output}")).unwrap();
        assert!(of_lab == of_command.text, "{output} differs");
    }
}

#[test]
fn a_changed_lab_has_exactly_the_output_for_its_manifest() {
    let changes = Changes {
        min_replicas: Some(3),
        max_replicas: Some(9),
        quantile: Some(0.7),
        lead_time_seconds: Some(300),
        algorithm: Some(foretide_crds::AlgorithmType::SeasonalNaive),
    };
    let lab = result(&Experiment {
        changes,
        ..experiment()
    });
    let lab = lab.unwrap();
    let manifest = lab.manifest().unwrap();
    for changed in [
        "minReplicas: 3\n",
        "maxReplicas: 9\n",
        "quantile: 0.7\n",
        "leadTimeSeconds: 300\n",
        "algorithmType: seasonalNaive\n",
    ] {
        assert!(manifest.contains(changed), "{changed} in {manifest}");
    }
    let line = LINE.replace(AUTOSCALER, &written("changed.yaml", manifest));
    assert_eq!(lab.json(), run(&format!("{line} -o json")).unwrap().text);
    assert_ne!(lab.json(), run(&format!("{LINE} -o json")).unwrap().text);
    assert_eq!(as_json(&format!("{line} -o json"))["bounds"]["min"], 3);
}

#[test]
fn a_report_of_an_hpa_has_a_manifest_that_only_previews() {
    let mut experiment = experiment();
    experiment.manifests = vec![named("tests/it/manifests/hpa.yaml")];
    experiment.requests = vec!["cpu=200m".to_owned()];
    let manifest = result(&experiment).unwrap().manifest().unwrap();
    assert!(manifest.contains("scaleStrategy: Preview\n"), "{manifest}");
    let shown = manifest.replace('"', "&quot;");
    for command in ["backtest", "plan"] {
        let line = format!(
            "{command} -f tests/it/manifests/hpa.yaml --request cpu=200m --csv {HISTORY} --from 2026-03-05T00:00:00Z"
        );
        let html = run(&format!("{line} -o html")).unwrap().text;
        assert!(html.contains(&shown), "{command}");
    }
}

#[test]
fn the_quantile_in_force_has_the_same_score_in_a_sweep() {
    let json = as_json(&format!("{LINE} --sweep -o json"));
    let sweep = json["sweep"].as_array().unwrap();
    let quantiles: Vec<_> = sweep.iter().map(|it| it["quantile"].as_f64()).collect();
    let expected = [0.5, 0.7, 0.8, 0.9, 0.94, 0.99].map(Some);
    assert_eq!(quantiles, expected);
    assert_eq!(
        figures(&sweep[4], &SCORE),
        figures(&json["candidates"][0], &SCORE)
    );
    let hours: Vec<_> = sweep.iter().map(|it| it["replicaHours"].as_f64()).collect();
    assert!(hours.is_sorted() && hours[0] < hours[5], "{hours:?}");
    let text = run(&format!("{LINE} --sweep")).unwrap().text;
    assert_narrow(&text);
    assert!(text.contains("\n    0.94 "), "{text}");
}

#[test]
fn a_sweep_needs_a_forecast_with_a_quantile() {
    let (exit, message) = failure(&format!("{BACKTEST} --sweep"));
    assert_eq!(exit, Exit::Usage);
    let expected = "--sweep: spec.prediction.quantile is 0.5, expected unset, or";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn a_lab_tells_its_progress_and_stops_when_it_is_asked_to() {
    let experiment = Experiment {
        sweep: vec![0.5, 0.9],
        ..experiment()
    };
    let mut told = Vec::new();
    let done = watched(&experiment, |fraction| {
        told.push(fraction);
        ControlFlow::Continue(())
    });
    assert!(done.is_ok() && told.is_sorted());
    assert!((told.last().unwrap() - 1.0).abs() < 1e-9, "{told:?}");
    // Stops in the first run, in that of the baseline, and in the sweep.
    for limit in [0.1, 1.0 / 3.0, 0.6] {
        let stopped = watched(&experiment, |fraction| {
            if fraction >= limit - 1e-9 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let message = stopped.unwrap_err().message;
        assert_eq!(message, "the back-test was stopped before its end");
    }
}

#[test]
fn what_a_lab_cannot_use_is_reported_with_its_flag() {
    let error = |change: &dyn Fn(&mut Experiment)| {
        let mut experiment = experiment();
        change(&mut experiment);
        result(&experiment).unwrap_err().message
    };
    let quantile = error(&|it| it.changes.quantile = Some(2.0));
    assert!(quantile.contains("quantile must be between"), "{quantile}");
    for (message, expected) in [
        (
            error(&|it| it.manifests[0].text = " ".repeat((3 << 20) + 1)),
            "the manifests have 4 MiB, expected at most 3 MiB",
        ),
        (
            error(&|it| it.histories[0].text = "0,1\n".repeat(7 << 20)),
            "the histories have 28 MiB, expected at most 24 MiB",
        ),
        (
            error(&|it| it.histories[0].metric = Some("resource.memory".to_owned())),
            "--csv: a history of resource.memory; use --csv METRIC=FILE, where METRIC is one of resource.cpu",
        ),
        (
            error(&|it| it.histories.clear()),
            "--csv FILE or --prometheus URL is required: the history of resource.cpu",
        ),
        (
            error(&|it| it.requests = vec!["cpu".to_owned()]),
            "--request: expected RESOURCE=QUANTITY such as cpu=200m, got \"cpu\"",
        ),
        (
            error(&|it| it.warm_up = Some("2d".to_owned())),
            "--from and --warm-up exclude each other; give one of them",
        ),
        (
            error(&|it| it.sweep = vec![1.0]),
            "--sweep: expected quantiles from 0.5 to 0.999, got 1",
        ),
        (
            error(&|it| it.manifests.clear()),
            "no EffectiveHorizontalPodAutoscaler, HorizontalPodAutoscaler or ScaledObject in the manifests; add its file \
             with -f",
        ),
    ] {
        assert_eq!(message, expected);
    }
}

#[test]
fn an_experiment_is_read_from_json() {
    let sent = json!({
        "manifests": [named(AUTOSCALER), named(DEPLOYMENT)],
        "histories": [{ "name": HISTORY, "text": fs::read_to_string(HISTORY).unwrap() }],
        "from": "2026-03-05T00:00:00Z",
    });
    let read: Experiment = serde_json::from_value(sent).unwrap();
    assert_eq!(read, experiment());
    assert!(serde_json::from_value::<Experiment>(json!({ "files": ["/etc/passwd"] })).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_makes_a_lab_panic(manifest in any::<String>(), history in any::<String>()) {
        let mut experiment = experiment();
        experiment.manifests[0].text = manifest;
        let _refused = result(&experiment).is_err();
        let mut experiment = super::report::experiment();
        experiment.histories[0].text = history;
        let _refused = result(&experiment).is_err();
    }
}
