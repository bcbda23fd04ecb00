//! Second step of a fleet's sync: the fleet as one workload, decided as any other.
//!
//! The ordinary decision over everything that was seen gives proposals, winner, sentence and floor. Where a member or
//! a metric is missing there is no total demand. It divides nothing.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{
    merged_metrics::merged, participants::Participants, state::FleetState, work_item::Due,
};
use crate::{
    controller::{apply::Planned, observe::TargetObservation, plan::DecideContext},
    domain::{
        Observation, ReplicaBounds, Replicas, Scale,
        autoscale::action::{Action, HoldReason},
        autoscale::history::History,
        autoscale::{self as domain, Decision},
        demand,
        federate::{ShareStatus, Total},
        hpa::{MetricSpec, Verdict},
        observation::{Measured, Reading},
        workload::{Mode, Strategy, Workload},
    },
    forecaster::forecasts::Forecasts,
};

/// The decision for a fleet as one workload, and what of it is to be divided.
#[derive(Debug)]
pub(super) struct Hub {
    /// The decision, as for an autoscaler of one cluster; nobody carries its action out.
    pub(super) planned: Planned,
    /// What is to be divided.
    pub(super) total: Total,
}

/// Decides a fleet as one workload.
pub(super) fn decide<M>(
    desk: &DecideContext<'_>,
    forecasts: &Forecasts,
    memory: &mut FleetState,
    due: &Due,
    participants: &Participants<'_, M>,
) -> Hub {
    let parts = participants.workloads();
    let away = away(memory, due, participants);
    let counted = parts.iter().map(|(name, _)| *name);
    let counted = counted.chain(away.iter().map(|(name, _)| *name));
    let counted: BTreeSet<String> = counted.map(str::to_owned).collect();
    let clusters = u32::try_from(counted.len()).unwrap_or(u32::MAX);
    let away = away.into_iter().map(|(_, count)| count);
    let away = away.fold(Replicas::ZERO, Replicas::saturating_add);
    let on_hub = &participants.seen().hub;
    let sighting = merged(forecasts, due, on_hub, (&parts, away), desk.now);
    count_anew(memory, counted, due, desk);
    note_change(memory, sighting.scale.scale.spec, due, desk);
    let mut planned = desk.plan(
        &mut memory.told.track,
        due.as_one(undivided(due, clusters)),
        sighting,
        None,
    );
    let demand = total_demand(due, &planned.sighting, desk.now);
    let total = Total {
        demand: demand.filter(|_| participants.are_all_seen()),
        floor: floor(desk, memory, due, (&planned, clusters)),
        desired: desired(due, &planned.decision),
    };
    if !due.hub_divides_counts() {
        // The counts are the children's.
        planned.decision.action = Action::Hold {
            reason: HoldReason::AtDesired,
        };
    }
    Hub { planned, total }
}

/// The last counts of the members that do not answer, as far as any is known: but for those that are taken for failed,
/// what ran there goes on. None where the hub writes counts: those are for the members that answer, and whether what is
/// away serves anybody is not known.
fn away<'s, M>(
    memory: &FleetState,
    due: &Due,
    participants: &Participants<'s, M>,
) -> Vec<(&'s str, Replicas)> {
    if due.hub_writes() {
        return Vec::new();
    }
    let has_failed = |name: &str| {
        let entry = memory.ledger.members.get(name);
        entry.is_some_and(|entry| entry.tenure == ShareStatus::Failed)
    };
    let away = participants.unseen().filter(|name| !has_failed(name));
    let last = away.filter_map(|name| Some((name, memory.members.get(name)?.last.as_ref()?.pods?)));
    last.map(|(name, pods)| (name, pods.replicas)).collect()
}

/// The fleet's workload, decided as if we were its only writer: what the children do is not this decision's.
///
/// Under `Duplicated`, where bounds are those of each member, the whole has as many times of them.
fn undivided(due: &Due, clusters: u32) -> Workload {
    let workload = due.spec.workload.clone();
    let times = if due.is_duplicated() {
        clusters.max(1)
    } else {
        1
    };
    let scaled = |count: Replicas| Replicas::new(count.get().saturating_mul(times));
    Workload {
        mode: Mode::Direct,
        bounds: ReplicaBounds::new(scaled(workload.bounds.min), scaled(workload.bounds.max)),
        ..workload
    }
}

/// Starts the log of readings anew where other members are `counted` than before: it was about another whole.
fn count_anew(
    memory: &mut FleetState,
    counted: BTreeSet<String>,
    due: &Due,
    desk: &DecideContext<'_>,
) {
    let before = memory.counted.replace(counted);
    if before.is_none_or(|before| Some(before) == memory.counted) {
        return;
    }
    // Another whole has another count.
    memory.current = None;
    let behavior = due.spec.workload.behavior.as_ref();
    let lost = History::lost(desk.now, behavior, desk.settings);
    let history = &mut memory.told.track.history;
    history.log = lost.log;
    history.hold_until = lost.hold_until;
}

/// Notes by how much the members' autoscalers changed the count since the last decision: what the user lets happen within
/// a period is about all of them together.
fn note_change(memory: &mut FleetState, current: Replicas, due: &Due, desk: &DecideContext<'_>) {
    let before = memory.current.replace(current);
    let Some(before) = before.filter(|before| *before != current && !due.hub_writes()) else {
        return;
    };
    let behavior = due.spec.workload.behavior.as_ref();
    let history = &mut memory.told.track.history;
    *history = std::mem::take(history).applied(behavior, before, current, desk.now);
    // A fleet that is at zero was put there by its members, or by somebody's hand.
    history.log.scaled_to_zero = false;
}

/// The count that one autoscaler over the whole would set: the hub divides it in Direct, and ends nothing below it in
/// Delegated. Under `Duplicated` each member decides its own.
fn desired(due: &Due, decision: &Decision) -> Option<Replicas> {
    let workload = &due.spec.workload;
    let pinned = workload.specific_replicas;
    if let (Strategy::Preview, Some(count)) = (workload.strategy, pinned) {
        return Some(workload.bounds.clamp(count));
    }
    (!due.is_duplicated()).then_some(decision.desired)
}

/// What forecast, cron windows and the fleet's own metrics ask for.
///
/// The latter are decided in their own right, with their own stabilization; while one of them is unavailable, what
/// they asked for last stands. Under `Duplicated` each member has windows and forecasts of its own, and is asked here
/// for its part of what belongs to the fleet only.
fn floor(
    desk: &DecideContext<'_>,
    memory: &mut FleetState,
    due: &Due,
    (planned, clusters): (&Planned, u32),
) -> Option<Replicas> {
    if due.spec.scopes.is_empty() {
        let floor = planned.decision.floor;
        return floor.filter(|_| !due.is_duplicated());
    }
    let parts = if due.is_duplicated() {
        clusters.max(1)
    } else {
        1
    };
    let (workload, seen) = own(due, &planned.sighting, parts);
    let (decision, history) =
        domain::decide(&workload, &seen, &memory.asking, desk.settings, desk.now);
    memory.asking = history;
    match decision.observed.as_ref().map(|pass| &pass.verdict) {
        None => decision.floor,
        Some(Verdict::Computed { .. }) => {
            memory.asked = Some(decision.desired);
            memory.asked
        }
        Some(_) => memory.asked.max(decision.floor),
    }
}

/// The workload with the fleet's own metrics only, as one of so many equal parts sees it.
fn own(due: &Due, sighting: &TargetObservation, parts: u32) -> (Workload, domain::Seen) {
    let workload = &due.spec.workload;
    let observation = &sighting.observation;
    let metrics = workload.metrics.iter().zip(&observation.readings);
    let own = metrics.filter(|(metric, _)| due.spec.scopes.contains(&metric.identifier()));
    let own = own.map(|(metric, reading)| (metric.clone(), part_of(reading, parts)));
    let (metrics, readings) = own.unzip();
    let part = |count: Replicas| Replicas::new(count.get().div_ceil(parts));
    let mut forecasts = sighting.forecasts.clone();
    let mut workload = Workload {
        mode: Mode::Direct,
        metrics,
        ..workload.clone()
    };
    if due.is_duplicated() {
        workload.windows.clear();
        workload.prediction = None;
        forecasts.clear();
    }
    let seen = domain::Seen {
        observation: Observation {
            scale: Scale {
                spec: part(observation.scale.spec),
                status: part(observation.scale.status),
            },
            unseen: part(observation.unseen),
            pods: observation.pods.clone(),
            readings,
        },
        forecasts,
        child: None,
        share: None,
    };
    (workload, seen)
}

/// One of so many equal parts of what is a total; what pods say is theirs already.
fn part_of(reading: &Reading, parts: u32) -> Reading {
    match reading {
        Ok(Measured::Total(values)) => {
            let part = values.iter().map(|value| value / i64::from(parts));
            Ok(Measured::Total(part.collect()))
        }
        other => other.clone(),
    }
}

/// The demand of the whole fleet in replicas, if every metric can be measured.
fn total_demand(due: &Due, sighting: &TargetObservation, now: Timestamp) -> Option<f64> {
    let metrics = due.spec.workload.metrics.iter();
    let readings = metrics.zip(&sighting.observation.readings);
    largest_demand(readings, sighting, now)
}

/// The largest, over metrics, of demand by target per pod; absent when one of them cannot be measured.
pub(super) fn largest_demand<'a>(
    readings: impl Iterator<Item = (&'a MetricSpec, &'a Reading)>,
    sighting: &TargetObservation,
    now: Timestamp,
) -> Option<f64> {
    let pods = &sighting.observation.pods;
    let mut largest = None;
    for (metric, reading) in readings {
        let total = demand::total(metric, reading.as_ref().ok()?, pods, now)?;
        let target = demand::target(metric, pods, sighting.scale.template.as_deref()).ok()?;
        let replicas = total / target;
        largest = Some(largest.map_or(replicas, |largest: f64| largest.max(replicas)));
    }
    largest
}
