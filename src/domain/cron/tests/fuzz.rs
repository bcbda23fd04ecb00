//! Fuzzing harness: runs as a test here, under a fuzzer with `cargo bolero test`.

use super::super::{Expression, Zone, next_after};

#[test]
fn cron_parse() {
    bolero::check!()
        .with_iterations(2_000)
        .for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            if let Ok(parsed) = Expression::parse(&text) {
                assert_eq!(Expression::parse(&parsed.to_string()).as_ref(), Ok(&parsed));
                let next = next_after(&parsed, &Zone::utc(), jiff::Timestamp::UNIX_EPOCH);
                assert_eq!(next.is_none(), parsed.never_fires());
            }
        });
}
