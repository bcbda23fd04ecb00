//! Replays every candidate and contender on every trace, by every rule.

use foretide_replay::{
    Accuracy, CandidateForecast, Contender, History, NaiveCandidate, ReplayConfig, Rule, START_UPS,
    Score, Trace, Workload, forecasts, run,
};

use crate::Failure;
use crate::arguments::Options;
use crate::{candidates, parallel};

/// The result of one candidate on one trace, at one tuning setting, by one rule.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) trace: usize,
    pub(crate) start_up: usize,
    /// Of how many minutes each value of the history was the mean.
    pub(crate) history: usize,
    pub(crate) rule: Rule,
    pub(crate) candidate: String,
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

/// All entries, by trace.
pub(crate) fn replay_all(
    traces: &[Trace],
    contenders: &[Contender],
    options: Options,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Entry>, Failure> {
    let replay = |at: usize, trace: &Trace| {
        let workload = Workload::new(&trace.demand)?;
        let history = History::new(&trace.demand, options.history);
        let mut entries = Vec::new();
        for start_up in START_UPS {
            let case = Case {
                trace: at,
                start_up,
                history: options.history,
                workload: &workload,
            };
            for mut candidate in candidates::all(trace, &workload, start_up, options)? {
                let paths = forecasts(candidate.as_mut(), &workload, &history);
                entries.extend(case.enter(candidate.name(), &paths));
            }
            for contender in contenders {
                let paths = contender.forecasts(at, start_up, &workload);
                entries.extend(case.enter(&contender.name, &paths));
            }
        }
        Ok(entries)
    };
    let run_of = parallel::map(traces, progress, replay)?;
    Ok(run_of.into_iter().flatten().collect())
}

/// One trace at one start-up.
#[derive(Debug)]
struct Case<'a> {
    trace: usize,
    start_up: usize,
    history: usize,
    workload: &'a Workload<'a>,
}

// === impl Case ===

impl Case<'_> {
    /// An entry for every tuning setting and rule.
    fn enter(&self, candidate: &str, paths: &[CandidateForecast]) -> Vec<Entry> {
        let mut entries = Vec::new();
        for path in paths {
            let accuracy = Accuracy::of(self.workload, path);
            let bounds = path.bounds();
            for rule in Rule::ALL {
                // A lower target is the HPA's own, whatever the rule for forecasts is.
                let rule_of = if candidate == NaiveCandidate::HPA {
                    Rule::HPA
                } else {
                    rule
                };
                let config = ReplayConfig {
                    start_up: self.start_up,
                    rule: rule_of,
                };
                entries.push(Entry {
                    trace: self.trace,
                    start_up: self.start_up,
                    history: self.history,
                    rule,
                    candidate: candidate.to_owned(),
                    setting: path.setting.clone(),
                    score: Score::of(self.workload, &run(self.workload, config, &bounds)),
                    accuracy,
                });
            }
        }
        entries
    }
}
