//! The picture on terminals of every size.

use foretide_domain::cron::Zone;
use jiff::Timestamp;

use super::*;
use crate::cli::output::{Screen, Size};

const PLAIN: Screen = Screen {
    color: false,
    unicode: true,
    size: None,
};

/// A plain screen at the epoch, in UTC.
pub fn context() -> CommandContext {
    CommandContext {
        screen: PLAIN,
        local: Zone::utc(),
        now: Timestamp::UNIX_EPOCH,
        machine: foretide_base::machine::Machine::system(),
    }
}

#[test]
fn the_picture_fits_every_terminal_with_its_heading_and_its_whole_sentence() {
    for scenario in [Scenario::Shop, Scenario::Batch, Scenario::Surge] {
        let setup = scenario.setup(&context()).unwrap();
        let picture = Picture::of(&setup, scenario);
        for (columns, rows) in [(80, 24), (120, 40), (200, 50), (60, 20), (50, 24)] {
            for unicode in [true, false] {
                let screen = Screen {
                    unicode,
                    size: Some(Size { columns, rows }),
                    ..PLAIN
                };
                let text = picture.text(screen);
                let lines: Vec<_> = text.lines().collect();
                assert!(lines.len() < rows, "{columns}x{rows}\n{text}");
                let longest = lines.iter().map(|line| line.chars().count()).max();
                assert!(longest <= Some(columns), "{columns}x{rows}\n{text}");
                assert!(lines[0].starts_with("foretide demo  Tue 2026-03-10 18:00 UTC"));
                let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(
                    words.contains(&picture.sentence),
                    "{columns}x{rows}\n{text}"
                );
            }
        }
    }
}

#[test]
fn a_speed_is_a_factor_above_zero() {
    assert_eq!(parse_speed("2.5"), Ok(2.5));
    for bad in ["0", "-1", "NaN", "fast"] {
        assert!(parse_speed(bad).is_err(), "{bad}");
    }
}
