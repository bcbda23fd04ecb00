//! A plot of a history and its forecast, in characters.
//!
//! The history is an area, the forecast a line with a band above it, capacity a line of steps, so that they differ
//! without color. Braille dots where the screen has them, ASCII where not. Times are UTC. The caller names the values.
//!
//! ```text
//! samples --level per column of dots--> Canvas (dots and ink per cell) --glyphs--> rows
//!                                                  time axis, now, window, scale --^
//! ```

mod canvas;
mod steps;

use foretide_chart::{Axis, Shortage, floor, label, longest_step, real, second, ticks};
use foretide_models::{Prediction, Sample};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use self::canvas::{Canvas, Dot, Ink};
use super::output::{Paint, Screen, Size};

/// Tops of the scale, within a power of ten.
const TOPS: [f64; 11] = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
/// Rows of a picture in a report.
const ROWS: usize = 8;
/// Raises a scale so that the top one of these rows stays free.
const HEADROOM: f64 = 8.0 / 7.0;

/// The values of a plot.
#[derive(Clone, Copy)]
pub struct Plot<'a> {
    /// Measured values, in the order of time.
    pub history: &'a [Sample],
    /// Expected values of the past and the future with their upper values, in the order of time.
    pub forecast: &'a [Prediction],
    /// The capacity, in the order of time: a line of steps.
    pub capacity: &'a [Sample],
    /// Shortages of capacity: shaded, over all other values.
    pub shortages: &'a [Shortage],
    /// Span of the time axis; by default that of all values.
    pub span: Option<(Timestamp, Timestamp)>,
    /// The top of the scale; by default a round number above all values.
    pub top: Option<f64>,
    /// End of the history and beginning of the forecast.
    pub now: Option<Timestamp>,
    /// The part of the forecast that counts, from now on; zero for none.
    pub window: SignedDuration,
    /// A value of the scale in words.
    pub label: &'a dyn Fn(f64) -> String,
}

// === impl Plot ===

impl<'a> Plot<'a> {
    /// Returns an empty plot.
    pub const fn new(label: &'a dyn Fn(f64) -> String) -> Self {
        Self {
            history: &[],
            forecast: &[],
            capacity: &[],
            shortages: &[],
            span: None,
            top: None,
            now: None,
            window: SignedDuration::ZERO,
            label,
        }
    }

    /// Returns an empty plot of counts.
    pub const fn of_replicas() -> Self {
        Self::new(&replicas)
    }

    /// The picture, a line per row, each ended; `size` is without axis and scale.
    ///
    /// Empty if there is nothing to draw: no samples, or all at one instant.
    pub fn render(&self, size: Size, screen: Screen) -> String {
        let Some(axis) = self.axis(size.columns) else {
            return String::new();
        };
        let top = self.top.unwrap_or_else(|| top(self.highest()));
        let canvas = self.canvas(size, axis, top, screen);
        let now = self.now.map(|now| axis.column(now));
        let mut text = String::new();
        for row in 0..size.rows {
            let cells = canvas.row(row, now, screen);
            let scale = self.scale(row, size.rows, top, screen);
            text.extend([cells.as_str(), scale.as_str(), "\n"]);
        }
        text.push_str(&self.ruler(axis, screen));
        text.push('\n');
        text.push_str(&screen.paint(Paint::Dim, labels(axis, now).trim_end()));
        text.push('\n');
        text
    }

    fn axis(&self, columns: usize) -> Option<Axis> {
        let all = || self.drawn().chain(self.now);
        let (from, to) = match self.span {
            Some(span) => span,
            None => (all().min()?, all().max()?),
        };
        self.drawn().next()?;
        Axis::new((from, to), columns)
    }

    fn highest(&self) -> f64 {
        let past = self.history.iter().chain(self.capacity).map(|s| s.value);
        let forecast = self.forecast.iter();
        past.chain(forecast.map(|p| p.upper.unwrap_or(p.value)))
            .fold(0.0, f64::max)
    }

    /// The instants of all values.
    fn drawn(&self) -> impl Iterator<Item = Timestamp> {
        let past = self.history.iter().chain(self.capacity).map(|s| s.at);
        past.chain(self.forecast.iter().map(|p| p.at))
    }

    fn canvas(&self, size: Size, axis: Axis, top: f64, screen: Screen) -> Canvas {
        let mut canvas = Canvas::new(size, screen);
        let (columns, height) = canvas.extent();
        let fine = axis.with_columns(columns);
        let known = levels(self.history, fine);
        for (x, level) in known.iter().enumerate() {
            let Some(level) = level else { continue };
            (0..dot(*level, top, height)).for_each(|y| canvas.set(x, y, Dot::History));
        }
        self.draw_forecast(&mut canvas, fine, top, &known);
        let down = canvas.dots_down();
        let lowest = size.rows.saturating_sub(1);
        // The line is drawn above its value, so that it hides nothing within capacity.
        let heights: Vec<_> = highest(self.capacity, axis)
            .into_iter()
            .map(|level: Option<f64>| Some(dot(level?, top, height).div_ceil(down).min(lowest)))
            .collect();
        for (column, row, piece) in steps::pieces(&heights) {
            canvas.cover(column, row, Ink::Capacity(piece));
        }
        for shortage in self.shortages {
            let row = |value| dot(value, top, height).div_ceil(down);
            // At least the cell of the line, so that every shortage is visible.
            let from = row(shortage.had).min(lowest);
            let to = row(shortage.needed).max(from + 1);
            let column = axis.column(shortage.at);
            (from..to).for_each(|row| canvas.cover(column, row, Ink::Shortage));
        }
        canvas
    }

    /// Draws a band from the expected values to the upper ones, where it is above the history; and the expected values
    /// as a line, where there is no history, or if there is no band.
    fn draw_forecast(&self, canvas: &mut Canvas, fine: Axis, top: f64, known: &[Option<f64>]) {
        let (_, height) = canvas.extent();
        let sample = |at, value| Sample { at, value };
        let expected = self.forecast.iter().map(|p| sample(p.at, p.value));
        let forecast = self.forecast.iter();
        let upper = forecast.map(|p| sample(p.at, p.upper.unwrap_or(p.value)));
        let expected = levels(&expected.collect::<Vec<_>>(), fine);
        let upper = levels(&upper.collect::<Vec<_>>(), fine);
        let bare = self.forecast.iter().all(|p| p.upper.is_none());
        let mut before = None;
        for (x, ((expected, upper), known)) in
            expected.into_iter().zip(upper).zip(known).enumerate()
        {
            let (Some(expected), Some(upper)) = (expected, upper) else {
                before = None;
                continue;
            };
            let y = dot(expected, top, height).saturating_sub(1);
            let above = known.map_or(0, |known| dot(known, top, height));
            if !bare {
                let highest = dot_under(upper, top, height);
                (y.max(above)..highest).for_each(|y| canvas.set(x, y, Dot::Band));
            }
            if bare || known.is_none() {
                // Begins at the previous dot, so that a steep line has no holes.
                let joined = before.unwrap_or(y);
                (y.min(joined)..=y.max(joined))
                    .filter(|y| *y >= above)
                    .for_each(|y| canvas.set(x, y, Dot::Line));
            }
            before = Some(y);
        }
    }

    /// The right-hand scale: a value at the top, in the middle and at the bottom.
    fn scale(&self, row: usize, rows: usize, top: f64, screen: Screen) -> String {
        // A line of capacity is drawn in the row whose lower edge is its value.
        let half = rows - rows / 2 - usize::from(!self.capacity.is_empty());
        let value = match row {
            0 => Some(top),
            row if row == half && rows > 3 => Some(top * (real(rows / 2) / real(rows))),
            row if row + 1 == rows && rows > 1 => Some(0.0),
            _ => None,
        };
        let (tick, line) = if screen.unicode {
            ("┤", "│")
        } else {
            ("+", "|")
        };
        match value {
            Some(value) => screen.paint(Paint::Dim, &format!("{tick} {}", (self.label)(value))),
            None => screen.paint(Paint::Dim, line),
        }
    }

    /// The time axis with its ticks, the window of the forecast and the instant of now.
    fn ruler(&self, axis: Axis, screen: Screen) -> String {
        let (line, tick, window, now, corner) = if screen.unicode {
            ("─", "┴", "━", "▲", "┘")
        } else {
            ("-", "+", "=", "^", "+")
        };
        let at = self.now.map(|now| axis.column(now));
        let window_ends = self.now.and_then(|now| now.checked_add(self.window).ok());
        let until = window_ends.filter(|_| self.window.is_positive());
        let window_end = until.map_or(at, |until| Some(axis.column(until)));
        let ticks = ticks(axis, &TimeZone::UTC);
        let ticks: Vec<usize> = ticks.into_iter().map(|at| axis.column(at)).collect();
        let mut text = String::new();
        for column in 0..axis.columns() {
            text.push_str(&match column {
                column if Some(column) == at => screen.paint(Paint::Strong, now),
                column if at.is_some_and(|at| column > at) && Some(column) <= window_end => {
                    screen.paint(Paint::Future, window)
                }
                column if ticks.contains(&column) => screen.paint(Paint::Dim, tick),
                _ => screen.paint(Paint::Dim, line),
            });
        }
        text.push_str(&screen.paint(Paint::Dim, corner));
        text
    }
}

/// The highest sample of each column.
fn highest(samples: &[Sample], axis: Axis) -> Vec<Option<f64>> {
    let mut levels = vec![None; axis.columns()];
    for sample in samples {
        if let Some(level) = levels.get_mut(axis.column(sample.at)) {
            *level = Some(level.map_or(sample.value, |known: f64| known.max(sample.value)));
        }
    }
    levels
}

/// The highest sample of each column, or an interpolation between its neighbors.
fn levels(samples: &[Sample], axis: Axis) -> Vec<Option<f64>> {
    let mut levels = highest(samples, axis);
    let instants: Vec<_> = samples.iter().map(|sample| sample.at).collect();
    let hole = longest_step(&instants);
    for pair in samples.windows(2) {
        let [left, right] = pair else { continue };
        let (from, to) = (second(left.at), second(right.at));
        if to - from > hole {
            continue;
        }
        for column in axis.column(left.at)..axis.column(right.at) {
            let at = axis.middle(column).clamp(from, to);
            let value = left.value + (right.value - left.value) * (at - from) / (to - from);
            if let Some(level @ None) = levels.get_mut(column) {
                *level = Some(value);
            }
        }
    }
    levels
}

/// Returns the height of a value in dots, rounded; at least one if it is not zero.
fn dot(value: f64, top: f64, height: usize) -> usize {
    floor((value / top * real(height)).round())
        .min(height)
        .max(usize::from(value > 0.0))
}

/// Returns the height of a value in dots, rounded up.
fn dot_under(value: f64, top: f64, height: usize) -> usize {
    floor((value / top * real(height)).ceil()).min(height)
}

/// The lowest round number that is not below the highest value.
fn top(highest: f64) -> f64 {
    if highest.is_nan() || highest <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(highest.log10().floor());
    let fits = TOPS
        .iter()
        .map(|top| top * power)
        // A value that is above a top by rounding alone needs no higher one.
        .find(|top| *top >= highest * 0.999_999);
    fits.unwrap_or(highest)
}

/// The top of a scale of counts: one row above the highest of them, rounded up to an even number, so that half of it is
/// a whole number.
pub fn top_of_counts(counts: impl Iterator<Item = f64>) -> f64 {
    (counts.fold(1.0, f64::max) * HEADROOM / 2.0).ceil() * 2.0
}

/// The size of a picture in a report, beside a scale of some columns.
pub fn size_beside(scale: usize, screen: Screen) -> Size {
    Size {
        columns: screen.width() - scale,
        rows: ROWS,
    }
}

/// A count on the scale.
fn replicas(value: f64) -> String {
    format!("{:>2}", (value * 10.0).round() / 10.0)
}

/// The row below the axis: `now`, and the labels of the ticks that do not overlap it.
fn labels(axis: Axis, now: Option<usize>) -> String {
    let mut row = Vec::new();
    if let Some(now) = now {
        put(&mut row, now, "now");
    }
    for at in ticks(axis, &TimeZone::UTC) {
        put(&mut row, axis.column(at), &label(at, &TimeZone::UTC));
    }
    row.into_iter().collect()
}

/// Writes a text centered on a column, unless it would touch another one or the left edge.
fn put(row: &mut Vec<char>, column: usize, text: &str) {
    let length = text.chars().count();
    let Some(start) = column.checked_sub(length / 2) else {
        return;
    };
    let mut around = row.iter().skip(start.saturating_sub(1)).take(length + 2);
    if around.any(|c| *c != ' ') {
        return;
    }
    row.resize(row.len().max(start + length), ' ');
    let cells = row.iter_mut().skip(start);
    cells.zip(text.chars()).for_each(|(cell, c)| *cell = c);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: Screen = Screen {
        color: false,
        unicode: true,
        size: None,
    };

    /// One sample an hour from a start, by a function of the hour.
    fn hourly(from: i64, hours: i64, value: impl Fn(f64) -> f64) -> Vec<Sample> {
        let sample = |hour: i64| Sample {
            at: Timestamp::from_second(hour * 3600).unwrap(),
            value: value(f64::from(i32::try_from(hour).unwrap())),
        };
        (from..from + hours).map(sample).collect()
    }

    /// The samples as a forecast without an upper path.
    fn expected(samples: &[Sample]) -> Vec<Prediction> {
        let sample = |s: &Sample| Prediction {
            at: s.at,
            value: s.value,
            upper: None,
        };
        samples.iter().map(sample).collect()
    }

    fn wave(hour: f64) -> f64 {
        0.5 - 0.4 * (hour / 24.0 * std::f64::consts::TAU).cos()
    }

    fn drawn(screen: Screen, size: Size) -> String {
        let (history, forecast) = (hourly(0, 31, wave), expected(&hourly(31, 12, wave)));
        let plot = Plot {
            history: &history,
            forecast: &forecast,
            now: Timestamp::from_second(30 * 3600).ok(),
            window: SignedDuration::from_hours(3),
            ..Plot::new(&|value| format!("{value:.2}"))
        };
        plot.render(size, screen)
    }

    #[test]
    fn the_history_is_an_area_and_the_forecast_a_line() {
        let size = Size {
            columns: 48,
            rows: 6,
        };
        let expected = concat!(
            "           ⢀⣀⣠⣀⣀                  ┊    ⣀⣀⣤⣀⡀    ┤ 1.00\n",
            "         ⣠⣶⣿⣿⣿⣿⣿⣷⣦⡀               ┊ ⢀⡴⠋⠁   ⠉⠓⢦⡀ │\n",
            "       ⣠⣼⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣤⡀             ┊⠴⠋         ⠹⢤│\n",
            "     ⣠⣾⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣦          ⢀⣴⡇            ⠈┤ 0.50\n",
            "   ⣠⣶⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣷⣦⡀     ⢀⣴⣾⣿⡇             │\n",
            "⣴⣶⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣷⣶⣤⣶⣾⣿⣿⣿⣿⡇             ┤ 0.00\n",
            "─────────────┴─────────────┴──────▲━━━───┴──────┘\n",
            "           12:00      Fri 02 Jan now   12:00\n",
        );
        assert_eq!(drawn(SCREEN, size), expected);
    }

    #[test]
    fn a_band_is_lighter_than_the_history_and_has_a_line_only_beyond_it() {
        let history = hourly(0, 24, |_| 0.5);
        let band = |p: Prediction| Prediction {
            upper: Some(p.value * 1.4),
            ..p
        };
        let forecast: Vec<_> = expected(&hourly(12, 25, |_| 0.5))
            .into_iter()
            .map(band)
            .collect();
        let plot = Plot {
            history: &history,
            forecast: &forecast,
            capacity: &hourly(0, 24, |_| 0.75),
            top: Some(1.0),
            now: Timestamp::from_second(23 * 3600).ok(),
            ..Plot::new(&|value| format!("{value:.2}"))
        };
        let size = Size {
            columns: 36,
            rows: 4,
        };
        let expected = concat!(
            "────────────────────────            ┤ 1.00\n",
            "            ⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇⡇┤ 0.50\n",
            "⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⡏⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉│\n",
            "⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⡇            ┤ 0.00\n",
            "────────────┴──────────▲┴──────────┴┘\n",
            "          12:00       now        12:00\n",
        );
        assert_eq!(plot.render(size, SCREEN), expected);
    }

    #[test]
    fn what_is_missing_is_shaded_above_the_capacity() {
        let at = |hour: i64| Timestamp::from_second(hour * 3600).unwrap();
        let shortage = |hour, needed| Shortage {
            at: at(hour),
            until: at(hour + 1),
            had: 0.25,
            needed,
        };
        let plot = Plot {
            history: &hourly(0, 12, |hour| if hour < 4.0 { 0.2 } else { 0.75 }),
            capacity: &hourly(0, 12, |hour| if hour < 6.0 { 0.25 } else { 0.75 }),
            shortages: &[shortage(4, 1.0), shortage(5, 0.3)],
            top: Some(1.0),
            ..Plot::new(&|value| format!("{value:.2}"))
        };
        let size = Size {
            columns: 12,
            rows: 4,
        };
        let rows = |screen| {
            plot.render(size, screen)
                .lines()
                .take(4)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let unicode = concat!(
            "    ▓ ╭─────┤ 1.00\n",
            "    ▓⣿│⣿⣿⣿⣿⣿┤ 0.50\n",
            "────▓▓╯⣿⣿⣿⣿⣿│\n",
            "⣶⣶⣶⣾⣿⣿⣿⣿⣿⣿⣿⣿┤ 0.00",
        );
        assert_eq!(rows(SCREEN), unicode);
        assert!(rows(Screen::default()).starts_with("    # +-----+ 1.00\n"));
    }

    #[test]
    fn without_unicode_it_is_drawn_in_ascii() {
        let size = Size {
            columns: 48,
            rows: 6,
        };
        let text = drawn(Screen::default(), size);
        assert!(text.is_ascii());
        let expected = concat!(
            "            ...                   |     ****    + 1.00\n",
            "          .::::::.                |  ****  ***  |\n",
            "       ..::::::::::.              |***       ***|\n",
            "     .:::::::::::::::.           .:            *+ 0.50\n",
            "   .:::::::::::::::::::..     ..:::             |\n",
            "..::::::::::::::::::::::::...::::::             + 0.00\n",
            "-------------+-------------+------^===---+------+\n",
            "           12:00      Fri 02 Jan now   12:00\n",
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn color_changes_nothing_but_color() {
        let size = Size {
            columns: 30,
            rows: 4,
        };
        let colored = drawn(
            Screen {
                color: true,
                ..SCREEN
            },
            size,
        );
        let mut plain = String::new();
        let mut rest = colored.as_str();
        while let Some((text, code)) = rest.split_once("\u{1b}[") {
            plain.push_str(text);
            rest = code.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        assert_ne!(colored, plain);
        assert_eq!(plain, drawn(SCREEN, size));
    }

    #[test]
    fn a_hole_in_the_history_stays_a_hole() {
        let mut history = hourly(0, 20, |_| 1.0);
        history.extend(hourly(60, 20, |_| 1.0));
        let plot = Plot {
            history: &history,
            now: Timestamp::from_second(80 * 3600).ok(),
            ..Plot::new(&|_| String::new())
        };
        let text = plot.render(
            Size {
                columns: 20,
                rows: 1,
            },
            SCREEN,
        );
        assert_eq!(text.lines().next(), Some("⣿⣿⣿⣿⣿          ⣿⣿⣿⣿⣿┤ "));
    }

    #[test]
    fn nothing_to_draw_is_no_picture() {
        let plot = Plot {
            history: &hourly(0, 1, |_| 1.0),
            now: Timestamp::from_second(0).ok(),
            ..Plot::new(&|_| String::new())
        };
        assert_eq!(
            plot.render(
                Size {
                    columns: 20,
                    rows: 4
                },
                SCREEN
            ),
            ""
        );
    }

    #[test]
    fn the_scale_ends_on_a_round_number() {
        for (highest, expected) in [
            (0.0, 1.0),
            (f64::NAN, 1.0),
            (0.93, 1.0),
            (1.0, 1.0),
            (1.01, 1.2),
            (7.0, 8.0),
            (9.9, 10.0),
            (0.021, 0.025),
        ] {
            assert!(
                (top(highest) - expected).abs() < 1e-9,
                "{highest}: {}",
                top(highest)
            );
        }
    }

    #[test]
    fn any_numbers_make_a_picture_without_a_panic() {
        let odd = [0.0, -0.0, 1e-300, 1e300, f64::MAX];
        for value in odd {
            for seconds in [1, 59, 86_400, 40_000_000_000] {
                let at = |second| Timestamp::from_second(second).unwrap();
                let history = [
                    Sample { at: at(0), value },
                    Sample {
                        at: at(seconds),
                        value: 1.0,
                    },
                ];
                let plot = Plot {
                    history: &history,
                    capacity: &history,
                    now: Some(at(seconds)),
                    window: SignedDuration::MAX,
                    ..Plot::new(&|value| format!("{value}"))
                };
                for size in [(1, 1), (7, 2), (80, 9), (0, 0)] {
                    let size = Size {
                        columns: size.0,
                        rows: size.1,
                    };
                    assert!(plot.render(size, SCREEN).lines().count() <= size.rows + 2);
                }
            }
        }
    }
}
