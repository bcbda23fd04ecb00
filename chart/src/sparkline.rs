//! A series at the size of a word, for the rows of a table.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::{
    Point,
    axis::{Axis, real},
};

/// The number of columns, and the width of each in units of the view box.
const COLUMNS: usize = 40;
const COLUMN: f64 = 3.0;
/// The height of the view box, and the room for a line at its upper and lower edge.
const HEIGHT: f64 = 24.0;
const EDGE: f64 = 1.0;

/// Path data of two lines in one view box, [`Sparkline::VIEW_BOX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sparkline {
    /// The measured past.
    pub history: String,
    /// The expected future, which begins where the history ends.
    pub ahead: String,
}

// === impl Sparkline ===

impl Sparkline {
    /// The attribute `viewBox` that both lines fit into.
    pub const VIEW_BOX: &'static str = "0 0 120 24";

    /// The highest values of each of 40 columns, from zero; both lines have one scale. At most some 300 bytes each.
    ///
    /// Values that are not finite, and those outside of the span, are left out.
    pub fn new(history: &[Point], ahead: &[Point], span: (Timestamp, Timestamp)) -> Self {
        let Some(axis) = Axis::new(span, COLUMNS) else {
            return Self::default();
        };
        let (history, mut ahead) = (peaks(history, axis), peaks(ahead, axis));
        if let Some(joint) = history.last().copied() {
            ahead.retain(|(column, _)| *column > joint.0);
            if !ahead.is_empty() {
                ahead.insert(0, joint);
            }
        }
        let top = history
            .iter()
            .chain(&ahead)
            .fold(f64::MIN_POSITIVE, |top, (_, value)| top.max(*value));
        Self {
            history: line(&history, top),
            ahead: line(&ahead, top),
        }
    }
}

/// The columns that have values, and the highest in each.
fn peaks(points: &[Point], axis: Axis) -> Vec<(usize, f64)> {
    let mut peaks: Vec<(usize, f64)> = Vec::new();
    for point in points {
        if !point.value.is_finite() || !(0.0..=1.0).contains(&axis.position(point.at)) {
            continue;
        }
        let column = axis.column(point.at);
        match peaks.last_mut() {
            Some((last, peak)) if *last == column => *peak = peak.max(point.value),
            _ => peaks.push((column, point.value)),
        }
    }
    peaks
}

fn line(peaks: &[(usize, f64)], top: f64) -> String {
    let mut data = String::new();
    for (index, (column, value)) in peaks.iter().enumerate() {
        let command = match index {
            0 => "M",
            1 => "L",
            _ => " ",
        };
        let part = (value / top).clamp(0.0, 1.0);
        let y = (HEIGHT - EDGE - part * (HEIGHT - 2.0 * EDGE)).round();
        let x = real(*column) * COLUMN;
        let _infallible = write!(data, "{command}{x} {y}");
    }
    data
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn points(values: &[f64], from: i64) -> Vec<Point> {
        let points = (from..).zip(values).map(|(second, value)| Point {
            at: at(second),
            value: *value,
        });
        points.collect()
    }

    #[test]
    fn both_lines_have_one_scale_and_meet() {
        let sparkline = Sparkline::new(
            &points(&[0.0, 10.0], 0),
            &points(&[5.0, f64::NAN, 10.0], 2),
            (at(0), at(40)),
        );
        assert_eq!(sparkline.history, "M0 23L3 1");
        assert_eq!(sparkline.ahead, "M3 1L6 12 12 1");
        assert_eq!(
            Sparkline::new(&[], &[], (at(0), at(0))),
            Sparkline::default()
        );
    }

    proptest! {
        #[test]
        fn a_line_is_short_however_many_points_it_has(
            values in prop::collection::vec(-1.0..1e9_f64, 0..3000),
            split in 0..3000_usize,
        ) {
            let all = points(&values, 0);
            let (history, ahead) = all.split_at(split.min(all.len()));
            let sparkline = Sparkline::new(history, ahead, (at(0), at(3000)));
            prop_assert!(sparkline.history.len() <= 300, "{}", sparkline.history);
            prop_assert!(sparkline.ahead.len() <= 300, "{}", sparkline.ahead);
        }
    }
}
