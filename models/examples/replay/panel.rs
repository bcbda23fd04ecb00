//! One panel of a chart: axes, demand, and ready capacity.

use std::fmt::{Error, Result as Written, Write as _};

use foretide_models::replay::DAY;
use jiff::Timestamp;

/// How many points are drawn at most, each of the highest of some minutes, of lower edges the lowest.
const POINTS: usize = 720;

/// The number of days up to which an axis shows hours.
const DAYS_WITH_HOURS: usize = 2;

// Positions, in pixels.
pub(crate) const WIDTH: f64 = 960.0;
pub(crate) const LEFT: f64 = 76.0;
pub(crate) const RIGHT: f64 = 944.0;
pub(crate) const HEIGHT: f64 = 200.0;

// Mid tones, legible on white and on black.
pub(crate) const INK: &str = "#7d8590";
pub(crate) const DEMAND: &str = "#4c8dff";
pub(crate) const RED: &str = "#e5484d";

/// Where values go in one panel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel {
    pub(crate) top: f64,
    /// The value at its top.
    pub(crate) highest: f64,
    pub(crate) minutes: usize,
}

/// The capacity of one run, and how it did.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    pub(crate) title: String,
    pub(crate) color: &'a str,
    pub(crate) capacity: Vec<f64>,
    pub(crate) under: Vec<bool>,
}

// === impl Panel ===

impl Panel {
    fn x(&self, minute: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * real(minute) / real(self.minutes)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + HEIGHT * (1.0 - value.min(self.highest) / self.highest)
    }

    /// Minutes of which one point is drawn.
    fn step(&self) -> usize {
        self.minutes.div_ceil(POINTS)
    }

    /// Axes with their labels: four values, and the time every six hours or every day.
    pub(crate) fn frame(&self, svg: &mut String, start: i64) -> Written {
        for quarter in 0..=4_u32 {
            let value = self.highest * f64::from(quarter) / 4.0;
            let y = self.y(value);
            write!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"{INK}\" stroke-opacity=\".25\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                short(value),
            )?;
        }
        let middle = self.top + HEIGHT / 2.0;
        write!(
            svg,
            "<text transform=\"translate(16 {middle:.0}) rotate(-90)\" text-anchor=\"middle\">demand, in its unit</text>"
        )?;
        let every = if self.has_hours() { 6 } else { 24 } * 3600;
        for minute in 0..self.minutes {
            let second = start + 60 * i64::try_from(minute).unwrap_or(0);
            if second.rem_euclid(every) < 60 {
                self.hour(svg, minute, second)?;
            }
        }
        Ok(())
    }

    fn has_hours(&self) -> bool {
        self.minutes <= DAYS_WITH_HOURS * DAY
    }

    fn hour(&self, svg: &mut String, minute: usize, second: i64) -> Written {
        let (x, bottom) = (self.x(minute), self.top + HEIGHT);
        let at = Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH);
        let pattern = match second.rem_euclid(24 * 3600) < 60 {
            true if self.has_hours() => "%Y-%m-%d",
            true => "%m-%d",
            false => "%H:%M",
        };
        write!(
            svg,
            "<path d=\"M{x:.1} {bottom}v5\" stroke=\"{INK}\"/><text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            bottom + 19.0,
            at.strftime(pattern),
        )
    }

    /// Demand, capacity and the minutes in which it was short; demand is defined for the first panel, `shift` above.
    pub(crate) fn lane(&self, svg: &mut String, lane: &Lane<'_>, shift: f64) -> Written {
        let Lane {
            title,
            color,
            capacity,
            under,
        } = lane;
        let (bottom, heading) = (self.top + HEIGHT, self.top - 12.0);
        let thin = if self.has_hours() { 1.4 } else { 0.9 };
        for (from, to) in stretches(under) {
            let x = self.x(from);
            let width = (self.x(to) - x).max(1.5);
            write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{RED}\" fill-opacity=\".3\"/>\
                 <rect x=\"{x:.1}\" y=\"{bottom}\" width=\"{width:.1}\" height=\"5\" fill=\"{RED}\"/>",
                self.top,
            )?;
        }
        write!(
            svg,
            "<use href=\"#demand\" y=\"{shift}\" fill=\"none\" stroke=\"{DEMAND}\" stroke-width=\"1.2\" stroke-linejoin=\"round\"/>\
             <path d=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{thin}\"/>\
             <text x=\"{LEFT}\" y=\"{heading}\" font-size=\"13\" font-weight=\"600\">{title}</text>",
            self.stairs(capacity)?,
        )
    }

    pub(crate) fn line(&self, values: &[f64]) -> Result<String, Error> {
        let highest = |chunk: &[f64]| chunk.iter().copied().fold(0.0, f64::max);
        let points = values.chunks(self.step()).enumerate();
        let points = points.map(|(i, chunk)| (self.x(i * self.step()), self.y(highest(chunk))));
        polyline(points)
    }

    /// Horizontal where nothing changes.
    fn stairs(&self, values: &[f64]) -> Result<String, Error> {
        let mut path = String::new();
        let mut before = f64::NAN;
        for (minute, &value) in values.iter().enumerate() {
            if path.is_empty() {
                write!(path, "M{LEFT} {:.1}", self.y(value))?;
            } else if value.to_bits() != f64::to_bits(before) {
                write!(path, "H{:.1}V{:.1}", self.x(minute), self.y(value))?;
            }
            before = value;
        }
        write!(path, "H{RIGHT}")?;
        Ok(path)
    }

    /// From the upper edge back along the lower one; minutes without a forecast are left out.
    pub(crate) fn band(
        &self,
        (low, high): (&[Option<f64>], &[Option<f64>]),
    ) -> Result<String, Error> {
        let edge = |values: &[Option<f64>], pick: fn(f64, f64) -> f64| {
            let chunks = values.chunks(self.step()).enumerate();
            let points = chunks.filter_map(|(i, chunk)| {
                let value = chunk.iter().copied().flatten().reduce(pick)?;
                Some((self.x(i * self.step()), self.y(value)))
            });
            points.collect::<Vec<_>>()
        };
        let upper = edge(high, f64::max);
        let lower = edge(low, f64::min);
        Ok(polyline(upper.into_iter().chain(lower.into_iter().rev()))? + "Z")
    }
}

fn polyline(points: impl Iterator<Item = (f64, f64)>) -> Result<String, Error> {
    let mut path = String::new();
    for (x, y) in points {
        write!(
            path,
            "{}{x:.1} {y:.1}",
            if path.is_empty() { "M" } else { "L" }
        )?;
    }
    Ok(path)
}

/// From where to before where it holds.
fn stretches(holds: &[bool]) -> Vec<(usize, usize)> {
    let mut stretches = Vec::new();
    let mut at = 0;
    for chunk in holds.chunk_by(|a, b| a == b) {
        if chunk.first() == Some(&true) {
            stretches.push((at, at + chunk.len()));
        }
        at += chunk.len();
    }
    stretches
}

/// The next of 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 times a power of ten: quarters of them are short.
pub(crate) fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    let fits = steps
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= value);
    fits.unwrap_or(value)
}

fn short(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e4 => (v / 1e3, " k"),
        v => (v, ""),
    };
    let text = format!("{scaled:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[expect(clippy::cast_precision_loss, reason = "minutes of weeks are exact")]
fn real(n: usize) -> f64 {
    n as f64
}
