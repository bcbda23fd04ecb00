//! Path data in few bytes: in tenths of pixels, relative to the point before, so that rounding never adds up.

use crate::svg::Length;

/// The path data so far, and the place of the pen.
#[derive(Debug, Default)]
pub struct Pen {
    data: String,
    at: (i64, i64),
    /// The last command, which need not be repeated.
    last: Option<char>,
}

// === impl Pen ===

impl Pen {
    /// Begins at a point without a line to it.
    pub fn start(&mut self, x: Length, y: Length) {
        self.at = (tenths(x), tenths(y));
        self.command('M', &[self.at.0, self.at.1]);
    }

    /// A straight line.
    pub fn line(&mut self, x: Length, y: Length) {
        let to = (tenths(x), tenths(y));
        match (to.0 - self.at.0, to.1 - self.at.1) {
            (0, 0) => {}
            (across, 0) => self.command('h', &[across]),
            (0, down) => self.command('v', &[down]),
            (across, down) => self.command('l', &[across, down]),
        }
        self.at = to;
    }

    /// A line across, then one up or down.
    pub fn step(&mut self, x: Length, y: Length) {
        self.across(x);
        self.line(x, y);
    }

    /// A line across at the same height.
    pub fn across(&mut self, x: Length) {
        let to = tenths(x);
        if to != self.at.0 {
            self.command('h', &[to - self.at.0]);
            self.at.0 = to;
        }
    }

    /// A line back to the start of the path.
    pub fn close(&mut self) {
        self.data.push('Z');
        self.last = None;
    }

    /// The attribute `d`; empty if nothing was drawn.
    pub fn data(self) -> String {
        self.data
    }

    fn command(&mut self, letter: char, tenths: &[i64]) {
        // Further pairs of an `M` would be lines, so it is always repeated.
        let mut apart = self.last == Some(letter) && letter != 'M';
        if !apart {
            self.data.push(letter);
        }
        self.last = Some(letter);
        for number in tenths {
            // A minus sign separates numbers, too.
            if apart && *number >= 0 {
                self.data.push(' ');
            }
            self.number(*number);
            apart = true;
        }
    }

    fn number(&mut self, tenths: i64) {
        use std::fmt::Write as _;
        if tenths < 0 {
            self.data.push('-');
        }
        let (whole, part) = (tenths.abs() / 10, tenths.abs() % 10);
        if whole > 0 || part == 0 {
            let _infallible = write!(self.data, "{whole}");
        }
        if part > 0 {
            let _infallible = write!(self.data, ".{part}");
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn tenths(length: Length) -> i64 {
    // The limit keeps differences in range.
    (length.0 * 10.0).round().clamp(-1e9, 1e9) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_commands_are_not_repeated() {
        let mut pen = Pen::default();
        pen.start(Length(12.0), Length(100.04));
        for (x, y) in [
            (12.3, 99.0),
            (12.6, 100.0),
            (12.6, 100.0),
            (20.0, 100.0),
            (20.0, 0.0),
        ] {
            pen.line(Length(x), Length(y));
        }
        pen.step(Length(30.0), Length(10.5));
        pen.across(Length(29.9));
        pen.close();
        assert_eq!(pen.data(), "M12 100l.3-1 .3 1h7.4v-100h10v10.5h-.1Z");
    }

    #[test]
    fn a_thousand_small_steps_end_where_they_should() {
        let mut pen = Pen::default();
        pen.start(Length(0.0), Length(0.0));
        for step in 1..=1000_u32 {
            pen.line(Length(f64::from(step) * 0.333), Length(0.0));
        }
        let data = pen.data().replace("M0 0h", "");
        let steps = data.split(' ').map(|step| step.parse::<f64>().unwrap());
        assert!((steps.sum::<f64>() - 333.0).abs() < 1e-6);
    }
}
