//! The days of a month as a bit set, bit 1 for the first, so that a month is searched in one step.

use jiff::civil::Date;

use super::expression::{Days, Expression};
use super::field::Bits;

/// A month and what its days depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Month {
    first: Date,
    length: u32,
    /// The weekday of the first, from Sunday as 0.
    weekday: u32,
}

impl Month {
    pub(super) fn of(date: Date) -> Self {
        let first = date.first_of_month();
        Self {
            first,
            length: number(first.days_in_month()),
            weekday: number(first.weekday().to_sunday_zero_offset()),
        }
    }

    pub(super) fn next(self) -> Option<Self> {
        let first = match self.first.month() {
            12 => Date::new(self.first.year() + 1, 1, 1),
            month => Date::new(self.first.year(), month + 1, 1),
        };
        Self::starting(first.ok()?, self.weekday + self.length)
    }

    pub(super) fn previous(self) -> Option<Self> {
        let first = self.first.yesterday().ok()?.first_of_month();
        // Five weeks more, so that it is not negative.
        let length = u32::try_from(first.days_in_month()).ok()?;
        Self::starting(first, self.weekday + 35 - length)
    }

    fn starting(first: Date, weekday: u32) -> Option<Self> {
        Some(Self {
            first,
            length: u32::try_from(first.days_in_month()).ok()?,
            weekday: weekday % 7,
        })
    }

    pub(super) fn first(self) -> Date {
        self.first
    }

    pub(super) fn last(self) -> Date {
        self.first.last_of_month()
    }

    pub(super) fn date(self, day: u32) -> Option<Date> {
        let (year, month) = (self.first.year(), self.first.month());
        Date::new(year, month, i8::try_from(day).ok()?).ok()
    }

    /// Returns true if an expression matches the day `date` of this month.
    pub(super) fn has(self, expression: &Expression, date: Date) -> bool {
        self.days(expression) & (1 << date.day()) != 0
    }

    /// The days that an expression matches.
    pub(super) fn days(self, expression: &Expression) -> u64 {
        let month = u32::try_from(self.first.month());
        if !month.is_ok_and(|month| expression.month.contains(month)) {
            return 0;
        }
        // Bit 0 stays free, because days are counted from 1.
        let in_month = (1_u64 << (self.length + 1)) - 2;
        in_month
            & match expression.days() {
                Days::Both(of_month, of_week) => of_month.values() & self.weekdays(of_week),
                Days::Either(of_month, of_week) => of_month.values() | self.weekdays(of_week),
            }
    }

    /// The days that an expression matches, with bit 1 for the day that is `ahead` days after the first of this month,
    /// and one day more than the month has.
    pub(super) fn days_ahead(self, expression: &Expression, ahead: i32) -> u64 {
        let (days, by) = (self.days(expression), ahead.unsigned_abs());
        let neighbour = if ahead < 0 {
            self.previous()
        } else {
            self.next()
        };
        let (others, length) = neighbour.map_or((0, 31), |it| (it.days(expression), it.length));
        if ahead < 0 {
            days << by | others >> (length - by)
        } else {
            days >> by | others << (self.length - by)
        }
    }

    /// The days which fall on the given weekdays.
    fn weekdays(self, of_week: Bits) -> u64 {
        let (week, first) = (of_week.values(), self.weekday);
        // Seven bits, rotated so that bit 0 is the weekday of the first, then five weeks of them.
        let week = (week >> first | week << (7 - first)) & 0x7f;
        (week | week << 7 | week << 14 | week << 21 | week << 28) << 1
    }
}

/// Converts a day or a weekday, which is never negative.
fn number(value: i8) -> u32 {
    u32::try_from(value).unwrap_or(0)
}
