//! Cron windows: of one autoscaler in a span, and of all in a calendar.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
};

use foretide_domain::cron::{Activity, Zone};
use jiff::{Timestamp, ToSpan as _};

use super::{
    ViewError,
    api::{CalendarQuery, CalendarView, CalendarWindow, ClockChange, Span, WindowSpan},
    at, chart,
    record::Latest,
};

/// The most openings in one answer for an autoscaler, and in a calendar.
const MOST: usize = 500;
const MOST_OF_ALL: usize = 1000;
/// The weeks of a calendar.
const WEEKS: std::ops::RangeInclusive<u32> = 1..=8;

/// The openings of an autoscaler's windows that touch a span, in the order of time, and whether there are more of them.
pub fn of(latest: &Latest, span: Span) -> (Vec<WindowSpan>, bool) {
    let (found, truncated) = openings(&[latest], span, MOST);
    let windows = found.into_iter().map(|opening| opening.window);
    (windows.collect(), truncated)
}

/// The first openings that touch a span, in the order of time, of autoscalers in their order, and whether there are
/// more. At most `most` are searched for: a window may open every minute.
fn openings(all: &[&Latest], span: Span, most: usize) -> (Vec<CalendarWindow>, bool) {
    let windows = all.iter().flat_map(|latest| {
        let decided = latest.decided.iter();
        let windows = decided.flat_map(|decided| &decided.workload.windows);
        windows.map(|window| (&latest.key, window))
    });
    let mut sources: Vec<_> = windows
        .map(|(key, window)| (key, window, window.activities(at(span.from))))
        .collect();
    let within = |activity: &Activity| activity.since.as_second() < span.until;
    let place = |index, it: Activity| Reverse((it.since, index, it.until));
    let mut next = BinaryHeap::new();
    for (index, (.., activities)) in sources.iter_mut().enumerate() {
        let first = activities.next().filter(within);
        next.extend(first.map(|it| place(index, it)));
    }
    let mut found = Vec::new();
    while let Some(Reverse((since, index, until))) = next.pop() {
        // Only the next opening shows that there are more than `most`.
        if found.len() == most {
            return (found, true);
        }
        let Some((key, window, activities)) = sources.get_mut(index) else {
            break;
        };
        found.push(CalendarWindow {
            autoscaler: key.clone(),
            window: WindowSpan {
                name: window.name().to_owned(),
                span: Span {
                    from: since.as_second(),
                    until: until.map_or(i64::MAX, Timestamp::as_second).min(span.until),
                },
                replicas: window.target_replicas(),
                zone: window.zone().name().to_owned(),
            },
        });
        let following = activities.next().filter(within);
        next.extend(following.map(|it| place(index, it)));
    }
    (found, false)
}

/// The windows of all autoscalers over some weeks. If there are too many, those from now on are shown.
pub fn calendar(
    all: &[Arc<Latest>],
    query: &CalendarQuery,
    now: Timestamp,
) -> Result<CalendarView, ViewError> {
    let zone = chart::zone(query.zone.as_deref())?;
    let width = chart::width(query.width)?;
    let span = weeks(query, &zone, now)?;
    let is_wanted = |latest: &&Latest| {
        let wanted = query.namespace.as_ref();
        wanted.is_none_or(|namespace| latest.key.namespace == *namespace)
    };
    let all = all.iter().map(Arc::as_ref);
    let mut wanted: Vec<_> = all.filter(is_wanted).collect();
    wanted.sort_by(|one, other| one.key.cmp(&other.key));
    let (mut windows, truncated) = openings(&wanted, span, MOST_OF_ALL);
    let second = now.as_second();
    if truncated && (span.from..span.until).contains(&second) {
        let rest = Span {
            from: second,
            ..span
        };
        (windows, _) = openings(&wanted, rest, MOST_OF_ALL);
    }
    let svg = chart::calendar(&windows, span, &zone, (width, now));
    Ok(CalendarView {
        span,
        zone: zone.name().to_owned(),
        windows,
        truncated,
        clock_changes: clock_changes(&wanted, span),
        svg,
    })
}

/// The span of the weeks, which begins with the Monday on or before the asked day.
fn weeks(query: &CalendarQuery, zone: &Zone, now: Timestamp) -> Result<Span, ViewError> {
    let weeks = query.weeks.unwrap_or(2);
    let asked = query.from.map_or(Ok(now), Timestamp::from_second);
    let bad =
        |field: &str, expected: &str| ViewError::BadQuery(format!("{field}: expected {expected}"));
    if !WEEKS.contains(&weeks) {
        return Err(bad("weeks", "1 to 8"));
    }
    let from = asked.map_err(|_| bad("from", "seconds since 1970"))?;
    let day = from.to_zoned(zone.rules().clone()).date();
    let monday = day.checked_sub(i64::from(day.weekday().to_monday_zero_offset()).days());
    let second = |date: jiff::civil::Date| {
        let midnight = zone.resolve(date.at(0, 0, 0, 0));
        midnight.map(|(at, _)| at.as_second())
    };
    let span = monday.ok().and_then(|monday| {
        let end = monday.checked_add(i64::from(weeks).weeks()).ok()?;
        Some(Span {
            from: second(monday)?,
            until: second(end)?,
        })
    });
    span.ok_or_else(|| bad("from", "a time within the years 1 to 9999"))
}

fn clock_changes(all: &[&Latest], span: Span) -> Vec<ClockChange> {
    let decisions = all.iter().filter_map(|latest| latest.decided.as_ref());
    let windows = decisions.flat_map(|decided| &decided.workload.windows);
    let zones: BTreeMap<&str, &Zone> = windows
        .map(|window| (window.zone().name(), window.zone()))
        .collect();
    let mut changes = Vec::new();
    for (name, zone) in zones {
        let mut before = zone.rules().to_offset(at(span.from));
        let following = zone.rules().following(at(span.from));
        for change in following.take_while(|change| change.timestamp().as_second() < span.until) {
            let forward = change.offset().seconds() - before.seconds();
            before = change.offset();
            // A zone may change its abbreviation alone.
            if forward != 0 {
                let at = change.timestamp().as_second();
                changes.push(ClockChange {
                    at,
                    zone: name.to_owned(),
                    forward,
                });
            }
        }
    }
    changes.sort_by_key(|change| change.at);
    changes
}
