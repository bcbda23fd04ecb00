//! `foretide plan --from --to`: the replicas to expect over a span.

use super::*;

const LINE: &str = "plan -f examples/php-apache.yaml -f examples/php-apache-deployment.yaml \
                    --csv examples/history/php-apache-cpu.csv";
const CRONS: &str = "plan -f examples/php-apache-local.yaml --replicas 3";
const THURSDAY: &str = "--from 2026-03-05T00:00:00Z --to 2026-03-06T00:00:00Z";

#[test]
fn a_span_is_shown_in_80_columns_with_the_reason_of_every_change() {
    let text = run(&format!("{LINE} {THURSDAY}")).unwrap().text;
    assert_narrow(&text);
    matches_snapshot("plan-ahead.txt", &text);
    let ascii = run(&format!("{LINE} {THURSDAY} --ascii")).unwrap().text;
    assert!(ascii.is_ascii(), "{ascii}");
}

#[test]
fn a_span_has_the_same_counts_as_json_and_as_csv() {
    for line in [
        format!("{LINE} {THURSDAY}"),
        format!("{CRONS} --from 2026-03-05T05:30:00Z --to 2026-03-07T00:00:00Z"),
    ] {
        let json = as_json(&format!("{line} -o json"));
        assert_eq!(json["kind"], "ExpectedReplicas");
        let csv = run(&format!("{line} -o csv")).unwrap().text;
        let rows = csv.lines().skip(1).map(|row| row.split(',').collect());
        let rows: Vec<Vec<&str>> = rows.collect();
        let mut changes = Vec::new();
        for row in &rows {
            if changes.last().is_none_or(|(_, count, _)| *count != row[1]) {
                changes.push((row[0], row[1], row[3]));
            }
        }
        let of_json = json["changes"].as_array().unwrap().iter();
        let of_json: Vec<_> = of_json
            .map(|it| json!([it["at"], it["to"].to_string(), it["source"]]))
            .collect();
        assert_eq!(json!(of_json), json!(changes), "{line}");
        let minutes = rows.iter().map(|row| row[1].parse::<f64>().unwrap());
        let hours = minutes.sum::<f64>() / 60.0;
        assert!((json["replicaHours"].as_f64().unwrap() - hours).abs() < 1e-6);
    }
}

#[test]
fn a_span_begins_with_the_floor_of_the_decision_at_that_time() {
    for at in [
        "2026-03-05T00:00:00Z",
        "2026-03-05T08:00:00Z",
        "2026-03-05T20:30:00Z",
    ] {
        let decision = as_json(&format!("{LINE} --at {at} -o json"));
        let ahead = as_json(&format!("{LINE} --from {at} -o json"));
        let first = &ahead["changes"][0];
        assert_eq!(first["to"], decision["decision"]["floor"], "{at}");
        assert_eq!(
            (first["at"].as_str(), ahead["knownAt"].as_str()),
            (Some(at), Some(at))
        );
    }
}

#[test]
fn a_forecast_reaches_a_week_and_cron_windows_a_year() {
    let reached = "2026-03-12T23:00:00Z";
    let json = as_json(&format!("{LINE} --to {reached} -o json"));
    assert!(json["forecastUntil"].as_str() >= Some(reached));
    assert!(json["changes"].as_array().unwrap().len() > 70);
    let far = format!("{LINE} --to 2026-04-01T00:00:00Z");
    let with_crons = far.replace("php-apache.yaml", "php-apache-multi-dimensions.yaml");
    assert!(run(&format!("{with_crons} -o json")).is_ok());
    for (line, expected) in [
        (
            far,
            "--to 2026-04-01T00:00:00Z: a forecast of 2026-03-06T00:00:00Z reaches to 2026-03-13T00:58:00Z; choose an \
             earlier time (only cron windows are known further ahead, and spec.crons has none)",
        ),
        (
            format!("{LINE} --from 2026-03-05T08:00:00Z --to 2026-03-05T08:00:00Z"),
            "--to 2026-03-05T08:00:00Z: expected a time after 2026-03-05T08:00:00Z, where the span begins",
        ),
        (
            format!("{LINE} --from 2026-02-01T08:00:00Z"),
            "--from 2026-02-01T08:00:00Z is before the history begins, at 2026-03-01T00:00:00Z",
        ),
        (
            format!("{CRONS} --to 2028-03-05T08:00:00Z"),
            "--to 2028-03-05T08:00:00Z: 733 days after 2026-03-02T12:00:00Z, expected at most 366",
        ),
    ] {
        assert_eq!(failure(&line), (Exit::Usage, expected.to_owned()));
    }
}

#[test]
fn a_workload_of_metrics_alone_has_nothing_to_expect() {
    let text = std::fs::read_to_string("examples/php-apache.yaml").unwrap();
    let file = written("metrics-alone.yaml", text.replace("  prediction: {}\n", ""));
    let line = LINE.replace("examples/php-apache.yaml", &file);
    let expected = "--from and --to need spec.prediction or spec.crons: what metrics will ask for is not known ahead";
    let found = failure(&format!("{line} {THURSDAY}"));
    assert_eq!(found, (Exit::Usage, expected.to_owned()));
}

#[test]
fn a_span_is_drawn_with_its_cron_windows() {
    let line = format!("{CRONS} --from 2026-03-05T05:30:00Z --to 2026-03-06T00:00:00Z -o svg");
    let svg = run(&line).unwrap().text;
    assert!(svg.starts_with("<svg") && svg.contains("data-layer=\"expected\""));
    assert!(svg.contains("cron2"), "the name of the window");
}
