//! Cron windows: of one autoscaler in a span, and of all in a calendar.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    slice,
    sync::Arc,
};

use foretide_domain::cron::{Activity, Zone};
use jiff::{Timestamp, ToSpan as _};

use super::{
    Page, ViewError, Visible,
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
pub fn of(latest: &Arc<Latest>, span: Span) -> (Vec<WindowSpan>, bool) {
    let (found, truncated) = openings(slice::from_ref(latest), span, MOST);
    let windows = found.into_iter().map(|opening| opening.window);
    (windows.collect(), truncated)
}

/// The first openings that touch a span, in the order of time, of autoscalers in their order, and whether there are
/// more. At most `most` are searched for: a window may open every minute.
fn openings(all: &[Arc<Latest>], span: Span, most: usize) -> (Vec<CalendarWindow>, bool) {
    let (mut sources, mut next) = (Vec::new(), BinaryHeap::new());
    for latest in all {
        for window in latest.windows() {
            let mut activities = window.activities(at(span.from));
            next.extend(following(&mut activities, sources.len(), span.until));
            sources.push((&latest.key, window, activities));
        }
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
        next.extend(following(activities, index, span.until));
    }
    (found, false)
}

/// The next opening before `until` of the window with this index, to be taken in the order of time.
fn following(
    activities: &mut impl Iterator<Item = Activity>,
    index: usize,
    until: i64,
) -> Option<Reverse<(Timestamp, usize, Option<Timestamp>)>> {
    let opening = activities.next()?;
    (opening.since.as_second() < until).then_some(Reverse((opening.since, index, opening.until)))
}

impl Page {
    /// The windows of all autoscalers over some weeks. If there are too many, those from now on are shown.
    ///
    /// # Errors
    /// [`ViewError::BadQuery`].
    pub fn calendar(
        &self,
        visible: &Visible,
        query: &CalendarQuery,
    ) -> Result<CalendarView, ViewError> {
        let now = self.host.now();
        let zone = chart::zone(query.zone.as_deref())?;
        let width = chart::width(query.width)?;
        let span = weeks(query, &zone, now)?;
        let mut all = self.log.all(visible);
        if let Some(namespace) = &query.namespace {
            all.retain(|latest| latest.key.namespace == *namespace);
        }
        all.sort_by(|one, other| one.key.cmp(&other.key));
        let (mut windows, truncated) = openings(&all, span, MOST_OF_ALL);
        let from = now.as_second();
        if truncated && (span.from..span.until).contains(&from) {
            (windows, _) = openings(&all, Span { from, ..span }, MOST_OF_ALL);
        }
        Ok(CalendarView {
            span,
            zone: zone.name().to_owned(),
            truncated,
            clock_changes: clock_changes(&all, span),
            svg: chart::calendar(&windows, span, &zone, (width, now)),
            windows,
        })
    }
}

/// The span of the weeks, which begins with the Monday on or before the asked day.
fn weeks(query: &CalendarQuery, zone: &Zone, now: Timestamp) -> Result<Span, ViewError> {
    let weeks = query.weeks.unwrap_or(2);
    if !WEEKS.contains(&weeks) {
        return Err(bad("weeks: expected 1 to 8"));
    }
    let from = match query.from {
        Some(second) => {
            Timestamp::from_second(second).map_err(|_| bad("from: expected seconds since 1970"))?
        }
        None => now,
    };
    whole_weeks(from, weeks, zone)
        .ok_or_else(|| bad("from: expected a time within the years 1 to 9999"))
}

fn bad(message: &str) -> ViewError {
    ViewError::BadQuery(message.to_owned())
}

fn whole_weeks(from: Timestamp, weeks: u32, zone: &Zone) -> Option<Span> {
    let day = from.to_zoned(zone.rules().clone()).date();
    let monday_was = i64::from(day.weekday().to_monday_zero_offset()).days();
    let monday = day.checked_sub(monday_was).ok()?;
    let end = monday.checked_add(i64::from(weeks).weeks()).ok()?;
    Some(Span {
        from: zone.resolve(monday.at(0, 0, 0, 0))?.0.as_second(),
        until: zone.resolve(end.at(0, 0, 0, 0))?.0.as_second(),
    })
}

fn clock_changes(all: &[Arc<Latest>], span: Span) -> Vec<ClockChange> {
    let mut zones = BTreeMap::new();
    for window in all.iter().flat_map(|latest| latest.windows()) {
        zones.insert(window.zone().name(), window.zone());
    }
    let mut changes = Vec::new();
    for (name, zone) in zones {
        let mut before = zone.rules().to_offset(at(span.from));
        let following = zone.rules().following(at(span.from));
        for change in following.take_while(|change| change.timestamp().as_second() < span.until) {
            let forward = change.offset().seconds() - before.seconds();
            before = change.offset();
            // A zone may change its abbreviation alone.
            if forward != 0 {
                changes.push(ClockChange {
                    at: change.timestamp().as_second(),
                    zone: name.to_owned(),
                    forward,
                });
            }
        }
    }
    changes.sort_by_key(|change| change.at);
    changes
}
