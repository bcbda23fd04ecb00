//! A cron window: the time between a start and an end, and whether it is active.
//!
//! With `s` the last start at or before now and `e` the first end after `s`, the window is active if and
//! only if now is before `e`.
//!
//! ```text
//! starts  s         s         s
//! ends        e          e        e
//! active  |---|     |----|    |---|
//! ```

use jiff::{SignedDuration, Timestamp};

use super::expression::{Expression, ExpressionError};
use super::occurrence::{Occurrence, Search, before};
use super::zone::{Zone, ZoneError};

/// How many windows in a row are followed when looking for the edges of an activity: windows that touch as
/// instants, or of which a gap leaves nothing.
///
/// Within one zone only gaps make such windows, because ends written for the minute of a start are left
/// out. With an end in another zone they may touch each hour or day: hourly this is six weeks, daily
/// almost three years. Beyond it no edge is found, and the state lacks `since` or `until`.
const MAX_CHAIN: u32 = 1_000;

/// A cron as it is written: five fields of text and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowText<'t> {
    /// The cron's name.
    pub name: &'t str,
    /// Expression of the start.
    pub start: &'t str,
    /// Expression of the end.
    pub end: &'t str,
    /// Zone name, `Local`, or empty for UTC.
    pub timezone: &'t str,
    /// Replicas proposed while active.
    pub target_replicas: u32,
}

/// A parsed cron window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    name: Box<str>,
    start: Schedule,
    end: Schedule,
    zone: Zone,
    target_replicas: u32,
    problem: Option<WindowProblem>,
}

/// An expression in the zone it is read in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Schedule {
    expression: Expression,
    zone: Zone,
}

/// A window's state at one instant.
///
/// Depends on the instant alone, so a clock that steps back finds the same activity, with the same
/// edges, that it found before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowState {
    /// Whether it is active.
    pub active: bool,
    /// When the present activity began; absent when inactive, or when each start within the search
    /// limit coincides with an end.
    pub since: Option<Timestamp>,
    /// When the present activity ends; absent when inactive, or when each end within the search limit
    /// coincides with a start.
    pub until: Option<Timestamp>,
    /// When `active` changes next.
    pub next_transition: Option<Timestamp>,
    /// Why the window can never be active.
    pub problem: Option<WindowProblem>,
}

/// Why a window can never be active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowProblem {
    /// It starts and ends at the same times.
    ZeroLength,
    /// No date matches its start.
    StartNeverFires,
    /// No date matches its end.
    EndNeverFires,
}

/// One uninterrupted activity of a window: `since <= t < until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// First instant.
    pub since: Timestamp,
    /// First instant after it; absent when no end was found within the search limit.
    pub until: Option<Timestamp>,
}

/// A field of a cron.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowField {
    /// `start`.
    Start,
    /// `end`.
    End,
}

/// Why a cron is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// Its `start` or `end` is not an expression.
    #[error("cron `{cron}`: invalid `{}`", field.name())]
    Expression {
        /// The cron's name.
        cron: String,
        /// Which field.
        field: WindowField,
        /// What is wrong with it.
        source: ExpressionError,
    },
    /// Its `timezone` is not a zone.
    #[error("cron `{cron}`: invalid `timezone`")]
    Zone {
        /// The cron's name.
        cron: String,
        /// What is wrong with it.
        source: ZoneError,
    },
}

/// The active window with the largest target; the first of equals.
///
/// # Guarantees
/// - Adding a window never lowers the target.
///
/// ```
/// use foretide_domain::cron::{Window, WindowText, Zone, largest_active};
///
/// let window = |name: &'static str, target_replicas| {
///     let text = WindowText {
///         name,
///         start: "0 9 * * *",
///         end: "0 18 * * *",
///         timezone: "UTC",
///         target_replicas,
///     };
///     Window::parse(&text, &Zone::utc())
/// };
/// let windows = [window("low", 3)?, window("high", 7)?];
/// let largest = largest_active(&windows, "2026-03-02T12:00:00Z".parse()?);
/// assert_eq!(largest.map(|window| window.name()), Some("high"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn largest_active(windows: &[Window], now: Timestamp) -> Option<&Window> {
    let active = windows.iter().filter(|window| window.is_active(now));
    active.reduce(|best, next| {
        if next.target_replicas > best.target_replicas {
            next
        } else {
            best
        }
    })
}

// === impl WindowField ===

impl WindowField {
    /// The field's name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
        }
    }
}

// === impl WindowError ===

impl WindowError {
    /// The condition reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Expression { source, .. } => source.reason(),
            Self::Zone { source, .. } => source.reason(),
        }
    }
}

// === impl WindowProblem ===

impl WindowProblem {
    /// The condition reason.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::ZeroLength => "ZeroLength",
            Self::StartNeverFires | Self::EndNeverFires => "NeverFires",
        }
    }
}

// === impl Window ===

impl Window {
    /// Reads a cron; `local` is the zone that `Local` stands for.
    ///
    /// A `TZ=` or `CRON_TZ=` prefix overrides the `timezone` field, for that expression only.
    ///
    /// ```
    /// use foretide_domain::cron::{Window, WindowText, Zone};
    ///
    /// let text = WindowText {
    ///     name: "office",
    ///     start: "0 9 * * 1-5",
    ///     end: "0 18 * * *",
    ///     timezone: "Europe/Berlin",
    ///     target_replicas: 7,
    /// };
    /// let window = Window::parse(&text, &Zone::utc())?;
    /// // A Monday in winter, 09:30 in Berlin.
    /// let state = window.state("2026-03-02T08:30:00Z".parse()?);
    /// assert!(state.active);
    /// assert_eq!(state.until, Some("2026-03-02T17:00:00Z".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`] for the first field that cannot be read: `timezone`, `start`, `end`. A window
    /// that can never be active is valid; [`WindowState::problem`] names the problem.
    pub fn parse(text: &WindowText<'_>, local: &Zone) -> Result<Self, WindowError> {
        let cron = || text.name.to_owned();
        let zone = Zone::parse(text.timezone, local).map_err(|source| WindowError::Zone {
            cron: cron(),
            source,
        })?;
        let firing = |field, expression| {
            Schedule::parse(expression, &zone, local).map_err(|source| WindowError::Expression {
                cron: cron(),
                field,
                source,
            })
        };
        let start = firing(WindowField::Start, text.start)?;
        let end = firing(WindowField::End, text.end)?;
        let problem = find_problem(&start, &end);
        let target_replicas = text.target_replicas;
        Ok(Self {
            name: text.name.into(),
            start,
            end,
            zone,
            target_replicas,
            problem,
        })
    }

    /// The cron's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Expression of the start.
    #[must_use]
    pub fn start(&self) -> &Expression {
        &self.start.expression
    }

    /// Expression of the end.
    #[must_use]
    pub fn end(&self) -> &Expression {
        &self.end.expression
    }

    pub(super) fn expression(&self, field: WindowField) -> &Expression {
        match field {
            WindowField::Start => self.start(),
            WindowField::End => self.end(),
        }
    }

    /// The zone of the `timezone` field.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The zone the start is read in.
    #[must_use]
    pub fn start_zone(&self) -> &Zone {
        &self.start.zone
    }

    /// The zone the end is read in.
    #[must_use]
    pub fn end_zone(&self) -> &Zone {
        &self.end.zone
    }

    /// Replicas proposed while active.
    #[must_use]
    pub fn target_replicas(&self) -> u32 {
        self.target_replicas
    }

    /// Why the window can never be active.
    #[must_use]
    pub fn problem(&self) -> Option<WindowProblem> {
        self.problem
    }

    /// Whether it is active at `now`.
    #[must_use]
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.active_start(now).is_some()
    }

    /// Its state at `now`.
    ///
    /// # Guarantees
    /// - Active exactly from a start up to the next end, whatever the zone's clocks do.
    /// - The same `since` and `until` for every instant between them, where they are found.
    /// - Bounded work.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> WindowState {
        let problem = self.problem;
        if let Some(start) = self.active_start(now) {
            let until = self.activity_end(start);
            let since = self.activity_start(start);
            WindowState {
                active: true,
                since,
                until,
                next_transition: until,
                problem,
            }
        } else {
            let next_transition = self.next_start(now);
            WindowState {
                active: false,
                since: None,
                until: None,
                next_transition,
                problem,
            }
        }
    }

    /// Its activities, beginning with the one at `from` or the first after it. One without an end is the last.
    ///
    /// Where [`WindowState::since`] is not found, an activity begins at the instant it was asked for.
    ///
    /// ```
    /// use foretide_domain::cron::{Window, WindowText, Zone};
    ///
    /// let text = WindowText {
    ///     name: "office",
    ///     start: "0 9 * * *",
    ///     end: "0 18 * * *",
    ///     timezone: "UTC",
    ///     target_replicas: 7,
    /// };
    /// let window = Window::parse(&text, &Zone::utc())?;
    /// let first = window.activities("2026-03-02T12:00:00Z".parse()?).next();
    /// assert_eq!(first.map(|activity| activity.since), Some("2026-03-02T09:00:00Z".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn activities(&self, from: Timestamp) -> impl Iterator<Item = Activity> + '_ {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let mut from = next?;
            let mut state = self.state(from);
            if !state.active {
                from = state.next_transition?;
                state = self.state(from);
            }
            next = state.until;
            Some(Activity {
                since: state.since.unwrap_or(from),
                until: state.until,
            })
        })
    }

    /// The last start at or before `now`, if its end is still to come.
    fn active_start(&self, now: Timestamp) -> Option<Occurrence> {
        if self.problem.is_some() {
            return None;
        }
        let start = self.start.search().at_or_before(now)?;
        (now < self.end_after(start)?.at).then_some(start)
    }

    /// The next instant at which a window of some length starts.
    fn next_start(&self, mut now: Timestamp) -> Option<Timestamp> {
        if self.problem.is_some() {
            return None;
        }
        for _ in 0..MAX_CHAIN {
            let start = self.start.search().after(now)?.at;
            // Start and end skipped by the same gap: nothing of that window is left.
            if self.is_active(start) {
                return Some(start);
            }
            now = start;
        }
        None
    }

    /// Where the activity that begins or goes on at `start` ends.
    fn activity_end(&self, mut start: Occurrence) -> Option<Timestamp> {
        for _ in 0..MAX_CHAIN {
            // An end at which a window starts ends nothing.
            let end = self.plain_ends().beyond(start, self.one_zone())?.at;
            match self.active_start(end) {
                Some(next) => start = next,
                None => return Some(end),
            }
        }
        None
    }

    /// Where the activity that `start` belongs to began.
    fn activity_start(&self, mut start: Occurrence) -> Option<Timestamp> {
        for _ in 0..MAX_CHAIN {
            let end = self.plain_ends().up_to(start, self.one_zone())?;
            let first = self.start.search().from(end, self.one_zone())?.at;
            // Another activity may end exactly where this one begins.
            match self.active_start(just_before(first)?) {
                Some(previous) => start = previous,
                None => return Some(first),
            }
        }
        None
    }

    /// The ends at which no window starts, by civil time where both are in one zone.
    fn plain_ends(&self) -> Search<'_> {
        let ends = self.end.search();
        if self.one_zone() {
            ends.except(&self.start.expression)
        } else {
            ends
        }
    }

    /// First end after a start.
    fn end_after(&self, start: Occurrence) -> Option<Occurrence> {
        self.end.search().beyond(start, self.one_zone())
    }

    /// Whether the civil times of starts and ends can be compared.
    fn one_zone(&self) -> bool {
        self.start.zone == self.end.zone
    }
}

fn find_problem(start: &Schedule, end: &Schedule) -> Option<WindowProblem> {
    if start.expression.never_fires() {
        Some(WindowProblem::StartNeverFires)
    } else if end.expression.never_fires() {
        Some(WindowProblem::EndNeverFires)
    // In two zones, the same times of day are different instants.
    } else if start.zone == end.zone && start.expression.same_times(&end.expression) {
        Some(WindowProblem::ZeroLength)
    } else {
        None
    }
}

// === impl Schedule ===

impl Schedule {
    fn parse(text: &str, zone: &Zone, local: &Zone) -> Result<Self, ExpressionError> {
        let expression = Expression::parse(text)?;
        let zone = match expression.zone_name() {
            Some(name) => Zone::parse(name, local).map_err(ExpressionError::Zone)?,
            None => zone.clone(),
        };
        Ok(Self { expression, zone })
    }

    fn search(&self) -> Search<'_> {
        Search::new(&self.expression, &self.zone)
    }
}

/// Searches relative to an occurrence of the other expression.
///
/// Within one zone, occurrences are ordered by civil time: where a gap moves both a start and a
/// later end to one instant, the start still comes first. Across zones only instants compare.
impl Search<'_> {
    /// First occurrence after another.
    fn beyond(&mut self, other: Occurrence, one_zone: bool) -> Option<Occurrence> {
        if one_zone {
            self.after_civil(other.civil)
        } else {
            self.after(other.at)
        }
    }

    /// First occurrence from another on.
    fn from(&mut self, other: Occurrence, one_zone: bool) -> Option<Occurrence> {
        if one_zone {
            self.after_civil(before(other.civil)?)
        } else {
            self.after(just_before(other.at)?)
        }
    }

    /// Last occurrence up to another.
    fn up_to(&mut self, other: Occurrence, one_zone: bool) -> Option<Occurrence> {
        if one_zone {
            self.at_or_before_civil(other.civil)
        } else {
            self.at_or_before(other.at)
        }
    }
}

fn just_before(t: Timestamp) -> Option<Timestamp> {
    t.checked_sub(SignedDuration::from_nanos(1)).ok()
}
