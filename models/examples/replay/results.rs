//! Indexes entries by candidate, setting and class of load, and summarizes them.

use std::collections::HashMap;

use foretide_models::replay::{Accuracy, Curve, Means, Score, mean};

use crate::comparison::Entry;
use crate::golden::Golden;
use crate::traces::Trace;

/// The method of another implementation whose rows are taken from its file.
pub(crate) const CRANE: &str = "crane15-W60";

/// All entries of a set of traces.
#[derive(Debug)]
pub(crate) struct Results<'a> {
    traces: &'a [Trace],
    entries: &'a [Entry],
    golden: Option<&'a Golden>,
    /// The score without a forecast.
    alone: HashMap<Case, Score>,
}

/// A part of the entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) start_up: usize,
    /// The class of load; `None` for all.
    pub(crate) class: Option<&'a str>,
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
    /// A candidate at a setting.
    Own(&'static str, &'static str),
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
    /// All classes of load.
    pub(crate) fn all(start_up: usize) -> Self {
        Self {
            start_up,
            class: None,
        }
    }
}

// === impl Results ===

impl<'a> Results<'a> {
    pub(crate) fn new(
        traces: &'a [Trace],
        entries: &'a [Entry],
        golden: Option<&'a Golden>,
    ) -> Self {
        let alone = entries
            .iter()
            .filter(|entry| entry.candidate == "hpa" && entry.setting == "+0 %");
        let alone = alone.map(|entry| (Case::of(entry), entry.score)).collect();
        Self {
            traces,
            entries,
            golden,
            alone,
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

    /// The candidates, in the order of their entries.
    pub(crate) fn candidates(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for entry in self.entries {
            if !names.contains(&entry.candidate) {
                names.push(entry.candidate);
            }
        }
        names
    }

    /// The tuning settings of a candidate, ascending.
    pub(crate) fn settings(&self, candidate: &str) -> Vec<&'a str> {
        let mut settings = Vec::new();
        for entry in self
            .entries
            .iter()
            .filter(|entry| entry.candidate == candidate)
        {
            if settings.contains(&entry.setting.as_str()) {
                break;
            }
            settings.push(entry.setting.as_str());
        }
        settings
    }

    /// The entries of one setting.
    pub(crate) fn entries(
        &self,
        candidate: &str,
        setting: &str,
        part: Part<'_>,
    ) -> impl Iterator<Item = &'a Entry> {
        let traces = self.traces;
        self.entries.iter().filter(move |entry| {
            let class = traces.get(entry.trace).map(|trace| trace.class.as_str());
            entry.candidate == candidate
                && entry.setting == setting
                && entry.start_up == part.start_up
                && (part.class.is_none() || part.class == class)
        })
    }

    /// All traces.
    pub(crate) fn traces(&self) -> &'a [Trace] {
        self.traces
    }

    /// The score of one setting on one trace at one start-up.
    pub(crate) fn score(&self, case: Case, candidate: &str, setting: &str) -> Option<Score> {
        let part = Part {
            start_up: case.start_up,
            class: None,
        };
        let mut entries = self.entries(candidate, setting, part);
        entries
            .find(|entry| entry.trace == case.trace)
            .map(|entry| entry.score)
    }

    /// The score of a baseline on one trace at one start-up.
    pub(crate) fn baseline(&self, case: Case, baseline: Baseline) -> Option<Score> {
        match baseline {
            Baseline::Crane => {
                let name = &self.traces.get(case.trace)?.name;
                self.golden?.score(name, case.start_up, CRANE)
            }
            Baseline::Own(candidate, setting) => self.score(case, candidate, setting),
        }
    }

    pub(crate) fn means(&self, candidate: &str, setting: &str, part: Part<'_>) -> Option<Means> {
        let pair = |entry: &Entry| {
            let alone = self.alone.get(&Case::of(entry))?;
            Some((entry.score, *alone))
        };
        let pairs: Vec<_> = self
            .entries(candidate, setting, part)
            .filter_map(pair)
            .collect();
        Means::of(&pairs)
    }

    /// The means of the rows that the golden file has of crane; `None` without a file that has all of them.
    pub(crate) fn crane(&self, part: Part<'_>) -> Option<Means> {
        self.golden_means(CRANE, part)
    }

    /// The means of the rows that the golden file has of a method; `None` without a file that has all of them.
    pub(crate) fn golden_means(&self, method: &str, part: Part<'_>) -> Option<Means> {
        let of_part = self.entries("hpa", "+0 %", part);
        let pairs: Option<Vec<_>> = of_part
            .map(|entry| {
                let name = &self.traces.get(entry.trace)?.name;
                let theirs = self.golden?.score(name, part.start_up, method)?;
                Some((theirs, entry.score))
            })
            .collect();
        Means::of(&pairs?)
    }

    /// The curve of the golden file's `auto`; without points without a file.
    pub(crate) fn golden_curve(&self, part: Part<'_>) -> Curve {
        let methods = ["auto q=0.5", "auto q=0.8", "auto q=0.9", "auto q=0.95"];
        let means = methods
            .into_iter()
            .filter_map(|method| self.golden_means(method, part));
        Curve::through(means.map(|means| (means.replicas, means.under)))
    }

    pub(crate) fn curve(&self, candidate: &str, part: Part<'_>) -> Curve {
        let settings = self.settings(candidate).into_iter();
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
            self.entries(candidate, setting, part)
                .filter_map(|entry| entry.accuracy.as_ref().map(of)),
        )
    }

    /// The mean part of the minutes with a forecast, in percent, over all traces.
    pub(crate) fn answered(&self, candidate: &str, setting: &str, part: Part<'_>) -> Option<f64> {
        let of = |entry: &Entry| entry.accuracy.map_or(0.0, |accuracy| accuracy.answered);
        mean(self.entries(candidate, setting, part).map(of))
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
            .into_iter()
            .filter_map(|setting| self.accuracy(candidate, setting, part, of));
        all.reduce(f64::min)
    }
}
