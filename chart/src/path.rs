//! Path data of marks: the place of each value, and holes that stay holes.

use jiff::Timestamp;

use crate::{
    Band, Mark, Point, Shortage,
    axis::{Axis, floor, longest_step, second},
    pen::Pen,
    svg::Length,
    thin,
};

/// The least height of a shortage, so that each is seen.
const LEAST: f64 = 3.0;

/// The place of the values of one panel, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Plot {
    pub axis: Axis,
    pub left: f64,
    pub width: f64,
    /// The upper edge.
    pub y: f64,
    pub height: f64,
    /// The value at the upper edge.
    pub top: f64,
}

// === impl Plot ===

impl Plot {
    pub fn x(self, at: Timestamp) -> Length {
        Length(self.left + self.axis.position(at).clamp(0.0, 1.0) * self.width)
    }

    pub fn y(self, value: f64) -> Length {
        let part = (value / self.top).clamp(0.0, 1.0);
        Length(self.y + (1.0 - part) * self.height)
    }

    pub fn right(self) -> Length {
        Length(self.left + self.width)
    }

    pub fn bottom(self) -> Length {
        Length(self.y + self.height)
    }

    /// The path data of a mark; empty if there is nothing to draw.
    pub fn data(self, mark: &Mark) -> String {
        match mark {
            Mark::Area(points) => self.area(points),
            Mark::Steps(points) => self.steps(points),
            Mark::Line(points) => self.line(points),
            Mark::Band(bands) => self.band(bands),
            Mark::Rule(value) => self.rule(*value),
            Mark::Shortage(shortages) => self.missing(shortages),
        }
    }

    fn rule(self, value: f64) -> String {
        let mut pen = Pen::default();
        if value <= self.top {
            pen.start(Length(self.left), self.y(value));
            pen.across(self.right());
        }
        pen.data()
    }

    fn area(self, points: &[Point]) -> String {
        let mut pen = Pen::default();
        for run in self.runs(points) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            pen.start(self.x(first.at), self.bottom());
            for point in &run {
                pen.line(self.x(point.at), self.y(point.value));
            }
            pen.line(self.x(last.at), self.bottom());
            pen.close();
        }
        pen.data()
    }

    fn line(self, points: &[Point]) -> String {
        let mut pen = Pen::default();
        for run in self.runs(points) {
            for (index, point) in run.iter().enumerate() {
                let (x, y) = (self.x(point.at), self.y(point.value));
                match index {
                    0 => pen.start(x, y),
                    _ => pen.line(x, y),
                }
            }
        }
        pen.data()
    }

    /// The runs of what is finite and on the axis, without the points that do not show.
    fn runs(self, points: &[Point]) -> Vec<Vec<Point>> {
        let drawn: Vec<Point> = points
            .iter()
            .filter(|p| p.value.is_finite() && self.shows(p.at))
            .copied()
            .collect();
        runs(&drawn, |point| point.at)
            .map(|run| thin::points(run, |p| self.column(p.at)))
            .collect()
    }

    /// A line whose level stays until the next; a level that is not finite ends it.
    fn steps(self, points: &[Point]) -> String {
        // The level at the start of the axis is that of the last point before it.
        let first = points
            .partition_point(|p| self.axis.position(p.at) <= 0.0)
            .saturating_sub(1);
        let end = points.partition_point(|p| self.axis.position(p.at) <= 1.0);
        let drawn = points.get(first..end).unwrap_or_default();
        let mut pen = Pen::default();
        for run in drawn.chunk_by(|left, right| left.value.is_finite() == right.value.is_finite()) {
            let thinned = thin::points(run, |p| self.column(p.at));
            let Some((first, rest)) = thinned.split_first().filter(|(p, _)| p.value.is_finite())
            else {
                continue;
            };
            pen.start(self.x(first.at), self.y(first.value));
            for (point, before) in rest.iter().zip(&thinned) {
                if point.value.total_cmp(&before.value).is_ne() {
                    pen.step(self.x(point.at), self.y(point.value));
                }
            }
            let end = rest.last().unwrap_or(first);
            let next = points.iter().find(|p| end.at < p.at);
            pen.across(self.x(next.unwrap_or(end).at));
        }
        pen.data()
    }

    fn band(self, bands: &[Band]) -> String {
        let known: Vec<Band> = bands
            .iter()
            .filter(|band| band.low.is_finite() && band.high.is_finite() && self.shows(band.at))
            .copied()
            .collect();
        let mut pen = Pen::default();
        for run in runs(&known, |band| band.at) {
            let thinned = thin::bands(run, |band| self.column(band.at));
            if let Some(first) = thinned.first() {
                pen.start(self.x(first.at), self.y(first.high));
            }
            for band in &thinned {
                pen.line(self.x(band.at), self.y(band.high));
            }
            for band in thinned.iter().rev() {
                pen.line(self.x(band.at), self.y(band.low));
            }
            pen.close();
        }
        pen.data()
    }

    /// Rectangles from the amount that there was to the amount that was needed.
    fn missing(self, shortages: &[Shortage]) -> String {
        self.rectangles(shortages, |short| {
            let (high, low) = (self.y(short.needed), self.y(short.had));
            (Length(high.0.min(low.0 - LEAST)), low)
        })
    }

    /// The whole height of the plot wherever something was missing.
    pub fn tint(self, mark: &Mark) -> String {
        let Mark::Shortage(shortages) = mark else {
            return String::new();
        };
        let joined: Vec<Shortage> = shortages
            .chunk_by(|left, right| right.at <= left.until)
            .filter_map(|group| {
                let (first, last) = (group.first()?, group.last()?);
                let until = last.until;
                Some(Shortage { until, ..*first })
            })
            .collect();
        self.rectangles(&joined, |_| (Length(self.y), self.bottom()))
    }

    /// One rectangle per shortage, at least a pixel wide, between two heights.
    fn rectangles(
        self,
        shortages: &[Shortage],
        heights: impl Fn(&Shortage) -> (Length, Length),
    ) -> String {
        let mut pen = Pen::default();
        let drawn: Vec<Shortage> = shortages
            .iter()
            .filter(|short| short.had.is_finite() && short.needed.is_finite())
            .filter(|short| self.overlaps(short.at, short.until))
            .copied()
            .collect();
        for short in thin::shortages(&drawn, |short| self.column(short.at)) {
            let ((high, low), from) = (heights(&short), self.x(short.at));
            let until = Length(self.x(short.until).0.max(from.0 + 1.0));
            pen.start(from, low);
            pen.line(from, high);
            pen.line(until, high);
            pen.line(until, low);
            pen.close();
        }
        pen.data()
    }

    /// Returns true if a part of a span is on the axis.
    pub fn overlaps(self, from: Timestamp, until: Timestamp) -> bool {
        self.axis.position(from) < 1.0 && self.axis.position(until) > 0.0
    }

    fn shows(self, at: Timestamp) -> bool {
        (0.0..=1.0).contains(&self.axis.position(at))
    }

    /// The column of pixels that an instant stands in.
    fn column(self, at: Timestamp) -> usize {
        floor(self.axis.position(at).clamp(0.0, 1.0) * self.width)
    }
}

/// Samples without holes between them.
fn runs<T>(samples: &[T], at: fn(&T) -> Timestamp) -> impl Iterator<Item = &[T]> {
    let instants: Vec<_> = samples.iter().map(at).collect();
    let hole = longest_step(&instants);
    samples.chunk_by(move |left, right| second(at(right)) - second(at(left)) <= hole)
}
