//! [`Candidate`]: a forecaster under comparison, and [`Tuning`], the parameter that trades its cost for safety. A
//! candidate sees only the demand before the minute it is asked in.

use super::{Workload, mean};

/// A forecast of demand over the next minutes, made every minute.
///
/// One value replays one workload. Minutes come in order, each once: those before the run by
/// [`learn`](Self::learn), those of the run by [`at`](Self::at).
pub trait Candidate {
    /// The name in tables.
    fn name(&self) -> &'static str;

    /// The tuning parameter.
    fn tuning(&self) -> Tuning {
        Tuning::Margin
    }

    /// Learns a minute before the run; `known` is all demand so far, the newest last.
    fn learn(&mut self, known: &[f64]) {
        let _ = known;
    }

    /// The demand to provide for from minute `known.len()` on, in the unit of the metric; `known` is the demand before.
    ///
    /// One value per tuning setting, in that order, or a single value for [`Tuning::Margin`]. Empty without a forecast.
    fn at(&mut self, known: &[f64]) -> Vec<f64>;
}

/// The parameter that trades cost for safety.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tuning {
    /// The forecast is raised by each of [`MARGINS`].
    Margin,
    /// The candidate forecasts each of these quantiles, in `(0, 1)`, ascending.
    Quantile(&'static [f64]),
    /// The candidate keeps under-provisioned minutes below each of these percentages.
    Percent(&'static [f64]),
}

/// The margins by which forecasts are raised, as fractions.
pub const MARGINS: [f64; 13] = [
    0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2,
];

/// No forecast exceeds this multiple of the highest demand so far.
const CEILING: f64 = crate::CEILING_RATIO;

/// The forecasts at one tuning setting.
///
/// # Shape
/// One value a minute of the run, as [`run`](super::run) wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateForecast {
    /// The margin, quantile or percentage.
    pub setting: f64,
    /// The forecast at the start of each minute.
    pub forecast: Vec<Option<f64>>,
}

// === impl Tuning ===

impl Tuning {
    /// The settings, ascending.
    #[must_use]
    pub fn settings(&self) -> &'static [f64] {
        match self {
            Self::Margin => &MARGINS,
            Self::Quantile(settings) | Self::Percent(settings) => settings,
        }
    }

    /// The text of a setting: `+10 %`, `q=0.9` or `a=1 %`.
    #[must_use]
    pub fn label(&self, setting: f64) -> String {
        match self {
            Self::Margin => format!("+{:.0} %", 100.0 * setting),
            Self::Quantile(_) => format!("q={setting}"),
            Self::Percent(_) => format!("a={setting} %"),
        }
    }
}

/// The forecasts of a candidate over the whole workload, at every tuning setting. No value exceeds 1.5 times the
/// highest demand known at that time.
pub fn forecasts(candidate: &mut dyn Candidate, workload: &Workload<'_>) -> Vec<CandidateForecast> {
    let (demand, first) = (workload.demand(), workload.first());
    let tuning = candidate.tuning();
    let empty = |&setting: &f64| CandidateForecast {
        setting,
        forecast: Vec::with_capacity(demand.len() - first),
    };
    let mut paths: Vec<CandidateForecast> = tuning.settings().iter().map(empty).collect();
    let mut highest: f64 = 0.0;
    for (t, &newest) in (1..).zip(demand.iter().take(demand.len() - 1)) {
        let known = demand.get(..t).unwrap_or_default();
        highest = highest.max(newest);
        if t < first {
            candidate.learn(known);
            continue;
        }
        let answer = candidate.at(known);
        for (i, path) in paths.iter_mut().enumerate() {
            let value = match tuning {
                Tuning::Margin => answer.first().map(|value| value * (1.0 + path.setting)),
                Tuning::Quantile(_) | Tuning::Percent(_) => answer.get(i).copied(),
            };
            path.forecast
                .push(value.map(|value| value.min(CEILING * highest)));
        }
    }
    paths
}

/// The highest demand of minutes `from..=from + window`; `None` if they are not all known.
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

    /// Forecasts the newest value, and records its calls.
    #[derive(Default)]
    struct RecordingCandidate {
        learned: Vec<usize>,
        asked: Vec<usize>,
        quantiles: bool,
    }

    impl Candidate for RecordingCandidate {
        fn name(&self) -> &'static str {
            "recorder"
        }

        fn tuning(&self) -> Tuning {
            if self.quantiles {
                Tuning::Quantile(&[0.5, 0.9])
            } else {
                Tuning::Margin
            }
        }

        fn learn(&mut self, known: &[f64]) {
            self.learned.push(known.len());
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
    fn a_candidate_sees_every_minute_once_and_never_the_future() {
        let demand = rising();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        let mut recorder = RecordingCandidate::default();
        let paths = forecasts(&mut recorder, &workload);
        assert_eq!(recorder.learned, [1, 2]);
        assert_eq!(recorder.asked, (3..40).collect::<Vec<_>>());
        assert_eq!(paths.len(), MARGINS.len());
        assert!(paths.iter().all(|path| path.forecast.len() == 37));
    }

    #[test]
    fn a_margin_raises_the_forecast_up_to_the_ceiling() {
        let demand = rising();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        let paths = forecasts(&mut RecordingCandidate::default(), &workload);
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
    fn a_candidate_with_quantiles_has_forecasts_for_each() {
        let demand = rising();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        let mut recorder = RecordingCandidate {
            quantiles: true,
            ..RecordingCandidate::default()
        };
        let paths = forecasts(&mut recorder, &workload);
        let firsts: Vec<_> = paths
            .iter()
            .map(|path| (path.setting, path.forecast[0]))
            .collect();
        assert_eq!(firsts, [(0.5, Some(3.0)), (0.9, Some(4.5))]);
    }

    #[test]
    fn settings_have_the_text_of_the_tables() {
        assert_eq!(Tuning::Margin.label(0.1), "+10 %");
        assert_eq!(Tuning::Quantile(&[]).label(0.95), "q=0.95");
        assert_eq!(Tuning::Percent(&[]).label(0.5), "a=0.5 %");
    }
}
