//! The worked examples of the proposal.

use std::collections::{BTreeMap, BTreeSet};

use foretide_domain::{ReplicaBounds, Replicas};
use foretide_federate::{
    Affinity, AssignmentKind, Candidate, Dropped, EffectivePreference, Entry, Health, Ledger,
    Member, Pods, Policy, Preference, Surplus, Total, assign, decide, share,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Counts, n, named, policy, profile,
    vectors::{Fallible, Outcome, RAN, same, shapes},
};

/// What is asked of an example's fleet.
#[derive(Deserialize)]
#[serde(
    tag = "operation",
    deny_unknown_fields,
    rename_all_fields = "camelCase"
)]
enum Example {
    #[serde(rename = "assign")]
    Assign(Fleet),
    #[serde(rename = "transferBlocked")]
    Transfer(Running),
    #[serde(rename = "scaleDown")]
    ScaleDown(Running),
    #[serde(rename = "rebalanceHeadroom")]
    HeadRoom(Running),
}

shapes! {
    #[serde(rename_all = "camelCase")]
    Fleet {
        policy: String, min_replicas: u32, max_replicas: u32, scale_to_zero: bool = default,
        clusters: Vec<Cluster>, unselected: Vec<Cluster> = default,
    }
    #[serde(rename_all = "camelCase")]
    Running { _policy: String = rename = "policy", target_utilization: Option<f64>, clusters: Vec<Cluster> }

    /// One that is to be assigned, or one that runs, with what the rules have to know of it.
    #[serde(rename_all = "camelCase")]
    Cluster {
        name: String, weight: Option<u64>, priority: Option<i64>, available_replicas: Option<u32>,
        current_replicas: Option<u32>, min: Option<u32>, max: u32 = default, replicas: Option<u32>,
        ready_pods: u32 = default, pending_pods: u32 = default, utilization: f64 = default,
    }

    Assignment {
        clusters: BTreeMap<String, Assigned>, removed: BTreeSet<String> = default,
        excluded: BTreeSet<String> = default,
    }
    #[derive(Debug, PartialEq)]
    Assigned { min: u32, max: u32, replicas: Option<u32> }
    /// Also what the steps are called, and what is seen of them elsewhere.
    #[serde(rename_all = "camelCase")]
    ScaledDown {
        final_max: Counts, central_replicas: Counts, _steps: Value = rename = "steps",
        _first: Value = rename = "afterFirstStep", _total: u32 = rename = "centralTotal",
    }
    Maxima { headroom: u32, max: Counts }
}

pub(crate) fn seed_proposal(input: Value, expected: Value) -> Outcome {
    match read(input)? {
        Example::Assign(fleet) => first_assignment(&fleet, read(expected)?),
        Example::Transfer(fleet) => blocked_transfer(&fleet.clusters, read(expected)?),
        Example::ScaleDown(fleet) => shrink_order(&fleet, &read(expected)?),
        Example::HeadRoom(fleet) => head_room(&fleet.clusters, read(expected)?),
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Fallible<T> {
    Ok(serde_json::from_value(value)?)
}

fn kind(word: &str) -> Fallible<AssignmentKind> {
    Ok(match word {
        "Duplicated" => AssignmentKind::Duplicated,
        "Aggregated" => AssignmentKind::Aggregated,
        "StaticWeighted" => AssignmentKind::StaticWeighted,
        "DynamicWeighted" => AssignmentKind::DynamicWeighted,
        "Prioritized" => AssignmentKind::Prioritized,
        other => return Err(format!("unknown policy {other:?}").into()),
    })
}

impl Cluster {
    fn preference(&self) -> Preference {
        Preference {
            targets: named(&self.name),
            weight: self.weight,
            priority: self.priority,
            ..Preference::default()
        }
    }

    fn replicas(&self) -> u32 {
        let counted = self.ready_pods + self.pending_pods;
        self.replicas.unwrap_or(counted).max(counted)
    }

    fn member(&self) -> Member {
        let now = Timestamp::UNIX_EPOCH;
        Member {
            profile: profile(&self.name),
            health: Health::Ready,
            taints: Vec::new(),
            pods: Some(Pods {
                replicas: n(self.replicas()),
                ready: n(self.replicas() - self.pending_pods),
                unschedulable: n(self.pending_pods),
                unschedulable_since: (self.pending_pods > 0)
                    .then(|| now - SignedDuration::from_mins(5)),
            }),
            hpa: Some(ReplicaBounds::new(n(self.min.unwrap_or(1)), n(self.max))),
            ..Member::default()
        }
    }

    fn entry(&self) -> Entry {
        Entry {
            min: n(self.min.unwrap_or(1)),
            max: n(self.max),
            written: n(self.max),
            ..Entry::default()
        }
    }
}

/// A fleet that was assigned long ago.
fn running(clusters: &[Cluster], scaling_to_zero: bool) -> (Policy, Vec<Member>, Ledger) {
    let max = clusters.iter().map(|c| c.max).sum();
    let min = clusters.iter().filter_map(|c| c.min).sum();
    let policy = Policy {
        preferences: clusters.iter().map(Cluster::preference).collect(),
        scaling_to_zero,
        ..policy(AssignmentKind::Prioritized, min, max)
    };
    let ledger = Ledger {
        generation: Some(policy.generation),
        members: clusters
            .iter()
            .map(|c| (c.name.clone(), c.entry()))
            .collect(),
        ..Ledger::default()
    };
    (
        policy,
        clusters.iter().map(Cluster::member).collect(),
        ledger,
    )
}

fn blocked_transfer(clusters: &[Cluster], expected: Assignment) -> Outcome {
    let asleep = clusters.iter().any(|c| c.replicas() == 0);
    let (policy, members, ledger) = running(clusters, asleep);
    let now = Timestamp::UNIX_EPOCH;
    let (decision, ledger) = decide(&policy, &Total::default(), &members, &ledger, now);
    for (name, want) in expected.clusters {
        let entry = ledger.members.get(&name).ok_or("no entry")?;
        let written = decision.member(&name).and_then(|m| m.replicas);
        let member = members.iter().find(|m| m.profile.name == name);
        let running = member.and_then(|m| m.pods).map(|pods| pods.replicas);
        let found = Assigned {
            min: entry.min.get(),
            max: entry.max.get(),
            replicas: want.replicas.and(written.or(running)).map(Replicas::get),
        };
        same("share", found, want)?;
    }
    RAN
}

fn maxima(ledger: &Ledger) -> Counts {
    let members = ledger.members.iter();
    members
        .map(|(name, entry)| (name.clone(), entry.max.get()))
        .collect()
}

fn shrink_order(fleet: &Running, expected: &ScaledDown) -> Outcome {
    let target = fleet.target_utilization.ok_or("no target")?;
    let demand = fleet
        .clusters
        .iter()
        .map(|c| c.utilization * f64::from(c.replicas()) / target);
    let (policy, mut members, mut ledger) = running(&fleet.clusters, false);
    let demand: f64 = demand.sum();
    // A lasting load: one autoscaler over the whole fleet has reached what the demand needs.
    let total = Total {
        demand: Some(demand),
        desired: Some(policy.bounds.clamp(Replicas::for_demand(demand))),
        ..Total::default()
    };
    let mut now = Timestamp::UNIX_EPOCH;
    let mut actions = Vec::new();
    for _ in 0..60 {
        let (decision, next) = decide(&policy, &total, &members, &ledger, now);
        if maxima(&next) != maxima(&ledger) {
            actions.push(maxima(&next));
        }
        // An autoscaler obeys a lowered maximum at once.
        for (member, decided) in members.iter_mut().zip(&decision.members) {
            member.hpa = Some(ReplicaBounds::new(decided.min, decided.max));
            let pods = member.pods.get_or_insert_default();
            pods.replicas = pods.replicas.min(decided.max);
            pods.ready = pods.replicas;
        }
        (ledger, now) = (next, now + policy.period);
    }
    same(
        "maxima after the first action",
        actions.first(),
        Some(&expected.final_max),
    )?;
    let replicas = |m: &Member| m.pods.map_or(0, |pods| pods.replicas.get());
    let found = members
        .iter()
        .map(|m| (m.profile.name.clone(), replicas(m)));
    same(
        "replicas in the end",
        found.collect(),
        expected.central_replicas.clone(),
    )?;
    RAN
}

/// The division that R8 makes of head-room.
fn head_room(clusters: &[Cluster], expected: Maxima) -> Outcome {
    let headroom: u32 = clusters.iter().map(|c| c.max - c.replicas()).sum();
    same("head-room", headroom, expected.headroom)?;
    let candidates = clusters.iter().map(|c| Candidate {
        name: &c.name,
        preference: EffectivePreference {
            weight: c.weight,
            max: n(headroom),
            ..EffectivePreference::default()
        },
        ..Candidate::default()
    });
    let candidates: Vec<_> = candidates.collect();
    let weighted = policy(AssignmentKind::StaticWeighted, 1, headroom);
    let split = share(&weighted, n(headroom), &candidates, Surplus::Spread);
    let maxima = clusters.iter().zip(split.shares);
    let maxima = maxima.map(|(c, share)| (c.name.clone(), c.replicas() + share));
    same("maxima", maxima.collect(), expected.max)?;
    RAN
}

fn first_assignment(fleet: &Fleet, expected: Assignment) -> Outcome {
    let scaling_to_zero = fleet.scale_to_zero;
    let policy = Policy {
        affinity: Affinity {
            names: fleet.clusters.iter().map(|c| c.name.clone()).collect(),
            ..Affinity::default()
        },
        preferences: fleet.clusters.iter().map(Cluster::preference).collect(),
        scaling_to_zero,
        ..policy(kind(&fleet.policy)?, fleet.min_replicas, fleet.max_replicas)
    };
    let clusters: Vec<_> = fleet.clusters.iter().chain(&fleet.unselected).collect();
    let profiles: Vec<_> = clusters.iter().map(|c| profile(&c.name)).collect();
    let (mut candidates, mut dropped) = (Vec::new(), BTreeMap::new());
    for (cluster, preference) in clusters.iter().zip(policy.effective_preferences(&profiles)) {
        match preference {
            Ok(preference) => candidates.push(Candidate {
                name: &cluster.name,
                preference,
                capacity: cluster.available_replicas,
                demand: None,
                hosts: cluster.current_replicas.is_some(),
            }),
            Err(reason) => {
                dropped.insert(cluster.name.clone(), reason);
            }
        }
    }
    let [removed, excluded] = [Dropped::NotSelected, Dropped::NoPreference].map(|why| {
        let because = dropped.iter().filter(|(_, reason)| **reason == why);
        because.map(|(name, _)| name.clone()).collect()
    });
    same("removed", removed, expected.removed)?;
    same("excluded", excluded, expected.excluded)?;
    let budgets = assign(&policy, policy.bounds, &candidates);
    let got = budgets.members.iter().map(|(name, budget)| {
        let cluster = clusters.iter().find(|c| c.name == *name);
        let present = cluster.and_then(|c| c.current_replicas).map(n);
        let replicas = expected.clusters.get(name).and_then(|c| c.replicas);
        let assigned = Assigned {
            min: budget.min.get(),
            max: budget.max.get(),
            // What an example does not say is not checked.
            replicas: replicas.map(|_| budget.start(present, scaling_to_zero).get()),
        };
        (name.clone(), assigned)
    });
    let got = got.collect();
    same("budgets", got, expected.clusters)?;
    RAN
}
