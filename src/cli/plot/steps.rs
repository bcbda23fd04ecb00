//! A stepped line in box-drawing characters, one level per column, for numbers of replicas.
//!
//! ```text
//!      ╭──
//! ─────╯
//! ```

/// A character of the line in ASCII.
pub const fn ascii(piece: char) -> char {
    match piece {
        '─' => '-',
        '│' => '|',
        _ => '+',
    }
}

/// The pieces of a line: column, height in rows from the bottom, character.
///
/// `heights` holds the row of each column, counted from the bottom; a column without one interrupts the line.
pub fn pieces(heights: &[Option<usize>]) -> impl Iterator<Item = (usize, usize, char)> + '_ {
    let before = [None].into_iter().chain(heights.iter().copied());
    let columns = before.zip(heights.iter().copied()).enumerate();
    columns.flat_map(|(column, (before, height))| {
        let height = height.map(|height| (before.unwrap_or(height), height));
        height
            .into_iter()
            .flat_map(move |(before, height)| step(column, before, height))
    })
}

fn step(column: usize, before: usize, height: usize) -> impl Iterator<Item = (usize, usize, char)> {
    let (low, high) = (before.min(height), before.max(height));
    (low..=high).map(move |row| {
        let piece = match row {
            _ if before == height => '─',
            row if row == height && height > before => '╭',
            row if row == height => '╰',
            row if row == before && height > before => '╯',
            row if row == before => '╮',
            _ => '│',
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
            cells[rows - 1 - row][column] = piece;
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
