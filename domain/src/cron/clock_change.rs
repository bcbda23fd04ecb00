//! The first clock change that affects a window, for `lint.rs`.
//!
//! The rules that decide what it does are in `zone.rs` and `window.rs`.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use super::occurrence::{Occurrence, Search, before as before_civil};
use super::window::{Window, WindowField};
use super::zone::{Ambiguity, Zone};

/// Time ahead in which clock changes are reported: each yearly one, at least a month before.
pub(super) const LOOKAHEAD: SignedDuration = SignedDuration::from_hours(400 * 24);

/// A change of a zone's offset.
struct Change {
    at: Timestamp,
    before: Offset,
    after: Offset,
}

/// The effect of the first clock change that affects a window.
pub(super) fn clock_change(window: &Window, now: Timestamp) -> Option<String> {
    window.problem().is_none().then_some(())?;
    let at_edges = [
        (WindowField::Start, window.start_zone()),
        (WindowField::End, window.end_zone()),
    ]
    .into_iter()
    .filter_map(|(field, zone)| {
        changes(zone, now).find_map(|change| Some((change.at, edge(window, field, &change)?)))
    });
    let within = changes(window.start_zone(), now)
        .find_map(|change| Some((change.at, inside(window, &change)?)));
    // For one change, report the moved edge rather than the changed length.
    let (_, message) = at_edges.chain(within).min_by_key(|(at, _)| *at)?;
    Some(message)
}

/// The changes of offset after `now`, up to `LOOKAHEAD` later.
fn changes(zone: &Zone, now: Timestamp) -> impl Iterator<Item = Change> + '_ {
    let end = now.checked_add(LOOKAHEAD).unwrap_or(Timestamp::MAX);
    let mut before = zone.rules().to_offset(now);
    zone.rules()
        .following(now)
        .take_while(move |next| next.timestamp() <= end)
        .filter_map(move |next| {
            let change = Change {
                at: next.timestamp(),
                before,
                after: next.offset(),
            };
            before = change.after;
            // Some transitions change the abbreviation of the offset only.
            (change.before != change.after).then_some(change)
        })
}

/// An edge of the window that the change skips or repeats.
fn edge(window: &Window, field: WindowField, change: &Change) -> Option<String> {
    let zone = match field {
        WindowField::Start => window.start_zone(),
        WindowField::End => window.end_zone(),
    };
    let mut search = Search::new(window.expression(field), zone);
    let touched = touched_by(&mut search, change)?;
    let (name, written) = (field.name(), minute(touched.civil));
    let effect = match touched.ambiguity {
        Ambiguity::Gap => format!("{written} is skipped, so its {name} moves to"),
        Ambiguity::Fold => {
            format!("{written} occurs twice, and its {name} is the first occurrence, at")
        }
        Ambiguity::Unambiguous => return None,
    };
    Some(format!(
        "{} in {}: {effect} {}",
        describe(change),
        zone.name(),
        zone.local(touched.at)
    ))
}

/// The first occurrence written for a civil time that the change skips or repeats.
fn touched_by(search: &mut Search<'_>, change: &Change) -> Option<Occurrence> {
    let (before, after) = (
        change.before.to_datetime(change.at),
        change.after.to_datetime(change.at),
    );
    let (from, to) = (before.min(after), before.max(after));
    // The search is exclusive, and the first civil time of the change is one that it skips or repeats.
    let found = search.after_civil(before_civil(from)?)?;
    (found.civil < to).then_some(found)
}

/// A window that is active across the change.
fn inside(window: &Window, change: &Change) -> Option<String> {
    let just_before = change.at.checked_sub(SignedDuration::from_nanos(1)).ok()?;
    let length = window
        .state(just_before)
        .next_transition
        .filter(|until| *until > change.at)?
        .duration_since(window.active_since(just_before)?);
    let moved = i64::from(change.after.seconds() - change.before.seconds());
    let usual = length + SignedDuration::from_secs(moved);
    Some(format!(
        "{} in {}: the window active at that time lasts {length:#} instead of {usual:#}",
        describe(change),
        window.start_zone().name(),
    ))
}

fn describe(change: &Change) -> String {
    let seconds = i64::from(change.after.seconds() - change.before.seconds());
    let direction = if seconds > 0 { "forward" } else { "back" };
    let by = SignedDuration::from_secs(seconds.abs());
    let at = change.before.to_datetime(change.at);
    format!(
        "on {} the clocks go {direction} by {by:#} at {:02}:{:02}",
        at.date(),
        at.hour(),
        at.minute()
    )
}

fn minute(civil: DateTime) -> String {
    format!("{:02}:{:02}", civil.hour(), civil.minute())
}
