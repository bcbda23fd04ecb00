//! The clusters file: the state of the member clusters, as a person writes it down.
//!
//! Unknown fields, contradictions and duplicate names are errors with their line, because a misspelled field that is
//! ignored would simulate another fleet. Ages (`for: 90s`) stand for timestamps.

use std::collections::{BTreeMap, BTreeSet};

use foretide_crds::Violation;
use foretide_domain::{ReplicaBounds, Replicas, workload::Mode};
use foretide_federate::{
    ClassifiedFleet, Health, Ledger, Member, Participation, Pods, Policy, Profile, Taint,
    TaintEffect, Total,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::AssignError;
use crate::{
    API_VERSION, Error,
    manifest::{self, Location, YamlError, violation},
};
use foretide_api::validation::duration;
use foretide_base::error::yaml;

/// `kind` of the file.
pub const KIND: &str = "Clusters";
/// The age of unschedulable pods, of a lost cluster and of a taint, if the file does not give it: longer than any delay
/// and toleration.
const LONG: SignedDuration = SignedDuration::from_hours(24 * 7);

/// The clusters file as it is written, with ages instead of timestamps.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Clusters {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    fleet: FleetNeeds,
    #[serde(rename = "clusters")]
    items: Vec<Cluster>,
}

/// The totals of the fleet.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FleetNeeds {
    /// In replicas, as a sum over all clusters.
    demand: Option<f64>,
    floor: Option<u32>,
    desired: Option<u32>,
}

/// One cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Cluster {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    provider: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    zones: Vec<String>,
    #[serde(default)]
    taints: Vec<ClusterTaint>,
    #[serde(default)]
    health: ClusterHealth,
    /// Time for which the cluster has not been `Ready`.
    lost_for: Option<String>,
    /// Replicas that the cluster can run in total.
    capacity: Option<u32>,
    /// Replicas that the cluster can run in addition to those that have a node.
    room: Option<u32>,
    #[serde(default)]
    target_absent: bool,
    #[serde(default)]
    replicas: u32,
    ready: Option<u32>,
    #[serde(default)]
    unschedulable: u32,
    unschedulable_for: Option<String>,
    /// In replicas.
    demand: Option<f64>,
    /// Utilization of the cluster's pods, in percent of their requests.
    utilization: Option<f64>,
    desired: Option<u32>,
    hpa: Option<Bounds>,
    replicas_written_by: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounds {
    min: u32,
    max: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum ClusterHealth {
    #[default]
    Ready,
    NotReady,
    Unknown,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClusterTaint {
    key: String,
    #[serde(default)]
    value: String,
    effect: TaintEffect,
    r#for: Option<String>,
}

// === impl Clusters ===

impl Clusters {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The text has invalid fields; each with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let documents = manifest::parse(file, text)?;
        let file = file.to_owned();
        let [document] = documents.as_slice() else {
            let found = documents.len();
            return Err(AssignError::Documents(file, found).into());
        };
        // Read again by type: the document serves only to find the lines of fields.
        let read: Self = serde_saphyr::from_str(text).map_err(|error| {
            let (line, message) = yaml(&error, text);
            let place = Location { file, line };
            YamlError { place, message }
        })?;
        let errors = errors(&read);
        if errors.is_empty() {
            return Ok(read);
        }
        let lines: Vec<_> = errors.iter().map(|error| document.refusal(error)).collect();
        Err(AssignError::Fields(lines.join("\n")).into())
    }

    /// The totals of the fleet: those of the file, or else
    /// - demand: the sum over the counted members, if each has one;
    /// - desired count, Delegated only: the count for this demand after it has lasted longer than any window.
    ///
    /// Counts are at most `maxReplicas`.
    pub fn total(
        &self,
        members: &[Member],
        policy: &Policy,
        ledger: &Ledger,
        at: Timestamp,
    ) -> Total {
        let parts = ClassifiedFleet::new(policy, members, ledger, at).participation();
        let each = members.iter().filter(|member: &&Member| {
            let part = parts.get(&member.profile.name);
            part == Some(&Participation::Counted) && member.pods.is_some()
        });
        let sum = each.map(|member| member.demand).sum::<Option<f64>>();
        let demand = self.fleet.demand.or(sum);
        let most = policy.bounds.max;
        let count = |count: u32| Replicas::new(count).min(most);
        let floor = self.fleet.floor.map(count);
        let lasting = demand
            .map(|demand| {
                let asked = Replicas::for_demand(demand).max(floor.unwrap_or_default());
                policy.bounds.clamp(asked)
            })
            .filter(|_| policy.mode == Mode::Delegated);
        Total {
            demand,
            floor,
            desired: self.fleet.desired.map(count).or(lasting),
        }
    }

    /// Replicas of all clusters.
    pub fn replicas(&self) -> Replicas {
        Replicas::new(self.items.iter().fold(0, |sum: u32, cluster: &Cluster| {
            sum.saturating_add(cluster.replicas)
        }))
    }

    /// The clusters as observed at `now`. `target` is the utilization target of the workload, in percent.
    ///
    /// # Errors
    /// A cluster has a utilization, but no metric has a utilization target.
    pub fn members(&self, target: Option<i64>, now: Timestamp) -> Result<Vec<Member>, AssignError> {
        self.items
            .iter()
            .map(|cluster| cluster.member(target, now))
            .collect()
    }
}

// === impl Cluster ===

impl Cluster {
    fn member(&self, target: Option<i64>, now: Timestamp) -> Result<Member, AssignError> {
        let since = before(now, self.lost_for.as_deref());
        let health = match self.health {
            ClusterHealth::Ready => Health::Ready,
            ClusterHealth::NotReady => Health::NotReady { since },
            ClusterHealth::Unknown => Health::Unknown { since },
        };
        let observed = match health {
            // Nothing was observed since contact was lost.
            Health::Unknown { since } => since,
            Health::Ready | Health::NotReady { .. } => now,
        };
        let blocked = before(now, self.unschedulable_for.as_deref());
        Ok(Member {
            profile: self.profile(),
            health,
            taints: self.taints.iter().map(|taint| taint.seen(now)).collect(),
            pods: (!self.target_absent).then(|| Pods {
                replicas: Replicas::new(self.replicas),
                ready: Replicas::new(self.ready.unwrap_or_else(|| self.placed())),
                unschedulable: Replicas::new(self.unschedulable),
                unschedulable_since: (self.unschedulable > 0).then_some(blocked),
            }),
            hpa: self.hpa.map(|bounds| {
                ReplicaBounds::new(Replicas::new(bounds.min), Replicas::new(bounds.max))
            }),
            desired: self.desired.map(Replicas::new),
            demand: self.demand(target)?,
            capacity: self.capacity().map(Replicas::new),
            observed: Some(observed),
            foreign_writer: self.replicas_written_by.clone(),
            ..Member::default()
        })
    }

    fn profile(&self) -> Profile {
        Profile {
            name: self.name.clone(),
            labels: self.labels.clone(),
            provider: self.provider.clone(),
            region: self.region.clone(),
            zones: self.zones.clone(),
        }
    }

    /// Pods that have a node.
    const fn placed(&self) -> u32 {
        self.replicas.saturating_sub(self.unschedulable)
    }

    fn capacity(&self) -> Option<u32> {
        self.capacity.or_else(|| {
            self.room
                .map(|room: u32| room.saturating_add(self.placed()))
        })
    }

    /// In replicas: as written, or the ready pods times their utilization over the target.
    fn demand(&self, target: Option<i64>) -> Result<Option<f64>, AssignError> {
        let Some(utilization) = self.utilization else {
            return Ok(self.demand);
        };
        let Some(target) = target.and_then(|target| u32::try_from(target).ok()) else {
            return Err(AssignError::NoTarget(self.name.clone()));
        };
        let ready = self.ready.unwrap_or_else(|| self.placed());
        Ok(Some(f64::from(ready) * utilization / f64::from(target)))
    }
}

impl ClusterTaint {
    fn seen(&self, now: Timestamp) -> Taint {
        Taint {
            key: self.key.clone(),
            value: self.value.clone(),
            effect: self.effect,
            since: Some(before(now, self.r#for.as_deref())),
        }
    }
}

/// The beginning of what has lasted for an age.
fn before(now: Timestamp, age: Option<&str>) -> Timestamp {
    let age = age.and_then(duration).unwrap_or(LONG);
    now.checked_sub(age).unwrap_or(Timestamp::MIN)
}

/// All invalid values of a file that has the right shape.
fn errors(file: &Clusters) -> Vec<Violation> {
    let mut errors = Vec::new();
    let heads = [
        ("apiVersion", file.api_version.as_deref(), API_VERSION),
        ("kind", file.kind.as_deref(), KIND),
    ];
    for (field, found, expected) in heads {
        if let Some(found) = found.filter(|found| *found != expected) {
            errors.push(violation(field, format!("is {found}, expected {expected}")));
        }
    }
    if file.items.is_empty() {
        let message = "is empty, expected at least one cluster";
        errors.push(violation("clusters", message));
    }
    errors.extend(not_a_count("fleet.demand", file.fleet.demand));
    let mut names = BTreeSet::new();
    for (position, cluster) in file.items.iter().enumerate() {
        let path = format!("clusters[{position}]");
        if !names.insert(&cluster.name) {
            let message = format!("{} is a duplicate, expected unique names", cluster.name);
            errors.push(violation(format!("{path}.name"), message));
        }
        errors.extend(cluster_errors(&path, cluster));
    }
    errors
}

fn cluster_errors(path: &str, cluster: &Cluster) -> Vec<Violation> {
    let mut errors = Vec::new();
    for (field, count) in [
        ("demand", cluster.demand),
        ("utilization", cluster.utilization),
    ] {
        errors.extend(not_a_count(&format!("{path}.{field}"), count));
    }
    for (field, age) in [
        ("lostFor", &cluster.lost_for),
        ("unschedulableFor", &cluster.unschedulable_for),
    ] {
        errors.extend(not_an_age(format!("{path}.{field}"), age.as_deref()));
    }
    for (position, taint) in cluster.taints.iter().enumerate() {
        let path = format!("{path}.taints[{position}].for");
        errors.extend(not_an_age(path, taint.r#for.as_deref()));
    }
    for (is_found, field, message) in contradictions(cluster) {
        if is_found {
            errors.push(violation(format!("{path}.{field}"), message));
        }
    }
    errors
}

/// Fields of a cluster that may contradict each other, each with its message.
fn contradictions(cluster: &Cluster) -> [(bool, &'static str, String); 8] {
    let (replicas, placed, pending) = (cluster.replicas, cluster.placed(), cluster.unschedulable);
    let ready = cluster.ready.unwrap_or_default();
    let Bounds { min, max } = cluster.hpa.unwrap_or_default();
    let is_ready = cluster.health == ClusterHealth::Ready;
    [
        (
            cluster.name.is_empty(),
            "name",
            "is empty, expected the cluster's name".to_owned(),
        ),
        (
            cluster.capacity.is_some() && cluster.room.is_some(),
            "room",
            "is set together with capacity; remove one of them".to_owned(),
        ),
        (
            cluster.demand.is_some() && cluster.utilization.is_some(),
            "utilization",
            "is set together with demand; remove one of them".to_owned(),
        ),
        (
            is_ready && cluster.lost_for.is_some(),
            "lostFor",
            "is set, but health is Ready; expected NotReady or Unknown".to_owned(),
        ),
        (
            cluster.target_absent && replicas > 0,
            "replicas",
            format!("is {replicas}, but targetAbsent is true; expected 0"),
        ),
        (
            pending > replicas,
            "unschedulable",
            format!("is {pending}, expected at most replicas, which is {replicas}"),
        ),
        (
            ready > placed,
            "ready",
            format!(
                "is {ready}, expected at most the {placed} of {replicas} replicas that have a node"
            ),
        ),
        (
            min > max,
            "hpa.min",
            format!("is {min}, expected at most max, which is {max}"),
        ),
    ]
}

fn not_a_count(path: &str, n: Option<f64>) -> Option<Violation> {
    let n = n.filter(|n| !n.is_finite() || *n < 0.0)?;
    Some(violation(
        path,
        format!("is {n}, expected a number of at least 0"),
    ))
}

fn not_an_age(path: String, text: Option<&str>) -> Option<Violation> {
    let text = text.filter(|text| duration(text).is_none())?;
    let message = format!("is {text}, expected a duration such as 90s or 10m");
    Some(violation(path, message))
}

#[cfg(test)]
mod tests {
    use foretide_domain::ReplicaBounds;
    use foretide_federate::AssignmentKind;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn parse(text: &str) -> Result<Clusters, String> {
        Clusters::parse("c.yaml", text).map_err(|error| error.to_string())
    }

    fn only(text: &str) -> Member {
        let text = format!("clusters:\n- {{name: a, {text}}}\n");
        let members = parse(&text).unwrap().members(Some(50), NOW).unwrap();
        members.into_iter().next().unwrap()
    }

    fn counts(member: &Member) -> [u32; 3] {
        let pods = member.pods.unwrap();
        [pods.replicas, pods.ready, pods.unschedulable].map(Replicas::get)
    }

    #[test]
    fn a_cluster_with_only_a_name_is_ready_and_empty() {
        let member = only("");
        let want = Member {
            profile: Profile {
                name: "a".to_owned(),
                ..Profile::default()
            },
            pods: Some(Pods::default()),
            observed: Some(NOW),
            ..Member::default()
        };
        assert_eq!(member, want);
    }

    #[test]
    fn pods_that_have_a_node_are_ready_unless_said_otherwise_and_room_is_beside_them() {
        for (text, want, capacity) in [
            ("", [10, 10, 0], None),
            ("unschedulable: 3", [10, 7, 3], None),
            ("unschedulable: 3, ready: 5", [10, 5, 3], None),
            ("capacity: 12", [10, 10, 0], Some(12)),
            ("unschedulable: 3, capacity: 7", [10, 7, 3], Some(7)),
            ("capacity: 4", [10, 10, 0], Some(4)),
            ("room: 4", [10, 10, 0], Some(14)),
            ("unschedulable: 3, room: 4", [10, 7, 3], Some(11)),
        ] {
            let member = only(&format!("replicas: 10, {text}"));
            assert_eq!(counts(&member), want, "{text}");
            assert_eq!(member.capacity.map(Replicas::get), capacity, "{text}");
        }
    }

    #[test]
    fn ages_become_times() {
        let ago = |seconds| NOW - SignedDuration::from_secs(seconds);
        let blocked = only("replicas: 2, unschedulable: 1, unschedulableFor: 90s");
        assert_eq!(blocked.pods.unwrap().unschedulable_since, Some(ago(90)));
        let lost = only("health: Unknown, lostFor: 10m");
        assert_eq!(lost.health, Health::Unknown { since: ago(600) });
        assert_eq!(lost.observed, Some(ago(600)));
        let unwell = only("health: NotReady, lostFor: 1m");
        assert_eq!(unwell.health, Health::NotReady { since: ago(60) });
        assert_eq!(unwell.observed, Some(NOW));
        let tainted = only("taints: [{key: k, effect: NoExecute, for: 5m}]");
        assert_eq!(tainted.taints[0].since, Some(ago(300)));
    }

    #[test]
    fn a_utilization_is_a_demand_by_the_target() {
        assert_eq!(only("replicas: 4, utilization: 25").demand, Some(2.0));
        assert_eq!(only("replicas: 4, demand: 3.5").demand, Some(3.5));
        let clusters = parse("clusters: [{name: a, utilization: 25}]").unwrap();
        let message = clusters.members(None, NOW).unwrap_err().to_string();
        assert_eq!(
            message,
            "cluster a: utilization is set, but no metric has a utilization target; set demand in replicas instead"
        );
    }

    #[test]
    fn the_demand_of_the_fleet_is_the_sum_if_every_cluster_has_one() {
        for (text, want) in [
            ("[{name: b, demand: 2}]", Some(3.5)),
            ("[{name: b}]", None),
            ("[]\nfleet: {demand: 9}", Some(9.0)),
            ("[{name: b, targetAbsent: true}]", Some(1.5)),
        ] {
            let text = text.replacen('[', "[{name: a, demand: 1.5}, ", 1);
            let clusters = parse(&format!("clusters: {text}\n")).unwrap();
            let members = clusters.members(None, NOW).unwrap();
            let policy = Policy::new(
                AssignmentKind::Aggregated,
                ReplicaBounds::new(Replicas::new(2), Replicas::MAX),
            );
            let total = clusters.total(&members, &policy, &Ledger::default(), NOW);
            assert_eq!(total.demand, want, "{text}");
            let lasting = want.map(|demand| Replicas::for_demand(demand).max(Replicas::new(2)));
            assert_eq!(total.desired, lasting, "{text}");
        }
    }

    #[test]
    fn an_invalid_value_is_rejected_with_its_line() {
        for (text, want) in [
            (
                "kind: Fleet\nclusters:\n- name: a",
                "c.yaml:1: kind: is Fleet, expected Clusters",
            ),
            (
                "clusters: []",
                "c.yaml:1: clusters: is empty, expected at least one cluster",
            ),
            (
                "clusters:\n- name: a\n- name: a",
                "c.yaml:3: clusters[1].name: a is a duplicate, expected unique names",
            ),
            (
                "clusters:\n- name: a\n  replicas: 2\n  unschedulable: 3",
                "c.yaml:4: clusters[0].unschedulable: is 3, expected at most replicas, which is 2",
            ),
            (
                "clusters:\n- name: a\n  replicas: 2\n  unschedulable: 1\n  ready: 2",
                "c.yaml:5: clusters[0].ready: is 2, expected at most the 1 of 2 replicas that have a node",
            ),
            (
                "clusters:\n- name: a\n  capacity: 2\n  room: 1",
                "c.yaml:4: clusters[0].room: is set together with capacity; remove one of them",
            ),
            (
                "clusters:\n- name: a\n  lostFor: 1m",
                "c.yaml:3: clusters[0].lostFor: is set, but health is Ready; expected NotReady or Unknown",
            ),
            (
                "clusters:\n- name: a\n  health: Unknown\n  lostFor: soon",
                "c.yaml:4: clusters[0].lostFor: is soon, expected a duration such as 90s or 10m",
            ),
            (
                "clusters:\n- name: a\n  hpa: {min: 3, max: 2}",
                "c.yaml:3: clusters[0].hpa.min: is 3, expected at most max, which is 2",
            ),
            (
                "clusters:\n- name: a\n  demand: -1",
                "c.yaml:3: clusters[0].demand: is -1, expected a number of at least 0",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), want, "{text}");
        }
    }

    #[test]
    fn a_misspelled_field_is_rejected_with_its_line_and_the_known_fields() {
        let message = parse("clusters:\n- name: a\n  replica: 2").unwrap_err();
        assert!(message.starts_with("c.yaml:3: "), "{message}");
        assert!(
            message.contains("replica") && message.contains("replicas"),
            "{message}"
        );
        let message = parse("clusters:\n- name: a\n  health: Fine").unwrap_err();
        assert!(message.contains("NotReady"), "{message}");
    }

    #[test]
    fn several_documents_are_rejected() {
        let message = parse("clusters: [{name: a}]\n---\nclusters: [{name: b}]").unwrap_err();
        assert_eq!(
            message,
            "c.yaml: expected one document of clusters, found 2"
        );
    }
}
