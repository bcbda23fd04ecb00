//! What unschedulable pods prove: the capacity of their member is what it has placed.
//!
//! The number of placed pods counts as the member's capacity for ten minutes, and for twice as long each time it is
//! proved again: it overrides every estimate, also for elastic members.

use jiff::Timestamp;

use crate::{Backoff, Entry, Policy, Span};
use foretide_domain::Replicas;

use super::{member::Observed, participation::MemberRole};

/// For how long placed pods count as the capacity of a member, the first time.
const BACKOFF_SECONDS: u32 = 600;
/// The most that this time grows to when it doubles.
const LONGEST_BACKOFF_SECONDS: u32 = 7_200;

/// Finds whether a member is blocked, and stores the capacity that its unschedulable pods prove.
pub fn observe(observed: &mut Observed<'_>, entry: &mut Entry, policy: &Policy, now: Timestamp) {
    let is_active = observed.role == MemberRole::Active;
    if is_active {
        let since = observed
            .member
            .pods
            .and_then(|pods| pods.unschedulable_since);
        let is_late = since.is_some_and(|since| now.duration_since(since) >= policy.delay);
        observed.blocked = observed.placed < observed.replicas && is_late;
        update_proof(observed, entry, policy, now);
    }
    let proof = entry.backoff.filter(|backoff| now < backoff.span.until);
    observed.proved = proof.map(|backoff| backoff.placed.get());
    if let Some(proved) = observed.proved.filter(|_| is_active) {
        // What is placed is proved; the scheduler found no node for more.
        observed.capacity = proved;
    }
}

fn update_proof(observed: &Observed<'_>, entry: &mut Entry, policy: &Policy, now: Timestamp) {
    let placed = Replicas::new(observed.placed);
    let claimed = observed.estimated_capacity();
    // If more pods run than seemed possible, the proof is outdated.
    entry.backoff = entry.backoff.filter(|backoff| placed <= backoff.placed);
    if let Some(backoff) = &mut entry.backoff
        && claimed > backoff.claimed
    {
        // The estimate has grown, perhaps by a new node, so it is tried now.
        backoff.span.until = backoff.span.until.min(now);
    }
    if observed.blocked {
        entry.backoff = Some(next_backoff(entry.backoff, placed, claimed, now));
        // The stored capacity proved wrong; when the backoff ends, the present estimate is tried next.
        if let Some(claimed) = claimed.filter(|claimed| entry.capacity > Some(*claimed)) {
            let basis = entry.floor_basis();
            let weighs = policy.scheme().weighs_capacity;
            entry.set_floor_basis(basis.with_capacity(claimed, weighs));
        }
    }
}

fn next_backoff(
    before: Option<Backoff>,
    placed: Replicas,
    claimed: Option<Replicas>,
    now: Timestamp,
) -> Backoff {
    let span = match before {
        // A member that is still blocked does not double its backoff with every sync.
        Some(backoff) if now < backoff.span.until => backoff.span,
        before => Span::next(
            before.map(|backoff| backoff.span),
            now,
            BACKOFF_SECONDS,
            LONGEST_BACKOFF_SECONDS,
        ),
    };
    Backoff {
        placed,
        claimed,
        span,
    }
}
