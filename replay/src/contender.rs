//! [`Contender`]: forecasts of one's own, read from a file, and the writer of such files.
//!
//! ```text
//! trace,start_up,minute,setting,raise,hold        or        trace,minute,setting,forecast
//! crane_00,2,10050,q=0.9,61.2,63.5                          crane_00,10050,+10 %,62.1
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::candidate::{Answer, BEYOND, CandidateForecast, ceilings};
use crate::csv::{self, FileError};
use crate::{Bounds, START_UPS, Trace, Workload};

/// The columns of the files that [`write_forecasts`] writes.
const HEADING: &str = "trace,start_up,minute,setting,raise,hold,peak";

/// A contender: its forecasts for a set of traces, at any number of settings.
#[derive(Debug, Clone)]
pub struct Contender {
    /// The name of its file, without the ending.
    pub name: String,
    /// In the order in which the file has them.
    settings: Vec<String>,
    paths: HashMap<Key, Vec<Option<Answer>>>,
}

/// What a forecast is for. Without a start-up, it is for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    trace: usize,
    start_up: Option<usize>,
    setting: usize,
}

/// Where the columns are.
#[derive(Debug, Clone, Copy)]
struct Columns {
    trace: usize,
    start_up: Option<usize>,
    minute: usize,
    setting: usize,
    demand: DemandColumns,
    peak: Option<usize>,
    /// How many there are.
    all: usize,
}

#[derive(Debug, Clone, Copy)]
enum DemandColumns {
    One { forecast: usize },
    Two { raise: usize, hold: usize },
}

/// Reads the lines of a file.
#[derive(Debug)]
struct Reader<'a> {
    columns: Columns,
    traces: HashMap<&'a str, (usize, usize)>,
    contender: Contender,
}

// === impl Contender ===

impl Contender {
    /// Reads a file of forecasts for these traces.
    ///
    /// # Errors
    /// [`FileError`], which names the line and the column: an unknown trace, a minute that the trace does not have, a
    /// value that is no demand, or two forecasts for the same minute.
    pub fn read(path: &Path, traces: &[Trace]) -> Result<Self, FileError> {
        let failed = |source| FileError::File {
            path: path.to_owned(),
            source,
        };
        let file = BufReader::new(File::open(path).map_err(failed)?);
        let name = path
            .file_stem()
            .map_or_else(Default::default, |stem| stem.to_string_lossy().into_owned());
        let mut reader = None;
        for (at, line) in file.lines().enumerate() {
            let line = line.map_err(failed)?;
            if line.trim().is_empty() {
                continue;
            }
            let wrong = |what| FileError::Line {
                path: path.to_owned(),
                line: at + 1,
                what,
            };
            match &mut reader {
                None => reader = Some(Reader::new(&name, &line, traces).map_err(wrong)?),
                Some(reader) => reader.take(&line).map_err(wrong)?,
            }
        }
        let read = reader.map(|reader| reader.contender);
        read.filter(|read| !read.settings.is_empty())
            .ok_or_else(|| FileError::Content {
                path: PathBuf::from(path),
                what: format!(
                    "no forecast at all; expected a heading such as {HEADING}, and lines"
                ),
            })
    }

    /// The forecasts for one trace at one start-up, at every setting, limited as those of any candidate.
    ///
    /// `trace` is its index in the traces that the file was read for, `workload` its demand.
    pub fn forecasts(
        &self,
        trace: usize,
        start_up: usize,
        workload: &Workload<'_>,
    ) -> Vec<CandidateForecast> {
        let ceilings = ceilings(workload);
        let path = |setting: usize| {
            let key = |start_up| Key {
                trace,
                start_up,
                setting,
            };
            let of = |start_up| self.paths.get(&key(start_up));
            // A file without a column `start_up` has its forecasts for all of them.
            of(Some(start_up)).or_else(|| of(None))
        };
        let limited = |setting: usize| {
            let path = path(setting).map_or(&[] as &[_], Vec::as_slice);
            let path = path.iter().copied().chain(std::iter::repeat(None));
            let of_the_run = path.skip(workload.first()).zip(&ceilings);
            let limited = of_the_run.map(|(answer, ceiling)| Some(answer?.limited(*ceiling)));
            limited.collect()
        };
        let settings = self.settings.iter().enumerate();
        settings
            .map(|(at, setting)| CandidateForecast {
                setting: setting.clone(),
                window: start_up + BEYOND,
                answers: limited(at),
            })
            .collect()
    }

    /// The names of the traces for which there is no forecast at all.
    pub fn missing<'a>(&self, traces: &'a [Trace]) -> Vec<&'a str> {
        let has = |at: usize| self.paths.keys().any(|key| key.trace == at);
        let missing = traces.iter().enumerate().filter(|(at, _)| !has(*at));
        missing.map(|(_, trace)| trace.name.as_str()).collect()
    }
}

// === impl Columns ===

impl Columns {
    fn read(heading: &str) -> Result<Self, String> {
        let names: Vec<&str> = heading.split(',').map(str::trim).collect();
        let optional = |name: &str| names.iter().position(|one| *one == name);
        let needed = |name: &str| {
            optional(name).ok_or_else(|| {
                format!(
                    "the heading has no column {name}; expected trace, minute, setting, and forecast or raise and \
                     hold; start_up and peak may be there, too"
                )
            })
        };
        let demand = match optional("forecast") {
            Some(forecast) => DemandColumns::One { forecast },
            None => DemandColumns::Two {
                raise: needed("raise")?,
                hold: needed("hold")?,
            },
        };
        Ok(Self {
            trace: needed("trace")?,
            start_up: optional("start_up"),
            minute: needed("minute")?,
            setting: needed("setting")?,
            demand,
            peak: optional("peak"),
            all: names.len(),
        })
    }

    fn answer(self, row: &[&str]) -> Result<Answer, String> {
        let demand = |name: &str, at: usize| csv::demand(name, field(row, at));
        let bounds = match self.demand {
            DemandColumns::One { forecast } => Bounds::both(demand("forecast", forecast)?),
            DemandColumns::Two { raise, hold } => Bounds {
                raise: demand("raise", raise)?,
                hold: demand("hold", hold)?,
            },
        };
        if bounds.hold < bounds.raise {
            return Err(format!(
                "hold is {}; expected at least raise, which is {}",
                bounds.hold, bounds.raise
            ));
        }
        let peak = self.peak.map(|peak| demand("peak", peak)).transpose()?;
        let answer = Answer::from(bounds);
        Ok(Answer {
            peak: peak.unwrap_or(answer.peak),
            ..answer
        })
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn new(name: &str, heading: &str, traces: &'a [Trace]) -> Result<Self, String> {
        let numbered = traces.iter().enumerate();
        let names = numbered.map(|(at, trace)| (trace.name.as_str(), (at, trace.demand.len())));
        Ok(Self {
            columns: Columns::read(heading)?,
            traces: names.collect(),
            contender: Contender {
                name: name.to_owned(),
                settings: Vec::new(),
                paths: HashMap::new(),
            },
        })
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let row: Vec<&str> = line.split(',').map(str::trim).collect();
        let columns = self.columns;
        if row.len() != columns.all {
            let (seen, all) = (row.len(), columns.all);
            return Err(format!("{seen} fields; expected {all}, as the heading has"));
        }
        let name = field(&row, columns.trace);
        let &(trace, minutes) = self.traces.get(name).ok_or_else(|| {
            format!("trace is {name:?}; expected a name that is in index.csv of the folder")
        })?;
        let start_up = columns
            .start_up
            .map(|at| start_up(field(&row, at)))
            .transpose()?;
        let minute = minute(field(&row, columns.minute), minutes)?;
        let setting = self.setting(field(&row, columns.setting))?;
        let answer = columns.answer(&row)?;
        let key = Key {
            trace,
            start_up,
            setting,
        };
        let paths = self.contender.paths.entry(key);
        let path = paths.or_insert_with(|| vec![None; minutes]);
        let place = path.get_mut(minute).ok_or("minute is out of range")?;
        if place.replace(answer).is_some() {
            return Err(format!(
                "minute {minute} of {name} has a forecast already; expected one for each setting"
            ));
        }
        Ok(())
    }

    fn setting(&mut self, name: &str) -> Result<usize, String> {
        if name.is_empty() {
            return Err("setting is empty; expected a name such as q=0.9".to_owned());
        }
        let settings = &mut self.contender.settings;
        let known = settings.iter().position(|setting| setting == name);
        Ok(known.unwrap_or_else(|| {
            settings.push(name.to_owned());
            settings.len() - 1
        }))
    }
}

fn field<'a>(row: &[&'a str], at: usize) -> &'a str {
    row.get(at).copied().unwrap_or_default()
}

fn start_up(text: &str) -> Result<usize, String> {
    let minutes = text.parse().ok();
    minutes
        .filter(|minutes| START_UPS.contains(minutes))
        .ok_or_else(|| format!("start_up is {text:?}; expected 2, 5 or 10"))
}

/// A minute of a trace that has so many.
fn minute(text: &str, minutes: usize) -> Result<usize, String> {
    let minute = text.parse().ok();
    minute.filter(|minute| *minute < minutes).ok_or_else(|| {
        let last = minutes.saturating_sub(1);
        format!(
            "minute is {text:?}; expected a whole number of at most {last}, the last of the trace"
        )
    })
}

/// Writes a heading.
///
/// # Errors
/// Those of the writer.
pub fn write_heading(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADING}")
}

/// Writes the forecasts of a run in the format that [`Contender::read`] reads; the numbers are the same when they are read.
///
/// # Errors
/// Those of the writer.
pub fn write_forecasts(
    out: &mut impl Write,
    trace: &str,
    start_up: usize,
    workload: &Workload<'_>,
    paths: &[CandidateForecast],
) -> io::Result<()> {
    for path in paths {
        let setting = &path.setting;
        for (minute, answer) in (workload.first()..).zip(&path.answers) {
            if let Some(Answer { bounds, peak }) = answer {
                let Bounds { raise, hold } = bounds;
                writeln!(
                    out,
                    "{trace},{start_up},{minute},{setting},{raise},{hold},{peak}"
                )?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces() -> Vec<Trace> {
        ["one", "two"]
            .map(|name| Trace {
                name: name.to_owned(),
                class: "smooth".to_owned(),
                what: None,
                native: None,
                start: 0,
                demand: (1..=40_u32).map(f64::from).collect(),
            })
            .to_vec()
    }

    fn read(text: &str) -> Result<Contender, String> {
        let traces = traces();
        let mut lines = text.lines();
        let mut reader = Reader::new("mine", lines.next().unwrap_or_default(), &traces)?;
        for line in lines {
            reader.take(line)?;
        }
        Ok(reader.contender)
    }

    fn forecasts(contender: &Contender, trace: usize, start_up: usize) -> Vec<CandidateForecast> {
        let demand = traces()[trace].demand.clone();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        contender.forecasts(trace, start_up, &workload)
    }

    #[test]
    fn a_file_of_one_number_is_for_every_start_up() {
        let contender =
            read("trace,minute,setting,forecast\none,3,+0 %,4\none,4,+0 %,99\none,4,+10 %,4.5\n")
                .unwrap();
        for start_up in START_UPS {
            let paths = forecasts(&contender, 0, start_up);
            let settings: Vec<&str> = paths.iter().map(|path| path.setting.as_str()).collect();
            assert_eq!(settings, ["+0 %", "+10 %"]);
            assert_eq!(paths[0].window, start_up + 3);
            // A run begins at minute 3, before which the demand was 3; no forecast is above 1.5 times that.
            assert_eq!(
                paths[0].answers[..3],
                [Some(4.0.into()), Some(6.0.into()), None]
            );
            assert_eq!(paths[1].answers[..2], [None, Some(4.5.into())]);
            assert_eq!(paths[0].answers.len(), 37);
        }
        let other = forecasts(&contender, 1, 2);
        assert!(other.iter().all(|path| path.answers == [None; 37]));
        assert_eq!(contender.missing(&traces()), ["two"]);
    }

    #[test]
    fn a_file_may_have_two_bounds_a_promise_and_a_start_up() {
        let contender = read(
            "start_up,peak,hold,raise,setting,minute,trace\n5,3.5,3,2,q=0.9,3,two\n10,4.5,4,3,q=0.9,3,two",
        )
        .unwrap();
        let answer = |start_up| forecasts(&contender, 1, start_up)[0].answers[0];
        let expected = |raise, hold, peak| {
            let bounds = Bounds { raise, hold };
            Some(Answer { bounds, peak })
        };
        assert_eq!(answer(5), expected(2.0, 3.0, 3.5));
        assert_eq!(answer(10), expected(3.0, 4.0, 4.5));
        assert_eq!(answer(2), None);
    }

    #[test]
    fn what_is_written_is_read_as_the_same_forecasts() {
        let text = "trace,start_up,minute,setting,raise,hold,peak\none,2,3,q=0.5,0.1,0.30000000000000004,4.5\n\
                    one,2,5,q=0.5,1e-9,2,3\none,2,39,q=0.9,7,7,7\n";
        let demand = traces()[0].demand.clone();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        let contender = read(text).unwrap();
        let paths = contender.forecasts(0, 2, &workload);
        let mut out = Vec::new();
        write_heading(&mut out).unwrap();
        write_forecasts(&mut out, "one", 2, &workload, &paths).unwrap();
        let again = read(&String::from_utf8(out).unwrap()).unwrap();
        assert_eq!(again.forecasts(0, 2, &workload), paths);
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_column() {
        let heading = "trace,start_up,minute,setting,raise,hold\n";
        let cases = [
            (
                "trace,minute,raise\n".to_owned(),
                "the heading has no column hold; expected trace, minute, setting, and forecast or raise and hold; \
                 start_up and peak may be there, too",
            ),
            (
                format!("{heading}one,2,3,q=0.9,1"),
                "5 fields; expected 6, as the heading has",
            ),
            (
                format!("{heading}three,2,3,q=0.9,1,1"),
                "trace is \"three\"; expected a name that is in index.csv of the folder",
            ),
            (
                format!("{heading}one,3,3,q=0.9,1,1"),
                "start_up is \"3\"; expected 2, 5 or 10",
            ),
            (
                format!("{heading}one,2,40,q=0.9,1,1"),
                "minute is \"40\"; expected a whole number of at most 39, the last of the trace",
            ),
            (
                format!("{heading}one,2,3,,1,1"),
                "setting is empty; expected a name such as q=0.9",
            ),
            (
                format!("{heading}one,2,3,q=0.9,1,inf"),
                "hold is \"inf\"; expected a finite number of at least zero",
            ),
            (
                format!("{heading}one,2,3,q=0.9,2,1"),
                "hold is 1; expected at least raise, which is 2",
            ),
            (
                format!("{heading}one,2,3,q=0.9,1,1\none,2,3,q=0.9,1,1"),
                "minute 3 of one has a forecast already; expected one for each setting",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(read(&text).unwrap_err(), message, "{text:?}");
        }
    }

    #[test]
    fn no_line_of_any_bytes_panics() {
        let traces = traces();
        bolero::check!()
            .with_type::<(String, String)>()
            .for_each(|(heading, line)| {
                for heading in [heading.as_str(), "trace,minute,setting,forecast"] {
                    if let Ok(mut reader) = Reader::new("mine", heading, &traces) {
                        let taken = reader.take(line);
                        assert!(taken.is_err() || reader.contender.paths.len() == 1);
                    }
                }
            });
    }
}
