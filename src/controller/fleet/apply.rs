//! Fifth step of a fleet's sync: carry out what was decided, in its order.
//!
//! Members of one phase are written at once, phases one after the other: what shrinks goes first, unless it was
//! decided the other way round. Where a maximum could not be lowered none is raised after it, so that the fleet never
//! has more than it may; where something could not grow no ready pods end that it was to replace. Any other failure
//! stays with its member, and so does the time that it takes.

use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;

use super::{member_plan::Part, state::MemberRecord};
use crate::{
    controller::apply::{Effect, HpaChange, carry_out, part_with, scale},
    domain::{Replicas, federate::FleetDecision, hpa::Behavior},
    ports::{ClusterError, Member},
    telemetry::{Telemetry, Write},
};

/// What members are written with.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemberWriter<'a> {
    /// Where writes are counted.
    pub(super) telemetry: &'a Telemetry,
    /// Time for the writes of one member.
    pub(super) deadline: Duration,
}

/// What became of one part.
#[derive(Debug)]
pub(super) struct Done {
    /// What was to be done.
    pub(super) part: Part,
    /// What the member accepted, or why it did not.
    pub(super) outcome: Result<Effect, ClusterError>,
}

// === impl Done ===

impl Done {
    /// The counts before and after, if the replicas were written.
    pub(super) fn scaled(&self) -> Option<(Replicas, Replicas)> {
        let to = self.outcome.as_ref().ok()?.scaled?;
        let planned = self.part.planned.as_ref()?;
        Some((planned.sighting.scale.scale.spec, to))
    }

    /// Has the member's memory know it; whether to decide again at once.
    pub(super) fn remember(
        &self,
        memory: &mut MemberRecord,
        behavior: Option<&Behavior>,
        now: Timestamp,
    ) -> bool {
        let effect = match &self.outcome {
            Ok(effect) => effect,
            Err(error) => return matches!(error, ClusterError::Conflict { .. }),
        };
        if let Some(placing) = &self.part.placing {
            memory.placed = Some(placing.template.version);
            memory.start = placing.start;
        }
        if self.part.planned.is_some() {
            memory.track.delegated(effect);
            let decided = self.part.min;
            memory.shaped = memory.track.child_min.map(|left| (left, decided));
        }
        if let Some((from, to)) = self.scaled() {
            memory.track.changed(behavior, (from, to), now);
            let pods = memory.last.as_mut().and_then(|last| last.pods.as_mut());
            if let Some(pods) = pods {
                pods.replicas = to;
            }
        }
        self.part.planned.is_none()
    }
}

/// Whether a member's share grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Its maximum becomes less.
    Shrinks,
    /// Nothing of it is in the order: nobody waits for it.
    Aside,
    /// Its maximum stays.
    Stays,
    /// Its maximum becomes more.
    Grows,
    /// It ends ready pods that may be needed until others have grown.
    Ends,
}

/// What still may be written, after what has failed.
#[derive(Debug, Clone, Copy)]
struct WriteGuard {
    to_grow: bool,
    to_end: bool,
}

// === impl WriteGuard ===

impl WriteGuard {
    fn allows(self, direction: Direction) -> bool {
        match direction {
            Direction::Shrinks | Direction::Aside | Direction::Stays => true,
            Direction::Grows => self.to_grow,
            Direction::Ends => self.to_end,
        }
    }

    /// A maximum that was not lowered lets none be raised; what did not grow lets no pods end that it was to replace.
    fn without(mut self, failed: Direction) -> Self {
        match failed {
            Direction::Shrinks => self.to_grow = false,
            // Its replicas may be what grows.
            Direction::Stays | Direction::Grows => self.to_end = false,
            Direction::Aside | Direction::Ends => {}
        }
        self
    }
}

// === impl MemberWriter ===

impl MemberWriter<'_> {
    /// Carries out the parts of one fleet, each with the member that it is for.
    pub(super) async fn apply<M: Member>(
        self,
        decision: &FleetDecision,
        mut parts: Vec<(&M, Part)>,
    ) -> Vec<Done> {
        let mut done = Vec::with_capacity(parts.len());
        let mut leave = WriteGuard {
            to_grow: true,
            to_end: true,
        };
        for (direction, names) in phases(decision) {
            let (phase, rest): (Vec<_>, _) = parts
                .into_iter()
                .partition(|(_, part)| names.contains(&&*part.name));
            parts = rest;
            if !leave.allows(direction) {
                leave = leave.without(direction);
                continue;
            }
            let writes = phase
                .into_iter()
                .map(|(member, part)| self.write(member, part));
            let written = join_all(writes).await;
            if written.iter().any(|done| done.outcome.is_err()) {
                leave = leave.without(direction);
            }
            done.extend(written);
        }
        done
    }

    async fn write<M: Member>(self, member: &M, part: Part) -> Done {
        let writes = tokio::time::timeout(self.deadline, self.carry(member, &part));
        let outcome = writes.await.unwrap_or_else(|_elapsed| {
            Err(ClusterError::Unreachable {
                what: format!("member {}", part.name),
                message: format!("not written within {:?}", self.deadline),
            })
        });
        Done { part, outcome }
    }

    /// The autoscaler first, so that it does not undo a count that it would not have given.
    async fn carry<M: Member>(self, member: &M, part: &Part) -> Result<Effect, ClusterError> {
        let mut effect = Effect::default();
        let mut deeds = Vec::new();
        if let Some(placing) = &part.placing {
            let outcome = member.place(&placing.template.manifest).await;
            self.telemetry.wrote(Write::Workload, outcome.is_ok());
            outcome?;
            deeds.push(HpaChange::Placed);
        }
        if let Some(planned) = &part.planned {
            effect = carry_out(member, self.telemetry, planned).await?;
            if let Some(replicas) = part.replicas {
                effect.scaled = scale(member, self.telemetry, planned, replicas).await?;
            }
            if let Some(uid) = &part.removes {
                let outcome = member.remove(&planned.target, uid).await;
                self.telemetry.wrote(Write::Workload, outcome.is_ok());
                outcome?;
                deeds.push(HpaChange::Displaced);
            }
        }
        if let Some(orphan) = &part.orphan {
            deeds.push(part_with(member, self.telemetry, orphan).await?);
        }
        effect.deeds.extend(deeds);
        Ok(effect)
    }
}

/// The members in phases; those that the order leaves out differ in nothing that others wait for, and come first.
fn phases(decision: &FleetDecision) -> Vec<(Direction, Vec<&str>)> {
    let listed = |position: &usize| decision.order.contains(position);
    let others = decision.members.iter().enumerate();
    let others = others.filter(|(position, _)| !listed(position));
    let mut phases = vec![(
        Direction::Aside,
        others.map(|(_, member)| &*member.name).collect::<Vec<_>>(),
    )];
    let ordered = decision.order.iter();
    for (position, member) in ordered.filter_map(|at| Some((at, decision.members.get(*at)?))) {
        let before = member.before.map_or(Replicas::ZERO, |(_, max)| max);
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
    use super::*;
    use crate::domain::federate::{Action, MemberDecision};

    fn decided(name: &str, before: u32, max: u32) -> MemberDecision {
        let n = Replicas::new;
        MemberDecision {
            name: name.to_owned(),
            action: Action::Update,
            min: n(1),
            max: n(max),
            before: Some((n(1), n(before))),
            floor: n(0),
            replicas: None,
            hold: false,
            capacity: None,
            reasons: Vec::new(),
            because: String::new(),
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
            (Direction::Aside, vec!["e"]),
            (Direction::Shrinks, vec!["c"]),
            (Direction::Grows, vec!["b"]),
            (Direction::Stays, vec!["d"]),
            (Direction::Ends, vec!["a"]),
        ];
        assert_eq!(phases(&decision), expected);
    }

    #[test]
    fn what_failed_stops_only_what_relies_on_it() {
        use Direction::{Aside, Ends, Grows, Shrinks, Stays};
        let all = WriteGuard {
            to_grow: true,
            to_end: true,
        };
        let cases = [
            (Shrinks, (false, true)),
            (Aside, (true, true)),
            (Stays, (true, false)),
            (Grows, (true, false)),
            (Ends, (true, true)),
        ];
        for (failed, left) in cases {
            let leave = all.without(failed);
            assert_eq!(
                (leave.allows(Grows), leave.allows(Ends)),
                left,
                "{failed:?}"
            );
            assert!(leave.allows(Shrinks) && leave.allows(Aside) && leave.allows(Stays));
        }
    }
}
