//! The charts of Foretide as SVG, and the time axis that the pictures in characters share.
//!
//! The command line, the page, the report, the benchmark and the docs draw with this crate. It is pure: numbers in, text
//! out, and `now` is an argument. It knows no forecaster and no autoscaler; a caller fills a [`Chart`] with layers.
//!
//! ```text
//! Chart { panels: [Panel { layers: [Layer { id, name, role, mark }] }] } --draw--> Drawing
//! Drawing --svg-----> a file that stands alone
//!         --fragment> a part of a page with STYLE
//! ```
//!
//! ```
//! use foretide_chart::{Chart, Layer, Mark, Panel, Point, Role};
//! use jiff::{SignedDuration, Timestamp};
//!
//! let from = Timestamp::UNIX_EPOCH;
//! let at = |hour| from + SignedDuration::from_hours(hour);
//! let point = |hour, value| Point { at: at(hour), value };
//! let serving = Mark::Steps(vec![point(0, 2.0), point(3, 5.0), point(6, 5.0)]);
//! let chart = Chart {
//!     title: "web".to_owned(),
//!     span: (at(0), at(6)),
//!     panels: vec![Panel {
//!         id: "replicas".to_owned(),
//!         layers: vec![Layer::new("serving", "serving", Role::Desired, serving)],
//!         ..Panel::default()
//!     }],
//!     ..Chart::default()
//! };
//! assert!(chart.draw().svg().contains("data-layer=\"serving\""));
//! ```

mod axis;
mod bars;
mod calendar;
mod draw;
mod path;
mod pen;
mod role;
mod scale;
mod scatter;
mod sparkline;
mod svg;
mod thin;

use jiff::{Timestamp, tz::TimeZone};

pub use self::{
    axis::{Axis, floor, label, longest_step, real, second, ticks},
    bars::{Bar, Bars},
    calendar::Calendar,
    role::Role,
    scatter::{Dot, Scatter},
    sparkline::Sparkline,
    svg::{Drawing, STYLE, TONES},
};

/// Panels one above the other, on one time axis.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The description for screen readers: what there is to see.
    pub description: String,
    /// The span of the time axis.
    pub span: (Timestamp, Timestamp),
    /// The present, if it is within the span: what is right of it is the future.
    pub now: Option<Timestamp>,
    /// The zone in which times are written.
    pub zone: TimeZone,
    /// The width of the picture, in pixels.
    pub width: u32,
    /// The height of each panel's plot, in pixels.
    pub height: u32,
    /// The panels, from top to bottom.
    pub panels: Vec<Panel>,
}

/// One pair of axes, and what is drawn in it. The scale begins at zero: values below are drawn as zero, and those above
/// the top at the top.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// A stable word for scripts, in kebab case.
    pub id: String,
    /// The subject of the values, as a heading.
    pub name: String,
    /// Totals beside the name.
    pub note: String,
    /// The one number to see first.
    pub headline: Option<Headline>,
    /// The unit of the values.
    pub unit: Unit,
    /// The top of the scale; else a round number above all that is drawn in panels of this unit.
    pub top: Option<f64>,
    /// The series, from back to front.
    pub layers: Vec<Layer>,
    /// Shaded spans behind the layers.
    pub windows: Vec<Window>,
}

/// The number that a panel is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// The number and its unit.
    pub text: String,
    /// True if the number is as it should be.
    pub good: bool,
}

/// The unit of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// No unit: a ratio, or one that the panel's name says.
    #[default]
    None,
    /// Replicas, which are whole.
    Replicas,
    /// A word: `cores`, `requests/s`.
    Named(String),
    /// Bytes, written in powers of 1,024.
    Bytes,
    /// Percent.
    Percent,
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// A stable word for scripts, in kebab case; layers of one id share a line of the legend.
    pub id: String,
    /// The name in the legend; left out there if empty.
    pub name: String,
    /// The meaning, which decides color and dashes.
    pub role: Role,
    /// The form in which the series is drawn, with its values in the order of time.
    pub mark: Mark,
}

/// The form in which a series is drawn. Values that are not finite are left out, and samples that are much farther
/// apart than others have a hole between them.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// Filled from zero.
    Area(Vec<Point>),
    /// A line that keeps each value until the next, however far; one that is not finite ends it.
    Steps(Vec<Point>),
    /// A line from value to value.
    Line(Vec<Point>),
    /// Filled between two values.
    Band(Vec<Band>),
    /// One value over the whole span. Far above all else it does not set the scale: a text then says how high it is.
    Rule(f64),
    /// Shortages, drawn over all else.
    Shortage(Vec<Shortage>),
}

/// A value at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The instant.
    pub at: Timestamp,
    /// The value, in the unit of the panel.
    pub value: f64,
}

/// A range at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// The instant.
    pub at: Timestamp,
    /// The lower end, in the unit of the panel.
    pub low: f64,
    /// The upper end, in the unit of the panel.
    pub high: f64,
}

/// A time in which more was needed than there was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortage {
    /// The beginning.
    pub at: Timestamp,
    /// The end.
    pub until: Timestamp,
    /// The amount that there was.
    pub had: f64,
    /// The amount that was needed.
    pub needed: f64,
}

/// A span with a name: a cron window, a maintenance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The name.
    pub name: String,
    /// The beginning.
    pub from: Timestamp,
    /// The end.
    pub until: Timestamp,
}

// === impl Chart ===

impl Default for Chart {
    /// An empty chart in UTC, as wide as a column of text on GitHub.
    fn default() -> Self {
        Self {
            title: String::new(),
            description: String::new(),
            span: (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH),
            now: None,
            zone: TimeZone::UTC,
            width: 860,
            height: 130,
            panels: Vec::new(),
        }
    }
}

// === impl Layer ===

impl Layer {
    /// A series with its names.
    pub fn new(id: &str, name: &str, role: Role, mark: Mark) -> Self {
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            role,
            mark,
        }
    }
}
