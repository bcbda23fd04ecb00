//! How well predictions have done: how often the demand stayed within them, and whether they beat "it stays as it is".
//! Measures and judges; what follows from it is decided in `online`.

/// Steps' worth of evidence before a verdict, as a part of the memory: a day of three.
const LEAST_EVIDENCE: f64 = 1.0 / 3.0;
/// Days that are remembered, on average.
pub(super) const MEMORY_DAYS: f64 = 3.0;

/// One prediction and what came of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) demand: f64,
    /// What it was said to stay within, by the model and by "it stays as it is".
    pub(super) bounds: (f64, f64),
    pub(super) quantile: f64,
}

/// Moving averages over about three days.
#[derive(Debug, Clone)]
pub(super) struct Track {
    /// What one step adds.
    share: f64,
    /// What the averages rest on, up to 1.
    evidence: f64,
    covered: f64,
    covered_by_persistence: f64,
    loss: f64,
    loss_of_persistence: f64,
}

// === impl Track ===

impl Track {
    /// Nothing seen yet; `day` steps make a day.
    pub(super) fn new(day: f64) -> Self {
        Self {
            share: 1.0 / (MEMORY_DAYS * day),
            evidence: 0.0,
            covered: 0.0,
            covered_by_persistence: 0.0,
            loss: 0.0,
            loss_of_persistence: 0.0,
        }
    }

    /// Takes in what came of one prediction.
    pub(super) fn note(&mut self, outcome: &Outcome) {
        let (model, persistence) = outcome.bounds;
        let within = |bound| f64::from(u8::from(outcome.demand <= bound));
        let share = self.share;
        let blend = |average: &mut f64, value: f64| *average += share * (value - *average);
        blend(&mut self.evidence, 1.0);
        blend(&mut self.covered, within(model));
        blend(&mut self.covered_by_persistence, within(persistence));
        blend(&mut self.loss, pinball(outcome, model));
        blend(&mut self.loss_of_persistence, pinball(outcome, persistence));
    }

    /// The part of the windows whose demand stayed within the model's prediction; none without a day of evidence.
    pub(super) fn coverage(&self) -> Option<f64> {
        self.judge().then(|| self.covered / self.evidence)
    }

    /// The same of "it stays as it is".
    pub(super) fn coverage_of_persistence(&self) -> Option<f64> {
        let judged = self.judge();
        judged.then(|| self.covered_by_persistence / self.evidence)
    }

    /// One minus the loss over that of "it stays as it is"; none without a day of evidence, or when nothing was ever
    /// lost.
    pub(super) fn skill(&self) -> Option<f64> {
        let judged = self.judge() && self.loss_of_persistence > 0.0;
        judged.then(|| 1.0 - self.loss / self.loss_of_persistence)
    }

    fn judge(&self) -> bool {
        // The weight of a day in averages over three: 1 - exp(-1/3).
        self.evidence >= 1.0 - (-LEAST_EVIDENCE).exp()
    }
}

/// What a prediction cost: `q` per unit that it was too low, `1 - q` per unit that it was too high.
fn pinball(outcome: &Outcome, bound: f64) -> f64 {
    let short = outcome.demand - bound;
    f64::max(outcome.quantile * short, (outcome.quantile - 1.0) * short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_and_skill_are_those_of_the_outcomes() {
        let mut track = Track::new(10.0);
        // Three of four stay within 5; persistence says 9 and loses four times as much above as the model.
        for i in 0..400_u32 {
            let demand = if i % 4 == 0 { 6.0 } else { 4.0 };
            track.note(&Outcome {
                demand,
                bounds: (5.0, 9.0),
                quantile: 0.75,
            });
        }
        let coverage = track.coverage().unwrap();
        assert!((coverage - 0.75).abs() < 0.03, "{coverage}");
        let of_persistence = track.coverage_of_persistence().unwrap();
        assert!((of_persistence - 1.0).abs() < 1e-9, "{of_persistence}");
        // The model loses 0.75 or 0.25 per step, on average 0.375; persistence 0.75 or 1.25, on average 1.125.
        let skill = track.skill().unwrap();
        assert!((skill - (1.0 - 0.375 / 1.125)).abs() < 0.03, "{skill}");
    }

    #[test]
    fn there_is_no_verdict_before_a_day() {
        let mut track = Track::new(10.0);
        for _ in 0..10 {
            assert_eq!((track.coverage(), track.skill()), (None, None));
            track.note(&Outcome {
                demand: 1.0,
                bounds: (2.0, 3.0),
                quantile: 0.9,
            });
        }
        assert!(track.coverage().is_some() && track.skill().is_some());
    }
}
