//! Documentation that stands alone: the comment of an item is a noun phrase or a verb in the third person.

use std::{fs, path::Path};

use crate::architecture::rust_files;

/// Sources of the product.
const PRODUCT: [&str; 6] = [
    "src",
    "crates",
    "domain/src",
    "models/src",
    "crds/src",
    "chart/src",
];
/// Words with which a comment continues another one, or leaves its subject to the name of the item.
const DEPENDENT: [&str; 34] = [
    "what",
    "whether",
    "how",
    "why",
    "when",
    "where",
    "which",
    "who",
    "whom",
    "whose",
    "its",
    "it",
    "their",
    "they",
    "them",
    "he",
    "she",
    "this",
    "that",
    "these",
    "those",
    "such",
    "so",
    "as",
    "of",
    "and",
    "but",
    "or",
    "if",
    "also",
    "else",
    "otherwise",
    "his",
    "her",
];

/// The first lines of the blocks of comments that begin with a dependent word.
fn dependent(source: &str) -> Vec<&str> {
    let product = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut before = false;
    let mut found = Vec::new();
    for line in product.lines().map(str::trim) {
        let comment = line.strip_prefix("///").map(str::trim);
        let begins = comment.filter(|_| !before);
        let word = begins.and_then(|text| text.split([' ', ',', '\'']).next());
        let is_dependent = |word: &str| DEPENDENT.contains(&&*word.to_lowercase());
        if word.is_some_and(is_dependent) {
            found.push(line);
        }
        before = comment.is_some();
    }
    found
}

#[test]
fn comments_of_items_stand_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for place in PRODUCT {
        let mut files = Vec::new();
        rust_files(&root.join(place), &mut files);
        // Files of tests alone.
        files.retain(|file| {
            let path = file.strip_prefix(root).unwrap().to_string_lossy();
            !path.contains("laws") && !path.contains("/tests")
        });
        assert!(files.len() > 5, "{place}");
        for file in files {
            let source = fs::read_to_string(&file).unwrap();
            assert_eq!(dependent(&source), [] as [&str; 0], "{}", file.display());
        }
    }
}

#[test]
fn a_comment_that_continues_the_one_above_is_found() {
    let source = "/// The lease.\n/// It ends.\nfn a() {}\n/// Whether it ends.\nfn b() {}\n";
    assert_eq!(dependent(source), ["/// Whether it ends."]);
}
