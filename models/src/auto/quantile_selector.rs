//! [`QuantileSelector`]: finds the quantile that meets a goal. It replays every quantile level against the measured
//! demand with the rules of the autoscaler: the count of the forecast by its two bounds, never below what the HPA asks
//! for, held for five minutes, and in service after the lead time. Each level so has two figures: the share of minutes
//! that were short, and the replicas that they took.
//!
//! ```text
//! bounds at a level -> count of the forecast --+
//!                                              +-> max -> held for 5 min -> serves after the lead time -> short?
//! demand -> count of the HPA ------------------+
//! ```
//!
//! # Source
//! The levels, the half-life and the prior are those of a study on workload traces; half-lives from one to seven days
//! gave similar results.

use std::collections::VecDeque;

use crate::budget::{TradeOff, TradeOffs};
use crate::forecast::{DemandBounds, KEPT_ABOVE};

/// The default quantile.
///
/// # Source
/// Measured on twenty public traces: at every start-up fewer replicas and fewer short minutes than one bound at 90 % with
/// the tolerance of the HPA.
pub const DEFAULT_QUANTILE: f64 = 0.94;
/// The quantiles to choose from.
pub const QUANTILE_LEVELS: [f64; 15] = [
    0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998,
];
/// The half-life of evidence, in days.
const HALF_LIFE_DAYS: f64 = 7.0;
/// Days of evidence before short minutes are compared, with a limit or with a price.
const LEAST_DAYS: f64 = 0.9;
/// Days of evidence that the prior counts for.
const PRIOR_DAYS: f64 = 0.5;
/// The short share that the prior expects, as a part of one minus the quantile: 1 % of the minutes at 0.9.
const PRIOR_SHORT: f64 = 0.1;
/// Demand may exceed the provided capacity by the tolerance of the autoscaler.
const TOLERANCE: f64 = KEPT_ABOVE;

/// One value per quantile level.
pub type PerLevel<T = f64> = [T; QUANTILE_LEVELS.len()];

/// The goal that the quantile is chosen for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// The lowest quantile whose short minutes are at most this share of all.
    AtMost(f64),
    /// The least sum of the short share and this price times the replicas; the initial quantile while it has none.
    Price(Option<f64>),
}

/// The delays with which replica counts take effect, in steps.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaTiming {
    /// Steps from a decision until its replicas serve.
    pub lead: usize,
    /// Steps for which a count is held before it may decrease.
    pub held: usize,
    /// Steps of a day.
    pub day: f64,
}

/// The short minutes that every quantile level would have had, and its replicas.
///
/// # Units
/// Counts are replicas if `per_replica` is known, else amounts of demand.
#[derive(Debug, Clone)]
pub struct QuantileSelector {
    goal: Goal,
    per_replica: Option<f64>,
    timing: ReplicaTiming,
    levels: PerLevel<VirtualAutoscaler>,
    /// The autoscaler without a forecast.
    alone: VirtualAutoscaler,
    retention: f64,
    /// Steps of evidence, forgotten as they age.
    evidence: f64,
}

/// An autoscaler that follows the bounds of one level. Its counts are those of replicas, or an amount of demand where it
/// is not known what a replica carries.
#[derive(Debug, Clone, Default)]
struct VirtualAutoscaler {
    /// The last count of the forecast.
    held: Option<f64>,
    /// The counts that were desired in the last steps, oldest first, and those that were asked for.
    desired: VecDeque<f64>,
    asked: VecDeque<f64>,
    /// Short steps and replicas, forgotten as they age.
    short: f64,
    replicas: f64,
}

// === impl QuantileSelector ===

impl QuantileSelector {
    /// A selector without evidence.
    pub fn new(goal: Goal, per_replica: Option<f64>, timing: ReplicaTiming) -> Self {
        Self {
            goal,
            per_replica: per_replica.filter(|size| size.is_finite() && *size > 0.0),
            timing,
            levels: std::array::from_fn(|_| VirtualAutoscaler::default()),
            alone: VirtualAutoscaler::default(),
            retention: (-1.0 / (HALF_LIFE_DAYS * timing.day)).exp2(),
            evidence: 0.0,
        }
    }

    /// Replaces the goal.
    pub fn set_goal(&mut self, goal: Goal) {
        self.goal = goal;
    }

    /// Records the demand of the last step, and the bounds of the coming windows at each quantile level.
    ///
    /// The demand is compared with what the decisions before provide, before the next one is made.
    pub fn step(&mut self, demand: f64, bounds: &PerLevel<Option<DemandBounds>>) {
        let (size, timing, retention) = (self.per_replica, self.timing, self.retention);
        // Without a forecast all levels are alike, which says nothing about them.
        let is_evidence = bounds.iter().any(Option::is_some);
        if is_evidence {
            self.evidence = retention * self.evidence + 1.0;
        }
        let levels = self.levels.iter_mut().zip(bounds.iter().copied());
        for (level, bounds) in levels.chain([(&mut self.alone, None)]) {
            let is_short = level.is_short(demand, size);
            level.decide(demand, bounds, size, timing);
            if is_evidence {
                level.count(is_short, retention);
            }
        }
    }

    /// The quantile in use; the default before there is enough evidence.
    pub fn quantile(&self) -> f64 {
        match self.goal {
            Goal::AtMost(_) if !self.has_evidence() => DEFAULT_QUANTILE,
            Goal::AtMost(share) => QUANTILE_LEVELS
                .iter()
                .zip(&self.levels)
                .find(|(_, level)| level.short / self.evidence <= share)
                .map_or(QUANTILE_LEVELS[QUANTILE_LEVELS.len() - 1], |(q, _)| *q),
            Goal::Price(price) => price
                .zip(self.trade_offs())
                .and_then(|(price, trade_offs)| trade_offs.at_price(price))
                .unwrap_or(DEFAULT_QUANTILE),
        }
    }

    /// The short minutes and the replicas of each level; `None` before the first forecast. Until there is enough
    /// evidence, the short minutes are those of the prior alone.
    pub fn trade_offs(&self) -> Option<TradeOffs> {
        if self.evidence <= 0.0 {
            return None;
        }
        let prior = PRIOR_DAYS * self.timing.day;
        let evidence = if self.has_evidence() {
            self.evidence
        } else {
            0.0
        };
        let levels = QUANTILE_LEVELS
            .iter()
            .zip(&self.levels)
            .map(|(quantile, level)| {
                let known = if self.has_evidence() {
                    level.short
                } else {
                    0.0
                };
                TradeOff {
                    quantile: *quantile,
                    short: (known + prior * PRIOR_SHORT * (1.0 - quantile)) / (evidence + prior),
                    replicas: level.replicas / self.evidence,
                }
            })
            .collect();
        Some(TradeOffs {
            levels,
            alone: self.alone.replicas / self.evidence,
        })
    }

    /// Returns true if short minutes have been counted for long enough to compare levels by them.
    fn has_evidence(&self) -> bool {
        self.evidence >= LEAST_DAYS * self.timing.day
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        let counts = self.alone.desired.capacity() + self.alone.asked.capacity();
        size_of::<f64>() * counts * (QUANTILE_LEVELS.len() + 1)
    }
}

// === impl VirtualAutoscaler ===

impl VirtualAutoscaler {
    /// Returns true if the demand of the last step exceeded the capacity then: of the least count since `lead` steps
    /// before.
    ///
    /// `demand > 1.1 * count * size`; a level that has not decided yet is never short.
    fn is_short(&self, demand: f64, size: Option<f64>) -> bool {
        let capacity = match self.asked.iter().copied().reduce(f64::min) {
            Some(serving) => serving * size.unwrap_or(1.0),
            None => f64::INFINITY,
        };
        demand > (1.0 + TOLERANCE) * capacity
    }

    /// Decides the next count: the higher of what the HPA and what the forecast ask for.
    fn decide(
        &mut self,
        demand: f64,
        bounds: Option<DemandBounds>,
        size: Option<f64>,
        timing: ReplicaTiming,
    ) {
        let target = size.unwrap_or(1.0);
        let observed = match self.asked.back().copied() {
            Some(current) if (demand / (current * target) - 1.0).abs() <= TOLERANCE => current,
            _ => whole(demand / target, size),
        };
        self.held = bounds.map(|bounds| match bounds.replicas(self.held, target) {
            Some(asked) => whole(asked, size),
            None => self.held.unwrap_or(0.0),
        });
        push(
            &mut self.desired,
            observed.max(self.held.unwrap_or(0.0)),
            timing.held,
        );
        let stabilized = self.desired.iter().copied().fold(0.0, f64::max);
        push(&mut self.asked, stabilized, timing.lead + 1);
    }

    /// Counts the last step and the replicas that are asked for.
    ///
    /// Both sums fade, so that evidence of a week ago weighs half.
    fn count(&mut self, is_short: bool, retention: f64) {
        let asked = self.asked.back().copied().unwrap_or(0.0);
        self.short = retention * self.short + f64::from(u8::from(is_short));
        self.replicas = retention * self.replicas + asked;
    }
}

/// The count rounded up, where a rounding error asks for no replica. Without the size of a replica, counts are amounts
/// and stay fractions.
fn whole(count: f64, size: Option<f64>) -> f64 {
    match size {
        Some(_) => (count - 1e-9).ceil(),
        None => count,
    }
}

/// Adds a value; keeps the newest `keep`.
fn push(values: &mut VecDeque<f64>, value: f64, keep: usize) {
    while values.len() >= keep.max(1) {
        values.pop_front();
    }
    values.push_back(value);
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
    fn selector(goal: Goal) -> QuantileSelector {
        let mut selector = QuantileSelector::new(goal, Some(1.0), timing(1, 1));
        for i in 1..=20_000_u32 {
            let demand = 1.05 * f64::from(i.trailing_zeros());
            let bounds = std::array::from_fn(|level| {
                Some(DemandBounds::both(crate::series::count(level + 1) / 0.95))
            });
            selector.step(demand, &bounds);
        }
        selector
    }

    #[test]
    fn the_lowest_level_within_the_allowed_share_is_used() {
        // A demand of 1.05 k is within 1.1 k, so level k (k replicas) is exceeded once in 2^(k+1) steps.
        let selected = |percent: f64| selector(Goal::AtMost(percent / 100.0)).quantile().to_bits();
        assert_eq!(selected(26.0), QUANTILE_LEVELS[0].to_bits());
        assert_eq!(selected(13.0), QUANTILE_LEVELS[1].to_bits());
        assert_eq!(selected(1.7), QUANTILE_LEVELS[4].to_bits());
        // The highest demand there was is 14.7: 14 replicas are enough for it.
        assert_eq!(selected(1e-9), QUANTILE_LEVELS[13].to_bits());
    }

    #[test]
    fn a_price_buys_replicas_until_the_next_one_saves_less_than_it_costs() {
        // The replica from k to k + 1 saves one short step in 2^(k+2), and a rising demand makes the HPA ask for a few.
        let mut selector = selector(Goal::AtMost(0.0));
        let mut at = |price: f64| {
            selector.set_goal(Goal::Price(Some(price)));
            selector.quantile()
        };
        assert!(at(0.0) >= QUANTILE_LEVELS[12]);
        assert!(at(1.0).to_bits() == QUANTILE_LEVELS[0].to_bits());
        let bought = [0.2, 0.1, 0.05, 0.02, 0.01].map(&mut at);
        assert!(bought.is_sorted(), "{bought:?}");
        assert!(bought[4] > bought[0], "{bought:?}");
    }

    #[test]
    fn replicas_and_short_steps_are_those_of_the_level() {
        let trade_offs = selector(Goal::Price(None)).trade_offs().unwrap();
        // The prior counts for fifty steps of about a thousand.
        let level = trade_offs.levels[1];
        assert!((level.short - 0.125).abs() < 0.01, "{level:?}");
        assert!((2.0..2.6).contains(&level.replicas), "{level:?}");
        assert!(trade_offs.alone < level.replicas);
    }

    #[test]
    fn without_evidence_the_default_is_used() {
        let mut objective = QuantileSelector::new(Goal::AtMost(0.01), None, timing(2, 5));
        for _ in 0..90 {
            assert_eq!(objective.quantile().to_bits(), DEFAULT_QUANTILE.to_bits());
            objective.step(1.0, &[Some(DemandBounds::both(2.0)); QUANTILE_LEVELS.len()]);
        }
    }

    #[test]
    fn short_minutes_of_less_than_a_day_are_those_of_the_prior() {
        let mut selector = QuantileSelector::new(Goal::Price(None), Some(1.0), timing(0, 1));
        // Every second step is beyond what the lowest levels provide.
        let step = |selector: &mut QuantileSelector, i: u32| {
            let bounds = |level| Some(DemandBounds::both(crate::series::count(level + 1) / 0.95));
            let bounds = std::array::from_fn(bounds);
            selector.step(f64::from(1 + 4 * (i % 2)), &bounds);
        };
        (0..89).for_each(|i| step(&mut selector, i));
        let early = selector.trade_offs().unwrap();
        for level in &early.levels {
            let prior = PRIOR_SHORT * (1.0 - level.quantile);
            assert!((level.short - prior).abs() < 1e-12, "{level:?}");
        }
        (89..100).for_each(|i| step(&mut selector, i));
        assert!(selector.trade_offs().unwrap().levels[0].short > 0.2);
    }

    #[test]
    fn steps_without_a_forecast_are_no_evidence() {
        let mut selector = QuantileSelector::new(Goal::Price(None), Some(1.0), timing(0, 1));
        for _ in 0..100 {
            selector.step(3.0, &[None; QUANTILE_LEVELS.len()]);
        }
        assert_eq!(selector.trade_offs(), None);
        for _ in 0..100 {
            selector.step(
                3.0,
                &[Some(DemandBounds::both(6.0 / 0.95)); QUANTILE_LEVELS.len()],
            );
        }
        let trade_offs = selector.trade_offs().unwrap();
        assert!((trade_offs.alone - 3.0).abs() < 1e-9);
        assert!((trade_offs.levels[0].replicas - 6.0).abs() < 1e-9);
    }
}
