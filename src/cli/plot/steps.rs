//! A stepped line in box-drawing characters, one level per column, for numbers of replicas.
//!
//! ```text
//!      ╭──
//! ─────╯
//! ```

/// A glyph of the line in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    Level,
    Rise,
    /// Lower end of a rise; the pieces below are the other ends of rises and falls.
    RiseFrom,
    RiseTo,
    FallFrom,
    FallTo,
}

impl Piece {
    pub const fn glyph(self, unicode: bool) -> char {
        if !unicode {
            return match self {
                Self::Level => '-',
                Self::Rise => '|',
                _ => '+',
            };
        }
        match self {
            Self::Level => '─',
            Self::Rise => '│',
            Self::RiseFrom => '╯',
            Self::RiseTo => '╭',
            Self::FallFrom => '╮',
            Self::FallTo => '╰',
        }
    }
}

/// The pieces of a line: column, height in rows from the bottom, piece.
///
/// `heights` holds the row of each column, counted from the bottom; a column without one interrupts the line.
pub fn pieces(heights: &[Option<usize>]) -> impl Iterator<Item = (usize, usize, Piece)> + '_ {
    let before = [None].into_iter().chain(heights.iter().copied());
    let columns = before.zip(heights.iter().copied()).enumerate();
    columns.flat_map(|(column, (before, height))| {
        let height = height.map(|height| (before.unwrap_or(height), height));
        height
            .into_iter()
            .flat_map(move |(before, height)| step(column, before, height))
    })
}

fn step(
    column: usize,
    before: usize,
    height: usize,
) -> impl Iterator<Item = (usize, usize, Piece)> {
    let (low, high) = (before.min(height), before.max(height));
    (low..=high).map(move |row| {
        let piece = match row {
            _ if before == height => Piece::Level,
            row if row == height && height > before => Piece::RiseTo,
            row if row == height => Piece::FallTo,
            row if row == before && height > before => Piece::RiseFrom,
            row if row == before => Piece::FallFrom,
            _ => Piece::Rise,
        };
        (column, row, piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(heights: &[Option<usize>], rows: usize) -> String {
        let mut cells = vec![vec![' '; heights.len()]; rows];
        for (column, row, piece) in pieces(heights) {
            cells[rows - 1 - row][column] = piece.glyph(true);
        }
        let rows = cells
            .into_iter()
            .map(|row| row.into_iter().collect::<String>());
        rows.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_line_rises_falls_and_stops() {
        let heights = [0, 0, 2, 2, 1].map(Some);
        let heights: Vec<_> = heights.into_iter().chain([None, Some(1)]).collect();
        assert_eq!(drawn(&heights, 3), "  ╭─╮  \n  │ ╰ ─\n──╯    ");
    }
}
