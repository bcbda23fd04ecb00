//! Replays every contender on every trace.

use foretide_models::replay::{
    Accuracy, Calibrated, Candidate, Hold, Knob, Learning, Path, Plain, Refitted, Rules, Score,
    Workload, highest_of_next, paths, run,
};
use foretide_models::{Algorithm, dsp};

use crate::crew;
use crate::product::Product;
use crate::traces::Trace;

/// Minutes that a replica takes to start.
pub(crate) const START_UPS: [usize; 3] = [2, 5, 10];

/// Minutes beyond the start-up that a decision is made for.
pub(crate) const BEYOND: usize = 3;

/// The start-up for which the selectable forecasters play: they are dear to ask every minute.
const MORE_AT: usize = 2;

/// The quantiles of calibrated contenders.
const QUANTILES: &[f64] = &[0.3, 0.5, 0.8, 0.9, 0.95, 0.98];

/// The parts of under-provisioned minutes that `auto` is asked for, in percent.
const PERCENTS: &[f64] = &[0.5, 1.0, 2.0, 5.0];

/// `auto`, with the tolerance of the controller: relative to the last proposal of the forecast.
pub(crate) const AUTO_HELD: &str = "auto, own tolerance";

/// `auto`, asked for a part of under-provisioned minutes.
pub(crate) const AUTO_OBJECTIVE: &str = "auto, objective";

/// `auto` under the conditions of the golden file.
pub(crate) const AUTO_GOLDEN: &str = "auto (golden)";

/// How one contender did on one trace, at one setting of its knob.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) trace: usize,
    pub(crate) start_up: usize,
    pub(crate) contender: &'static str,
    /// The setting of its knob: `+0 %` or `q=0.9`.
    pub(crate) setting: String,
    pub(crate) score: Score,
    pub(crate) accuracy: Option<Accuracy>,
}

/// What can go wrong with one trace.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

// === impl Entry ===

impl Entry {
    /// Candidate and setting in one word, as the golden file has it.
    pub(crate) fn method(&self) -> String {
        let contender = self.contender.replace(',', "");
        match self.setting.as_str() {
            "+0 %" => contender,
            margin if margin.starts_with('+') => format!("{contender}{}", margin.replace(' ', "")),
            setting => format!("{contender} {setting}"),
        }
    }
}

/// All entries, by trace; with `more`, the selectable forecasters too.
pub(crate) fn play(
    traces: &[Trace],
    more: bool,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Entry>, Failure> {
    let played = crew::each(traces, progress, |at, trace| play_one(at, trace, more))?;
    Ok(played.into_iter().flatten().collect())
}

fn play_one(trace: usize, of: &Trace, more: bool) -> Result<Vec<Entry>, Failure> {
    let workload = Workload::new(&of.demand)?;
    let hour = Played::by(&mut crane_like()?, &workload);
    let mut entries = Vec::new();
    for start_up in START_UPS {
        let table = Table {
            trace,
            start_up,
            workload: &workload,
            came: highest_of_next(&workload, start_up + BEYOND),
        };
        for mut contender in contenders(start_up) {
            entries.extend(table.enter(&Played::by(contender.as_mut(), &workload), Hold::Current));
        }
        entries.extend(table.enter(&hour, Hold::Current));
        if more && start_up == MORE_AT {
            for mut product in Product::selectable(start_up)? {
                entries.extend(table.enter(&Played::by(&mut product, &workload), Hold::Current));
            }
        }
        let mut auto = Played::by(&mut Learning::quantiles(QUANTILES, start_up), &workload);
        entries.extend(table.enter(&auto, Hold::Current));
        auto.contender = AUTO_HELD;
        entries.extend(table.enter(&auto, Hold::LastProposal));
        let mut objectives = Learning::objectives(PERCENTS, start_up, &workload);
        let mut objectives = Played::by(&mut objectives, &workload);
        objectives.contender = AUTO_OBJECTIVE;
        entries.extend(table.enter(&objectives, Hold::Current));
        let offset = Learning::offset(&of.demand);
        let mut given = Learning::with_offset(AUTO_GOLDEN, QUANTILES, start_up, offset);
        entries.extend(table.enter(&Played::by(&mut given, &workload), Hold::Current));
    }
    Ok(entries)
}

/// What a contender answered in the course of a run.
#[derive(Debug)]
struct Played {
    contender: &'static str,
    knob: Knob,
    paths: Vec<Path>,
}

/// Where entries come from.
#[derive(Debug)]
struct Table<'a> {
    trace: usize,
    start_up: usize,
    workload: &'a Workload<'a>,
    /// The highest demand of each decision window.
    came: Vec<f64>,
}

// === impl Played ===

impl Played {
    fn by(contender: &mut dyn Candidate, workload: &Workload<'_>) -> Self {
        Self {
            contender: contender.name(),
            knob: contender.knob(),
            paths: paths(contender, workload),
        }
    }
}

// === impl Table ===

impl Table<'_> {
    /// An entry for every setting of the knob.
    fn enter(&self, played: &Played, hold: Hold) -> Vec<Entry> {
        let rules = Rules {
            start_up: self.start_up,
            hold,
        };
        let entry = |path: &Path| Entry {
            trace: self.trace,
            start_up: self.start_up,
            contender: played.contender,
            setting: played.knob.label(path.setting),
            score: Score::of(self.workload, &run(self.workload, rules, &path.forecast)),
            accuracy: Accuracy::of(self.workload, path, &self.came),
        };
        played.paths.iter().map(entry).collect()
    }
}

/// Those without a model, whose window is the decision's.
fn contenders(start_up: usize) -> Vec<Box<dyn Candidate>> {
    let window = start_up + BEYOND;
    let mut all: Vec<Box<dyn Candidate>> = Vec::new();
    for plain in Plain::all(window) {
        all.push(Box::new(plain));
    }
    all.push(Box::new(Calibrated::new(QUANTILES, window)));
    all
}

/// `dsp` as crane uses its own: refitted every twelve hours, the highest of the next hour.
fn crane_like() -> Result<Refitted, Failure> {
    let forecaster = Algorithm::Dsp(dsp::Config::default()).build()?;
    Ok(Refitted::new("dsp-W60", forecaster, 720, 60))
}
