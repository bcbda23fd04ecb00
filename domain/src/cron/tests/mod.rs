//! Tests of the cron engine: the dialect, windows by table, laws by property, oracles, lint.

mod dialect;
mod fuzz;
mod laws;
mod lint;
mod oracles;
mod windows;

use jiff::Timestamp;
use jiff::civil::DateTime;

use super::occurrence::Search;
use super::{Expression, Window, WindowText, Zone};

fn zone(name: &str) -> Zone {
    Zone::parse(name, &Zone::utc()).unwrap()
}

fn expression(text: &str) -> Expression {
    Expression::parse(text).unwrap()
}

fn window(start: &str, end: &str, timezone: &str) -> Window {
    let text = WindowText {
        name: "cron",
        start,
        end,
        timezone,
        target_replicas: 7,
    };
    Window::parse(&text, &Zone::utc()).unwrap()
}

/// The first firing after `t`.
fn next_after(expression: &Expression, zone: &Zone, t: Timestamp) -> Option<Timestamp> {
    Some(Search::new(expression, zone).after(t)?.at)
}

/// The last firing at or before `t`.
fn last_at_or_before(expression: &Expression, zone: &Zone, t: Timestamp) -> Option<Timestamp> {
    Some(Search::new(expression, zone).at_or_before(t)?.at)
}

/// An instant by what the zone's clocks show, first pass.
fn at(zone: &Zone, civil: &str) -> Timestamp {
    zone.resolve(civil.parse::<DateTime>().unwrap()).unwrap().0
}

/// An instant as the zone's clocks show it, with weekday and offset.
fn shown(zone: &Zone, at: Timestamp) -> String {
    at.to_zoned(zone.rules().clone())
        .strftime("%a %d %H:%M%:::z")
        .to_string()
}

/// Activities of a window that begin before the second civil time, from the first on.
fn activities(window: &Window, from: &str, to: &str) -> Vec<String> {
    let zone = window.start_zone();
    let (from, to) = (at(zone, from), at(zone, to));
    let ahead = window
        .activities(from)
        .take_while(|activity| activity.since < to);
    ahead
        .map(|activity| {
            let until = activity
                .until
                .map_or("open".to_owned(), |until| shown(zone, until));
            format!("{} -> {until}", shown(zone, activity.since))
        })
        .collect()
}
