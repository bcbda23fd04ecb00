//! The recorded history of one autoscaler over a span, and the forecast beyond it.

use std::{fmt::Write as _, iter};

use foretide_chart::Point;
use foretide_domain::proposal::Unit;
use jiff::Timestamp;

use super::{
    ViewError,
    api::{Ahead, DemandColumn, HistoryQuery, HistoryView, Span, Sparkline},
    at,
    block::Column,
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
pub const ROWS: usize = 2000;
/// The span of a sparkline, before and after now.
const SPARK_BEFORE: i64 = 6 * HOUR;
const SPARK_AFTER: i64 = 3 * HOUR;

/// The span that a query asks for, in seconds since 1970.
pub fn span(from: Option<i64>, until: Option<i64>, now: Timestamp) -> Result<Span, ViewError> {
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
pub fn view(recorded: &Recorded, span: Span, most: usize) -> HistoryView {
    let mut rows = recorded.minutes.rows(span.from, span.until);
    let step_seconds = rows.thin(most);
    let demand = rows.metrics.iter().map(|metric| DemandColumn {
        metric: metric.name.to_string(),
        unit: unit(&metric.name).to_owned(),
        values: metric.demand(),
    });
    let (windows, windows_truncated) = windows::of(&recorded.latest, span);
    HistoryView {
        step_seconds,
        needed: rows.needed(),
        expected: rows.amounts(Column::Expected),
        expected_upper: rows.amounts(Column::ExpectedUpper),
        current: rows.counts(Column::Current),
        ready: rows.counts(Column::Ready),
        observed: rows.counts(Column::Observed),
        forecast: rows.counts(Column::Forecast),
        cron: rows.counts(Column::Cron),
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
pub fn unit(metric: &str) -> &'static str {
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
    let metrics = decided.metrics.iter();
    let forecasts =
        metrics.filter_map(|metric| Some((metric.forecast.as_ref()?, metric.per_replica?)));
    let mut predicted = std::collections::BTreeMap::new();
    for ((forecast, _), target) in forecasts {
        let samples = forecast
            .samples()
            .map(|sample| (sample.at.as_second(), sample));
        let within = samples.filter(|(at, _)| (latest.at.as_second()..until).contains(at));
        for (at, sample) in within {
            let made = (
                sample.value / target,
                sample.upper.map(|upper| upper / target),
            );
            let end = |made: &(f64, Option<f64>)| made.1.unwrap_or(made.0);
            let known = predicted.entry(at).or_insert(made);
            if end(&made) > end(known) {
                *known = made;
            }
        }
    }
    let mut ahead = Ahead::default();
    for (at, (expected, upper)) in predicted {
        ahead.times.push(at);
        ahead.expected.push(short(expected));
        ahead.upper.push(upper.map(short));
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
    let counts = rows.counts(Column::Current);
    let point = |second, value| Point {
        at: at(second),
        value,
    };
    let recorded_counts = iter::zip(rows.times, counts);
    let past: Vec<_> = recorded_counts
        .filter_map(|(second, count)| Some(point(second, f64::from(count?))))
        .collect();
    let ahead = ahead(&recorded.latest, span.until);
    let upper = iter::zip(ahead.expected, ahead.upper).map(|(value, upper)| upper.unwrap_or(value));
    let forecast = iter::zip(ahead.times, upper.map(f64::from));
    let ahead: Vec<_> = forecast
        .map(|(second, value)| point(second, value))
        .collect();
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

/// The recorded demand of a metric: a row for each minute, at its end.
pub fn csv(recorded: &Recorded, query: &HistoryQuery) -> Result<String, ViewError> {
    let rows = recorded.minutes.rows(
        query.from.unwrap_or(i64::MIN),
        query.until.unwrap_or(i64::MAX),
    );
    let wanted = query.metric.as_deref();
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
    let metric = rows.metrics.iter().find(|metric| is_wanted(&metric.name));
    let Some(metric) = metric else {
        let known: Vec<_> = rows.metrics.iter().map(|metric| &*metric.name).collect();
        let message = match (wanted, known.join(", ")) {
            (None, _) => "no demand is recorded in this span".to_owned(),
            (Some(wanted), known) => {
                format!(
                    "metric: nothing is recorded of {wanted:?} in this span; of these there is: {known}"
                )
            }
        };
        return Err(ViewError::BadQuery(message));
    };
    let mut text = "timestamp,value\n".to_owned();
    for (begin, value) in iter::zip(&rows.times, metric.demand()) {
        if let Some(value) = value {
            let _infallible = writeln!(text, "{},{value}", at(begin + 60));
        }
    }
    Ok(text)
}
