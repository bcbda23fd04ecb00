//! The federation vectors, one test per group: every case is run through the domain or left out with its reason.
//!
//! An absent group is skipped, an unknown one fails, and so does a group of Foretide of which no case ran.

use std::collections::{BTreeMap, BTreeSet};

use foretide_domain::{
    Labels, ReplicaBounds, Replicas, Requirement, hpa, observation::Requests, quantity::Quantity,
};
use foretide_federate::{
    Affinity, AssignmentKind, Candidate, Dropped, EffectivePreference, Entry, Health, Ledger,
    Member, PodShape, Pods, Policy, Preference, Profile, Quota, Recipient, Supply, Surplus, Ties,
    Total, WorkloadSource, assign, decide, distribute, share, webster,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    vectors::{Fallible, Row, files, same},
    vectors_hpa,
};

/// Result of a case: it ran, or it was left out for a reason.
type Outcome = Fallible<Result<(), &'static str>>;
/// Runs one case; the error is the difference.
type Check = fn(&Value) -> Outcome;
type Counts = BTreeMap<String, u32>;

const RAN: Outcome = Ok(Ok(()));

macro_rules! gates {
    ($($test:ident: $group:literal => $check:expr;)+) => {
        const OURS: &[&str] = &[$($group),+];

        $(
            #[test]
            fn $test() -> Fallible<()> {
                run($group, $check)
            }
        )+
    };
}

gates! {
    vectors_federation_seed_proposal: "seed_proposal" => seed_proposal;
    vectors_federation_webster: "karmada_webster" => seats;
    vectors_federation_dispenser: "karmada_dispenser" => seats;
    vectors_federation_spread_by_target_clusters: "karmada_spread_by_target_clusters" => seats;
    vectors_federation_random_webster: "random_webster" => seats;
    vectors_federation_static_weight: "karmada_static_weight" => |c| divide(c, "StaticWeight");
    vectors_federation_distribution_of_replicas: "karmada_distribution_of_replicas" => |c| divide(c, "");
    vectors_federation_duplicated: "karmada_duplicated" => |c| divide(c, "Duplicated");
    vectors_federation_dynamic_scale: "karmada_dynamicScale" => |c| divide(c, "");
    vectors_federation_dynamic_scale_up: "karmada_dynamicScaleUp" => |c| divide(c, "");
    vectors_federation_dynamic_divide: "karmada_dynamic_divide" => |c| divide(c, "");
    vectors_federation_random_assign: "random_assign" => |c| divide(c, "");
    vectors_federation_cluster_affinity: "karmada_cluster_affinity" => cluster_affinity;
    vectors_federation_cluster_replica_state: "fedv1_cluster_replica_state" => replica_state;
    vectors_federation_quota_estimator: "karmada_quota_estimator" => quota;
    vectors_federation_fhpa_resource: "karmada_fhpa_GetResourceReplicas" => |c| calculator("GetResourceReplicas", c);
    vectors_federation_fhpa_raw_resource: "karmada_fhpa_GetRawResourceReplicas" => |c| calculator("GetRawResourceReplicas", c);
    vectors_federation_fhpa_metric: "karmada_fhpa_GetMetricReplicas" => |c| calculator("GetMetricReplicas", c);
    vectors_federation_fhpa_plain_metric: "karmada_fhpa_CalcPlainMetricReplicas" => |c| calculator("GetMetricReplicas", c);
    vectors_federation_fhpa_object: "karmada_fhpa_GetObjectMetricReplicas" => |c| calculator("GetObjectMetricReplicas", c);
    vectors_federation_fhpa_object_per_pod: "karmada_fhpa_GetObjectPerPodMetricReplicas" => |c| calculator("GetObjectPerPodMetricReplicas", c);
    vectors_federation_fhpa_usage_ratio: "karmada_fhpa_GetUsageRatioReplicaCount" => |c| calculator("GetObjectMetricReplicas", c);
    vectors_federation_fhpa_ready_pods: "karmada_fhpa_GetReadyPodsCount" => ready_pods;
    vectors_federation_fhpa_group_pods: "karmada_fhpa_GroupPods" => group_pods;
    vectors_federation_fhpa_bounds: "karmada_fhpa_ConvertDesiredReplicasWithRules" => bounds;
    vectors_federation_fhpa_up_limit: "karmada_fhpa_CalculateScaleUpLimit" => plain_up_limit;
    vectors_federation_fhpa_up_rules: "karmada_fhpa_CalculateScaleUpLimitWithScalingRules" => |c| limit("scale_up_limit", c);
    vectors_federation_fhpa_down_rules: "karmada_fhpa_CalculateScaleDownLimitWithBehaviors" => |c| limit("scale_down_limit", c);
    vectors_federation_fhpa_longest_period: "karmada_fhpa_GetLongestPolicyPeriod" => longest_period;
}

/// Reasons for which this project does not follow the rules of some groups.
const NOT_OURS: [(&str, &[&str]); 8] = [
    (OVERFLOW, &["karmada_assign_replicas_overflow"]),
    (
        "sums over a cluster's summary; we estimate node by node",
        &["karmada_general_estimator", "karmada_cluster_summary_parts"],
    ),
    (
        "grades of nodes; we estimate node by node",
        &["karmada_resource_models"],
    ),
    (
        "sets of components; our workloads have one pod template",
        &["karmada_node_estimator_sets"],
    ),
    ("another spec than ours", &["karmada_cron_validation"]),
    (
        "replaced by Webster upstream",
        &[
            "karmada_le_1_15_take_by_weight",
            "karmada_le_1_15_assignByStaticWeightStrategy",
            "karmada_le_1_15_dynamicScale",
            "karmada_le_1_15_dynamicScaleUp",
        ],
    ),
    (
        "starves light clusters; budgets follow the quota",
        &["fedv1_planner", "random_planner"],
    ),
    (
        "moves one unit at a time, in random order",
        &["fedv1_hpa_schedule_state"],
    ),
];

const CALIBRATED: &str = "calibration other than 1: counts over clusters come from totals";
const AGGREGATED: &str = "Aggregated: Karmada divides over a prefix of the clusters, we fill them";
const SCOPES: &str = "several selectors of one scope: upstream joins them by or, Kubernetes by and";
const OVERFLOW: &str = "overflow tiers: ours are priorities, with budgets";

#[test]
fn vectors_federation_have_no_unknown_group() -> Fallible<()> {
    let all = groups()?;
    let is_ours = |group: &&Group| OURS.contains(&&*group.id);
    let is_left_out = |group: &Group| NOT_OURS.iter().any(|(_, ids)| ids.contains(&&*group.id));
    let unknown = all
        .iter()
        .filter(|group| !is_ours(group) && !is_left_out(group));
    let unknown: Vec<_> = unknown.map(|group| &group.id).collect();
    assert!(unknown.is_empty(), "unknown groups: {unknown:?}");
    assert!(all.iter().any(|group| is_ours(&group)), "no group of ours");
    Ok(())
}

#[derive(Deserialize)]
struct Group {
    id: String,
    cases: Vec<Value>,
}

/// Runs every case of one group; all failures are reported together.
fn run(id: &str, check: Check) -> Fallible<()> {
    let (mut ran, mut failures) = (0, Vec::new());
    let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
    let all = groups()?;
    let cases: Vec<_> = all
        .iter()
        .filter(|g| g.id == id)
        .flat_map(|g| &g.cases)
        .collect();
    for case in &cases {
        match check(case) {
            Ok(Ok(())) => ran += 1,
            Ok(Err(reason)) => *left_out.entry(reason).or_default() += 1,
            Err(e) => failures.push(format!("{id} {}: {e}", case["name"])),
        }
    }
    println!("{id}: {ran} cases, left out: {left_out:?}");
    if !failures.is_empty() {
        return Err(failures.join("\n").into());
    }
    assert!(
        ran > 0 || cases.is_empty(),
        "no case of {id} ran: {left_out:?}"
    );
    Ok(())
}

/// The groups of every federation file.
fn groups() -> Fallible<Vec<Group>> {
    let mut all = Vec::new();
    for (name, mut file) in files()? {
        if name.starts_with("federation") {
            all.extend(serde_json::from_value::<Vec<Group>>(file["groups"].take())?);
        }
    }
    Ok(all)
}

/// A field of the input in its type.
fn input<T: serde::de::DeserializeOwned>(case: &Value, field: &str) -> Fallible<T> {
    let value = case["input"][field].clone();
    serde_json::from_value(value).map_err(|e| format!("input.{field}: {e}").into())
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Fallible<T> {
    Ok(serde_json::from_value(value.clone())?)
}

/// The last comparison of a case.
fn ran<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Outcome {
    same(what, got, want).map(Ok)
}

fn n(count: u32) -> Replicas {
    Replicas::new(count)
}

// ---------------------------------------------------------------- the worked examples of the proposal

const MANY: u32 = 1_000_000;

fn policy(kind: AssignmentKind, min: u32, max: u32) -> Policy {
    Policy {
        source: WorkloadSource::Hub,
        ..Policy::new(kind, ReplicaBounds::new(n(min), n(max)))
    }
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

#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct AssignedCluster {
    min: u32,
    max: u32,
    replicas: Option<u32>,
}

/// A cluster of an example: one to be assigned, or one that runs, with the facts that the rules need.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Cluster {
    name: String,
    weight: Option<u64>,
    priority: Option<i64>,
    available_replicas: Option<u32>,
    current_replicas: Option<u32>,
    min: Option<u32>,
    max: u32,
    replicas: Option<u32>,
    ready_pods: u32,
    pending_pods: u32,
    utilization: f64,
}

fn profile(name: &str) -> Profile {
    Profile {
        name: name.to_owned(),
        ..Profile::default()
    }
}

fn seed_proposal(case: &Value) -> Outcome {
    match input::<String>(case, "operation")?.as_str() {
        "assign" => first_assignment(case),
        "transferBlocked" => blocked_transfer(case),
        "scaleDown" => shrink_order(case),
        "rebalanceHeadroom" => head_room(case),
        other => Err(format!("unknown operation {other:?}").into()),
    }
}

impl Cluster {
    fn affinity(&self) -> Affinity {
        Affinity {
            names: vec![self.name.clone()],
            ..Affinity::default()
        }
    }

    fn preference(&self) -> Preference {
        Preference {
            targets: self.affinity(),
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
                replicas: Replicas::new(self.replicas()),
                ready: Replicas::new(self.replicas() - self.pending_pods),
                unschedulable: Replicas::new(self.pending_pods),
                unschedulable_since: (self.pending_pods > 0)
                    .then(|| now - SignedDuration::from_mins(5)),
            }),
            hpa: Some(ReplicaBounds::new(
                Replicas::new(self.min.unwrap_or(1)),
                Replicas::new(self.max),
            )),
            desired: None,
            demand: None,
            capacity: None,
            observed: None,
            ..Member::default()
        }
    }

    fn entry(&self) -> Entry {
        Entry {
            min: Replicas::new(self.min.unwrap_or(1)),
            max: Replicas::new(self.max),
            written: Replicas::new(self.max),
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

fn blocked_transfer(case: &Value) -> Outcome {
    let clusters: Vec<Cluster> = read(&case["input"]["clusters"])?;
    let want: BTreeMap<String, AssignedCluster> = read(&case["expected"]["clusters"])?;
    let asleep = clusters.iter().any(|c| c.replicas() == 0);
    let (policy, members, ledger) = running(&clusters, asleep);
    let now = Timestamp::UNIX_EPOCH;
    let (decision, ledger) = decide(&policy, &Total::default(), &members, &ledger, now);
    for (name, want) in want {
        let entry = ledger.members.get(&name).ok_or("no entry")?;
        let written = decision.member(&name).and_then(|m| m.replicas);
        let member = members.iter().find(|m| m.profile.name == name);
        let running = member.and_then(|m| m.pods).map(|pods| pods.replicas);
        let found = AssignedCluster {
            min: entry.min.get(),
            max: entry.max.get(),
            replicas: want.replicas.and(written.or(running)).map(Replicas::get),
        };
        same("share", found, want)?;
    }
    RAN
}

fn shrink_order(case: &Value) -> Outcome {
    let clusters: Vec<Cluster> = read(&case["input"]["clusters"])?;
    let target: f64 = read(&case["input"]["targetUtilization"])?;
    let first: BTreeMap<String, u32> = read(&case["expected"]["finalMax"])?;
    let end: BTreeMap<String, u32> = read(&case["expected"]["centralReplicas"])?;
    let demand = clusters
        .iter()
        .map(|c| c.utilization * f64::from(c.replicas()) / target);
    let (policy, mut members, mut ledger) = running(&clusters, false);
    let demand: f64 = demand.sum();
    // A lasting load: one autoscaler over the whole fleet has reached the needed count.
    let total = Total {
        demand: Some(demand),
        desired: Some(policy.bounds.clamp(Replicas::for_demand(demand))),
        ..Total::default()
    };
    let mut now = Timestamp::UNIX_EPOCH;
    let mut actions = Vec::new();
    for _ in 0..60 {
        let (decision, next) = decide(&policy, &total, &members, &ledger, now);
        let maxima = |ledger: &Ledger| -> BTreeMap<String, u32> {
            ledger
                .members
                .iter()
                .map(|(name, e)| (name.clone(), e.max.get()))
                .collect()
        };
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
        Some(&first),
    )?;
    let replicas = |m: &Member| m.pods.map_or(0, |pods| pods.replicas.get());
    let found = members
        .iter()
        .map(|m| (m.profile.name.clone(), replicas(m)));
    same(
        "replicas in the end",
        found.collect::<BTreeMap<_, _>>(),
        end,
    )?;
    RAN
}

/// The division that R8 makes of head-room.
fn head_room(case: &Value) -> Outcome {
    let clusters: Vec<Cluster> = read(&case["input"]["clusters"])?;
    let want: BTreeMap<String, u32> = read(&case["expected"]["max"])?;
    let headroom: u32 = clusters.iter().map(|c| c.max - c.replicas()).sum();
    let all: u32 = read(&case["expected"]["headroom"])?;
    same("head-room", headroom, all)?;
    let candidates = clusters.iter().map(|c| Candidate {
        name: &c.name,
        preference: EffectivePreference {
            weight: c.weight,
            max: Replicas::new(headroom),
            ..EffectivePreference::default()
        },
        ..Candidate::default()
    });
    let candidates: Vec<_> = candidates.collect();
    let weighted = policy(AssignmentKind::StaticWeighted, 1, headroom);
    let split = share(
        &weighted,
        Replicas::new(headroom),
        &candidates,
        Surplus::Spread,
    );
    let maxima = clusters.iter().zip(split.shares);
    let maxima = maxima.map(|(c, share)| (c.name.clone(), c.replicas() + share));
    same("maxima", maxima.collect::<BTreeMap<_, _>>(), want)?;
    RAN
}

/// A first assignment in an example.
type Fleet = (String, [u32; 2], bool, [Vec<Cluster>; 2]);

fn fleet(case: &Value) -> Fallible<Fleet> {
    Row::read(case["input"].clone(), |row| {
        row.must::<String>("operation")?;
        let bounds = [row.must("minReplicas")?, row.must("maxReplicas")?];
        let clusters = [row.must("clusters")?, row.or_default("unselected")?];
        let (kind, sleeps) = (row.must("policy")?, row.or_default("scaleToZero")?);
        Ok((kind, bounds, sleeps, clusters))
    })
}

fn first_assignment(case: &Value) -> Outcome {
    let (word, [min, max], scaling_to_zero, [clusters, unselected]) = fleet(case)?;
    let expected = Row::read(case["expected"].clone(), |row| {
        Ok((
            row.must("clusters")?,
            row.or_default("removed")?,
            row.or_default("excluded")?,
        ))
    });
    let (wanted, removed, excluded): (BTreeMap<String, AssignedCluster>, _, _) = expected?;
    let policy = Policy {
        affinity: Affinity {
            names: clusters.iter().map(|c| c.name.clone()).collect(),
            ..Affinity::default()
        },
        preferences: clusters.iter().map(Cluster::preference).collect(),
        scaling_to_zero,
        ..policy(kind(&word)?, min, max)
    };
    let clusters: Vec<_> = clusters.iter().chain(&unselected).collect();
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
    let because = |why: Dropped| -> BTreeSet<String> {
        let because = dropped.iter().filter(|(_, reason)| **reason == why);
        because.map(|(name, _)| name.clone()).collect()
    };
    same("removed", because(Dropped::NotSelected), removed)?;
    same("excluded", because(Dropped::NoPreference), excluded)?;
    let budgets = assign(&policy, policy.bounds, &candidates);
    let present = |name: &str| {
        let cluster = clusters.iter().find(|c| c.name == name);
        cluster.and_then(|c| c.current_replicas).map(n)
    };
    let got = budgets.members.iter().map(|(name, budget)| {
        let replicas = wanted.get(name).and_then(|c| c.replicas);
        let start = budget.start(present(name), policy.scaling_to_zero);
        let assigned = AssignedCluster {
            min: budget.min.get(),
            max: budget.max.get(),
            // Values that an example does not state are not checked.
            replicas: replicas.map(|_| start.get()),
        };
        (name.clone(), assigned)
    });
    ran("budgets", got.collect(), wanted)
}

// ---------------------------------------------------------------- seats

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SeatsInput {
    #[serde(alias = "newReplicas")]
    new_seats: u32,
    #[serde(alias = "votes")]
    weights: BTreeMap<String, u64>,
    initial: BTreeMap<String, u32>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    tie_break: String,
}

fn seats(case: &Value) -> Outcome {
    let spec: SeatsInput = read(&case["input"])?;
    let names: BTreeSet<_> = spec.weights.keys().chain(spec.initial.keys()).collect();
    let recipients = names.into_iter().map(|name| Recipient {
        name,
        weight: spec.weights.get(name).copied().unwrap_or_default(),
        min: spec.initial.get(name).copied().unwrap_or_default(),
        max: u32::MAX,
    });
    let recipients: Vec<_> = recipients.collect();
    let ties = match spec.tie_break.as_str() {
        "" | "default" => ties(&spec.uid),
        "nameAsc" => Ties::NameAscending,
        "nameDesc" => Ties::NameDescending,
        other => return Err(format!("unknown tieBreak {other:?}").into()),
    };
    let held: u32 = spec.initial.values().sum();
    let split = webster(held + spec.new_seats, &recipients, ties);
    let got = split
        .of(&recipients)
        .map(|(recipient, seats)| (recipient.name.to_owned(), seats));
    expect_counts(case, got.collect())
}

/// Compares with `expected`, or any of `expectedAnyOf`; null means no cluster.
fn expect_counts(case: &Value, got: Counts) -> Outcome {
    if let Some(any) = case.get("expectedAnyOf") {
        let any: Vec<Counts> = read(any)?;
        return one_of(&got, &any);
    }
    let want: Option<Counts> = read(&case["expected"])?;
    ran("counts", got, want.unwrap_or_default())
}

// ---------------------------------------------------------------- division of a count

/// A count that is to be divided.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Division {
    strategy: String,
    #[serde(alias = "targetReplicas")]
    replicas: u32,
    #[serde(alias = "availableOrdered")]
    candidates: Vec<Room>,
    scheduled: Counts,
    weights: BTreeMap<String, u64>,
    uid: String,
    fresh: bool,
    overflow: bool,
}

/// A cluster, with the replicas that it can run.
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

impl Division {
    /// Returns the replicas that each cluster can run, including the running ones.
    fn capacity(&self) -> Counts {
        let all = self.candidates.iter().map(|room| {
            let (name, room) = match room {
                Room::Any(name) => (name, MANY),
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
fn divide(case: &Value, strategy: &str) -> Outcome {
    let mut fields: Map<String, Value> = read(&case["input"])?;
    if let Some(spec) = fields.remove("spec") {
        fields.extend(read::<Map<String, Value>>(&spec)?);
    }
    let division: Division = read(&fields.into())?;
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
    expect_division(&case["expected"], divided(&division, kind))
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
            targets: Affinity {
                names: vec![alias(name)?],
                ..Affinity::default()
            },
            weight: Some(*weight),
            ..Preference::default()
        })
    };
    let policy = Policy {
        preferences: division.weights.iter().filter_map(preference).collect(),
        ..policy(kind, 0, MANY)
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

fn expect_division(expected: &Value, got: Option<Counts>) -> Outcome {
    if expected.get("error").is_some() {
        return ran("counts", got, None);
    }
    let any: Vec<Counts> = match expected.get("assignmentAnyOf") {
        Some(any) => read(any)?,
        None => vec![read(expected.get("assignment").unwrap_or(expected))?],
    };
    // A count of zero is the same as none.
    let without_zeros = |counts: Counts| -> Counts {
        let some = counts.into_iter().filter(|(_, count)| *count > 0);
        some.collect()
    };
    let any: Vec<_> = any.into_iter().map(without_zeros).collect();
    one_of(&without_zeros(got.ok_or("nothing, want counts")?), &any)
}

fn one_of(got: &Counts, any: &[Counts]) -> Outcome {
    if any.contains(got) {
        RAN
    } else {
        Err(format!("got {got:?}, want one of {any:?}").into())
    }
}

// ---------------------------------------------------------------- affinity, state, quota

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct AffinityRow {
    cluster_names: Vec<String>,
    exclude_clusters: Vec<String>,
    label_selector: SelectorRow,
    field_selector: SelectorRow,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct SelectorRow {
    match_labels: Labels,
    match_expressions: Vec<ExpressionRow>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct ExpressionRow {
    #[serde(alias = "scopeName")]
    key: String,
    operator: String,
    values: Vec<String>,
}

impl SelectorRow {
    fn requirements(&self) -> Vec<Requirement> {
        let labels = self.match_labels.iter();
        let labels = labels.map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()]));
        let expressions = self
            .match_expressions
            .iter()
            .map(ExpressionRow::requirement);
        labels.chain(expressions).collect()
    }
}

impl ExpressionRow {
    /// A missing operator is `In` without values.
    fn requirement(&self) -> Requirement {
        let key = self.key.clone();
        match self.operator.as_str() {
            "NotIn" => Requirement::NotIn(key, self.values.clone()),
            "Exists" => Requirement::Exists(key),
            "DoesNotExist" => Requirement::DoesNotExist(key),
            _ => Requirement::In(key, self.values.clone()),
        }
    }
}

fn cluster_affinity(case: &Value) -> Outcome {
    let row: AffinityRow = input(case, "affinity")?;
    let affinity = Affinity {
        names: row.cluster_names,
        exclude: row.exclude_clusters,
        labels: row.label_selector.requirements().into_iter().collect(),
        fields: row.field_selector.requirements(),
    };
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let cluster = Profile {
        name: "cluster1".to_owned(),
        labels: Labels::from([("foo".to_owned(), "bar".to_owned())]),
        provider: "provider1".to_owned(),
        region: "region1".to_owned(),
        zones: text(&["zone1", "zone2", "zone3"]),
    };
    ran(
        "matches",
        affinity.matches(&cluster),
        read(&case["expected"])?,
    )
}

/// Known room of a cluster: the replicas that have a place, where some have none.
fn replica_state(case: &Value) -> Outcome {
    let clusters: BTreeMap<String, Value> = input(case, "clusters")?;
    let threshold: u64 = input(case, "unschedulableThresholdSeconds")?;
    let (mut current, mut capacity) = (Counts::new(), Counts::new());
    for (name, cluster) in clusters {
        let waits = |condition: &Value| {
            condition["reason"] == "Unschedulable"
                && condition["ageSeconds"]
                    .as_u64()
                    .is_some_and(|age| age > threshold)
        };
        let conditions = |pod: &Value| pod["conditions"].as_array().cloned().unwrap_or_default();
        let pods = cluster["pods"].as_array().cloned().unwrap_or_default();
        let waiting = pods
            .iter()
            .filter(|pod| conditions(pod).iter().any(waits))
            .count();
        let pods = Pods {
            replicas: n(read(&cluster["specReplicas"])?),
            ready: n(read(&cluster["readyReplicas"])?),
            unschedulable: n(u32::try_from(waiting)?),
            unschedulable_since: None,
        };
        current.insert(name.clone(), pods.ready.get());
        if waiting > 0 {
            capacity.insert(name, pods.placed().get());
        }
    }
    let want = &case["expected"];
    same("current", current, read(&want["current"])?)?;
    ran("capacity", capacity, read(&want["estimatedCapacity"])?)
}

fn amounts(row: &Value) -> Fallible<Requests> {
    let row: Option<BTreeMap<String, String>> = read(row)?;
    let milli = |(name, text): (String, String)| -> Fallible<(String, i64)> {
        Ok((name, text.parse::<Quantity>()?.milli_value().value))
    };
    row.into_iter().flatten().map(milli).collect()
}

fn shape(requirements: &Value) -> Fallible<PodShape> {
    let class: Option<String> = read(&requirements["priorityClassName"])?;
    Ok(PodShape {
        requests: amounts(&requirements["resourceRequest"])?,
        priority_class: class.unwrap_or_default(),
        ..PodShape::default()
    })
}

/// Checks a quota; replicas that are placed and not yet counted are assumed to come, and count as used.
fn quota(case: &Value) -> Outcome {
    let request = &case["input"]["request"];
    let mut quotas = Vec::new();
    for row in case["input"]["quotas"].as_array().into_iter().flatten() {
        let selector = row["spec"].get("scopeSelector").map(read::<SelectorRow>);
        let scopes = selector.transpose()?.unwrap_or_default().requirements();
        let mut quota = Quota {
            hard: amounts(&row["status"]["hard"])?,
            used: amounts(&row["status"]["used"])?,
            scopes,
        };
        let of_class = |scope: &&Requirement| scope.key() == "PriorityClass";
        if quota.scopes.iter().filter(of_class).count() > 1 {
            return Ok(Err(SCOPES));
        }
        let namespace = &row["objectMeta"]["namespace"];
        for assumed in case["input"]["assumedWorkloads"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let components = assumed["components"].as_array().into_iter().flatten();
            for component in components.filter(|_| assumed["namespace"] == *namespace) {
                let shape = shape(&component["replicaRequirements"])?;
                if quota.counts(&shape.priority_class) {
                    let replicas: i64 = read(&component["replicas"])?;
                    let more = |name: &str| shape.requests.get(name).unwrap_or_default() * replicas;
                    let used = quota
                        .used
                        .iter()
                        .map(|(name, used)| (name.to_owned(), used + more(name)));
                    quota.used = used.collect();
                }
            }
        }
        quotas.push(quota);
    }
    let shape = shape(request)?;
    let room = quotas.iter().filter_map(|quota| quota.room(&shape)).min();
    let room = room.unwrap_or(Replicas::MAX).get();
    same("room", room, read(&case["expected"])?)?;
    // A quota bounds a cluster that has nodes enough.
    let supply = Supply {
        quotas,
        ..Supply::default()
    };
    ran("room without nodes", supply.capacity(&shape).replicas, n(0))
}

// ---------------------------------------------------------------- the calculator of one cluster

/// The rows of the pods in the words of the HPA vectors.
fn pods(case: &Value) -> Value {
    let input = &case["input"];
    let rows = input["podList"]
        .as_array()
        .or_else(|| input["pods"].as_array());
    let pod = |row: &Value| {
        let ready = if row["ready"] == true {
            "True"
        } else {
            "False"
        };
        json!({
            "name": row["name"],
            "phase": row["phase"],
            "start_age_s": row["startedSecondsAgo"],
            "ready_condition": {"status": ready, "transition_age_s": row["startedSecondsAgo"]},
            "containers": [{"name": "", "requests_milli": {"cpu": row["cpuRequestMilli"]}}],
        })
    };
    rows.into_iter().flatten().map(pod).collect()
}

fn samples(case: &Value) -> Value {
    let metrics = case["input"]["metrics"].as_object();
    let sample = |(pod, row): (&String, &Value)| json!({"pod": pod, "value_milli": row["value"]});
    metrics.into_iter().flatten().map(sample).collect()
}

/// Runs a case in the words of the HPA vectors; null values are left out.
fn as_hpa(key: &str, row: &Value) -> Outcome {
    vectors_hpa::check(key, row)?;
    RAN
}

fn calculator(function: &str, case: &Value) -> Outcome {
    let (input, want) = (&case["input"], &case["expected"]);
    if input["calibration"]
        .as_f64()
        .is_some_and(|calibration| calibration < 1.0)
    {
        return Ok(Err(CALIBRATED));
    }
    let fails = want["expectError"] == true;
    // A ratio is the value of an object with a target of one.
    let ratio = input["usageRatio"]
        .as_f64()
        .map(|ratio| json!([(ratio * 1000.0).round()]));
    let object = input["objectMetric"].as_i64();
    // The tables' client fails for an object that measures zero: nothing was measured.
    let object = object.map(|value| if fails { json!([]) } else { json!([value]) });
    let target = if ratio.is_some() {
        &json!(1000)
    } else {
        first(input, &["targetUsage", "targetAverageUsage"])
    };
    let rounded_values = |values: Value| -> Value {
        let values = values.as_array().into_iter().flatten();
        values.map(|v| json!(v.as_f64().map(rounded))).collect()
    };
    let row = json!({
        "function": function,
        "resource": "cpu",
        "current_replicas": first(input, &["currentReplicas", "statusReplicas"]),
        "target_utilization": input["targetUtilization"],
        "target_milli": target,
        "pod_totals": samples(case),
        "values_milli": ratio.or(object).map(rounded_values),
        "tolerance_up": input["tolerance"],
        "tolerance_down": input["tolerance"],
        "cpu_initialization_period_s": 300,
        "initial_readiness_delay_s": 30,
        "pods": pods(case),
        "expect": {
            "replicas": want["expectedReplicas"],
            "utilization": want["expectedUtilization"],
            "raw_value_milli": want["expectedRawUtilization"],
            "usage_milli": want["expectedUsage"],
            "error_contains": fails.then_some(""),
        },
    });
    as_hpa("replica_calculator", &row)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the rows' thousandths are integers and small"
)]
fn rounded(x: f64) -> i64 {
    x.round() as i64
}

/// The first given field of these.
fn first<'a>(input: &'a Value, names: &[&str]) -> &'a Value {
    let given = names.iter().find_map(|name| input.get(name));
    given.unwrap_or(&Value::Null)
}

/// An object at twice its target wants twice the ready pods.
fn ready_pods(case: &Value) -> Outcome {
    let want = &case["expected"];
    let fails = want["expectError"] == true;
    let count = want["expectedCount"].as_i64().filter(|_| !fails);
    let row = json!({
        "function": "GetObjectMetricReplicas",
        "current_replicas": 1,
        "target_milli": 1000,
        "values_milli": [2000],
        "pods": pods(case),
        "expect": {
            "replicas": count.map(|count| 2 * count),
            "error_contains": fails.then_some(""),
        },
    });
    as_hpa("replica_calculator", &row)
}

fn group_pods(case: &Value) -> Outcome {
    let (input, want) = (&case["input"], &case["expected"]);
    let row = json!({
        "resource": input["resource"],
        "cpu_initialization_period_s": input["cpuInitializationPeriod"],
        "initial_readiness_delay_s": input["delayOfInitialReadinessStatus"],
        "pods": pods(case),
        "metrics": samples(case),
        "expect": {
            "ready_count": want["expectedReadyCount"],
            "unready": want["expectedUnreadyPods"],
            "missing": want["expectedMissingPods"],
            "ignored": want["expectedIgnoredPods"],
        },
    });
    as_hpa("group_pods", &row)
}

fn bounds(case: &Value) -> Outcome {
    let (input, want) = (&case["input"], &case["expected"]);
    let row = json!({
        "current_replicas": input["currentReplicas"],
        "desired_replicas": input["desiredReplicas"],
        "min_replicas": input["hpaMinReplicas"],
        "max_replicas": input["hpaMaxReplicas"],
        "expect": {"replicas": want["expectedReplicas"], "reason": want["expectedCondition"]},
    });
    as_hpa("convert_desired_replicas_with_rules", &row)
}

/// Without rules, the limit is the rest of a boundless wish.
fn plain_up_limit(case: &Value) -> Outcome {
    let row = json!({
        "current_replicas": case["input"]["currentReplicas"],
        "desired_replicas": MANY,
        "min_replicas": 1,
        "max_replicas": MANY,
        "expect": {"replicas": case["expected"]["expectedLimit"], "reason": "ScaleUpLimit"},
    });
    as_hpa("convert_desired_replicas_with_rules", &row)
}

fn limit(key: &str, case: &Value) -> Outcome {
    let input = &case["input"];
    let row = json!({
        "current_replicas": input["currentReplicas"],
        "scale_up_events": input["scaleUpEvents"],
        "scale_down_events": input["scaleDownEvents"],
        "rules": input["scalingRules"],
        "expect": {"limit": case["expected"]["expectedLimit"]},
    });
    as_hpa(key, &row)
}

fn longest_period(case: &Value) -> Outcome {
    let policies = case["input"]["scalingRules"]["policies"].as_array();
    let policy = |row: &Value| -> Fallible<hpa::ScalingPolicy> {
        Ok(hpa::ScalingPolicy {
            kind: hpa::PolicyKind::Pods,
            value: 1,
            period: SignedDuration::from_secs(read(&row["periodSeconds"])?),
        })
    };
    let policies = policies
        .into_iter()
        .flatten()
        .map(policy)
        .collect::<Result<_, _>>()?;
    let rules = hpa::ScalingRules {
        policies: Some(policies),
        ..hpa::ScalingRules::default()
    };
    let behavior = hpa::Behavior {
        scale_down: rules.clone(),
        scale_up: rules,
    };
    let want = SignedDuration::from_secs(read(&case["expected"]["expectedPeriod"])?);
    same("up", behavior.longest_period(hpa::Direction::Up), want)?;
    ran("down", behavior.longest_period(hpa::Direction::Down), want)
}
