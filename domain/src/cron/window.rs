//! A cron window: the time between a start and an end, in which it is active.
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

use super::exception::Exception;
use super::expression::{Expression, ExpressionError};
use super::occurrence::{Occurrence, Search, before};
use super::zone::{Zone, ZoneError};

/// Number of spans without a clock change that are searched for an edge of an activity, where windows touch as
/// instants.
///
/// Within one zone only gaps make such windows, because ends written for the minute of a start are left out. With an
/// end in another zone they may touch each minute or year. Beyond these spans no edge is found.
const MAX_SPANS: u32 = 3;

/// The longest span that is searched as one: [`MAX_SPANS`] of them are as long as daily windows in zones without
/// changes need.
const MAX_SPAN: SignedDuration = SignedDuration::from_hours(365 * 24);

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
/// Depends on the instant alone, so a clock that steps back finds the same state that it found before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowState {
    /// True if the window is active.
    pub active: bool,
    /// Instant of the next change of `active`; absent when active, if each end within the search limit coincides with a
    /// start.
    pub next_transition: Option<Timestamp>,
    /// Reason why the window can never be active.
    pub problem: Option<WindowProblem>,
}

/// Reason why a window can never be active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowProblem {
    /// The window starts and ends at the same times.
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

/// Reason why a cron is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// The `start` or `end` is not an expression.
    #[error("cron `{cron}`: invalid `{}`", field.name())]
    Expression {
        /// The cron's name.
        cron: String,
        /// The field with the problem.
        field: WindowField,
        /// The problem of the expression.
        source: ExpressionError,
    },
    /// The `timezone` is not a zone.
    #[error("cron `{cron}`: invalid `timezone`")]
    Zone {
        /// The cron's name.
        cron: String,
        /// The problem of the zone's name.
        source: ZoneError,
    },
}

// === impl WindowText ===

impl WindowText<'_> {
    /// Reads the start or the end, in the zone of its prefix or else in `zone`.
    fn schedule(
        &self,
        field: WindowField,
        zone: &Zone,
        local: &Zone,
    ) -> Result<Schedule, WindowError> {
        let expression = match field {
            WindowField::Start => self.start,
            WindowField::End => self.end,
        };
        Schedule::parse(expression, zone, local).map_err(|source| WindowError::Expression {
            cron: self.name.to_owned(),
            field,
            source,
        })
    }
}

// === impl WindowField ===

impl WindowField {
    /// The field's name in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
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
    /// assert_eq!(state.next_transition, Some("2026-03-02T17:00:00Z".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`] for the first field that cannot be read: `timezone`, `start`, `end`. A window
    /// that can never be active is valid; [`WindowState::problem`] names the problem.
    pub fn parse(text: &WindowText<'_>, local: &Zone) -> Result<Self, WindowError> {
        let zone = Zone::parse(text.timezone, local).map_err(|source| WindowError::Zone {
            cron: text.name.to_owned(),
            source,
        })?;
        let start = text.schedule(WindowField::Start, &zone, local)?;
        let end = text.schedule(WindowField::End, &zone, local)?;
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
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Expression of the start.
    pub fn start(&self) -> &Expression {
        &self.start.expression
    }

    /// Expression of the end.
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
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The zone the start is read in.
    pub fn start_zone(&self) -> &Zone {
        &self.start.zone
    }

    /// The zone the end is read in.
    pub fn end_zone(&self) -> &Zone {
        &self.end.zone
    }

    /// Replicas proposed while active.
    pub fn target_replicas(&self) -> u32 {
        self.target_replicas
    }

    /// Reason why the window can never be active.
    pub fn problem(&self) -> Option<WindowProblem> {
        self.problem
    }

    /// State of the window at `now`.
    ///
    /// # Guarantees
    /// - Active exactly from a start up to the next end, whatever the zone's clocks do.
    /// - The same transition for every instant up to it, where it is found.
    /// - Bounded work, however many windows touch.
    pub fn state(&self, now: Timestamp) -> WindowState {
        let start = self.active_start(now);
        let next_transition = match start {
            Some(start) => self.activity_end(start),
            None => self.next_start(now).map(|start| start.at),
        };
        WindowState {
            active: start.is_some(),
            next_transition,
            problem: self.problem,
        }
    }

    /// Beginning of the activity at `now`; `None` when inactive, or when each start within the search limit coincides
    /// with an end.
    pub fn active_since(&self, now: Timestamp) -> Option<Timestamp> {
        self.activity_start(self.active_start(now)?)
    }

    /// Activities of the window, from the one at `from` or the first after it on. One without an end is the last.
    ///
    /// Where [`Window::active_since`] finds nothing, an activity begins at the instant it was asked for.
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
        let mut present = self.active_start(from);
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let from = next?;
            let (start, since) = match present.take() {
                Some(start) => (start, self.activity_start(start).unwrap_or(from)),
                None => self.next_start(from).map(|start| (start, start.at))?,
            };
            next = self.activity_end(start);
            Some(Activity { since, until: next })
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

    /// The next start of a window of some length.
    fn next_start(&self, mut now: Timestamp) -> Option<Occurrence> {
        if self.problem.is_some() {
            return None;
        }
        for _ in 0..MAX_SPANS {
            let start = self.start.search().after(now)?.at;
            // Start and end skipped by the same gap: nothing of that window is left.
            if let Some(start) = self.active_start(start) {
                return Some(start);
            }
            now = start;
        }
        None
    }

    /// End of the activity that begins or goes on at `start`.
    fn activity_end(&self, mut start: Occurrence) -> Option<Timestamp> {
        for _ in 0..MAX_SPANS {
            // An end at which a window starts ends nothing.
            let end = self.plain_end_beyond(start)?.at;
            match self.active_start(end) {
                Some(next) => start = next,
                None => return Some(end),
            }
        }
        None
    }

    /// Beginning of the activity that `start` belongs to.
    fn activity_start(&self, mut start: Occurrence) -> Option<Timestamp> {
        // Backwards, the time that a clock shows twice is a span too.
        for _ in 0..2 * MAX_SPANS {
            let end = self.plain_end_up_to(start)?;
            let first = self.start.search().from(end, self.one_zone())?.at;
            // Another activity may end exactly where this one begins.
            match self.active_start(just_before(first)?) {
                Some(previous) => start = previous,
                None => return Some(first),
            }
        }
        None
    }

    /// First end beyond a start at which no window starts, if the clocks are not changed before it; else the first from
    /// that change on.
    fn plain_end_beyond(&self, start: Occurrence) -> Option<Occurrence> {
        if self.one_zone() {
            return self.plain_ends(start.at).after_civil(start.civil);
        }
        let changes = self
            .zones()
            .into_iter()
            .filter_map(|zone| zone.next_change(start.at));
        let farthest = start.at.checked_add(MAX_SPAN).ok();
        let until = changes.chain(farthest).min()?;
        self.plain_ends(start.at)
            .within_month_of(until)
            .after(start.at)
            .filter(|end| end.at < until)
            .or_else(|| self.end.search().after(just_before(until)?))
    }

    /// Last end up to a start at which no window starts, if the clocks were not changed after it; else the last up to
    /// that change.
    fn plain_end_up_to(&self, start: Occurrence) -> Option<Occurrence> {
        if self.one_zone() {
            return self.plain_ends(start.at).at_or_before_civil(start.civil);
        }
        let changes = self
            .zones()
            .into_iter()
            .filter_map(|zone| zone.last_change(start.at));
        let farthest = start.at.checked_sub(MAX_SPAN).ok();
        let since = changes.chain(farthest).max()?.min(start.at);
        self.plain_ends(start.at)
            .within_month_of(since)
            .at_or_before(start.at)
            .filter(|end| end.at > since)
            .or_else(|| self.end.search().at_or_before(since))
    }

    /// The ends at which no window starts, as long as both clocks run as they do at `t`.
    pub(super) fn plain_ends(&self, t: Timestamp) -> Search<'_> {
        let ahead = self.start.zone.ahead_of(&self.end.zone, t);
        let starts = Exception::new(self.end(), self.start(), ahead);
        self.end.search().except(starts)
    }

    fn zones(&self) -> [&Zone; 2] {
        [&self.start.zone, &self.end.zone]
    }

    /// First end after a start.
    fn end_after(&self, start: Occurrence) -> Option<Occurrence> {
        self.end.search().beyond(start, self.one_zone())
    }

    /// Returns true if start and end have one zone, so that their civil times can be compared.
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
}

fn just_before(t: Timestamp) -> Option<Timestamp> {
    t.checked_sub(SignedDuration::from_nanos(1)).ok()
}
