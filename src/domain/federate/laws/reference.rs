//! One autoscaler over the whole fleet, as Kubernetes would run it: what a fleet is measured by when it scales down.

use std::collections::{BTreeSet, VecDeque};

use crate::domain::federate::Policy;

use super::simulation::ceil;

/// How the user lets autoscalers scale down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behavior {
    /// `stabilizationWindowSeconds`.
    pub(super) window: i64,
    /// At most so many pods in so many seconds, if the user says so.
    pub(super) policy: Option<(u32, i64)>,
}

impl Behavior {
    /// The fewest replicas that may be left of `current`, after what went down already.
    pub(super) fn least(self, current: u32, downs: &VecDeque<(i64, u32)>, now: i64) -> u32 {
        let Some((pods, period)) = self.policy else {
            return 0;
        };
        let recent = downs.iter().filter(|(when, _)| now - when < period);
        let before = current + recent.map(|(_, count)| count).sum::<u32>();
        before.saturating_sub(pods).min(current)
    }

    /// For how long nothing is scaled down when nothing is remembered.
    fn patience(self) -> i64 {
        self.window.max(self.policy.map_or(0, |(_, period)| period))
    }
}

/// What it reads of the whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) current: u32,
    pub(super) ready: u32,
    /// In replicas; absent when a part of it is not known.
    pub(super) demand: Option<f64>,
    pub(super) floor: Option<u32>,
}

/// Its memory: it is in lock-step with the fleet, so that the count that it goes on from is always the fleet's.
#[derive(Clone, Debug, Default)]
pub(super) struct ReferenceAutoscaler {
    log: VecDeque<(i64, u32)>,
    downs: VecDeque<(i64, u32)>,
    /// Whose pods it counts.
    pub(super) counted: BTreeSet<String>,
    current: u32,
    hold_until: i64,
    /// The count that it would have now.
    pub(super) desired: u32,
}

impl ReferenceAutoscaler {
    /// One pass; where other members count than before its memory was about another whole.
    pub(super) fn pass(
        &mut self,
        policy: &Policy,
        behavior: Behavior,
        (counted, reading): (BTreeSet<String>, Reading),
        now: i64,
    ) -> u32 {
        let Reading { current, .. } = reading;
        if self.counted == counted {
            if current < self.current {
                self.downs.push_back((now, self.current - current));
            }
        } else {
            *self = Self {
                counted,
                hold_until: now + behavior.patience(),
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
