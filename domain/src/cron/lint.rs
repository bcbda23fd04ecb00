//! Findings about crons that are valid but probably not what was meant.
//!
//! Crons that cannot be parsed are [`super::WindowError`]s, found before this.

use jiff::{SignedDuration, Timestamp};

use super::clock_change::{LOOKAHEAD, clock_change};
use super::expression::split_prefix;
use super::field::{Field, words};
use super::window::{Activity, Window, WindowField, WindowProblem};
use crate::ReplicaBounds;
use crate::words::counted;

/// The most activities of one window that are checked: more than four a day over [`LOOKAHEAD`]. This bounds the work
/// for windows of minutes, whose later activities repeat the earlier ones.
const MAX_ACTIVITIES: usize = 2_000;

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// One finding about one cron.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The cron's name.
    pub cron: String,
    /// The lint that found it.
    pub lint: Lint,
    /// One sentence.
    pub message: String,
}

words! {
    /// The lints; their names are stable.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Lint {
        /// Starts and ends at the same times, so it is never active.
        ZeroLength,
        /// No date matches its start or end, so it is never active.
        NeverFires,
        /// Stays active for more than 24 hours.
        LongerThanADay,
        /// Another window with a larger target is active at the same time.
        HiddenByLargerTarget,
        /// The target is above `maxReplicas`.
        TargetAboveMax,
        /// The target is not above `minReplicas`.
        TargetNotAboveMin,
        /// The clocks change within it, or at one of its edges, in the next 400 days.
        ClockChange,
        /// Accepted, but probably not what was meant.
        OddInput,
        /// Restricts both day fields, so a day that matches either counts.
        EitherDay,
        /// Names no zone, so UTC is used.
        TimeZoneMissing,
    }
}

/// The findings about the windows of one object, in the order of the windows.
///
/// ```
/// use foretide_domain::cron::{Lint, Window, WindowText, Zone, lint};
/// use foretide_domain::{ReplicaBounds, Replicas};
///
/// let text = WindowText {
///     name: "office",
///     start: "0 9 * * *",
///     end: "0 18 * * *",
///     timezone: "",
///     target_replicas: 7,
/// };
/// let window = Window::parse(&text, &Zone::utc())?;
/// let bounds = ReplicaBounds::new(Replicas::new(1), Replicas::new(10));
/// let findings = lint(&[window], bounds, "2026-03-01T10:00:00Z".parse()?);
/// assert_eq!(findings[0].lint, Lint::TimeZoneMissing);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lint(windows: &[Window], bounds: ReplicaBounds, now: Timestamp) -> Vec<Finding> {
    let ahead: Vec<Vec<Activity>> = windows
        .iter()
        .map(|window| activities(window, now))
        .collect();
    let mut findings = Vec::new();
    for (at, (window, own)) in windows.iter().zip(&ahead).enumerate() {
        let others = windows.iter().zip(&ahead).enumerate();
        let others = others
            .filter(|(other, _)| *other != at)
            .map(|(_, other)| other);
        let found = [
            problem(window),
            longer_than_a_day(window, own),
            hidden(window, own, others),
            above_max(window, bounds),
            not_above_min(window, bounds),
            clock_change(window, now).map(|message| (Lint::ClockChange, message)),
            odd_input(window, WindowField::Start),
            odd_input(window, WindowField::End),
            either_day(window, WindowField::Start),
            either_day(window, WindowField::End),
            zone_missing(window),
        ];
        findings.extend(found.into_iter().flatten().map(|(lint, message)| Finding {
            cron: window.name().to_owned(),
            lint,
            message,
        }));
    }
    findings
}

type Found = Option<(Lint, String)>;

// === impl Lint ===

impl Lint {
    /// Returns true if the cron can never have an effect; the other lints are about unexpected effects.
    ///
    /// ```
    /// use foretide_domain::cron::Lint;
    ///
    /// assert!(Lint::NeverFires.is_error());
    /// assert!(!Lint::EitherDay.is_error());
    /// ```
    pub fn is_error(self) -> bool {
        matches!(self, Self::ZeroLength | Self::NeverFires)
    }
}

// === one function per lint ===

fn activities(window: &Window, now: Timestamp) -> Vec<Activity> {
    let end = now.checked_add(LOOKAHEAD).unwrap_or(Timestamp::MAX);
    window
        .activities(now)
        .take_while(|activity| activity.since < end)
        .take(MAX_ACTIVITIES)
        .collect()
}

fn problem(window: &Window) -> Found {
    let field = match window.problem()? {
        WindowProblem::StartNeverFires => WindowField::Start,
        WindowProblem::EndNeverFires => WindowField::End,
        WindowProblem::ZeroLength => {
            let message = format!(
                "it starts and ends at `{}`, so it is never active",
                window.start()
            );
            return Some((Lint::ZeroLength, message));
        }
    };
    let message = format!(
        "its {} `{}` matches no date, so it is never active",
        field.name(),
        window.expression(field).text()
    );
    Some((Lint::NeverFires, message))
}

fn longer_than_a_day(window: &Window, ahead: &[Activity]) -> Found {
    // A clock change of up to two hours (Antarctica/Troll) may lengthen a window of one day.
    let slack = SignedDuration::from_hours(2);
    let long = ahead.iter().find(|activity| {
        activity
            .until
            .is_none_or(|until| until.duration_since(activity.since) > DAY + slack)
    })?;
    let since = window.start_zone().local(long.since);
    let message = match long.until {
        Some(until) => {
            let hours = until.duration_since(long.since).as_hours();
            format!(
                "from {since} it stays active for {hours} hours, until {}",
                window.end_zone().local(until)
            )
        }
        None => format!(
            "from {since} it never becomes inactive, because each end coincides with a start"
        ),
    };
    Some((Lint::LongerThanADay, message))
}

fn hidden<'w>(
    window: &Window,
    own: &[Activity],
    others: impl Iterator<Item = (&'w Window, &'w Vec<Activity>)>,
) -> Found {
    others
        .filter(|(other, _)| other.target_replicas() > window.target_replicas())
        .find_map(|(other, ahead)| {
            let at = first_overlap(own, ahead)?;
            let message = format!(
                "its target of {} has no effect while `{}` asks for {}, first at {}",
                counted(window.target_replicas(), "replica"),
                other.name(),
                other.target_replicas(),
                window.start_zone().local(at),
            );
            Some((Lint::HiddenByLargerTarget, message))
        })
}

/// First instant at which both are active; both lists are in order of time.
fn first_overlap(a: &[Activity], b: &[Activity]) -> Option<Timestamp> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let (x, y) = (a.peek()?, b.peek()?);
        let at = x.since.max(y.since);
        let (x_ends, y_ends) = (
            x.until.unwrap_or(Timestamp::MAX),
            y.until.unwrap_or(Timestamp::MAX),
        );
        if at < x_ends && at < y_ends {
            return Some(at);
        }
        if x_ends <= y_ends {
            a.next()
        } else {
            b.next()
        };
    }
}

fn above_max(window: &Window, bounds: ReplicaBounds) -> Found {
    let target = window.target_replicas();
    (target > bounds.max.get()).then(|| {
        let message = format!(
            "its target {target} is above maxReplicas {}, so it is capped",
            bounds.max
        );
        (Lint::TargetAboveMax, message)
    })
}

fn not_above_min(window: &Window, bounds: ReplicaBounds) -> Found {
    let target = window.target_replicas();
    (target <= bounds.min.get()).then(|| {
        let message = format!(
            "its target {target} is not above minReplicas {}, so it has no effect",
            bounds.min
        );
        (Lint::TargetNotAboveMin, message)
    })
}

fn zone_missing(window: &Window) -> Found {
    let needed = window.start().zone_name().is_none() || window.end().zone_name().is_none();
    (window.zone().is_assumed() && needed).then(|| {
        (
            Lint::TimeZoneMissing,
            "it names no timezone, so its times are read as UTC".to_owned(),
        )
    })
}

fn either_day(window: &Window, field: WindowField) -> Found {
    let expression = window.expression(field);
    expression.joins_days_by_or().then(|| {
        let message = format!(
            "its {} `{}` restricts day of month and day of week: a day that matches either counts",
            field.name(),
            expression.text()
        );
        (Lint::EitherDay, message)
    })
}

fn odd_input(window: &Window, field: WindowField) -> Found {
    let text = window.expression(field).text();
    let words = words(text);
    let (_, words) = split_prefix(&words);
    let fields = [
        Field::Minute,
        Field::Hour,
        Field::DayOfMonth,
        Field::Month,
        Field::DayOfWeek,
    ];
    // A descriptor is one word, and never odd.
    let oddity = (words.len() == fields.len()).then(|| {
        words
            .iter()
            .zip(fields)
            .find_map(|(word, field)| odd_word(field, word.text))
    })??;
    Some((
        Lint::OddInput,
        format!("its {} `{text}` is accepted, but {oddity}", field.name()),
    ))
}

fn odd_word(field: Field, word: &str) -> Option<String> {
    word.split(',').find_map(|item| odd_item(field, item))
}

fn odd_item(field: Field, item: &str) -> Option<String> {
    let (low, high) = field.range();
    let (range, step) = item
        .split_once('/')
        .map_or((item, None), |(r, s)| (r, Some(s)));
    if item.is_empty() {
        return Some(format!(
            "its {field} list has an empty item, which selects nothing"
        ));
    }
    if item.contains('+') {
        return Some(format!("the sign in its {field} `{item}` has no meaning"));
    }
    if range.starts_with(['*', '?']) && range.contains('-') {
        return Some(format!(
            "its {field} `{item}` means every value, not a range"
        ));
    }
    // The expression was parsed, so what does not fit is a number above `u32::MAX`.
    let step = step?.parse::<u32>().unwrap_or(u32::MAX);
    (step > high - low)
        .then(|| format!("the step of its {field} `{item}` is longer than the field, so only the first value counts"))
}
