use proptest::prelude::*;

use super::*;

/// Seconds and values of the samples, and the notes.
type Found = (Vec<(i64, f64)>, Vec<String>);

fn read_in(text: &str, zone: Option<&str>) -> Result<Found, String> {
    let zone = zone.map(|name| parse_zone(name).unwrap());
    let history = parse("", "h.csv", text, zone.as_ref()).map_err(|error| error.to_string())?;
    let samples = history.recording.samples().iter();
    let samples = samples.map(|sample| (sample.at.as_second(), sample.value));
    Ok((samples.collect(), history.notes))
}

fn read(text: &str) -> Result<Found, String> {
    read_in(text, None)
}

/// The samples of a text without notes.
fn samples(text: &str) -> Vec<(i64, f64)> {
    let (samples, notes) = read(text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    assert_eq!(notes, [""; 0], "{text:?}");
    samples
}

#[test]
fn tables_are_read_as_they_are_exported() {
    let expected = [(1_790_812_800, 5.5), (1_790_812_860, 6.0)];
    for text in [
        "1790812800,5.5\n1790812860,6",
        "\u{feff}timestamp,value\r\n\r\n# a comment\r\n2026-10-01T00:00:00Z, 5.5\r\n1790812860,6\r\n",
        "time\tvalue\n1790812800\t5.5\n1790812860\t6\n",
        "timestamp;value\n1790812800;5,5\n1790812860;6\n",
        "sep=;\ntimestamp;value\n1790812800;5,5\n1790812860;6\n",
        // Grafana, with and without formatting.
        "\"Time\",\"sum(rate(http_requests_total{job=\"\"web\"\",code=~\"\"5..|2..\"\"}[1m]))\"\n\
         2026-10-01 02:00:00+02:00,5.5 req/s\n2026-10-01 02:01:00+02:00,6 req/s\n",
        "\"Time\",\"web\"\n1790812800000,5.5\n1790812860000,6\n",
        "1790812800,5.5 cores\n1790812860,6 cores",
    ] {
        assert_eq!(samples(text), expected, "{text:?}");
    }
}

#[test]
fn a_comma_that_may_separate_thousands_is_refused_unless_another_one_is_decimal() {
    let expected =
        "a value without thousands separators, or more or fewer than three digits after the comma";
    for (text, line, found) in [
        ("time;value\n60;7\n120;1,020\n180;2,040", 3, "120;1,020"),
        ("60\t1,020 rps", 1, "60\t1,020 rps"),
        ("60;7.5\n120;999,000", 2, "120;999,000"),
    ] {
        let error = format!("h.csv:{line}: found {found:?}, expected {expected}");
        assert_eq!(read(text), Err(error), "{text:?}");
    }
    for (text, expected) in [
        ("60;1,020\n120;5,5", [(60, 1.02), (120, 5.5)]),
        ("60;1,020\n120;0,125", [(60, 1.02), (120, 0.125)]),
        ("60;1234,567\n120;1,020", [(60, 1234.567), (120, 1.02)]),
        ("60\t1,0205\n120\t7", [(60, 1.0205), (120, 7.0)]),
    ] {
        assert_eq!(samples(text), expected, "{text:?}");
    }
}

/// Checks that the last line of each text is refused, and what is expected instead.
fn assert_last_line_is_refused(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let (line, found) = text
            .lines()
            .zip(1..)
            .map(|(found, line)| (line, found))
            .last()
            .unwrap();
        let found = excerpt(found, 60);
        let error = format!("h.csv:{line}: found {found:?}, expected {expected}");
        assert_eq!(read(text), Err(error), "{found}");
    }
}

#[test]
fn a_line_of_another_form_is_refused() {
    let time = "a time such as 2026-03-02T08:00:00Z or seconds since 1970";
    let zone = "a time with its zone, such as 2026-03-02T08:00:00Z; or set --time-zone, such as --time-zone Europe/Berlin";
    let columns = "one column of values, not 2 (a, b); add them up in the query, or keep one";
    assert_last_line_is_refused(&[
        ("60,1\n\n120 2", "timestamp,value"),
        ("60;1\n120 2", "timestamp;value"),
        ("60\t1\n120 2", "a timestamp, a tab and a value"),
        (
            "60,1\n120,0,4",
            "timestamp,value; a decimal comma needs ; between the two",
        ),
        ("Time,a,b", columns),
        ("60,1\nsoon,2", time),
        ("soon,2", time),
        ("2026-10-01 00:00:00,1", zone),
        (
            "60,1\n1790812800000,2",
            "seconds since 1970, as in the lines before",
        ),
        (
            "1790812800000,2\n0,1",
            "milliseconds since 1970, as in the lines before",
        ),
        ("1e15,1", "seconds or milliseconds since 1970"),
        ("NaN,1", "seconds or milliseconds since 1970"),
    ]);
    for empty in ["", "timestamp,value\n", "60,\n120,NaN\n"] {
        let error = "h.csv: no samples; expected lines such as 2026-03-02T08:00:00Z,0.42";
        assert_eq!(read(empty), Err(error.to_owned()), "{empty:?}");
    }
}

#[test]
fn a_value_that_is_not_in_base_units_is_refused() {
    let units = "a value in base units (cores, bytes, requests per second); export values without formatting";
    let large = "a value of at most 9.2e15, which is the most that an HPA can count";
    let long = format!("60,{}", "x".repeat(500_000));
    assert_last_line_is_refused(&[
        ("60,-1", NUMBER),
        ("60,inf", NUMBER),
        ("60,1e999", NUMBER),
        ("60,100m", NUMBER),
        ("60;1.234,5", NUMBER),
        (&long, NUMBER),
        ("60,1e300", large),
        ("60,1.2 K req/s", units),
        ("60,35 %", units),
        ("60,200 ms", units),
        ("60,3 mb/s", units),
    ]);
}

#[test]
fn clock_times_are_in_the_zone_of_the_flag_and_may_be_shown_twice() {
    // Clocks in Berlin go from 03:00 back to 02:00 at 01:00 UTC.
    let text = "2026-10-25 01:30:00,1\n2026-10-25 02:30:00,2\n2026-10-25T02:30:00.000,3\n2026-10-25T03:30:00,4\n\
                2026-10-25T04:30:00Z,5\n";
    let half_past = |hour: i64| 1_792_884_600 + hour * 3600;
    let expected = [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (5, 5.0)];
    let expected = expected.map(|(hour, value)| (half_past(hour), value));
    let (samples, _) = read_in(text, Some("Europe/Berlin")).unwrap();
    assert_eq!(samples, expected);
    for zone in ["Europe/Berln", "", "Local"] {
        assert!(parse_zone(zone).is_err(), "{zone:?}");
    }
}

#[test]
fn what_may_be_a_mistake_is_noted() {
    let minute = |minute: i64| format!("{},1\n", minute * 60);
    let minutes = |from: i64, to: i64| (from..to).map(minute).collect::<String>();
    for (text, notes) in [
        (
            "60,\n120,NaN\n180,3\n240,null\n".to_owned(),
            vec!["h.csv: 3 of 4 rows have no value".to_owned()],
        ),
        (
            "120,1\n60,2\n180,3\n".to_owned(),
            vec!["h.csv:2: earlier than the row before it; rows were put in order".to_owned()],
        ),
        ("60,1\n60,1\n120,2\n".to_owned(), vec![]),
        (minutes(0, 4) + &minutes(8, 12), vec![]),
        (
            minutes(0, 100) + &minutes(4119, 4300),
            vec!["h.csv: no samples for 67h after 1970-01-01T01:39:00Z".to_owned()],
        ),
        (
            minutes(0, 100) + &minutes(109, 130) + &minutes(149, 160),
            vec!["h.csv: 2 holes without samples, 30m in total; the longest, 20m, is after 1970-01-01T02:09:00Z".to_owned()],
        ),
    ] {
        assert_eq!(read(&text).map(|(_, notes)| notes), Ok(notes), "{text:?}");
    }
}

#[test]
fn two_values_for_one_time_are_refused_with_both_lines() {
    assert_eq!(
        read("60,1\n120,2\n180,3\n120,4"),
        Err("h.csv:4: found 4 at 1970-01-01T00:02:00Z, and 2 in line 2; expected one value for each time".to_owned())
    );
}

/// A fortnight of minutes from the first of March 2026, with an additional line.
fn fortnight_with(index: usize, line: &str) -> String {
    let minute = |i: i64| format!("{},1", 1_772_323_200 + i * 60);
    let mut lines: Vec<String> = (0..20_160).map(minute).collect();
    lines.insert(index, line.to_owned());
    lines.join("\n")
}

#[test]
fn a_time_far_from_all_others_is_refused_with_its_line() {
    for (time, index, distance, nearest) in [
        (
            "0",
            0,
            "20513 days before",
            "2026-03-01T00:00:00Z in line 2",
        ),
        (
            "2020-01-01T00:00:00Z",
            700,
            "2251 days before",
            "2026-03-01T00:00:00Z in line 1",
        ),
        ("1e11", 20_160, "", ""),
        (
            "99999999999",
            20_160,
            "1136880 days after",
            "2026-03-14T23:59:00Z in line 20160",
        ),
        (
            "9999-12-30T00:00:00Z",
            44,
            "2912368 days after",
            "2026-03-14T23:59:00Z in line 20161",
        ),
    ] {
        let found = read(&fortnight_with(index, &format!("{time},1"))).unwrap_err();
        let line = index + 1;
        if distance.is_empty() {
            let expected = format!(
                "h.csv:{line}: found \"{time},1\", expected seconds since 1970, as in the lines before"
            );
            assert_eq!(found, expected);
            continue;
        }
        let (start, end) = (
            format!("h.csv:{line}: "),
            "expected at most 7 days: remove it if its timestamp is wrong, or split the file there",
        );
        let middle = format!(" is {distance} the nearest other sample, {nearest}; ");
        assert!(
            found.starts_with(&start) && found.contains(&middle) && found.ends_with(end),
            "{found}"
        );
    }
}

#[test]
fn recording_text() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let bytes: String = bytes
            .iter()
            .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
            .collect();
        for text in [&*text, &bytes] {
            is_history_or_short_error(text);
        }
    });
}

/// Characters of generated histories.
const ALPHABET: &[u8] = b"0123456789-:TZ+.eE,;\t\"\n\n\n []{}NaN req/s";

/// Checks that an accepted history is ordered and countable, and that a refusal takes a few words.
fn is_history_or_short_error(text: &str) {
    let zone = parse_zone("Europe/Berlin").unwrap();
    match parse("", "h.csv", text, Some(&zone)) {
        Ok(history) => {
            let samples = history.recording.samples();
            assert!(!samples.is_empty());
            assert!(samples.is_sorted_by(|a, b| a.at < b.at));
            assert!(
                samples
                    .iter()
                    .all(|sample| (0.0..=LARGEST).contains(&sample.value))
            );
            let length = |pair: &[Sample]| pair[1].at.duration_since(pair[0].at);
            assert!(samples.windows(2).all(|pair| length(pair) <= LONGEST_GAP));
        }
        Err(error) => assert!(error.to_string().chars().count() < 400, "{error}"),
    }
}

proptest! {
    #[test]
    fn samples_are_read_back_from_every_form(
        steps in proptest::collection::vec((1_i64..600_000, 0.0..1e6_f64), 1..40),
        separator in prop_oneof![Just(","), Just(";"), Just("\t")],
        milliseconds: bool,
    ) {
        let mut at = 1_772_323_200;
        let mut lines = Vec::new();
        let mut expected = Vec::new();
        for (step, value) in steps {
            at += step;
            let time = if milliseconds { at * 1000 } else { at };
            let value_text = if separator == "," { value.to_string() } else { value.to_string().replace('.', ",") };
            lines.push(format!("{time}{separator}{value_text}"));
            expected.push((at, value));
        }
        let (found, _) = read(&lines.join("\r\n")).unwrap();
        prop_assert_eq!(found, expected);
    }
}
