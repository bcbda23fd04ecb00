//! One bar per member of a fleet: the budget that it was given, what runs in it, and its capacity.

use std::fmt::Write as _;

use crate::{
    Role, Unit,
    axis::real,
    scale::Scale,
    svg::{Drawing, GAP, LEFT, Length, NAME, SMALL, Sheet, Sign, Text, width},
};

/// The height of a bar, and of the bar of what runs inside it.
const BAR: f64 = 18.0;
const INNER: f64 = 8.0;
/// The text above each bar, and the distance of the next.
const HEAD: f64 = 24.0;
const BELOW: f64 = 12.0;
/// The approximate distance of the lines of the scale.
const APART: f64 = 90.0;

/// Bars from top to bottom, on one scale of replicas.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The description for screen readers.
    pub description: String,
    /// The width of the picture, in pixels.
    pub width: u32,
    /// The bars, one per member.
    pub bars: Vec<Bar>,
}

/// A member and its replicas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// The name of the member.
    pub name: String,
    /// The basis of the member's share, or its state.
    pub note: String,
    /// The budget: the least and the most replicas.
    pub budget: (u32, u32),
    /// The number of replicas that fit, if it is known.
    pub capacity: Option<u32>,
    /// The number of ready replicas, if it is known.
    pub ready: Option<u32>,
    /// The number of replicas that are wanted and not ready.
    pub pending: u32,
    /// True if the member does not answer, so that its replicas are as they were last seen.
    pub is_lost: bool,
}

// === impl Bars ===

impl Default for Bars {
    fn default() -> Self {
        Self {
            title: String::new(),
            description: String::new(),
            width: 860,
            bars: Vec::new(),
        }
    }
}

impl Bars {
    /// Draws the bars.
    pub fn draw(&self) -> Drawing {
        let mut sheet = Sheet::new(&self.title, &self.description, self.width);
        let wide = sheet.width - 2.0 * LEFT;
        let highest = self.bars.iter().map(Bar::highest).max().unwrap_or(0);
        let lines = (wide / APART).clamp(2.0, 8.0);
        let scale = Scale::new(None, f64::from(highest), lines, &Unit::Replicas);
        let top = sheet.height;
        let bottom = top + real(self.bars.len()) * (HEAD + BAR + BELOW);
        let mut grid = String::new();
        for value in scale.lines() {
            let line = place(value, scale, wide);
            let anchor = match value {
                zero if zero <= 0.0 => "start",
                last if last >= scale.top => "end",
                _ => "middle",
            };
            let _infallible = write!(grid, "M{} {}V{}", Length(line), Length(top), Length(bottom));
            // Only the last line names the unit.
            let text = if value >= scale.top {
                Unit::Replicas.write(value)
            } else {
                Unit::Replicas.label(value)
            };
            sheet.anchored("value", anchor, (line, bottom + 16.0), &text);
        }
        sheet.path("grid", &grid);
        for bar in &self.bars {
            bar.draw(&mut sheet, |count| place(f64::from(count), scale, wide));
        }
        sheet.height = bottom + 16.0 + GAP;
        sheet.legend(&self.signs());
        Drawing(sheet)
    }

    fn signs(&self) -> Vec<Sign<'static>> {
        let mut signs = vec![
            Sign::new(Role::Desired, "bar", "minReplicas"),
            Sign::new(Role::Desired, "bar soft", "up to maxReplicas"),
        ];
        if self.any(|bar| bar.ready.is_some() && !bar.is_lost) {
            signs.push(Sign::new(Role::Floor, "bar", "ready"));
        }
        if self.any(|bar| bar.ready.is_some() && bar.is_lost) {
            signs.push(Sign::new(Role::Floor, "bar soft", "ready when last seen"));
        }
        if self.any(|bar| bar.pending > 0) {
            signs.push(Sign::new(Role::Short, "bar", "pending"));
        }
        if self.any(|bar| bar.capacity.is_some()) {
            signs.push(Sign::new(Role::Cron, "rule capacity", "capacity"));
        }
        signs
    }

    fn any(&self, has: fn(&Bar) -> bool) -> bool {
        self.bars.iter().any(has)
    }
}

// === impl Bar ===

impl Bar {
    fn highest(&self) -> u32 {
        let runs = self.ready.unwrap_or(0).saturating_add(self.pending);
        self.budget.1.max(runs).max(self.capacity.unwrap_or(0))
    }

    fn draw(&self, sheet: &mut Sheet, x: impl Fn(u32) -> f64) {
        let base = sheet.height + HEAD - 7.0;
        let y = sheet.height + HEAD;
        let (least, most) = self.budget;
        sheet.text("name", LEFT, base, &self.name);
        let note = LEFT + width(&self.name, NAME) + 3.0 * GAP;
        let budget = format!("{least} to {most}");
        let right = sheet.width - LEFT;
        if note + width(&self.note, SMALL) + GAP + width(&budget, SMALL) <= right {
            sheet.text("", note, base, &self.note);
        }
        sheet.anchored("value", "end", (right, base), &budget);
        sheet.add(format_args!("<g><title>{}</title>", Text(&self.sentence())));
        let desired = Role::Desired;
        rectangle(sheet, &desired.class("bar soft"), (x(0), x(most)), (y, BAR));
        // Pods are drawn inside the bar, so the minimum is a strip at its lower edge.
        let thick = if self.ready.is_some() { 3.0 } else { BAR };
        rectangle(
            sheet,
            &desired.class("bar"),
            (x(0), x(least)),
            (y + BAR - thick, thick),
        );
        if let Some(ready) = self.ready {
            let inner = (y + 4.0, INNER);
            let all = ready.saturating_add(self.pending);
            let class = if self.is_lost { "bar soft" } else { "bar" };
            rectangle(sheet, &Role::Floor.class(class), (x(0), x(ready)), inner);
            rectangle(sheet, &Role::Short.class("bar"), (x(ready), x(all)), inner);
        }
        if let Some(capacity) = self.capacity {
            let data = format!("M{} {}v{}", Length(x(capacity)), Length(y - 4.0), BAR + 8.0);
            sheet.path(&Role::Cron.class("rule capacity"), &data);
        }
        sheet.body.push_str("</g>\n");
        sheet.height = y + BAR + BELOW;
    }

    /// The bar in words.
    fn sentence(&self) -> String {
        let (least, most) = self.budget;
        let mut text = format!("{}: {least} to {most} replicas", self.name);
        if let Some(ready) = self.ready {
            let _infallible = write!(text, ", {ready} ready, {} pending", self.pending);
        }
        if self.is_lost {
            text.push_str(" when last seen");
        }
        if let Some(capacity) = self.capacity {
            let _infallible = write!(text, ", capacity {capacity}");
        }
        text
    }
}

/// The horizontal place of a value on a scale of this width.
fn place(value: f64, scale: Scale, wide: f64) -> f64 {
    LEFT + value / scale.top * wide
}

fn rectangle(sheet: &mut Sheet, class: &str, (from, until): (f64, f64), (y, height): (f64, f64)) {
    if until > from {
        let (x, y, wide) = (Length(from), Length(y), Length(until - from));
        sheet.add(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{height}\"/>"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_budget_pods_and_capacity_on_one_scale() {
        let svg = Bars {
            width: 124,
            bars: vec![Bar {
                name: "a<b".to_owned(),
                budget: (2, 8),
                capacity: Some(10),
                ready: Some(3),
                pending: 1,
                ..Bar::default()
            }],
            ..Bars::default()
        }
        .draw()
        .svg();
        assert!(
            svg.contains("<title>a&lt;b: 2 to 8 replicas, 3 ready, 1 pending, capacity 10</title>")
        );
        // Ten replicas take 100 units from 12 on.
        for (class, x, wide) in [
            ("desired bar soft", 12, 80),
            ("desired bar", 12, 20),
            ("floor bar", 12, 30),
            ("short bar", 42, 10),
        ] {
            let start = format!("<rect class=\"{class}\" x=\"{x}\" ");
            let line = svg
                .lines()
                .find(|line| line.starts_with(&start))
                .unwrap_or(&svg);
            assert!(
                line.contains(&format!(" width=\"{wide}\"")),
                "{class}: {line}"
            );
        }
        assert!(
            svg.contains("<path class=\"cron rule capacity\" d=\"M112 20v26\"/>"),
            "{svg}"
        );
    }

    #[test]
    fn pods_of_a_member_that_does_not_answer_are_faded() {
        let bar = Bar {
            name: "lisbon".to_owned(),
            budget: (2, 8),
            ready: Some(3),
            is_lost: true,
            ..Bar::default()
        };
        let bars = vec![bar];
        let svg = Bars {
            bars,
            ..Bars::default()
        }
        .draw()
        .svg();
        assert!(svg.contains("<rect class=\"floor bar soft\""), "{svg}");
        assert!(!svg.contains("\"floor bar\""), "{svg}");
        assert!(svg.contains("3 ready, 0 pending when last seen"), "{svg}");
    }

    #[test]
    fn no_members_are_no_bars() {
        let svg = Bars::default().draw().svg();
        assert!(!svg.contains("<rect") && !svg.contains("NaN"), "{svg}");
    }
}
