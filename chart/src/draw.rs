//! A chart as SVG: panels from top to bottom, one time axis and one legend below them.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::{
    Chart, Layer, Mark, Panel, Role, Window,
    axis::{Axis, floor, label, ticks},
    path::Plot,
    scale::Scale,
    svg::{
        Drawing, GAP, LEFT, LINE, Length, NAME, SMALL, Sheet, Sign, Text, lines, span_attributes,
        width,
    },
};

/// Room for the name above each plot, and for the times below the last.
const HEAD: f64 = 38.0;
const TIMES: f64 = 26.0;
/// The size of the letters of a headline, which are bold.
const LARGE: f64 = 26.0;
/// The width of a column of text in pixels, for the choice of ticks.
const COLUMN: f64 = 9.0;
/// The least distance of lines of a scale.
const APART: f64 = 34.0;
/// A rule this many times above all else would squash it: the scale leaves it out, and a text names its value.
const FAR: f64 = 1.6;
/// Rows for the names of windows that overlap; a name that fits in none is left out.
const NAMES: usize = 3;

// === impl Chart ===

impl Chart {
    /// Draws the chart. A span without length, and values that are not finite, are left out; names are escaped.
    pub fn draw(&self) -> Drawing {
        let mut sheet = Sheet::new(&self.title, &self.description, self.width);
        sheet.attributes = span_attributes(self.span);
        let scales: Vec<Scale> = self.panels.iter().map(|panel| self.scale(panel)).collect();
        let wide = sheet.width - LEFT - self.right(&scales);
        let axis = Axis::new(self.span, floor(wide / COLUMN));
        let last = self.panels.len().saturating_sub(1);
        for (index, (panel, scale)) in self.panels.iter().zip(scales).enumerate() {
            head(&mut sheet, panel, LEFT + wide);
            if let Some(axis) = axis {
                let plot = Plot {
                    axis,
                    left: LEFT,
                    width: wide,
                    y: sheet.height,
                    height: f64::from(self.height),
                    top: scale.top,
                };
                self.panel(&mut sheet, panel, plot, scale);
                self.times(&mut sheet, plot, index == last);
            }
            sheet.height += f64::from(self.height);
        }
        sheet.height += TIMES;
        sheet.legend(&self.signs());
        Drawing(sheet)
    }

    fn scale(&self, panel: &Panel) -> Scale {
        let (mut drawn, mut rules) = (0.0_f64, 0.0_f64);
        // Panels of one unit have one scale, so that their heights can be compared.
        for other in self.panels.iter().filter(|other| other.unit == panel.unit) {
            for layer in &other.layers {
                match &layer.mark {
                    Mark::Rule(value) if value.is_finite() => rules = rules.max(*value),
                    mark => drawn = drawn.max(mark.highest()),
                }
            }
        }
        let highest = if drawn > 0.0 && rules > drawn * FAR {
            drawn
        } else {
            drawn.max(rules)
        };
        let lines = (f64::from(self.height) / APART).clamp(1.0, 5.0);
        Scale::new(panel.top, highest, lines, &panel.unit)
    }

    /// The room for the widest label of all scales, so that their plots are equally wide.
    fn right(&self, scales: &[Scale]) -> f64 {
        let mut widest = width(&self.zone_name(), SMALL);
        for (panel, scale) in self.panels.iter().zip(scales) {
            widest = widest.max(width(panel.unit.word(), SMALL));
            for value in scale.lines() {
                widest = widest.max(width(&panel.unit.label(value), SMALL));
            }
        }
        widest + 2.0 * GAP
    }

    /// The zone of the times, as it is at the end of the span.
    fn zone_name(&self) -> String {
        self.zone
            .to_offset_info(self.span.1)
            .abbreviation()
            .to_owned()
    }

    fn panel(&self, sheet: &mut Sheet, panel: &Panel, plot: Plot, scale: Scale) {
        sheet.add(format_args!(
            "<g class=\"panel\" data-panel=\"{}\" data-top=\"{}\"><rect class=\"plot\" x=\"{LEFT}\" y=\"{}\" width=\"{}\" \
             height=\"{}\"/>",
            Text(&panel.id),
            plot.top,
            Length(plot.y),
            Length(plot.width),
            plot.height,
        ));
        self.future(sheet, plot);
        windows(sheet, &panel.windows, plot);
        for layer in &panel.layers {
            draw(sheet, layer, plot);
        }
        values(sheet, panel, plot, scale);
        above(sheet, panel, plot);
        sheet.body.push_str("</g>\n");
    }

    /// The present, if it is within the span.
    fn present(&self) -> Option<Timestamp> {
        self.now
            .filter(|now| (self.span.0..=self.span.1).contains(now))
    }

    fn future(&self, sheet: &mut Sheet, plot: Plot) {
        let Some(now) = self.present() else { return };
        let (x, y) = (plot.x(now), Length(plot.y));
        sheet.add(format_args!(
            "<rect class=\"future\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\"/><path class=\"now\" d=\"M{x} {y}V{}\"/>",
            Length(plot.right().0 - x.0),
            plot.height,
            plot.bottom(),
        ));
    }

    /// Lines at round times, with labels if this is the lowest panel.
    fn times(&self, sheet: &mut Sheet, plot: Plot, labeled: bool) {
        let instants = ticks(plot.axis, &self.zone);
        let mut data = String::new();
        for at in &instants {
            let _infallible = write!(
                data,
                "M{} {}V{}",
                plot.x(*at),
                Length(plot.y),
                plot.bottom()
            );
        }
        sheet.path("grid", &data);
        if !labeled {
            return;
        }
        let y = plot.bottom().0 + 18.0;
        let zone = self.zone_name();
        let end = sheet.width - width(&zone, SMALL) - GAP;
        sheet.anchored("time", "end", (sheet.width - GAP / 2.0, y), &zone);
        let now = self.present().map(|now| (plot.x(now).0, "now".to_owned()));
        let labels = instants
            .iter()
            .map(|at| (plot.x(*at).0, label(*at, &self.zone)));
        let mut taken: Vec<(f64, f64)> = Vec::new();
        // The present first: a time that would touch its label is left out.
        for (x, text) in now.into_iter().chain(labels) {
            let half = width(&text, SMALL) / 2.0;
            let (from, until) = (x - half, x + half);
            let free = taken
                .iter()
                .all(|(left, right)| until + GAP <= *left || *right + GAP <= from);
            if from >= 0.0 && until <= end && free {
                taken.push((from, until));
                sheet.anchored("time", "middle", (x, y), &text);
            }
        }
    }

    /// The signs of the legend, one per id; rules that look alike share one.
    fn signs(&self) -> Vec<Sign<'_>> {
        let mut known: Vec<&Layer> = Vec::new();
        for layer in self.panels.iter().flat_map(|panel| &panel.layers) {
            let named = !layer.name.is_empty();
            if named && known.iter().all(|known| known.id != layer.id) {
                known.push(layer);
            }
        }
        let mut signs: Vec<Sign<'_>> = Vec::new();
        for layer in known {
            let new = Sign::new(layer.role, layer.mark.as_str(), &layer.name);
            let mut known = signs.iter_mut();
            let is_rule = matches!(layer.mark, Mark::Rule(_));
            match known.find(|known| is_rule && known.class == new.class) {
                Some(known) => known.text = format!("{}, {}", known.text, layer.name).into(),
                None => signs.push(new),
            }
        }
        signs
    }
}

// === impl Mark ===

impl Mark {
    /// The class in the SVG, which decides how it is drawn.
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Area(_) => "area",
            Self::Steps(_) => "steps",
            Self::Line(_) => "line",
            Self::Band(_) => "band",
            Self::Rule(_) => "rule",
            Self::Shortage(_) => "shortage",
        }
    }

    /// Returns true if there is anything to draw.
    pub const fn has_values(&self) -> bool {
        match self {
            Self::Area(points) | Self::Steps(points) | Self::Line(points) => !points.is_empty(),
            Self::Band(bands) => !bands.is_empty(),
            Self::Rule(_) => true,
            Self::Shortage(shortages) => !shortages.is_empty(),
        }
    }

    /// The highest finite value, at least zero.
    fn highest(&self) -> f64 {
        match self {
            Self::Area(points) | Self::Steps(points) | Self::Line(points) => {
                highest(points.iter().map(|point| point.value))
            }
            Self::Band(bands) => highest(bands.iter().map(|band| band.high)),
            Self::Rule(value) => highest([*value].into_iter()),
            Self::Shortage(shortages) => highest(shortages.iter().map(|short| short.needed)),
        }
    }
}

fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// The name, the totals and the number to see first, above the plot, which ends at `right`.
fn head(sheet: &mut Sheet, panel: &Panel, right: f64) {
    if panel.name.is_empty() && panel.note.is_empty() && panel.headline.is_none() {
        sheet.height += if panel.unit.word().is_empty() {
            GAP
        } else {
            HEAD - 10.0
        };
        return;
    }
    let base = sheet.height + HEAD - 10.0;
    let mut end = right;
    if let Some(headline) = &panel.headline {
        let class = if headline.good {
            "headline good"
        } else {
            "headline bad"
        };
        sheet.anchored(class, "end", (right, base), &headline.text);
        end -= width(&headline.text, LARGE) + GAP;
    }
    sheet.text("name", LEFT, base, &panel.name);
    let beside = LEFT + width(&panel.name, NAME) + 2.0 * GAP;
    sheet.height += HEAD;
    if beside + width(&panel.note, SMALL) <= end {
        let x = if panel.name.is_empty() { LEFT } else { beside };
        sheet.text("", x, base, &panel.note);
        return;
    }
    for line in lines(&panel.note, SMALL, right - LEFT) {
        sheet.text("", LEFT, sheet.height + GAP, &line);
        sheet.height += LINE;
    }
}

fn draw(sheet: &mut Sheet, layer: &Layer, plot: Plot) {
    sheet.path(&layer.role.class("tint"), &plot.tint(&layer.mark));
    let data = plot.data(&layer.mark);
    if !data.is_empty() {
        let (class, id) = (layer.role.class(layer.mark.as_str()), Text(&layer.id));
        sheet.add(format_args!(
            "<path class=\"layer {class}\" data-layer=\"{id}\" d=\"{data}\"/>"
        ));
    }
}

/// Shaded windows, with their names where there is room.
fn windows(sheet: &mut Sheet, windows: &[Window], plot: Plot) {
    let class = Role::Cron.class("window");
    let mut free = [0.0; NAMES];
    let shown = windows
        .iter()
        .filter(|window| plot.overlaps(window.from, window.until));
    for window in shown {
        let (from, until) = (plot.x(window.from), plot.x(window.until));
        sheet.add(format_args!(
            "<rect class=\"{class}\" x=\"{from}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>",
            Length(plot.y),
            Length((until.0 - from.0).max(1.0)),
            plot.height,
            Text(&window.name),
        ));
        let x = from.0 + GAP / 2.0;
        let end = x + width(&window.name, SMALL);
        let row = free.iter().position(|taken| *taken <= x);
        if let Some(row) = row.filter(|_| end <= until.0)
            && let Some(taken) = free.get_mut(row)
        {
            *taken = end + GAP;
            let y = plot.y + SMALL + 1.0 + crate::axis::real(row) * (SMALL + 2.0);
            sheet.text("label", x, y, &window.name);
        }
    }
}

/// The rules that are too high for the scale.
fn above(sheet: &mut Sheet, panel: &Panel, plot: Plot) {
    let mut y = plot.y + SMALL + 1.0;
    for layer in &panel.layers {
        if let Mark::Rule(value) = layer.mark
            && value.is_finite()
            && value > plot.top
        {
            let text = format!("{} {} \u{2191}", layer.name, panel.unit.label(value));
            sheet.anchored("label", "end", (plot.right().0 - GAP / 2.0, y), text.trim());
            y += SMALL + 2.0;
        }
    }
}

/// Lines at round values, with labels.
fn values(sheet: &mut Sheet, panel: &Panel, plot: Plot, scale: Scale) {
    let mut data = String::new();
    let right = plot.right();
    let x = right.0 + GAP;
    for value in scale.lines() {
        let y = plot.y(value);
        let _infallible = write!(data, "M{LEFT} {y}H{right}");
        sheet.text("value", x, y.0 + 4.5, &panel.unit.label(value));
    }
    sheet.path("grid", &data);
    sheet.text("value", x, plot.y - 12.0, panel.unit.word());
}

#[cfg(test)]
mod tests;
