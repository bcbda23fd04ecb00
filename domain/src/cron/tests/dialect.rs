//! Which texts are accepted, what they mean, and the messages for those that are not.

use std::error::Error as _;

use super::super::{Expression, ExpressionError, Zone, ZoneError, occurrences};
use super::{at, expression, zone};

/// Text, and what it prints as.
#[rustfmt::skip]
const ACCEPTED: &[(&str, &str)] = &[
    // crane's own manifests
    ("0 6 ? * *", "0 6 * * *"),
    ("00 9 ? * *", "0 9 * * *"),
    ("00 23 ? * 0", "0 23 * * 0"),
    // `?` is `*` in any field
    ("? ? ? ? ?", "* * * * *"),
    ("  5\t4  *  * * ", "5 4 * * *"),
    // lists, ranges, steps
    ("1,2,3,5 * * * *", "1-3,5 * * * *"),
    ("0-10 9-17 * * 1-5", "0-10 9-17 * * 1-5"),
    ("*/15 * * * *", "*/15 * * * *"),
    ("5/15 * * * *", "5,20,35,50 * * * *"),
    ("10-40/15 * * * *", "10,25,40 * * * *"),
    ("0 */12 * * *", "0 0,12 * * *"),
    ("0 0 1/2 * *", "0 0 */2 * *"),
    // names, any case
    ("0 0 * JAN,jul-Sep *", "0 0 * 1,7-9 *"),
    ("0 0 * * Mon-FRI", "0 0 * * 1-5"),
    // Sunday by 7
    ("0 0 * * 7", "0 0 * * 0"),
    ("0 0 * * 5-7", "0 0 * * 0,5,6"),
    ("0 0 * * 1-7/2", "0 0 * * 0,1,3,5"),
    ("0 0 * * 0-7", "0 0 * * 0-6"),
    ("0 0 * * 1/2", "0 0 * * 1,3,5"),
    // a step above 1 clears the star, 1 does not
    ("0 0 */1 * *", "0 0 * * *"),
    ("0 0 */2 * 1", "0 0 */2 * 1"),
    ("0 0 1-31 * 1", "0 0 1-31 * 1"),
    ("0 0 */1,5 * 1", "0 0 * * 1"),
    // as robfig reads it; lint reports it
    ("*-5 * * * *", "* * * * *"),
    ("*-5-6 * * * *", "* * * * *"),
    ("+9 +9 * * *", "9 9 * * *"),
    (", * * * *", ", * * * *"),
    ("1,,2 * * * *", "1,2 * * * *"),
    ("*/90 * * * *", "0 * * * *"),
    ("*/9223372036854775807 * * * *", "0 * * * *"),
    ("007 * * * *", "7 * * * *"),
    // descriptors
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
    // zone prefixes
    ("TZ=Europe/Berlin 0 9 * * *", "CRON_TZ=Europe/Berlin 0 9 * * *"),
    ("CRON_TZ=UTC @daily", "CRON_TZ=UTC 0 0 * * *"),
    ("TZ= 0 9 * * *", "CRON_TZ= 0 9 * * *"),
    ("TZ=Local 0 9 * * *", "CRON_TZ=Local 0 9 * * *"),
    // a schedule that never fires is still a schedule
    ("0 0 30 2 *", "0 0 30 2 *"),
];

#[test]
fn accepted_texts_print_their_shortest_form_and_parse_back() {
    for (text, printed) in ACCEPTED {
        let parsed = expression(text);
        assert_eq!(parsed.to_string(), *printed, "{text}");
        assert_eq!(expression(printed), parsed, "{text}");
        assert_eq!(parsed.text(), *text);
    }
}

#[rustfmt::skip]
const REFUSED: &[(&str, &str)] = &[
    ("", "expression is empty: expected five fields such as `0 9 * * 1-5`, or `@daily`"),
    ("TZ=UTC", "expression is empty: expected five fields such as `0 9 * * 1-5`, or `@daily`"),
    ("0 9 * *", "expression has 4 fields: expected five (minute, hour, day of month, month, day of week)"),
    ("0 0 9 * * ?", "expression has 6 fields: expected five (minute, hour, day of month, month, day of week): seconds are not supported, drop the first field"),
    ("0 0 9 * * ? 2026", "expression has 7 fields: expected five (minute, hour, day of month, month, day of week): seconds and years are not supported, drop the first and last field"),
    ("@every 1h", "`@every` at column 1 names an interval, not times, so a window cannot begin or end on it: expected times, such as `*/30 * * * *` for each half hour"),
    ("TZ=UTC @every 5m", "`@every` at column 8 names an interval, not times, so a window cannot begin or end on it: expected times, such as `*/30 * * * *` for each half hour"),
    ("@reboot", "descriptor `@reboot` at column 1 is unknown: expected @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly"),
    ("@daily 5", "descriptor `@daily` at column 1 is followed by other fields: remove them"),
    ("60 * * * *", "minute field, column 1, `60`: 60 is out of range: expected 0-59, `*`, a range `a-b`, a step `/n`, or a list of these"),
    ("0 24 * * *", "hour field, column 3, `24`: 24 is out of range: expected 0-23, `*`, a range `a-b`, a step `/n`, or a list of these"),
    ("0 9 1,0 * *", "day of month field, column 7, `0`: 0 is out of range: expected 1-31, `*` or `?`, a range `a-b`, a step `/n`, or a list of these"),
    ("0 9 * 13 *", "month field, column 7, `13`: 13 is out of range: expected 1-12 or jan-dec, `*`, a range `a-b`, a step `/n`, or a list of these"),
    ("0 9 * * 8", "day of week field, column 9, `8`: 8 is out of range: expected 0-6 or sun-sat (7 is Sunday too), `*` or `?`, a range `a-b`, a step `/n`, or a list of these"),
    ("0 9 * * monday", "day of week field, column 9, `monday`: `monday` is not a value of this field: expected 0-6 or sun-sat (7 is Sunday too), `*` or `?`, a range `a-b`, a step `/n`, or a list of these"),
    ("0 9 L * *", "day of month field, column 5, `L`: `L` is not a value of this field: expected 1-31, `*` or `?`, a range `a-b`, a step `/n`, or a list of these"),
    ("0 9 * * 5#2", "day of week field, column 9, `5#2`: `5#2` is not a value of this field: expected 0-6 or sun-sat (7 is Sunday too), `*` or `?`, a range `a-b`, a step `/n`, or a list of these"),
    ("0 9 15W * *", "day of month field, column 5, `15W`: `15W` is not a value of this field: expected 1-31, `*` or `?`, a range `a-b`, a step `/n`, or a list of these"),
    ("-5 * * * *", "minute field, column 1, `-5`: `` is not a value of this field: expected 0-59, `*`, a range `a-b`, a step `/n`, or a list of these"),
    ("0 22-2 * * *", "hour field, column 3, `22-2`: the range ends before it begins: expected the lower value first, or two ranges in a list (22,23,0-2)"),
    ("0 0 * * sat-sun", "day of week field, column 9, `sat-sun`: the range ends before it begins: expected the lower value first, or two ranges in a list (6,0)"),
    ("0 0 * * 7-3", "day of week field, column 9, `7-3`: 7 (Sunday) may stand alone or end a range: expected 0 where a range or step starts"),
    ("0 0 * * 7/2", "day of week field, column 9, `7/2`: 7 (Sunday) may stand alone or end a range: expected 0 where a range or step starts"),
    ("1-2-3 * * * *", "minute field, column 1, `1-2-3`: more than one `-`: expected at most `first-last/step`"),
    ("1/2/3 * * * *", "minute field, column 1, `1/2/3`: more than one `/`: expected at most `first-last/step`"),
    ("*/0 * * * *", "minute field, column 1, `*/0`: step `0` is not usable: expected a whole number of at least 1"),
    ("*/-1 * * * *", "minute field, column 1, `*/-1`: step `-1` is not usable: expected a whole number of at least 1"),
    ("*/ * * * *", "minute field, column 1, `*/`: step `` is not usable: expected a whole number of at least 1"),
    ("** * * * *", "minute field, column 1, `**`: `**` is not a value of this field: expected 0-59, `*`, a range `a-b`, a step `/n`, or a list of these"),
    ("ü,61 * * * *", "minute field, column 1, `ü`: `ü` is not a value of this field: expected 0-59, `*`, a range `a-b`, a step `/n`, or a list of these"),
    ("TZ=Mars/Olympus 0 9 * * *", "invalid time zone prefix"),
];

#[test]
fn refusals_name_the_field_the_column_and_what_is_accepted() {
    for (text, message) in REFUSED {
        let error = Expression::parse(text).unwrap_err();
        assert_eq!(error.to_string(), *message, "{text}");
    }
}

#[test]
fn too_long_texts_and_lists_are_refused() {
    let long = format!("0 9 * * 1{}", " ".repeat(120));
    assert_eq!(
        Expression::parse(&long),
        Err(ExpressionError::TooLong { chars: 129 })
    );
    assert!(Expression::parse(long.strip_suffix(' ').unwrap()).is_ok());
    let list = |items: usize| format!("{} * * * *", vec!["5"; items].join(","));
    assert_eq!(expression("5 * * * *"), expression(&list(60)));
    assert!(Expression::parse(&format!("{} * * * *", ",".repeat(64))).is_err());
}

#[test]
fn zone_names_are_checked_with_their_cause_in_the_source() {
    let error = Expression::parse("TZ=Mars/Olympus 0 9 * * *").unwrap_err();
    assert!(matches!(error, ExpressionError::Zone(_)), "{error:?}");
    assert_eq!(
        error.source().unwrap().to_string(),
        "time zone `Mars/Olympus` is unknown: expected an IANA name such as Europe/Berlin, UTC, \
         Local, or nothing for UTC"
    );
    let long = "x".repeat(65);
    assert_eq!(
        Zone::parse(&long, &Zone::utc()),
        Err(ZoneError::TooLong { chars: 65 })
    );
    assert!(Zone::parse("Etc/Unknown", &Zone::utc()).is_err());
    let local = zone("Asia/Tokyo");
    let names = ["", "Local", "europe/berlin"].map(|name| Zone::parse(name, &local).unwrap());
    assert_eq!(
        names.each_ref().map(Zone::name),
        ["UTC", "Asia/Tokyo", "Europe/Berlin"]
    );
    assert_eq!(names.each_ref().map(Zone::is_assumed), [true, false, false]);
    assert_eq!(names.each_ref().map(Zone::is_local), [false, true, false]);
}

#[test]
fn two_restricted_day_fields_match_either_day_and_a_star_requires_both() {
    let utc = Zone::utc();
    let days = |text: &str| {
        let expression = expression(text);
        let firings = occurrences(&expression, &utc, at(&utc, "2026-09-01T00:00"));
        firings
            .take(6)
            .map(|found| found.civil.day())
            .collect::<Vec<_>>()
    };
    // September 2026 begins on a Tuesday; its Fridays are 4, 11, 18, 25.
    assert_eq!(days("0 9 13 * 5"), [4, 11, 13, 18, 25, 2]);
    assert_eq!(days("0 9 13 * *"), [13, 13, 13, 13, 13, 13]);
    assert_eq!(days("0 9 * * 5"), [4, 11, 18, 25, 2, 9]);
    assert_eq!(days("0 9 */10 * 5"), [1, 4, 11, 18, 21, 25]);
    assert_eq!(days("0 9 */1 * 5"), [4, 11, 18, 25, 2, 9]);
}

#[test]
fn an_expression_that_no_date_matches_never_fires() {
    let never = [
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        ", * * * *",
        "0 , * * *",
        "0 0 * , *",
        "0 0 , * *",
    ];
    for text in never {
        assert!(expression(text).never_fires(), "{text}");
    }
    for text in [
        "0 0 29 2 *",
        "0 0 30 2 1",
        "0 0 31 2,3 *",
        "* * * * *",
        "0 0 , * 1",
    ] {
        assert!(!expression(text).never_fires(), "{text}");
    }
}

#[test]
fn same_times_are_recognized_however_they_are_written() {
    let same = [
        ("0 9 * * *", "00 9 ? * 0-6"),
        ("0 9 1-31 * 1", "0 9 * * *"),
        ("0 9 , * 1", "0 9 * * 1"),
    ];
    for (a, b) in same {
        assert!(expression(a).same_times(&expression(b)), "{a} {b}");
    }
    for (a, b) in [("0 9 13 * 5", "0 9 13 * *"), ("0 9 * * *", "0 9 * * 1-5")] {
        assert!(!expression(a).same_times(&expression(b)), "{a} {b}");
    }
}
