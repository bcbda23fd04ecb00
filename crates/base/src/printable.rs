//! Text from outside, made safe for a terminal and for a log of one record per line.
//!
//! Names and messages of objects may hold escape sequences, which a terminal would obey, and characters that reverse
//! the order of what is shown. They are replaced by `\u` and four hexadecimal digits, which is also how JSON writes
//! them.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

/// Returns whether a character controls the terminal or the order of text instead of being shown.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text on one line, with every control character escaped.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| None)
}

/// The text with every control character escaped but line breaks and the given sequences.
pub fn lines<'t>(text: &'t str, allowed: &[&str]) -> Cow<'t, str> {
    escaped(text, |rest| {
        let mut allowed = allowed.iter().chain(&["\n"]);
        Some(allowed.find(|it| rest.starts_with(**it))?.len())
    })
}

/// Escapes the control characters of a text. `allowed` returns the length of a sequence at the beginning that stays.
fn escaped(text: &str, allowed: impl Fn(&str) -> Option<usize>) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(is_control) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let taken = match (allowed(from), from.chars().next()) {
            (Some(length), _) => {
                shown.push_str(from.get(..length).unwrap_or_default());
                length
            }
            (None, Some(character)) => {
                let _infallible = write!(shown, "\\u{:04x}", u32::from(character));
                character.len_utf8()
            }
            (None, None) => 0,
        };
        rest = from.get(taken..).unwrap_or_default();
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Writes records of a log, each on one line.
#[derive(Debug)]
pub struct RecordWriter<W>(pub W);

// === impl RecordWriter ===

impl<W: Write> Write for RecordWriter<W> {
    /// Writes one record; its last line break stays.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(record);
        let (text, end) = match text.strip_suffix('\n') {
            Some(text) => (text, "\n"),
            None => (&*text, ""),
        };
        // One write per record, so that records of several threads do not mix.
        self.0
            .write_all(format!("{}{end}", line(text)).as_bytes())?;
        // The caller counts the bytes of its record, which may differ from the bytes written.
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escape_sequences_line_breaks_and_reversals_are_shown_and_not_obeyed() {
        for (text, shown) in [
            ("web", "web"),
            ("\u{e9}t\u{e9} \u{1f600}", "\u{e9}t\u{e9} \u{1f600}"),
            ("\u{1b}[2Jgone", "\\u001b[2Jgone"),
            ("\u{9b}2J", "\\u009b2J"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("a\r\nINFO forged", "a\\u000d\\u000aINFO forged"),
            ("\u{202e}nimda", "\\u202enimda"),
            ("\u{2066}a\u{2069}\u{2028}", "\\u2066a\\u2069\\u2028"),
            ("\t\u{7f}\0", "\\u0009\\u007f\\u0000"),
        ] {
            assert_eq!(line(text), shown);
        }
        assert_eq!(
            lines(
                "\u{1b}[1mbold\u{1b}[0m\n\u{1b}[8mhidden",
                &["\u{1b}[1m", "\u{1b}[0m"]
            ),
            "\u{1b}[1mbold\u{1b}[0m\n\\u001b[8mhidden"
        );
    }

    #[test]
    fn a_record_stays_on_its_line() {
        let mut log = Vec::new();
        for record in ["INFO a\nINFO forged\n", "WARN \u{1b}c\n"] {
            RecordWriter(&mut log).write_all(record.as_bytes()).unwrap();
        }
        let log = String::from_utf8(log).unwrap();
        assert_eq!(log, "INFO a\\u000aINFO forged\nWARN \\u001bc\n");
    }

    proptest! {
        #[test]
        fn what_is_shown_has_no_control_characters_and_json_stays_the_same_value(text in prop::collection::vec(any::<char>(), 0..40)) {
            let text = String::from_iter(text);
            prop_assert!(!line(&text).contains(is_control));
            let json = serde_json::to_string(&text).unwrap();
            let read: String = serde_json::from_str(&line(&json)).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
