//! What is left of the times of one expression without those that another one names too, by a clock of its own.
//!
//! While neither clock is changed, one is ahead of the other by the same minutes, so that hours and minutes can be
//! compared as bit sets, and months on which nothing is left are passed over.

use jiff::civil::Date;
use jiff::{SignedDuration, ToSpan as _};

use super::expression::Expression;
use super::month::Month;

const HOUR: u32 = 60;
const DAY: u32 = 24;

/// Times that are left out of those of an expression.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exception<'e> {
    expression: &'e Expression,
    others: &'e Expression,
    /// By how much the clock of the others is ahead: whole days, hours less than a day, minutes less than an hour.
    days: i32,
    hours: u32,
    minutes: u32,
    left: Left,
}

/// The times that are left out on one day, by a clock that is less than an hour ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Excepted {
    /// From the hour that this clock shows at midnight on.
    hours: u64,
    minutes: u64,
    ahead: u32,
}

/// Of the days that the expression matches, those with a time that is left.
#[derive(Debug, Clone, Copy)]
enum Left {
    /// All: whatever day it is, the others do not name all of its times.
    Every,
    /// Those where the others do not match the same day by their clock, or the next one, or either.
    Unmatched { same: bool, next: bool },
    /// None: the others name all of its times, and match every day.
    None,
}

impl<'e> Exception<'e> {
    /// Leaves out of the times of `expression` those that `others` name by a clock that is ahead.
    ///
    /// `None` if the two clocks never show full minutes at one instant.
    pub(super) fn new(
        expression: &'e Expression,
        others: &'e Expression,
        ahead: SignedDuration,
    ) -> Option<Self> {
        let whole = SignedDuration::from_mins(ahead.as_mins());
        let minutes = i32::try_from(whole.as_mins()).ok()?;
        let of_day = u32::try_from(minutes.rem_euclid(24 * 60)).ok()?;
        let (hours, minutes_of_hour) = (of_day / HOUR, of_day % HOUR);
        (whole == ahead).then(|| Self {
            expression,
            others,
            days: minutes.div_euclid(24 * 60),
            hours,
            minutes: minutes_of_hour,
            left: Left::of(expression, others, hours, minutes_of_hour),
        })
    }

    /// What is left out on a day.
    pub(super) fn on(&self, date: Date) -> Excepted {
        let hours = |ahead: i32| {
            let day = date.checked_add(ahead.days()).ok();
            let matches = day.is_some_and(|day| Month::of(day).has(self.others, day));
            u64::from(matches) * self.others.hour.values()
        };
        Excepted {
            hours: (hours(self.days) | hours(self.days + 1) << DAY) >> self.hours,
            minutes: self.others.minute.values(),
            ahead: self.minutes,
        }
    }

    /// The days of a month on which some time is left.
    pub(super) fn days_left(&self, month: Month) -> u64 {
        let days = month.days(self.expression);
        match self.left {
            Left::Every => days,
            Left::None => 0,
            Left::Unmatched { .. } if days == 0 => 0,
            Left::Unmatched { same, next } => {
                let unmatched = !month.days_ahead(self.others, self.days);
                days & ((u64::from(same) * unmatched) | (u64::from(next) * (unmatched >> 1)))
            }
        }
    }
}

impl Excepted {
    /// The minutes of an hour that are left out.
    pub(super) fn minutes(self, hour: u32) -> u64 {
        let minutes = |hour: u32| (self.hours >> hour & 1) * self.minutes;
        minutes(hour) >> self.ahead | minutes(hour + 1) << (HOUR - self.ahead)
    }
}

impl Left {
    fn of(expression: &Expression, others: &Expression, hours: u32, minutes: u32) -> Self {
        let (own, in_hour) = (expression.minute.values(), (1 << HOUR) - 1);
        let parts = [
            (own << minutes & in_hour, expression.hour.values() << hours),
            (
                own >> (HOUR - minutes),
                expression.hour.values() << (hours + 1),
            ),
        ];
        let (mut same, mut next) = (false, false);
        for (minutes, hours) in parts.into_iter().filter(|(minutes, _)| *minutes != 0) {
            let (today, tomorrow) = (hours & ((1 << DAY) - 1), hours >> DAY);
            if minutes & !others.minute.values() != 0
                || (today | tomorrow) & !others.hour.values() != 0
            {
                return Self::Every;
            }
            same |= today != 0;
            next |= tomorrow != 0;
        }
        if others.matches_every_day() {
            return Self::None;
        }
        Self::Unmatched { same, next }
    }
}
