//! The `cron` crate as an oracle, in UTC: where clocks change, it leaves out times and repeats others.

use std::str::FromStr as _;

use chrono::{DateTime, TimeZone as _, Utc};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::RngSeed;

use super::super::{Zone, last_at_or_before, next_after};
use super::expression;

/// One set of values per field; day fields may be `*`, which is empty here.
#[derive(Debug, Clone)]
struct Lists {
    minutes: Vec<u32>,
    hours: Vec<u32>,
    days: Vec<u32>,
    months: Vec<u32>,
    weekdays: Vec<u32>,
}

fn list(values: &[u32]) -> String {
    match values {
        [] => "*".to_owned(),
        _ => values
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(","),
    }
}

impl Lists {
    fn ours(&self) -> String {
        let Self {
            minutes,
            hours,
            days,
            months,
            weekdays,
        } = self;
        [minutes, hours, days, months, weekdays]
            .map(|values| list(values))
            .join(" ")
    }

    /// The `cron` crate joins the day fields by "and", counts weekdays from Sunday = 1 and wants
    /// seconds: where both day fields restrict, two of its schedules equal one expression here.
    fn theirs(&self) -> Vec<cron::Schedule> {
        let weekdays: Vec<u32> = self.weekdays.iter().map(|day| day + 1).collect();
        let schedule = |days: &[u32], weekdays: &[u32]| {
            let fields = [&self.minutes, &self.hours, days, &self.months, weekdays].map(list);
            cron::Schedule::from_str(&format!("0 {}", fields.join(" "))).unwrap()
        };
        if self.days.is_empty() || weekdays.is_empty() {
            vec![schedule(&self.days, &weekdays)]
        } else {
            vec![schedule(&self.days, &[]), schedule(&[], &weekdays)]
        }
    }
}

fn lists() -> impl Strategy<Value = Lists> {
    let some = |low: u32, high: u32, most| subsequence((low..=high).collect::<Vec<_>>(), 1..=most);
    let maybe = move |low, high, most| prop_oneof![Just(vec![]), some(low, high, most)];
    (
        some(0, 59, 4),
        some(0, 23, 4),
        maybe(1, 31, 4),
        some(1, 12, 3),
        maybe(0, 6, 3),
    )
        .prop_map(|(minutes, hours, days, months, weekdays)| Lists {
            minutes,
            hours,
            days,
            months,
            weekdays,
        })
}

fn to_chrono(at: Timestamp) -> DateTime<Utc> {
    Utc.timestamp_opt(at.as_second(), 0).unwrap()
}

fn to_jiff(at: &DateTime<Utc>) -> Timestamp {
    Timestamp::from_second(at.timestamp()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20_260_906),
        ..ProptestConfig::default()
    })]

    #[test]
    fn in_utc_next_and_previous_are_what_the_cron_crate_finds(
        lists in lists(), second in 1_704_067_200_i64..1_956_528_000,
    ) {
        let t = Timestamp::from_second(second).unwrap();
        let ours = expression(&lists.ours());
        // Days that no month has: the crate searches to the year 2100, this engine does not.
        prop_assume!(!ours.never_fires());
        let theirs = lists.theirs();
        let next = theirs.iter().filter_map(|schedule| schedule.after(&to_chrono(t)).next()).min();
        // A leap day is at most eight years away, and so within the years both search.
        prop_assert_eq!(next_after(&ours, &Zone::utc(), t), next.as_ref().map(to_jiff));
        let previous = theirs.iter().filter_map(|schedule| schedule.after(&to_chrono(t)).next_back()).max();
        let strictly = t - SignedDuration::from_nanos(1);
        prop_assert_eq!(last_at_or_before(&ours, &Zone::utc(), strictly), previous.as_ref().map(to_jiff));
    }
}
