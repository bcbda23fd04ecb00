//! Results against two measures, such as what each setting of a sweep costs and how many minutes it leaves short.

use std::fmt::Write as _;

use crate::{
    Role, Unit,
    scale::Scale,
    svg::{Drawing, GAP, LEFT, LINE, Length, SMALL, Sheet, Text, width},
};

/// The radius of a dot.
const DOT: f64 = 5.0;
/// The number of parts of a line between two dots at whose ends there is no room for a label.
const SAMPLES: u32 = 50;
/// The approximate distances of the lines of the horizontal and the vertical scale.
const APART: (f64, f64) = (90.0, 40.0);

/// Labeled dots; those of one role are joined in their order.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The title.
    pub title: String,
    /// The description for screen readers.
    pub description: String,
    /// The width of the picture, in pixels.
    pub width: u32,
    /// The height of the plot, in pixels.
    pub height: u32,
    /// The measure and the unit of the horizontal axis, which covers the range of the dots.
    pub x: (String, Unit),
    /// The measure and the unit of the vertical axis, which begins at zero.
    pub y: (String, Unit),
    /// The results.
    pub dots: Vec<Dot>,
}

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// The name.
    pub name: String,
    /// The meaning of the result, which decides the color and the line that joins it.
    pub role: Role,
    /// The value on the horizontal axis.
    pub x: f64,
    /// The value on the vertical axis.
    pub y: f64,
}

/// A rectangle: left, top, right, bottom.
type Area = [f64; 4];

/// The ranges of both axes, in values and in pixels.
struct Frame {
    /// The lowest and highest value of the horizontal axis.
    x: (f64, f64),
    top: f64,
    left: f64,
    right: f64,
    /// The upper and the lower edge.
    y: (f64, f64),
}

// === impl Scatter ===

impl Default for Scatter {
    fn default() -> Self {
        Self {
            title: String::new(),
            description: String::new(),
            width: 860,
            height: 300,
            x: Default::default(),
            y: Default::default(),
            dots: Vec::new(),
        }
    }
}

impl Scatter {
    /// Draws the dots; those that are not finite are left out.
    pub fn draw(&self) -> Drawing {
        let mut sheet = Sheet::new(&self.title, &self.description, self.width);
        let dots: Vec<&Dot> = self
            .dots
            .iter()
            .filter(|dot| dot.x.is_finite() && dot.y.is_finite())
            .collect();
        sheet.text("", LEFT, sheet.height + SMALL, &self.y.0);
        sheet.height += LINE + GAP;
        let frame = self.frame(&mut sheet, &dots);
        // All dots and lines before the first label, which must not cover those that are drawn after it.
        let mut taken: Vec<Area> = dots.iter().map(|dot| frame.area(dot)).collect();
        for role in Role::ALL.iter().copied() {
            let places: Vec<_> = dots
                .iter()
                .filter(|dot| dot.role == role)
                .map(|dot| frame.place(dot))
                .collect();
            join(&mut sheet, role, &places, &mut taken);
        }
        for dot in &dots {
            self.dot(&mut sheet, dot, &frame);
            label(&mut sheet, dot, &frame, &mut taken);
        }
        Drawing(sheet)
    }

    /// Both axes with their lines; the sheet ends below them.
    fn frame(&self, sheet: &mut Sheet, dots: &[&Dot]) -> Frame {
        let (wide, high) = (sheet.width - 2.0 * LEFT, f64::from(self.height));
        let highest = dots.iter().map(|dot| dot.y).fold(0.0, f64::max);
        let vertical = Scale::new(None, highest, (high / APART.1).max(1.0), &self.y.1);
        let labels = vertical
            .lines()
            .map(|value| width(&self.y.1.label(value), SMALL));
        let left = LEFT + labels.fold(0.0, f64::max) + GAP;
        let across = dots.iter().map(|dot| dot.x);
        let from = across.clone().fold(f64::INFINITY, f64::min);
        let until = across.fold(f64::NEG_INFINITY, f64::max);
        let lines = (wide / APART.0).max(1.0);
        let horizontal = Scale::range((from, until), lines, &self.x.1);
        let end = match horizontal.1.last() {
            Some(last) => width(&self.x.1.label(*last), SMALL),
            None => 0.0,
        };
        let frame = Frame {
            x: horizontal.0,
            top: vertical.top,
            left,
            // The last label is centered on its line, so half of it is beyond the end of the axis.
            right: sheet.width - LEFT - end / 2.0,
            y: (sheet.height, sheet.height + high),
        };
        let mut grid = String::new();
        for value in vertical.lines() {
            let y = frame.y(value);
            let _infallible = write!(
                grid,
                "M{} {}H{}",
                Length(left),
                Length(y),
                Length(frame.right)
            );
            let at = (left - GAP, y + 4.5);
            sheet.anchored("value", "end", at, &self.y.1.label(value));
        }
        for value in horizontal.1 {
            let x = frame.x(value);
            let (high, low) = (Length(frame.y.0), Length(frame.y.1));
            let _infallible = write!(grid, "M{} {high}V{low}", Length(x));
            let at = (x, frame.y.1 + 18.0);
            sheet.anchored("value", "middle", at, &self.x.1.label(value));
        }
        sheet.path("grid", &grid);
        sheet.height = frame.y.1 + 18.0 + LINE;
        sheet.anchored("", "end", (frame.right, sheet.height), &self.x.0);
        sheet.height += GAP;
        frame
    }

    fn dot(&self, sheet: &mut Sheet, dot: &Dot, frame: &Frame) {
        let (x, y) = frame.place(dot);
        let (name, class) = (Text(&dot.name), dot.role.class("dot"));
        let (across, up) = (self.x.1.write(dot.x), self.y.1.write(dot.y));
        sheet.add(format_args!(
            "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{DOT}\"><title>{name}: {}, {}</title></circle>",
            Length(x),
            Length(y),
            Text(&across),
            Text(&up),
        ));
    }
}

// === impl Frame ===

impl Frame {
    fn x(&self, value: f64) -> f64 {
        let (from, until) = self.x;
        self.left + (value - from) / (until - from) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        let (high, low) = self.y;
        low - (value / self.top).clamp(0.0, 1.0) * (low - high)
    }

    fn place(&self, dot: &Dot) -> (f64, f64) {
        (self.x(dot.x), self.y(dot.y))
    }

    fn area(&self, dot: &Dot) -> Area {
        let (x, y) = self.place(dot);
        [x - DOT, y - DOT, x + DOT, y + DOT]
    }
}

/// Draws a line from dot to dot, which labels do not cover.
fn join(sheet: &mut Sheet, role: Role, places: &[(f64, f64)], taken: &mut Vec<Area>) {
    let mut data = String::new();
    for pair in places.windows(2) {
        let [(left, from), (right, until)] = *pair else {
            continue;
        };
        let _infallible = write!(
            data,
            "M{} {}L{} {}",
            Length(left),
            Length(from),
            Length(right),
            Length(until)
        );
        for step in 0..=SAMPLES {
            let part = f64::from(step) / f64::from(SAMPLES);
            let (x, y) = (left + part * (right - left), from + part * (until - from));
            taken.push([x - 1.0, y - 1.0, x + 1.0, y + 1.0]);
        }
    }
    sheet.path(&role.class("line"), &data);
}

/// Writes the name beside its dot, on the first side where it touches nothing.
fn label(sheet: &mut Sheet, dot: &Dot, frame: &Frame, taken: &mut Vec<Area>) {
    let (x, y) = frame.place(dot);
    let (wide, high) = (width(&dot.name, SMALL), SMALL);
    let beside = DOT + 4.0;
    let sides = [
        (x + beside, y + 4.5),
        (x + DOT, y - beside),
        (x - wide / 2.0, y - beside),
        (x - beside - wide, y + 4.5),
        (x - wide / 2.0, y + beside + high - 3.0),
        (x + DOT, y + beside + high - 3.0),
    ];
    for (x, y) in sides {
        let area = [x, y - high + 2.0, x + wide, y + 3.0];
        let within = x >= 0.0 && x + wide <= sheet.width && y - high + 2.0 >= 0.0;
        if within && !taken.iter().any(|other| overlap(&area, other)) {
            taken.push(area);
            sheet.text("", x, y, &dot.name);
            return;
        }
    }
}

fn overlap(one: &Area, other: &Area) -> bool {
    one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_stand_where_their_values_say_and_odd_ones_are_left_out() {
        let dot = |name: &str, role, x, y| Dot {
            name: name.to_owned(),
            role,
            x,
            y,
        };
        let scatter = Scatter {
            x: ("cost".to_owned(), Unit::Percent),
            y: ("short".to_owned(), Unit::Named("min".to_owned())),
            dots: vec![
                dot("plain", Role::Observed, 100.0, 50.0),
                dot("q & 0.9", Role::Desired, 110.0, 0.0),
                dot("odd", Role::Desired, f64::NAN, 1.0),
            ],
            ..Scatter::default()
        };
        let svg = scatter.draw().svg();
        let circle = |part: &str| svg.lines().find(|line| line.contains(part)).unwrap();
        let plain = circle("<title>plain: 100 %, 50 min</title>");
        assert!(
            plain.contains("cy=\"28\"") && plain.contains("class=\"observed dot\""),
            "{plain}"
        );
        assert!(
            circle("q &amp; 0.9: 110 %, 0 min").contains("cy=\"328\""),
            "{svg}"
        );
        assert!(!svg.contains("odd") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn no_dots_are_an_empty_frame() {
        let svg = Scatter::default().draw().svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
