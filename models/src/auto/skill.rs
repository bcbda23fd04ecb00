//! [`SkillTracker`]: the coverage of past predictions, and their skill against persistence (repeating the current
//! level).

/// The evidence needed for a result, as a part of the averaging time: one day of three.
const LEAST_EVIDENCE: f64 = 1.0 / 3.0;
/// Days that the averages cover.
pub const MEMORY_DAYS: f64 = 3.0;

/// The upper bounds that one decision window was predicted to stay within.
///
/// # Units
/// That of the demand.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub model: f64,
    pub persistence: f64,
    /// The bound of the model as it is published, whose coverage is followed.
    pub published: f64,
    /// The quantile of all three bounds.
    pub quantile: f64,
}

/// One prediction and its outcome.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub demand: f64,
    pub bounds: Bounds,
}

/// Moving averages over about three days.
///
/// # Formula
/// Each average moves by `share` of the difference with every outcome, from zero; divided by `evidence`, which moves
/// from zero to one alike, it is the mean of what was seen.
#[derive(Debug, Clone)]
pub struct SkillTracker {
    /// The weight of one step.
    share: f64,
    /// The total weight of the averages, up to 1.
    evidence: f64,
    covered: f64,
    covered_by_persistence: f64,
    loss: f64,
    loss_of_persistence: f64,
}

// === impl SkillTracker ===

impl SkillTracker {
    /// A tracker without data; `day` steps make a day.
    pub fn new(day: f64) -> Self {
        Self {
            share: 1.0 / (MEMORY_DAYS * day),
            evidence: 0.0,
            covered: 0.0,
            covered_by_persistence: 0.0,
            loss: 0.0,
            loss_of_persistence: 0.0,
        }
    }

    /// Records the outcome of one prediction.
    pub fn note(&mut self, outcome: &Outcome) {
        let Bounds {
            model,
            persistence,
            published,
            ..
        } = outcome.bounds;
        let within = |bound| f64::from(u8::from(outcome.demand <= bound));
        let share = self.share;
        let blend = |average: &mut f64, value: f64| *average += share * (value - *average);
        blend(&mut self.evidence, 1.0);
        blend(&mut self.covered, within(published));
        blend(&mut self.covered_by_persistence, within(persistence));
        blend(&mut self.loss, pinball(outcome, model));
        blend(&mut self.loss_of_persistence, pinball(outcome, persistence));
    }

    /// The share of windows whose demand stayed within the model's bound; `None` without a day of evidence.
    pub fn coverage(&self) -> Option<f64> {
        self.has_evidence().then(|| self.covered / self.evidence)
    }

    /// The share of windows whose demand stayed within the bound of persistence; `None` without a day of evidence.
    pub fn coverage_of_persistence(&self) -> Option<f64> {
        self.has_evidence()
            .then(|| self.covered_by_persistence / self.evidence)
    }

    /// One minus the loss relative to that of persistence; `None` without a day of evidence, or if the loss of
    /// persistence is zero.
    pub fn skill(&self) -> Option<f64> {
        (self.has_evidence() && self.loss_of_persistence > 0.0)
            .then(|| 1.0 - self.loss / self.loss_of_persistence)
    }

    /// Returns true if the averages have seen enough: a day, at one outcome a step.
    fn has_evidence(&self) -> bool {
        // The weight of a day in averages over three: 1 - exp(-1/3).
        self.evidence >= 1.0 - (-LEAST_EVIDENCE).exp()
    }
}

/// The pinball loss: `q` per unit below the demand, `1 - q` per unit above it.
fn pinball(outcome: &Outcome, bound: f64) -> f64 {
    let short = outcome.demand - bound;
    f64::max(
        outcome.bounds.quantile * short,
        (outcome.bounds.quantile - 1.0) * short,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_and_skill_match_the_outcomes() {
        let mut skill_tracker = SkillTracker::new(10.0);
        // Three of four stay within 5; the bound of persistence is 9, four times as far above the lower demand.
        for i in 0..400_u32 {
            let demand = if i % 4 == 0 { 6.0 } else { 4.0 };
            skill_tracker.note(&Outcome {
                demand,
                bounds: Bounds {
                    model: 5.0,
                    persistence: 9.0,
                    published: 5.0,
                    quantile: 0.75,
                },
            });
        }
        let coverage = skill_tracker.coverage().unwrap();
        assert!((coverage - 0.75).abs() < 0.03, "{coverage}");
        let of_persistence = skill_tracker.coverage_of_persistence().unwrap();
        assert!((of_persistence - 1.0).abs() < 1e-9, "{of_persistence}");
        // The model loses 0.75 or 0.25 per step, on average 0.375; persistence 0.75 or 1.25, on average 1.125.
        let skill = skill_tracker.skill().unwrap();
        assert!((skill - (1.0 - 0.375 / 1.125)).abs() < 0.03, "{skill}");
    }

    #[test]
    fn there_is_no_result_before_a_day_of_evidence() {
        let mut skill_tracker = SkillTracker::new(10.0);
        for _ in 0..10 {
            assert_eq!(
                (skill_tracker.coverage(), skill_tracker.skill()),
                (None, None)
            );
            skill_tracker.note(&Outcome {
                demand: 1.0,
                bounds: Bounds {
                    model: 2.0,
                    persistence: 3.0,
                    published: 2.0,
                    quantile: 0.9,
                },
            });
        }
        assert!(skill_tracker.coverage().is_some() && skill_tracker.skill().is_some());
    }
}
