//! The taints of clusters: which members may get no larger share, and which ones lose theirs.
//!
//! Source: Kubernetes taints and tolerations; Karmada's `clusterTolerations`.

use jiff::{SignedDuration, Timestamp};

use crate::{Dropped, EffectivePreference, Member, Policy, Taint, TaintEffect, Toleration};

/// For each member, whether it may get no more than it has: it has a `NoSchedule` or `NoExecute` taint that is not
/// tolerated, or a `PreferNoSchedule` one while another member has none.
pub fn closed(
    policy: &Policy,
    members: &[Member],
    preferences: &[Result<EffectivePreference, Dropped>],
) -> Vec<bool> {
    let has_choice = members.iter().zip(preferences).any(|(member, preference)| {
        preference.is_ok() && repelling(policy, member).next().is_none()
    });
    members
        .iter()
        .map(|member| {
            repelling(policy, member)
                .any(|taint| has_choice || taint.effect != TaintEffect::PreferNoSchedule)
        })
        .collect()
}

/// True if a `NoExecute` taint evicts a member's share: its toleration has expired, or no toleration matches and the
/// policy's own toleration has expired. A taint is as old as its time or `seen` says, whichever is later: its time is
/// that of another clock, and `seen` survives a step of ours. Otherwise it is new.
pub fn evict(policy: &Policy, member: &Member, seen: Option<Timestamp>, now: Timestamp) -> bool {
    evicting(member).any(|taint| {
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
pub fn seen(member: &Member, recorded: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    evicting(member).next()?;
    let dated = evicting(member).filter_map(|taint| taint.since).min();
    // A time ahead of now is that of a clock that is ahead.
    Some(recorded.or(dated).map_or(now, |since| since.min(now)))
}

/// The taints of a member that are not tolerated.
fn repelling<'m>(policy: &Policy, member: &'m Member) -> impl Iterator<Item = &'m Taint> {
    member
        .taints
        .iter()
        .filter(|taint| toleration(policy, taint).is_none())
}

/// The taints of a member that end pods.
fn evicting(member: &Member) -> impl Iterator<Item = &Taint> {
    member
        .taints
        .iter()
        .filter(|taint| taint.effect == TaintEffect::NoExecute)
}

/// The toleration that ends first of those that match.
fn toleration<'p>(policy: &'p Policy, taint: &Taint) -> Option<&'p Toleration> {
    policy
        .tolerations
        .iter()
        .filter(|toleration| toleration.tolerates(taint))
        .min_by_key(|toleration| toleration.seconds.unwrap_or(i64::MAX))
}
