//! The arguments of the command line.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use foretide_replay::{Rule, Trace};

use crate::Failure;

/// Replays demand traces against an autoscaler with the forecasts of every candidate, and prints minutes short at equal
/// replica-hours.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Folder with an index.csv (columns name and klass) and a <name>.csv for each (timestamp,value every 60 s)
    pub(crate) folder: PathBuf,

    /// First write the synthetic traces of this crate into FOLDER
    #[arg(long)]
    pub(crate) synthetic: bool,

    /// Replay only this trace; may be repeated
    #[arg(long, value_name = "NAME")]
    trace: Vec<String>,

    /// Forecasts of your own: columns trace, minute, setting, and forecast or raise and hold; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) contender: Vec<PathBuf>,

    /// Only write the forecasts of a candidate, in the format of --contender
    #[arg(long, num_args = 2, value_names = ["CANDIDATE", "FILE"])]
    export: Vec<String>,

    /// What forecasters see of the demand: each minute, or the mean of the last three or five. Of several, all but the
    /// first have the first tables only
    #[arg(long, value_enum, default_value = "1m", value_delimiter = ',')]
    history: Vec<HistoryMinutes>,

    /// How a forecast becomes a count, in all tables but the first
    #[arg(
        long,
        default_value = "band-last",
        value_name = "hpa|hpa-last|band|band-last"
    )]
    pub(crate) rule: Rule,

    /// Replica-hours, relative to the HPA alone, at which candidates are compared
    #[arg(long, default_value_t = 1.186, value_name = "RATIO")]
    pub(crate) replica_hours: f64,

    /// Rows of an earlier run, written by --csv, to compare with
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,

    /// Write a row for each trace, start-up, rule and setting
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Write two pictures for each trace
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,

    /// Compare with golden files
    #[arg(long, value_name = "DIR")]
    pub(crate) golden: Option<PathBuf>,

    /// Also measure single values ahead, a shared budget, cold starts, faults and the selectable forecasters, which takes
    /// minutes
    #[arg(long)]
    pub(crate) more: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HistoryMinutes {
    #[value(name = "1m")]
    One,
    #[value(name = "3m")]
    Three,
    #[value(name = "5m")]
    Five,
}

/// What is replayed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Of how many minutes each value of the history is the mean.
    pub(crate) history: usize,
    /// Whether the selectable forecasters take part.
    pub(crate) more: bool,
}

// === impl Arguments ===

impl Arguments {
    /// The traces to replay.
    pub(crate) fn traces(&self) -> Result<Vec<Trace>, Failure> {
        let mut traces = Trace::read_all(&self.folder)?;
        let is_there = |name: &&String| traces.iter().any(|trace| trace.name == **name);
        if let Some(name) = self.trace.iter().find(|name| !is_there(name)) {
            return Err(format!("--trace {name}: expected a name that is in index.csv").into());
        }
        traces.retain(|trace| self.trace.is_empty() || self.trace.contains(&trace.name));
        Ok(traces)
    }

    /// The candidate to export and the file.
    pub(crate) fn export(&self) -> Option<(&str, &Path)> {
        match self.export.as_slice() {
            [candidate, file] => Some((candidate, Path::new(file))),
            _ => None,
        }
    }

    /// Of how many minutes each value of the history is the mean; there is at least one.
    pub(crate) fn histories(&self) -> Vec<usize> {
        let minutes = |history: &HistoryMinutes| match history {
            HistoryMinutes::One => 1,
            HistoryMinutes::Three => 3,
            HistoryMinutes::Five => 5,
        };
        self.history.iter().map(minutes).collect()
    }
}
