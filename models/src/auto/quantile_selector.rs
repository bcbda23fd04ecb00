//! [`QuantileSelector`]: finds the lowest quantile whose under-provisioned minutes stay below the share that the user
//! allows. It replays every quantile level against the measured demand with the rules of the autoscaler: replicas are
//! rounded up, never below what the last minute needs, held for five minutes, and serve after the lead time.
//!
//! # Source
//! The levels and the half-life are those of a study on workload traces; half-lives from one to seven days gave similar
//! results.

use std::collections::VecDeque;

/// The quantiles to choose from.
pub(super) const QUANTILE_LEVELS: [f64; 15] = [
    0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998,
];
/// The half-life of evidence, in days.
const HALF_LIFE_DAYS: f64 = 7.0;
/// Demand may exceed the provided capacity by the tolerance of the autoscaler.
const TOLERANCE: f64 = 1.1;

/// One value per quantile level.
pub(super) type PerLevel = [f64; QUANTILE_LEVELS.len()];

/// How replica counts take effect, in steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplicaTiming {
    /// From a decision until its replicas serve.
    pub(super) lead: usize,
    /// For which a count is held before it may decrease.
    pub(super) held: usize,
    /// Steps of a day.
    pub(super) day: f64,
}

/// The under-provisioning that every quantile level would have had.
#[derive(Debug, Clone)]
pub(super) struct QuantileSelector {
    /// The share of minutes that may be under-provisioned.
    allowed: f64,
    per_replica: Option<f64>,
    timing: ReplicaTiming,
    /// The capacity decided at the last steps, oldest first.
    decided: VecDeque<PerLevel>,
    retention: f64,
    /// Steps of evidence, forgotten as they age, and steps a day.
    evidence: f64,
    breaches: PerLevel,
}

// === impl QuantileSelector ===

impl QuantileSelector {
    /// The quantile in use before a day of evidence.
    pub(super) const INITIAL: f64 = 0.9;

    /// A selector without evidence.
    pub(super) fn new(percent: f64, per_replica: Option<f64>, timing: ReplicaTiming) -> Self {
        Self {
            allowed: percent / 100.0,
            per_replica: per_replica.filter(|size| size.is_finite() && *size > 0.0),
            timing,
            decided: VecDeque::with_capacity(timing.lead + timing.held + 1),
            retention: (-1.0 / (HALF_LIFE_DAYS * timing.day)).exp2(),
            evidence: 0.0,
            breaches: [0.0; QUANTILE_LEVELS.len()],
        }
    }

    /// Records the demand of the last step, and the upper bound that each quantile level gives for the coming window.
    pub(super) fn step(&mut self, demand: f64, bounds: &PerLevel) {
        if self.decided.len() > self.timing.lead + self.timing.held {
            self.evaluate(demand);
            self.decided.pop_front();
        }
        let mut capacity = [0.0; QUANTILE_LEVELS.len()];
        for (capacity, bound) in capacity.iter_mut().zip(bounds) {
            *capacity = self.capacity(bound.max(demand));
        }
        self.decided.push_back(capacity);
    }

    /// The quantile in use: the lowest level within the allowed share, else the highest one; `0.9` before a day of
    /// evidence.
    pub(super) fn quantile(&self) -> f64 {
        if self.evidence < 0.9 * self.timing.day {
            return Self::INITIAL;
        }
        let levels = QUANTILE_LEVELS.iter().zip(&self.breaches);
        let kept = |breaches: &f64| breaches / self.evidence <= self.allowed;
        let mut kept = levels.filter(|(_, breaches)| kept(breaches));
        kept.next()
            .map_or(QUANTILE_LEVELS[QUANTILE_LEVELS.len() - 1], |(q, _)| *q)
    }

    /// Bytes kept on the heap.
    pub(super) fn bytes(&self) -> usize {
        size_of::<PerLevel>() * self.decided.capacity()
    }

    /// Compares the demand with the capacity in service, which was decided `lead` steps ago or in the steps before for
    /// which a count is held.
    fn evaluate(&mut self, demand: f64) {
        self.evidence = self.retention * self.evidence + 1.0;
        for (level, breaches) in self.breaches.iter_mut().enumerate() {
            let serving = self
                .decided
                .iter()
                .take(self.timing.held)
                .map(|decided| decided[level]);
            let serving = serving.fold(0.0, f64::max);
            let breach = if demand > TOLERANCE * serving {
                1.0
            } else {
                0.0
            };
            *breaches = self.retention * *breaches + breach;
        }
    }

    fn capacity(&self, demand: f64) -> f64 {
        match self.per_replica {
            Some(size) => (demand / size - 1e-9).ceil() * size,
            None => demand,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(lead: usize, held: usize) -> ReplicaTiming {
        ReplicaTiming {
            lead,
            held,
            day: 100.0,
        }
    }

    /// Every level `i` provides `i + 1` replicas of size 1 for a demand that exceeds `k` of them once in 2^k steps.
    fn selected(percent: f64) -> f64 {
        let mut objective = QuantileSelector::new(percent, Some(1.0), timing(1, 1));
        for i in 1..=20_000_u32 {
            let demand = 1.05 * f64::from(i.trailing_zeros());
            let bounds = std::array::from_fn(|level| crate::series::count(level + 1));
            objective.step(demand, &bounds);
        }
        objective.quantile()
    }

    #[test]
    fn the_lowest_level_within_the_allowed_share_is_used() {
        // A demand of 1.05 k is within 1.1 k, so level k (k replicas) is exceeded once in 2^(k+1) steps.
        assert_eq!(selected(26.0).to_bits(), QUANTILE_LEVELS[0].to_bits());
        assert_eq!(selected(13.0).to_bits(), QUANTILE_LEVELS[1].to_bits());
        assert_eq!(selected(1.7).to_bits(), QUANTILE_LEVELS[4].to_bits());
        // The highest demand there was is 14.7: 14 replicas are enough for it.
        assert_eq!(selected(1e-9).to_bits(), QUANTILE_LEVELS[13].to_bits());
    }

    #[test]
    fn without_evidence_the_default_is_used() {
        let mut objective = QuantileSelector::new(1.0, None, timing(2, 5));
        for _ in 0..90 {
            assert_eq!(
                objective.quantile().to_bits(),
                QuantileSelector::INITIAL.to_bits()
            );
            objective.step(1.0, &[2.0; QUANTILE_LEVELS.len()]);
        }
    }
}
