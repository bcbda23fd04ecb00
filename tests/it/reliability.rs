//! The page about failures: each of its numbers has a proof, and the texts of the proofs are the results of the last
//! run.
//!
//! A proof is a patch of `tests/sabotage` with the number as its `Row:`. `UPDATE=1` writes the table.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

/// The rows of the failures that the product was built for.
const ROWS: u32 = 38;
const BEGIN: &str = "cargo test -p foretide --test it reliability -->\n";
const END: &str = "<!-- end of proof -->";

/// Head of a patch, before its first file.
struct Proof {
    removes: String,
    target: String,
    test: String,
    seen: String,
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder and of those in it, with this extension.
fn files(folder: &Path, extension: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let each = entries.map(|entry| entry.unwrap().path());
    let each = each.flat_map(|path| {
        if path.is_dir() {
            files(&path, extension)
        } else if path.extension().is_some_and(|found| found == extension) {
            vec![path.to_str().unwrap().to_owned()]
        } else {
            Vec::new()
        }
    });
    each.collect()
}

fn proofs() -> (Vec<Proof>, BTreeMap<u32, Vec<Proof>>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sabotage");
    let mut patches = files(&folder, "patch");
    patches.sort();
    let (mut others, mut rows) = (Vec::new(), BTreeMap::<u32, Vec<Proof>>::new());
    for path in patches {
        let patch = fs::read_to_string(&path).unwrap();
        let field = |name: &str| patch.lines().find_map(|line| line.strip_prefix(name));
        let named = field("Fails: ").and_then(|named| named.split_once(' '));
        let (target, test) = named.unwrap_or_else(|| panic!("{path} names no test"));
        let proof = Proof {
            removes: patch.lines().next().unwrap_or_default().to_owned(),
            target: target.to_owned(),
            test: test.to_owned(),
            seen: field("Seen: ").unwrap_or_default().to_owned(),
        };
        match field("Row: ") {
            Some(row) => rows.entry(row.parse().unwrap()).or_default().push(proof),
            None => others.push(proof),
        }
    }
    (others, rows)
}

/// The table of the proofs.
fn table(rows: &BTreeMap<u32, Vec<Proof>>) -> String {
    let mut table =
        "| # | without the safeguard | this test fails | and says |\n|---|---|---|---|\n"
            .to_owned();
    for (row, proofs) in rows {
        for Proof {
            removes,
            target,
            test,
            seen,
        } in proofs
        {
            let name = test.rsplit("::").next().unwrap_or_default();
            let name = name.replace('_', " ");
            let seen = match seen.as_str() {
                "" => "not run yet".to_owned(),
                seen => format!("`{}`", seen.replace('|', "\\|").replace('`', "'")),
            };
            writeln!(table, "| {row} | {removes} | {target}: {name} | {seen} |").unwrap();
        }
    }
    table
}

#[test]
fn every_row_of_the_page_has_a_proof_and_the_page_has_what_was_seen() {
    let page = read("docs/reliability.md");
    let numbers = page.lines().filter_map(|line| {
        line.strip_prefix("| ")?
            .split_once(" |")?
            .0
            .parse::<u32>()
            .ok()
    });
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (proven, after) = rest.split_once(END).unwrap();
    let (_, rows) = proofs();
    let mut described: Vec<_> = numbers.take(ROWS as usize).collect();
    described.sort_unstable();
    let all: Vec<_> = (1..=ROWS).collect();
    assert_eq!(described, all, "the numbers of the page");
    assert_eq!(
        rows.keys().copied().collect::<Vec<_>>(),
        all,
        "the rows of the patches"
    );
    let table = table(&rows);
    if std::env::var_os("UPDATE").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reliability.md");
        fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        let mut lines = proven.lines().zip(table.lines());
        let differs = lines.find(|(there, made)| there != made);
        assert_eq!(differs, None, "UPDATE=1 renews the page");
        assert!(proven == table, "UPDATE=1 renews the page");
    }
}

#[test]
fn the_tests_that_patches_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = |target: &str| -> String {
        let folder = match target {
            "lib" => "src".to_owned(),
            "domain" => "domain/src".to_owned(),
            "federate" => "crates/federate/src".to_owned(),
            "hpa_vectors" => "crates/api/tests/hpa_vectors".to_owned(),
            other => format!("tests/{other}"),
        };
        files(&root.join(folder), "rs")
            .iter()
            .map(|path| fs::read_to_string(path).unwrap())
            .collect()
    };
    let (others, rows) = proofs();
    let mut known = BTreeMap::new();
    for Proof { target, test, .. } in rows.into_values().flatten().chain(others) {
        let text = known
            .entry(target.clone())
            .or_insert_with(|| sources(&target));
        let name = test.rsplit("::").next().unwrap();
        // Tests of the vectors are made by a macro.
        let is_there = [format!("fn {name}("), format!("    {name}: ")];
        assert!(
            is_there.iter().any(|way| text.contains(way)),
            "{target}: {test}"
        );
    }
}
