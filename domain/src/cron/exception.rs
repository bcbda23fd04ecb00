//! The times of one expression without those that another expression, read by a clock of its own, names too.
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
    /// Lead of the clock of the others: whole days, hours less than a day, minutes less than an hour.
    days: i32,
    hours: u32,
    minutes: u32,
    left: Left,
}

/// The times that are left out on one day, by a clock that is less than an hour ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Excepted {
    /// Hours that the others name; bit 0 is the hour that their clock shows at midnight by this clock.
    hours: u64,
    minutes: u64,
    ahead: u32,
}

/// The days of an expression on which at least one of its times is left.
#[derive(Debug, Clone, Copy)]
enum Left {
    /// Every day that the expression matches: the others never name all of its times of one day.
    Every,
    /// The days for which the others do not match the same day by their clock (`same`), or the next one (`next`).
    Unmatched { same: bool, next: bool },
    /// No day: the others name all of its times, and match every day.
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

    /// The times that are left out on a day.
    pub(super) fn on(&self, date: Date) -> Excepted {
        let (hours, more) = (
            self.hours_on(date, self.days),
            self.hours_on(date, self.days + 1),
        );
        Excepted {
            hours: (hours | more << DAY) >> self.hours,
            minutes: self.others.minute.values(),
            ahead: self.minutes,
        }
    }

    /// The hours that the others name on the day that is `ahead` days after `date`.
    fn hours_on(&self, date: Date, ahead: i32) -> u64 {
        let day = date.checked_add(ahead.days()).ok();
        let matches = day.is_some_and(|day| Month::of(day).has(self.others, day));
        u64::from(matches) * self.others.hour.values()
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
        self.named(hour) >> self.ahead | self.named(hour + 1) << (HOUR - self.ahead)
    }

    /// The minutes that the others name in the hour that their clock shows `hour` hours after this clock's midnight.
    fn named(self, hour: u32) -> u64 {
        (self.hours >> hour & 1) * self.minutes
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
