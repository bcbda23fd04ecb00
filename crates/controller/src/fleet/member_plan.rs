//! Consequences of a fleet's decision for each member, which is decided like an autoscaler of one cluster, with its
//! share of the fleet's bounds and floor, and with the metrics that are its own.

use std::{cell::LazyCell, sync::Arc};

use foretide_domain::{
    ReplicaBounds, Replicas,
    autoscale::action::Action,
    hpa::{Behavior, PolicySelect},
    workload::Workload,
};
use foretide_federate::{Action as MemberAction, Entry, FleetDecision, Ledger, MemberDecision};

use super::{
    item::FleetItem,
    observation::{FleetObservation, MemberObservation, ObservedMember, Present},
    placement::{self, Placement},
    state::{FleetState, MemberRecord},
    template::Template,
};
use crate::{
    child_hpa::ChildSpec,
    decide::{DecideContext, Decided},
    forecaster::{SeriesKey, forecasts::Forecasts},
    observe::{ForecastSeries, TargetObservation},
    part::{Part, Permission},
};
use foretide_api::ports::HpaView;

/// Steps to be taken in one member, in this order.
#[derive(Debug)]
pub struct MemberPlan {
    /// The member's name.
    pub name: String,
    /// The smallest count that was decided for it.
    pub min: Replicas,
    /// The workload that is to be applied, if any.
    pub placement: Option<Placement>,
    /// The decision for its child; absent where there is no workload yet.
    pub decided: Option<Decided>,
    /// The replicas that the hub writes, besides the child.
    pub replicas: Option<Replicas>,
    /// Identity of the workload that is to be deleted.
    pub removes: Option<String>,
    /// An HPA that is to be released although the member lacks its workload.
    pub orphan: Option<Arc<HpaView>>,
}

/// True if a member is to be written because of a decision of the rules that is not in the `stored` ledger. Then
/// `ledger` has to be stored first.
///
/// Other writes do not count: a template that changed, or a child's minimum that leads it to a count.
pub fn any_writes_by_ledger(
    plans: &[MemberPlan],
    decision: &FleetDecision,
    ledger: &Ledger,
    stored: impl FnOnce() -> Option<Ledger>,
) -> bool {
    // Parsed only where a plan writes.
    let stored = LazyCell::new(|| stored().unwrap_or_default());
    plans.iter().filter(|plan| plan.writes()).any(|plan| {
        let name = &plan.name;
        // A maximum may be new where the rules change nothing: a member whose share is gone keeps its pods for a while,
        // and one that has a share again may still have the HPA of its former one.
        matches!(decision.member(name), Some(share) if share.action.writes())
            || written_max(ledger, name) != written_max(&stored, name)
    })
}

fn written_max(ledger: &Ledger, member: &str) -> Option<Replicas> {
    Some(ledger.members.get(member)?.written)
}

// === impl MemberPlan ===

impl MemberPlan {
    /// True if the plan writes anything, apart from what the member has already. A preview writes nothing.
    fn writes(&self) -> bool {
        let is_child_written = match &self.decided {
            Some(it) if !matches!(it.decision.action, Action::Hold { .. }) => true,
            Some(it) => !it.delegates && it.acting_hpa().is_some(),
            None => false,
        };
        self.placement.is_some()
            || self.replicas.is_some()
            || self.removes.is_some()
            || self.orphan.is_some()
            || is_child_written
    }
}

/// A member's share as it was decided.
#[derive(Debug, Clone, Copy)]
struct Share<'a> {
    decision: &'a MemberDecision,
    /// The entry of the ledger for it.
    entry: Option<&'a Entry>,
}

/// Plans what to do in each member of one fleet.
#[derive(Debug, Clone, Copy)]
pub struct Planner<'a> {
    /// The context of decisions.
    pub context: &'a DecideContext<'a>,
    /// The forecasts in force.
    pub forecasts: &'a Forecasts,
    pub item: &'a FleetItem,
    /// The workload that the hub places, where it does.
    pub template: Option<&'a Template>,
}

// === impl Planner ===

impl Planner<'_> {
    /// The plan for each member; forgets the members that the decision leaves out.
    pub fn plan_all<M>(
        self,
        decision: &FleetDecision,
        observed: &FleetObservation<M>,
        fleet: &mut FleetState,
    ) -> Vec<MemberPlan> {
        let FleetState {
            members, ledger, ..
        } = fleet;
        members.retain(|name, _| decision.member(name).is_some());
        let mut plans = Vec::new();
        for decision in &decision.members {
            let share = Share {
                decision,
                entry: ledger.members.get(&decision.name),
            };
            let record = members.entry(decision.name.clone()).or_default();
            if let Some(member) = observed.members.get(&decision.name) {
                plans.extend(self.plan(share, member, record));
            }
        }
        plans
    }

    /// The plan for a member, if anything is to be done in it.
    fn plan<M>(
        self,
        share: Share<'_>,
        member: &ObservedMember<M>,
        record: &mut MemberRecord,
    ) -> Option<MemberPlan> {
        let Share { decision, entry } = share;
        let observed = &member.observed;
        let template = self.template.filter(|_| self.may_place(member.present()));
        // A member that only keeps pods until others serve gets nothing new.
        let has_share = entry.is_some_and(|entry| entry.max > Replicas::ZERO);
        let placement = template
            .filter(|_| has_share)
            .and_then(|template| placement::placement(template, decision, observed, record));
        let removes =
            template.and_then(|template| placement::removal(template, decision, observed));
        let decided = member
            .present()
            .and_then(|present| self.decide(share, present, record));
        let (decided, replicas) = decided.unzip();
        let orphan = self.orphan(decision, observed);
        // Without `removes`: what is to be removed is there, so something is decided for it.
        (decided.is_some() || placement.is_some() || orphan.is_some()).then(|| MemberPlan {
            name: decision.name.clone(),
            min: decision.min,
            placement,
            decided,
            replicas: replicas.flatten(),
            removes,
            orphan,
        })
    }

    /// The HPA that is no longer wanted in a member without the workload.
    fn orphan(
        self,
        decision: &MemberDecision,
        observed: &MemberObservation,
    ) -> Option<Arc<HpaView>> {
        let MemberObservation::Absent { hpas, .. } = observed else {
            return None;
        };
        let goes =
            decision.action == MemberAction::Delete || self.item.fleet_spec().course.previewed;
        hpas.acting().filter(|_| goes).cloned()
    }

    /// True if a workload may be placed over what is there, or deleted: not in Preview, and as with counts, the oldest
    /// fleet acts, and none does where a foreign HPA scales the target.
    fn may_place(self, present: Option<&Present>) -> bool {
        !self.item.fleet_spec().course.previewed
            && self.item.conflicts.older.is_none()
            && present.is_none_or(|present| self.item.may_act(&present.observed.target))
    }

    /// The decision about the child and the replicas of a workload that the member has.
    fn decide(
        self,
        share: Share<'_>,
        present: &Present,
        record: &mut MemberRecord,
    ) -> Option<(Decided, Option<Replicas>)> {
        let decision = share.decision;
        let may_act = self.item.may_act(&present.observed.target);
        // Where we may not act, the decision continues, so that an HPA of ours is released.
        if decision.action == MemberAction::Hold && may_act {
            return None;
        }
        let permission = self.permission(decision, may_act);
        let part = Part {
            permission,
            floor_share: Some(decision.floor).filter(|floor| *floor > Replicas::ZERO),
            ..self.member_part(decision, share.bounds())
        };
        let uid = SeriesKey::of_member(self.item.autoscaler.uid(), &decision.name);
        let observed = self.own_observation(&part.workload, &uid, present);
        let decided = self.context.decide(&mut record.target, part, observed);
        // Used once: later counts are decided by the HPA.
        let start = record.start.take();
        // In Preview nothing else than a pinned count is written.
        let course = self.item.fleet_spec().course;
        let is_written = !course.previewed || course.pinned.is_some();
        // Where it decides alone, its own decision gives the count.
        let is_written = is_written && may_act && permission != Permission::All;
        let replicas = decision.replicas.or(start).filter(|_| is_written);
        Some((decided, replicas))
    }

    /// The permission of the member's own decision, where the fleet may act in it or not.
    fn permission(self, decision: &MemberDecision, may_act: bool) -> Permission {
        let leaves = decision.max == Replicas::ZERO || decision.action == MemberAction::Delete;
        match self.item.spec.member_permission {
            _ if !may_act || leaves => Permission::Nothing,
            // It is woken or put to sleep by the fleet's decision.
            Permission::All
                if !matches!(decision.action, MemberAction::Keep | MemberAction::Update) =>
            {
                Permission::Child
            }
            permission => permission,
        }
    }

    /// The member's part of the fleet, with its bounds.
    fn member_part(self, decision: &MemberDecision, bounds: ReplicaBounds) -> Part {
        let mut workload = Workload {
            bounds,
            ..self.item.spec.member_workload.clone()
        };
        let mut child = self.member_child();
        if decision.hold {
            child = child.held();
            let behavior = workload.behavior.get_or_insert_with(Behavior::default);
            // What the child is expected to decide is computed with the hold, too.
            behavior.scale_down.select = Some(PolicySelect::Disabled);
        }
        Part {
            child: Arc::new(child),
            ..self.item.part(&Arc::new(workload))
        }
    }

    /// The child with the metrics that are the member's own.
    fn member_child(self) -> ChildSpec {
        let spec = self.item.fleet_spec();
        self.item.child.with_metrics(|position| {
            let metric = spec.workload.metrics.get(position);
            metric.is_none_or(|metric| spec.is_members_own(metric))
        })
    }

    /// The observation, with the metrics and the forecasts that are the member's own.
    fn own_observation(
        self,
        workload: &Workload,
        uid: &str,
        present: &Present,
    ) -> TargetObservation {
        let terms = &self.item.spec;
        let read = &terms.observed_workload.metrics;
        let mut own = read.iter().map(|metric| terms.spec.is_members_own(metric));
        let mut observed = present.observed.clone();
        // One reading per metric of the observed workload, in its order.
        let seen = &mut observed.workload;
        let readings = &mut seen.observation.readings;
        readings.retain(|_| own.next().unwrap_or(false));
        let series = ForecastSeries {
            forecasts: self.forecasts,
            uid,
            workload,
        };
        let pods = &seen.observation.pods;
        seen.forecasts = series.readings(pods, seen.template.as_deref(), self.context.now);
        observed
    }
}

// === impl Share ===

impl Share<'_> {
    /// The bounds of the member's child.
    fn bounds(self) -> ReplicaBounds {
        let Self { decision, entry } = self;
        // `decision.min` includes the share of the floor, which the member's own decision adds.
        let budget = entry.map_or(decision.min, |entry| entry.min);
        // 1 is the least that an HPA accepts.
        let min = budget.max(Replicas::new(1)).min(decision.max);
        ReplicaBounds::new(min, decision.max)
    }
}
