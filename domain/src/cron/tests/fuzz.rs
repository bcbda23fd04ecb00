//! Fuzzing harness: runs as a test here, under a fuzzer with `cargo bolero test`.

use super::super::{Expression, Zone};
use super::next_after;

/// What expressions are made of; blanks and digits more often than the rest.
const ALPHABET: &[u8] = b"     0123456789012*?,-/,-/*TZ=@monsatjn+L#";

#[test]
fn cron_parse() {
    bolero::check!()
        .with_iterations(4_000)
        .for_each(|bytes: &[u8]| {
            check(&String::from_utf8_lossy(bytes));
            let letter = |byte: &u8| ALPHABET.get(usize::from(*byte) % ALPHABET.len());
            check(
                &bytes
                    .iter()
                    .filter_map(letter)
                    .map(|letter| char::from(*letter))
                    .collect::<String>(),
            );
        });
}

/// Whatever is parsed can be printed, parsed again and searched.
fn check(text: &str) {
    if let Ok(parsed) = Expression::parse(text) {
        assert_eq!(Expression::parse(&parsed.to_string()).as_ref(), Ok(&parsed));
        let next = next_after(&parsed, &Zone::utc(), jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(next.is_none(), parsed.never_fires());
    }
}
