//! A recorded history: lines of `timestamp,value`.
//!
//! Timestamps are RFC 3339 or seconds since 1970, values are in the metric's base unit. Anything else is an error with
//! its line.

use foretide_models::Sample;
use jiff::Timestamp;

/// Seconds since 1970 from which on milliseconds are suspected: the year 5138.
const SUSPECT_SECONDS: f64 = 1e11;

/// Why a history cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CsvError {
    /// A line is not `timestamp,value`.
    #[error("{file}:{line}: found {found:?}, expected {expected}")]
    Line {
        /// Name of the file.
        file: String,
        /// Which line, from 1.
        line: usize,
        /// What was found there.
        found: String,
        /// What would be accepted.
        expected: &'static str,
    },
    /// There is no sample at all.
    #[error("{file}: no samples; expected lines such as 2026-03-02T08:00:00Z,0.42")]
    Empty {
        /// Name of the file.
        file: String,
    },
}

/// The samples of a history, in the order of their times.
///
/// A first line that names the columns, blank lines and lines that start with `#` are skipped; so is a line with an
/// empty value or `NaN`, which is how exporters write "nothing was measured".
///
/// # Errors
/// The first line that cannot be read, or that there are no samples.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Sample>, CsvError> {
    let mut samples = Vec::new();
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().map(str::trim).enumerate();
    let mut lines = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .peekable();
    lines.next_if(|(_, line)| is_header(line));
    for (index, line) in lines {
        let refused = |expected| CsvError::Line {
            file: file.to_owned(),
            line: index + 1,
            found: line.to_owned(),
            expected,
        };
        samples.extend(sample(line).map_err(refused)?);
    }
    if samples.is_empty() {
        return Err(CsvError::Empty {
            file: file.to_owned(),
        });
    }
    samples.sort_by_key(|sample| sample.at);
    Ok(samples)
}

/// Names of columns: letters, where a sample would have digits.
fn is_header(line: &str) -> bool {
    let (first, rest) = line.split_once(',').unwrap_or((line, ""));
    let worded = |cell: &str| {
        cell.trim()
            .trim_matches('"')
            .starts_with(|c: char| c.is_alphabetic())
    };
    worded(first) && (worded(rest) || rest.is_empty())
}

/// One line; `None` for a time at which nothing was measured.
fn sample(line: &str) -> Result<Option<Sample>, &'static str> {
    let (time, value) = line.split_once(',').ok_or("timestamp,value")?;
    let at = instant(time.trim().trim_matches('"'))?;
    let value = value.trim().trim_matches('"');
    if value.is_empty() || value.eq_ignore_ascii_case("nan") {
        return Ok(None);
    }
    let number = value
        .parse::<f64>()
        .ok()
        .filter(|value| value.is_finite() && *value >= 0.0);
    let value = number.ok_or("a value that is a number of at least 0, in base units")?;
    Ok(Some(Sample { at, value }))
}

fn instant(text: &str) -> Result<Timestamp, &'static str> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let expected = "a time such as 2026-03-02T08:00:00Z or seconds since 1970";
    let seconds = text.parse::<f64>().map_err(|_| expected)?;
    if seconds.abs() >= SUSPECT_SECONDS {
        return Err("seconds since 1970 (these look like milliseconds)");
    }
    let since = jiff::SignedDuration::try_from_secs_f64(seconds).map_err(|_| expected)?;
    Timestamp::from_duration(since).map_err(|_| expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(i64, f64)>, String> {
        let samples = parse("h.csv", text).map_err(|error| error.to_string())?;
        Ok(samples
            .iter()
            .map(|s| (s.at.as_second(), s.value))
            .collect())
    }

    #[test]
    fn both_forms_of_time_are_read_and_sorted() {
        let text = "\u{feff}timestamp,value\r\n\r\n# a comment\r\n1970-01-01T00:02:00+00:00, 2.5\r\n60,1\r\n";
        assert_eq!(read(text), Ok(vec![(60, 1.0), (120, 2.5)]));
        assert_eq!(read("60.5,1"), Ok(vec![(60, 1.0)]));
    }

    #[test]
    fn a_line_without_a_value_is_a_time_without_a_measurement() {
        assert_eq!(read("60,\n120,NaN\n180,3"), Ok(vec![(180, 3.0)]));
    }

    #[test]
    fn the_line_that_cannot_be_read_is_named() {
        for (text, expected) in [
            (
                "60,1\n\n120 2",
                "h.csv:3: found \"120 2\", expected timestamp,value",
            ),
            (
                "60,1\nsoon,2",
                "h.csv:2: found \"soon,2\", expected a time such as 2026-03-02T08:00:00Z or seconds since 1970",
            ),
            (
                "60,-1",
                "h.csv:1: found \"60,-1\", expected a value that is a number of at least 0, in base units",
            ),
            (
                "60,100m",
                "h.csv:1: found \"60,100m\", expected a value that is a number of at least 0, in base units",
            ),
            (
                "1700000000000,1",
                "h.csv:1: found \"1700000000000,1\", expected seconds since 1970 (these look like milliseconds)",
            ),
            (
                "timestamp,value\n",
                "h.csv: no samples; expected lines such as 2026-03-02T08:00:00Z,0.42",
            ),
            (
                "",
                "h.csv: no samples; expected lines such as 2026-03-02T08:00:00Z,0.42",
            ),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text:?}");
        }
    }
}
