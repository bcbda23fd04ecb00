//! Warnings about an accepted `FederatedHPA`: fields without effect under its policy, and numbers that override each
//! other.

use foretide_crds::{FederatedHPA, TargetClusterAutoscalingPreference};
use foretide_domain::Replicas;
use foretide_federate::{AssignmentKind, Preference};

use super::Severity;
use foretide_api::validation::FleetSpec;

/// Path of the assignment.
const ASSIGNMENT: &str = "spec.federatedHPAAssignment";

/// Path, severity and message of a finding.
pub type Found = (String, Severity, String);

/// Names of Foretide's fields in the examples of Karmada's proposal, or in other products.
const OTHER_NAMES: [(&str, &str); 7] = [
    ("scaleToZero", "scalingToZero"),
    ("hpaAssignmentPolicy", "federatedHPAAssignmentType"),
    (
        "hpaAssignmentPolicyConfiguration",
        "clusterAutoscalingPreference",
    ),
    (
        "clusterAutoscalingPreferences",
        "clusterAutoscalingPreference",
    ),
    ("excludeClusters", "exclude"),
    ("clusterAffinities", "clusterAffinity"),
    ("weight", "staticWeight"),
];

/// The name of Foretide's field for another name at the end of a path.
pub fn meant(path: &str) -> Option<&'static str> {
    let last = path.rsplit('.').next().unwrap_or_default();
    let mut names = OTHER_NAMES.iter();
    let found = names.find(|(other, _)| other.eq_ignore_ascii_case(last));
    found.map(|(_, ours)| *ours)
}

/// All warnings.
pub fn diagnostics(fdhpa: &FederatedHPA, fleet: &FleetSpec) -> Vec<Found> {
    let mut found = without_effect(fdhpa, fleet.policy.kind);
    let assignment = &fdhpa.spec.federated_hpa_assignment;
    let preferences = assignment.cluster_autoscaling_preference.iter().flatten();
    for (position, preference) in preferences.enumerate() {
        let path = format!("{ASSIGNMENT}.clusterAutoscalingPreference[{position}]");
        found.extend(about_preference(preference, &path, fleet));
    }
    found.extend(about_clusters(fleet));
    found.extend(about_counts(fdhpa, fleet));
    found
}

fn warning(path: &str, message: impl Into<String>) -> Found {
    (path.to_owned(), Severity::Warning, message.into())
}

/// A field of the spec, true if it is written, and the policies under which it has an effect.
type Field<'a> = (&'a str, bool, &'a [AssignmentKind]);

const DYNAMIC: &[AssignmentKind] = &[AssignmentKind::DynamicWeighted];
const STATIC: &[AssignmentKind] = &[AssignmentKind::StaticWeighted];
const PRIORITIZED: &[AssignmentKind] = &[AssignmentKind::Prioritized];
/// The policies under which budgets move.
const MOVING: &[AssignmentKind] = &[
    AssignmentKind::Aggregated,
    AssignmentKind::DynamicWeighted,
    AssignmentKind::Prioritized,
];
/// The policies that divide.
const DIVIDING: &[AssignmentKind] = &[
    AssignmentKind::Aggregated,
    AssignmentKind::DynamicWeighted,
    AssignmentKind::Prioritized,
    AssignmentKind::StaticWeighted,
];

/// The fields below a path that are written without an effect under the policy.
fn idle(fields: [Field<'_>; 4], below: &str, kind: AssignmentKind) -> Vec<Found> {
    let mut found = Vec::new();
    for (path, is_written, under) in fields {
        if is_written && !under.contains(&kind) {
            let field = path.rsplit('.').next().unwrap_or_default();
            let message = format!("{field} has no effect under {}", kind.as_str());
            found.push(warning(&format!("{below}.{path}"), message));
        }
    }
    found
}

/// Fields of the spec that have no effect under the policy.
fn without_effect(fdhpa: &FederatedHPA, kind: AssignmentKind) -> Vec<Found> {
    let spec = &fdhpa.spec;
    let rebalance = spec.rebalance.as_ref();
    let utilization = rebalance.and_then(|it| it.min_utilization_percent);
    let delay = spec.autoscale_multi_cluster_delay;
    let by = &spec.federated_hpa_assignment.weight_by;
    let fields = [
        ("autoscaleMultiClusterDelay", delay.is_some(), MOVING),
        (
            "rebalance.minUtilizationPercent",
            utilization.is_some(),
            MOVING,
        ),
        (
            "scalingToZero",
            spec.scaling_to_zero == Some(true),
            DIVIDING,
        ),
        ("federatedHPAAssignment.weightBy", by.is_some(), DYNAMIC),
    ];
    idle(fields, "spec", kind)
}

fn about_preference(
    preference: &TargetClusterAutoscalingPreference,
    path: &str,
    fleet: &FleetSpec,
) -> Vec<Found> {
    let (min, max) = (
        preference.autoscaling_min_threshold,
        preference.autoscaling_max_threshold,
    );
    let fields = [
        ("staticWeight", preference.static_weight.is_some(), STATIC),
        ("priority", preference.priority.is_some(), PRIORITIZED),
        ("autoscalingMinThreshold", min.is_some(), DIVIDING),
        ("autoscalingMaxThreshold", max.is_some(), DIVIDING),
    ];
    let mut found = idle(fields, path, fleet.policy.kind);
    let most = fleet.policy.bounds.max;
    let above = min.map(Replicas::from_i32).filter(|min| *min > most);
    if let Some(min) = above.filter(|_| fleet.course.divides) {
        found.push(warning(
            &format!("{path}.autoscalingMinThreshold"),
            format!("autoscalingMinThreshold {min} takes precedence over spec.maxReplicas, which is {most}"),
        ));
    }
    found
}

fn about_clusters(fleet: &FleetSpec) -> Vec<Found> {
    let mut found = Vec::new();
    let affinity = &fleet.policy.affinity;
    let mut both = affinity
        .names
        .iter()
        .filter(|name| affinity.exclude.contains(name));
    if let Some(name) = both.next() {
        let message = format!("{name} is in both clusterNames and exclude, so it is excluded");
        found.push(warning("spec.clusterAffinity.exclude", message));
    }
    let most = fleet.policy.bounds.max;
    // Only for named clusters: the number of clusters that a selector finds is not known here.
    let named = u32::try_from(affinity.names.len()).unwrap_or(u32::MAX);
    if fleet.course.divides && Replicas::new(named) > most {
        let message =
            format!("maxReplicas {most} is not enough for one replica in each of {named} clusters");
        found.push(warning("spec.maxReplicas", message));
    }
    let weighs = |preference: &Preference| preference.weight.is_some();
    if fleet.policy.kind == AssignmentKind::StaticWeighted
        && !fleet.policy.preferences.iter().any(weighs)
    {
        let message = "no cluster has a staticWeight, so all clusters have the same weight";
        found.push(warning(ASSIGNMENT, message));
    }
    found
}

fn about_counts(fdhpa: &FederatedHPA, fleet: &FleetSpec) -> Vec<Found> {
    let mut found = Vec::new();
    if fdhpa.spec.autoscaling.min_replicas == Some(0) {
        found.push(warning(
            "spec.minReplicas",
            "minReplicas 0 counts as 1: a fleet keeps at least one replica",
        ));
    }
    // Only for this reason the mode of the members is another one.
    if fleet.policy.mode != fleet.workload.mode_in_force() {
        let message = "every metric has fleet scope, so the controller writes the scale of the members itself (mode Direct)";
        let path = if fdhpa.spec.metric_scope.is_some() {
            "spec.metricScope"
        } else {
            "spec.metrics"
        };
        found.push((path.to_owned(), Severity::Note, message.to_owned()));
    }
    found
}
