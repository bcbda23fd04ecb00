//! Whoever forecasts in a replay: what it is asked every minute, and the knob by which it trades cost for safety. It
//! refuses to show a contender anything of the future. Next: `contenders`, `accuracy`.

use super::{Workload, mean};

/// A forecast of demand over the next minutes, asked for anew every minute.
///
/// One value replays one workload. Minutes come in order, each once: those before the run by
/// [`learn`](Self::learn), those of the run by [`at`](Self::at).
pub trait Candidate {
    /// How tables call it.
    fn name(&self) -> &'static str;

    /// By what it is made more or less generous.
    fn knob(&self) -> Knob {
        Knob::Margin
    }

    /// Takes in the minutes before the run; `known` is all demand so far, the newest last.
    fn learn(&mut self, known: &[f64]) {
        let _ = known;
    }

    /// The demand to provide for from minute `known.len()` on, in the unit of the metric; `known` is all before it.
    ///
    /// One value per setting of its knob, in that order; of [`Knob::Margin`], one value. Empty: no forecast.
    fn at(&mut self, known: &[f64]) -> Vec<f64>;
}

/// By what a contender is made more or less generous.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Knob {
    /// The forecast is raised by each of [`MARGINS`].
    Margin,
    /// It is asked for each of these quantiles, in `(0, 1)`, rising.
    Quantile(&'static [f64]),
    /// It is asked to stay below each of these parts of under-provisioned minutes, in percent.
    Percent(&'static [f64]),
}

/// Parts of a forecast that are put on top of it, to see what safety costs.
pub const MARGINS: [f64; 13] = [
    0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2,
];

/// No forecast exceeds this multiple of the highest demand so far.
const CEILING: f64 = crate::CEILING_RATIO;

/// The forecasts of one setting of the knob.
///
/// # Shape
/// One value a minute of the run, as [`run`](super::run) wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// The margin or the quantile.
    pub setting: f64,
    /// What was forecast at the start of each minute.
    pub forecast: Vec<Option<f64>>,
}

// === impl Knob ===

impl Knob {
    /// Its settings, rising.
    #[must_use]
    pub fn settings(&self) -> &'static [f64] {
        match self {
            Self::Margin => &MARGINS,
            Self::Quantile(settings) | Self::Percent(settings) => settings,
        }
    }

    /// How a setting is written: `+10 %`, `q=0.9` or `a=1 %`.
    #[must_use]
    pub fn label(&self, setting: f64) -> String {
        match self {
            Self::Margin => format!("+{:.0} %", 100.0 * setting),
            Self::Quantile(_) => format!("q={setting}"),
            Self::Percent(_) => format!("a={setting} %"),
        }
    }
}

/// Asks a contender through the whole workload, at every setting of its knob; no value exceeds 1.5 times the highest
/// demand that was known.
pub fn paths(contender: &mut dyn Candidate, workload: &Workload<'_>) -> Vec<Path> {
    let (demand, first) = (workload.demand(), workload.first());
    let knob = contender.knob();
    let empty = |&setting: &f64| Path {
        setting,
        forecast: Vec::with_capacity(demand.len() - first),
    };
    let mut paths: Vec<Path> = knob.settings().iter().map(empty).collect();
    let mut highest: f64 = 0.0;
    for (t, &newest) in (1..).zip(demand.iter().take(demand.len() - 1)) {
        let known = demand.get(..t).unwrap_or_default();
        highest = highest.max(newest);
        if t < first {
            contender.learn(known);
            continue;
        }
        let answer = contender.at(known);
        for (i, path) in paths.iter_mut().enumerate() {
            let value = match knob {
                Knob::Margin => answer.first().map(|value| value * (1.0 + path.setting)),
                Knob::Quantile(_) | Knob::Percent(_) => answer.get(i).copied(),
            };
            path.forecast
                .push(value.map(|value| value.min(CEILING * highest)));
        }
    }
    paths
}

/// The highest of minutes `from..=from + window` of what is known; `None` if they are not all known.
pub(super) fn highest(known: &[f64], from: usize, window: usize) -> Option<f64> {
    known
        .get(from..=from + window)?
        .iter()
        .copied()
        .reduce(f64::max)
}

/// The mean of the `minutes` before `end`; `None` if they are not all known.
pub(super) fn level(known: &[f64], end: usize, minutes: usize) -> Option<f64> {
    mean(known.get(end.checked_sub(minutes)?..end)?.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with the newest value, and notes what it was shown.
    #[derive(Default)]
    struct Witness {
        learnt: Vec<usize>,
        asked: Vec<usize>,
        quantiles: bool,
    }

    impl Candidate for Witness {
        fn name(&self) -> &'static str {
            "witness"
        }

        fn knob(&self) -> Knob {
            if self.quantiles {
                Knob::Quantile(&[0.5, 0.9])
            } else {
                Knob::Margin
            }
        }

        fn learn(&mut self, known: &[f64]) {
            self.learnt.push(known.len());
        }

        fn at(&mut self, known: &[f64]) -> Vec<f64> {
            self.asked.push(known.len());
            let newest = known[known.len() - 1];
            vec![newest, 2.0 * newest]
        }
    }

    fn rising() -> Vec<f64> {
        (1..=40_u32).map(f64::from).collect()
    }

    #[test]
    fn a_contender_sees_every_minute_once_and_never_the_future() {
        let demand = rising();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        let mut witness = Witness::default();
        let paths = paths(&mut witness, &workload);
        assert_eq!(witness.learnt, [1, 2]);
        assert_eq!(witness.asked, (3..40).collect::<Vec<_>>());
        assert_eq!(paths.len(), MARGINS.len());
        assert!(paths.iter().all(|path| path.forecast.len() == 37));
    }

    #[test]
    fn a_margin_raises_the_forecast_up_to_the_ceiling() {
        let demand = rising();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        let paths = paths(&mut Witness::default(), &workload);
        let first = |setting: f64| {
            let path = paths
                .iter()
                .find(|path| (path.setting - setting).abs() < 1e-9);
            path.and_then(|path| path.forecast[0])
        };
        assert_eq!(
            [0.0, 0.25, 0.5, 1.2].map(first),
            [3.0, 3.75, 4.5, 4.5].map(Some)
        );
    }

    #[test]
    fn a_contender_with_quantiles_has_a_path_for_each() {
        let demand = rising();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        let mut witness = Witness {
            quantiles: true,
            ..Witness::default()
        };
        let paths = paths(&mut witness, &workload);
        let firsts: Vec<_> = paths
            .iter()
            .map(|path| (path.setting, path.forecast[0]))
            .collect();
        assert_eq!(firsts, [(0.5, Some(3.0)), (0.9, Some(4.5))]);
    }

    #[test]
    fn settings_are_written_as_in_the_tables() {
        assert_eq!(Knob::Margin.label(0.1), "+10 %");
        assert_eq!(Knob::Quantile(&[]).label(0.95), "q=0.95");
        assert_eq!(Knob::Percent(&[]).label(0.5), "a=0.5 %");
    }
}
