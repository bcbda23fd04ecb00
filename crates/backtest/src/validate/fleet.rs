//! Warnings about an accepted `FederatedHPA`: fields without effect under its policy, and numbers that override each
//! other.

use foretide_crds::{FederatedHPA, TargetClusterAutoscalingPreference};
use foretide_domain::{Replicas, workload::Mode};
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

fn idle(path: &str, kind: AssignmentKind) -> Found {
    let field = path.rsplit('.').next().unwrap_or_default();
    warning(
        path,
        format!("{field} has no effect under {}", kind.as_str()),
    )
}

/// Fields of the spec that have no effect under the policy.
fn without_effect(fdhpa: &FederatedHPA, kind: AssignmentKind) -> Vec<Found> {
    let spec = &fdhpa.spec;
    let assignment = &spec.federated_hpa_assignment;
    let moves = !matches!(
        kind,
        AssignmentKind::Duplicated | AssignmentKind::StaticWeighted
    );
    let rebalance = spec.rebalance.as_ref();
    let written = [
        (
            "spec.autoscaleMultiClusterDelay",
            spec.autoscale_multi_cluster_delay.is_some() && !moves,
        ),
        (
            "spec.rebalance.minUtilizationPercent",
            rebalance.is_some_and(|r| r.min_utilization_percent.is_some()) && !moves,
        ),
        (
            "spec.scalingToZero",
            spec.scaling_to_zero == Some(true) && kind == AssignmentKind::Duplicated,
        ),
        (
            "spec.federatedHPAAssignment.weightBy",
            assignment.weight_by.is_some() && kind != AssignmentKind::DynamicWeighted,
        ),
    ];
    let idle = written.iter().filter(|(_, idle)| *idle);
    idle.map(|(path, _)| self::idle(path, kind)).collect()
}

fn about_preference(
    preference: &TargetClusterAutoscalingPreference,
    path: &str,
    fleet: &FleetSpec,
) -> Vec<Found> {
    let kind = fleet.policy.kind;
    let duplicated = kind == AssignmentKind::Duplicated;
    let (min, max) = (
        preference.autoscaling_min_threshold,
        preference.autoscaling_max_threshold,
    );
    let written = [
        (
            "staticWeight",
            preference.static_weight.is_some() && kind != AssignmentKind::StaticWeighted,
        ),
        (
            "priority",
            preference.priority.is_some() && kind != AssignmentKind::Prioritized,
        ),
        ("autoscalingMinThreshold", min.is_some() && duplicated),
        ("autoscalingMaxThreshold", max.is_some() && duplicated),
    ];
    let idle = written.iter().filter(|(_, idle)| *idle);
    let mut found: Vec<_> = idle
        .map(|(field, _)| self::idle(&format!("{path}.{field}"), kind))
        .collect();
    let most = fleet.policy.bounds.max;
    if let Some(min) = min.map(Replicas::from_i32)
        && min > most
        && !duplicated
    {
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
    if fleet.policy.kind != AssignmentKind::Duplicated && Replicas::new(named) > most {
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
    let direct =
        fleet.policy.mode == Mode::Direct && fleet.workload.mode_in_force() != Mode::Direct;
    if direct {
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
