use super::*;
use crate::manifest;

/// Manifests with every field that has a meaning of its own, once.
const FULL: &str = include_str!("../../../../tests/it/manifests/full.yaml");
const FLEET: &str = include_str!("../../../../tests/it/manifests/full-fleet.yaml");

/// Text that is inserted into manifests.
const PIECES: [&str; 24] = [
    "\n",
    "  ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "&a ",
    "*a",
    "<<: ",
    "---\n",
    "null",
    ".nan",
    "1e999",
    "-1",
    "~",
    "!!str ",
    "{{ .Values.x }}",
    "\t",
    "|\n",
    "\u{1f980}",
];

/// Words of parsers and type systems.
const WORDS_OF_LIBRARIES: [&str; 12] = [
    "Options",
    "Option<",
    "policy in",
    "configured policy",
    "budget",
    "scalar",
    "serialize",
    "struct",
    "i32",
    "i64",
    "u32",
    "untagged",
];

/// A manifest with pieces put over some of its characters.
fn altered(manifest: &str, bytes: &[u8]) -> String {
    let mut text = manifest.to_owned();
    for change in bytes.chunks_exact(4) {
        let [high, low, length, piece] = *change else {
            continue;
        };
        let mut start = usize::from(u16::from_be_bytes([high, low])) % (text.len() + 1);
        let mut end = (start + usize::from(length % 16)).min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        while !text.is_char_boundary(end) {
            end += 1;
        }
        text.replace_range(start..end, PIECES[usize::from(piece) % PIECES.len()]);
    }
    text
}

#[test]
fn a_manifest_with_mistakes_is_answered_with_a_line_and_in_plain_words() {
    let local = Zone::utc();
    let validator = Validator::new(&local, Timestamp::UNIX_EPOCH);
    bolero::check!()
        .with_iterations(1_000)
        .with_type::<Vec<u8>>()
        .for_each(|bytes| {
            for manifest in [FULL, FLEET, ""] {
                let text = altered(manifest, bytes);
                answered_plainly(&validator, &text);
            }
            answered_plainly(&validator, &String::from_utf8_lossy(bytes));
        });
}

fn answered_plainly(validator: &Validator<'_>, text: &str) {
    let messages = match manifest::parse("web.yaml", text) {
        Ok(documents) => {
            let found = documents
                .iter()
                .flat_map(|document| validator.validate(document).diagnostics);
            let found: Vec<_> = found.collect();
            assert!(
                found.iter().all(|one| one.place.line.is_some()),
                "{text}: {found:?}"
            );
            found.into_iter().map(|one| one.message).collect()
        }
        Err(error) => vec![error.to_string()],
    };
    for message in messages {
        // Quoted parts are the user's own text.
        let own = message.split(['"', '`']).step_by(2).collect::<String>();
        let word = WORDS_OF_LIBRARIES.iter().find(|word| own.contains(**word));
        assert_eq!(word, None, "{message}\n{text}");
    }
}
