//! Places that name every source of proposals or every rule of fleets, and that no compiler asks for: a new one fails
//! here with the list of the places that lack it.

use std::{fs, path::Path};

use foretide_domain::proposal::Source;

/// Files that name each source of proposals, in the order in which one is added. Besides them it has
/// - a setting in `FloorSources` of `domain/src/workload.rs`, from the spec (`crates/api/src/validation/mod.rs`) and random
///   in `laws/scenarios.rs`; the compiler asks for it. If it is no forecast of a metric, `Workload::has_crons` knows it;
/// - a remedy for each of its reasons (`crates/page/src/remedy.rs`, whose test lists them).
///
/// `UPDATE=1` renews what is generated.
const SOURCE_PLACES: [&str; 6] = [
    // The row of the table and its phrases, and the function that `propose` calls.
    "domain/src/proposal.rs",
    "domain/src/autoscale/proposals.rs",
    // Its color in pictures, on the page twice: light and dark, and the tone of its class; and the page's list of sources.
    "chart/src/role.rs",
    "crates/page/src/http/assets/page.css",
    "crates/page/src/http/assets/moment.js",
    // What people read.
    "docs/concepts.md",
];

/// Files that name each rule of fleets by its number. Besides them a rule is a function in a list of `rules/mod.rs`, and
/// each of its reasons has a remedy (`crates/page/src/remedy.rs`, whose test lists the reasons); one that moves pods stays in
/// the status if `crates/controller/src/fleet/last_move.rs` says so.
const RULE_PLACES: [&str; 3] = [
    "crates/federate/src/rules/mod.rs",
    "docs/federation-reference.md",
    // A seed of `just seeds 500` must apply it.
    "tests/sim/fleet/laws.rs",
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The places whose text does not have a word, whatever its case.
fn without<'a>(places: &[&'a str], word: &str) -> Vec<&'a str> {
    let lacks = |place: &&&str| !read(place).to_lowercase().contains(&word.to_lowercase());
    places.iter().filter(lacks).copied().collect()
}

#[test]
fn every_place_names_every_source_of_proposals() {
    for source in Source::ALL {
        let missing = without(&SOURCE_PLACES, source.as_str());
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
        let missing = without(&RULE_PLACES, &number);
        assert!(missing.is_empty(), "{number} is missing in {missing:#?}");
    }
}
