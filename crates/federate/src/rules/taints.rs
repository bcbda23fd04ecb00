//! The taints of clusters: which members may get no larger share, and which ones lose theirs.
//!
//! Source: Kubernetes taints and tolerations; Karmada's `clusterTolerations`.

use jiff::{SignedDuration, Timestamp};

use crate::{Dropped, EffectivePreference, Member, Policy, Taint, TaintEffect, Toleration};

/// For each member, whether it may get no more than it has: it has a `NoSchedule` or `NoExecute` taint that is not
/// tolerated, or a `PreferNoSchedule` one while another member has none.
pub(super) fn closed(
    policy: &Policy,
    members: &[Member],
    preferences: &[Result<EffectivePreference, Dropped>],
) -> Vec<bool> {
    let strict = |member: &Member| {
        let mut repelling = member.taints.iter().filter(|taint| repels(policy, taint));
        repelling.any(|taint| taint.effect != TaintEffect::PreferNoSchedule)
    };
    let any = |member: &Member| member.taints.iter().any(|taint| repels(policy, taint));
    let mut selected = members.iter().zip(preferences);
    let has_choice = selected.any(|(member, preference)| preference.is_ok() && !any(member));
    let is_closed = |member: &Member| strict(member) || has_choice && any(member);
    members.iter().map(is_closed).collect()
}

/// True if a `NoExecute` taint evicts a member's share: its toleration has expired, or no toleration matches and the
/// policy's own toleration has expired. A taint is as old as its time or `seen` says, whichever is later: its time is
/// that of another clock, and `seen` survives a step of ours. Otherwise it is new.
pub(super) fn evict(
    policy: &Policy,
    member: &Member,
    seen: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    let mut evicting = member
        .taints
        .iter()
        .filter(|taint| taint.effect == TaintEffect::NoExecute);
    evicting.any(|taint| {
        let tolerated = match toleration(policy, taint) {
            Some(toleration) => match toleration.seconds {
                None => return false,
                Some(seconds) => SignedDuration::from_secs(seconds),
            },
            None => policy.toleration,
        };
        // A time ahead of now is that of a clock that is ahead.
        let dated = taint.since.filter(|since| *since <= now);
        let since = dated.max(seen).unwrap_or(now);
        now.duration_since(since) >= tolerated
    })
}

/// Since when a member has a `NoExecute` taint: by the ledger, otherwise by its taints, otherwise since now.
pub(super) fn seen(
    member: &Member,
    recorded: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let taints = member.taints.iter();
    let evicting = || {
        taints
            .clone()
            .filter(|t| t.effect == TaintEffect::NoExecute)
    };
    let dated = evicting().filter_map(|taint| taint.since).min();
    evicting().next()?;
    // A time ahead of now is that of a clock that is ahead.
    Some(recorded.or(dated).map_or(now, |since| since.min(now)))
}

fn repels(policy: &Policy, taint: &Taint) -> bool {
    toleration(policy, taint).is_none()
}

/// The toleration that ends first of those that match.
fn toleration<'p>(policy: &'p Policy, taint: &Taint) -> Option<&'p Toleration> {
    let matching = policy.tolerations.iter().filter(|t| t.tolerates(taint));
    matching.min_by_key(|t| t.seconds.unwrap_or(i64::MAX))
}
