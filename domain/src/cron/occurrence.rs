//! When an expression fires: the next and the previous occurrence, in civil time and as instants.
//!
//! The search goes through months, days, hours and minutes by bit set, so the work is bounded however rare
//! the expression is.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};

use super::expression::{Days, Expression};
use super::field::Bits;
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
    /// Whether the clocks show that time once, never or twice.
    pub ambiguity: Ambiguity,
}

/// First firing strictly after `t`.
///
/// # Guarantees
/// - Later than `t`, and no firing lies between.
/// - Bounded work; `None` means that the expression never fires again.
///
/// ```
/// use foretide_domain::cron::{Expression, Zone, next_after};
///
/// let nine: Expression = "0 9 * * 1-5".parse()?;
/// let berlin = Zone::parse("Europe/Berlin", &Zone::utc())?;
/// // From a Friday noon to the next Monday, 09:00 in Berlin.
/// let next = next_after(&nine, &berlin, "2026-03-06T12:00:00Z".parse()?);
/// assert_eq!(next, Some("2026-03-09T08:00:00Z".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn next_after(expression: &Expression, zone: &Zone, t: Timestamp) -> Option<Timestamp> {
    Search::new(expression, zone).after(t).map(|found| found.at)
}

/// Last firing at or before `t`.
///
/// # Guarantees
/// - Not later than `t`, and no firing lies between it and `t`.
/// - Bounded work; `None` means that the expression never fired before.
///
/// ```
/// use foretide_domain::cron::{Expression, Zone, last_at_or_before};
///
/// let nine: Expression = "0 9 * * 1-5".parse()?;
/// let berlin = Zone::parse("Europe/Berlin", &Zone::utc())?;
/// // From a Sunday back to the Friday before.
/// let last = last_at_or_before(&nine, &berlin, "2026-03-08T12:00:00Z".parse()?);
/// assert_eq!(last, Some("2026-03-06T08:00:00Z".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn last_at_or_before(expression: &Expression, zone: &Zone, t: Timestamp) -> Option<Timestamp> {
    Search::new(expression, zone)
        .at_or_before(t)
        .map(|found| found.at)
}

/// Every firing strictly after `t`, each instant once, in order.
///
/// Where a gap moves several civil times to one instant, the first of them is given.
///
/// ```
/// use foretide_domain::cron::{Expression, Zone, occurrences};
///
/// let nine: Expression = "0 9 * * 1-5".parse()?;
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
    except: Option<&'e Expression>,
    zone: &'e Zone,
    /// Months searched plus candidates resolved.
    pub(super) steps: u32,
}

impl<'e> Search<'e> {
    pub(super) fn new(expression: &'e Expression, zone: &'e Zone) -> Self {
        Self {
            expression,
            except: None,
            zone,
            steps: 0,
        }
    }

    /// Leaves out the civil times that `other` names too.
    pub(super) fn except(mut self, other: &'e Expression) -> Self {
        self.except = Some(other);
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
        let same_day = self.first_time(date, hour, minute + 1);
        let found = same_day.or_else(|| {
            let date = self.day_at_or_after(date.tomorrow().ok()?)?;
            self.first_time(date, 0, 0)
        })?;
        self.resolve(found)
    }

    /// Last occurrence written for `civil` or a civil time before it.
    pub(super) fn at_or_before_civil(&mut self, civil: DateTime) -> Option<Occurrence> {
        let (date, hour, minute) = parts(civil)?;
        let same_day = self.last_time(date, hour, minute);
        let found = same_day.or_else(|| {
            let date = self.day_at_or_before(date.yesterday().ok()?)?;
            self.last_time(date, 23, 59)
        })?;
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

    /// First time of a day at or after `from_hour:from_minute`.
    fn first_time(&self, date: Date, from_hour: u32, from_minute: u32) -> Option<DateTime> {
        self.matches(date).then_some(())?;
        let except = self.exception_on(date);
        let mut hour = self.expression.hour.at_or_after(from_hour)?;
        loop {
            let from = if hour == from_hour { from_minute } else { 0 };
            if let Some(minute) = self.minutes(hour, except).at_or_after(from) {
                return at_minute(date, hour, minute);
            }
            hour = self.expression.hour.at_or_after(hour + 1)?;
        }
    }

    /// Last time of a day at or before `to_hour:to_minute`.
    fn last_time(&self, date: Date, to_hour: u32, to_minute: u32) -> Option<DateTime> {
        self.matches(date).then_some(())?;
        let except = self.exception_on(date);
        let mut hour = self.expression.hour.at_or_before(to_hour)?;
        loop {
            let to = if hour == to_hour { to_minute } else { 59 };
            if let Some(minute) = self.minutes(hour, except).at_or_before(to) {
                return at_minute(date, hour, minute);
            }
            hour = self.expression.hour.at_or_before(hour.checked_sub(1)?)?;
        }
    }

    /// Whether the expression matches the day, the exception aside.
    fn matches(&self, date: Date) -> bool {
        days_of(self.expression, date) & day_bit(date) != 0
    }

    /// The exception, if it names times on this day.
    fn exception_on(&self, date: Date) -> Option<&'e Expression> {
        self.except
            .filter(|except| days_of(except, date) & day_bit(date) != 0)
    }

    /// Minutes of one hour of a day that matches.
    fn minutes(&self, hour: u32, except: Option<&Expression>) -> Bits {
        match except {
            Some(except) if except.hour.contains(hour) => {
                self.expression.minute.without(except.minute)
            }
            _ => self.expression.minute,
        }
    }

    /// The days of the month of `date` with at least one time, bit 1 for the first.
    fn days(&self, date: Date) -> u64 {
        let days = days_of(self.expression, date);
        match self.except {
            Some(except) if self.nothing_left_of_a_day(except) => days & !days_of(except, date),
            _ => days,
        }
    }

    /// Whether the exception, on its days, names all times of the expression.
    fn nothing_left_of_a_day(&self, except: &Expression) -> bool {
        self.expression.hour.without(except.hour).is_empty()
            && self.expression.minute.without(except.minute).is_empty()
    }

    /// First day from `from` on with at least one time.
    ///
    /// One step per month: within it, days are a bit set.
    fn day_at_or_after(&mut self, from: Date) -> Option<Date> {
        let mut month = from;
        for _ in 0..SEARCH_MONTHS {
            self.steps += 1;
            let rest = self.days(month) & (u64::MAX << month.day());
            if rest != 0 {
                return on_day(month, rest.trailing_zeros());
            }
            month = month.last_of_month().tomorrow().ok()?;
        }
        None
    }

    /// Last day up to `to` with at least one time.
    fn day_at_or_before(&mut self, to: Date) -> Option<Date> {
        let mut month = to;
        for _ in 0..SEARCH_MONTHS {
            self.steps += 1;
            let rest = self.days(month) & (u64::MAX >> (63 - month.day()));
            if rest != 0 {
                return on_day(month, rest.ilog2());
            }
            month = month.first_of_month().yesterday().ok()?;
        }
        None
    }
}

fn day_bit(date: Date) -> u64 {
    1 << date.day()
}

/// The days an expression matches in the month of `date`, bit 1 for the first.
fn days_of(expression: &Expression, date: Date) -> u64 {
    if !u32::try_from(date.month()).is_ok_and(|month| expression.month.contains(month)) {
        return 0;
    }
    let length = u32::try_from(date.days_in_month()).unwrap_or(0);
    // Bit 0 stays free, because days are counted from 1.
    let in_month = (1_u64 << (length + 1)) - 2;
    in_month
        & match expression.days() {
            Days::Both(of_month, of_week) => of_month.values() & weekday_mask(date, of_week),
            Days::Either(of_month, of_week) => of_month.values() | weekday_mask(date, of_week),
        }
}

/// The days of the month of `date` which fall on the given weekdays, bit 1 for the first.
fn weekday_mask(date: Date, of_week: Bits) -> u64 {
    let weekday = date.first_of_month().weekday().to_sunday_zero_offset();
    let first = u32::try_from(weekday).unwrap_or(0);
    // Seven bits, rotated so that bit 0 is the weekday of the first, then five weeks of them.
    let week = (of_week.values() >> first | of_week.values() << (7 - first)) & 0x7f;
    (week | week << 7 | week << 14 | week << 21 | week << 28) << 1
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

fn on_day(month: Date, day: u32) -> Option<Date> {
    Date::new(month.year(), month.month(), i8::try_from(day).ok()?).ok()
}

/// The civil time just before another.
pub(super) fn before(civil: DateTime) -> Option<DateTime> {
    civil.checked_sub(jiff::SignedDuration::from_nanos(1)).ok()
}
