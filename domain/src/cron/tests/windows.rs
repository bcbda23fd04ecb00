//! Windows by table: every case that crane gets wrong, and the ordinary ones.

use jiff::Timestamp;

use super::super::{Window, WindowError, WindowProblem, WindowState, WindowText, Zone, lint};
use super::{activities, at, window};
use crate::{ReplicaBounds, Replicas, proposal::Reason};

struct Row {
    case: &'static str,
    /// Start, end, zone.
    cron: (&'static str, &'static str, &'static str),
    /// Civil times of the zone between which activities are listed.
    span: (&'static str, &'static str),
    expected: &'static [&'static str],
}

/// Where crane (robfig v3, "active iff next end <= next start") is wrong, and what is right.
#[rustfmt::skip]
const CORRECTED: &[Row] = &[
    Row {
        case: "start Mon-Fri, end daily: crane goes on to Sunday",
        cron: ("0 9 * * 1-5", "0 18 * * *", "UTC"), span: ("2026-11-19T12:00", "2026-11-24T00:00"),
        expected: &["Thu 19 09:00+00 -> Thu 19 18:00+00", "Fri 20 09:00+00 -> Fri 20 18:00+00", "Mon 23 09:00+00 -> Mon 23 18:00+00"],
    },
    Row {
        case: "Mon-Fri 06:30 to daily 22:10 in Prague (KEDA 4677)",
        cron: ("30 6 * * 1-5", "10 22 * * *", "Europe/Prague"), span: ("2026-11-20T00:00", "2026-11-24T00:00"),
        expected: &["Fri 20 06:30+01 -> Fri 20 22:10+01", "Mon 23 06:30+01 -> Mon 23 22:10+01"],
    },
    Row {
        case: "two starts, one end: crane is off from 9 to 12",
        cron: ("0 9,12 * * *", "0 18 * * *", "UTC"), span: ("2026-11-20T00:00", "2026-11-21T00:00"),
        expected: &["Fri 20 09:00+00 -> Fri 20 18:00+00"],
    },
    Row {
        case: "one start, two ends: crane is on from 12 to 18 too",
        cron: ("0 9 * * *", "0 12,18 * * *", "UTC"), span: ("2026-11-20T00:00", "2026-11-21T00:00"),
        expected: &["Fri 20 09:00+00 -> Fri 20 12:00+00"],
    },
    Row {
        case: "start after end on the clock: overnight, not invalid",
        cron: ("0 9 * * *", "0 6 * * *", "UTC"), span: ("2026-11-20T07:00", "2026-11-21T07:00"),
        expected: &["Fri 20 09:00+00 -> Sat 21 06:00+00"],
    },
    Row {
        case: "overnight",
        cron: ("0 22 * * *", "0 6 * * *", "UTC"), span: ("2026-11-20T12:00", "2026-11-21T12:00"),
        expected: &["Fri 20 22:00+00 -> Sat 21 06:00+00"],
    },
    Row {
        case: "start = end: crane is always on",
        cron: ("0 9 * * *", "0 9 ? * *", "UTC"), span: ("2026-11-20T00:00", "2026-11-22T00:00"),
        expected: &[],
    },
    Row {
        case: "start never fires: crane is always on",
        cron: ("0 0 30 2 *", "0 9 * * *", "UTC"), span: ("2026-11-20T00:00", "2026-11-22T00:00"),
        expected: &[],
    },
    Row {
        case: "end never fires",
        cron: ("0 9 * * *", "0 0 30 2 *", "UTC"), span: ("2026-11-20T00:00", "2026-11-22T00:00"),
        expected: &[],
    },
    Row {
        case: "New York spring, start in the gap: crane's Saturday does not end",
        cron: ("30 2 * * *", "0 5 * * *", "America/New_York"), span: ("2026-03-07T00:00", "2026-03-10T00:00"),
        expected: &["Sat 07 02:30-05 -> Sat 07 05:00-05", "Sun 08 03:00-04 -> Sun 08 05:00-04", "Mon 09 02:30-04 -> Mon 09 05:00-04"],
    },
    Row {
        case: "New York spring, 02:30 to 06:00",
        cron: ("30 2 * * *", "0 6 * * *", "America/New_York"), span: ("2026-03-07T00:00", "2026-03-10T00:00"),
        expected: &["Sat 07 02:30-05 -> Sat 07 06:00-05", "Sun 08 03:00-04 -> Sun 08 06:00-04", "Mon 09 02:30-04 -> Mon 09 06:00-04"],
    },
    Row {
        case: "New York spring, end in the gap: crane's night does not happen",
        cron: ("0 22 * * *", "30 2 * * *", "America/New_York"), span: ("2026-03-07T12:00", "2026-03-09T12:00"),
        expected: &["Sat 07 22:00-05 -> Sun 08 03:00-04", "Sun 08 22:00-04 -> Mon 09 02:30-04"],
    },
    Row {
        case: "New York autumn, start in the overlap: first pass",
        cron: ("30 1 * * *", "0 4 * * *", "America/New_York"), span: ("2026-11-01T00:00", "2026-11-02T00:00"),
        expected: &["Sun 01 01:30-04 -> Sun 01 04:00-05"],
    },
    Row {
        case: "New York autumn, 01:30 to 06:00",
        cron: ("30 1 * * *", "0 6 * * *", "America/New_York"), span: ("2026-11-01T00:00", "2026-11-02T00:00"),
        expected: &["Sun 01 01:30-04 -> Sun 01 06:00-05"],
    },
    Row {
        case: "New York autumn, end in the overlap: first pass",
        cron: ("0 22 * * *", "30 1 * * *", "America/New_York"), span: ("2026-10-31T12:00", "2026-11-01T12:00"),
        expected: &["Sat 31 22:00-04 -> Sun 01 01:30-04"],
    },
    Row {
        case: "Cairo, midnight gap, end at 00:00: crane's evening does not happen",
        cron: ("0 18 * * *", "0 0 * * *", "Africa/Cairo"), span: ("2026-04-23T12:00", "2026-04-25T00:00"),
        expected: &["Thu 23 18:00+02 -> Fri 24 01:00+03", "Fri 24 18:00+03 -> Sat 25 00:00+03"],
    },
    Row {
        case: "Cairo, midnight gap, start at 00:00: crane's Thursday does not end",
        cron: ("0 0 * * *", "0 6 * * *", "Africa/Cairo"), span: ("2026-04-23T00:00", "2026-04-25T00:00"),
        expected: &["Thu 23 00:00+02 -> Thu 23 06:00+02", "Fri 24 01:00+03 -> Fri 24 06:00+03"],
    },
    Row {
        case: "Santiago, midnight gap: crane is on for 29 hours",
        cron: ("0 0 * * *", "0 6 * * *", "America/Santiago"), span: ("2026-09-05T00:00", "2026-09-07T00:00"),
        expected: &["Sat 05 00:00-04 -> Sat 05 06:00-04", "Sun 06 01:00-03 -> Sun 06 06:00-03"],
    },
    Row {
        case: "Lord Howe, half-hour gap: robfig skips times after it",
        cron: ("15 2,10 * * *", "45 2,10 * * *", "Australia/Lord_Howe"), span: ("2026-10-04T00:00", "2026-10-05T00:00"),
        expected: &["Sun 04 02:30+11 -> Sun 04 02:45+11", "Sun 04 10:15+11 -> Sun 04 10:45+11"],
    },
];

#[rustfmt::skip]
const OTHERS: &[Row] = &[
    Row {
        case: "the weekend of the documentation's sample",
        cron: ("0 0 ? * 6", "00 23 ? * 0", "UTC"), span: ("2026-11-16T00:00", "2026-11-23T00:00"),
        expected: &["Sat 21 00:00+00 -> Sun 22 23:00+00"],
    },
    Row {
        case: "touching windows are one activity",
        cron: ("0 9,12 * * *", "0 12,18 * * *", "UTC"), span: ("2026-11-20T10:00", "2026-11-21T00:00"),
        expected: &["Fri 20 09:00+00 -> Fri 20 18:00+00"],
    },
    Row {
        case: "where each end meets a start there is no edge in sight",
        cron: ("0 9 * * *", "0 9 * * 1-5", "UTC"), span: ("2026-11-20T10:00", "2026-11-21T00:00"),
        expected: &["Fri 20 10:00+00 -> open"],
    },
    Row {
        case: "start and end in the same gap: nothing of that night is left",
        cron: ("10 2 * * *", "50 2 * * *", "America/New_York"), span: ("2026-03-07T12:00", "2026-03-10T12:00"),
        expected: &["Mon 09 02:10-04 -> Mon 09 02:50-04", "Tue 10 02:10-04 -> Tue 10 02:50-04"],
    },
    Row {
        case: "two ends in one gap and a start where it ends: one activity, from either side",
        cron: ("0 3 * * *", "15,45 2 * * *", "America/New_York"), span: ("2026-03-08T04:00", "2026-03-09T02:30"),
        expected: &["Sat 07 03:00-05 -> Mon 09 02:15-04"],
    },
    Row {
        case: "Apia left out 30 December 2011: that day's start is the next midnight",
        cron: ("0 10 * * *", "0 9 * * *", "Pacific/Apia"), span: ("2011-12-29T09:30", "2012-01-01T00:00"),
        expected: &["Thu 29 10:00-10 -> Sat 31 09:00+14", "Sat 31 10:00+14 -> Sun 01 09:00+14"],
    },
    Row {
        case: "Troll goes back by two hours",
        cron: ("30 1 * * *", "30 2 * * *", "Antarctica/Troll"), span: ("2026-10-25T00:00", "2026-10-26T00:00"),
        expected: &["Sun 25 01:30+02 -> Sun 25 02:30+02"],
    },
    Row {
        case: "the end in a zone of its own",
        cron: ("0 9 * * *", "CRON_TZ=Asia/Tokyo 0 20 * * *", "UTC"), span: ("2026-11-20T00:00", "2026-11-21T00:00"),
        expected: &["Fri 20 09:00+00 -> Fri 20 11:00+00"],
    },
    Row {
        case: "an hourly end in a zone of its own touches each start of two days: one activity",
        cron: ("0 * * * 5,6", "TZ=Africa/Cairo 0 * * * *", "UTC"), span: ("2026-11-19T12:00", "2026-11-23T00:00"),
        expected: &["Fri 20 00:00+00 -> Sun 22 00:00+00"],
    },
    Row {
        case: "ends of each minute touch each start for a year, until its clocks repeat an hour without one",
        cron: ("* * * * *", "TZ=UTC * * * * *", "America/New_York"), span: ("2026-12-01T00:00", "2027-12-01T00:00"),
        expected: &["Sun 01 02:00-05 -> Sun 07 01:00-05", "Sun 07 02:00-05 -> Sun 05 01:00-05"],
    },
    Row {
        case: "ends of five days touch all starts of five days but for an hour, in a zone that is almost a day ahead",
        cron: ("*/5 * * * 1-5", "TZ=Pacific/Apia */5 * * * 2-6", "America/Adak"), span: ("2026-12-02T00:00", "2026-12-13T00:00"),
        expected: &["Mon 30 00:00-10 -> Sat 05 00:00-10", "Mon 07 00:00-10 -> Sat 12 00:00-10"],
    },
    Row {
        case: "the clock times of a gap and its end, in one zone: the start comes first, nothing is left",
        cron: ("59 0 * * *", "0 1 * * *", "America/Santiago"), span: ("2026-09-05T00:00", "2026-09-07T12:00"),
        expected: &["Sat 05 00:59-04 -> Sat 05 01:00-04", "Mon 07 00:59-03 -> Mon 07 01:00-03"],
    },
    Row {
        case: "a prefix goes before the timezone field",
        cron: ("TZ=UTC 0 9 * * *", "TZ=UTC 0 10 * * *", "America/New_York"), span: ("2026-11-20T00:00", "2026-11-21T00:00"),
        expected: &["Fri 20 09:00+00 -> Fri 20 10:00+00"],
    },
    Row {
        case: "leap days across 2100",
        cron: ("0 0 29 2 *", "0 1 29 2 *", "UTC"), span: ("2096-03-01T00:00", "2104-03-01T00:00"),
        expected: &["Fri 29 00:00+00 -> Fri 29 01:00+00"],
    },
];

#[test]
fn windows_are_right_where_crane_is_wrong() {
    check(CORRECTED);
}

#[test]
fn windows_are_right_in_other_cases() {
    check(OTHERS);
}

fn check(rows: &[Row]) {
    for Row {
        case,
        cron: (start, end, zone),
        span: (from, to),
        expected,
    } in rows
    {
        assert_eq!(
            activities(&window(start, end, zone), from, to),
            *expected,
            "{case}"
        );
    }
}

#[test]
fn state_is_half_open_and_names_its_edges() {
    let window = window("0 9 * * *", "0 18 * * *", "UTC");
    let utc = Zone::utc();
    let t = |civil| at(&utc, civil);
    let (nine, six) = (t("2026-11-20T09:00"), t("2026-11-20T18:00"));
    let on = WindowState {
        active: true,
        next_transition: Some(six),
        problem: None,
    };
    let off = |next| WindowState {
        active: false,
        next_transition: Some(next),
        problem: None,
    };
    assert_eq!(window.state(t("2026-11-20T08:59:59.999999999")), off(nine));
    assert_eq!(window.state(nine), on);
    assert_eq!(window.state(t("2026-11-20T17:59:59.999999999")), on);
    assert_eq!(window.state(six), off(t("2026-11-21T09:00")));
    assert_eq!(window.active_since(nine), Some(nine));
    assert_eq!(window.active_since(six), None);
}

#[test]
fn a_window_that_can_never_be_active_has_a_problem() {
    use WindowProblem::{EndNeverFires, StartNeverFires, ZeroLength};
    let now = at(&Zone::utc(), "2026-11-20T09:00");
    let (nine, never) = ("0 9 * * *", "0 9 30 2 *");
    for (start, end, problem, reason) in [
        (nine, nine, ZeroLength, "ZeroLength"),
        (nine, "TZ=UTC 0 9 * * *", ZeroLength, "ZeroLength"),
        (never, never, StartNeverFires, "NeverFires"),
        (nine, never, EndNeverFires, "NeverFires"),
    ] {
        let expected = WindowState {
            active: false,
            next_transition: None,
            problem: Some(problem),
        };
        assert_eq!(window(start, end, "").state(now), expected, "{start} {end}");
        assert_eq!(Reason::from(problem).as_str(), reason);
    }
}

#[test]
fn the_same_clock_times_in_two_zones_are_a_window() {
    let window = window("0 9 * * *", "TZ=Europe/London 0 9 * * *", "Europe/Berlin");
    assert_eq!(
        activities(&window, "2026-11-20T00:00", "2026-11-21T00:00"),
        ["Fri 20 09:00+01 -> Fri 20 10:00+01"]
    );
}

#[test]
fn local_is_the_zone_given_by_the_caller() {
    let tokyo = super::zone("Asia/Tokyo");
    let text = WindowText {
        name: "day",
        start: "0 9 * * *",
        end: "TZ=Local 0 10 * * *",
        timezone: "Local",
        target_replicas: 3,
    };
    let window = Window::parse(&text, &tokyo).unwrap();
    assert!(window.state(at(&tokyo, "2026-11-20T09:30")).active);
    assert_eq!(
        (
            window.name(),
            window.target_replicas(),
            window.zone().name()
        ),
        ("day", 3, "Asia/Tokyo")
    );
}

#[test]
fn the_error_of_an_invalid_cron_names_the_cron_and_the_field() {
    let text = WindowText {
        name: "day",
        start: "0 9 * * *",
        end: "0 10 * * *",
        timezone: "UTC",
        target_replicas: 3,
    };
    let (start, end, timezone) = ("9", "@every 1h", "CET/Nowhere");
    for (text, field, reason) in [
        (WindowText { start, ..text }, "start", "InvalidExpression"),
        (WindowText { end, ..text }, "end", "InvalidExpression"),
        (
            WindowText { timezone, ..text },
            "timezone",
            "InvalidTimeZone",
        ),
    ] {
        let error = Window::parse(&text, &Zone::utc()).unwrap_err();
        assert_eq!(error.to_string(), format!("cron `day`: invalid `{field}`"));
        assert_eq!(Reason::from(&error).as_str(), reason);
        assert_eq!(
            matches!(error, WindowError::Zone { .. }),
            field == "timezone"
        );
    }
}

#[test]
fn the_first_and_the_last_instant_give_no_error() {
    let window = window("0 22 * * *", "30 2 * * *", "America/New_York");
    let bounds = ReplicaBounds::new(Replicas::new(1), Replicas::new(9));
    let [first, last] = [Timestamp::MIN, Timestamp::MAX].map(|at| window.state(at));
    assert_eq!(
        (first.active, first.next_transition.is_some()),
        (false, true)
    );
    // The next start is after the last instant.
    assert_eq!((last.active, last.next_transition), (false, None));
    let at_last = lint(std::slice::from_ref(&window), bounds, Timestamp::MAX);
    assert_eq!(at_last, []);
    assert_eq!(
        lint(std::slice::from_ref(&window), bounds, Timestamp::MIN),
        []
    );
}
