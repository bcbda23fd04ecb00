//! Mistakes in files and flags, each with its exact answer: the place, and the expected input.

use std::{fs, path::Path};

use foretide::cli::Exit;

use super::{failure, parse, run};

/// Files and the answers of `validate`; the beginning of the file describes the format.
const CASES: &str = include_str!("../manifests/bad-input.txt");

/// Manifest above a case under `spec`.
const HEAD: &str = "\
apiVersion: autoscaling.crane.io/v1alpha1
kind: EffectiveHorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
";

/// An empty folder for a test.
fn folder(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _absent = fs::remove_dir_all(&folder).is_err();
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The exit code and the text of `validate` for a file of this content.
fn validated(folder: &Path, content: &[u8], flags: &str) -> (Exit, String) {
    let file = folder.join("web.yaml");
    fs::write(&file, content).unwrap();
    let output = run(&format!("validate {flags} -f {}", file.display())).unwrap();
    let text = output.text.replace(&format!("{}/", folder.display()), "");
    (output.exit, text)
}

#[test]
fn each_mistake_in_a_file_is_answered_with_line_field_and_what_was_expected() {
    let folder = folder("bad-input");
    let cases: Vec<_> = CASES.split("\n## ").skip(1).collect();
    assert!(cases.len() >= 60, "{}", cases.len());
    for case in cases {
        let (kind, case) = case.split_once('\n').unwrap();
        let (answer, content): (Vec<_>, Vec<_>) = case
            .trim_end_matches('\n')
            .lines()
            .partition(|line| line.starts_with("=> "));
        let head = if kind == "spec" { HEAD } else { "" };
        let content: String = content.iter().flat_map(|line| [*line, "\n"]).collect();
        let expected = answer.iter().map(|line| format!("{}\n", &line[3..]));
        let found = validated(&folder, format!("{head}{content}").as_bytes(), "");
        assert_eq!(found, (Exit::Invalid, expected.collect()), "{content}");
    }
}

#[test]
fn a_forecast_of_memory_is_warned_of_unless_none_is_asked_for() {
    let folder = folder("undivided");
    let metric = |name| {
        format!(
            "  - type: Resource\n    resource: {{name: {name}, target: {{type: AverageValue, averageValue: 1Gi}}}}\n"
        )
    };
    let spec = format!(
        "{HEAD}  maxReplicas: 9\n  metrics:\n{}{}",
        metric("cpu"),
        metric("memory")
    );
    let warned = "web.yaml:10: warning: spec.metrics[1]: no forecast of resource.memory is made until the controller has seen its \
                  total stay the same when pods come and go; until then only its current value counts, as in an HPA\n1 \
                  autoscaler valid, 0 errors, 1 warning\n";
    for (prediction, expected) in [
        ("", "1 autoscaler valid, 0 errors, 0 warnings\n"),
        ("  prediction: {}\n", warned),
    ] {
        let found = validated(&folder, format!("{spec}{prediction}").as_bytes(), "");
        assert_eq!(found, (Exit::Ok, expected.to_owned()));
    }
}

#[test]
fn what_holds_nothing_of_foretide_is_refused_and_what_holds_some_is_not() {
    let folder = folder("nothing-to-validate");
    let empty = run(&format!("validate -f {}", folder.display())).unwrap();
    assert_eq!(empty.exit, Exit::Invalid);
    let expected = "error: nothing to validate: no .yaml, .yml or .json file in this folder\n";
    assert!(empty.text.contains(expected), "{}", empty.text);
    let (exit, text) = validated(&folder, &[0xff, 0xfe, 0x00], "");
    let expected = "web.yaml: error: not a text file; expected UTF-8\n0 autoscalers valid, 1 error, 0 warnings\n";
    assert_eq!((exit, text.as_str()), (Exit::Invalid, expected));

    let valid = format!("{HEAD}  maxReplicas: 9\n");
    let deployment = "---\napiVersion: apps/v1\nkind: Deployment\n";
    let (exit, text) = validated(&folder, format!("{valid}{deployment}").as_bytes(), "");
    let expected =
        "1 autoscaler valid, 0 errors, 0 warnings; 1 other object skipped (Deployment)\n";
    assert_eq!((exit, text.as_str()), (Exit::Ok, expected));
    // An empty file beside it is no mistake.
    fs::write(folder.join("later.yaml"), "# to do\n").unwrap();
    let output = run(&format!("validate -f {}", folder.display())).unwrap();
    assert_eq!((output.exit, output.text.as_str()), (Exit::Ok, expected));
}

#[test]
fn a_warning_is_an_error_under_strict() {
    let folder = folder("strict");
    let prediction = "apiVersion: prediction.crane.io/v1alpha1\nkind: TimeSeriesPrediction\nmetadata: {name: web}\nspec: {}\n";
    let remark = "no autoscaler owns this TimeSeriesPrediction, so the controller does not update it (reason NotManaged); \
                  set spec.prediction of an autoscaler to get a forecast";
    let (exit, text) = validated(&folder, prediction.as_bytes(), "");
    let expected = format!(
        "web.yaml:1: warning: {remark}\n1 TimeSeriesPrediction valid, 0 errors, 1 warning\n"
    );
    assert_eq!((exit, text), (Exit::Ok, expected));
    let (exit, text) = validated(&folder, prediction.as_bytes(), "--strict");
    let expected =
        format!("web.yaml:1: error: {remark}\n0 autoscalers valid, 1 error, 0 warnings\n");
    assert_eq!((exit, text), (Exit::Invalid, expected));
    // Written as the controller writes it.
    let controller = "{apiVersion: v1, kind: X, name: web, uid: u, controller: true}";
    let owned = prediction.replace(
        "{name: web}",
        &format!("{{name: web, ownerReferences: [{controller}]}}"),
    );
    let expected = "1 TimeSeriesPrediction valid, 0 errors, 0 warnings\n".to_owned();
    assert_eq!(
        validated(&folder, owned.as_bytes(), "--strict"),
        (Exit::Ok, expected)
    );
}

/// Command lines that cannot be parsed, with the messages.
const FLAGS: [(&str, &str); 14] = [
    (
        "cron next --expr @daily -n -1",
        "invalid value '-1' for '--count <COUNT>': -1 is not in 1..=1000",
    ),
    (
        "cron next --expr @daily -n 100000000000",
        "invalid value '100000000000' for '--count <COUNT>': 100000000000 is not in 1..=1000",
    ),
    (
        "plan -f x --replicas -4",
        "invalid value '-4' for '--replicas <N>': -4 is not in 0..=10000",
    ),
    (
        "plan -f x --replicas 9999999999",
        "invalid value '9999999999' for '--replicas <N>': 9999999999 is not in 0..=10000",
    ),
    (
        "plan -f x --at tomorrow",
        "invalid value 'tomorrow' for '--at <TIME>': expected a date, a time and a zone, such as 2026-03-08T09:00:00Z or 2026-03-08T09:00:00+01:00",
    ),
    (
        "assign -f x --clusters y --at 2026-03-08T09:00",
        "invalid value '2026-03-08T09:00' for '--at <TIME>': expected a date, a time and a zone, such as 2026-03-08T09:00:00Z or 2026-03-08T09:00:00+01:00",
    ),
    (
        "backtest -f x --from 2027-01-01",
        "invalid value '2027-01-01' for '--from <TIME>': expected a date, a time and a zone, such as 2027-01-01T09:00:00Z or 2027-01-01T09:00:00+01:00",
    ),
    (
        "backtest -f x --until 2027",
        "invalid value '2027' for '--until <TIME>': expected a date, a time and a zone, such as 2026-03-08T09:00:00Z or 2026-03-08T09:00:00+01:00",
    ),
    (
        "backtest -f x --start-up 99999h",
        "invalid value '99999h' for '--start-up <DURATION>': expected at most a day, such as 90s or 5m, got \"99999h\"",
    ),
    (
        "backtest -f x --start-up -5m",
        "invalid value '-5m' for '--start-up <DURATION>': expected a duration such as 90s, 5m, 12h or 7d, got \"-5m\"",
    ),
    (
        "forecast --csv x --ahead 59s",
        "invalid value '59s' for '--ahead <DURATION>': expected between 1m and 366d, got \"59s\"",
    ),
    (
        "forecast --csv x --ahead 367d",
        "invalid value '367d' for '--ahead <DURATION>': expected between 1m and 366d, got \"367d\"",
    ),
    // The past is drawn three times as long, which is more than a duration can hold.
    (
        "forecast --csv x --ahead 100000000000000d",
        "invalid value '100000000000000d' for '--ahead <DURATION>': expected between 1m and 366d, got \"100000000000000d\"",
    ),
    ("completions tcsh", "invalid value 'tcsh' for '<SHELL>'"),
];

/// Command lines that fail, with their exit codes and messages.
const FAILURES: [(&str, Exit, &str); 10] = [
    (
        "cron next --expr @daily --from 2027-13-01",
        Exit::Usage,
        "--from `2027-13-01` is not a time: expected 2026-03-08T09:00 or 2026-03-08T09:00:00Z",
    ),
    (
        "cron next --expr @daily --tz Mars/Phobos",
        Exit::Usage,
        "--tz is invalid: time zone `Mars/Phobos` is unknown: expected an IANA name such as Europe/Berlin, UTC, Local, or nothing for UTC",
    ),
    (
        "man bactest",
        Exit::Usage,
        "foretide has no command bactest; expected one of demo, controller, plan, backtest, forecast, convert, assign, explain, validate, cron, ui, members, crds, completions, man, help",
    ),
    (
        "man plan next",
        Exit::Usage,
        "plan has no command next; it has no commands",
    ),
    (
        "explain -f /dev/null",
        Exit::Invalid,
        "expected one EffectiveHorizontalPodAutoscaler or FederatedHPA, found no object",
    ),
    (
        "explain -f tests/it/manifests/broken.csv",
        Exit::Invalid,
        "expected one EffectiveHorizontalPodAutoscaler or FederatedHPA, found an object without kind",
    ),
    (
        "explain -f examples/php-apache-deployment.yaml",
        Exit::Invalid,
        "expected one EffectiveHorizontalPodAutoscaler or FederatedHPA, found Deployment",
    ),
    (
        "convert -f tests/it/manifests/hpa.yaml --name misspelt",
        Exit::Invalid,
        "no HorizontalPodAutoscaler or ScaledObject misspelt in the manifests",
    ),
    (
        "plan -f tests/it/manifests/broken.yaml --name misspelt",
        Exit::Invalid,
        "tests/it/manifests/broken.yaml:6: spec.maxReplicas: is required\ntests/it/manifests/broken.yaml:9: spec.maxReplicass: no such field; check the spelling and the indentation",
    ),
    (
        "plan -f nowhere.yaml",
        Exit::Invalid,
        "nowhere.yaml: cannot be read: No such file or directory (os error 2)",
    ),
];

#[test]
fn each_mistake_in_a_flag_is_answered_with_the_flag_and_what_was_expected() {
    for (line, expected) in FLAGS {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        let text = error.to_string();
        let first = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("error: "));
        assert_eq!(first, Some(expected), "{line}");
    }
    for (line, exit, expected) in FAILURES {
        assert_eq!(failure(line), (exit, expected.to_owned()), "{line}");
    }
}
