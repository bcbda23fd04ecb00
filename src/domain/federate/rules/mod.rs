//! The rules R0 to R12: when budgets move, and who sleeps.
//!
//! | rule | when | what |
//! |---|---|---|
//! | R0 Invalid | MIN above MAX, nobody to divide over, no priority anywhere | nothing is written |
//! | R1 Unknown | no answer, or an old one | left alone; its share stays its own |
//! | R2 Failed | lost for longer than tolerated | Retain: as R1. Reassign: others get its share (R3) |
//! | R3 Assign | the spec or the candidates changed | budgets by policy; pods stay until others serve |
//! | R4 Foreign | somebody else keeps writing replicas | left alone |
//! | floors | always | the fleet's floor as shares, within budgets and capacities |
//! | R5 Blocked | pods unschedulable for longer than the delay | unusable budget goes to members with room |
//! | R6 Saturated | more needed than the maximum, or an unmet floor | unused budget of others |
//! | R7 Starved | off by default | one unit of minimum from an idle member |
//! | R8 Optimize | head-room scarce here and plenty there | head-room by policy |
//! | R9 Shrink | too much for long enough, Prioritized | the lowest tier's maximum, one tier at a time |
//! | R10 Sleep | all idle at their minima, and members may sleep | one to zero replicas |
//! | R11 Wake | the awake ones cannot carry what is needed | one or all of the sleepers |
//! | R12 Clamp | always | order, and no write of what is already so |
//!
//! A member that was moved rests for the cooldown, so the first rule that touches it wins. R5 to R9 move budgets only
//! under Aggregated, `DynamicWeighted` and Prioritized. Nothing here reads a clock: every timer is a value in the ledger.

mod assign;
mod blocked;
mod conclude;
mod conditions;
mod direct;
mod fleet;
mod floor;
mod landing;
mod optimize;
mod participation;
mod roles;
mod saturated;
mod shrink;
mod sleep;
mod starved;
mod taints;
mod wake;

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Dropped, FleetDecision, Kind, Ledger, Member, MemberDecision, Policy, Reason, Total};
use fleet::{Fleet, Role};
pub use participation::Participation;

/// Decides the bounds, floors and replicas of every member at `now`.
///
/// `members`: every configured cluster, reachable or not, in any order. `ledger`: what the last decision returned; the
/// returned one is the one to give to the next, also when nothing was written.
///
/// # Guarantees
/// - The order of the members does not matter.
/// - A member whose state is not known is never written to, and loses its share only under `Reassign`.
/// - `1 <= min <= max` for every member with a budget; maxima and what is unassigned sum to MAX within the
///   thresholds, but for what landing and lost members hold beyond it.
/// - Applied to its own result with the same observations it changes nothing.
#[must_use]
pub fn decide(
    policy: &Policy,
    total: &Total,
    members: &[Member],
    ledger: &Ledger,
    now: Timestamp,
) -> (FleetDecision, Ledger) {
    // R1, R2 and R4 are roles: who cannot be changed.
    let mut fleet = Fleet::gather(policy, total, members, ledger.clone(), now);
    if let Some((reason, message)) = problem(&fleet) {
        let ledger = assign::waiting(&fleet, ledger);
        return (refuse(fleet, reason, message), ledger); // R0
    }
    blocked::observe(&mut fleet);
    assign::assign(&mut fleet); // R3
    landing::land(&mut fleet);
    saturated::observe(&mut fleet);
    floor::share_floor(&mut fleet);
    if fleet.moves() {
        blocked::relieve(&mut fleet); // R5
        saturated::feed(&mut fleet); // R6
        saturated::lift_floor(&mut fleet);
        starved::observe(&mut fleet);
        starved::move_minimum(&mut fleet); // R7
        optimize::optimize(&mut fleet); // R8
        shrink::shrink(&mut fleet); // R9
    }
    sleep::sleep(&mut fleet); // R10
    wake::wake(&mut fleet); // R11
    floor::share_floor(&mut fleet);
    direct::count(&mut fleet);
    conclude::conclude(fleet) // R12
}

/// What runs for the fleet in each member, by name; a member that is not there has nothing to do with the fleet.
///
/// The same roles as in [`decide`] with the same arguments: what it is told of the whole is to be the sum
/// over those that are counted.
#[must_use]
pub fn participation(
    policy: &Policy,
    members: &[Member],
    ledger: &Ledger,
    now: Timestamp,
) -> BTreeMap<String, Participation> {
    let seats = roles::seats(policy, members, &ledger.members, now).into_iter();
    seats
        .map(|seat| (seat.name().to_owned(), seat.participation()))
        .collect()
}

/// Why nothing can be assigned.
fn problem(fleet: &Fleet<'_>) -> Option<(&'static str, String)> {
    let bounds = fleet.policy.bounds;
    let takes_part = |role: Role| role == Role::Active || role.is_pinned();
    if bounds.min > bounds.max {
        let message = format!(
            "minReplicas {} is above maxReplicas {}",
            bounds.min, bounds.max
        );
        return Some(("InvalidBounds", message));
    }
    if fleet.seats.iter().any(|seat| takes_part(seat.role)) {
        return None;
    }
    if fleet.policy.kind == Kind::Prioritized && nobody_ranks(fleet) {
        let message = "no preference gives any member a priority".to_owned();
        return Some(("NoPriority", message));
    }
    let message = "no member can be a candidate: check clusterAffinity, taints, and whether the workload exists in the members";
    Some(("NoCandidate", message.to_owned()))
}

/// Whether the affinity selects members, and no preference with a priority matches any of them.
fn nobody_ranks(fleet: &Fleet<'_>) -> bool {
    let profiles = fleet.seats.iter().map(|seat| &seat.member.profile);
    let mut standings = fleet.policy.standings(profiles);
    standings.retain(|standing| *standing != Err(Dropped::NotSelected));
    !standings.is_empty() && standings.iter().all(Result::is_err)
}

/// Nothing is written, and every member keeps what it has.
fn refuse(fleet: Fleet<'_>, reason: &'static str, message: String) -> FleetDecision {
    let member = |seat: fleet::MemberState<'_>| {
        let stands = seat.member.hpa.or(seat.previous);
        let (min, max) = stands.unwrap_or_default();
        let reason = match seat.role {
            Role::Outside(reason) => reason,
            _ => Reason::Invalid,
        };
        MemberDecision {
            name: seat.name().to_owned(),
            action: super::Action::Skip,
            min,
            max,
            before: stands,
            floor: crate::domain::Replicas::ZERO,
            replicas: None,
            hold: false,
            capacity: None,
            reasons: vec![reason],
            because: message.clone(),
        }
    };
    FleetDecision {
        at: fleet.now,
        members: fleet.seats.into_iter().map(member).collect(),
        order: Vec::new(),
        after_growth: Vec::new(),
        unassigned: fleet.ledger.unassigned,
        unmet_floor: crate::domain::Replicas::ZERO,
        conditions: vec![conditions::refused(reason, message)],
    }
}
