//! Fifth step of a fleet's sync: carry out what was decided, in its order.
//!
//! Members of one phase are written at once, phases one after the other: what shrinks goes first, unless it was
//! decided the other way round. Where a maximum could not be lowered none is raised after it, so that the fleet never
//! has more than it may. A failure stays with its member, and so does the time that it takes.

use std::time::Duration;

use futures::future::join_all;

use super::member::Part;
use crate::{
    autoscaler::apply::{Deed, Effect, carry_out, scale},
    domain::{Replicas, federate::FleetDecision},
    ports::{ClusterError, Member},
    telemetry::{Telemetry, Write},
};

/// What members are written with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pen<'a> {
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
}

/// Whether a member's share grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Shrinks,
    Stays,
    Grows,
}

// === impl Pen ===

impl Pen<'_> {
    /// Carries out the parts of one fleet, each with the member that it is for.
    pub(super) async fn apply<M: Member>(
        self,
        decision: &FleetDecision,
        mut parts: Vec<(&M, Part)>,
    ) -> Vec<Done> {
        let mut done = Vec::with_capacity(parts.len());
        let mut may_grow = true;
        for (direction, names) in phases(decision) {
            let (phase, rest): (Vec<_>, _) = parts
                .into_iter()
                .partition(|(_, part)| names.contains(&&*part.name));
            parts = rest;
            if direction == Direction::Grows && !may_grow {
                continue;
            }
            let writes = phase
                .into_iter()
                .map(|(member, part)| self.write(member, part));
            let written = join_all(writes).await;
            may_grow &=
                direction == Direction::Grows || written.iter().all(|done| done.outcome.is_ok());
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
            deeds.push(Deed::Placed);
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
                deeds.push(Deed::Displaced);
            }
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
        Direction::Stays,
        others.map(|(_, member)| &*member.name).collect::<Vec<_>>(),
    )];
    let ordered = decision.order.iter();
    for member in ordered.filter_map(|position| decision.members.get(*position)) {
        let before = member.before.map_or(Replicas::ZERO, |(_, max)| max);
        let direction = match member.max.cmp(&before) {
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
