//! Replays every contender on every trace, two traces at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use foretide_models::replay::{
    Accuracy, Calibrated, Contender, Knob, Path, Plain, Refitted, Rules, Score, Workload,
    highest_of_next, paths, run,
};
use foretide_models::{Algorithm, dsp};

use crate::traces::Trace;

/// Minutes that a replica takes to start.
pub const START_UPS: [usize; 3] = [2, 5, 10];

/// Minutes beyond the start-up that a decision is made for.
const BEYOND: usize = 3;

/// The quantiles of calibrated contenders.
const QUANTILES: &[f64] = &[0.3, 0.5, 0.8, 0.9, 0.95, 0.98];

/// How one contender did on one trace, at one setting of its knob.
#[derive(Debug, Clone)]
pub struct Entry {
    pub trace: usize,
    pub start_up: usize,
    pub contender: &'static str,
    /// The setting of its knob: `+0 %` or `q=0.9`.
    pub setting: String,
    pub score: Score,
    pub accuracy: Option<Accuracy>,
}

/// What can go wrong with one trace.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

// === impl Entry ===

impl Entry {
    /// Contender and setting in one word, as the golden file has it.
    pub fn method(&self) -> String {
        match self.setting.as_str() {
            "+0 %" => self.contender.to_owned(),
            margin if margin.starts_with('+') => {
                format!("{}{}", self.contender, margin.replace(' ', ""))
            }
            quantile => format!("{} {quantile}", self.contender),
        }
    }
}

/// All entries, by trace.
pub fn play(traces: &[Trace], progress: &(dyn Fn(&str) + Sync)) -> Result<Vec<Entry>, Failure> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, trace)) = pick(traces, &next) {
            let played = play_one(at, trace).map_err(|error| format!("{}: {error}", trace.name));
            let n = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(&format!("{n:3} of {}: {}", traces.len(), trace.name));
            if let Ok(mut results) = results.lock() {
                results.push((at, played));
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_unstable_by_key(|(at, _)| *at);
    let mut entries = Vec::new();
    for (_, played) in results {
        entries.extend(played?);
    }
    Ok(entries)
}

fn pick<'a>(traces: &'a [Trace], next: &AtomicUsize) -> Option<(usize, &'a Trace)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    traces.get(at).map(|trace| (at, trace))
}

fn play_one(trace: usize, of: &Trace) -> Result<Vec<Entry>, Failure> {
    let workload = Workload::new(&of.demand)?;
    let mut crane_like = crane_like()?;
    let (name, knob) = (crane_like.name(), crane_like.knob());
    let hour = paths(&mut crane_like, &workload);
    let mut entries = Vec::new();
    for start_up in START_UPS {
        let came = highest_of_next(&workload, start_up + BEYOND);
        let mut enter = |contender, knob: Knob, paths: &[Path]| {
            entries.extend(paths.iter().map(|path| {
                let rules = Rules {
                    start_up,
                    ..Rules::default()
                };
                Entry {
                    trace,
                    start_up,
                    contender,
                    setting: knob.label(path.setting),
                    score: Score::of(&workload, &run(&workload, rules, &path.forecast)),
                    accuracy: Accuracy::of(&workload, path, &came),
                }
            }));
        };
        for mut contender in contenders(start_up + BEYOND) {
            let asked = paths(contender.as_mut(), &workload);
            enter(contender.name(), contender.knob(), &asked);
        }
        enter(name, knob, &hour);
    }
    Ok(entries)
}

/// Those whose window is the decision's.
fn contenders(window: usize) -> Vec<Box<dyn Contender>> {
    let mut all: Vec<Box<dyn Contender>> = Vec::new();
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
