//! [`Candidate`]: a forecaster under comparison, and [`Tuning`], the parameter that trades its cost for safety. A
//! candidate sees only what is known before the minute it is asked in.

use foretide_models::CEILING_RATIO;

use crate::average::mean;
use crate::history::{History, Known};
use crate::{Bounds, Workload};

/// Minutes after the start-up that the decision window of a forecast covers, unless the candidate has another.
pub const BEYOND: usize = 3;

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

    /// The last minute of the decision window, counted from the minute of the decision: the forecast is meant for the
    /// highest demand of that many minutes and one more.
    fn window(&self) -> usize;

    /// Learns a minute before the run: the newest value of `known`.
    fn learn(&mut self, known: Known<'_>) {
        let _ = known;
    }

    /// The demand to provide for from minute `known.len()` on, in the unit of the metric.
    ///
    /// One answer per tuning setting, in that order, or a single one for [`Tuning::Margin`]. Empty without a forecast.
    fn at(&mut self, known: Known<'_>) -> Vec<Answer>;
}

/// The forecast of one minute at one setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// What replicas are asked for.
    pub bounds: Bounds,
    /// The value that the highest demand of the decision window is promised to stay within, which coverage and losses
    /// are of.
    pub peak: f64,
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

/// The forecasts at one tuning setting.
///
/// # Shape
/// One value a minute of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateForecast {
    /// The name of the margin, quantile or percentage: see [`Tuning::label`].
    pub setting: String,
    /// The last minute of the decision window: see [`Candidate::window`].
    pub window: usize,
    /// The forecast at the start of each minute.
    pub answers: Vec<Option<Answer>>,
}

// === impl Answer ===

impl Answer {
    /// This answer with no value above `ceiling`.
    #[must_use]
    pub fn limited(self, ceiling: f64) -> Self {
        let Bounds { raise, hold } = self.bounds;
        Self {
            bounds: Bounds {
                raise: raise.min(ceiling),
                hold: hold.max(raise).min(ceiling),
            },
            peak: self.peak.min(ceiling),
        }
    }

    fn raised(self, margin: f64) -> Self {
        let raise = 1.0 + margin;
        let Self { bounds, peak } = self;
        Self {
            bounds: Bounds {
                raise: raise * bounds.raise,
                hold: raise * bounds.hold,
            },
            peak: raise * peak,
        }
    }
}

/// A forecast of two bounds, of which `hold` is the promised one.
impl From<Bounds> for Answer {
    fn from(bounds: Bounds) -> Self {
        let peak = bounds.hold;
        Self { bounds, peak }
    }
}

/// A forecast of one number.
impl From<f64> for Answer {
    fn from(demand: f64) -> Self {
        Bounds::both(demand).into()
    }
}

// === impl CandidateForecast ===

impl CandidateForecast {
    /// The bounds, as [`run`](crate::run) wants them.
    pub fn bounds(&self) -> Vec<Option<Bounds>> {
        let answers = self.answers.iter();
        answers.map(|one| one.map(|one| one.bounds)).collect()
    }
}

// === impl Tuning ===

impl Tuning {
    /// The settings, ascending.
    pub fn settings(&self) -> &'static [f64] {
        match self {
            Self::Margin => &MARGINS,
            Self::Quantile(settings) | Self::Percent(settings) => settings,
        }
    }

    /// The text of a setting: `+10 %`, `q=0.9` or `a=1 %`.
    pub fn label(&self, setting: f64) -> String {
        match self {
            Self::Margin => format!("+{:.0} %", 100.0 * setting),
            Self::Quantile(_) => format!("q={setting}"),
            Self::Percent(_) => format!("a={setting} %"),
        }
    }
}

/// The forecasts of a candidate over the whole workload, at every tuning setting, limited as by [`ceilings`].
pub fn forecasts(
    candidate: &mut dyn Candidate,
    workload: &Workload<'_>,
    history: &History<'_>,
) -> Vec<CandidateForecast> {
    let first = workload.first();
    let tuning = candidate.tuning();
    let window = candidate.window();
    let ceilings = ceilings(workload);
    let empty = |&setting: &f64| CandidateForecast {
        setting: tuning.label(setting),
        window,
        answers: Vec::with_capacity(ceilings.len()),
    };
    let mut paths: Vec<CandidateForecast> = tuning.settings().iter().map(empty).collect();
    // Before minute 0 nothing is known.
    for t in 1..first {
        candidate.learn(history.before(t));
    }
    for (t, ceiling) in (first..).zip(ceilings) {
        let answers = candidate.at(history.before(t));
        for (i, (path, setting)) in paths.iter_mut().zip(tuning.settings()).enumerate() {
            let answer = match tuning {
                Tuning::Margin => answers.first().map(|answer| answer.raised(*setting)),
                Tuning::Quantile(_) | Tuning::Percent(_) => answers.get(i).copied(),
            };
            path.answers
                .push(answer.map(|answer| answer.limited(ceiling)));
        }
    }
    paths
}

/// The value that no forecast may exceed, for each minute of the run: 1.5 times the highest demand before it.
pub fn ceilings(workload: &Workload<'_>) -> Vec<f64> {
    let highest = workload.demand().iter().scan(0.0_f64, |highest, demand| {
        *highest = highest.max(*demand);
        Some(CEILING_RATIO * *highest)
    });
    let minutes = workload.demand().len() - workload.first();
    highest.skip(workload.first() - 1).take(minutes).collect()
}

/// The highest demand of minutes `from..=from + window`; `None` if they are not all known.
pub(crate) fn highest(known: &[f64], from: usize, window: usize) -> Option<f64> {
    known
        .get(from..=from + window)?
        .iter()
        .copied()
        .reduce(f64::max)
}

/// The mean of the `minutes` before `end`; `None` if they are not all known.
pub(crate) fn level(known: &[f64], end: usize, minutes: usize) -> Option<f64> {
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

        fn window(&self) -> usize {
            7
        }

        fn learn(&mut self, known: Known<'_>) {
            self.learned.push(known.len());
        }

        fn at(&mut self, known: Known<'_>) -> Vec<Answer> {
            self.asked.push(known.len());
            let newest = known.history[known.len() - 1];
            let two = Bounds {
                raise: newest,
                hold: 1.25 * newest,
            };
            vec![two.into(), (2.0 * newest).into()]
        }
    }

    fn rising() -> Vec<f64> {
        (1..=40_u32).map(f64::from).collect()
    }

    fn recorded(recorder: &mut RecordingCandidate) -> Vec<CandidateForecast> {
        let demand = rising();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        forecasts(recorder, &workload, &History::new(&demand, 1))
    }

    fn first(path: &CandidateForecast) -> (&str, f64, f64, f64) {
        let Answer { bounds, peak } = path.answers[0].unwrap();
        (&path.setting, bounds.raise, bounds.hold, peak)
    }

    #[test]
    fn a_candidate_sees_every_minute_once_and_never_the_future() {
        let mut recorder = RecordingCandidate::default();
        let paths = recorded(&mut recorder);
        assert_eq!(recorder.learned, [1, 2]);
        assert_eq!(recorder.asked, (3..40).collect::<Vec<_>>());
        assert_eq!(paths.len(), MARGINS.len());
        for path in paths {
            assert_eq!((path.answers.len(), path.window), (37, 7));
            assert_eq!(path.bounds().len(), 37);
        }
    }

    #[test]
    fn a_margin_raises_the_forecast_up_to_the_ceiling() {
        let paths = recorded(&mut RecordingCandidate::default());
        let of = |setting: &str| {
            let path = paths.iter().find(|path| path.setting == setting).unwrap();
            first(path)
        };
        assert_eq!(of("+0 %"), ("+0 %", 3.0, 3.75, 3.75));
        assert_eq!(of("+25 %"), ("+25 %", 3.75, 4.5, 4.5));
        assert_eq!(of("+120 %"), ("+120 %", 4.5, 4.5, 4.5));
    }

    #[test]
    fn a_candidate_with_quantiles_has_forecasts_for_each() {
        let mut recorder = RecordingCandidate {
            quantiles: true,
            ..RecordingCandidate::default()
        };
        let paths = recorded(&mut recorder);
        let firsts: Vec<_> = paths.iter().map(first).collect();
        assert_eq!(
            firsts,
            [("q=0.5", 3.0, 3.75, 3.75), ("q=0.9", 4.5, 4.5, 4.5)]
        );
    }

    #[test]
    fn the_ceiling_is_of_the_minutes_before() {
        let demand = rising();
        let workload = Workload::counted_from(&demand, 33).unwrap();
        let ceilings = ceilings(&workload);
        assert_eq!((ceilings[0], ceilings[36], ceilings.len()), (4.5, 58.5, 37));
    }

    #[test]
    fn settings_have_the_text_of_the_tables() {
        assert_eq!(Tuning::Margin.label(0.1), "+10 %");
        assert_eq!(Tuning::Quantile(&[]).label(0.95), "q=0.95");
        assert_eq!(Tuning::Percent(&[]).label(0.5), "a=0.5 %");
    }
}
