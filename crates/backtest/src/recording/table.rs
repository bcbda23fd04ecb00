//! A table of `timestamp,value`, as monitoring systems and spreadsheets export it.
//!
//! Cells are separated by commas, semicolons or tabs, and may be quoted. Times are RFC 3339, seconds or milliseconds
//! since 1970, or clock times of a zone that the user names. Values are in the metric's base unit. Any other line is an
//! error with its number.

use foretide_domain::cron::Zone;
use jiff::{SignedDuration, Timestamp, civil::DateTime};

use super::{NUMBER, Position, RecordingError, Row, Rows, measured};

/// Smallest number that counts as milliseconds: as seconds, this is the year 5138.
const LEAST_MILLISECONDS: f64 = 1e11;
/// Smallest number that is too large for milliseconds.
const TOO_LARGE: f64 = 1e14;
/// Line with which some exports name their separator to spreadsheets, before the character.
const SEPARATOR_LINE: &str = "sep=";
/// Units that do not scale a number; units of rates are below.
const PLAIN_UNITS: [&str; 6] = ["core", "cores", "B", "rps", "qps", "requests"];
/// Rates whose unit scales the number, or is not counted in events.
const SCALED_RATES: [&str; 5] = ["b", "kb", "mb", "gb", "tb"];

/// Expected form of values where commas may separate thousands.
const UNAMBIGUOUS: &str =
    "a value without thousands separators, or more or fewer than three digits after the comma";

/// Form of the lines of one table.
#[derive(Debug)]
struct Format<'a> {
    separator: char,
    zone: Option<&'a Zone>,
    /// Unit of numeric times, known from the first one on.
    unit: Option<EpochUnit>,
    /// The time of the previous line.
    last: Option<Timestamp>,
    commas: Commas,
}

/// Meaning of the commas within the values of one table.
#[derive(Debug, Default)]
struct Commas {
    /// One of the commas can only be a decimal comma.
    are_decimal: bool,
    /// The first line in which a comma may also separate thousands.
    doubtful: Option<(Position, String)>,
}

/// The unit of a time that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EpochUnit {
    Seconds,
    Milliseconds,
}

/// The rows of a table.
///
/// A first line that names the columns, blank lines and lines that start with `#` are skipped.
pub fn read(file: &str, text: &str, zone: Option<&Zone>) -> Result<Rows, RecordingError> {
    let mut rows = Rows {
        file: file.to_owned(),
        rows: Vec::new(),
    };
    let numbered = text.lines().zip(1..);
    let lines = numbered.map(|(line, number)| (line.trim_matches(' '), Position::Line(number)));
    let is_data = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
    let mut lines = lines.filter(|(line, _)| is_data(line)).peekable();
    let named = lines
        .next_if(|(line, _)| line.starts_with(SEPARATOR_LINE))
        .and_then(|(line, _)| line.chars().nth(SEPARATOR_LINE.len()));
    let first = lines.peek().map_or("", |(line, _)| *line);
    let mut format = Format::new(named.unwrap_or_else(|| separator(first)), zone);
    if let Some((line, position)) = lines.next_if(|(line, _)| format.is_header(line))
        && let Some(expected) = several_columns(&format.cells(line))
    {
        return Err(rows.unreadable(position, line, expected));
    }
    for (line, position) in lines {
        let row = format
            .row(line, position)
            .map_err(|expected| rows.unreadable(position, line, expected))?;
        rows.rows.push(row);
    }
    // Decided after the last line, because any line may show that the commas are decimal.
    match format.commas {
        Commas {
            are_decimal: false,
            doubtful: Some((position, line)),
        } => Err(rows.unreadable(position, &line, UNAMBIGUOUS)),
        _ => Ok(rows),
    }
}

/// The character that separates the cells of a line.
fn separator(line: &str) -> char {
    // The comma is last: in lines with another separator it is part of a number.
    ['\t', ';']
        .into_iter()
        .find(|separator| cells(line, *separator).len() > 1)
        .unwrap_or(',')
}

/// The cells of a line, without the quotes that let them hold separators.
fn cells(line: &str, separator: char) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            _ if character == separator && !quoted => cells.push(std::mem::take(&mut cell)),
            _ => cell.push(character),
        }
    }
    cells.push(cell);
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// The error about a header that names several columns of values.
fn several_columns(cells: &[String]) -> Option<String> {
    let names: Vec<&str> = cells.iter().skip(1).map(String::as_str).collect();
    (names.len() > 1).then(|| {
        let (count, names) = (
            names.len(),
            super::excerpt(&names.join(", "), super::QUOTED),
        );
        format!(
            "one column of values, not {count} ({names}); add them up in the query, or keep one"
        )
    })
}

// === impl Format ===

impl<'a> Format<'a> {
    fn new(separator: char, zone: Option<&'a Zone>) -> Self {
        Self {
            separator,
            zone,
            unit: None,
            last: None,
            commas: Commas::default(),
        }
    }

    fn cells(&self, line: &str) -> Vec<String> {
        cells(line, self.separator)
    }

    /// Returns whether a line names the columns: a word where a time would be, and no value.
    fn is_header(&self, line: &str) -> bool {
        let cells = self.cells(line);
        let value = cells.get(1).map(|cell| self.value(cell));
        // A line with a value is data: an unreadable time in it is an error, and the line no header to skip.
        cells
            .first()
            .is_some_and(|cell| cell.starts_with(char::is_alphabetic))
            && !matches!(value, Some(Ok(_)))
    }

    /// Reads one line as a row.
    ///
    /// # Errors
    /// The expected form.
    fn row(&mut self, line: &str, position: Position) -> Result<Row, String> {
        let cells = self.cells(line);
        let [time, value] = cells.as_slice() else {
            return Err(match self.separator {
                '\t' => "a timestamp, a tab and a value".to_owned(),
                ',' if cells.len() > 2 => {
                    "timestamp,value; a decimal comma needs ; between the two".to_owned()
                }
                separator => format!("timestamp{separator}value"),
            });
        };
        let at = self.time(time)?;
        self.last = Some(at);
        let row = Row {
            position,
            at,
            value: self.value(value)?,
        };
        match may_be_thousands(value) {
            Some(true) if self.commas.doubtful.is_none() => {
                self.commas.doubtful = Some((position, line.to_owned()));
            }
            Some(false) => self.commas.are_decimal = true,
            _ => {}
        }
        Ok(row)
    }

    /// # Errors
    /// The expected form.
    fn time(&mut self, text: &str) -> Result<Timestamp, String> {
        if let Ok(at) = text.parse::<Timestamp>() {
            return Ok(at);
        }
        if let Ok(number) = text.parse::<f64>() {
            return self.since_1970(number);
        }
        match (text.parse::<DateTime>(), self.zone) {
            (Ok(clock), Some(zone)) => self.in_zone(clock, zone),
            (Ok(_), None) => Err(
                "a time with its zone, such as 2026-03-02T08:00:00Z; or set --time-zone, such as \
                 --time-zone Europe/Berlin"
                    .to_owned(),
            ),
            (Err(_), _) => {
                Err("a time such as 2026-03-02T08:00:00Z or seconds since 1970".to_owned())
            }
        }
    }

    /// # Errors
    /// The unit that was expected: that of the lines before.
    fn since_1970(&mut self, number: f64) -> Result<Timestamp, String> {
        let unit = match number.abs() {
            size if size < LEAST_MILLISECONDS => EpochUnit::Seconds,
            size if size < TOO_LARGE => EpochUnit::Milliseconds,
            _ => return Err("seconds or milliseconds since 1970".to_owned()),
        };
        let seconds = match (unit, *self.unit.get_or_insert(unit)) {
            (EpochUnit::Seconds, EpochUnit::Seconds) => number,
            (EpochUnit::Milliseconds, EpochUnit::Milliseconds) => number / 1000.0,
            (_, EpochUnit::Seconds) => {
                return Err("seconds since 1970, as in the lines before".to_owned());
            }
            (_, EpochUnit::Milliseconds) => {
                return Err("milliseconds since 1970, as in the lines before".to_owned());
            }
        };
        let out_of_range = |_| "a time before the year 9999".to_owned();
        let since = SignedDuration::try_from_secs_f64(seconds).map_err(out_of_range)?;
        Timestamp::from_duration(since).map_err(out_of_range)
    }

    /// Reads a clock time of a zone. Among two instants with the same clock time, the first one after the previous line
    /// counts.
    ///
    /// # Errors
    /// The expected form.
    fn in_zone(&self, clock: DateTime, zone: &Zone) -> Result<Timestamp, String> {
        let out_of_range = |_| "a time before the year 9999".to_owned();
        let shown = zone.rules().to_ambiguous_timestamp(clock);
        let first = shown.compatible().map_err(out_of_range)?;
        if self.last.is_some_and(|last| first <= last) {
            return shown.later().map_err(out_of_range);
        }
        Ok(first)
    }

    /// # Errors
    /// The expected form.
    fn value(&self, text: &str) -> Result<Option<f64>, String> {
        if text.is_empty() || text == "null" {
            return Ok(None);
        }
        let (number, unit) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let number = match self.separator {
            ',' => number.parse::<f64>(),
            // Where numbers have a decimal comma, exports separate cells by another character.
            _ => number.replacen(',', ".", 1).parse(),
        };
        let value = measured(number.map_err(|_| NUMBER.to_owned())?)?;
        if is_plain(unit.trim()) {
            Ok(value)
        } else {
            let expected = "a value in base units (cores, bytes, requests per second); export values without formatting";
            Err(expected.to_owned())
        }
    }
}

/// Returns whether the comma of a value may separate thousands, as in `1,020`; `None` without a comma.
fn may_be_thousands(value: &str) -> Option<bool> {
    let (before, after) = value.split(char::is_whitespace).next()?.split_once(',')?;
    let before = before.trim_start_matches(['-', '+']);
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_start = (1..=3).contains(&before.len()) && !before.starts_with('0');
    Some(is_start && after.len() == 3 && are_digits(before) && are_digits(after))
}

/// Returns whether a number with this unit is in base units: the unit is empty, one of [`PLAIN_UNITS`], or that of a
/// rate of events.
fn is_plain(unit: &str) -> bool {
    unit.is_empty()
        || PLAIN_UNITS.contains(&unit)
        || unit.strip_suffix("/s").is_some_and(|events| {
            let is_word = events.chars().all(|c| c.is_ascii_lowercase());
            is_word && !events.is_empty() && !SCALED_RATES.contains(&events)
        })
}
