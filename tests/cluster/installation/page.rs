//! Pages as their sections and their blocks of code.

use std::{collections::BTreeSet, fs, path::Path};

/// A block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) section: String,
    pub(super) language: String,
    pub(super) text: String,
}

/// Pages of `docs/` as one, with the blocks that were followed.
#[derive(Debug)]
pub(super) struct Page {
    blocks: Vec<Block>,
    followed: BTreeSet<usize>,
}

impl Page {
    pub(super) fn read(files: &[&str]) -> Self {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let read = |file: &&str| blocks(&fs::read_to_string(docs.join(file)).unwrap());
        Self {
            blocks: files.iter().flat_map(read).collect(),
            followed: BTreeSet::new(),
        }
    }

    /// Returns the number of blocks in a section.
    pub(super) fn count(&self, section: &str) -> usize {
        self.of_section(section).count()
    }

    /// A block of a section, which counts as followed.
    pub(super) fn follow(&mut self, section: &str, number: usize) -> Block {
        let found = self.of_section(section).nth(number);
        let at = found.unwrap_or_else(|| panic!("{section} has no block {number}"));
        self.followed.insert(at);
        self.blocks[at].clone()
    }

    fn of_section(&self, section: &str) -> impl Iterator<Item = usize> {
        let numbered = self.blocks.iter().enumerate();
        numbered
            .filter(move |(_, block)| block.section == section)
            .map(|(at, _)| at)
    }

    /// The blocks that were not followed.
    pub(super) fn left(&self) -> Vec<&Block> {
        let numbered = self.blocks.iter().enumerate();
        numbered
            .filter(|(at, _)| !self.followed.contains(at))
            .map(|(_, block)| block)
            .collect()
    }
}

/// The fenced blocks of a text in Markdown, with the section (`##`) that each is in.
fn blocks(markdown: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut section = String::new();
    let mut open: Option<Block> = None;
    for line in markdown.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(language)) => {
                open = Some(Block {
                    section: section.clone(),
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            (None, None) => {
                if let Some(title) = line.strip_prefix("## ") {
                    title.clone_into(&mut section);
                }
            }
        }
    }
    found
}
