//! Fourth step of a fleet's sync: each member is an autoscaler of one cluster, with the bounds, the floor and the
//! metrics that are its part.
//!
//! Both ways: what was seen of a member as the engine reads it, and what the engine decided for it as the object that
//! the ordinary pipeline takes. It refuses to write.

use std::sync::Arc;

use foretide_crds::{ClusterStatus, EffectiveHorizontalPodAutoscaler, Passthrough};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    Due, MemberMemory,
    gather::{MemberSeen, Sight, Whole},
    total::largest_demand,
};
use crate::{
    autoscaler::{
        apply::Planned,
        gather::{self, Sighting},
        plan::{Desk, as_child, may_act},
    },
    domain::{
        ReplicaBounds, Replicas,
        demand::is_available,
        federate::{Action, Entry, Health, Kind, Member, MemberDecision, Pods, Profile},
        hpa::{Behavior, MetricSpec, Select},
        strategy,
        workload::{Mode, Strategy, Workload},
    },
};

/// What is to be done in one member.
#[derive(Debug)]
pub(super) struct Part {
    /// The member's name.
    pub(super) name: String,
    /// The decision of the ordinary pipeline, for its autoscaler.
    pub(super) planned: Planned,
    /// The replicas that the hub writes there, beside.
    pub(super) replicas: Option<Replicas>,
    /// Whether the workload is to be deleted as well.
    pub(super) removes: bool,
}

/// A member as the engine reads it: as it was seen, or as it was seen last.
pub(super) fn observed<M>(
    due: &Due,
    seen: &MemberSeen<M>,
    memory: &mut MemberMemory,
    now: Timestamp,
) -> Member {
    let view = &seen.view;
    let last = memory.last.take();
    let member = match &seen.sight {
        Sight::Unknown { .. } => Member {
            health: lost(view.health, last.as_ref(), now),
            ..last.unwrap_or_else(|| nothing_known(&view.profile))
        },
        Sight::Absent => Member {
            health: view.health,
            observed: Some(now),
            ..nothing_known(&view.profile)
        },
        Sight::Whole(whole) => Member {
            health: view.health,
            ..of(due, whole, now)
        },
    };
    let member = Member {
        profile: view.profile.clone(),
        taints: view.taints.clone(),
        ..member
    };
    memory.last = Some(member.clone());
    member
}

/// Since when a member is lost: as long as it says, or since it was seen last.
fn lost(health: Health, last: Option<&Member>, now: Timestamp) -> Health {
    let before = last.map(|member| member.health);
    match (health, before) {
        (Health::Unknown { .. }, _) => health,
        (_, Some(Health::Unknown { since })) => Health::Unknown { since },
        _ => {
            let seen = last.and_then(|member| member.observed);
            Health::Unknown {
                since: seen.unwrap_or(now),
            }
        }
    }
}

/// A member as status remembers it, for the time until it is seen again.
pub(super) fn remembered(cluster: &ClusterStatus) -> Member {
    let count = |n: Option<i32>| n.map(Replicas::from_i32);
    let profile = Profile {
        name: cluster.name.clone(),
        ..Profile::default()
    };
    Member {
        pods: count(cluster.current).map(|replicas| Pods {
            replicas,
            ready: count(cluster.ready).unwrap_or_default(),
            unschedulable: count(cluster.pending).unwrap_or_default(),
            unschedulable_since: None,
        }),
        hpa: count(cluster.min).zip(count(cluster.max)),
        observed: cluster.observed.as_ref().map(|at| at.0),
        ..nothing_known(&profile)
    }
}

fn nothing_known(profile: &Profile) -> Member {
    Member {
        profile: profile.clone(),
        health: Health::Ready,
        taints: Vec::new(),
        pods: None,
        hpa: None,
        desired: None,
        demand: None,
        room: None,
        observed: None,
        fought_by: None,
    }
}

fn of(due: &Due, whole: &Whole, now: Timestamp) -> Member {
    let Sighting {
        scale,
        siblings,
        observation,
        ..
    } = &whole.sighting;
    let ready = observation.pods.iter().filter(|pod| is_available(pod));
    let (unschedulable, unschedulable_since) = whole.unschedulable;
    let child = siblings.acting().map(|hpa| as_child(hpa));
    let foreign = siblings.foreign.as_ref();
    let acts = may_act(&due.part(&due.question), &whole.sighting);
    Member {
        pods: Some(Pods {
            replicas: scale.scale.spec,
            ready: Replicas::new(u32::try_from(ready.count()).unwrap_or(u32::MAX)),
            unschedulable,
            unschedulable_since,
        }),
        hpa: child.map(|child| (child.min, child.max)),
        desired: child.and_then(|child| child.desired),
        demand: demand(due, whole, now),
        room: whole.room,
        observed: Some(now),
        fought_by: foreign
            .filter(|_| !acts)
            .map(|hpa| format!("horizontalpodautoscaler {}", hpa.name)),
        ..nothing_known(&Profile::default())
    }
}

/// What a member's pods have to carry, in replicas.
fn demand(due: &Due, whole: &Whole, now: Timestamp) -> Option<f64> {
    let observation = &whole.sighting.observation;
    if observation.scale.spec == Replicas::ZERO && observation.pods.is_empty() {
        return Some(0.0);
    }
    let readings = due.question.metrics.iter().zip(&observation.readings);
    largest_demand(readings, &whole.sighting, now)
}

/// What is to be done in a member; nothing where nobody may write.
pub(super) fn part(
    desk: &Desk<'_>,
    due: &Due,
    (decision, entry): (&MemberDecision, Option<&Entry>),
    (whole, memory): (&Whole, &mut MemberMemory),
) -> Option<Part> {
    let acts = may_act(&due.part(&due.question), &whole.sighting);
    if decision.action == Action::Skip && acts {
        return None;
    }
    let budget = entry.map_or(decision.min, |entry| entry.min);
    let bounds = ReplicaBounds::new(
        budget.max(Replicas::new(1)).min(decision.max),
        decision.max,
    );
    let asked = Some(decision.floor).filter(|floor| *floor > Replicas::ZERO);
    let part = cut(due, decision, bounds);
    let sighting = of_its_own(due, &whole.sighting);
    let mut planned = desk.plan(&mut memory.track, part, sighting, asked);
    let mut replicas = decision.replicas.filter(|_| acts && !decides_alone(due, decision));
    let has_budget = decision.max > Replicas::ZERO;
    match due.spec.workload.strategy {
        Strategy::Preview => {
            let pinned = due.spec.workload.specific_replicas;
            replicas = replicas.filter(|_| pinned.is_some());
            planned.decision.action = at_rest();
        }
        Strategy::Auto if !acts || !has_budget || decision.action == Action::Delete => {
            planned.delegates = false;
            planned.decision.action = at_rest();
        }
        Strategy::Auto if hub_writes(due) => planned.decision.action = at_rest(),
        Strategy::Auto => {}
    }
    Some(Part {
        name: decision.name.clone(),
        planned,
        replicas,
        removes: acts && decision.action == Action::Delete,
    })
}

/// Whether the member's own decision gives its count: so it is under `Duplicated` in Direct, as long as it runs.
fn decides_alone(due: &Due, decision: &MemberDecision) -> bool {
    let runs = matches!(decision.action, Action::Keep | Action::Update);
    let auto = due.spec.workload.strategy == Strategy::Auto;
    auto && runs && due.spec.policy.mode == Mode::Direct && !hub_writes(due)
}

/// Whether the counts of members are the hub's to write; under `Duplicated` each member decides for itself.
fn hub_writes(due: &Due) -> bool {
    due.spec.policy.mode == Mode::Direct && due.spec.policy.kind != Kind::Duplicated
}

const fn at_rest() -> strategy::Action {
    strategy::Action::Hold {
        reason: strategy::HoldReason::AtDesired,
    }
}

/// The member's part of the fleet as an object of its own.
fn cut(due: &Due, decision: &MemberDecision, bounds: ReplicaBounds) -> gather::Due {
    let mut object = EffectiveHorizontalPodAutoscaler::clone(&due.valid);
    let spec = &mut object.spec;
    spec.min_replicas = Some(bounds.min.as_i32());
    spec.max_replicas = bounds.max.as_i32();
    spec.crons = None;
    spec.prediction = None;
    let metrics = due.spec.workload.metrics.iter();
    let own: Vec<bool> = metrics.map(|metric| is_own(due, metric)).collect();
    if let Some(raw) = &mut spec.metrics {
        let mut own = own.iter();
        raw.retain(|_| own.next().copied().unwrap_or(true));
    }
    let mut workload = Workload {
        bounds,
        metrics: due.spec.member_metrics().cloned().collect(),
        mode: due.spec.policy.mode,
        ..Workload::clone(&due.question)
    };
    if decision.hold {
        let raw = spec.behavior.as_ref().map(Passthrough::raw);
        spec.behavior = Some(Passthrough::from_raw(held(raw)));
        let behavior = workload.behavior.get_or_insert_with(Behavior::default);
        behavior.scale_down.select = Some(Select::Disabled);
    }
    gather::Due {
        valid: Arc::new(object),
        ..due.part(&Arc::new(workload))
    }
}

fn is_own(due: &Due, metric: &MetricSpec) -> bool {
    !due.spec.scopes.contains(&metric.identifier())
}

/// A behavior under which nothing is scaled down.
fn held(behavior: Option<&Value>) -> Value {
    let fields = |value: Option<&Value>| value.and_then(Value::as_object).cloned();
    let mut behavior = fields(behavior).unwrap_or_default();
    let mut down = fields(behavior.get("scaleDown")).unwrap_or_default();
    down.insert("selectPolicy".into(), "Disabled".into());
    behavior.insert("scaleDown".into(), Value::Object(down));
    Value::Object(behavior)
}

/// What was seen, without the metrics that are not the member's own.
fn of_its_own(due: &Due, sighting: &Sighting) -> Sighting {
    let asked = due.question.metrics.iter();
    let mut own = asked.map(|metric| is_own(due, metric));
    let mut sighting = sighting.clone();
    let readings = &mut sighting.observation.readings;
    readings.retain(|_| own.next().unwrap_or(false));
    sighting
}
