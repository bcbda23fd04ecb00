//! Large digits: three columns wide and five dots high, of half blocks, or of `#` where there is only ASCII.

use crate::cli::output::{Paint, Screen};

/// How wide [`badge`] is, with the gap behind it.
pub(super) const WIDTH: usize = 13;
/// The most digits that fit.
const MOST: usize = 3;
/// The rows of dots of each digit, the highest first; three dots a row.
const DIGITS: [[u8; 5]; 10] = [
    [0b111, 0b101, 0b101, 0b101, 0b111],
    [0b010, 0b110, 0b010, 0b010, 0b111],
    [0b111, 0b001, 0b111, 0b100, 0b111],
    [0b111, 0b001, 0b111, 0b001, 0b111],
    [0b101, 0b101, 0b111, 0b001, 0b001],
    [0b111, 0b100, 0b111, 0b001, 0b111],
    [0b111, 0b100, 0b111, 0b101, 0b111],
    [0b111, 0b001, 0b001, 0b001, 0b001],
    [0b111, 0b101, 0b111, 0b101, 0b111],
    [0b111, 0b101, 0b111, 0b001, 0b111],
];

/// A number and its unit below it, in `rows` lines of [`WIDTH`] columns; none if it does not fit.
pub(super) fn badge(
    number: u32,
    unit: &str,
    paint: Paint,
    rows: usize,
    screen: Screen,
) -> Option<Vec<String>> {
    let large = large(number, screen.unicode);
    let fits = number.to_string().len() <= MOST && unit.len() < WIDTH && large.len() < rows;
    let line = |text: &str| {
        let blank = " ".repeat(WIDTH.saturating_sub(text.chars().count()));
        format!("{}{blank}", screen.paint(paint, text))
    };
    let lines = large.iter().map(|row| line(row)).chain([line(unit)]);
    let blank = std::iter::repeat_with(|| " ".repeat(WIDTH));
    fits.then(|| lines.chain(blank).take(rows).collect())
}

/// The rows of a number.
fn large(number: u32, unicode: bool) -> Vec<String> {
    let digits: Vec<[u8; 5]> = number
        .to_string()
        .bytes()
        .filter_map(|digit| DIGITS.get(usize::from(digit.wrapping_sub(b'0'))).copied())
        .collect();
    let row = |upper: usize, lower: usize| {
        let cells = digits.iter().map(|digit| {
            let dots = |row| digit.get(row).copied().unwrap_or_default();
            cells(dots(upper), dots(lower), unicode)
        });
        cells.collect::<Vec<_>>().join(" ")
    };
    if unicode {
        (0..3).map(|pair| row(2 * pair, 2 * pair + 1)).collect()
    } else {
        (0..5).map(|line| row(line, line)).collect()
    }
}

/// Three cells from two rows of dots.
fn cells(upper: u8, lower: u8, unicode: bool) -> String {
    let cell = |bit: u8| match (upper & bit != 0, lower & bit != 0) {
        (true, _) if !unicode => '#',
        (true, true) => '█',
        (true, false) => '▀',
        (false, true) => '▄',
        (false, false) => ' ',
    };
    [0b100, 0b010, 0b001].map(cell).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_large_and_has_its_unit_below() {
        let screen = Screen {
            unicode: true,
            ..Screen::default()
        };
        let shown = |rows, screen| {
            let lines = badge(190, "min short", Paint::Error, rows, screen);
            lines.map(|lines| {
                assert!(lines.iter().all(|line| line.chars().count() == WIDTH));
                lines
                    .iter()
                    .map(|line| line.trim_end().to_owned())
                    .collect::<Vec<_>>()
            })
        };
        let unicode = ["▄█  █▀█ █▀█", " █  ▀▀█ █ █", "▀▀▀ ▀▀▀ ▀▀▀", "min short", ""];
        assert_eq!(shown(5, screen), Some(unicode.map(str::to_owned).to_vec()));
        assert_eq!(shown(3, screen), None);
        let ascii = shown(6, Screen::default()).unwrap();
        assert_eq!(ascii[..2], [" #  ### ###", "##  # # # #"]);
    }
}
