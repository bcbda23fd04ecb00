//! Taints of clusters and who tolerates them, as for pods and nodes. It refuses to decide what a taint leads to.
//!
//! Source: Kubernetes taints and tolerations; Karmada's `clusterTolerations`.

use jiff::{SignedDuration, Timestamp};

use crate::domain::federate::{Dropped, Member, Policy, Standing, Taint, TaintEffect, Toleration};

/// For each member, whether it may get no more than it has: it has a `NoSchedule` or `NoExecute` taint that is not
/// tolerated, or a `PreferNoSchedule` one while others have none.
pub(super) fn closed(
    policy: &Policy,
    members: &[Member],
    standings: &[Result<Standing, Dropped>],
) -> Vec<bool> {
    let strict = |member: &Member| {
        let mut repelling = member.taints.iter().filter(|taint| repels(policy, taint));
        repelling.any(|taint| taint.effect != TaintEffect::PreferNoSchedule)
    };
    let any = |member: &Member| member.taints.iter().any(|taint| repels(policy, taint));
    let mut selected = members.iter().zip(standings);
    let has_choice = selected.any(|(member, standing)| standing.is_ok() && !any(member));
    let is_closed = |member: &Member| strict(member) || has_choice && any(member);
    members.iter().map(is_closed).collect()
}

/// Whether a `NoExecute` taint has taken a member's share: its toleration has ended, or it never was tolerated and the
/// policy's own toleration has ended. One of unknown age is as old as `seen` says, else it is new.
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
        let since = taint.since.or(seen).unwrap_or(now);
        now.duration_since(since) >= tolerated
    })
}

/// Since when a member has a `NoExecute` taint: as its taints say; where one does not, as remembered, else since now.
pub(super) fn seen(
    member: &Member,
    remembered: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let taints = member.taints.iter();
    let evicting = || {
        taints
            .clone()
            .filter(|t| t.effect == TaintEffect::NoExecute)
    };
    let dated = evicting().filter_map(|taint| taint.since).min();
    let remembered = remembered.filter(|_| evicting().any(|taint| taint.since.is_none()));
    evicting().next()?;
    Some(remembered.or(dated).unwrap_or(now))
}

fn repels(policy: &Policy, taint: &Taint) -> bool {
    toleration(policy, taint).is_none()
}

/// Of the tolerations that match, the one that ends first.
fn toleration<'p>(policy: &'p Policy, taint: &Taint) -> Option<&'p Toleration> {
    let matching = policy.tolerations.iter().filter(|t| t.matches(taint));
    matching.min_by_key(|t| t.seconds.unwrap_or(i64::MAX))
}

impl Toleration {
    /// Whether it is about this taint.
    #[must_use]
    pub fn matches(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self
                .value
                .as_ref()
                .is_none_or(|value| *value == taint.value)
            && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}
