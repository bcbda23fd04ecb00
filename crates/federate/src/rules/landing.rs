//! Landing: after an assignment, pods beyond the new budgets stay until enough pods within them are ready, for at most
//! ten minutes. No more pods are started than the fleet ran before or needs now.

use crate::{Landing, Ledger, Reason, ledger::LANDING};
use foretide_domain::Replicas;
use foretide_domain::words::counted;

use super::fleet::{Floor, RuleContext, Step};
use super::member::{Change, Effect, MemberState, sum};
use super::participation::MemberRole;

/// The landing that begins now; `served` replicas served the fleet until now. A landing that is in progress keeps its
/// number, because some of the present replicas were started to replace pods that are to end. One whose time has
/// passed, while nothing was decided, is not in progress: the fleet may be smaller since then. None begins where no
/// member serves for another.
pub fn new_landing(fleet: &RuleContext<'_>, served: u32) -> Option<Landing> {
    let in_progress = fleet
        .ledger
        .landing
        .filter(|landing| fleet.now < landing.until);
    let until = fleet.now.checked_add(LANDING).ok();
    let until = until.filter(|_| fleet.policy.scheme().divides)?;
    Some(Landing {
        until,
        served: in_progress.map_or(Replicas::new(served), |landing| landing.served),
    })
}

/// The phases of a landing, which begins with an assignment or when a member returns ([`resumed`]). It may go back from
/// `Landed` to `Lands`, because pods do not stay ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A landing in which too few pods are certainly ready within the budgets, or a demand is not known yet: pods
    /// beyond the budgets stay, and the floor is raised.
    Lands,
    /// A landing in which enough pods are ready: those beyond the budgets may end. The floor stays raised until they
    /// have.
    Landed,
    /// The end: the pods beyond the budgets have ended, or the time has passed.
    Over,
}

/// A landing for a member that was unreachable during the last one and returns with pods beyond its share.
fn resumed(fleet: &RuleContext<'_>) -> Option<Landing> {
    let served = sum(fleet.counted().map(|state| state.placed));
    let is_due = fleet.members.iter().any(is_back);
    new_landing(fleet, served).filter(|_| is_due)
}

/// True if a landing has written more than its budget for a member, and it still runs more.
fn is_back(state: &MemberState<'_>) -> bool {
    may_keep(state) && state.entry.written > state.entry.max && state.replicas > state.max()
}

/// While fewer pods are ready within the new budgets than are needed, members keep replicas beyond their new maximum,
/// and the floor is raised so that the others grow. The floor stays until the pods beyond the budgets have ended: only
/// then do the autoscalers of the others see the whole load, and keep their pods by themselves.
///
/// Pods that are to end and never were the fleet's are kept as well until their demand is known, because only that
/// demand is taken over.
pub fn land<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let Some(landing) = fleet.ledger.landing.or_else(|| resumed(fleet)) else {
        return Step::default();
    };
    let served = landing.served.get();
    let count = without_surplus(fleet, served);
    let goal = goal(fleet, count, served);
    let raised = count.max(goal.saturating_add(fleet.floor.met_by_others));
    let (changes, landing, floor) = match phase(fleet, landing, goal) {
        Phase::Lands => (kept(fleet, goal), Some(continued(fleet, landing)), raised),
        Phase::Landed => (Vec::new(), Some(continued(fleet, landing)), raised),
        Phase::Over => (Vec::new(), None, count),
    };
    Step::of(changes)
        .with_ledger(Ledger {
            landing,
            ..fleet.ledger.clone()
        })
        .with_floor(Floor {
            count: floor,
            lands: floor > count,
            ..fleet.floor.clone()
        })
}

/// The phase of a landing for which `goal` pods must be ready.
fn phase(fleet: &RuleContext<'_>, landing: Landing, goal: u32) -> Phase {
    let ready = sum(receivers(fleet).map(MemberState::ready_in_budget));
    let certain = sum(receivers(fleet).map(certainly_ready));
    if fleet.now >= landing.until {
        Phase::Over
    } else if ready < goal || fleet.active().any(is_unmeasured) {
        Phase::Lands
    } else if !fleet.members.iter().any(is_ending) {
        Phase::Over
    } else if certain < goal {
        Phase::Lands
    } else {
        Phase::Landed
    }
}

/// The same landing, which serves the present demand as well.
fn continued(fleet: &RuleContext<'_>, landing: Landing) -> Landing {
    let demand = demand(fleet).map_or(Replicas::ZERO, Replicas::from_f64_ceil);
    Landing {
        served: landing.served.max(demand),
        ..landing
    }
}

/// The floor to divide, in Direct mode without the pods that are to end.
///
/// The count of the fleet is computed from all pods that run, and does not go down while new pods are not ready. Divided
/// as it is, it would make other members start a pod for each one that is to end. The next count would include both, so
/// that as many pods would be started again with every sync.
///
/// What is divided is at least `served`, MIN and the demand. Without a known demand nothing is taken out.
fn without_surplus(fleet: &RuleContext<'_>, served: u32) -> u32 {
    let (Some(desired), Some(demand)) = (fleet.floor.desired, demand(fleet)) else {
        return fleet.floor.count;
    };
    let counted = fleet.counted().filter(|state| may_keep(state));
    let surplus = sum(counted.map(beyond_share));
    let demand = Replicas::from_f64_ceil(demand);
    let needed = demand.max(fleet.policy.bounds.min).get().max(served);
    let count = desired.saturating_sub(surplus).max(needed).min(desired);
    fleet.floor.requested.max(count)
}

/// The members whose pods serve after the landing.
fn receivers<'f, 'a>(fleet: &'f RuleContext<'a>) -> impl Iterator<Item = &'f MemberState<'a>> {
    fleet
        .members
        .iter()
        .filter(|state| state.is_active() || state.role.is_pinned() && state.is_counted())
}

/// The number of pods of a member that are ready within its budget. Of one that does not answer only its minimum is certain: its
/// autoscaler goes on, and may have scaled down since it was heard. No pods end for the others, and none are started
/// instead.
fn certainly_ready(state: &MemberState<'_>) -> u32 {
    let most = if state.role == MemberRole::Lost {
        state.min()
    } else {
        state.max()
    };
    state.ready.min(most)
}

/// The number of pods that are waited for: as many as are needed, within budgets.
///
/// Nobody is given more than it has room for, so more would be waited for in vain; except for what the load asks for,
/// because then the pods beyond the budgets serve it.
fn goal(fleet: &RuleContext<'_>, floor: u32, served: u32) -> u32 {
    let budgets = sum(receivers(fleet).map(MemberState::max));
    let room = sum(receivers(fleet).map(fleet.rule_set.room));
    let load = demand(fleet).map_or(budgets, |demand| Replicas::from_f64_ceil(demand).get());
    needed(fleet, floor, served)
        .min(budgets)
        .min(room.max(load))
}

/// The number of pods that must be ready before others end: the largest of MIN, the floor, the demand, and what one autoscaler
/// over the whole fleet would still keep of what `served` when the landing began. Without MIN, a fleet without load
/// would have no pods while members change.
fn needed(fleet: &RuleContext<'_>, floor: u32, served: u32) -> u32 {
    let kept = served.min(fleet.floor.kept.unwrap_or(served));
    let load = if let Some(demand) = demand(fleet) {
        kept.max(Replicas::from_f64_ceil(demand).get())
    } else {
        let displaced = displaced(fleet, |_| true);
        kept.saturating_add(Replicas::from_f64_ceil(displaced).get())
    };
    let requested = fleet.policy.bounds.min.get().max(floor);
    // What others meet is no part of the landing.
    load.max(requested.saturating_sub(fleet.floor.met_by_others))
}

/// The demand of the fleet, including pods that are to end and are not counted yet.
fn demand(fleet: &RuleContext<'_>) -> Option<f64> {
    let demand = fleet.total.finite_demand()?;
    // The demand of counted members is part of the total already.
    Some(demand + displaced(fleet, |state| !state.is_counted()))
}

/// The known demand of pods that are to end and never were the fleet's.
fn displaced(fleet: &RuleContext<'_>, is_meant: impl Fn(&MemberState<'_>) -> bool) -> f64 {
    fleet
        .active()
        .filter(|state| is_displaced(state) && is_meant(state))
        .filter_map(|state| state.demand)
        .sum()
}

/// True if a member runs pods that never were the fleet's, whose demand is not known yet.
fn is_unmeasured(state: &MemberState<'_>) -> bool {
    is_displaced(state) && state.demand.is_none()
}

/// True if a member without a share runs pods that never were the fleet's.
fn is_displaced(state: &MemberState<'_>) -> bool {
    let pods = state.member.pods.filter(|_| !state.member.foreign_workload);
    let runs = pods.is_some_and(|pods| pods.ready > Replicas::ZERO);
    let is_new = state.previous.is_none() && state.max() == 0;
    runs && (is_new || !state.is_counted())
}

/// True if a member has pods beyond its share that are to end, or had them when it answered last: they may serve still.
fn is_ending(state: &MemberState<'_>) -> bool {
    let is_theirs = state.member.foreign_workload;
    let is_silent = matches!(
        state.role,
        MemberRole::Lost | MemberRole::Outside(Reason::Unknown)
    );
    (may_keep(state) || is_silent) && !is_theirs && beyond_share(state) > 0
}

/// The replicas beyond a member's share.
fn beyond_share(state: &MemberState<'_>) -> u32 {
    state.reported().saturating_sub(state.max())
}

fn may_keep(state: &MemberState<'_>) -> bool {
    matches!(state.role, MemberRole::Active | MemberRole::Draining)
}

/// Lets the members keep the pods beyond their shares.
fn kept(fleet: &RuleContext<'_>, goal: u32) -> Vec<Change> {
    fleet
        .members
        .iter()
        .filter_map(|state| keep(state, goal, fleet.policy.bounds.max))
        .collect()
}

/// Lets a member keep the pods beyond its share. For pods that never were the fleet's, the full count is trusted,
/// because no other member has to provide them.
fn keep(state: &MemberState<'_>, goal: u32, fleet_max: Replicas) -> Option<Change> {
    let runs = if is_displaced(state) {
        state
            .member
            .pods
            .map_or(0, |pods| pods.replicas.min(fleet_max).get())
    } else {
        state.replicas
    };
    let max = state.max();
    (may_keep(state) && runs > max).then(|| {
        let text = format!(
            "it keeps {} until the fleet has {} ready; its share is {max}",
            counted(runs, "replica"),
            counted(goal, "pod")
        );
        Change::because(state, Effect::Keep(runs), Reason::Landing, text)
    })
}
