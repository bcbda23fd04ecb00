//! The recorded history of one autoscaler over a span, and the forecast beyond it.

use std::{collections::BTreeMap, fmt::Write as _, iter};

use foretide_domain::proposal::{Source, Unit};
use jiff::Timestamp;

use super::{
    Page, ViewError, Visible,
    api::{
        Ahead, ChartQuery, DemandColumn, HistoryQuery, HistoryView, ObjectKey, Sentence, Span,
        SpanQuery, Sparkline,
    },
    at,
    block::{Column, Expected},
    chart,
    record::{Latest, Recorded},
    windows,
};

/// Seconds of an hour.
const HOUR: i64 = 3600;
/// The default span: hours before now, and after it.
const BEFORE: i64 = 6 * HOUR;
const AFTER: i64 = 2 * HOUR;
/// The longest span: the retention of minutes and the horizon of forecasts.
const LONGEST: i64 = 60 * 24 * HOUR;
/// The most rows of an answer: more than a screen has pixels.
const ROWS: usize = 2000;
/// The span of a sparkline, before and after now.
const SPARK_BEFORE: i64 = 6 * HOUR;
const SPARK_AFTER: i64 = 3 * HOUR;

impl Page {
    /// The recorded history of an autoscaler; of a long span only the minutes of extremes.
    ///
    /// # Errors
    /// [`ViewError::NotFound`], [`ViewError::BadQuery`].
    pub fn history(
        &self,
        key: &ObjectKey,
        visible: &Visible,
        query: &SpanQuery,
    ) -> Result<HistoryView, ViewError> {
        let recorded = self.recorded(key, visible)?;
        let span = span(query.from, query.until, self.host.now())?;
        let mut view = view(&recorded, span, ROWS);
        for said in self.log.sentences(key, span.from, span.until) {
            view.sentences.push(Sentence::clone(&said));
        }
        Ok(view)
    }

    /// The chart of the history, as SVG.
    ///
    /// # Errors
    /// [`ViewError::NotFound`], [`ViewError::BadQuery`].
    pub fn chart(
        &self,
        key: &ObjectKey,
        visible: &Visible,
        query: &ChartQuery,
    ) -> Result<String, ViewError> {
        let recorded = self.recorded(key, visible)?;
        let now = self.host.now();
        let span = span(query.from, query.until, now)?;
        let view = view(&recorded, span, usize::MAX);
        chart::svg(key, &view, span, query, now)
    }

    /// The recorded demand of one metric, as the Lab and `backtest --csv` read it: a row for each minute, at its end.
    ///
    /// # Errors
    /// [`ViewError::NotFound`], [`ViewError::BadQuery`].
    pub fn history_csv(
        &self,
        key: &ObjectKey,
        visible: &Visible,
        query: &HistoryQuery,
    ) -> Result<String, ViewError> {
        let rows = self.recorded(key, visible)?.minutes.rows(
            query.from.unwrap_or(i64::MIN),
            query.until.unwrap_or(i64::MAX),
        );
        let metric = match &query.metric {
            None => rows.metrics.first(),
            Some(wanted) => rows.metrics.iter().find(|it| *it.name == **wanted),
        };
        let Some(metric) = metric else {
            let known: Vec<_> = rows.metrics.iter().map(|metric| &*metric.name).collect();
            return Err(ViewError::BadQuery(match &query.metric {
                None => "no demand is recorded in this span".to_owned(),
                Some(wanted) => format!(
                    "metric: nothing is recorded of {wanted:?} in this span; of these there is: {}",
                    known.join(", ")
                ),
            }));
        };
        let mut text = "timestamp,value\n".to_owned();
        for (begin, value) in iter::zip(&rows.times, metric.demand()) {
            if let Some(value) = value {
                let _infallible = writeln!(text, "{},{value}", at(begin + 60));
            }
        }
        Ok(text)
    }
}

/// The span that a query asks for, in seconds since 1970.
fn span(from: Option<i64>, until: Option<i64>, now: Timestamp) -> Result<Span, ViewError> {
    let now = now.as_second();
    let until = until.unwrap_or(now + AFTER);
    let from = from.unwrap_or_else(|| until.min(now).saturating_sub(BEFORE));
    let is_real = Timestamp::from_second(from).is_ok() && Timestamp::from_second(until).is_ok();
    if !is_real || from >= until || until.saturating_sub(from) > LONGEST {
        return Err(ViewError::BadQuery(format!(
            "from, until: expected seconds since 1970, from before until and at most 60 days apart, got {from} and {until}"
        )));
    }
    Ok(Span { from, until })
}

/// The recorded minutes of a span, in at most `most` rows, and the forecast in it; without sentences.
fn view(recorded: &Recorded, span: Span, most: usize) -> HistoryView {
    let mut rows = recorded.minutes.rows(span.from, span.until);
    let step_seconds = rows.thin(most);
    let demand = rows.metrics.iter().map(|metric| DemandColumn {
        metric: metric.name.to_string(),
        unit: unit(&metric.name).to_owned(),
        values: metric.demand(),
    });
    let proposed = Source::ALL
        .iter()
        .map(|source| (*source, rows.proposed(*source)));
    let (windows, windows_truncated) = windows::of(&recorded.latest, span);
    HistoryView {
        step_seconds,
        needed: rows.needed(),
        expected: rows.amounts(Column::Expected),
        expected_upper: rows.amounts(Column::ExpectedUpper),
        current: rows.counts(Column::Current),
        ready: rows.counts(Column::Ready),
        proposed: proposed.collect(),
        highest: rows.counts(Column::Highest),
        stabilized: rows.counts(Column::Stabilized),
        limited: rows.counts(Column::Limited),
        desired: rows.counts(Column::Desired),
        floor: rows.counts(Column::Floor),
        min: rows.counts(Column::Min),
        max: rows.counts(Column::Max),
        demand: demand.collect(),
        ahead: ahead(&recorded.latest, span.until),
        sentences: Vec::new(),
        windows,
        windows_truncated,
        times: rows.times,
    }
}

/// The unit of a metric, for the head of a column.
fn unit(metric: &str) -> &'static str {
    match Unit::of_metric(metric) {
        Unit::Cores => "cores",
        Unit::Bytes => "bytes",
        Unit::Percent | Unit::Plain => "",
    }
}

/// The forecast in force after the last decision, up to `until`, in replicas: at each instant the highest value among
/// the metrics.
fn ahead(latest: &Latest, until: i64) -> Ahead {
    let Some(decided) = &latest.decided else {
        return Ahead::default();
    };
    let mut highest = BTreeMap::new();
    for metric in &decided.metrics {
        let (Some((forecast, _)), Some(per_replica)) = (&metric.forecast, metric.per_replica)
        else {
            continue;
        };
        for sample in forecast.samples() {
            let at = sample.at.as_second();
            if (latest.at.as_second()..until).contains(&at) {
                let made = Expected::of(at, &sample, per_replica);
                let known = highest.entry(at).or_insert(made);
                if made.end() > known.end() {
                    *known = made;
                }
            }
        }
    }
    let mut ahead = Ahead::default();
    for made in highest.into_values() {
        ahead.times.push(made.at);
        ahead.expected.push(short(made.value));
        ahead.upper.push(made.upper.map(short));
    }
    ahead
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "seven digits are enough to look at"
)]
fn short(value: f64) -> f32 {
    value as f32
}

/// The replicas of the last hours, and the forecast of the next ones.
pub fn sparkline(recorded: &Recorded, now: Timestamp) -> Option<Sparkline> {
    let second = now.as_second();
    let span = Span {
        from: second - SPARK_BEFORE,
        until: second + SPARK_AFTER,
    };
    let rows = recorded.minutes.rows(span.from, span.until);
    let past = chart::points(&rows.times, rows.counts(Column::Current));
    let ahead = ahead(&recorded.latest, span.until);
    let upper = iter::zip(ahead.expected, ahead.upper);
    let upper = upper.map(|(value, upper)| Some(upper.unwrap_or(value)));
    let ahead = chart::points(&ahead.times, upper);
    let values = past.iter().map(|point| point.value);
    let (low, high) = (values.clone().reduce(f64::min)?, values.reduce(f64::max)?);
    let range = if low < high {
        format!("{low} to {high}")
    } else {
        format!("{high}")
    };
    let most = ahead.iter().map(|point| point.value).reduce(f64::max);
    let label = match most {
        Some(most) => format!(
            "{range} replicas in the last 6 h, up to {} expected in the next 3 h",
            most.ceil()
        ),
        None => format!("{range} replicas in the last 6 h"),
    };
    let lines = foretide_chart::Sparkline::new(&past, &ahead, (at(span.from), at(span.until)));
    Some(Sparkline {
        past: lines.history,
        ahead: lines.ahead,
        label,
    })
}
