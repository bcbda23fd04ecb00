//! A chart as SVG. Colors are neither light nor dark and the ground is transparent, so that the picture is readable on
//! a light and on a dark page, also where it cannot know which one it is on.

use std::fmt::{self, Display, Write as _};

use foretide_models::Sample;
use jiff::Timestamp;

use super::{
    Chart, Legend, Panel,
    axis::{Axis, label, longest_step, real, second, ticks},
};

/// The width of the picture: that of a text column on GitHub.
const WIDTH: f64 = 860.0;
/// Margins beside the axes; values of the scale stand in the right one.
const LEFT: f64 = 12.0;
const RIGHT: f64 = 44.0;
/// Room for the title, for the text above each pair of axes, and below the last one for times and legend.
const TITLE: f64 = 34.0;
const HEAD: f64 = 38.0;
const FOOT: f64 = 60.0;
/// The height of each pair of axes.
const PLOT: f64 = 130.0;
/// What the label of a tick takes in columns of text, for the choice of ticks.
const COLUMN: f64 = 9.0;
/// The least height of a shortage, so that each is seen.
const LEAST: f64 = 3.0;

/// Their contrast is at least 3 to 1 on white and on GitHub's dark ground.
const STYLE: &str = "\
text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:13px;fill:#767e89}\
.name{font-size:15px;font-weight:600}.title{font-size:16px;font-weight:600}.headline{font-size:24px;font-weight:700}\
.good{fill:#2da44e}.bad{fill:#e5484d}.grid{stroke:#767e89;stroke-opacity:.25}\
.area{fill:#767e89;fill-opacity:.4}.band{fill:#a371f7;fill-opacity:.45;stroke:#a371f7}.line{fill:none;stroke:#a371f7;stroke-width:1.5}\
.steps{fill:none;stroke:#388bfd;stroke-width:2}.short{fill:#e5484d}.tint{fill:#e5484d;fill-opacity:.2}";

/// A length, with one decimal at most.
struct Length(f64);

/// Text of a user, as the content of an element.
struct Text<'a>(&'a str);

/// Where the values of one panel stand.
#[derive(Clone, Copy)]
struct Place {
    axis: Axis,
    /// The upper edge of its axes.
    y: f64,
    top: f64,
}

// === impl Chart ===

impl Chart {
    /// The chart as one `<svg>` element, which can stand in a file of its own or in a page.
    ///
    /// A span without length, and values that are not finite, are left out; names are escaped.
    #[must_use]
    pub fn svg(&self) -> String {
        let height = TITLE + (HEAD + PLOT) * real(self.panels.len()) + FOOT;
        let title = Text(&self.title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\"><title>{title}</title>\n<style>{STYLE}</style>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"20\">{title}</text>\n"
        );
        let mut y = TITLE;
        let last = self.panels.len().saturating_sub(1);
        for (index, panel) in self.panels.iter().enumerate() {
            head(&mut svg, panel, y);
            if let Some(place) = self.place(panel, y + HEAD) {
                draw(&mut svg, panel, place);
                grid(&mut svg, place, index == last);
            }
            y += HEAD + PLOT;
        }
        legend(&mut svg, &self.legend, y + FOOT - 14.0);
        svg.push_str("</svg>\n");
        svg
    }

    fn place(&self, panel: &Panel, y: f64) -> Option<Place> {
        let (from, until) = self.span;
        let seconds = until.duration_since(from).as_secs_f64();
        let axis = Axis {
            from: second(from),
            seconds,
            columns: super::floor((WIDTH - LEFT - RIGHT) / COLUMN),
        };
        let top = panel.top;
        (seconds > 0.0 && top.is_finite() && top > 0.0).then_some(Place { axis, y, top })
    }
}

// === impl Place ===

impl Place {
    fn x(self, at: Timestamp) -> Length {
        Length(LEFT + self.axis.position(at).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT))
    }

    fn y(self, value: f64) -> Length {
        let part = (value / self.top).clamp(0.0, 1.0);
        Length(self.y + (1.0 - part) * PLOT)
    }

    fn bottom(self) -> Length {
        self.y(0.0)
    }
}

// === impl Length ===

impl Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", (self.0 * 10.0).round() / 10.0)
    }
}

// === impl Text ===

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                // XML has no way to write them.
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                    f.write_char('\u{fffd}')?;
                }
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// The name, the totals and the number to see first.
fn head(svg: &mut String, panel: &Panel, y: f64) {
    let (name, note) = (Text(&panel.name), Text(&panel.note));
    let base = y + HEAD - 10.0;
    let _infallible = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{base}\"><tspan class=\"name\">{name}</tspan><tspan dx=\"14\">{note}</tspan></text>"
    );
    if let Some(headline) = &panel.headline {
        let class = if headline.good { "good" } else { "bad" };
        let _infallible = writeln!(
            svg,
            "<text class=\"headline {class}\" x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            Text(&headline.text)
        );
    }
}

/// Everything between the axes, the most important last.
fn draw(svg: &mut String, panel: &Panel, place: Place) {
    let finite = |sample: &&Sample| sample.value.is_finite();
    let area: Vec<Sample> = panel.area.iter().filter(finite).copied().collect();
    path(svg, "area", &area_path(&area, place));
    band(svg, panel, place);
    let tint = shortages(panel, place, |_| (place.y(place.top), place.bottom()));
    path(svg, "tint", &tint);
    let missing = shortages(panel, place, |short| {
        let (high, low) = (place.y(short.needed), place.y(short.had));
        (Length(high.0.min(low.0 - LEAST)), low)
    });
    path(svg, "short", &missing);
    let steps: Vec<Sample> = panel.steps.iter().filter(finite).copied().collect();
    path(svg, "steps", &steps_path(&steps, place));
}

fn path(svg: &mut String, class: &str, data: &str) {
    if !data.is_empty() {
        let _infallible = writeln!(svg, "<path class=\"{class}\" d=\"{data}\"/>");
    }
}

fn area_path(samples: &[Sample], place: Place) -> String {
    let mut data = String::new();
    for run in runs(samples) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let bottom = place.bottom();
        let _infallible = write!(data, "M{} {bottom}", place.x(first.at));
        for sample in run {
            let _infallible = write!(data, "L{} {}", place.x(sample.at), place.y(sample.value));
        }
        let _infallible = write!(data, "L{} {bottom}Z", place.x(last.at));
    }
    data
}

fn steps_path(samples: &[Sample], place: Place) -> String {
    let mut data = String::new();
    for run in runs(samples) {
        let Some((first, rest)) = run.split_first() else {
            continue;
        };
        let _infallible = write!(data, "M{} {}", place.x(first.at), place.y(first.value));
        let mut level = first.value;
        for sample in rest {
            if sample.value.to_bits() != level.to_bits() {
                let (x, y) = (place.x(sample.at), place.y(sample.value));
                let _infallible = write!(data, "H{x}V{y}");
                level = sample.value;
            }
        }
        let end = run.last().map_or(first.at, |last| last.at);
        let _infallible = write!(data, "H{}", place.x(end));
    }
    data
}

/// The band from the expected values to the upper ones; only a line of the expected values, if there are no upper ones.
fn band(svg: &mut String, panel: &Panel, place: Place) {
    let known = panel.band.iter().filter(|p| p.value.is_finite());
    let samples = |value: fn(&foretide_models::Prediction) -> f64| -> Vec<Sample> {
        let samples = known.clone().map(|p| Sample {
            at: p.at,
            value: value(p),
        });
        samples.collect()
    };
    let expected = samples(|p| p.value);
    if panel.band.iter().all(|p| p.upper.is_none()) {
        let mut data = String::new();
        for run in runs(&expected) {
            points(&mut data, 'M', run.iter(), place);
        }
        return path(svg, "line", &data);
    }
    let upper = samples(|p| p.upper.filter(|upper| upper.is_finite()).unwrap_or(p.value));
    let mut data = String::new();
    for (low, high) in runs(&expected).zip(runs(&upper)) {
        points(&mut data, 'M', high.iter(), place);
        points(&mut data, 'L', low.iter().rev(), place);
        data.push('Z');
    }
    path(svg, "band", &data);
}

fn points<'a>(
    data: &mut String,
    first: char,
    samples: impl Iterator<Item = &'a Sample>,
    place: Place,
) {
    for (index, sample) in samples.enumerate() {
        let command = if index == 0 { first } else { 'L' };
        let (x, y) = (place.x(sample.at), place.y(sample.value));
        let _infallible = write!(data, "{command}{x} {y}");
    }
}

/// One rectangle per shortage, between two heights.
fn shortages(
    panel: &Panel,
    place: Place,
    heights: impl Fn(&super::Shortage) -> (Length, Length),
) -> String {
    let mut data = String::new();
    let finite = |short: &&super::Shortage| short.had.is_finite() && short.needed.is_finite();
    for short in panel.shortages.iter().filter(finite) {
        let ((high, low), from) = (heights(short), place.x(short.at));
        let _infallible = write!(data, "M{from} {low}V{high}H{}V{low}Z", place.x(short.until));
    }
    data
}

/// Samples without holes between them.
fn runs(samples: &[Sample]) -> impl Iterator<Item = &[Sample]> {
    let hole = longest_step(samples);
    samples.chunk_by(move |left, right| second(right.at) - second(left.at) <= hole)
}

/// Lines at round values and times, with labels; the times only if `timed`.
fn grid(svg: &mut String, place: Place, timed: bool) {
    let right = WIDTH - RIGHT;
    for value in [0.0, place.top / 2.0, place.top] {
        let y = place.y(value);
        let text = (value * 100.0).round() / 100.0;
        let _infallible = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y}H{right}\"/><text x=\"{}\" y=\"{}\">{text}</text>",
            right + 8.0,
            Length(y.0 + 4.5)
        );
    }
    for (_, at) in ticks(place.axis) {
        let Ok(at) = Timestamp::from_second(at) else {
            continue;
        };
        let (x, bottom) = (place.x(at), place.bottom());
        let _infallible = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{x} {}V{bottom}\"/>",
            Length(place.y)
        );
        if timed {
            let y = Length(bottom.0 + 18.0);
            let text = label(at);
            let _infallible = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"
            );
        }
    }
}

fn legend(svg: &mut String, legend: &Legend, y: f64) {
    let signs = [
        ("area", &legend.area),
        ("steps", &legend.steps),
        ("band", &legend.band),
        ("short", &legend.shortages),
    ];
    let mut x = LEFT;
    for (class, about) in signs.into_iter().filter(|(_, about)| !about.is_empty()) {
        let (middle, low) = (Length(y - 4.5), Length(y + 1.0));
        let data = match class {
            "steps" => format!("M{x} {middle}h14"),
            _ => format!("M{x} {low}v-11h14v11Z"),
        };
        path(svg, class, &data);
        let _infallible = writeln!(
            svg,
            "<text x=\"{}\" y=\"{y}\">{}</text>",
            x + 20.0,
            Text(about)
        );
        x += 20.0 + 7.0 * real(about.chars().count()) + 18.0;
    }
}

#[cfg(test)]
mod tests {
    use foretide_models::Prediction;

    use super::*;
    use crate::chart::{Headline, Shortage};

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn series(values: &[f64]) -> Vec<Sample> {
        let samples = (0..).zip(values).map(|(minute, value)| Sample {
            at: at(minute),
            value: *value,
        });
        samples.collect()
    }

    fn chart(panel: Panel) -> Chart {
        Chart {
            title: "a title".to_owned(),
            span: (at(0), at(10)),
            panels: vec![panel],
            legend: Legend {
                area: "needed".to_owned(),
                ..Legend::default()
            },
        }
    }

    /// The data of the path of a class.
    fn data<'a>(svg: &'a str, class: &str) -> Option<&'a str> {
        let (_, rest) = svg.split_once(&format!("<path class=\"{class}\" d=\""))?;
        rest.split('"').next()
    }

    #[test]
    fn each_series_stands_where_time_and_value_say() {
        let svg = chart(Panel {
            top: 13.0,
            area: series(&[0.0, 6.5, 13.0]),
            steps: series(&[1.3, 1.3, 2.6]),
            band: vec![
                Prediction {
                    at: at(5),
                    value: 1.3,
                    upper: Some(2.6),
                },
                Prediction {
                    at: at(6),
                    value: 2.6,
                    upper: None,
                },
            ],
            shortages: vec![Shortage {
                at: at(1),
                until: at(2),
                had: 1.3,
                needed: 6.5,
            }],
            ..Panel::default()
        })
        .svg();
        // Ten minutes take 804 units from 12 on, and 13 take 130 units up from 202.
        assert_eq!(
            data(&svg, "area"),
            Some("M12 202L12 202L92.4 137L172.8 72L172.8 202Z")
        );
        assert_eq!(data(&svg, "steps"), Some("M12 189H172.8V176H172.8"));
        assert_eq!(
            data(&svg, "band"),
            Some("M414 176L494.4 176L494.4 176L414 189Z")
        );
        assert_eq!(data(&svg, "short"), Some("M92.4 189V137H172.8V189Z"));
        assert_eq!(data(&svg, "tint"), Some("M92.4 202V72H172.8V202Z"));
    }

    #[test]
    fn a_hole_stays_a_hole_and_odd_values_are_left_out() {
        let mut area = series(&[1.0, f64::NAN, 1.0, f64::INFINITY, 1.0, 1.0]);
        area.extend([60, 61, 62, 63].map(|minute| Sample {
            at: at(minute),
            value: 1.0,
        }));
        let svg = Chart {
            span: (at(0), at(100)),
            ..chart(Panel {
                top: 2.0,
                area,
                ..Panel::default()
            })
        }
        .svg();
        assert_eq!(data(&svg, "area").unwrap().matches('M').count(), 2, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(data(&chart(Panel::default()).svg(), "grid"), None);
    }

    #[test]
    fn names_cannot_leave_their_element() {
        let svg = chart(Panel {
            name: "</text><script>&\u{1b}[2J\u{0}".to_owned(),
            headline: Some(Headline {
                text: "<b>".to_owned(),
                good: true,
            }),
            top: 1.0,
            ..Panel::default()
        })
        .svg();
        assert!(
            svg.contains("&lt;/text&gt;&lt;script&gt;&amp;\u{fffd}[2J\u{fffd}<"),
            "{svg}"
        );
        assert!(svg.contains("<text class=\"headline good\""), "{svg}");
        assert!(!svg.contains("<b>") && !svg.contains("<script"), "{svg}");
        assert!(!svg.chars().any(|c| c.is_control() && c != '\n'), "{svg}");
    }
}
