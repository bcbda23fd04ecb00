//! The decision for a fleet, with the reason of every change, and its texts for status and events.

use std::fmt::Write as _;

use jiff::Timestamp;

use foretide_domain::words::counted;
use foretide_domain::{ReplicaBounds, Replicas, condition};

/// The decision for a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetDecision {
    /// The time at which it was made.
    pub at: Timestamp,
    /// The members, by name, without those that have nothing to do with the fleet.
    pub members: Vec<MemberDecision>,
    /// The members to write, in order, as positions in `members`: maximums that shrink, then those that grow or stay,
    /// then the writes in `after_growth`. After a write that lowers a maximum has failed, those that raise one must
    /// wait for the next decision.
    pub order: Vec<usize>,
    /// The end of `order`: writes that end ready pods, which may be needed until other members have grown. Skip them if
    /// an earlier write that lets another member grow has failed.
    pub after_growth: Vec<usize>,
    /// The part of MAX that no member can take.
    pub unassigned: Replicas,
    /// The part of the floor that no member can take.
    pub unmet_floor: Replicas,
    /// `Assigned`, `Balanced`, `MembersReachable`, `ReplicaConflict`, `CapacityKnown`.
    pub conditions: Vec<Condition>,
}

/// The decision for one member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberDecision {
    /// The member's name.
    pub name: String,
    /// The action.
    pub action: Action,
    /// The `minReplicas` to write: the larger of its budget's and its floor.
    pub min: Replicas,
    /// The `maxReplicas` to write; zero means no autoscaler there.
    pub max: Replicas,
    /// The bounds that were written for it before; absent when there were none.
    pub before: Option<ReplicaBounds>,
    /// The share of the fleet's floor; zero when there is no floor.
    pub floor: Replicas,
    /// The replicas to write, where the hub writes them: Create, Wake, Sleep, Drain; and always in Direct.
    pub replicas: Option<Replicas>,
    /// True if its autoscaler must not scale down now, because members of lower priority do first (R9).
    pub hold: bool,
    /// The number of replicas that it can run in all; absent when unknown.
    pub capacity: Option<Replicas>,
    /// The reasons, the deciding one first.
    pub reasons: Vec<Reason>,
    /// The deciding reason with its numbers; empty when [`Reason::text`] says it all.
    pub because: String,
}

foretide_domain::words! {
    /// The treatment of a member.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Action {
        /// Nothing differs.
        #[default]
        Keep,
        /// Create the autoscaler, and the workload if the hub places it.
        Create,
        /// Change the autoscaler's bounds or the replicas.
        Update,
        /// Scale from zero replicas to one or more.
        Wake,
        /// Scale to zero replicas; the autoscaler stays.
        Sleep,
        /// Scale a deselected member, or one without a budget, to zero replicas: the others serve.
        Drain,
        /// Delete the autoscaler of a drained member, and the workload if the hub placed it.
        Delete,
        /// Write nothing on purpose: its state is unknown, or another writer controls it.
        Hold,
    }
}

impl Action {
    /// True if there is something to write.
    ///
    /// ```
    /// use foretide_federate::Action;
    ///
    /// assert!(Action::Wake.writes());
    /// assert!(!Action::Hold.writes());
    /// ```
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Keep | Self::Hold)
    }
}

/// Declares the reasons: variant, meaning, and the text where there are no numbers.
macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident => $text:literal,)+) => {
        /// The reason why a member has its bounds and replicas. Stable words, `UpperCamelCase` in status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])+ $name,)+ }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word in status.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// The text: lower case, no full stop.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// R0: the policy cannot be applied.
    Invalid => "the policy cannot be applied; nothing is written",
    /// R1: its state is unknown.
    Unknown => "no answer; its share and bounds stay unchanged",
    /// R2: lost for longer than tolerated; its share is retained or reassigned.
    Failed => "unavailable for longer than tolerationSeconds",
    /// R2: healthy again, and waiting for its share.
    Recovered => "healthy again; it gets a share after a cooldown",
    /// The minimum follows its share of the floor.
    Floor => "its share of the floor from forecast, cron windows and fleet metrics",
    /// The bounds in the member differ from the decided ones.
    Restored => "drift corrected",
    /// R4: another writer or autoscaler controls its replicas.
    Foreign => "another writer controls its replicas; they are not changed",
    /// No candidate: the workload does not exist in it, and the hub does not place it.
    TargetAbsent => "the workload does not exist in this member",
    /// No candidate: weights or priorities are given, but none to it.
    NoPreference => "no preference gives it a weight or priority",
    /// No candidate: it leaves on purpose, and nothing of the fleet is known to be left in it.
    Leaving => "it leaves on purpose and gets no share",
    /// No candidate yet: it has a taint that is not tolerated.
    Tainted => "it has a taint that is not tolerated",
    /// R3: its budget was assigned.
    Assigned => "its share of the budget by the policy",
    /// R3: there is no budget for it.
    NoBudget => "the policy gives it no share now",
    /// R3, R2: it keeps its pods until others are ready.
    Landing => "it keeps its pods until other members are ready",
    /// R3: it kept its pods until others were ready, and no longer does.
    Landed => "other members are ready or the wait has timed out; reduced to its share",
    /// No candidate any more, or without a budget: its pods end.
    Drained => "it no longer has a share; scaled to zero",
    /// R5: its pods are unschedulable.
    Blocked => "its pods are unschedulable",
    /// R5: it got budget that a blocked member cannot use.
    Relief => "it takes over replicas that another member has no capacity for",
    /// R5: pods are unschedulable, and no other member has capacity either.
    NoCapacityAnywhere => "its pods are unschedulable, and no other member has capacity",
    /// R6: it needed more than its budget.
    Saturated => "it needs more than its maximum",
    /// R6: it gave budget that it did not use.
    Donor => "another member needs budget that it does not use",
    /// R6: it got budget so that the floor can be met.
    FloorLifted => "the floor of the fleet exceeds the maximums of its members",
    /// R7: one replica of minimum moved.
    Starved => "one replica of minReplicas moved to a member that needs more",
    /// R8: headroom was redistributed.
    Optimized => "unused headroom was redistributed",
    /// R9: it shrinks before members of higher priority do.
    ShrinkOrder => "the fleet needs fewer replicas, and the lowest priority shrinks first",
    /// R9: it must not scale down until a member of lower priority has.
    Held => "it does not scale down until members of lower priority have",
    /// R9: it serves local demand and keeps its replicas.
    LocalDemand => "it serves demand that other members cannot serve",
    /// R10: it was scaled to zero replicas.
    Slept => "scaled to zero; the other members serve the load",
    /// R11: it was woken.
    Woken => "scaled up from zero because it is needed",
    /// The replicas are zero and its autoscaler is paused.
    Asleep => "scaled to zero until it is needed",
    /// No member can take the rest of the floor.
    FloorUnmet => "the fleet needs more replicas than its members can run",
    /// A lost member holds budget beyond MAX.
    BudgetHeldByLost => "unavailable members keep their budget, so the maximums add up to more than maxReplicas",
    /// A member that runs as decided.
    Steady => "nothing to change",
}

impl MemberDecision {
    /// The change and its reason, without a full stop, such as `max 7 -> 10: 6 pods unschedulable for 75 s in member1`.
    ///
    /// ```
    /// use foretide_federate::{Action, MemberDecision, Reason};
    /// use foretide_domain::{ReplicaBounds, Replicas};
    ///
    /// let decision = MemberDecision {
    ///     name: "eu".into(),
    ///     action: Action::Update,
    ///     min: Replicas::new(1),
    ///     max: Replicas::new(10),
    ///     before: Some(ReplicaBounds::new(Replicas::new(1), Replicas::new(7))),
    ///     floor: Replicas::ZERO,
    ///     replicas: None,
    ///     hold: false,
    ///     capacity: None,
    ///     reasons: vec![Reason::Saturated],
    ///     because: String::new(),
    /// };
    /// assert_eq!(decision.sentence(), "max 7 -> 10: it needs more than its maximum");
    /// ```
    pub fn sentence(&self) -> String {
        let mut text = self.change();
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(self.cause());
        text
    }

    /// The reason without the change.
    pub fn cause(&self) -> &str {
        if self.because.is_empty() {
            self.reasons.first().map_or("", |reason| reason.text())
        } else {
            &self.because
        }
    }

    fn change(&self) -> String {
        if matches!(self.action, Action::Hold) {
            return String::new();
        }
        let ReplicaBounds { min, max } = self.before.unwrap_or_default();
        let mut changes = Vec::new();
        if min != self.min {
            changes.push(format!("min {min} -> {}", self.min));
        }
        if max != self.max {
            changes.push(format!("max {max} -> {}", self.max));
        }
        if let Some(replicas) = self.replicas
            && self.action.writes()
        {
            changes.push(format!("replicas {replicas}"));
        }
        changes.join(", ")
    }
}

impl FleetDecision {
    /// The decision for one member.
    ///
    /// `None` for one that is not a member, or has nothing to do with the fleet.
    pub fn member(&self, name: &str) -> Option<&MemberDecision> {
        let at = self
            .members
            .binary_search_by(|member| member.name.as_str().cmp(name));
        self.members.get(at.ok()?)
    }

    /// Summarizes the decision, without a full stop: each member that changes, or that none does, and what no member
    /// can take.
    pub fn message(&self) -> String {
        let changed: Vec<_> = self
            .members
            .iter()
            .filter(|member| member.action.writes())
            .map(|member| format!("{}: {}", member.name, member.sentence()))
            .collect();
        let mut text = if changed.is_empty() {
            let count = self
                .members
                .iter()
                .filter(|member| member.max > Replicas::ZERO)
                .count();
            format!(
                "nothing to change in {} with a share",
                counted(count, "member")
            )
        } else {
            changed.join("; ")
        };
        if self.unmet_floor > Replicas::ZERO {
            let unmet = counted(self.unmet_floor.get(), "replica");
            write!(text, "; no member has capacity for {unmet} of the floor").ok();
        }
        if self.unassigned > Replicas::ZERO {
            let left = counted(self.unassigned.get(), "replica");
            write!(text, "; no member can take {left} of maxReplicas").ok();
        }
        text
    }
}

/// One condition of a fleet.
pub type Condition = condition::Condition<ConditionKind>;

foretide_domain::words! {
    /// The type of a fleet's condition.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ConditionKind {
        /// The assignment of budgets.
        Assigned,
        /// The fit of budgets to the needs of members.
        Balanced,
        /// The reachability of every candidate.
        MembersReachable,
        /// The presence of another field manager that writes replicas in a member.
        ReplicaConflict,
        /// The knowledge of the capacity of every candidate.
        CapacityKnown,
    }
}
