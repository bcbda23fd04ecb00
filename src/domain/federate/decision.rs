//! What was decided for a fleet, with every reason. Data, and the words for it.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::domain::{Replicas, observation::Status};

/// The explained result for a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetDecision {
    /// When it was made.
    pub at: Timestamp,
    /// The members, by name; those that are not candidates and have nothing of ours are left out.
    pub members: Vec<MemberDecision>,
    /// The order in which to write, as positions in `members`, of those that have something to write: a count that
    /// one loses comes before one that another gains, unless ready pods would end (then the other way round). After a
    /// write that lowers a maximum has failed, those that raise one must wait for the next decision.
    pub order: Vec<usize>,
    /// The end of `order`: what ends ready pods that may be needed until others have grown. Nothing of it may be
    /// written after a write before it has failed that was to let another grow.
    pub after_growth: Vec<usize>,
    /// What no member can take of MAX.
    pub unassigned: Replicas,
    /// What no member can take of the floor.
    pub unmet_floor: Replicas,
    /// `Assigned`, `Balanced`, `MembersReachable`, `ReplicaConflict`, `CapacityKnown`.
    pub conditions: Vec<Condition>,
}

/// What was decided for one member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberDecision {
    /// The member's name.
    pub name: String,
    /// What is to be done.
    pub action: Action,
    /// The `minReplicas` to write: the larger of its budget's and its floor.
    pub min: Replicas,
    /// The `maxReplicas` to write; zero means no autoscaler there.
    pub max: Replicas,
    /// The bounds that were written for it before; absent when none were.
    pub before: Option<(Replicas, Replicas)>,
    /// Its share of the fleet's floor; zero when nothing is asked for.
    pub floor: Replicas,
    /// The replicas to write, where the hub writes them: Create, Wake, Sleep, Drain; and always in Direct.
    pub replicas: Option<Replicas>,
    /// Whether its autoscaler may not scale down now, because another member shall first (R9).
    pub hold: bool,
    /// What it can run in all; absent when unknown.
    pub capacity: Option<Replicas>,
    /// Why, the deciding reason first.
    pub reasons: Vec<Reason>,
    /// The deciding reason in this case, with its numbers; empty when there is no more to say than the reason.
    pub because: String,
}

/// What is to be done with a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Action {
    /// Nothing differs.
    #[default]
    Keep,
    /// The workload (where the hub places it) and the autoscaler are to be created.
    Create,
    /// The autoscaler's bounds or the replicas are to be changed.
    Update,
    /// From zero replicas to one or more.
    Wake,
    /// To zero replicas; the autoscaler stays.
    Sleep,
    /// Deselected or without a budget: to zero replicas once the others serve.
    Drain,
    /// Deselected and drained: the autoscaler goes, and the workload if the hub placed it.
    Delete,
    /// Not touched, because its state is not known or somebody else writes it.
    Skip,
}

impl Action {
    /// The `UpperCamelCase` word used in status and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "Keep",
            Self::Create => "Create",
            Self::Update => "Update",
            Self::Wake => "Wake",
            Self::Sleep => "Sleep",
            Self::Drain => "Drain",
            Self::Delete => "Delete",
            Self::Skip => "Skip",
        }
    }

    /// Whether there is something to write.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Keep | Self::Skip)
    }
}

/// Declares the reasons: variant, meaning, and what is said when there are no numbers to say more.
macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident => $text:literal,)+) => {
        /// Why a member has what it has. Stable words, `UpperCamelCase` in status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])+ $name,)+ }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word in status.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// What it means, for people: lower case, no full stop.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// R0: the policy cannot be carried out.
    Invalid => "the policy cannot be carried out, so nothing is written",
    /// R1: its state is not known.
    Unknown => "it does not answer, so it keeps what it has and is left alone",
    /// R2: lost for longer than tolerated; its share is retained or reassigned.
    Failed => "it has been lost for longer than is tolerated",
    /// R2: well again, and waiting for its share.
    Recovered => "it answers again and gets a share when it has done so for a while",
    /// Its minimum follows its share of the floor.
    Floor => "its share of what forecast, cron windows and metrics of the fleet ask for",
    /// What stands in the member is not what was decided.
    Restored => "it is brought back to what was decided",
    /// R4: somebody else keeps writing the replicas.
    Foreign => "somebody else keeps writing its replicas, so it is left alone",
    /// It is no candidate: the workload is not there, and others place it.
    TargetAbsent => "the workload does not exist there, and whoever places it has not done so",
    /// It is no candidate: weights or priorities are given, but none to it.
    NoPreference => "no preference gives it a weight or priority",
    /// It is no candidate yet: it has a taint that is not tolerated.
    Tainted => "it has a taint that is not tolerated",
    /// R3: its budget was divided anew.
    Assigned => "its share of the budget by the policy",
    /// R3: there is no budget for it.
    NoBudget => "the policy gives it no share now",
    /// R3, R2: it keeps its pods until others are ready.
    Landing => "it keeps its pods until others are ready to serve",
    /// R3: it kept its pods for others, and does not any more.
    Landed => "the wait for others is over, so it comes down to its share",
    /// No candidate any more, or without a budget: its pods end.
    Drained => "it has no share any more, so its pods end",
    /// R5: its pods are unschedulable.
    Blocked => "its pods are unschedulable",
    /// R5: it got what a blocked member cannot use.
    Relief => "it takes over what another member has no room for",
    /// R5: pods are unschedulable, and no other member has room either.
    NoCapacityAnywhere => "its pods are unschedulable, and no other member has room",
    /// R6: it needed more than its budget.
    Saturated => "it needs more than its maximum",
    /// R6: it gave budget that it did not use.
    Donor => "another member needs what it does not use",
    /// R6: it got budget so that the floor can be met.
    FloorLifted => "the fleet must have more replicas than maximums allow",
    /// R7: a minimum moved to where it is needed.
    Starved => "a minimum moved to where more is wanted",
    /// R8: head-room was divided anew.
    Optimized => "unused head-room was divided anew",
    /// R9: it shrinks before members of higher priority do.
    ShrinkOrder => "the fleet needs less, and the lowest priority shrinks first",
    /// R9: it may not scale down, because a member of lower priority shall first.
    Held => "it does not scale down before members of lower priority have",
    /// R9: it serves demand of its own, and is spared.
    LocalDemand => "it serves demand that others cannot",
    /// R10: it sleeps at zero replicas.
    Slept => "the others serve without it",
    /// R11: it was woken.
    Woken => "it is needed",
    /// Its replicas are zero and the autoscaler sleeps.
    Asleep => "it sleeps until it is needed",
    /// No member can take the whole floor.
    FloorUnmet => "the fleet needs more replicas than its members can run",
    /// A lost member holds budget beyond MAX.
    BudgetHeldByLost => "lost members hold budget, so maximums sum to more than the fleet's",
    /// It runs as it should.
    Steady => "nothing to change",
}

impl MemberDecision {
    /// What changes and why, in one sentence without a full stop, such as
    /// `max 7 -> 10: 6 pods unschedulable for 75 s in member1`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = self.change();
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(self.cause());
        text
    }

    /// Why, without what changes.
    #[must_use]
    pub fn cause(&self) -> &str {
        if self.because.is_empty() {
            self.reasons.first().map_or("", |reason| reason.text())
        } else {
            &self.because
        }
    }

    fn change(&self) -> String {
        let (min, max) = self.before.unwrap_or_default();
        let mut text = String::new();
        let mut say = |what: &str, from: Replicas, to: Replicas| {
            if from != to {
                let comma = if text.is_empty() { "" } else { ", " };
                // Writing to a string cannot fail.
                write!(text, "{comma}{what} {from} -> {to}").ok();
            }
        };
        if matches!(self.action, Action::Skip) {
            return text;
        }
        say("min", min, self.min);
        say("max", max, self.max);
        if let Some(replicas) = self.replicas
            && self.action.writes()
        {
            let comma = if text.is_empty() { "" } else { ", " };
            write!(text, "{comma}replicas {replicas}").ok();
        }
        text
    }
}

impl FleetDecision {
    /// The decision for one member.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&MemberDecision> {
        let at = self
            .members
            .binary_search_by(|member| member.name.as_str().cmp(name));
        self.members.get(at.ok()?)
    }

    /// What happens to the fleet, in one sentence without a full stop: each member that changes, or that nothing does,
    /// and what cannot be placed.
    #[must_use]
    pub fn message(&self) -> String {
        let changed = self.members.iter().filter(|member| member.action.writes());
        let changed: Vec<_> = changed
            .map(|member| format!("{}: {}", member.name, member.sentence()))
            .collect();
        let mut text = if changed.is_empty() {
            let with_budget = |member: &&MemberDecision| member.max > Replicas::ZERO;
            let count = self.members.iter().filter(with_budget).count();
            format!("nothing to change in {count} members with a share")
        } else {
            changed.join("; ")
        };
        if self.unmet_floor > Replicas::ZERO {
            let unmet = self.unmet_floor;
            write!(text, "; {unmet} replicas of the floor find no room").ok();
        }
        if self.unassigned > Replicas::ZERO {
            let left = self.unassigned;
            write!(text, "; {left} replicas of maxReplicas are unassigned").ok();
        }
        text
    }
}

/// One condition of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: ConditionKind,
    /// Whether it holds.
    pub status: Status,
    /// Why: one `UpperCamelCase` word of a closed set.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// The type of a fleet's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionKind {
    /// Whether budgets could be assigned.
    Assigned,
    /// Whether the budgets fit what the members need.
    Balanced,
    /// Whether every candidate can be reached.
    MembersReachable,
    /// Whether somebody else writes replicas in a member.
    ReplicaConflict,
    /// Whether the capacity of every candidate is known.
    CapacityKnown,
}

impl ConditionKind {
    /// The word in status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Assigned => "Assigned",
            Self::Balanced => "Balanced",
            Self::MembersReachable => "MembersReachable",
            Self::ReplicaConflict => "ReplicaConflict",
            Self::CapacityKnown => "CapacityKnown",
        }
    }
}
