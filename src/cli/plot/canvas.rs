//! The cells of a plot: the order in which dots cover each other, and the characters of cells.
//!
//! The history is dense; the band of a forecast uses every second column of dots, so that they differ without color.

use super::steps::ascii;
use crate::cli::output::{Paint, Screen, Size};

/// Series of a dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dot {
    History,
    /// The expected value, where there is no history.
    Line,
    /// Between the expected and the upper value.
    Band,
}

/// Content of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ink {
    #[default]
    Blank,
    Dots {
        history: bool,
        line: bool,
        band: bool,
    },
    /// A piece of the line of capacity, as a box-drawing character.
    Capacity(char),
    /// A shortage: more was needed than was there.
    Shortage,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// One bit per dot, column by column, from the bottom.
    dots: u8,
    ink: Ink,
}

/// Dots on cells.
pub struct Canvas {
    size: Size,
    /// Dots across and down one cell.
    dots: (usize, usize),
    cells: Vec<Cell>,
}

// === impl Canvas ===

impl Canvas {
    /// Returns an empty canvas; finer with Unicode than without.
    pub fn new(size: Size, screen: Screen) -> Self {
        Self {
            size,
            dots: if screen.unicode { (2, 4) } else { (1, 2) },
            cells: vec![Cell::default(); size.columns * size.rows],
        }
    }

    /// Returns the number of dots across and down.
    pub fn extent(&self) -> (usize, usize) {
        let (across, down) = self.dots;
        (self.size.columns * across, self.size.rows * down)
    }

    /// Returns the number of dots of a cell from bottom to top.
    pub fn dots_down(&self) -> usize {
        self.dots.1
    }

    /// Sets the dot in column `x` and row `y`, counted from the bottom; every second column of a band is left out.
    pub fn set(&mut self, x: usize, y: usize, dot: Dot) {
        let (across, down) = self.dots;
        if dot == Dot::Band && !x.is_multiple_of(across) {
            return;
        }
        let row = (self.size.rows * down).saturating_sub(y + 1) / down;
        let index = row * self.size.columns + x / across;
        if let Some(cell) = self.cells.get_mut(index) {
            cell.dots |= 1 << ((x % across) * down + y % down);
            cell.ink = cell.ink.with(dot);
        }
    }

    /// Draws over the previous content of the cell on row `height` from the bottom.
    pub fn cover(&mut self, column: usize, height: usize, ink: Ink) {
        let row = self.size.rows.saturating_sub(height + 1);
        if let Some(cell) = self.cells.get_mut(row * self.size.columns + column) {
            cell.ink = ink;
        }
    }

    /// One row of characters, the topmost first; `now` is the column of the present.
    pub fn row(&self, row: usize, now: Option<usize>, screen: Screen) -> String {
        let cells = self
            .cells
            .iter()
            .skip(row * self.size.columns)
            .take(self.size.columns);
        let mut text = String::new();
        for (column, cell) in cells.enumerate() {
            let glyph = cell.glyph(screen);
            text.push_str(&match cell.ink {
                Ink::Blank if Some(column) == now && screen.unicode => {
                    screen.paint(Paint::Dim, "┊")
                }
                Ink::Blank if Some(column) == now => screen.paint(Paint::Dim, "|"),
                Ink::Shortage => screen.paint(Paint::Error, &glyph.to_string()),
                Ink::Capacity(_) => screen.paint(Paint::Strong, &glyph.to_string()),
                Ink::Dots { line, band, .. } if line || band => {
                    screen.paint(Paint::Future, &glyph.to_string())
                }
                Ink::Blank | Ink::Dots { .. } => glyph.to_string(),
            });
        }
        text
    }
}

// === impl Ink ===

impl Ink {
    /// Adds one more dot to the cell.
    fn with(self, dot: Dot) -> Self {
        let (history, line, band) = match self {
            Self::Dots {
                history,
                line,
                band,
            } => (history, line, band),
            Self::Blank | Self::Capacity(_) | Self::Shortage => (false, false, false),
        };
        Self::Dots {
            history: history || dot == Dot::History,
            line: line || dot == Dot::Line,
            band: band || dot == Dot::Band,
        }
    }
}

// === impl Cell ===

impl Cell {
    fn glyph(self, screen: Screen) -> char {
        match self.ink {
            Ink::Blank => ' ',
            Ink::Shortage if screen.unicode => '▓',
            Ink::Shortage => '#',
            Ink::Capacity(piece) if screen.unicode => piece,
            Ink::Capacity(piece) => ascii(piece),
            Ink::Dots { .. } if screen.unicode => braille(self.dots),
            Ink::Dots { line: true, .. } => '*',
            Ink::Dots { band: true, .. } => '~',
            Ink::Dots { .. } if self.dots == 0b01 => '.',
            Ink::Dots { .. } => ':',
        }
    }
}

/// Two by four dots as one character.
fn braille(dots: u8) -> char {
    // Bits of Unicode's pattern for our bits: left column from the bottom, then the right one.
    const BITS: [u32; 8] = [0x40, 0x04, 0x02, 0x01, 0x80, 0x20, 0x10, 0x08];
    let pattern: u32 = BITS
        .iter()
        .enumerate()
        .filter(|(bit, _)| dots & (1 << bit) != 0)
        .map(|(_, value)| value)
        .sum();
    char::from_u32(0x2800 + pattern).unwrap_or(' ')
}
