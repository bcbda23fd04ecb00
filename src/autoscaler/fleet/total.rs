//! Second step of a fleet's sync: the fleet as one workload, decided as any other.
//!
//! What was seen of the members becomes one observation: counts are sums, and pods, usage and samples are called
//! `member/pod`, so that equal names never meet. The ordinary decision over it gives proposals, winner, sentence and
//! floor. A part is never a total: where a member or a metric is missing there is no total demand. It divides nothing.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;

use super::{
    Due, FleetMemory,
    gather::{Seen, Whole, is_asked_of_members},
};
use crate::{
    autoscaler::{
        apply::Planned,
        child::Siblings,
        gather::{Sighting, predicted},
        plan::Desk,
    },
    domain::{
        Observation, ReplicaBounds, Replicas, Scale,
        decide::{self as domain, Decision},
        demand,
        federate::Total,
        forecast::{ForecastReading, Predicted},
        history::History,
        hpa::{MetricSpec, Verdict},
        observation::{Cause, Measured, Pod, PodSample, PodUsage, Reading, Unavailable},
        workload::{Mode, Strategy, Workload},
    },
    forecaster::forecasts::{Forecasts, SeriesKey},
    ports::ScaleView,
};

/// The decision for a fleet as one workload, and what of it is to be divided.
#[derive(Debug)]
pub(super) struct Hub {
    /// The decision, as for an autoscaler of one cluster; its action is nobody's.
    pub(super) planned: Planned,
    /// What is to be divided.
    pub(super) total: Total,
}

/// Decides a fleet as one workload.
pub(super) fn decide<M>(
    desk: &Desk<'_>,
    forecasts: &Forecasts,
    memory: &mut FleetMemory,
    due: &Due,
    seen: &Seen<M>,
) -> Hub {
    let parts: Vec<(&str, &Whole)> = seen
        .members
        .iter()
        .filter_map(|(name, member)| Some((&**name, member.whole()?)))
        .collect();
    let clusters = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let sighting = merged(forecasts, due, seen, &parts, desk.now);
    let is_whole = seen.members.values().all(|member| !member.is_unknown());
    count_anew(memory, &parts, due, desk);
    let planned = desk.plan(
        &mut memory.told.track,
        due.as_one(undivided(due, clusters)),
        sighting,
        None,
    );
    let total = Total {
        demand: total_demand(due, &planned.sighting, desk.now).filter(|_| is_whole),
        floor: floor(desk, memory, due, (&planned, clusters)),
        desired: desired(due, &planned.decision),
    };
    Hub { planned, total }
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

/// Starts the log of readings anew where other members are counted than before: it was about another whole.
fn count_anew(memory: &mut FleetMemory, parts: &[(&str, &Whole)], due: &Due, desk: &Desk<'_>) {
    let counted: BTreeSet<String> = parts.iter().map(|(name, _)| (*name).to_owned()).collect();
    let before = memory.counted.replace(counted);
    if before.is_none_or(|before| Some(before) == memory.counted) {
        return;
    }
    let behavior = due.spec.workload.behavior.as_ref();
    let lost = History::lost(desk.now, behavior, desk.settings);
    let history = &mut memory.told.track.history;
    history.log = lost.log;
    history.hold_until = lost.hold_until;
}

/// The count for the whole fleet, where the hub writes counts.
fn desired(due: &Due, decision: &Decision) -> Option<Replicas> {
    let workload = &due.spec.workload;
    let pinned = workload.specific_replicas;
    match (workload.strategy, pinned) {
        (Strategy::Preview, Some(count)) => Some(workload.bounds.clamp(count)),
        _ => (due.spec.policy.mode == Mode::Direct).then_some(decision.desired),
    }
}

/// What forecast, cron windows and the fleet's own metrics ask for.
///
/// The latter are decided in their own right, with their own stabilization; while one of them is unavailable, what
/// they asked for last stands. Under `Duplicated` each member has windows and forecasts of its own, and is asked here
/// for its part of what belongs to the fleet only.
fn floor(
    desk: &Desk<'_>,
    memory: &mut FleetMemory,
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
fn own(due: &Due, sighting: &Sighting, parts: u32) -> (Workload, domain::Seen) {
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
fn total_demand(due: &Due, sighting: &Sighting, now: Timestamp) -> Option<f64> {
    let metrics = due.spec.workload.metrics.iter();
    let readings = metrics.zip(&sighting.observation.readings);
    largest_demand(readings, sighting, now)
}

/// The largest, over metrics, of demand by target per pod; absent when one of them cannot be measured.
pub(super) fn largest_demand<'a>(
    readings: impl Iterator<Item = (&'a MetricSpec, &'a Reading)>,
    sighting: &Sighting,
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

/// Everything that was seen, as of one workload.
fn merged<M>(
    forecasts: &Forecasts,
    due: &Due,
    seen: &Seen<M>,
    parts: &[(&str, &Whole)],
    now: Timestamp,
) -> Sighting {
    let sum = |of: fn(&Scale) -> Replicas| {
        let counts = parts
            .iter()
            .map(|(_, whole)| of(&whole.sighting.scale.scale));
        counts.fold(Replicas::ZERO, plus)
    };
    let pods = parts.iter().flat_map(|(member, whole)| {
        let pods = whole.sighting.observation.pods.iter();
        pods.map(|pod| named(member, pod))
    });
    let pods: Vec<Arc<Pod>> = pods.collect();
    let template = parts
        .iter()
        .find_map(|(_, whole)| whole.sighting.scale.template.clone());
    let scale = ScaleView {
        scale: Scale {
            spec: sum(|scale| scale.spec),
            status: sum(|scale| scale.status),
        },
        selector: String::new(),
        resource_version: String::new(),
        uid: due.whole.metadata.uid.clone().unwrap_or_default(),
        template,
    };
    Sighting {
        siblings: Siblings::default(),
        forecasts: foreseen(forecasts, due, parts, (&pods, &scale), now),
        observation: Observation {
            scale: scale.scale,
            readings: readings(due, seen, parts),
            pods,
        },
        scale,
    }
}

/// What forecasts say about the whole: forecasts of it, or the sum of what is forecast for each member.
fn foreseen(
    forecasts: &Forecasts,
    due: &Due,
    parts: &[(&str, &Whole)],
    (pods, scale): (&[Arc<Pod>], &ScaleView),
    now: Timestamp,
) -> Vec<ForecastReading> {
    let workload = &due.spec.workload;
    let mut whole = predicted(forecasts, (due.uid(), workload), pods, scale, now);
    if !due.is_duplicated() {
        return whole;
    }
    let of_each = parts.iter().map(|(member, _)| {
        let uid = SeriesKey::of_member(due.uid(), member);
        predicted(forecasts, (&uid, workload), pods, scale, now)
    });
    let of_each: Vec<_> = of_each.collect();
    for (position, reading) in whole.iter_mut().enumerate() {
        let of_members = of_each.iter().filter_map(|all| all.get(position));
        if let Some(sum) = of_members.cloned().reduce(added) {
            if !due.spec.scopes.contains(&sum.name) {
                *reading = sum;
            }
        }
    }
    whole
}

/// Two forecasts as that of their sum; a part is never a total.
fn added(one: ForecastReading, other: ForecastReading) -> ForecastReading {
    let outcome = match (one.outcome, other.outcome) {
        (Ok(one), Ok(other)) => Ok(Predicted {
            value: one.value + other.value,
            ..one
        }),
        (Err(refused), _) | (_, Err(refused)) => Err(refused),
    };
    ForecastReading { outcome, ..one }
}

pub(super) fn plus(one: Replicas, other: Replicas) -> Replicas {
    Replicas::new(one.get().saturating_add(other.get()))
}

fn named(member: &str, pod: &Arc<Pod>) -> Arc<Pod> {
    Arc::new(Pod {
        name: in_member(member, &pod.name),
        ..Pod::clone(pod)
    })
}

fn in_member(member: &str, pod: &str) -> Arc<str> {
    format!("{member}/{pod}").into()
}

/// One reading per metric of the spec, in its order.
fn readings<M>(due: &Due, seen: &Seen<M>, parts: &[(&str, &Whole)]) -> Vec<Reading> {
    let metrics = due.spec.workload.metrics.iter().enumerate();
    let mut of_members = 0;
    let reading = |(position, metric): (usize, &MetricSpec)| {
        if !is_asked_of_members(&due.spec, metric) {
            let asked = seen.hub.get(&position).cloned();
            return asked.unwrap_or_else(|| Err(not_asked()));
        }
        let column = of_members;
        of_members += 1;
        together(parts, column)
    };
    metrics.map(reading).collect()
}

fn not_asked() -> Unavailable {
    Unavailable::new(Cause::NotRead, "the metric was not asked for in this pass")
}

/// The answers of all members to one metric as one. A member without an answer has pods without a sample; but a
/// total of which a part is missing is none.
fn together(parts: &[(&str, &Whole)], column: usize) -> Reading {
    let mut all: Option<Measured> = None;
    let mut missing: Option<Unavailable> = None;
    for (member, whole) in parts {
        if whole.is_idle() {
            continue;
        }
        match whole.sighting.observation.readings.get(column) {
            Some(Ok(measured)) => all = Some(joined(all, member, measured)),
            Some(Err(unavailable)) => missing = Some(in_words(member, unavailable)),
            None => missing = Some(not_asked()),
        }
    }
    match (all, missing) {
        (Some(Measured::Total(_)) | None, Some(missing)) => Err(missing),
        (Some(all), _) => Ok(all),
        (None, None) => Err(Unavailable::new(
            Cause::NoPods,
            "no reachable member has a pod of the workload",
        )),
    }
}

fn in_words(member: &str, unavailable: &Unavailable) -> Unavailable {
    let message = format!("member {member}: {}", unavailable.message);
    Unavailable::new(unavailable.reason, message)
}

/// What was measured so far, and by one more member; answers of different kinds do not occur.
fn joined(so_far: Option<Measured>, member: &str, measured: &Measured) -> Measured {
    match (so_far, renamed(member, measured)) {
        (Some(Measured::Usage(mut all)), Measured::Usage(more)) => {
            all.extend(more);
            Measured::Usage(all)
        }
        (Some(Measured::Samples(mut all)), Measured::Samples(more)) => {
            all.extend(more);
            Measured::Samples(all)
        }
        (Some(Measured::Total(mut all)), Measured::Total(more)) => {
            all.extend(more);
            Measured::Total(all)
        }
        (_, first) => first,
    }
}

/// What a member measured, with its pods called by their names in the fleet.
fn renamed(member: &str, measured: &Measured) -> Measured {
    let usage = |usage: &Arc<PodUsage>| {
        Arc::new(PodUsage {
            pod: in_member(member, &usage.pod),
            ..PodUsage::clone(usage)
        })
    };
    let sample = |sample: &PodSample| PodSample {
        pod: in_member(member, &sample.pod),
        ..sample.clone()
    };
    match measured {
        Measured::Usage(all) => Measured::Usage(all.iter().map(usage).collect()),
        Measured::Samples(all) => Measured::Samples(all.iter().map(sample).collect()),
        Measured::Total(all) => Measured::Total(all.clone()),
    }
}
