//! The next and the previous occurrence of an expression, in civil time and as instants.
//!
//! The search goes through months, days, hours and minutes by bit set, so the work is bounded however rare
//! the expression is.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};

use super::exception::{Excepted, Exception};
use super::expression::Expression;
use super::field::Bits;
use super::month::Month;
use super::zone::{Ambiguity, Zone};

/// Months searched in one direction: eight years and the month of the start.
///
/// Leap days are at most eight years apart (2096 to 2104), so an expression without an occurrence
/// in so many months has none at all. robfig stops after five years and misses those.
const SEARCH_MONTHS: u32 = 8 * 12 + 1;

/// One firing of an expression.
///
/// Ordered by the civil time it is written for, which within one zone is also the order of
/// instants; several civil times skipped by one gap share an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurrence {
    /// The wall clock time that the expression names.
    pub civil: DateTime,
    /// The instant it resolves to.
    pub at: Timestamp,
    /// Number of times that the clocks show this civil time: one, none or two.
    pub ambiguity: Ambiguity,
}

/// Every firing strictly after `t`, each instant once, in order.
///
/// Where a gap moves several civil times to one instant, the first of them is given.
///
/// ```
/// use foretide_domain::cron::{Expression, Zone, occurrences};
///
/// let nine = Expression::parse("0 9 * * 1-5")?;
/// let berlin = Zone::parse("Europe/Berlin", &Zone::utc())?;
/// // Friday and Monday, before and after a change of the clocks.
/// let from = "2026-03-27T00:00:00Z".parse()?;
/// let firings: Vec<String> = occurrences(&nine, &berlin, from)
///     .take(2)
///     .map(|occurrence| occurrence.at.to_string())
///     .collect();
/// assert_eq!(firings, ["2026-03-27T08:00:00Z", "2026-03-30T07:00:00Z"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn occurrences<'e>(
    expression: &'e Expression,
    zone: &'e Zone,
    t: Timestamp,
) -> impl Iterator<Item = Occurrence> + 'e {
    let mut last = t;
    std::iter::from_fn(move || {
        let found = Search::new(expression, zone).after(last)?;
        last = found.at;
        Some(found)
    })
}

/// An expression in a zone, and the steps spent on searching it.
#[derive(Debug)]
pub(super) struct Search<'e> {
    expression: &'e Expression,
    except: Option<Exception<'e>>,
    limit: Option<Date>,
    zone: &'e Zone,
    /// Months searched plus candidates resolved.
    pub(super) steps: u32,
}

impl<'e> Search<'e> {
    pub(super) fn new(expression: &'e Expression, zone: &'e Zone) -> Self {
        Self {
            expression,
            except: None,
            limit: None,
            zone,
            steps: 0,
        }
    }

    /// Leaves out times; the exception is from the same expression.
    pub(super) fn except(mut self, other: Option<Exception<'e>>) -> Self {
        self.except = other;
        self
    }

    /// Ends the search with the month of `t`.
    pub(super) fn within_month_of(mut self, t: Timestamp) -> Self {
        self.limit = Some(self.zone.civil(t).date());
        self
    }

    /// First occurrence whose instant is after `t`.
    pub(super) fn after(&mut self, t: Timestamp) -> Option<Occurrence> {
        // No civil time up to the one at t stands for a later instant. In the second pass of an
        // overlap, the times ahead that fired in the first are skipped one by one.
        let mut civil = self.zone.civil(t);
        loop {
            let found = self.after_civil(civil)?;
            if found.at > t {
                return Some(found);
            }
            civil = found.civil;
        }
    }

    /// Last occurrence whose instant is at or before `t`.
    pub(super) fn at_or_before(&mut self, t: Timestamp) -> Option<Occurrence> {
        let mut civil = self.zone.latest_civil(t);
        loop {
            let found = self.at_or_before_civil(civil)?;
            if found.at <= t {
                return Some(found);
            }
            civil = before(found.civil)?;
        }
    }

    /// First occurrence written for a civil time after `civil`.
    pub(super) fn after_civil(&mut self, civil: DateTime) -> Option<Occurrence> {
        let (date, hour, minute) = parts(civil)?;
        let mut day = self.day_at_or_after(date)?;
        if day == date {
            if let Some(found) = self.first_time(date, hour, minute + 1) {
                return self.resolve(found);
            }
            day = self.day_at_or_after(date.tomorrow().ok()?)?;
        }
        let found = self.first_time(day, 0, 0)?;
        self.resolve(found)
    }

    /// Last occurrence written for `civil` or a civil time before it.
    pub(super) fn at_or_before_civil(&mut self, civil: DateTime) -> Option<Occurrence> {
        let (date, hour, minute) = parts(civil)?;
        let mut day = self.day_at_or_before(date)?;
        if day == date {
            if let Some(found) = self.last_time(date, hour, minute) {
                return self.resolve(found);
            }
            day = self.day_at_or_before(date.yesterday().ok()?)?;
        }
        let found = self.last_time(day, 23, 59)?;
        self.resolve(found)
    }

    fn resolve(&mut self, civil: DateTime) -> Option<Occurrence> {
        self.steps += 1;
        let (at, ambiguity) = self.zone.resolve(civil)?;
        Some(Occurrence {
            civil,
            at,
            ambiguity,
        })
    }

    /// First time of a day that has one, at or after `from_hour:from_minute`.
    fn first_time(&self, date: Date, from_hour: u32, from_minute: u32) -> Option<DateTime> {
        let excepted = self.except.map(|except| except.on(date));
        let mut hour = self.expression.hour.at_or_after(from_hour)?;
        loop {
            let from = if hour == from_hour { from_minute } else { 0 };
            if let Some(minute) = self.minutes(hour, excepted).at_or_after(from) {
                return at_minute(date, hour, minute);
            }
            hour = self.expression.hour.at_or_after(hour + 1)?;
        }
    }

    /// Last time of a day that has one, at or before `to_hour:to_minute`.
    fn last_time(&self, date: Date, to_hour: u32, to_minute: u32) -> Option<DateTime> {
        let excepted = self.except.map(|except| except.on(date));
        let mut hour = self.expression.hour.at_or_before(to_hour)?;
        loop {
            let to = if hour == to_hour { to_minute } else { 59 };
            if let Some(minute) = self.minutes(hour, excepted).at_or_before(to) {
                return at_minute(date, hour, minute);
            }
            hour = self.expression.hour.at_or_before(hour.checked_sub(1)?)?;
        }
    }

    /// Minutes of one hour of a day.
    fn minutes(&self, hour: u32, excepted: Option<Excepted>) -> Bits {
        let excepted = excepted.map_or(0, |excepted| excepted.minutes(hour));
        self.expression.minute.without(excepted)
    }

    /// The days of a month with at least one time.
    fn days(&self, month: Month) -> u64 {
        match self.except {
            Some(except) => except.days_left(month),
            None => month.days(self.expression),
        }
    }

    /// First day from `from` on with at least one time.
    ///
    /// One step per month: within it, days are a bit set.
    fn day_at_or_after(&mut self, from: Date) -> Option<Date> {
        let mut month = Month::of(from);
        let mut rest = self.days(month) & (u64::MAX << from.day());
        for _ in 0..SEARCH_MONTHS {
            self.steps += 1;
            if rest != 0 {
                return month.date(rest.trailing_zeros());
            }
            month = month.next()?;
            if self.limit.is_some_and(|limit| limit < month.first()) {
                return None;
            }
            rest = self.days(month);
        }
        None
    }

    /// Last day up to `to` with at least one time.
    fn day_at_or_before(&mut self, to: Date) -> Option<Date> {
        let mut month = Month::of(to);
        let mut rest = self.days(month) & (u64::MAX >> (63 - to.day()));
        for _ in 0..SEARCH_MONTHS {
            self.steps += 1;
            if rest != 0 {
                return month.date(rest.ilog2());
            }
            month = month.previous()?;
            if self.limit.is_some_and(|limit| month.last() < limit) {
                return None;
            }
            rest = self.days(month);
        }
        None
    }
}

fn parts(civil: DateTime) -> Option<(Date, u32, u32)> {
    Some((
        civil.date(),
        u32::try_from(civil.hour()).ok()?,
        u32::try_from(civil.minute()).ok()?,
    ))
}

fn at_minute(date: Date, hour: u32, minute: u32) -> Option<DateTime> {
    let time = Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()?;
    Some(date.to_datetime(time))
}

/// The civil time just before another.
pub(super) fn before(civil: DateTime) -> Option<DateTime> {
    civil.checked_sub(jiff::SignedDuration::from_nanos(1)).ok()
}
