//! The lowest quantile whose under-provisioned minutes stay below what the user allows, found by playing every quantile
//! of a ladder against what really came. Plays with replicas as the autoscaler would: rounded up, never below what the
//! last minute asks for, held for five minutes, serving after the lead time.
//!
//! # Source
//! The ladder and the half-life are those of a study on workload traces, where half-lives from one to seven days did alike.

use std::collections::VecDeque;

/// The quantiles to choose from.
pub(super) const LADDER: [f64; 15] = [
    0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998,
];
/// Days after which evidence has half its weight.
const HALF_LIFE_DAYS: f64 = 7.0;
/// How far demand may exceed what is provided, as the autoscaler's own tolerance allows.
const TOLERANCE: f64 = 1.1;
/// Minutes that a count is held before it may come down.
pub(super) const HELD_MINUTES: i64 = 5;

/// One value per rung.
pub(super) type Rungs = [f64; LADDER.len()];

/// How every quantile would have done.
#[derive(Debug, Clone)]
pub(super) struct Objective {
    /// The part of all minutes that may be under-provisioned.
    allowed: f64,
    per_replica: Option<f64>,
    /// Steps from a decision until it serves, and steps that a count is held.
    lead: usize,
    held: usize,
    /// What was decided at the last steps, oldest first.
    decided: VecDeque<Rungs>,
    retention: f64,
    /// Steps of evidence, forgotten as they age, and steps a day.
    evidence: f64,
    day: f64,
    breaches: Rungs,
}

// === impl Objective ===

impl Objective {
    /// The quantile in use without evidence.
    pub(super) const AT_FIRST: f64 = 0.9;

    /// An objective without evidence.
    pub(super) fn new(
        percent: f64,
        per_replica: Option<f64>,
        (lead, held): (usize, usize),
        day: f64,
    ) -> Self {
        Self {
            allowed: percent / 100.0,
            per_replica: per_replica.filter(|size| size.is_finite() && *size > 0.0),
            lead,
            held,
            decided: VecDeque::with_capacity(lead + held + 1),
            retention: (-1.0 / (HALF_LIFE_DAYS * day)).exp2(),
            evidence: 0.0,
            day,
            breaches: [0.0; LADDER.len()],
        }
    }

    /// Takes in the demand of the last step, and what every rung says that the coming window stays within.
    pub(super) fn step(&mut self, demand: f64, bounds: &Rungs) {
        if self.decided.len() > self.lead + self.held {
            self.judge(demand);
            self.decided.pop_front();
        }
        let mut capacity = [0.0; LADDER.len()];
        for (capacity, bound) in capacity.iter_mut().zip(bounds) {
            *capacity = self.capacity(bound.max(demand));
        }
        self.decided.push_back(capacity);
    }

    /// The quantile in use: the lowest rung that keeps the promise, else the highest; `0.9` before a day of evidence.
    pub(super) fn quantile(&self) -> f64 {
        if self.evidence < 0.9 * self.day {
            return Self::AT_FIRST;
        }
        let rungs = LADDER.iter().zip(&self.breaches);
        let kept = |breaches: &f64| breaches / self.evidence <= self.allowed;
        let mut kept = rungs.filter(|(_, breaches)| kept(breaches));
        kept.next().map_or(LADDER[LADDER.len() - 1], |(q, _)| *q)
    }

    /// What is kept on the heap.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Rungs>() * self.decided.capacity()
    }

    /// What serves now was decided `lead` steps ago, or within the time that it is held before.
    fn judge(&mut self, demand: f64) {
        self.evidence = self.retention * self.evidence + 1.0;
        for (rung, breaches) in self.breaches.iter_mut().enumerate() {
            let serving = self
                .decided
                .iter()
                .take(self.held)
                .map(|decided| decided[rung]);
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

    /// Every rung `i` provides `i + 1` replicas of size 1 for a demand that exceeds `k` of them once in 2^k steps.
    fn played(percent: f64) -> f64 {
        let mut objective = Objective::new(percent, Some(1.0), (1, 1), 100.0);
        for i in 1..=20_000_u32 {
            let demand = 1.05 * f64::from(i.trailing_zeros());
            let bounds = std::array::from_fn(|rung| crate::series::count(rung + 1));
            objective.step(demand, &bounds);
        }
        objective.quantile()
    }

    #[test]
    fn the_lowest_rung_that_keeps_the_promise_is_used() {
        // A demand of 1.05 k is within 1.1 k, so rung k (k replicas) is exceeded once in 2^(k+1) steps.
        assert_eq!(played(26.0).to_bits(), LADDER[0].to_bits());
        assert_eq!(played(13.0).to_bits(), LADDER[1].to_bits());
        assert_eq!(played(1.7).to_bits(), LADDER[4].to_bits());
        // The highest demand there was is 14.7: 14 replicas are enough for it.
        assert_eq!(played(1e-9).to_bits(), LADDER[13].to_bits());
    }

    #[test]
    fn without_evidence_the_default_is_used() {
        let mut objective = Objective::new(1.0, None, (2, 5), 100.0);
        for _ in 0..90 {
            assert_eq!(
                objective.quantile().to_bits(),
                Objective::AT_FIRST.to_bits()
            );
            objective.step(1.0, &[2.0; LADDER.len()]);
        }
    }
}
