//! The pages that people read: every link leads somewhere, and the way to a first decision on a cluster is short.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Largest number of words before an autoscaler in Preview shows its first decision on the reader's own cluster.
const WORDS_TO_PREVIEW: usize = 1_500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The pages in Markdown of the root and of these folders.
fn pages() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/decisions", "deploy", "examples", "replay"];
    let files = folders.into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    files.filter(is_page).collect()
}

/// The text outside of blocks of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !fence && !is_code
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The targets of links: `](target)`.
fn links(text: &str) -> Vec<String> {
    let after = prose(text);
    let after = after.split("](").skip(1);
    let targets = after.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.collect()
}

/// The anchors of a page, as GitHub makes them from headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text);
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading_of_it() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&page);
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            let is_there = target.exists();
            let has_anchor = || anchors(&read(&target)).contains(anchor);
            if !is_there || !anchor.is_empty() && target.extension().is_some() && !has_anchor() {
                let shown = page.strip_prefix(root()).unwrap().display();
                broken.push(format!("{shown}: {link}"));
            }
        }
    }
    assert_eq!(broken, [] as [String; 0]);
}

#[test]
fn a_first_decision_on_a_cluster_takes_few_words() {
    let readme = read(&root().join("README.md"));
    let section = "\n## Try it without installing\n";
    let (before, after) = readme.split_once(section).unwrap();
    let (section, _) = after.split_once("\n## ").unwrap();
    let page = read(&root().join("docs/from-my-hpa.md"));
    let words = [before, section, &page].map(|text| text.split_whitespace().count());
    let all: usize = words.iter().sum();
    assert!(all <= WORDS_TO_PREVIEW, "{all}: {words:?}");
}
