//! The federation vectors, one test per group: every case is run through the rules of fleets, or left out with its
//! reason.
//!
//! An unknown group fails, and so does one of ours of which no case ran.

mod capacity;
mod proposal;
#[cfg(test)]
#[path = "../../../../tests/vectors.rs"]
mod vectors;

use std::collections::{BTreeMap, BTreeSet};

use foretide_domain::{ReplicaBounds, Replicas};
use foretide_federate::{
    Affinity, AssignmentKind, Candidate, Policy, Preference, Profile, Recipient, Ties,
    WorkloadSource, distribute, webster,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    capacity::{cluster_affinity, quota, replica_state},
    proposal::seed_proposal,
    vectors::{Fallible, Outcome, RAN, files, gates, run, same, shapes},
};

type Counts = BTreeMap<String, u32>;

gates! { run_group;
    vectors_federation_seed_proposal: "seed_proposal" => seed_proposal;
    vectors_federation_webster: "karmada_webster" => |i, e| seats(&i, e);
    vectors_federation_dispenser: "karmada_dispenser" => |i, e| seats(&i, e);
    vectors_federation_spread_by_target_clusters: "karmada_spread_by_target_clusters" => |i, e| seats(&i, e);
    vectors_federation_random_webster: "random_webster" => |i, e| seats(&i, e);
    vectors_federation_static_weight: "karmada_static_weight" => |i, e| divide(i, &e, "StaticWeight");
    vectors_federation_distribution_of_replicas: "karmada_distribution_of_replicas" => |i, e| divide(i, &e, "");
    vectors_federation_duplicated: "karmada_duplicated" => |i, e| divide(i, &e, "Duplicated");
    vectors_federation_dynamic_scale: "karmada_dynamicScale" => |i, e| divide(i, &e, "");
    vectors_federation_dynamic_scale_up: "karmada_dynamicScaleUp" => |i, e| divide(i, &e, "");
    vectors_federation_dynamic_divide: "karmada_dynamic_divide" => |i, e| divide(i, &e, "");
    vectors_federation_random_assign: "random_assign" => |i, e| divide(i, &e, "");
    vectors_federation_cluster_affinity: "karmada_cluster_affinity" => cluster_affinity;
    vectors_federation_cluster_replica_state: "fedv1_cluster_replica_state" => replica_state;
    vectors_federation_quota_estimator: "karmada_quota_estimator" => quota;
}

const OVERFLOW: &str = "overflow tiers: ours are priorities, with budgets";
const AGGREGATED: &str = "Aggregated: Karmada divides over a prefix of the clusters, we fill them";

/// Why this project does not follow the rules of a group; `None` where it does, or if no such group is known.
fn not_ours(group: &str) -> Option<&'static str> {
    Some(match group {
        "karmada_assign_replicas_overflow" => OVERFLOW,
        "karmada_general_estimator" | "karmada_cluster_summary_parts" => {
            "sums over a cluster's summary; we estimate node by node"
        }
        "karmada_resource_models" => "grades of nodes; we estimate node by node",
        "karmada_node_estimator_sets" => "sets of components; our workloads have one pod template",
        "karmada_cron_validation" => "another spec than ours",
        "karmada_le_1_15_take_by_weight"
        | "karmada_le_1_15_assignByStaticWeightStrategy"
        | "karmada_le_1_15_dynamicScale"
        | "karmada_le_1_15_dynamicScaleUp" => "replaced by Webster upstream",
        "fedv1_planner" | "random_planner" => "starves light clusters; budgets follow the quota",
        "fedv1_hpa_schedule_state" => "moves one unit at a time, in random order",
        "karmada_fhpa_calibration" => "counts over clusters come from totals",
        _ => return None,
    })
}

#[test]
fn vectors_federation_have_no_unknown_group() -> Fallible<()> {
    let mut ids = groups()?.into_iter().map(|group| group.id);
    let unknown = ids.find(|id| !KEYS.contains(&id.as_str()) && not_ours(id).is_none());
    assert_eq!(unknown, None);
    Ok(())
}

shapes! {
    Group {
        id: String, _description: String = rename = "description", _format: String = rename = "format",
        count: usize, cases: Vec<Value>,
    }
}

/// The groups of federation vectors.
fn groups() -> Fallible<Vec<Group>> {
    let mut all = Vec::new();
    for mut file in files("federation")? {
        all.extend(serde_json::from_value::<Vec<Group>>(file["groups"].take())?);
    }
    Ok(all)
}

/// Checks each case of a group of federation vectors: the input and what is expected. The rest are remarks on the case.
fn run_group<I: DeserializeOwned, E: DeserializeOwned>(
    id: &str,
    check: impl Fn(I, E) -> Outcome,
) -> Fallible<()> {
    let mut cases = Vec::new();
    for group in groups()?.into_iter().filter(|group| group.id == id) {
        same("cases", group.cases.len(), group.count)?;
        cases.extend(group.cases);
    }
    run(id, &cases, |case| {
        let mut fields: BTreeMap<String, Value> = serde_json::from_value(case.clone())?;
        let input = fields.remove("input").ok_or("no input")?;
        let any_of = fields.remove("expectedAnyOf");
        let expected = fields
            .remove("expected")
            .or(any_of)
            .ok_or("nothing is expected")?;
        let remarks = ["name", "source", "asPrinted", "erratum", "note", "result"];
        let unknown = fields
            .keys()
            .find(|field| !remarks.contains(&field.as_str()));
        same("unknown field", unknown, None)?;
        check(
            serde_json::from_value(input)?,
            serde_json::from_value(expected)?,
        )
    })
}

fn n(count: u32) -> Replicas {
    Replicas::new(count)
}

fn policy(kind: AssignmentKind, min: u32, max: u32) -> Policy {
    Policy {
        source: WorkloadSource::Hub,
        ..Policy::new(kind, ReplicaBounds::new(n(min), n(max)))
    }
}

fn profile(name: &str) -> Profile {
    Profile {
        name: name.to_owned(),
        ..Profile::default()
    }
}

fn named(name: &str) -> Affinity {
    Affinity {
        names: vec![name.to_owned()],
        ..Affinity::default()
    }
}

// ---------------------------------------------------------------- seats

shapes! {
    #[serde(rename_all = "camelCase")]
    Poll {
        new_seats: u32 = alias = "newReplicas", weights: BTreeMap<String, u64> = alias = "votes",
        initial: Counts, uid: String = default, tie_break: String = default,
    }
}

/// Counts, or any of them; null means no cluster.
#[derive(Deserialize)]
#[serde(untagged)]
enum Wanted {
    AnyOf(Vec<Counts>),
    One(Option<Counts>),
}

/// Karmada lets the last name win ties when FNV-1a of the binding's UID is odd.
fn ties(uid: &str) -> Ties {
    let hash = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    if uid.is_empty() || hash % 2 == 0 {
        Ties::NameAscending
    } else {
        Ties::NameDescending
    }
}

fn seats(input: &Poll, expected: Wanted) -> Outcome {
    let names: BTreeSet<_> = input.weights.keys().chain(input.initial.keys()).collect();
    let recipients = names.into_iter().map(|name| Recipient {
        name,
        weight: input.weights.get(name).copied().unwrap_or_default(),
        min: input.initial.get(name).copied().unwrap_or_default(),
        max: u32::MAX,
    });
    let recipients: Vec<_> = recipients.collect();
    let ties = match input.tie_break.as_str() {
        "" | "default" => ties(&input.uid),
        "nameAsc" => Ties::NameAscending,
        "nameDesc" => Ties::NameDescending,
        other => return Err(format!("unknown tieBreak {other:?}").into()),
    };
    let held: u32 = input.initial.values().sum();
    let split = webster(held + input.new_seats, &recipients, ties);
    let got = split.of(&recipients);
    let got = got.map(|(recipient, seats)| (recipient.name.to_owned(), seats));
    match expected {
        Wanted::AnyOf(any) => one_of(&got.collect(), &any),
        Wanted::One(one) => one_of(&got.collect(), &[one.unwrap_or_default()]),
    }
}

fn one_of(got: &Counts, any: &[Counts]) -> Outcome {
    if any.contains(got) {
        return RAN;
    }
    Err(format!("got {got:?}, want one of {any:?}").into())
}

// ---------------------------------------------------------------- division of a count

shapes! {
    #[serde(rename_all = "camelCase")]
    Division {
        strategy: String = default, replicas: u32 = alias = "targetReplicas",
        candidates: Vec<Room> = alias = "availableOrdered", scheduled: Counts = default,
        weights: BTreeMap<String, u64> = default, uid: String = default, fresh: bool = default,
        overflow: bool = default,
    }
}

/// A cluster, and how many replicas it can run.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Room {
    Any(String),
    Pair(String, u32),
    Capacity {
        name: String,
        allocatable: u32,
        #[serde(rename = "available")]
        _available: u32,
        #[serde(rename = "overflowOrder")]
        _overflow_order: u32,
    },
}

/// The counts; an error where the clusters cannot run that many.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields, rename_all_fields = "camelCase")]
enum Divided {
    Error {
        #[serde(rename = "error")]
        _error: String,
    },
    Assignment {
        assignment: Counts,
    },
    AnyOf {
        assignment_any_of: Vec<Counts>,
    },
    Plain(Counts),
}

impl Division {
    /// What each cluster can run, with what it runs.
    fn capacity(&self) -> Counts {
        let all = self.candidates.iter().map(|room| {
            let (name, room) = match room {
                Room::Any(name) => (name, 1_000_000),
                Room::Pair(name, room) => (name, *room),
                Room::Capacity {
                    name, allocatable, ..
                } => (name, *allocatable),
            };
            let held = self.scheduled.get(name).copied().unwrap_or_default();
            (name.clone(), room + held)
        });
        all.collect()
    }
}

/// A count, divided by a strategy that the case or its group names.
fn divide(mut input: Map<String, Value>, expected: &Divided, strategy: &str) -> Outcome {
    if let Some(spec) = input.remove("spec") {
        input.extend(serde_json::from_value::<Map<String, Value>>(spec)?);
    }
    let division: Division = serde_json::from_value(input.into())?;
    if division.overflow {
        return Ok(Err(OVERFLOW));
    }
    let kind = match (&*division.strategy, strategy) {
        ("Aggregated", _) => return Ok(Err(AGGREGATED)),
        ("Duplicated", _) | ("", "Duplicated") => AssignmentKind::Duplicated,
        ("StaticWeight", _) | ("", "StaticWeight") => AssignmentKind::StaticWeighted,
        ("DynamicWeight", _) => AssignmentKind::DynamicWeighted,
        (other, _) => return Err(format!("unknown strategy {other:?}").into()),
    };
    let any = match expected {
        Divided::Error { .. } => &[][..],
        Divided::Assignment { assignment: one } | Divided::Plain(one) => std::slice::from_ref(one),
        Divided::AnyOf { assignment_any_of } => assignment_any_of,
    };
    // A count of zero is the same as none.
    let any: Vec<_> = any.iter().cloned().map(without_zeros).collect();
    match divided(&division, kind) {
        Some(got) => one_of(&without_zeros(got), &any),
        None if any.is_empty() => RAN,
        None => Err(format!("nothing, want one of {any:?}").into()),
    }
}

fn without_zeros(mut counts: Counts) -> Counts {
    counts.retain(|_, count| *count > 0);
    counts
}

/// The counts; `None` where the clusters cannot run that many.
fn divided(division: &Division, kind: AssignmentKind) -> Option<Counts> {
    let capacity = division.capacity();
    // Where the last name wins ties, the names are reversed: here the first one wins.
    let mut order: Vec<_> = capacity.keys().collect();
    if ties(&division.uid) == Ties::NameDescending {
        order.reverse();
    }
    let alias = |name: &String| {
        let at = order.iter().position(|other| *other == name);
        at.map(|at| format!("{at:03}"))
    };
    let preference = |(name, weight): (&String, &u64)| {
        Some(Preference {
            targets: named(&alias(name)?),
            weight: Some(*weight),
            ..Preference::default()
        })
    };
    let policy = Policy {
        preferences: division.weights.iter().filter_map(preference).collect(),
        ..policy(kind, 0, 1_000_000)
    };
    let profiles: Vec<_> = capacity
        .keys()
        .filter_map(alias)
        .map(|name| profile(&name))
        .collect();
    let mut names = Vec::new();
    let mut candidates = Vec::new();
    let preferences = policy.effective_preferences(&profiles);
    for (((name, capacity), profile), preference) in capacity.iter().zip(&profiles).zip(preferences)
    {
        let Ok(mut preference) = preference else {
            continue;
        };
        if kind == AssignmentKind::DynamicWeighted {
            preference.max = n(*capacity);
        }
        names.push(name.clone());
        candidates.push(Candidate {
            name: &profile.name,
            preference,
            capacity: Some(*capacity),
            ..Candidate::default()
        });
    }
    let previous = division.scheduled.iter().filter(|_| !division.fresh);
    let previous = previous.filter_map(|(name, count)| Some((alias(name)?, n(*count))));
    let count = n(division.replicas);
    let split = distribute(&policy, count, &candidates, &previous.collect());
    let fits = split.left == 0;
    fits.then(|| names.into_iter().zip(split.shares).collect())
}
