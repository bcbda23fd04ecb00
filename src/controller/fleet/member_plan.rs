//! Fourth step of a fleet's sync: each member is an autoscaler of one cluster, with the bounds, the floor and the
//! metrics that are its part.
//!
//! Both ways: what was seen of a member as the engine reads it, and what the engine decided for it as the object that
//! the ordinary pipeline takes. It refuses to write.

use std::sync::Arc;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, Passthrough};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    decide::largest_demand,
    observe::{MemberObservation, MemberSeen, Seen, Whole},
    placement::{self, Placing},
    state::{FleetState, MemberRecord},
    work_item::Due,
};
use crate::{
    controller::{
        apply::Planned,
        child_hpa::{RelatedHpas, as_child},
        demand_sample::tell,
        observe::{self, TargetObservation, predicted},
        plan::{DecideContext, may_act},
    },
    domain::{
        ReplicaBounds, Replicas,
        autoscale::action,
        demand::is_available,
        federate::{Action, Entry, Health, Member, MemberDecision, Pods},
        hpa::{Behavior, MetricSpec, Select},
        workload::{Mode, Workload},
    },
    forecaster::forecasts::{Forecasts, SeriesKey},
    ports::HpaView,
};

/// Writes of the replicas by the same strange hand within [`MEMORY_OF_HANDS`] that make a conflict.
const HANDS_TO_CONFLICT: usize = 3;
/// How long a write by a strange hand is remembered.
const MEMORY_OF_HANDS: SignedDuration = SignedDuration::from_mins(10);

/// What is to be done in one member, in this order.
#[derive(Debug)]
pub(super) struct Part {
    /// The member's name.
    pub(super) name: String,
    /// The smallest count that was decided for it.
    pub(super) min: Replicas,
    /// The workload is to be applied.
    pub(super) placing: Option<Placing>,
    /// The decision of the ordinary pipeline, for its autoscaler; absent where there is no workload yet.
    pub(super) planned: Option<Planned>,
    /// The replicas that the hub writes there, beside.
    pub(super) replicas: Option<Replicas>,
    /// Identity of the workload that is to be deleted.
    pub(super) removes: Option<String>,
    /// An autoscaler that is to go although its workload is not there.
    pub(super) orphan: Option<Arc<HpaView>>,
}

/// Every member as the engine reads it, at a moment and with the silence after which one is lost.
pub(super) fn all<M>(
    due: &Due,
    seen: &Seen<M>,
    memory: &mut FleetState,
    when: (Timestamp, SignedDuration),
) -> Vec<Member> {
    let members = seen.members.iter().map(|(name, member)| {
        let memory = memory.members.entry(name.clone()).or_default();
        observed(due, member, memory, when)
    });
    members.collect()
}

/// A member as the engine reads it: as it was seen, or as it was seen last. One that is not seen for `lost_after` is
/// lost.
fn observed<M>(
    due: &Due,
    seen: &MemberSeen<M>,
    memory: &mut MemberRecord,
    (now, lost_after): (Timestamp, SignedDuration),
) -> Member {
    let view = &seen.view;
    let last = memory.last.take();
    memory.seen |= !seen.is_unknown();
    let member = match &seen.sight {
        MemberObservation::Unknown { .. } => Member {
            health: lost(view.health, (last.as_ref(), memory.seen), (now, lost_after)),
            ..last.unwrap_or_default()
        },
        MemberObservation::Absent { capacity, siblings } => Member {
            health: view.health,
            hpa: stands(siblings, memory.shaped),
            observed: Some(now),
            capacity: capacity.map(|estimate| estimate.replicas),
            is_capacity_soft: capacity.is_some_and(|estimate| estimate.is_soft),
            ..Member::default()
        },
        MemberObservation::Whole(whole) => {
            let member = Member {
                health: view.health,
                ..of(due, whole, memory.shaped, now)
            };
            // That another autoscaler scales is no news.
            let hand = whole.hand.as_ref().filter(|_| member.rival.is_none());
            memory.hands.extend(hand.map(|hand| (now, hand.clone())));
            member
        }
    };
    let recent = |(at, _): &(Timestamp, String)| now.duration_since(*at) < MEMORY_OF_HANDS;
    memory.hands.retain(recent);
    // Who only shows fights nobody.
    let fought = memory.hands.len() >= HANDS_TO_CONFLICT && !due.is_previewed();
    let fighter = memory.hands.last().filter(|_| fought);
    let member = Member {
        profile: view.profile.clone(),
        taints: view.taints.clone(),
        problem: seen.trouble(),
        fought_by: member
            .fought_by
            .or_else(|| fighter.map(|(_, hand)| hand.clone())),
        ..member
    };
    memory.last = Some(member.clone());
    member
}

/// When a member that cannot be seen counts as lost, which may be yet to come: as it says, or so long after it was seen
/// last, whichever was known first. What status remembers is older than that by the controller's own absence, and does
/// not count.
fn lost(
    health: Health,
    (last, seen): (Option<&Member>, bool),
    (now, lost_after): (Timestamp, SignedDuration),
) -> Health {
    let before = last.map(|member| member.health);
    let since = match (health, before) {
        (Health::Unknown { since }, Some(Health::Unknown { since: before })) => since.min(before),
        (Health::Unknown { since }, _) | (_, Some(Health::Unknown { since })) => since,
        _ => {
            let at = last.filter(|_| seen).and_then(|member| member.observed);
            let at = at.unwrap_or(now);
            at.saturating_add(lost_after).unwrap_or(at)
        }
    };
    Health::Unknown { since }
}

fn of(due: &Due, whole: &Whole, shaped: Option<(Replicas, Replicas)>, now: Timestamp) -> Member {
    let TargetObservation {
        scale,
        siblings,
        observation,
        ..
    } = &whole.sighting;
    let ready = observation.pods.iter().filter(|pod| is_available(pod));
    let (unschedulable, unschedulable_since) = whole.unschedulable;
    let child = siblings.acting().map(|hpa| as_child(hpa));
    Member {
        pods: Some(Pods {
            replicas: scale.scale.spec,
            ready: Replicas::new(u32::try_from(ready.count()).unwrap_or(u32::MAX)),
            unschedulable,
            unschedulable_since,
        }),
        hpa: stands(siblings, shaped),
        desired: child.and_then(|child| child.desired),
        demand: demand(due, whole, now),
        capacity: whole.capacity.map(|estimate| estimate.replicas),
        is_capacity_soft: whole.capacity.is_some_and(|estimate| estimate.is_soft),
        foreign: whole.foreign,
        observed: Some(now),
        // Who only shows fights nobody.
        rival: rival(due, whole)
            .filter(|_| !due.is_previewed())
            .map(|hpa| hpa.name.clone()),
        ..Member::default()
    }
}

/// An autoscaler of somebody else that keeps us from acting.
pub(super) fn rival<'w>(due: &Due, whole: &'w Whole) -> Option<&'w Arc<HpaView>> {
    let acts = may_act(&due.part(&due.question), &whole.sighting);
    whole.sighting.siblings.foreign.as_ref().filter(|_| !acts)
}

/// The bounds of the autoscaler that acts for us, as they were decided.
fn stands(
    siblings: &RelatedHpas,
    shaped: Option<(Replicas, Replicas)>,
) -> Option<(Replicas, Replicas)> {
    let child = as_child(siblings.acting()?);
    Some((as_decided(child.min, shaped), child.max))
}

/// The minimum that a child's stands for, unless another hand wrote it.
fn as_decided(min: Replicas, shaped: Option<(Replicas, Replicas)>) -> Replicas {
    let decided = shaped.filter(|(left, _)| *left == min);
    decided.map_or(min, |(_, decided)| decided)
}

/// What a member's pods have to carry, in replicas.
fn demand(due: &Due, whole: &Whole, now: Timestamp) -> Option<f64> {
    let observation = &whole.sighting.observation;
    if whole.is_idle() {
        return Some(0.0);
    }
    let readings = due.question.metrics.iter().zip(&observation.readings);
    largest_demand(readings, &whole.sighting, now)
}

/// What is to be done in a member; nothing where nobody may write.
pub(super) fn part<M>(
    desk: &DecideContext<'_>,
    (due, seen, forecasts): (&Due, &Seen<M>, &Forecasts),
    (decision, entry): (&MemberDecision, Option<&Entry>),
    (member, memory): (&MemberSeen<M>, &mut MemberRecord),
) -> Option<Part> {
    let template = seen
        .template
        .as_ref()
        .and_then(|template| template.as_ref().ok());
    let template = template.map(|(template, _)| template);
    let sight = &member.sight;
    let template = template.filter(|_| !due.is_previewed() && may_place(due, member.whole()));
    // Who only keeps pods until others serve gets nothing new.
    let has_share = entry.is_some_and(|entry| entry.max > Replicas::ZERO);
    let placing = template
        .filter(|_| has_share)
        .and_then(|template| placement::placing(template, decision, sight, memory));
    let removes = template.and_then(|template| placement::removing(template, decision, sight));
    let scaled = member
        .whole()
        .and_then(|whole| scaled(desk, (due, forecasts), (decision, entry), (whole, memory)));
    let (planned, replicas) = scaled.unzip();
    let orphan = orphan(due, decision, sight);
    (planned.is_some() || placing.is_some() || orphan.is_some()).then(|| Part {
        name: decision.name.clone(),
        min: decision.min,
        placing,
        planned,
        replicas: replicas.flatten(),
        removes,
        orphan,
    })
}

/// The autoscaler that nobody needs any more where the workload is not there.
fn orphan(due: &Due, decision: &MemberDecision, sight: &MemberObservation) -> Option<Arc<HpaView>> {
    let MemberObservation::Absent { siblings, .. } = sight else {
        return None;
    };
    let goes = decision.action == Action::Delete || due.is_previewed();
    siblings.acting().filter(|_| goes).cloned()
}

/// Whether a workload may be placed over what is there, or deleted: as with counts, the oldest fleet acts, and nobody does
/// where the target has an autoscaler of others.
fn may_place(due: &Due, whole: Option<&Whole>) -> bool {
    let acts = |whole: &Whole| may_act(&due.part(&due.question), &whole.sighting);
    due.rivals.older.is_none() && whole.is_none_or(acts)
}

/// What is to be done about the autoscaler and the replicas of a workload that is there.
fn scaled(
    desk: &DecideContext<'_>,
    (due, forecasts): (&Due, &Forecasts),
    (decision, entry): (&MemberDecision, Option<&Entry>),
    (whole, memory): (&Whole, &mut MemberRecord),
) -> Option<(Planned, Option<Replicas>)> {
    let acts = may_act(&due.part(&due.question), &whole.sighting);
    if decision.action == Action::Skip && acts {
        return None;
    }
    let budget = entry.map_or(decision.min, |entry| entry.min);
    let bounds = ReplicaBounds::new(budget.max(Replicas::new(1)).min(decision.max), decision.max);
    let asked = Some(decision.floor).filter(|floor| *floor > Replicas::ZERO);
    let mut sighting = of_its_own(due, &whole.sighting);
    let part = observe::Due {
        ehpa: as_remembered(due, memory),
        ..cut(due, decision, bounds)
    };
    let workload = Arc::clone(&part.workload);
    let uid = SeriesKey::of_member(due.uid(), &decision.name);
    let pods = &sighting.observation.pods;
    sighting.forecasts = predicted(
        forecasts,
        (&uid, &workload),
        pods,
        &sighting.scale,
        desk.now,
    );
    let mut planned = desk.plan(&mut memory.track, part, sighting, asked);
    let told = (&*workload, &planned);
    tell(forecasts.feed(), &uid, &mut memory.lead_times, told);
    let start = memory.start.take();
    let mut replicas = decision.replicas.or(start);
    replicas = replicas.filter(|_| acts && !decides_alone(due, decision));
    let leaves = decision.max == Replicas::ZERO || decision.action == Action::Delete;
    if due.is_previewed() {
        let pinned = due.spec.workload.specific_replicas;
        replicas = replicas.filter(|_| pinned.is_some());
        planned.decision.action = at_rest();
    } else if !acts || leaves {
        planned.delegates = false;
        planned.decision.action = at_rest();
    } else if due.hub_writes() {
        planned.decision.action = at_rest();
    } else if let action::Action::Scale { .. } = planned.decision.action
        && !decides_alone(due, decision)
    {
        // Whether a member at zero wakes is decided for the fleet; what it was to run a while ago does not wake it.
        let ReplicaBounds { min, max } = bounds;
        planned.decision.action = action::Action::Child { min, max };
    }
    Some((planned, replicas))
}

/// Whether the member's own decision gives its count: so it is under `Duplicated` in Direct, as long as it runs.
fn decides_alone(due: &Due, decision: &MemberDecision) -> bool {
    let runs = matches!(decision.action, Action::Keep | Action::Update);
    !due.is_previewed() && runs && due.spec.policy.mode == Mode::Direct && !due.hub_writes()
}

const fn at_rest() -> action::Action {
    action::Action::Hold {
        reason: action::HoldReason::AtDesired,
    }
}

/// The fleet's object with as much of a status as the member's own would have: the fleet's history is not its own.
fn as_remembered(due: &Due, memory: &MemberRecord) -> Arc<EffectiveHorizontalPodAutoscaler> {
    let mut object = EffectiveHorizontalPodAutoscaler::clone(&due.whole);
    if let Some(status) = &mut object.status {
        status.history = None;
    }
    object.status = object.status.filter(|_| memory.restored);
    Arc::new(object)
}

/// The member's part of the fleet as an object of its own.
fn cut(due: &Due, decision: &MemberDecision, bounds: ReplicaBounds) -> observe::Due {
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
    let whole = &due.spec.workload;
    let mut workload = Workload {
        bounds,
        metrics: due.spec.member_metrics().cloned().collect(),
        mode: due.spec.policy.mode,
        ..Workload::clone(&due.question)
    };
    if due.is_duplicated() {
        workload.windows.clone_from(&whole.windows);
        workload.prediction.clone_from(&whole.prediction);
    }
    if decision.hold {
        let raw = spec.behavior.as_ref().map(Passthrough::raw);
        spec.behavior = Some(Passthrough::from_raw(held(raw)));
        let behavior = workload.behavior.get_or_insert_with(Behavior::default);
        behavior.scale_down.select = Some(Select::Disabled);
    }
    observe::Due {
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
fn of_its_own(due: &Due, sighting: &TargetObservation) -> TargetObservation {
    let asked = due.question.metrics.iter();
    let mut own = asked.map(|metric| is_own(due, metric));
    let mut sighting = sighting.clone();
    let readings = &mut sighting.observation.readings;
    readings.retain(|_| own.next().unwrap_or(false));
    sighting
}
