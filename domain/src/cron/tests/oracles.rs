//! The `cron` and `chrono-tz` crates as oracles, and every known disagreement with its reason.

use std::str::FromStr as _;

use chrono::{DateTime, Offset as _, TimeZone as _, Utc};
use chrono_tz::Tz;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::RngSeed;

use super::super::{Zone, last_at_or_before, next_after, occurrences};
use super::{at, expression, shown, zone};

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

fn to_jiff<Z: chrono::TimeZone>(at: &DateTime<Z>) -> Timestamp {
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

/// Where the `cron` crate, given a zone, fires at other instants, and why.
struct Disagreement {
    reason: &'static str,
    expression: &'static str,
    zone: &'static str,
    from: &'static str,
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
}

#[rustfmt::skip]
const DISAGREEMENTS: &[Disagreement] = &[
    Disagreement {
        reason: "the crate leaves out a time that the clocks skip; ours moves it to the gap's end",
        expression: "30 2 * * *", zone: "America/New_York", from: "2026-03-07T12:00",
        ours: &["Sun 08 03:00-04", "Mon 09 02:30-04"], theirs: &["Mon 09 02:30-04", "Tue 10 02:30-04"],
    },
    Disagreement {
        reason: "the crate fires twice where the clocks repeat; ours in the first pass only",
        expression: "30 1 * * *", zone: "America/New_York", from: "2026-10-31T12:00",
        ours: &["Sun 01 01:30-04", "Mon 02 01:30-05"], theirs: &["Sun 01 01:30-04", "Sun 01 01:30-05"],
    },
    Disagreement {
        reason: "a midnight that the clocks skip: as in the first row",
        expression: "0 0 * * *", zone: "America/Santiago", from: "2026-09-05T12:00",
        ours: &["Sun 06 01:00-03", "Mon 07 00:00-03"], theirs: &["Mon 07 00:00-03", "Tue 08 00:00-03"],
    },
];

#[test]
fn the_cron_crate_disagrees_about_clock_changes_for_known_reasons() {
    for row in DISAGREEMENTS {
        let zone = zone(row.zone);
        let from = at(&zone, row.from);
        let parsed = expression(row.expression);
        let ours = occurrences(&parsed, &zone, from)
            .take(2)
            .map(|found| shown(&zone, found.at));
        assert_eq!(ours.collect::<Vec<_>>(), row.ours, "{}", row.reason);
        let tz: Tz = row.zone.parse().unwrap();
        let schedule = cron::Schedule::from_str(&format!("0 {}", row.expression)).unwrap();
        let from = to_chrono(from).with_timezone(&tz);
        let theirs = schedule
            .after(&from)
            .take(2)
            .map(|found| shown(&zone, to_jiff(&found)));
        assert_eq!(theirs.collect::<Vec<_>>(), row.theirs, "{}", row.reason);
    }
}

#[test]
fn the_cron_crate_parses_no_expression_of_the_manifests() {
    for text in ["0 6 ? * *", "0 9 * * 1-5", "*/5 * * * *"] {
        assert!(
            cron::Schedule::from_str(text).is_err(),
            "{text}: five fields"
        );
    }
}

/// Zones in which chrono-tz 0.10.4 (tzdata 2025b) is wrong before 2033, because a later release changed
/// them, and the day of the first difference.
#[rustfmt::skip]
const CHANGED_SINCE_2025B: &[(&str, &str)] = &[
    // Morocco leaves its year-round summer time.
    ("Africa/Casablanca", "2026-09-20"), ("Africa/El_Aaiun", "2026-09-20"),
    // Western and central Canada stay on summer time.
    ("America/Edmonton", "2026-11-01"), ("America/Inuvik", "2026-11-01"),
    ("America/Rainy_River", "2026-11-01"), ("America/Vancouver", "2026-11-01"),
    ("America/Winnipeg", "2026-11-01"), ("America/Yellowknife", "2026-11-01"),
    ("Canada/Central", "2026-11-01"), ("Canada/Mountain", "2026-11-01"),
    ("Canada/Pacific", "2026-11-01"),
    // Moldova's hour of change was corrected.
    ("Europe/Chisinau", "2024-03-31"), ("Europe/Tiraspol", "2024-03-31"),
];

/// The first difference of offsets, checked at the changes of the bundled database and on every 20th day.
fn first_difference(tz: Tz, zone: &Zone) -> Option<Timestamp> {
    let (from, to) = (1_704_067_200_i64, 1_987_977_600);
    let ahead = zone
        .rules()
        .following(Timestamp::from_second(from).unwrap());
    let changes = ahead
        .map(|next| next.timestamp().as_second())
        .take_while(|next| *next < to);
    let seconds = changes
        .flat_map(|at| [at - 1, at])
        .chain((from..to).step_by(20 * 86_400));
    let differs = |second: &i64| {
        let utc = DateTime::from_timestamp(*second, 0).unwrap().naive_utc();
        let theirs = tz.offset_from_utc_datetime(&utc).fix().local_minus_utc();
        theirs
            != zone
                .rules()
                .to_offset(Timestamp::from_second(*second).unwrap())
                .seconds()
    };
    seconds
        .filter(differs)
        .min()
        .map(|second| Timestamp::from_second(second).unwrap())
}

#[test]
fn offsets_are_those_of_chrono_tz_but_where_its_data_is_older() {
    let known = |tz: &Tz| Zone::parse(tz.name(), &Zone::utc()).ok();
    let both: Vec<(Tz, Zone)> = chrono_tz::TZ_VARIANTS
        .iter()
        .filter_map(|tz| Some((*tz, known(tz)?)))
        .collect();
    let differing = both.iter().filter_map(|(tz, zone)| {
        let day = first_difference(*tz, zone)?
            .strftime("%Y-%m-%d")
            .to_string();
        Some((tz.name(), day))
    });
    let mut differing: Vec<_> = differing.collect();
    differing.sort_unstable();
    let expected = CHANGED_SINCE_2025B
        .iter()
        .map(|(name, day)| (*name, (*day).to_owned()));
    assert_eq!(differing, expected.collect::<Vec<_>>());
    assert!(both.len() > 500, "{}", both.len());
}
