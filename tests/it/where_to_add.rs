//! Places that name every source of proposals or every rule of fleets, and that no compiler asks for: a new one fails
//! here with the list of the places that lack it.

use std::{fs, path::Path};

use foretide_domain::proposal::Source;

/// Places that name each source of proposals, in the order in which one is added. `UPDATE=1`, twice, renews what is
/// generated.
const SOURCE_PLACES: &[Place] = &[
    ("domain/src/proposal.rs", "its row in `sources!`"),
    (
        "domain/src/workload.rs",
        "its setting in `FloorSources`, and the most that it asks for in `peak`",
    ),
    (
        "domain/src/autoscale/proposals.rs",
        "a function of its proposals, which `propose` calls",
    ),
    (
        "domain/src/autoscale/laws/world.rs",
        "its setting in `Scenario::floor`, random in `scenarios.rs`",
    ),
    (
        "crates/api/src/validation/mod.rs",
        "its setting, read in `read` from the field in `crds/src/effective_hpa.rs` and `examples/annotated.yaml`",
    ),
    (
        "crates/api/src/published.rs",
        "its setting in `Published::cron`, if its proposals are not of metrics",
    ),
    (
        "chart/src/role.rs",
        "its row: its colors on any, on a light and on a dark ground, and the dashes of its lines; a test asks every eye",
    ),
    ("docs/concepts.md", "its row in the table of sources"),
];

/// Places that name each rule of fleets by its number.
///
/// Its reasons are rows of `reasons!`, each with a remedy in `crates/page/src/remedy.rs`; those of moves are in `is_move` of
/// `crates/controller/src/fleet/last_move.rs` too.
const RULE_PLACES: &[Place] = &[
    (
        "crates/federate/src/rules/mod.rs",
        "its row in the table, its module, and its function in a list",
    ),
    (
        "docs/federation-reference.md",
        "its row in the table of rules",
    ),
    (
        "tests/sim/fleet/laws.rs",
        "its row in `RULES`: a seed of `just seeds 500` must apply it",
    ),
];

/// A file, and what is written there.
type Place = (&'static str, &'static str);

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The places whose text does not have a word, whatever its case.
fn without(places: &[Place], word: &str) -> Vec<Place> {
    let lacks = |(path, _): &&Place| {
        let text = read(path).to_lowercase();
        let mut words = text.split(|character: char| !character.is_alphanumeric());
        !words.any(|found| found == word.to_lowercase())
    };
    places.iter().filter(lacks).copied().collect()
}

#[test]
fn every_place_names_every_source_of_proposals() {
    // The metrics of an HPA are no setting of ours.
    for source in Source::ALL.iter().filter(|it| **it != Source::Observed) {
        let missing = without(SOURCE_PLACES, source.as_str());
        assert!(missing.is_empty(), "{source} is missing in {missing:#?}");
    }
}

#[test]
fn every_place_names_every_rule_of_fleets() {
    let table = read("crates/federate/src/rules/mod.rs");
    let rows = table
        .lines()
        .filter_map(|line| line.strip_prefix("//! | R"));
    let numbers: Vec<_> = rows
        .filter_map(|row| row.split_once(' '))
        .map(|(number, _)| format!("R{number}"))
        .collect();
    assert!(numbers.len() >= 13, "{numbers:?}");
    for number in numbers {
        let missing = without(RULE_PLACES, &number);
        assert!(missing.is_empty(), "{number} is missing in {missing:#?}");
    }
}
