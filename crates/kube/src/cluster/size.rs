//! Memory that a value takes.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug, Write},
};

/// Memory of a text beside its bytes: its fields, the header of its block, and its place in a map.
const TEXT: usize = 64;

/// The bytes of a value, estimated by its debug output, which shows each text of it in quotes. A text with characters
/// that are escaped there takes less.
pub fn estimate<V: Debug>(value: &V) -> usize {
    let mut output = Output::default();
    // Counting does not fail.
    let _counted = write!(output, "{value:?}");
    size_of::<V>() + output.bytes + output.quotes / 2 * TEXT
}

/// The bytes of texts that the debug output does not show.
pub fn of_texts(texts: &BTreeMap<String, String>) -> usize {
    texts
        .iter()
        .map(|(key, text)| key.len() + text.len() + 2 * TEXT)
        .sum()
}

/// Counts what is written.
#[derive(Default)]
struct Output {
    bytes: usize,
    quotes: usize,
}

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes += text.len();
        self.quotes += text.bytes().filter(|byte| *byte == b'"').count();
        Ok(())
    }
}
