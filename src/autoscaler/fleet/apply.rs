//! Fifth step of a fleet's sync: carry out what was decided, in its order.
//!
//! Members of one phase are written at once, phases one after the other: what shrinks goes first, unless it was
//! decided the other way round. Where a maximum could not be lowered none is raised after it, so that the fleet never
//! has more than it may. A failure stays with its member, and so does the time that it takes.

use std::time::Duration;

use futures::future::join_all;

use super::{gather::DEADLINE, member::Part};
use crate::{
    autoscaler::apply::{Effect, carry_out, scale},
    domain::{Replicas, federate::FleetDecision},
    ports::{ClusterError, Member},
    telemetry::Telemetry,
};

/// Time for the writes of one member.
const TIME_TO_WRITE: Duration = DEADLINE;

/// What became of one part.
#[derive(Debug)]
pub(super) struct Done {
    /// What was to be done.
    pub(super) part: Part,
    /// What the member accepted, or why it did not.
    pub(super) outcome: Result<Effect, ClusterError>,
}

/// Whether a member's share grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Shrinks,
    Stays,
    Grows,
}

/// Carries out the parts of one fleet, each with the member that it is for.
pub(super) async fn apply<M: Member>(
    telemetry: &Telemetry,
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
        let writes = phase.into_iter().map(|(member, part)| write(telemetry, member, part));
        let written = join_all(writes).await;
        may_grow &= direction == Direction::Grows || written.iter().all(|done| done.outcome.is_ok());
        done.extend(written);
    }
    done
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

async fn write<M: Member>(telemetry: &Telemetry, member: &M, part: Part) -> Done {
    let writes = tokio::time::timeout(TIME_TO_WRITE, carry(telemetry, member, &part));
    let outcome = writes.await.unwrap_or_else(|_elapsed| {
        Err(ClusterError::Unreachable {
            what: format!("member {}", part.name),
            message: format!("not written within {} s", TIME_TO_WRITE.as_secs()),
        })
    });
    Done { part, outcome }
}

/// The autoscaler first, so that it does not undo a count that it would not have given.
async fn carry<M: Member>(
    telemetry: &Telemetry,
    member: &M,
    part: &Part,
) -> Result<Effect, ClusterError> {
    let mut effect = carry_out(member, telemetry, &part.planned).await?;
    if let Some(replicas) = part.replicas {
        effect.scaled = scale(member, telemetry, &part.planned, replicas).await?;
    }
    Ok(effect)
}
