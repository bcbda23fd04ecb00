//! One picture per trace: two days of demand, the capacity of the autoscaler alone and of one that is told the
//! forecast, and the minutes in which each was under-provisioned.

use std::fmt::{Error, Result as Written, Write as _};

use foretide_models::replay::{Hold, Learning, Rules, Run, TOLERANCE, Workload, paths, run};
use jiff::Timestamp;

use crate::tournament::Failure;
use crate::traces::Trace;

/// Minutes shown: the last two days.
const SHOWN: usize = 2880;

/// Minutes of which one point is drawn: the highest, of lower edges the lowest.
const STEP: usize = 4;

const START_UP: usize = 2;

/// The forecast is drawn from the first of these quantiles to the last; capacity follows the one in the middle.
const QUANTILES: &[f64] = &[0.5, 0.9, 0.95];

// Positions, in pixels.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 944.0;
const HEIGHT: f64 = 200.0;
const TOPS: [f64; 2] = [96.0, 364.0];
const TOTAL: f64 = 608.0;

// Mid tones, legible on white and on black.
const INK: &str = "#7d8590";
const DEMAND: &str = "#4c8dff";
const BAND: &str = "#a371f7";
const ALONE: &str = "#d9822b";
const TOLD: &str = "#2da44e";
const RED: &str = "#e5484d";

/// Where values go in one panel.
#[derive(Debug, Clone, Copy)]
struct Panel {
    top: f64,
    /// The value at its top.
    highest: f64,
    minutes: usize,
}

/// The capacity of one run, and how it did.
#[derive(Debug)]
struct Lane<'a> {
    title: String,
    colour: &'a str,
    capacity: Vec<f64>,
    under: Vec<bool>,
}

/// The picture of a trace, as SVG.
pub(crate) fn draw(trace: &Trace) -> Result<String, Failure> {
    let workload = Workload::new(&trace.demand)?;
    let forecast = paths(&mut Learning::quantiles(QUANTILES, START_UP), &workload);
    let [low, told, high] = forecast.as_slice() else {
        return Err("three quantiles were asked for".into());
    };
    let rules = Rules {
        start_up: START_UP,
        hold: Hold::LastProposal,
    };
    let (alone, told) = (
        run(&workload, rules, &[]),
        run(&workload, rules, &told.forecast),
    );
    let demand = last(&trace.demand);
    let share = percent_of(&told, &alone);
    let lanes = [
        lane("HPA alone", ALONE, &workload, &alone),
        lane(
            "HPA told the forecast of auto, q = 0.9",
            TOLD,
            &workload,
            &told,
        ),
    ];
    let highest = lanes.iter().flat_map(|lane| &lane.capacity).chain(demand);
    let highest = nice(highest.copied().fold(0.0, f64::max) * 1.02);
    let minutes = demand.len();
    let panels = TOPS.map(|top| Panel {
        top,
        highest,
        minutes,
    });
    let mut svg = head(trace, share)?;
    write!(
        svg,
        "<defs><path id=\"demand\" d=\"{}\"/></defs>",
        panels[0].line(demand)?
    )?;
    let start = trace.start + 60 * i64::try_from(trace.demand.len() - minutes)?;
    for (i, (panel, lane)) in panels.iter().zip(&lanes).enumerate() {
        panel.frame(&mut svg, start)?;
        if i == 1 {
            let edges = (last(&low.forecast), last(&high.forecast));
            write!(
                svg,
                "<path d=\"{}\" fill=\"{BAND}\" fill-opacity=\".45\"/>",
                panel.band(edges)?
            )?;
        }
        panel.lane(&mut svg, lane, panel.top - TOPS[0])?;
    }
    let below = TOPS[1] + HEIGHT + 34.0;
    writeln!(
        svg,
        "<text x=\"{RIGHT}\" y=\"{below}\" text-anchor=\"end\">time, UTC</text></svg>"
    )?;
    Ok(svg)
}

/// The minutes shown of values that end with the trace.
fn last<T>(values: &[T]) -> &[T] {
    values
        .get(values.len().saturating_sub(SHOWN)..)
        .unwrap_or_default()
}

/// Replica-hours of one run in the minutes shown, in percent of another's.
fn percent_of(run: &Run, of: &Run) -> f64 {
    let sum = |run: &Run| last(&run.asked).iter().copied().map(f64::from).sum::<f64>();
    100.0 * sum(run) / sum(of)
}

fn lane<'a>(name: &str, colour: &'a str, workload: &Workload<'_>, run: &Run) -> Lane<'a> {
    let ready = last(&run.ready).iter().copied();
    let capacity: Vec<f64> = ready
        .map(|ready| f64::from(ready) * workload.target())
        .collect();
    let demand = last(workload.demand()).iter();
    let under: Vec<bool> = demand
        .zip(&capacity)
        .map(|(demand, capacity)| *demand > (1.0 + TOLERANCE) * capacity)
        .collect();
    let n = under.iter().filter(|under| **under).count();
    let title = format!("{name}: {n} of {} minutes under-provisioned", under.len());
    Lane {
        title,
        colour,
        capacity,
        under,
    }
}

fn head(trace: &Trace, share: f64) -> Result<String, Error> {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {TOTAL}\" width=\"{WIDTH}\" height=\"{TOTAL}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif\" font-size=\"12\" fill=\"{INK}\" role=\"img\">\
         <title>{name}: demand and ready capacity, last two days</title>\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"18\" font-weight=\"600\">{name}, last two days</text>\
         <text x=\"{RIGHT}\" y=\"26\" text-anchor=\"end\">start-up {START_UP} min; with the forecast {share:.0} % of the replica-hours</text>",
        name = escape(&trace.name),
    );
    let legend = [
        (DEMAND, "demand"),
        (ALONE, "ready capacity, HPA alone"),
        (TOLD, "ready capacity, told the forecast"),
        (BAND, "forecast, 50 % to 95 %"),
        (RED, "under-provisioned"),
    ];
    let mut x = LEFT;
    for (colour, text) in legend {
        write!(
            svg,
            "<rect x=\"{x:.0}\" y=\"42\" width=\"16\" height=\"6\" rx=\"2\" fill=\"{colour}\"/><text x=\"{:.0}\" y=\"49\">{text}</text>",
            x + 22.0,
        )?;
        x += 52.0 + 6.1 * f64::from(u32::try_from(text.len()).unwrap_or(0));
    }
    Ok(svg)
}

// === impl Panel ===

impl Panel {
    fn x(&self, minute: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * real(minute) / real(self.minutes)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + HEIGHT * (1.0 - value.min(self.highest) / self.highest)
    }

    /// Axes with their labels: four values, and the time every six hours.
    fn frame(&self, svg: &mut String, start: i64) -> Written {
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
        for minute in 0..self.minutes {
            let second = start + 60 * i64::try_from(minute).unwrap_or(0);
            if second.rem_euclid(6 * 3600) < 60 {
                self.hour(svg, minute, second)?;
            }
        }
        Ok(())
    }

    fn hour(&self, svg: &mut String, minute: usize, second: i64) -> Written {
        let (x, bottom) = (self.x(minute), self.top + HEIGHT);
        let at = Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH);
        let pattern = if second.rem_euclid(24 * 3600) < 60 {
            "%Y-%m-%d"
        } else {
            "%H:%M"
        };
        write!(
            svg,
            "<path d=\"M{x:.1} {bottom}v5\" stroke=\"{INK}\"/><text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            bottom + 19.0,
            at.strftime(pattern),
        )
    }

    /// Demand, capacity and the minutes in which it was short; demand is defined for the first panel, `shift` above.
    fn lane(&self, svg: &mut String, lane: &Lane<'_>, shift: f64) -> Written {
        let Lane {
            title,
            colour,
            capacity,
            under,
        } = lane;
        let (bottom, heading) = (self.top + HEIGHT, self.top - 12.0);
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
             <path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.4\"/>\
             <text x=\"{LEFT}\" y=\"{heading}\" font-size=\"13\" font-weight=\"600\">{title}</text>",
            self.stairs(capacity)?,
        )
    }

    fn line(&self, values: &[f64]) -> Result<String, Error> {
        let highest = |chunk: &[f64]| chunk.iter().copied().fold(0.0, f64::max);
        let points = values.chunks(STEP).enumerate();
        let points = points.map(|(i, chunk)| (self.x(i * STEP), self.y(highest(chunk))));
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
    fn band(&self, (low, high): (&[Option<f64>], &[Option<f64>])) -> Result<String, Error> {
        let edge = |values: &[Option<f64>], pick: fn(f64, f64) -> f64| {
            let chunks = values.chunks(STEP).enumerate();
            let points = chunks.filter_map(|(i, chunk)| {
                let value = chunk.iter().copied().flatten().reduce(pick)?;
                Some((self.x(i * STEP), self.y(value)))
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
fn nice(value: f64) -> f64 {
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

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[expect(clippy::cast_precision_loss, reason = "minutes of two days are exact")]
fn real(n: usize) -> f64 {
    n as f64
}
