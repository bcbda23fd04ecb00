//! Lint, one row per finding.

use super::super::{Finding, Lint, Window, WindowText, Zone, lint};
use super::at;
use crate::{ReplicaBounds, Replicas};

const BOUNDS: ReplicaBounds = ReplicaBounds::new(Replicas::new(2), Replicas::new(50));

fn findings(crons: &[WindowText<'_>]) -> Vec<Finding> {
    let local = super::zone("Asia/Tokyo");
    let windows: Vec<Window> = crons
        .iter()
        .map(|text| Window::parse(text, &local).unwrap())
        .collect();
    lint(&windows, BOUNDS, at(&Zone::utc(), "2026-11-20T09:30"))
}

fn cron(start: &'static str, end: &'static str, timezone: &'static str) -> WindowText<'static> {
    WindowText {
        name: "day",
        start,
        end,
        timezone,
        target_replicas: 7,
    }
}

/// Start, end, zone, and the findings.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(Lint, &'static str)],
);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("0 9 * * *", "0 18 * * *", "UTC", &[]),
    ("0 9 * * *", "0 9 * * *", "UTC", &[
        (Lint::ZeroLength, "it starts and ends at `0 9 * * *`, so it is never active"),
    ]),
    ("0 9 30 2 *", "0 9 * * *", "UTC", &[
        (Lint::NeverFires, "its start `0 9 30 2 *` matches no date, so it is never active"),
    ]),
    ("0 9 * * *", "0 9 31 4 *", "UTC", &[
        (Lint::NeverFires, "its end `0 9 31 4 *` matches no date, so it is never active"),
    ]),
    ("0 0 * * 6", "0 23 * * 0", "UTC", &[
        (Lint::LongerThanADay, "from 2026-11-21 00:00+00:00 it stays active for 47 hours, until 2026-11-22 23:00+00:00"),
    ]),
    ("0 9 * * *", "0 9 * * 1-5", "UTC", &[
        (Lint::LongerThanADay, "from 2026-11-20 09:30+00:00 it never becomes inactive, because each end coincides with a start"),
    ]),
    ("0 9 * * *", "0 18 * * *", "", &[
        (Lint::TimeZoneMissing, "it names no timezone, so its times are read as UTC"),
    ]),
    ("TZ=Asia/Tokyo 0 9 * * *", "TZ=Asia/Tokyo 0 18 * * *", "", &[]),
    ("0 9 13 * 5", "0 18 * * *", "UTC", &[
        (Lint::EitherDay, "its start `0 9 13 * 5` restricts day of month and day of week: a day that matches either counts"),
    ]),
    ("*-5 9 * * *", "0 18 * * *", "UTC", &[
        (Lint::OddInput, "its start `*-5 9 * * *` is accepted, but its minute `*-5` means every value, not a range"),
    ]),
    ("0 +9 * * *", "0 18,, * * *", "UTC", &[
        (Lint::OddInput, "its start `0 +9 * * *` is accepted, but the sign in its hour `+9` has no meaning"),
        (Lint::OddInput, "its end `0 18,, * * *` is accepted, but its hour list has an empty item, which selects nothing"),
    ]),
    ("0 9 * * *", "*/90 18 * * *", "UTC", &[
        (Lint::OddInput, "its end `*/90 18 * * *` is accepted, but the step of its minute `*/90` is longer than the field, so only the first value counts"),
    ]),
    (", 9 * * *", "0 18 * * *", "UTC", &[
        (Lint::NeverFires, "its start `, 9 * * *` matches no date, so it is never active"),
        (Lint::OddInput, "its start `, 9 * * *` is accepted, but its minute list has an empty item, which selects nothing"),
    ]),
    ("30 2 * * *", "0 5 * * *", "America/New_York", &[
        (Lint::ClockChange, "on 2027-03-14 the clocks go forward by 1h at 02:00 in America/New_York: 02:30 is skipped, so its start moves to 2027-03-14 03:00-04:00"),
    ]),
    ("0 22 * * *", "30 2 * * *", "America/New_York", &[
        (Lint::ClockChange, "on 2027-03-14 the clocks go forward by 1h at 02:00 in America/New_York: 02:30 is skipped, so its end moves to 2027-03-14 03:00-04:00"),
    ]),
    ("30 1 * 11 *", "0 5 * 11 *", "America/New_York", &[
        (Lint::ClockChange, "on 2027-11-07 the clocks go back by 1h at 02:00 in America/New_York: 01:30 occurs twice, and its start is the first occurrence, at 2027-11-07 01:30-04:00"),
    ]),
    ("0 22 * * *", "0 6 * * *", "America/New_York", &[
        (Lint::ClockChange, "on 2027-03-14 the clocks go forward by 1h at 02:00 in America/New_York: the window active at that time lasts 7h instead of 8h"),
    ]),
    ("0 9 * * *", "0 18 * * *", "America/New_York", &[]),
    ("0 9 * * *", "0 18 * * *", "Local", &[]),
];

#[test]
fn each_finding_names_its_cron_and_is_one_sentence() {
    for (start, end, timezone, expected) in ROWS {
        let found = findings(&[cron(start, end, timezone)]);
        let expected: Vec<Finding> = expected
            .iter()
            .map(|(lint, message)| Finding {
                cron: "day".to_owned(),
                lint: *lint,
                message: (*message).to_owned(),
            })
            .collect();
        assert_eq!(found, expected, "{start} -> {end} in {timezone:?}");
    }
}

fn printed(finding: &Finding) -> String {
    let Finding {
        cron,
        lint,
        message,
    } = finding;
    format!("{} {cron}: {message}", lint.as_str())
}

#[test]
fn targets_are_compared_with_the_bounds_and_each_other() {
    let day = cron("0 8 * * *", "0 20 * * *", "UTC");
    let found = findings(&[
        day,
        WindowText {
            name: "noon",
            start: "0 12 * * *",
            end: "0 13 * * *",
            target_replicas: 51,
            ..day
        },
        WindowText {
            name: "night",
            start: "0 22 * * *",
            end: "0 6 * * *",
            target_replicas: 2,
            ..day
        },
        WindowText {
            name: "twin",
            ..day
        },
    ]);
    let printed = found.iter().map(printed);
    assert_eq!(
        printed.collect::<Vec<_>>(),
        [
            "HiddenByLargerTarget day: its target of 7 replicas has no effect while `noon` asks for 51, first at 2026-11-20 12:00+00:00",
            "TargetAboveMax noon: its target 51 is above maxReplicas 50, so it is capped",
            "TargetNotAboveMin night: its target 2 is not above minReplicas 2, so it has no effect",
            "HiddenByLargerTarget twin: its target of 7 replicas has no effect while `noon` asks for 51, first at 2026-11-20 12:00+00:00",
        ]
    );
}

#[test]
fn crons_that_are_never_active_are_errors() {
    let errors = findings(&[cron("0 9 * * *", "0 9 * * *", "UTC")]);
    assert!(errors.iter().all(|finding| finding.lint.is_error()));
    assert_eq!(
        printed(errors.first().unwrap()),
        "ZeroLength day: it starts and ends at `0 9 * * *`, so it is never active"
    );
}
