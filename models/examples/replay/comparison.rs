//! Replays every candidate on every trace.

use foretide_models::replay::{
    Accuracy, AutoCandidate, CalibratedPersistence, Candidate, CandidateForecast, NaiveCandidate,
    RefittedCandidate, ReplayConfig, Score, ToleranceReference, Tuning, Workload, forecasts,
    highest_of_next, run,
};
use foretide_models::{Algorithm, dsp};

use crate::parallel;
use crate::product::{BEYOND, Product};
use crate::traces::{Failure, Trace};

/// Minutes that a replica takes to start.
pub(crate) const START_UPS: [usize; 3] = [2, 5, 10];

/// The start-up for which the selectable forecasters are replayed; asking them every minute is expensive.
const MORE_AT: usize = 2;

/// The quantiles of calibrated candidates.
const QUANTILES: &[f64] = &[0.3, 0.5, 0.8, 0.9, 0.95, 0.98];

/// The percentages of under-provisioned minutes that `auto` is configured for.
const PERCENTS: &[f64] = &[0.5, 1.0, 2.0, 5.0];

/// `auto` with the tolerance of the controller, relative to the last proposal of the forecast.
pub(crate) const AUTO_HELD: &str = "auto, own tolerance";

/// `auto`, configured for a percentage of under-provisioned minutes.
pub(crate) const AUTO_OBJECTIVE: &str = "auto, objective";

/// `auto` with the settings of the golden file.
pub(crate) const AUTO_GOLDEN: &str = "auto (golden)";

/// The result of one candidate on one trace, at one tuning setting.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) trace: usize,
    pub(crate) start_up: usize,
    pub(crate) candidate: &'static str,
    /// The tuning setting: `+0 %` or `q=0.9`.
    pub(crate) setting: String,
    pub(crate) score: Score,
    pub(crate) accuracy: Option<Accuracy>,
}

// === impl Entry ===

impl Entry {
    /// Candidate and setting in one word, as in the golden file.
    pub(crate) fn method(&self) -> String {
        let candidate = self.candidate.replace(',', "");
        match self.setting.as_str() {
            "+0 %" => candidate,
            margin if margin.starts_with('+') => format!("{candidate}{}", margin.replace(' ', "")),
            setting => format!("{candidate} {setting}"),
        }
    }
}

/// All entries, by trace; with `more`, also those of the selectable forecasters.
pub(crate) fn replay_all(
    traces: &[Trace],
    more: bool,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Entry>, Failure> {
    let run_of = parallel::map(traces, progress, |at, trace| replay_trace(at, trace, more))?;
    Ok(run_of.into_iter().flatten().collect())
}

fn replay_trace(trace: usize, of: &Trace, more: bool) -> Result<Vec<Entry>, Failure> {
    let workload = Workload::new(&of.demand)?;
    let hour = CandidateRun::by(&mut crane_like()?, &workload);
    let mut entries = Vec::new();
    for start_up in START_UPS {
        let table = Table {
            trace,
            start_up,
            workload: &workload,
            actual: highest_of_next(&workload, start_up + BEYOND),
        };
        for mut candidate in candidates(start_up) {
            entries.extend(table.enter(
                &CandidateRun::by(candidate.as_mut(), &workload),
                ToleranceReference::Current,
            ));
        }
        entries.extend(table.enter(&hour, ToleranceReference::Current));
        if more && start_up == MORE_AT {
            for mut product in Product::selectable(start_up)? {
                entries.extend(table.enter(
                    &CandidateRun::by(&mut product, &workload),
                    ToleranceReference::Current,
                ));
            }
        }
        let mut auto = CandidateRun::by(
            &mut AutoCandidate::quantiles(QUANTILES, start_up),
            &workload,
        );
        entries.extend(table.enter(&auto, ToleranceReference::Current));
        auto.candidate = AUTO_HELD;
        entries.extend(table.enter(&auto, ToleranceReference::LastProposal));
        let mut objectives = AutoCandidate::objectives(PERCENTS, start_up, &workload);
        let mut objectives = CandidateRun::by(&mut objectives, &workload);
        objectives.candidate = AUTO_OBJECTIVE;
        entries.extend(table.enter(&objectives, ToleranceReference::Current));
        let offset = AutoCandidate::offset(&of.demand);
        let mut given = AutoCandidate::with_offset(AUTO_GOLDEN, QUANTILES, start_up, offset);
        entries.extend(table.enter(
            &CandidateRun::by(&mut given, &workload),
            ToleranceReference::Current,
        ));
    }
    Ok(entries)
}

/// The forecasts of a candidate in a run.
#[derive(Debug)]
struct CandidateRun {
    candidate: &'static str,
    tuning: Tuning,
    paths: Vec<CandidateForecast>,
}

/// The setting of a set of entries.
#[derive(Debug)]
struct Table<'a> {
    trace: usize,
    start_up: usize,
    workload: &'a Workload<'a>,
    /// The highest demand of each decision window.
    actual: Vec<f64>,
}

// === impl CandidateRun ===

impl CandidateRun {
    fn by(candidate: &mut dyn Candidate, workload: &Workload<'_>) -> Self {
        Self {
            candidate: candidate.name(),
            tuning: candidate.tuning(),
            paths: forecasts(candidate, workload),
        }
    }
}

// === impl Table ===

impl Table<'_> {
    /// An entry for every tuning setting.
    fn enter(&self, run_of: &CandidateRun, tolerance: ToleranceReference) -> Vec<Entry> {
        let config = ReplayConfig {
            start_up: self.start_up,
            tolerance,
        };
        let entry = |path: &CandidateForecast| Entry {
            trace: self.trace,
            start_up: self.start_up,
            candidate: run_of.candidate,
            setting: run_of.tuning.label(path.setting),
            score: Score::of(self.workload, &run(self.workload, config, &path.forecast)),
            accuracy: Accuracy::of(self.workload, path, &self.actual),
        };
        run_of.paths.iter().map(entry).collect()
    }
}

/// The candidates without a model, which forecast the decision window.
fn candidates(start_up: usize) -> Vec<Box<dyn Candidate>> {
    let window = start_up + BEYOND;
    let mut all: Vec<Box<dyn Candidate>> = Vec::new();
    for plain in NaiveCandidate::all(window) {
        all.push(Box::new(plain));
    }
    all.push(Box::new(CalibratedPersistence::new(QUANTILES, window)));
    all
}

/// `dsp` as crane uses it: refitted every twelve hours, for the peak of the next hour.
fn crane_like() -> Result<RefittedCandidate, Failure> {
    let forecaster = Algorithm::Dsp(dsp::Config::default()).build()?;
    Ok(RefittedCandidate::new("dsp-W60", forecaster, 720, 60))
}
