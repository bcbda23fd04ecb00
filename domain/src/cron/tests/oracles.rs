//! The crate `croner` as an oracle, in UTC, for the forms that it reads as robfig does.
//!
//! Left out: `a/n`, `*/1` and `-sun` in the day fields, stars within lists, and expressions that never fire.

use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use super::super::Zone;
use super::{expression, last_at_or_before, next_after};

/// `every`, or a list of values, ranges, steps and some further items.
fn field(
    every: &'static str,
    (low, high): (u32, u32),
    further: &'static [&'static str],
) -> impl Strategy<Value = String> {
    let stepped = |(a, b, step): (u32, u32, u32)| format!("{}-{}/{step}", a.min(b), a.max(b));
    let item = prop_oneof![
        (low..=high).prop_map(|value| value.to_string()),
        (low..=high, low..=high, 1_u32..9).prop_map(stepped),
        (2..=high + 2).prop_map(|step| format!("*/{step}")),
        select(further).prop_map(str::to_owned),
    ];
    let list = prop::collection::vec(item, 1..4).prop_map(|items| items.join(","));
    prop_oneof![1 => Just(every.to_owned()), 3 => list]
}

fn text() -> impl Strategy<Value = String> {
    let fields = (
        field("*", (0, 59), &["5/20", "10-20", "007", "", "*/1"]),
        field("*", (0, 23), &["9/3", "9-17", "08", ""]),
        field("?", (1, 31), &["1-31", "28-31", ""]),
        field("*", (1, 12), &["jan", "DEC", "Mar-oct", "feb-Sep/3"]),
        field("?", (0, 6), &["7", "5-7", "1-7/2", "Mon-FRI", "sun"]),
    );
    fields.prop_map(|(minute, hour, day, month, weekday)| {
        // An item that is empty may stand in a list only.
        [minute, hour, day, month, weekday]
            .map(|field| [&*field, ","][usize::from(field.is_empty())].to_owned())
            .join(" ")
    })
}

fn instant(civil: DateTime) -> Timestamp {
    TimeZone::UTC.to_timestamp(civil).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20_260_906),
        ..ProptestConfig::default()
    })]

    #[test]
    fn in_utc_next_and_previous_are_what_croner_finds(
        text in text(), milli in -2_000_000_000_000_i64..7_000_000_000_000,
    ) {
        let (ours, utc) = (expression(&text), Zone::utc());
        // Croner searches for these to the year 5000, some of them for half a minute.
        prop_assume!(!ours.never_fires());
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed);
        let theirs = parser.sloppy_ranges(true).build().parse(&text).unwrap();
        let t = Timestamp::from_millisecond(milli).unwrap();
        let civil = TimeZone::UTC.to_datetime(t);
        let next = theirs.find_next_occurrence(&civil, false).map(instant).ok();
        prop_assert_eq!(next_after(&ours, &utc, t), next, "{}", &text);
        let previous = theirs.find_previous_occurrence(&civil, true).map(instant).ok();
        prop_assert_eq!(last_at_or_before(&ours, &utc, t), previous, "{}", &text);
    }
}
