//! Third step of a fleet's sync: carries out the decision, in its order.
//!
//! The members of a phase are written concurrently, the phases one after another: shares that shrink go first, unless
//! the decision orders otherwise. If a maximum cannot be lowered, none is raised after it, so that the fleet never
//! exceeds its own maximum; if a share cannot grow, the ready pods that it was to replace are not removed. Any other
//! failure, or a slow member, does not affect the other members.

use std::time::Duration;

use foretide_domain::{Replicas, hpa::Behavior};
use foretide_federate::FleetDecision;
use futures::future::join_all;
use jiff::Timestamp;

use super::{
    member_plan::MemberPlan,
    state::{MemberRecord, ShapedMin},
};
use crate::apply::{Effect, HpaChange, Writer};
use foretide_api::ports::{ClusterError, Member};
use foretide_base::telemetry::{Telemetry, Write};

/// Settings for the writes to members.
#[derive(Debug, Clone, Copy)]
pub struct MemberWriter<'a> {
    /// The counters of writes.
    pub telemetry: &'a Telemetry,
    /// Time for the writes of one member.
    pub deadline: Duration,
}

/// Outcome of the plan of one member.
#[derive(Debug)]
pub struct MemberApplied {
    pub plan: MemberPlan,
    /// The effect that the member accepted, or the reason why it did not.
    pub outcome: Result<Effect, ClusterError>,
}

// === impl MemberApplied ===

impl MemberApplied {
    /// The counts before and after, if the replicas were written.
    pub fn scaled(&self) -> Option<(Replicas, Replicas)> {
        let to = self.outcome.as_ref().ok()?.scaled?;
        let decided = self.plan.decided.as_ref()?;
        Some((decided.observation.observation.scale.spec, to))
    }

    /// Records the outcome; returns true if it is to be decided again at once.
    pub fn record(
        &self,
        record: &mut MemberRecord,
        behavior: Option<&Behavior>,
        now: Timestamp,
    ) -> bool {
        let effect = match &self.outcome {
            Ok(effect) => effect,
            Err(error) => return matches!(error, ClusterError::Conflict { .. }),
        };
        if let Some(placement) = &self.plan.placement {
            record.placed = Some(placement.template.version);
            record.start = placement.start;
        }
        if self.plan.decided.is_some() {
            record.target.child_left(effect.child.as_ref());
            let decided = self.plan.min;
            let written = record.target.child_min;
            record.shaped = written.map(|written| ShapedMin { written, decided });
        }
        if let Some((from, to)) = self.scaled() {
            record.target.scaled(behavior, from, to, now);
            let pods = record.last.as_mut().and_then(|last| last.pods.as_mut());
            if let Some(pods) = pods {
                // The count that is expected from now on; any other one is a foreign write.
                pods.replicas = to;
            }
        }
        // A workload that was just placed has no child yet.
        self.plan.decided.is_none()
    }
}

/// Change of a member's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// The maximum is lowered.
    Shrinks,
    /// The member is not in the order: no other member waits for it.
    Unordered,
    /// The maximum stays.
    Stays,
    /// The maximum is raised.
    Grows,
    /// The member removes ready pods that may be needed until others have grown.
    Ends,
}

/// Writes that are still allowed, after what has failed.
#[derive(Debug, Clone, Copy)]
struct WriteGuard {
    may_grow: bool,
    may_end: bool,
}

// === impl WriteGuard ===

impl WriteGuard {
    fn allows(self, direction: Direction) -> bool {
        match direction {
            Direction::Shrinks | Direction::Unordered | Direction::Stays => true,
            Direction::Grows => self.may_grow,
            Direction::Ends => self.may_end,
        }
    }

    /// The guard after a failure: if a maximum was not lowered, none may be raised; if a share did not grow, the pods
    /// that it was to replace may not be removed.
    fn without(mut self, failed: Direction) -> Self {
        match failed {
            Direction::Shrinks => self.may_grow = false,
            // The replicas of the member may have been meant to grow.
            Direction::Stays | Direction::Grows => self.may_end = false,
            Direction::Unordered | Direction::Ends => {}
        }
        self
    }
}

// === impl MemberWriter ===

impl MemberWriter<'_> {
    /// Carries out the plans of one fleet, each in its member.
    pub async fn apply<M: Member>(
        self,
        decision: &FleetDecision,
        mut plans: Vec<(&M, MemberPlan)>,
    ) -> Vec<MemberApplied> {
        let mut applied = Vec::with_capacity(plans.len());
        let mut guard = WriteGuard {
            may_grow: true,
            may_end: true,
        };
        for (direction, names) in phases(decision) {
            let (phase, rest): (Vec<_>, _) = plans
                .into_iter()
                .partition(|(_, plan)| names.contains(&&*plan.name));
            plans = rest;
            // A skipped phase counts as failed, because later phases rely on it in the same way.
            if !guard.allows(direction) {
                guard = guard.without(direction);
                continue;
            }
            let writes = phase
                .into_iter()
                .map(|(member, plan)| self.write_in_time(member, plan));
            let written = join_all(writes).await;
            if written.iter().any(|applied| applied.outcome.is_err()) {
                guard = guard.without(direction);
            }
            applied.extend(written);
        }
        applied
    }

    async fn write_in_time<M: Member>(self, member: &M, plan: MemberPlan) -> MemberApplied {
        let writes = tokio::time::timeout(self.deadline, self.write(member, &plan));
        let outcome = writes.await.unwrap_or_else(|_elapsed| {
            Err(ClusterError::Unreachable {
                what: format!("member {}", plan.name),
                message: format!("not written within {:?}", self.deadline),
            })
        });
        MemberApplied { plan, outcome }
    }

    async fn write<M: Member>(self, member: &M, plan: &MemberPlan) -> Result<Effect, ClusterError> {
        let writer = Writer {
            cluster: member,
            telemetry: self.telemetry,
        };
        let mut effect = Effect::default();
        let mut changes = Vec::new();
        if let Some(placement) = &plan.placement {
            let outcome = member.place(&placement.manifest()).await;
            self.telemetry.wrote(Write::Workload, outcome.is_ok());
            outcome?;
            changes.push(HpaChange::Placed);
        }
        if let Some(decided) = &plan.decided {
            // The HPA before the replicas, so that it does not undo a count outside its old bounds.
            effect = writer.carry_out(decided).await?;
            if let Some(replicas) = plan.replicas {
                effect.scaled = writer.scale(decided, replicas).await?;
            }
            if let Some(uid) = &plan.removes {
                let outcome = member.remove(&decided.part.workload.target, uid).await;
                self.telemetry.wrote(Write::Workload, outcome.is_ok());
                outcome?;
                changes.push(HpaChange::Displaced);
            }
        }
        if let Some(orphan) = &plan.orphan {
            changes.push(writer.release(orphan).await?);
        }
        effect.changes.extend(changes);
        Ok(effect)
    }
}

/// The members in phases. Those that the order leaves out come first: no other member waits for them.
fn phases(decision: &FleetDecision) -> Vec<(Direction, Vec<&str>)> {
    let mut unordered = Vec::new();
    for (position, member) in decision.members.iter().enumerate() {
        if !decision.order.contains(&position) {
            unordered.push(&*member.name);
        }
    }
    let mut phases = vec![(Direction::Unordered, unordered)];
    let ordered = decision.order.iter();
    for (position, member) in ordered.filter_map(|at| Some((at, decision.members.get(*at)?))) {
        let before = member.before.map_or(Replicas::ZERO, |bounds| bounds.max);
        let direction = match member.max.cmp(&before) {
            _ if decision.after_growth.contains(position) => Direction::Ends,
            std::cmp::Ordering::Less => Direction::Shrinks,
            std::cmp::Ordering::Equal => Direction::Stays,
            std::cmp::Ordering::Greater => Direction::Grows,
        };
        match phases.last_mut() {
            Some((last, names)) if *last == direction => names.push(&member.name),
            _ => phases.push((direction, vec![&member.name])),
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use foretide_federate::{MemberDecision, Reason};

    use super::*;
    use crate::fleet::last_move;

    /// A decision about a member by which its maximum becomes another.
    fn decided(name: &str, before: u32, max: u32) -> MemberDecision {
        MemberDecision {
            name: name.to_owned(),
            ..last_move::tests::decided(Reason::Steady, (1, before), (1, max))
        }
    }

    #[test]
    fn what_waits_for_others_to_grow_is_a_phase_of_its_own() {
        let decision = FleetDecision {
            at: Timestamp::UNIX_EPOCH,
            members: vec![
                decided("a", 8, 2),
                decided("b", 2, 8),
                decided("c", 5, 4),
                decided("d", 3, 3),
                decided("e", 3, 3),
            ],
            order: vec![2, 1, 3, 0],
            after_growth: vec![0],
            unassigned: Replicas::ZERO,
            unmet_floor: Replicas::ZERO,
            conditions: Vec::new(),
        };
        let expected = [
            (Direction::Unordered, vec!["e"]),
            (Direction::Shrinks, vec!["c"]),
            (Direction::Grows, vec!["b"]),
            (Direction::Stays, vec!["d"]),
            (Direction::Ends, vec!["a"]),
        ];
        assert_eq!(phases(&decision), expected);
    }

    #[test]
    fn a_failed_write_stops_only_writes_that_rely_on_it() {
        use Direction::{Ends, Grows, Shrinks, Stays, Unordered};
        let all = WriteGuard {
            may_grow: true,
            may_end: true,
        };
        let cases = [
            (Shrinks, (false, true)),
            (Unordered, (true, true)),
            (Stays, (true, false)),
            (Grows, (true, false)),
            (Ends, (true, true)),
        ];
        for (failed, left) in cases {
            let guard = all.without(failed);
            let allowed = (guard.allows(Grows), guard.allows(Ends));
            assert_eq!(allowed, left, "{failed:?}");
            assert!(guard.allows(Shrinks) && guard.allows(Unordered) && guard.allows(Stays));
        }
    }
}
