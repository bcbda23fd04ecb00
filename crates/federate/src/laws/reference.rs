//! The reference: one autoscaler over the whole fleet, as Kubernetes would run it. Scale-down of a fleet is compared
//! with it.

use std::collections::{BTreeSet, VecDeque};

use crate::Policy;

use super::fixtures::ceil;

/// The user's scale-down behavior.
#[derive(Clone, Copy, Debug)]
pub struct Behavior {
    /// `stabilizationWindowSeconds`.
    pub window: i64,
    /// At most this many pods in this many seconds, if set.
    pub policy: Option<(u32, i64)>,
}

impl Behavior {
    /// The fewest replicas that may be left of `current`, after recent scale-downs.
    pub fn least(self, current: u32, downs: &VecDeque<(i64, u32)>, now: i64) -> u32 {
        let Some((pods, period)) = self.policy else {
            return 0;
        };
        let recent = downs.iter().filter(|(when, _)| now - when < period);
        let before = current + recent.map(|(_, count)| count).sum::<u32>();
        before.saturating_sub(pods).min(current)
    }

    /// How long a new autoscaler without history scales nothing down.
    fn hold_period(self) -> i64 {
        self.window.max(self.policy.map_or(0, |(_, period)| period))
    }
}

/// The observation of the whole fleet.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The members whose pods it counts.
    pub counted: BTreeSet<String>,
    pub current: u32,
    pub ready: u32,
    /// In replicas; absent when a part of it is unknown.
    pub demand: Option<f64>,
    pub floor: Option<u32>,
}

/// The reference autoscaler. It runs in lock-step with the fleet, so its current count is always the fleet's.
#[derive(Clone, Debug, Default)]
pub struct ReferenceAutoscaler {
    log: VecDeque<(i64, u32)>,
    downs: VecDeque<(i64, u32)>,
    /// The members whose pods it counts.
    pub counted: BTreeSet<String>,
    current: u32,
    hold_until: i64,
    /// The count that it would set now.
    pub desired: u32,
}

impl ReferenceAutoscaler {
    /// One pass; the history starts again when other members are counted than before.
    pub fn pass(&mut self, policy: &Policy, behavior: Behavior, reading: Reading, now: i64) -> u32 {
        let current = reading.current;
        if self.counted == reading.counted {
            if current < self.current {
                self.downs.push_back((now, self.current - current));
            }
        } else {
            *self = Self {
                counted: reading.counted,
                hold_until: now + behavior.hold_period(),
                ..Self::default()
            };
        }
        self.current = current;
        let recommended = reading.demand.map(|demand| {
            let ready = f64::from(reading.ready);
            let is_off = (demand - ready).abs() > policy.tolerance * ready && ready > 0.0;
            if is_off { ceil(demand) } else { current }
        });
        let (min, max) = (policy.bounds.min.get(), policy.bounds.max.get());
        let observed = match recommended {
            _ if current > max => max,
            None => current,
            Some(recommended) => {
                self.log.push_back((now, recommended));
                self.log.retain(|(when, _)| now - when <= behavior.window);
                let highest = self.log.iter().map(|(_, count)| *count).max();
                let held = highest.unwrap_or(0).min(current.max(recommended));
                let least = behavior.least(current, &self.downs, now);
                held.max(recommended).max(least)
            }
        };
        let mut desired = observed.max(reading.floor.unwrap_or(0)).clamp(min, max);
        if now < self.hold_until && current <= max {
            desired = desired.max(current);
        }
        self.desired = desired;
        desired
    }
}
