//! The page about failures: each of its numbers has a proof, a patch of `tests/sabotage` with the number as its `Row:`.

use std::{collections::BTreeMap, fs, path::Path};

/// The rows of the failures that the product was built for.
const ROWS: u32 = 38;

/// The test that fails without a safeguard, by its target and path.
struct Proof {
    target: String,
    test: String,
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
            target: target.to_owned(),
            test: test.to_owned(),
        };
        match field("Row: ") {
            Some(row) => rows.entry(row.parse().unwrap()).or_default().push(proof),
            None => others.push(proof),
        }
    }
    (others, rows)
}

#[test]
fn every_row_of_the_page_has_a_proof() {
    let page = read("docs/reliability.md");
    let numbers = page.lines().filter_map(|line| {
        let (number, _) = line.strip_prefix("| ")?.split_once(" |")?;
        number.parse::<u32>().ok()
    });
    let mut described: Vec<_> = numbers.collect();
    described.sort_unstable();
    let all: Vec<_> = (1..=ROWS).collect();
    assert_eq!(described, all, "the numbers of the page");
    let (_, rows) = proofs();
    let proven: Vec<_> = rows.keys().copied().collect();
    assert_eq!(proven, all, "the rows of the patches");
}

#[test]
fn the_tests_that_patches_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = |target: &str| -> String {
        let folder = match target {
            "domain" => "domain/src".to_owned(),
            "hpa_vectors" => "crates/api/tests/hpa_vectors".to_owned(),
            of_crate if root.join("crates").join(of_crate).is_dir() => {
                format!("crates/{of_crate}/src")
            }
            other => format!("tests/{other}"),
        };
        let sources = files(&root.join(folder), "rs");
        let read = |path: &String| fs::read_to_string(path).unwrap();
        sources.iter().map(read).collect()
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
