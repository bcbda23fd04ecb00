//! Indexes entries by candidate, setting, start-up and rule, and summarizes them over traces.

use std::collections::HashMap;

use foretide_replay::{Accuracy, Curve, Means, NaiveCandidate, Rule, Score, Trace, mean};

use crate::comparison::Entry;
use crate::golden::{Golden, Replayed};

/// The method of another implementation whose rows are taken from its file.
pub(crate) const CRANE: &str = "crane15-W60";

/// The setting of a candidate that is not raised.
pub(crate) const PLAIN: &str = "+0 %";

/// All entries of a set of traces, of one history.
#[derive(Debug)]
pub(crate) struct Results<'a> {
    traces: &'a [Trace],
    /// Of how many minutes each value of the history was the mean.
    history: usize,
    golden: Option<&'a Golden>,
    /// In the order of their entries.
    candidates: Vec<&'a str>,
    /// The settings of each candidate, in the order of their entries.
    settings: HashMap<&'a str, Vec<&'a str>>,
    entries: HashMap<Key<'a>, Vec<&'a Entry>>,
    /// The score without a forecast.
    alone: HashMap<Case, Score>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key<'a> {
    candidate: &'a str,
    setting: &'a str,
    start_up: usize,
    rule: Rule,
}

/// A part of the entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) start_up: usize,
    pub(crate) rule: Rule,
    pub(crate) set: Set<'a>,
}

/// A set of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set<'a> {
    All,
    /// A class of load.
    Class(&'a str),
    /// Those that were measured at least once a minute, and not interpolated.
    Native,
}

/// One trace at one start-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Case {
    pub(crate) trace: usize,
    pub(crate) start_up: usize,
}

/// What a candidate is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Baseline {
    /// The rows of the golden file.
    Crane,
    /// The HPA with a lower target: with this margin on its demand.
    Lowered(&'static str),
}

// === impl Case ===

impl Case {
    fn of(entry: &Entry) -> Self {
        Self {
            trace: entry.trace,
            start_up: entry.start_up,
        }
    }
}

// === impl Part ===

impl Part<'_> {
    /// All traces.
    pub(crate) fn all(start_up: usize, rule: Rule) -> Self {
        Self {
            start_up,
            rule,
            set: Set::All,
        }
    }
}

// === impl Set ===

impl Set<'_> {
    fn has(self, trace: &Trace) -> bool {
        match self {
            Self::All => true,
            Self::Class(class) => trace.class == class,
            Self::Native => trace.native.is_some_and(|seconds| seconds <= 60),
        }
    }
}

// === impl Results ===

impl<'a> Results<'a> {
    pub(crate) fn new(
        traces: &'a [Trace],
        all: &'a [Entry],
        history: usize,
        golden: Option<&'a Golden>,
    ) -> Self {
        let mut results = Self {
            traces,
            history,
            golden,
            candidates: Vec::new(),
            settings: HashMap::new(),
            entries: HashMap::new(),
            alone: HashMap::new(),
        };
        for entry in all.iter().filter(|entry| entry.history == history) {
            results.add(entry);
        }
        results
    }

    fn add(&mut self, entry: &'a Entry) {
        let (candidate, setting) = (entry.candidate.as_str(), entry.setting.as_str());
        let settings = self.settings.entry(candidate).or_insert_with(|| {
            self.candidates.push(candidate);
            Vec::new()
        });
        if !settings.contains(&setting) {
            settings.push(setting);
        }
        let key = Key {
            candidate,
            setting,
            start_up: entry.start_up,
            rule: entry.rule,
        };
        self.entries.entry(key).or_default().push(entry);
        if candidate == NaiveCandidate::HPA && setting == PLAIN {
            self.alone.insert(Case::of(entry), entry.score);
        }
    }

    /// The classes of load, in the order in which they appear.
    pub(crate) fn classes(&self) -> Vec<&'a str> {
        let mut classes: Vec<&str> = Vec::new();
        for trace in self.traces {
            if !classes.contains(&trace.class.as_str()) {
                classes.push(&trace.class);
            }
        }
        classes
    }

    /// Of how many minutes each value of the history was the mean.
    pub(crate) fn history(&self) -> usize {
        self.history
    }

    /// How many traces a set has.
    pub(crate) fn size(&self, set: Set<'_>) -> usize {
        self.traces.iter().filter(|trace| set.has(trace)).count()
    }

    /// The candidates and contenders, in the order of their entries.
    pub(crate) fn candidates(&self) -> &[&'a str] {
        &self.candidates
    }

    /// Those of which every setting is a quantile.
    pub(crate) fn quantile_candidates(&self) -> impl Iterator<Item = &'a str> {
        let all = self.candidates.iter().copied();
        all.filter(|candidate| {
            let settings = self.settings(candidate);
            settings.iter().all(|setting| setting.starts_with("q="))
        })
    }

    /// The tuning settings of a candidate, in the order of its entries.
    pub(crate) fn settings(&self, candidate: &str) -> &[&'a str] {
        self.settings.get(candidate).map_or(&[], Vec::as_slice)
    }

    /// The entries of one setting.
    pub(crate) fn entries(&self, candidate: &str, setting: &str, part: Part<'_>) -> Vec<&'a Entry> {
        let key = Key {
            candidate,
            setting,
            start_up: part.start_up,
            rule: part.rule,
        };
        let entries = self.entries.get(&key).into_iter().flatten().copied();
        let is_part = |entry: &&Entry| {
            let trace = self.traces.get(entry.trace);
            trace.is_some_and(|trace| part.set.has(trace))
        };
        entries.filter(is_part).collect()
    }

    /// All traces.
    pub(crate) fn traces(&self) -> &'a [Trace] {
        self.traces
    }

    /// The score of one setting on one trace.
    pub(crate) fn score(
        &self,
        trace: usize,
        candidate: &str,
        setting: &str,
        part: Part<'_>,
    ) -> Option<Score> {
        let entries = self.entries(candidate, setting, part);
        let found = entries.into_iter().find(|entry| entry.trace == trace);
        found.map(|entry| entry.score)
    }

    /// The score of a baseline on one trace at one start-up.
    pub(crate) fn baseline(&self, case: Case, baseline: Baseline) -> Option<Score> {
        match baseline {
            Baseline::Crane => {
                let name = &self.traces.get(case.trace)?.name;
                self.golden?.score(name, crane_at(case.start_up), CRANE)
            }
            Baseline::Lowered(margin) => {
                let part = Part::all(case.start_up, Rule::HPA);
                self.score(case.trace, NaiveCandidate::HPA, margin, part)
            }
        }
    }

    pub(crate) fn means(&self, candidate: &str, setting: &str, part: Part<'_>) -> Option<Means> {
        let pair = |entry: &Entry| {
            let alone = self.alone.get(&Case::of(entry))?;
            Some((entry.score, *alone))
        };
        let pairs: Vec<_> = self
            .entries(candidate, setting, part)
            .into_iter()
            .filter_map(pair)
            .collect();
        Means::of(&pairs)
    }

    /// The means of the rows that the golden file has of crane; `None` without a file that has all of them.
    pub(crate) fn crane(&self, part: Part<'_>) -> Option<Means> {
        self.rows_of(self.golden?, CRANE, part, crane_at(part.start_up))
    }

    /// The means of the rows that a file has of a method; `None` if it does not have all of them.
    pub(crate) fn means_of_rows(
        &self,
        rows: &Golden,
        method: &str,
        part: Part<'_>,
    ) -> Option<Means> {
        let replayed = Replayed {
            start_up: part.start_up,
            history: self.history,
            rule: part.rule,
        };
        self.rows_of(rows, method, part, replayed)
    }

    fn rows_of(
        &self,
        rows: &Golden,
        method: &str,
        part: Part<'_>,
        replayed: Replayed,
    ) -> Option<Means> {
        let of_part = self.entries(NaiveCandidate::HPA, PLAIN, part);
        let pairs: Option<Vec<_>> = of_part
            .into_iter()
            .map(|entry| {
                let name = &self.traces.get(entry.trace)?.name;
                let theirs = rows.score(name, replayed, method)?;
                Some((theirs, entry.score))
            })
            .collect();
        Means::of(&pairs?)
    }

    /// The curve of a file's `auto`.
    pub(crate) fn curve_of_rows(&self, rows: &Golden, part: Part<'_>) -> Curve {
        let means = rows
            .methods("auto q=")
            .filter_map(|method| self.means_of_rows(rows, method, part));
        Curve::through(means.map(|means| (means.replicas, means.under)))
    }

    pub(crate) fn curve(&self, candidate: &str, part: Part<'_>) -> Curve {
        let settings = self.settings(candidate).iter();
        let means = settings.filter_map(|setting| self.means(candidate, setting, part));
        Curve::through(means.map(|means| (means.replicas, means.under)))
    }

    /// The mean over the traces that have a forecast.
    pub(crate) fn accuracy(
        &self,
        candidate: &str,
        setting: &str,
        part: Part<'_>,
        of: fn(&Accuracy) -> f64,
    ) -> Option<f64> {
        mean(
            self.accuracies(candidate, setting, part)
                .map(|one| of(&one)),
        )
    }

    /// The accuracy on each trace that has a forecast.
    pub(crate) fn accuracies(
        &self,
        candidate: &str,
        setting: &str,
        part: Part<'_>,
    ) -> impl Iterator<Item = Accuracy> {
        let entries = self.entries(candidate, setting, part);
        entries.into_iter().filter_map(|entry| entry.accuracy)
    }

    /// The mean part of the minutes with a forecast, in percent, over all traces.
    pub(crate) fn answered(&self, candidate: &str, setting: &str, part: Part<'_>) -> Option<f64> {
        let of = |entry: &Entry| entry.accuracy.map_or(0.0, |accuracy| accuracy.answered);
        mean(self.entries(candidate, setting, part).into_iter().map(of))
    }

    /// The accuracy at this quantile; of a candidate with margins, that at its best margin.
    pub(crate) fn loss(
        &self,
        candidate: &str,
        quantile: &str,
        part: Part<'_>,
        of: fn(&Accuracy) -> f64,
    ) -> Option<f64> {
        let settings = self.settings(candidate);
        if settings.contains(&quantile) {
            return self.accuracy(candidate, quantile, part, of);
        }
        let all = settings
            .iter()
            .filter_map(|setting| self.accuracy(candidate, setting, part, of));
        all.reduce(f64::min)
    }

    /// The share of the traces whose coverage is within `points` of what the quantile asks for, in percent.
    pub(crate) fn covered_within(
        &self,
        candidate: &str,
        quantile: f64,
        points: f64,
        part: Part<'_>,
    ) -> Option<f64> {
        let setting = format!("q={quantile}");
        let near = |one: Accuracy| f64::from((one.coverage - 100.0 * quantile).abs() <= points);
        let near = self.accuracies(candidate, &setting, part).map(near);
        mean(near).map(|share| 100.0 * share)
    }
}

/// What the rows of crane are of: they are quoted, whatever is replayed.
fn crane_at(start_up: usize) -> Replayed {
    Replayed {
        start_up,
        history: 1,
        rule: Rule::HPA,
    }
}
