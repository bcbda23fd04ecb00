//! The rules R0 to R12: when budgets move, and which members sleep.
//!
//! | rule | when | what |
//! |---|---|---|
//! | R0 Invalid | MIN above MAX, no candidate, no priority at all | nothing is written |
//! | R1 Unknown | no answer, or an old one | not written; it keeps its share |
//! | R2 Failed | lost for longer than tolerated | Retain: as R1. Reassign: others get its share (R3) |
//! | R3 Assign | the spec or the candidates changed | budgets by policy; pods stay until others serve |
//! | R4 Foreign | another writer or autoscaler controls replicas | not written |
//! | floors | always | the fleet's floor as shares, within budgets and capacities |
//! | R5 Blocked | pods unschedulable for longer than the delay | unusable budget goes to members with room |
//! | R6 Saturated | more needed than the maximum, or an unmet floor | unused budget of others |
//! | R7 Starved | off by default | one replica of minimum from an idle member |
//! | R8 Optimize | one member has little headroom, another much | headroom by policy |
//! | R9 Shrink | an excess for long enough, Prioritized | the lowest tier's maximum, one tier at a time |
//! | R10 Sleep | all idle at their minimums, and members may sleep | one to zero replicas |
//! | R11 Wake | awake members cannot run what is needed | one or all sleeping members |
//! | R12 Clamp | always | `1 <= min <= max`; only changes are written |
//!
//! A member whose budget moved cools down, so the first rule that changes it wins. R5 to R9 move budgets only under
//! Aggregated, `DynamicWeighted` and Prioritized. Nothing here reads a clock: every timer is a value in the ledger.

mod assign;
mod blocked;
mod conclude;
mod conditions;
mod direct;
mod fleet;
mod floor;
mod landing;
mod member;
mod optimize;
mod participation;
mod proof;
mod roles;
mod saturated;
mod shrink;
mod sleep;
mod starved;
mod taints;
mod wake;

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    Action, AssignmentKind, Dropped, FleetDecision, Ledger, Member, MemberDecision, Membership,
    Policy, Reason, Total,
};
use fleet::{Rule, RuleContext, RuleSet};
use foretide_domain::{ReplicaBounds, Replicas, workload::Mode};
use member::MemberState;
use participation::MemberRole;
pub use participation::Participation;

/// The rules about budgets, and about the needs of members. R3 is first: it replaces entries as a whole.
const ASSIGNMENT: [Rule; 3] = [
    assign::assign, // R3
    landing::land,
    saturated::find_needs,
];

/// Budget moves between members.
const MOVES: [Rule; 7] = [
    blocked::relieve,           // R5
    saturated::satisfy_at_once, // R6
    saturated::satisfy,
    saturated::lift_floor,
    starved::find_idle, // R7
    starved::move_minimum,
    optimize::optimize, // R8
];

/// The rules of a fleet whose budgets stay as they are assigned.
const STATIC: RuleSet = RuleSet {
    claim: &[],
    shares: &[floor::set_shares],
    moves: &[],
    shrink: &[],
    sleep: &[sleep::after_handover], // R10
    wake: &[wake::wake_all],         // R11
    counts: &[],
    present: |state| state.member.hpa,
    room: |state| state.max(),
    tier: |_| None,
    rank: |state| i64::try_from(state.entry.weight).unwrap_or(i64::MAX),
};

const DYNAMIC: RuleSet = RuleSet {
    shares: &[floor::set_shares_of_grown],
    moves: &MOVES,
    wake: &[sleep::share_headroom, wake::wake_all],
    ..STATIC
};

const AGGREGATED: RuleSet = RuleSet {
    rank: |state| i64::from(state.replicas),
    ..DYNAMIC
};

const PRIORITIZED: RuleSet = RuleSet {
    // R9. By what it has just stored: tiers above one that ends pods are held.
    shrink: &[shrink::shrink, shrink::hold],
    wake: &[sleep::share_headroom, wake::wake_next],
    tier: |state| state.priority(),
    rank: |state| state.priority().unwrap_or(i64::MIN),
    ..DYNAMIC
};

/// The rules of a policy, chosen once: no rule asks which policy or mode it is.
fn rule_set(policy: &Policy) -> RuleSet {
    let by_kind = match policy.kind {
        AssignmentKind::Duplicated | AssignmentKind::StaticWeighted => STATIC,
        AssignmentKind::DynamicWeighted => DYNAMIC,
        AssignmentKind::Aggregated => AGGREGATED,
        AssignmentKind::Prioritized => PRIORITIZED,
    };
    let rule_set = match policy.mode {
        Mode::Delegated | Mode::Metric => by_kind,
        Mode::Direct => RuleSet {
            claim: &[direct::claim],
            sleep: &[sleep::at_once],
            counts: &[direct::count],
            // A member has no autoscaler.
            present: |state| state.previous,
            room: direct::most,
            ..by_kind
        },
    };
    if policy.may_sleep() {
        rule_set
    } else {
        RuleSet {
            sleep: &[sleep::never],
            wake: &[wake::keep_awake],
            ..rule_set
        }
    }
}

/// Decides the bounds, floors and replicas of every member at `now`.
///
/// `members`: every configured cluster, reachable or not, in any order, and those of [`Ledger::remaining`] that are no
/// longer configured. `ledger`: the one that the last decision returned, even if nothing was written.
///
/// ```
/// use foretide_federate::{AssignmentKind, Ledger, Member, Pods, Policy, Profile, Total, decide};
/// use foretide_domain::{ReplicaBounds, Replicas};
/// use jiff::Timestamp;
///
/// let member = |name: &str, capacity| Member {
///     profile: Profile { name: name.to_owned(), ..Profile::default() },
///     pods: Some(Pods { replicas: Replicas::new(2), ready: Replicas::new(2), ..Pods::default() }),
///     capacity: Some(Replicas::new(capacity)),
///     ..Member::default()
/// };
/// let members = [member("eu", 15), member("us", 5)];
/// let bounds = ReplicaBounds::new(Replicas::new(4), Replicas::new(20));
/// let policy = Policy::new(AssignmentKind::DynamicWeighted, bounds);
///
/// let now = Timestamp::from_second(1_800_000_000)?;
/// let (decision, ledger) = decide(&policy, &Total::default(), &members, &Ledger::default(), now);
/// let eu = decision.member("eu").expect("eu is a candidate");
/// assert_eq!((eu.min.get(), eu.max.get()), (3, 15));
/// assert_eq!(eu.cause(), "its share of the budget by the policy, with a capacity of 15");
/// # let _ = ledger;
/// # Ok::<(), jiff::Error>(())
/// ```
///
/// # Guarantees
/// - The order of the members does not matter.
/// - A member whose state is unknown is never written. It loses its share only under `Reassign`, or if it leaves.
/// - `1 <= min <= max` for every member with a budget; maximums and what is unassigned add up to MAX within the
///   members' limits, except for what landing and lost members keep beyond it.
/// - Applied to its own result with the same observations, it changes nothing.
pub fn decide(
    policy: &Policy,
    total: &Total,
    members: &[Member],
    ledger: &Ledger,
    now: Timestamp,
) -> (FleetDecision, Ledger) {
    ClassifiedFleet::new(policy, members, ledger, now).decide(total)
}

/// The members of a fleet with their roles: which of them count, and which can be changed.
///
/// [`decide`] in two steps, for a [`Total`] that is summed over the counted members.
///
/// ```
/// use foretide_federate::{
///     AssignmentKind, ClassifiedFleet, Ledger, Member, Participation, Pods, Policy, Profile, Total,
/// };
/// use foretide_domain::{ReplicaBounds, Replicas};
/// use jiff::Timestamp;
///
/// let member = |name: &str, foreign_hpa: Option<&str>| Member {
///     profile: Profile { name: name.to_owned(), ..Profile::default() },
///     pods: Some(Pods::default()),
///     foreign_hpa: foreign_hpa.map(str::to_owned),
///     ..Member::default()
/// };
/// let members = [member("eu", None), member("us", Some("other"))];
/// let bounds = ReplicaBounds::new(Replicas::new(4), Replicas::new(20));
/// let policy = Policy::new(AssignmentKind::DynamicWeighted, bounds);
/// let ledger = Ledger::default();
/// let fleet = ClassifiedFleet::new(&policy, &members, &ledger, Timestamp::UNIX_EPOCH);
/// let by_name = fleet.participation();
/// assert_eq!(by_name["eu"], Participation::Counted);
/// assert_eq!(by_name["us"], Participation::Excluded);
///
/// let total = Total { desired: Some(Replicas::new(6)), ..Total::default() };
/// let (decision, _ledger) = fleet.decide(&total);
/// assert_eq!(decision.member("eu").map(|eu| eu.max), Some(Replicas::new(20)));
/// ```
#[derive(Debug)]
pub struct ClassifiedFleet<'a> {
    policy: &'a Policy,
    ledger: &'a Ledger,
    now: Timestamp,
    members: Vec<MemberState<'a>>,
}

impl<'a> ClassifiedFleet<'a> {
    /// Finds the role of every member: R1, R2 and R4. The arguments are those of [`decide`].
    pub fn new(
        policy: &'a Policy,
        members: &'a [Member],
        ledger: &'a Ledger,
        now: Timestamp,
    ) -> Self {
        let mut members = roles::classify(policy, members, ledger, now);
        // The decision lists members by name, and equal claims are settled by position.
        members.sort_by(|a, b| a.name().cmp(b.name()));
        for (position, state) in members.iter_mut().enumerate() {
            state.position = position;
        }
        Self {
            policy,
            ledger,
            now,
            members,
        }
    }

    /// The participation of each member by name; a member that is absent has nothing to do with
    /// the fleet.
    pub fn participation(&self) -> BTreeMap<String, Participation> {
        self.members
            .iter()
            .map(|state| (state.name().to_owned(), state.participation))
            .collect()
    }

    /// The decision and the next ledger, as [`decide`] returns them.
    pub fn decide(self, total: &Total) -> (FleetDecision, Ledger) {
        let before = self.ledger;
        let rule_set = rule_set(self.policy);
        let mut fleet = RuleContext::new(self, &rule_set, total);
        if let Some((reason, message)) = problem(&fleet) {
            let ledger = assign::waiting(&fleet, before);
            return (refuse(&fleet, reason, message), ledger); // R0
        }
        for rules in [
            rule_set.claim,
            &ASSIGNMENT,
            rule_set.shares,
            rule_set.moves,
            rule_set.shrink,
            rule_set.sleep,
            rule_set.wake,
            // Again, because the rules have changed budgets and which members are awake.
            rule_set.shares,
            rule_set.counts,
        ] {
            fleet.follow(rules);
        }
        conclude::conclude(fleet) // R12
    }
}

/// The reason why nothing can be assigned.
fn problem(fleet: &RuleContext<'_>) -> Option<(&'static str, String)> {
    let bounds = fleet.policy.bounds;
    if bounds.min > bounds.max {
        let message = format!(
            "minReplicas {} is above maxReplicas {}",
            bounds.min, bounds.max
        );
        return Some(("InvalidBounds", message));
    }
    let drains = fleet.members.iter().any(|state| {
        state.role == MemberRole::Draining && state.member.membership == Membership::Listed
    });
    let serves = fleet.pinned().any(|state| {
        // Without a Secret it is not known whether it is selected still; nobody is drained for its sake.
        !drains || state.member.membership != Membership::Missing
    });
    if serves || fleet.active().next().is_some() {
        return None;
    }
    if has_no_priority(fleet) {
        let message = "no preference gives any member a priority".to_owned();
        return Some(("NoPriority", message));
    }
    let trouble = fleet.members.iter().find_map(|state| {
        // Not of one that is no candidate anyway.
        let is_unread = state.role == MemberRole::Outside(Reason::Unknown);
        let problem = state.member.problem.as_deref().filter(|_| is_unread)?;
        Some(format!("{}: {problem}", state.name()))
    });
    let advice = "check clusterAffinity, taints, and whether the workload exists in the members";
    let message = format!(
        "no member can be a candidate: {}",
        trouble.as_deref().unwrap_or(advice)
    );
    Some(("NoCandidate", message))
}

/// True if the affinity selects members, and no preference admits any of them: none of those that match has a priority.
fn has_no_priority(fleet: &RuleContext<'_>) -> bool {
    let profiles = fleet.members.iter().map(|state| &state.member.profile);
    let mut preferences = fleet.policy.effective_preferences(profiles);
    preferences.retain(|preference| *preference != Err(Dropped::NotSelected));
    !preferences.is_empty() && preferences.iter().all(Result::is_err)
}

/// The decision that writes nothing, so that every member keeps its bounds.
fn refuse(fleet: &RuleContext<'_>, reason: &'static str, message: String) -> FleetDecision {
    FleetDecision {
        at: fleet.now,
        members: fleet
            .members
            .iter()
            .map(|state| held(state, message.clone()))
            .collect(),
        order: Vec::new(),
        after_growth: Vec::new(),
        unassigned: fleet.ledger.unassigned,
        unmet_floor: Replicas::ZERO,
        conditions: vec![conditions::refused(reason, message)],
    }
}

/// The decision that leaves a member as it is.
fn held(state: &MemberState<'_>, because: String) -> MemberDecision {
    let before = state.member.hpa.or(state.previous);
    let ReplicaBounds { min, max } = before.unwrap_or_default();
    let reason = match state.role {
        MemberRole::Outside(reason) => reason,
        _ => Reason::Invalid,
    };
    MemberDecision {
        name: state.name().to_owned(),
        action: Action::Hold,
        min,
        max,
        before,
        floor: Replicas::ZERO,
        replicas: None,
        hold: false,
        capacity: None,
        reasons: vec![reason],
        because,
    }
}
