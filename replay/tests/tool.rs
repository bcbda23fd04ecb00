//! The tool as it is used: the scores of the synthetic traces are those of the golden file, forecasts that are exported
//! score as their candidate does, and what cannot be read is an error that names it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot write or read its files fails"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The methods that the golden file has.
const METHODS: [&str; 11] = [
    "hpa",
    "hpa+10%",
    "snaive-day",
    "median-7d+10%",
    "persist+conformal q=0.9",
    "dsp-W60",
    "auto q=0.5",
    "auto q=0.9",
    "auto q=0.97",
    "auto objective a=1 %",
    "auto (golden) q=0.9",
];

/// The rows of a file: the scores by all columns before them.
type Rows = BTreeMap<String, Vec<f64>>;

/// A folder of this test's own with the synthetic traces.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn tool(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foretide-replay"))
        .arg(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn passes(folder: &Path, arguments: &[&str]) -> String {
    let output = tool(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn fails(folder: &Path, arguments: &[&str]) -> String {
    let output = tool(folder, arguments);
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn rows(path: &Path) -> Rows {
    let text = fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let (key, scores) = fields.split_at(5);
        let scores = scores.iter().map(|score| score.parse().unwrap()).collect();
        (key.join(","), scores)
    };
    text.lines().skip(1).map(row).collect()
}

fn method(key: &str) -> &str {
    key.rsplit_once(',').unwrap().1
}

#[test]
fn the_scores_of_the_synthetic_traces_are_those_of_the_golden_file() {
    let folder = folder("golden");
    let csv = folder.join("rows.csv");
    let text = passes(&folder, &["--synthetic", "--csv", csv.to_str().unwrap()]);
    assert!(text.contains("| auto | band-last | "), "{text}");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden.csv");
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        let text = fs::read_to_string(&csv).unwrap();
        let kept = text.lines().enumerate().filter(|(at, line)| {
            let method = line.split(',').nth(4).unwrap();
            *at == 0 || METHODS.contains(&method)
        });
        let kept: String = kept.flat_map(|(_, line)| [line, "\n"]).collect();
        fs::write(&golden, kept).unwrap();
    }
    let (mut seen, expected) = (rows(&csv), rows(&golden));
    seen.retain(|key, _| METHODS.contains(&method(key)));
    // Three traces, three start-ups, four rules.
    assert_eq!(expected.len(), 36 * METHODS.len());
    assert!(seen.keys().eq(expected.keys()));
    for (key, expected) in expected {
        // A model that adds in another order is the same model.
        let tolerance = if method(&key).starts_with("auto") {
            1e-2
        } else {
            2e-6
        };
        for (seen, expected) in seen[&key].iter().zip(&expected) {
            assert!(
                (seen - expected).abs() <= tolerance * expected.abs().max(1.0),
                "{key}: {seen}, expected {expected}; UPDATE=1 cargo test -p foretide-replay rewrites the golden file"
            );
        }
    }
}

#[test]
fn exported_forecasts_score_as_their_candidate_does() {
    let folder = folder("exported");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (csv, exported) = (path("rows.csv"), path("mine.csv"));
    let one = ["--trace", "bursts", "--history", "3m"];
    let all = [&["--synthetic", "--export", "auto", &exported], &one[..]].concat();
    assert_eq!(passes(&folder, &all), "");
    let all = [&["--contender", &exported, "--csv", &csv], &one[..]].concat();
    let text = passes(&folder, &all);
    assert!(text.contains("on a history of 3 min"), "{text}");
    let rows = rows(Path::new(&csv));
    let mut compared = 0;
    for (key, mine) in &rows {
        if method(key).starts_with("mine q=") {
            let theirs = &rows[&key.replace("mine q=", "auto q=")];
            assert_eq!(mine, theirs, "{key}");
            compared += 1;
        }
    }
    assert_eq!(compared, 13 * 3 * 4);
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = folder("unreadable");
    let missing = fails(&folder, &[]);
    assert!(
        missing.contains("cannot read") && missing.contains("index.csv"),
        "{missing}"
    );
    let file = folder.join("mine.csv");
    fs::write(&file, "trace,minute,setting,forecast\ndaily,3,q=0.9,much\n").unwrap();
    let wrong = fails(
        &folder,
        &["--synthetic", "--contender", file.to_str().unwrap()],
    );
    let expected =
        "mine.csv, line 2: forecast is \"much\"; expected a finite number of at least zero";
    assert!(wrong.contains(expected), "{wrong}");
    let unknown = fails(&folder, &["--trace", "weekly"]);
    assert!(
        unknown.contains("--trace weekly: expected a name"),
        "{unknown}"
    );
    let out = folder.join("out.csv");
    let export = ["--export", "best", out.to_str().unwrap()];
    let unknown = fails(&folder, &[&["--trace", "daily"], &export[..]].concat());
    assert!(
        unknown.contains("--export best: expected one of hpa, snaive-day"),
        "{unknown}"
    );
    assert!(!out.exists(), "nothing is exported");
}
