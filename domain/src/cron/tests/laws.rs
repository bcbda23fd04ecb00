//! Laws, by property and against a minute-stepping oracle that shares no code with the engine.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::RngSeed;

use super::super::occurrence::Search;
use super::super::{Expression, Window, WindowProblem, WindowState, WindowText, Zone};
use super::{expression, last_at_or_before, next_after, zone};

/// Half-hour, midnight, two-hour, Ramadan and ordinary changes, by southern and northern rules.
const ZONES: [&str; 8] = [
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Cairo",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Africa/Casablanca",
    "UTC",
];

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// Fields as sets of values; an empty set is `*`.
#[derive(Debug, Clone)]
struct Fields {
    minutes: Vec<i8>,
    hours: Vec<i8>,
    weekdays: Vec<i8>,
}

impl Fields {
    fn text(&self) -> String {
        let list = |values: &[i8]| match values {
            [] => "*".to_owned(),
            _ => values
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(","),
        };
        format!(
            "{} {} * * {}",
            list(&self.minutes),
            list(&self.hours),
            list(&self.weekdays)
        )
    }

    fn matches(&self, civil: DateTime) -> bool {
        let has = |values: &[i8], value| values.is_empty() || values.contains(&value);
        has(&self.minutes, civil.minute())
            && has(&self.hours, civil.hour())
            && has(&self.weekdays, civil.weekday().to_sunday_zero_offset())
    }
}

/// Mostly times in the small hours, where clocks change.
fn fields() -> impl Strategy<Value = Fields> {
    let hours: Vec<i8> = vec![0, 1, 2, 3, 4, 9, 22, 23];
    (
        subsequence(vec![0, 15, 30, 45, 59], 1..=2),
        prop_oneof![4 => subsequence(hours, 1..=3), 1 => Just(vec![])],
        prop_oneof![2 => Just(vec![]), 1 => subsequence((0..7).collect::<Vec<i8>>(), 1..=5)],
    )
        .prop_map(|(minutes, hours, weekdays)| Fields {
            minutes,
            hours,
            weekdays,
        })
}

/// Most times of most days, so that ends touch starts for long, in any two zones.
fn dense_fields() -> impl Strategy<Value = Fields> {
    let minutes = select(vec![vec![0, 30], vec![0, 15, 30, 45], vec![]]);
    let hours = prop_oneof![
        Just(vec![]),
        subsequence((0..24).collect::<Vec<i8>>(), 22..24)
    ];
    let weekdays = prop_oneof![Just(vec![]), subsequence((0..7).collect::<Vec<i8>>(), 4..7)];
    (minutes, hours, weekdays).prop_map(|(minutes, hours, weekdays)| Fields {
        minutes,
        hours,
        weekdays,
    })
}

fn transitions(zone: &Zone) -> Vec<Timestamp> {
    let (from, to) = (stamp("2024-01-01T00:00Z"), stamp("2033-01-01T00:00Z"));
    let ahead = zone
        .rules()
        .following(from)
        .take_while(|next| next.timestamp() < to);
    ahead.map(|next| next.timestamp()).collect()
}

fn stamp(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// An instant at a minute near a clock change of the zone, or on any day.
fn instants(zone: &Zone) -> impl Strategy<Value = Timestamp> + use<> {
    let any = (1_704_067_200_i64 / 60..1_956_528_000 / 60).prop_map(|minute| minute * 60);
    let changes: Vec<i64> = transitions(zone).iter().map(|at| at.as_second()).collect();
    let near = match changes.as_slice() {
        [] => any.clone().boxed(),
        _ => (select(changes), -2_880_i64..2_880)
            .prop_map(|(at, off)| at + off * 60)
            .boxed(),
    };
    prop_oneof![3 => near, 1 => any].prop_map(|second| Timestamp::from_second(second).unwrap())
}

fn zoned_instants() -> impl Strategy<Value = (Zone, Timestamp)> {
    select(&ZONES[..]).prop_flat_map(|name| {
        let zone = zone(name);
        let instants = instants(&zone);
        (Just(zone), instants)
    })
}

/// The minutes of civil time that become the past at each minute of real time.
///
/// Normally one; none while the clocks repeat an hour; all the skipped minutes and the present one at the
/// end of a gap.
struct Clock<'z> {
    zone: &'z Zone,
    now: Timestamp,
    shown: DateTime,
}

impl<'z> Clock<'z> {
    /// A clock that runs from a day before `from`, so that it has recorded which times it has shown.
    fn new(zone: &'z Zone, from: Timestamp) -> Self {
        let watched = (1..=24 * 60).map(|ago| zone.rules().to_datetime(from - MINUTE * ago));
        Self {
            zone,
            now: from - MINUTE,
            shown: watched.max().unwrap(),
        }
    }
}

impl Iterator for Clock<'_> {
    type Item = (Timestamp, Vec<DateTime>);

    fn next(&mut self) -> Option<Self::Item> {
        self.now += MINUTE;
        let present = self.zone.rules().to_datetime(self.now);
        let mut passed = Vec::new();
        while self.shown < present {
            self.shown += 1.minute();
            passed.push(self.shown);
        }
        Some((self.now, passed))
    }
}

/// Firings by stepping through every minute of `[from, to)`.
fn stepped_firings(fields: &Fields, zone: &Zone, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let minutes = Clock::new(zone, from).take_while(|(now, _)| *now < to);
    let fired = minutes.filter(|(_, passed)| passed.iter().any(|civil| fields.matches(*civil)));
    fired.map(|(now, _)| now).collect()
}

/// (instant, active) whenever that changes, by all firings of both ends: the last of an instant applies, and nothing
/// is known before the first.
fn changes(firings: impl Iterator<Item = (Timestamp, bool)>) -> Vec<(Timestamp, bool)> {
    let mut by_instant: Vec<(Timestamp, bool)> = firings.collect();
    by_instant.reverse();
    by_instant.dedup_by_key(|(now, _)| *now);
    by_instant.reverse();
    by_instant.dedup_by_key(|(_, active)| *active);
    by_instant
}

/// Changes by stepping: at one civil time a firing of the end closes, then one of the start opens.
fn stepped_changes(
    start: &Fields,
    end: &Fields,
    zone: &Zone,
    span: (Timestamp, Timestamp),
) -> Vec<(Timestamp, bool)> {
    let minutes = Clock::new(zone, span.0).take_while(|(now, _)| *now < span.1);
    let civil = minutes.flat_map(|(now, passed)| passed.into_iter().map(move |civil| (now, civil)));
    changes(civil.flat_map(|(now, civil)| {
        let ends = end.matches(civil).then_some((now, false));
        ends.into_iter()
            .chain(start.matches(civil).then_some((now, true)))
    }))
}

/// The same with the end in a zone of its own: at one instant the end comes first.
fn stepped_across(
    (start, start_zone): (&Fields, &Zone),
    (end, end_zone): (&Fields, &Zone),
    (from, to): (Timestamp, Timestamp),
) -> Vec<(Timestamp, bool)> {
    let ends = stepped_firings(end, end_zone, from, to)
        .into_iter()
        .map(|at| (at, false));
    let starts = stepped_firings(start, start_zone, from, to)
        .into_iter()
        .map(|at| (at, true));
    let mut firings: Vec<_> = ends.chain(starts).collect();
    firings.sort_unstable();
    changes(firings.into_iter())
}

/// Checks the engine's changes, from the first known one, and its states on both sides of each.
fn check_changes(window: &Window, stepped: &[(Timestamp, bool)], to: Timestamp, case: &str) {
    let [first, known @ ..] = stepped else { return };
    let mut changes = vec![*first];
    let next = |from| window.state(from).next_transition;
    changes.extend(
        std::iter::successors(next(first.0), |last| next(*last))
            .take_while(|next| *next < to)
            .map(|next| (next, window.state(next).active)),
    );
    assert_eq!(changes, stepped, "{case}");
    // The state before the first change is unknown.
    for pair in known.windows(2) {
        let &[(from, active), (until, _)] = pair else {
            unreachable!("windows of two")
        };
        let expected = WindowState {
            active,
            next_transition: Some(until),
            problem: None,
        };
        let expected = (expected, active.then_some(from));
        let last = until - SignedDuration::from_nanos(1);
        let found = [from, last].map(|t| (window.state(t), window.active_since(t)));
        assert_eq!(found, [expected; 2], "{case}");
    }
}

fn build(start: &str, end: &str, zone: &Zone) -> Window {
    let text = WindowText {
        name: "cron",
        start,
        end,
        timezone: "Local",
        target_replicas: 7,
    };
    Window::parse(&text, zone).unwrap()
}

/// Three days around `at`, with eight before them: every weekday is met on the way.
fn around(at: Timestamp) -> (Timestamp, Timestamp) {
    (
        at - SignedDuration::from_hours(9 * 24),
        at + SignedDuration::from_hours(48),
    )
}

fn check_against_stepping(start: &Fields, end: &Fields, zone: &Zone, at: Timestamp) {
    let window = build(&start.text(), &end.text(), zone);
    let span = around(at);
    if window.problem().is_some() {
        return;
    }
    let case = format!("{} -> {} in {}", start.text(), end.text(), zone.name());
    check_changes(
        &window,
        &stepped_changes(start, end, zone, span),
        span.1,
        &case,
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, rng_seed: RngSeed::Fixed(20_260_308), ..ProptestConfig::default() })]

    #[test]
    fn an_end_in_another_zone_is_paired_by_instants(
        (start, end) in prop_oneof![(fields(), fields()), (dense_fields(), dense_fields())], (zone, at) in zoned_instants(),
        other in select(&["Australia/Lord_Howe", "America/Santiago", "Africa/Cairo"][..]),
    ) {
        let (other, span) = (super::zone(other), around(at));
        let end_text = format!("TZ={} {}", other.name(), end.text());
        let window = build(&start.text(), &end_text, &zone);
        // Within one zone civil times are compared instead.
        prop_assume!(zone != other);
        if window.problem().is_none() {
            let case = format!("{} in {} -> {end_text}", start.text(), zone.name());
            let stepped = stepped_across((&start, &zone), (&end, &other), span);
            check_changes(&window, &stepped, span.1, &case);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, rng_seed: RngSeed::Fixed(20_260_308), ..ProptestConfig::default() })]

    #[test]
    fn activity_is_what_a_clock_stepped_by_minutes_sees(
        start in fields(), end in fields(), (zone, at) in zoned_instants(),
    ) {
        check_against_stepping(&start, &end, &zone, at);
    }

    #[test]
    fn each_scheduled_time_fires_once_whatever_the_clocks_do(
        fields in fields(), (zone, at) in zoned_instants(),
    ) {
        let expression = expression(&fields.text());
        let (from, to) = (at - SignedDuration::from_hours(24), at + SignedDuration::from_hours(24));
        let expected = stepped_firings(&fields, &zone, from, to);
        let forward = std::iter::successors(next_after(&expression, &zone, from - MINUTE), |last| next_after(&expression, &zone, *last));
        prop_assert_eq!(forward.take_while(|next| *next < to).collect::<Vec<_>>(), expected.clone());
        let last_before = |t: Timestamp| last_at_or_before(&expression, &zone, t - SignedDuration::from_nanos(1));
        let backward = std::iter::successors(last_before(to), |last| last_before(*last));
        let mut backward: Vec<_> = backward.take_while(|last| *last >= from).collect();
        backward.reverse();
        prop_assert_eq!(backward, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(20_260_308), ..ProptestConfig::default() })]

    #[test]
    fn next_is_later_minimal_and_constant_in_between(fields in fields(), (zone, t) in zoned_instants()) {
        let expression = expression(&fields.text());
        let next = next_after(&expression, &zone, t).unwrap();
        prop_assert!(next > t);
        prop_assert_eq!(last_at_or_before(&expression, &zone, next), Some(next));
        let previous = last_at_or_before(&expression, &zone, t).unwrap();
        prop_assert!(previous <= t);
        prop_assert_eq!(next_after(&expression, &zone, previous), Some(next));
        let between = next - SignedDuration::from_nanos(1);
        prop_assert_eq!(next_after(&expression, &zone, between), Some(next));
        prop_assert_eq!(last_at_or_before(&expression, &zone, between), Some(previous));
    }

    #[test]
    fn work_is_bounded_for_every_expression(text in valid_text(), (zone, t) in zoned_instants()) {
        let expression = expression(&text);
        let mut search = Search::new(&expression, &zone);
        let next = search.after(t);
        let previous = search.at_or_before(t);
        prop_assert!(search.steps <= 500, "{text} took {} steps", search.steps);
        prop_assert_eq!(next.is_none(), expression.never_fires());
        prop_assert_eq!(previous.is_none(), expression.never_fires());
    }

    #[test]
    fn ends_that_touch_starts_are_searched_like_others(
        start in dense_fields(), end in dense_fields(), (zone, t) in zoned_instants(), other in select(&ZONES[..]),
    ) {
        let window = build(&start.text(), &format!("TZ={other} {}", end.text()), &zone);
        let mut ends = window.plain_ends(t);
        ends.after(t);
        ends.at_or_before(t);
        prop_assert!(ends.steps <= 400, "{} steps", ends.steps);
    }

    #[test]
    fn printing_parses_to_the_same_schedule(text in valid_text()) {
        let parsed = expression(&text);
        let printed = parsed.to_string();
        prop_assert_eq!(Expression::parse(&printed), Ok(parsed), "{} printed as {}", text, printed);
    }

    #[test]
    fn any_short_text_parses_or_is_refused(text in "[-0-9a-zA-Z*?,/ @=+#\\PC]{0,128}") {
        if let Ok(parsed) = Expression::parse(&text) {
            prop_assert_eq!(Expression::parse(&parsed.to_string()), Ok(parsed));
        }
    }

    #[test]
    fn both_restricted_day_fields_mean_either(
        month_days in subsequence((1..=31).collect::<Vec<i8>>(), 1..=4),
        weekdays in subsequence((0..7).collect::<Vec<i8>>(), 1..=3),
        t in instants(&Zone::utc()),
    ) {
        let list = |values: &[i8]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let expression = expression(&format!("0 0 {} * {}", list(&month_days), list(&weekdays)));
        let utc = Zone::utc();
        let mut date = utc.rules().to_datetime(t).date().tomorrow().unwrap();
        while !month_days.contains(&date.day()) && !weekdays.contains(&date.weekday().to_sunday_zero_offset()) {
            date = date.tomorrow().unwrap();
        }
        let expected = utc.resolve(date.to_datetime(jiff::civil::Time::midnight())).unwrap().0;
        prop_assert_eq!(next_after(&expression, &utc, t), Some(expected));
    }

    #[test]
    fn a_clock_that_steps_back_finds_the_same_activity(
        start in fields(), end in fields(), (zone, t) in zoned_instants(), back in 1_i64..=60,
    ) {
        let window = build(&start.text(), &end.text(), &zone);
        let state = |t| (window.state(t), window.active_since(t));
        let earlier = state(t - SignedDuration::from_mins(back));
        if let (WindowState { next_transition: Some(until), .. }, Some(since)) = earlier {
            prop_assert_eq!(state(t) == earlier, t < until);
            prop_assert_eq!(state(since), earlier);
            prop_assert_eq!(state(until - SignedDuration::from_nanos(1)), earlier);
        }
    }

    #[test]
    fn equal_start_and_end_are_never_active(fields in fields(), (zone, t) in zoned_instants()) {
        let window = build(&fields.text(), &fields.text().replace('*', "?"), &zone);
        prop_assert_eq!(window.problem(), Some(WindowProblem::ZeroLength));
        prop_assert!(!window.state(t).active);
    }
}

/// One field's text, of every accepted form.
fn valid_field(min: u32, max: u32) -> impl Strategy<Value = String> {
    let item = prop_oneof![
        Just("*".to_owned()),
        Just("?".to_owned()),
        Just(String::new()),
        (min..=max).prop_map(|value| value.to_string()),
        (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        (1_u32..40).prop_map(|step| format!("*/{step}")),
        (min..=max, 1_u32..40).prop_map(|(low, step)| format!("{low}/{step}")),
        (min..=max, min..=max, 1_u32..9).prop_map(|(a, b, s)| format!(
            "{}-{}/{s}",
            a.min(b),
            a.max(b)
        )),
    ];
    let list = prop::collection::vec(item, 1..4).prop_map(|items| items.join(","));
    list.prop_map(|list| {
        if list.is_empty() {
            ",".to_owned()
        } else {
            list
        }
    })
}

fn valid_text() -> impl Strategy<Value = String> {
    let prefix = select(&["", "TZ=UTC ", "CRON_TZ=America/Argentina/ComodRivadavia "][..]);
    let fields = (
        valid_field(0, 59),
        valid_field(0, 23),
        valid_field(1, 31),
        valid_field(1, 12),
        valid_field(0, 6),
    );
    let text = (prefix, fields).prop_map(|(prefix, (minute, hour, day, month, weekday))| {
        format!("{prefix}{minute} {hour} {day} {month} {weekday}")
    });
    text.prop_filter("within the limit", |text| text.len() <= 128)
}

#[test]
fn the_oracle_and_the_parser_agree_on_generated_sets() {
    let fields = Fields {
        minutes: vec![15],
        hours: vec![2, 3],
        weekdays: vec![],
    };
    assert_eq!(fields.text(), "15 2,3 * * *");
    let new_york = zone("America/New_York");
    let (from, to) = (stamp("2026-03-08T05:00Z"), stamp("2026-03-08T09:00Z"));
    // 02:15 does not exist and resolves to 03:00 EDT (07:00Z); 03:15 EDT follows.
    let expected = [stamp("2026-03-08T07:00Z"), stamp("2026-03-08T07:15Z")];
    assert_eq!(stepped_firings(&fields, &new_york, from, to), expected);
    // Watched from the second 01:05 on, 01:15 has been shown already.
    let once = Fields {
        hours: vec![1],
        ..fields
    };
    let (from, to) = (stamp("2026-11-01T06:05Z"), stamp("2026-11-01T08:00Z"));
    assert_eq!(stepped_firings(&once, &new_york, from, to), []);
}

#[test]
#[ignore = "a minute or two, every zone, every clock change of nine years: `just nightly`"]
fn activity_is_right_at_every_clock_change_of_every_zone() {
    let names: BTreeSet<String> = jiff::tz::TimeZoneDatabase::bundled()
        .available()
        .map(|name| name.to_string())
        .collect();
    let list = |minutes: &[i8], hours: &[i8]| Fields {
        minutes: minutes.into(),
        hours: hours.into(),
        weekdays: vec![],
    };
    let pairs = [
        (list(&[0], &[0]), list(&[30], &[1])),
        (list(&[30], &[2]), list(&[0], &[5])),
        (list(&[0], &[22]), list(&[30], &[2])),
        (list(&[15, 45], &[]), list(&[0, 30], &[])),
    ];
    let mut checked = 0;
    for name in names
        .iter()
        .filter_map(|name| Zone::parse(name, &Zone::utc()).ok())
    {
        for change in transitions(&name) {
            for (start, end) in &pairs {
                check_against_stepping(start, end, &name, change);
                checked += 1;
            }
        }
    }
    assert!(checked > 10_000, "{checked}");
}
