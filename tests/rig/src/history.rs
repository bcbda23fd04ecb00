//! Series that Prometheus has from the start, and the CSV form of demand. Numbers and text only;
//! [`Prometheus`](crate::Prometheus) turns them into blocks.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use crate::{Error, Result};

/// Series of a made-up past (or future: a block may hold samples that are yet to come).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Family name, with its kind and series.
    families: BTreeMap<String, Family>,
}

#[derive(Debug, Clone, PartialEq)]
struct Family {
    kind: Kind,
    series: Vec<Series>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// One series: labels without the metric's name, and samples in order of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Label names and values.
    pub labels: BTreeMap<String, String>,
    /// Unix seconds and value.
    pub samples: Vec<(f64, f64)>,
}

/// Instants at an equal distance: unix seconds from `start` to `end` inclusive, every `step`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// First instant, unix seconds.
    pub start: f64,
    /// Last instant that may be among them.
    pub end: f64,
    /// Seconds between two, above 0.
    pub step: f64,
}

impl History {
    /// No series yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a series of a counter; `name` ends in `_total`.
    #[must_use]
    pub fn counter(self, name: &str, series: Series) -> Self {
        self.with(
            name.strip_suffix("_total").unwrap_or(name),
            Kind::Counter,
            series,
        )
    }

    /// Adds a series of a gauge.
    #[must_use]
    pub fn gauge(self, name: &str, series: Series) -> Self {
        self.with(name, Kind::Gauge, series)
    }

    /// Adds `container_cpu_usage_seconds_total{namespace, pod, container}` as cAdvisor would have
    /// exported it, for a container that used `cores(t)` at unix second `t` (midpoint rule).
    #[must_use]
    pub fn cpu_usage(self, container: [&str; 3], span: Span, cores: impl Fn(f64) -> f64) -> Self {
        self.cpu_counter(labels(container_labels(container)), span, cores)
    }

    /// Adds the same series with a label `cluster`, as a Prometheus has it that several clusters write to.
    #[must_use]
    pub fn cpu_usage_in(
        self,
        cluster: &str,
        container: [&str; 3],
        span: Span,
        cores: impl Fn(f64) -> f64,
    ) -> Self {
        let labels = labels(
            container_labels(container)
                .into_iter()
                .chain([("cluster", cluster)]),
        );
        self.cpu_counter(labels, span, cores)
    }

    fn cpu_counter(
        self,
        labels: BTreeMap<String, String>,
        span: Span,
        cores: impl Fn(f64) -> f64,
    ) -> Self {
        let mut used = 0.0;
        let samples = span.instants().map(|at| {
            let sample = (at, used);
            used += cores(at + span.step / 2.0).max(0.0) * span.step;
            sample
        });
        let samples = samples.collect();
        self.counter(
            "container_cpu_usage_seconds_total",
            Series { labels, samples },
        )
    }

    /// Returns whether there is no series.
    pub fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    fn with(mut self, family: &str, kind: Kind, series: Series) -> Self {
        let entry = self.families.entry(family.to_owned());
        entry
            .or_insert(Family {
                kind,
                series: Vec::new(),
            })
            .series
            .push(series);
        self
    }

    /// The `OpenMetrics` text, as `promtool tsdb create-blocks-from openmetrics` reads it.
    pub fn to_open_metrics(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.families {
            let (kind, suffix) = match family.kind {
                Kind::Counter => ("counter", "_total"),
                Kind::Gauge => ("gauge", ""),
            };
            line(&mut text, format_args!("# TYPE {name} {kind}"));
            for series in &family.series {
                let labels = render(&series.labels);
                for (at, value) in &series.samples {
                    line(
                        &mut text,
                        format_args!("{name}{suffix}{{{labels}}} {value} {at}"),
                    );
                }
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

impl Series {
    /// A series of `value(t)` at each instant of `span`.
    pub fn of(labels_given: &[(&str, &str)], span: Span, value: impl Fn(f64) -> f64) -> Self {
        let labels = labels(labels_given.iter().copied());
        Self {
            labels,
            samples: span.instants().map(|at| (at, value(at))).collect(),
        }
    }
}

impl Span {
    fn instants(self) -> impl Iterator<Item = f64> {
        (0..)
            .map(move |n: u32| f64::from(n).mul_add(self.step, self.start))
            .take_while(move |at| self.step > 0.0 && *at <= self.end)
    }
}

fn container_labels([namespace, pod, container]: [&str; 3]) -> [(&str, &str); 3] {
    [
        ("namespace", namespace),
        ("pod", pod),
        ("container", container),
    ]
}

fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Writes a line; writing to a String cannot fail.
fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    if text.write_fmt(content).is_ok() {
        text.push('\n');
    }
}

fn render(labels: &BTreeMap<String, String>) -> String {
    let escape = |value: &str| {
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    let pairs = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escape(value)));
    pairs.collect::<Vec<_>>().join(",")
}

/// Demand over days, read from a CSV and repeated forever: before its first day it repeats the first and after its
/// last day the last, at the same time of day (UTC).
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    points: Vec<(f64, f64)>,
}

const DAY: f64 = 86_400.0;

impl Demand {
    /// Reads `timestamp,value` lines: RFC 3339 or unix seconds, then cores; a header is skipped.
    ///
    /// # Errors
    /// [`Error::Csv`] with the first line that is neither; also for less than one day in all.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
        let bad = |line: usize, found: &str| Error::Csv {
            path: path.to_path_buf(),
            line: line + 1,
            found: found.to_owned(),
        };
        let mut points = Vec::new();
        for (number, line) in text.lines().enumerate() {
            match point(line) {
                Some(point) => points.push(point),
                None if number == 0 || line.trim().is_empty() => {}
                None => return Err(bad(number, line)),
            }
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let demand = Self { points };
        if demand.end() - demand.start() < DAY {
            return Err(bad(text.lines().count(), "less than one day"));
        }
        Ok(demand)
    }

    /// First timestamp, unix seconds.
    pub fn start(&self) -> f64 {
        self.points.first().map_or(0.0, |point| point.0)
    }

    /// Last timestamp, unix seconds.
    pub fn end(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.0)
    }

    /// The same days moved by whole days, so that the last sample lies within the day before `now`.
    #[must_use]
    pub fn ending_at(mut self, now: f64) -> Self {
        let shift = ((now - self.end()) / DAY).floor() * DAY;
        self.points.iter_mut().for_each(|point| point.0 += shift);
        self
    }

    /// Cores in use at unix second `at`, linear between the CSV's points.
    pub fn cores(&self, at: f64) -> f64 {
        let late = ((at - self.end()) / DAY).ceil().max(0.0);
        let early = ((self.start() - at) / DAY).ceil().max(0.0);
        let at = (early - late).mul_add(DAY, at);
        let next = self.points.partition_point(|point| point.0 <= at);
        match (
            next.checked_sub(1).and_then(|last| self.points.get(last)),
            self.points.get(next),
        ) {
            (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (at - a.0) / (b.0 - a.0),
            (Some(only), None) | (None, Some(only)) => only.1,
            (None, None) => 0.0,
        }
    }
}

fn point(line: &str) -> Option<(f64, f64)> {
    let (at, value) = line.trim().split_once(',')?;
    let at = match at.trim().parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => at
            .trim()
            .parse::<jiff::Timestamp>()
            .ok()?
            .as_duration()
            .as_secs_f64(),
    };
    let value: f64 = value.trim().parse().ok()?;
    (at.is_finite() && value.is_finite()).then_some((at, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_written_by_family_with_escaped_labels() {
        let span = Span {
            start: 10.0,
            end: 30.0,
            step: 10.0,
        };
        let history = History::new()
            .gauge("queue", Series::of(&[("q", "a\"b")], span, |at| at / 10.0))
            .cpu_usage(["shop", "web-1", "web"], span, |_| 0.5)
            .cpu_usage_in(
                "east",
                ["shop", "web-1", "web"],
                Span { end: 10.0, ..span },
                |_| 1.0,
            );
        let expected = "\
# TYPE container_cpu_usage_seconds counter
container_cpu_usage_seconds_total{container=\"web\",namespace=\"shop\",pod=\"web-1\"} 0 10
container_cpu_usage_seconds_total{container=\"web\",namespace=\"shop\",pod=\"web-1\"} 5 20
container_cpu_usage_seconds_total{container=\"web\",namespace=\"shop\",pod=\"web-1\"} 10 30
container_cpu_usage_seconds_total{cluster=\"east\",container=\"web\",namespace=\"shop\",pod=\"web-1\"} 0 10
# TYPE queue gauge
queue{q=\"a\\\"b\"} 1 10
queue{q=\"a\\\"b\"} 2 20
queue{q=\"a\\\"b\"} 3 30
# EOF
";
        assert_eq!(history.to_open_metrics(), expected);
    }

    #[test]
    fn demand_repeats_its_outer_days_at_the_same_time_of_day() {
        let demand = Demand {
            points: vec![(0.0, 1.0), (DAY / 2.0, 3.0), (DAY, 1.0), (2.0 * DAY, 5.0)],
        };
        let seen = [0.25, 1.5, 2.5, -0.75].map(|day| demand.cores(day * DAY));
        assert_eq!(format!("{seen:?}"), "[2.0, 3.0, 3.0, 2.0]");
        let moved = demand.ending_at(9.5 * DAY);
        let moved = [moved.start() / DAY, moved.end() / DAY];
        assert_eq!(format!("{moved:?}"), "[7.0, 9.0]");
    }
}
