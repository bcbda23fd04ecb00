//! Entries by contender, setting and kind of load, and what a set of them comes to.

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
    /// By trace and start-up: the score without a forecast.
    alone: HashMap<(usize, usize), Score>,
}

/// A part of a set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) start_up: usize,
    /// The kind of load; none: all.
    pub(crate) class: Option<&'a str>,
}

/// What a contender is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Baseline {
    /// The rows of the golden file.
    Crane,
    /// A contender at a setting.
    Own(&'static str, &'static str),
}

// === impl Part ===

impl Part<'_> {
    /// Every kind of load.
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
            .filter(|entry| entry.contender == "hpa" && entry.setting == "+0 %");
        let alone = alone
            .map(|entry| ((entry.trace, entry.start_up), entry.score))
            .collect();
        Self {
            traces,
            entries,
            golden,
            alone,
        }
    }

    /// The kinds of load, in the order in which they appear.
    pub(crate) fn classes(&self) -> Vec<&'a str> {
        let mut classes: Vec<&str> = Vec::new();
        for trace in self.traces {
            if !classes.contains(&trace.class.as_str()) {
                classes.push(&trace.class);
            }
        }
        classes
    }

    /// The contenders, in the order in which they played.
    pub(crate) fn contenders(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for entry in self.entries {
            if !names.contains(&entry.contender) {
                names.push(entry.contender);
            }
        }
        names
    }

    /// The settings of a contender's knob, rising.
    pub(crate) fn settings(&self, contender: &str) -> Vec<&'a str> {
        let mut settings = Vec::new();
        for entry in self
            .entries
            .iter()
            .filter(|entry| entry.contender == contender)
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
        contender: &str,
        setting: &str,
        part: Part<'_>,
    ) -> impl Iterator<Item = &'a Entry> {
        let traces = self.traces;
        self.entries.iter().filter(move |entry| {
            let class = traces.get(entry.trace).map(|trace| trace.class.as_str());
            entry.contender == contender
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
    pub(crate) fn score(
        &self,
        (trace, start_up): (usize, usize),
        contender: &str,
        setting: &str,
    ) -> Option<Score> {
        let part = Part {
            start_up,
            class: None,
        };
        let mut entries = self.entries(contender, setting, part);
        entries
            .find(|entry| entry.trace == trace)
            .map(|entry| entry.score)
    }

    /// The score of a baseline on one trace at one start-up.
    pub(crate) fn baseline(&self, on: (usize, usize), baseline: Baseline) -> Option<Score> {
        match baseline {
            Baseline::Crane => {
                let name = &self.traces.get(on.0)?.name;
                self.golden?.score(name, on.1, CRANE)
            }
            Baseline::Own(contender, setting) => self.score(on, contender, setting),
        }
    }

    pub(crate) fn means(&self, contender: &str, setting: &str, part: Part<'_>) -> Option<Means> {
        let pair = |entry: &Entry| {
            let alone = self.alone.get(&(entry.trace, entry.start_up))?;
            Some((entry.score, *alone))
        };
        let pairs: Vec<_> = self
            .entries(contender, setting, part)
            .filter_map(pair)
            .collect();
        Means::of(&pairs)
    }

    /// The means of the rows that the golden file has of crane; none without a file that has all of them.
    pub(crate) fn crane(&self, part: Part<'_>) -> Option<Means> {
        self.filed(CRANE, part)
    }

    /// The means of the rows that the golden file has of a method; none without a file that has all of them.
    pub(crate) fn filed(&self, method: &str, part: Part<'_>) -> Option<Means> {
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
            .filter_map(|method| self.filed(method, part));
        Curve::through(means.map(|means| (means.replicas, means.under)))
    }

    pub(crate) fn curve(&self, contender: &str, part: Part<'_>) -> Curve {
        let settings = self.settings(contender).into_iter();
        let means = settings.filter_map(|setting| self.means(contender, setting, part));
        Curve::through(means.map(|means| (means.replicas, means.under)))
    }

    /// The mean over the traces that have a forecast.
    pub(crate) fn accuracy(
        &self,
        (contender, setting): (&str, &str),
        part: Part<'_>,
        of: fn(&Accuracy) -> f64,
    ) -> Option<f64> {
        mean(
            self.entries(contender, setting, part)
                .filter_map(|entry| entry.accuracy.as_ref().map(of)),
        )
    }

    /// The mean part of the minutes with a forecast, in percent, over all traces.
    pub(crate) fn answered(
        &self,
        (contender, setting): (&str, &str),
        part: Part<'_>,
    ) -> Option<f64> {
        let of = |entry: &Entry| entry.accuracy.map_or(0.0, |accuracy| accuracy.answered);
        mean(self.entries(contender, setting, part).map(of))
    }

    /// The accuracy at this quantile; of a contender with margins, that at its best margin.
    pub(crate) fn loss(
        &self,
        contender: &str,
        quantile: &str,
        part: Part<'_>,
        of: fn(&Accuracy) -> f64,
    ) -> Option<f64> {
        let settings = self.settings(contender);
        if settings.contains(&quantile) {
            return self.accuracy((contender, quantile), part, of);
        }
        let all = settings
            .into_iter()
            .filter_map(|setting| self.accuracy((contender, setting), part, of));
        all.reduce(f64::min)
    }
}
