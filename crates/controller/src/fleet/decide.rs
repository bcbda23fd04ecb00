//! Second step of a fleet's sync: the fleet as one workload, decided like any other.
//!
//! The ordinary decision over everything that was seen gives the proposals, the winner, the message and the floor.
//! While a member or a metric is missing, there is no total demand. `foretide-federate` divides the result.

use std::collections::BTreeSet;

use foretide_domain::{
    Observation, ReplicaBounds, Replicas, Scale, autoscale,
    autoscale::history::History,
    demand,
    hpa::{MetricSpec, Verdict},
    observation::{Measured, Reading},
    workload::{Mode, Workload},
};
use foretide_federate::{ShareStatus, Total};
use jiff::Timestamp;

use foretide_api::validation::FleetCourse;

use super::{
    item::FleetItem, merged_metrics::Members, participants::Participants, state::FleetState,
};
use crate::{
    decide::{DecideContext, Decided},
    forecaster::forecasts::Forecasts,
    observe::WorkloadObservation,
    part::{Part, Permission},
    target::TargetState,
};

/// The decision for a fleet as one workload, and the total that is to be divided.
#[derive(Debug)]
pub struct WorkloadDecided {
    /// The decision, as for an autoscaler of one cluster; its action is not carried out.
    pub decided: Decided,
    /// The total that is to be divided.
    pub total: Total,
}

/// A fleet as one workload, to be decided.
#[derive(Debug)]
pub struct FleetWorkload<'a, M> {
    /// The context of the decision.
    pub context: &'a DecideContext<'a>,
    /// The forecasts in force.
    pub forecasts: &'a Forecasts,
    pub item: &'a FleetItem,
    /// The members whose pods are the fleet's.
    pub participants: &'a Participants<'a, M>,
}

// === impl FleetWorkload ===

impl<M> FleetWorkload<'_, M> {
    /// Decides the fleet as one workload; `target` is the state of that workload, `fleet` that of its members.
    pub fn decide(&self, target: &mut TargetState, fleet: &mut FleetState) -> WorkloadDecided {
        let spec = self.item.fleet_spec();
        let FleetCourse {
            pinned,
            divides,
            writes_counts,
            ..
        } = spec.course;
        let present = self.participants.workloads();
        let unreachable = self.unreachable(fleet);
        let mut counted = BTreeSet::new();
        counted.extend(present.iter().map(|(name, _)| (*name).to_owned()));
        counted.extend(unreachable.iter().map(|(name, _)| (*name).to_owned()));
        let clusters = u32::try_from(counted.len()).unwrap_or(u32::MAX);
        let counts = unreachable.into_iter().map(|(_, count)| count);
        let observation = Members {
            item: self.item,
            present: &present,
            unreachable: counts.fold(Replicas::ZERO, Replicas::saturating_add),
            hub: &self.participants.observed.hub,
        }
        .merged(self.forecasts, self.context.now);
        let current = observation.observation.scale.spec;
        // First: a member that is found or lost changes the count, but nobody has scaled.
        self.restart_log_if_recounted(target, fleet, counted);
        self.record_change(target, fleet, current);
        // Where nothing is divided, the whole is as many equal parts as there are members; one also where none was seen.
        let parts = if divides { 1 } else { clusters.max(1) };
        let workload = whole_workload(self.item, parts).into();
        let permission = if writes_counts || pinned.is_some() {
            Permission::All
        } else {
            // The children write the counts.
            Permission::Nothing
        };
        let part = Part {
            permission,
            ..self.item.part(&workload)
        };
        let decided = self.context.decide_whole(target, part, observation);
        let seen = &decided.observation;
        let readings = (spec.workload.metrics.iter()).zip(&seen.observation.readings);
        let demand = largest_demand(readings, seen, self.context.now);
        let total = Total {
            demand: demand.filter(|_| self.participants.are_all_seen()),
            // Pods that no longer have a budget must not end below a pinned count either.
            floor: self.floor(fleet, &decided, parts).max(pinned),
            // Where nothing is divided, each member decides its own.
            desired: pinned.or(divides.then_some(decided.decision.desired)),
        };
        WorkloadDecided { decided, total }
    }

    /// The last counts of the members that do not answer, as far as they are known: until a member counts as failed,
    /// its pods are assumed to run. None where the hub writes counts, which are divided among the members that answer.
    fn unreachable(&self, fleet: &FleetState) -> Vec<(&str, Replicas)> {
        if self.item.fleet_spec().course.writes_counts {
            return Vec::new();
        }
        let mut last = Vec::new();
        for name in self.participants.unseen() {
            let entry = fleet.ledger.members.get(name);
            let pods = (fleet.members.get(name)).and_then(|it| it.last.as_ref()?.pods);
            if let Some(pods) = pods
                && entry.is_none_or(|it| it.share_status != ShareStatus::Failed)
            {
                last.push((name, pods.replicas));
            }
        }
        last
    }

    /// Restarts the log of readings if the `counted` members are not those of the last sync, which it is about.
    fn restart_log_if_recounted(
        &self,
        target: &mut TargetState,
        fleet: &mut FleetState,
        counted: BTreeSet<String>,
    ) {
        let before = fleet.counted.replace(counted);
        fleet.is_recounted = before != fleet.counted;
        if before.is_none() || !fleet.is_recounted {
            return;
        }
        // The count was that of the previous members.
        fleet.current = None;
        let DecideContext { settings, now } = *self.context;
        let behavior = self.item.fleet_spec().workload.behavior.as_ref();
        let lost = History::lost(now, behavior, settings);
        target.history.log = lost.log;
        target.history.hold_until = lost.hold_until;
    }

    /// Records by how much the members' HPAs changed the count since the last decision: the rate limits of the user's
    /// policies apply to all of them together.
    fn record_change(&self, target: &mut TargetState, fleet: &mut FleetState, current: Replicas) {
        let spec = self.item.fleet_spec();
        let before = fleet.current.replace(current);
        let before = before.filter(|before| *before != current && !spec.course.writes_counts);
        let Some(before) = before else {
            return;
        };
        let behavior = spec.workload.behavior.as_ref();
        let history = &mut target.history;
        *history = std::mem::take(history).applied(behavior, before, current, self.context.now);
        // A fleet that is at zero was put there by its members or by hand.
        history.log.scaled_to_zero = false;
    }

    /// The floor that forecast, cron windows and the fleet's own metrics ask for.
    ///
    /// The latter are decided separately, with their own stabilization; while one of them is unavailable, what they
    /// asked for last stands. Under `Duplicated` each member has windows and forecasts of its own; the floor here is
    /// its part of what the fleet's own metrics ask for.
    fn floor(&self, fleet: &mut FleetState, whole: &Decided, parts: u32) -> Option<Replicas> {
        let spec = self.item.fleet_spec();
        if spec.scopes.is_empty() {
            let floor = whole.decision.floor;
            return floor.filter(|_| spec.course.divides);
        }
        let seen = of_fleet_metrics(self.item, &whole.observation, parts);
        let workload = &self.item.spec.fleet_metrics;
        let DecideContext { settings, now } = *self.context;
        let (decision, history) =
            autoscale::decide(workload, &seen, &fleet.fleet_metrics, settings, now);
        fleet.fleet_metrics = history;
        match decision.observed.as_ref().map(|pass| &pass.verdict) {
            None => decision.floor,
            Some(Verdict::Computed { .. }) => {
                fleet.fleet_metrics_desired = Some(decision.desired);
                fleet.fleet_metrics_desired
            }
            Some(_) => fleet.fleet_metrics_desired.max(decision.floor),
        }
    }
}

/// The fleet's workload, decided as if we were its only writer: what the children do is not part of this decision. The
/// bounds are those of each of its `parts`.
fn whole_workload(item: &FleetItem, parts: u32) -> Workload {
    let workload = item.fleet_spec().workload.clone();
    let all = |count: Replicas| Replicas::new(count.get().saturating_mul(parts));
    Workload {
        mode: Mode::Direct,
        bounds: ReplicaBounds::new(all(workload.bounds.min), all(workload.bounds.max)),
        ..workload
    }
}

/// The observation of the fleet's own metrics, as one of `parts` equal parts sees it.
fn of_fleet_metrics(
    item: &FleetItem,
    observed: &WorkloadObservation,
    parts: u32,
) -> autoscale::Inputs {
    let spec = item.fleet_spec();
    let observation = &observed.observation;
    let metrics = spec.workload.metrics.iter();
    let readings = metrics
        .zip(&observation.readings)
        .filter(|(metric, _)| !spec.is_members_own(metric))
        .map(|(_, reading)| equal_part(reading, parts));
    let part = |count: Replicas| Replicas::new(count.get().div_ceil(parts));
    autoscale::Inputs {
        observation: Observation {
            scale: Scale {
                spec: part(observation.scale.spec),
                status: part(observation.scale.status),
            },
            unseen: part(observation.unseen),
            undelivered: part(observation.undelivered),
            owned: part(observation.owned),
            pods: observation.pods.clone(),
            readings: readings.collect(),
        },
        forecasts: observed.forecasts.clone(),
        child: None,
        share: None,
    }
}

/// One of `parts` equal parts of a total; readings per pod are returned unchanged.
fn equal_part(reading: &Reading, parts: u32) -> Reading {
    match reading {
        Ok(Measured::Total(values)) => {
            let part = values.iter().map(|value| value / i64::from(parts));
            Ok(Measured::Total(part.collect()))
        }
        other => other.clone(),
    }
}

/// The demand divided by the target per pod, of the metric for which that is largest; absent when a metric cannot be
/// measured.
pub fn largest_demand<'a>(
    readings: impl Iterator<Item = (&'a MetricSpec, &'a Reading)>,
    observation: &WorkloadObservation,
    now: Timestamp,
) -> Option<f64> {
    let pods = &observation.observation.pods;
    let mut largest = None;
    for (metric, reading) in readings {
        let total = demand::total(metric, reading.as_ref().ok()?, pods, now)?;
        let target = demand::target(metric, pods, observation.template.as_deref()).ok()?;
        let replicas = total / target;
        largest = Some(largest.map_or(replicas, |largest: f64| largest.max(replicas)));
    }
    largest
}
