//! Converts a `FederatedHPA` to a workload and the policy that divides it.
//!
//! The part of the spec that both kinds of autoscaler have is converted by [`super`]; the rest of it here. A field
//! without effect under the chosen policy is not a violation.

mod clusters;

use std::{collections::BTreeSet, ops::RangeInclusive};

use foretide_crds::{
    AssignmentType, DeletionPolicy, FailurePolicy as WireFailure, FederatedHPA,
    FederatedHPAAssignment, FederatedHPASpec, MetricScope, Rebalance, Scope,
    TargetClusterAutoscalingPreference, WeightBy as WireWeight, WorkloadSource as WireSource,
};
use foretide_domain::{
    Replicas,
    cron::Zone,
    hpa::{MetricSpec, Settings},
    proposal::Reason,
    workload::{FloorSources, Mode, SpecPart, SpecProblem, Workload, Writes},
};
use foretide_federate::{
    Affinity, AssignmentKind, FailurePolicy, Policy, Preference, WeightBy, WorkloadSource,
};
use jiff::SignedDuration;

use self::clusters::AffinityConverter;
use super::{Invalid, MAX_REPLICAS, Violation, limits, read, refuse_if_any};

/// Path of the assignment.
const ASSIGNMENT: &str = "spec.federatedHPAAssignment";

/// The spec of a fleet.
#[derive(Clone, Debug)]
pub struct FleetSpec {
    /// The fleet as one workload: bounds, metrics, windows and forecasts of the total (of each member under
    /// [`AssignmentKind::Duplicated`]).
    pub workload: Workload,
    /// The policy of the division. The `mode` is that of the members.
    pub policy: Policy,
    /// Identifiers of the metrics that are measured once for the fleet; all others are measured in each member.
    pub scopes: BTreeSet<String>,
    /// The fate of the members' HPAs when the object is deleted.
    pub deletion: DeletionPolicy,
    /// The consequences of strategy, mode and assignment policy.
    pub course: FleetCourse,
}

/// The consequences of strategy, mode and assignment policy for the decisions of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetCourse {
    /// True in Preview, in which nothing is written but a pinned count.
    pub previewed: bool,
    /// `specificReplicas` in Preview, within the bounds: this count is divided and written, in whatever mode.
    pub pinned: Option<Replicas>,
    /// True if bounds and counts are divided; otherwise each member has all of the bounds, windows and forecasts for itself.
    pub divides: bool,
    /// True if the hub decides one count for all members, divides it and writes the scales.
    pub writes_counts: bool,
}

// === impl FleetSpec ===

impl FleetSpec {
    /// The metrics that are measured in each member, in the order of the spec.
    pub fn member_metrics(&self) -> impl Iterator<Item = &MetricSpec> {
        self.workload
            .metrics
            .iter()
            .filter(|metric| self.is_members_own(metric))
    }

    /// True if each member's own decision uses the metric, and its HPA has it. Otherwise the hub decides by one value for
    /// the whole fleet.
    pub fn is_members_own(&self, metric: &MetricSpec) -> bool {
        !self.scopes.contains(&metric.identifier())
    }

    /// True if the values of the metric are read in the members, whoever decides by them. A metric of pods always is,
    /// because only members have the pods; the hub merges what they read.
    ///
    /// | metric | [`Self::is_members_own`] | [`Self::is_read_in_members`] |
    /// |---|---|---|
    /// | any, of the members | yes | yes |
    /// | of pods, of the fleet | no | yes |
    /// | Object or External, of the fleet | no | no: the hub reads it |
    pub fn is_read_in_members(&self, metric: &MetricSpec) -> bool {
        metric.is_of_pods() || self.is_members_own(metric)
    }

    /// The workload as members observe it: their metrics, without windows and predictions, which are the hub's to
    /// compute.
    pub fn observed_workload(&self) -> Workload {
        let metrics = self.workload.metrics.iter();
        let read = metrics.filter(|metric| self.is_read_in_members(metric));
        Workload {
            metrics: read.cloned().collect(),
            floor: FloorSources::default(),
            problems: Vec::new(),
            ..self.workload.clone()
        }
    }

    /// The policy as it is carried out: in Preview, a pinned count is divided like one that the hub writes.
    pub fn policy_in_force(&self) -> Policy {
        let FleetCourse {
            previewed, pinned, ..
        } = self.course;
        Policy {
            mode: pinned.map_or(self.policy.mode, |_| Mode::Direct),
            previewed: previewed && pinned.is_none(),
            ..self.policy.clone()
        }
    }
}

/// Converts the spec of a fleet.
///
/// `local` is the zone that `timezone: Local` names, `period` the time between two syncs. The tolerance of the policy
/// is the larger one of both directions of `behavior`, which defaults to that of `settings`.
///
/// # Errors
/// Every violation at once, when the spec cannot be acted on.
pub fn fleet(
    fdhpa: &FederatedHPA,
    local: &Zone,
    period: SignedDuration,
    settings: &Settings,
) -> Result<FleetSpec, Invalid> {
    let spec = &fdhpa.spec;
    let mut violations = Vec::new();
    let mut workload = read(&fdhpa.metadata, &spec.autoscaling, local, &mut violations);
    limits::check_fleet(spec, &mut violations);
    refuse_metric_mode(&workload, &mut violations);
    // A fleet keeps one replica (docs/decisions/0013): without pods there is no demand to measure.
    workload.bounds.min = workload.bounds.min.max(Replicas::new(1));
    let scopes = scopes(spec, &mut workload, &mut violations);
    let mut policy = policy(spec, &workload, &mut violations);
    refuse_if_any(violations)?;
    policy.mode = mode(&workload, &scopes);
    policy.period = period;
    policy.tolerance = tolerance(&workload, settings);
    policy.generation = fdhpa.metadata.generation.unwrap_or_default();
    Ok(FleetSpec {
        course: course(&workload, &policy),
        workload,
        policy,
        scopes,
        deletion: spec.deletion_policy.unwrap_or_default(),
    })
}

fn course(workload: &Workload, policy: &Policy) -> FleetCourse {
    let (previewed, pinned) = match workload.course().writes {
        Writes::Bounds | Writes::Count => (false, None),
        Writes::Pinned(count) => (true, count),
    };
    let divides = policy.kind != AssignmentKind::Duplicated;
    FleetCourse {
        previewed,
        pinned,
        divides,
        writes_counts: divides && policy.mode == Mode::Direct,
    }
}

/// The metrics that the mode Metric is named after are those of one cluster.
fn refuse_metric_mode(workload: &Workload, violations: &mut Vec<Violation>) {
    if workload.mode == Mode::Metric {
        let expected = "Delegated or Direct in a FederatedHPA: the metrics of forecasts and crons are those of one cluster";
        violations.push(Violation::new("spec.mode", "Metric", expected));
    }
}

/// Direct also if members have no metrics of their own: an HPA without metrics would default to cpu at 80 %.
fn mode(workload: &Workload, scopes: &BTreeSet<String>) -> Mode {
    let has_own = workload
        .metrics
        .iter()
        .any(|metric| !scopes.contains(&metric.identifier()));
    if has_own {
        workload.mode_in_force()
    } else {
        Mode::Direct
    }
}

fn tolerance(workload: &Workload, settings: &Settings) -> f64 {
    let (up, down) = match &workload.behavior {
        Some(behavior) => (behavior.scale_up.tolerance, behavior.scale_down.tolerance),
        None => (None, None),
    };
    let default = settings.tolerance;
    // The rules compare in both directions with one number. The smaller one would make them act on a demand that the
    // members' HPAs ignore.
    up.unwrap_or(default).max(down.unwrap_or(default))
}

/// The metrics that are measured once for the fleet: external ones, unless `metricScope` changes that.
fn scopes(
    spec: &FederatedHPASpec,
    workload: &mut Workload,
    violations: &mut Vec<Violation>,
) -> BTreeSet<String> {
    let mut scopes: BTreeSet<_> = workload
        .metrics
        .iter()
        .filter(|metric| matches!(metric, MetricSpec::External { .. }))
        .map(MetricSpec::identifier)
        .collect();
    let known: BTreeSet<_> = workload
        .metrics
        .iter()
        .map(MetricSpec::identifier)
        .collect();
    let mut named = BTreeSet::new();
    for (position, MetricScope { metric, scope }) in spec.metric_scope.iter().flatten().enumerate()
    {
        let field = format!("spec.metricScope[{position}].metric");
        if !named.insert(metric) {
            let expected = "each metric once";
            violations.push(Violation::new(field, metric, expected));
        } else if !known.contains(metric) {
            // No violation: the entry has no effect, and the rest of the spec can be acted on.
            workload
                .problems
                .push(unknown_metric(field, metric, &known));
        } else if *scope == Scope::Fleet {
            scopes.insert(metric.clone());
        } else {
            scopes.remove(metric);
        }
    }
    scopes
}

fn unknown_metric(field: String, metric: &str, known: &BTreeSet<String>) -> SpecProblem {
    let known: Vec<_> = known.iter().map(String::as_str).collect();
    let message = match known.as_slice() {
        [] => format!("{field} is {metric}, but there are no metrics"),
        known => format!("{field} is {metric}, expected {}", known.join(" or ")),
    };
    SpecProblem {
        part: SpecPart::Field(field),
        reason: Reason::InvalidSpec,
        message,
    }
}

/// The policy, without the fields that depend on more than the spec.
fn policy(spec: &FederatedHPASpec, workload: &Workload, violations: &mut Vec<Violation>) -> Policy {
    let assignment = &spec.federated_hpa_assignment;
    let rebalance = spec.rebalance.clone().unwrap_or_default();
    let kind = kind(assignment.federated_hpa_assignment_type.unwrap_or_default());
    let preferences = preferences(assignment, kind, violations);
    let affinity = match &spec.cluster_affinity {
        Some(wire) => AffinityConverter::new("spec.clusterAffinity", violations).affinity(wire),
        None => Affinity::default(),
    };
    let default = Policy::new(kind, workload.bounds);
    let mut number = NumberConverter(violations);
    Policy {
        affinity,
        preferences,
        weight_by: match assignment.weight_by.unwrap_or_default() {
            WireWeight::Capacity => WeightBy::Capacity,
            WireWeight::Demand => WeightBy::Demand,
        },
        scaling_to_zero: spec.scaling_to_zero.unwrap_or_default(),
        delay: number.seconds(
            "spec.autoscaleMultiClusterDelay",
            spec.autoscale_multi_cluster_delay,
            default.delay,
            3600,
        ),
        failure: match spec.failure_policy.unwrap_or_default() {
            WireFailure::Retain => FailurePolicy::Retain,
            WireFailure::Reassign => FailurePolicy::Reassign,
        },
        toleration: number.seconds(
            "spec.tolerationSeconds",
            spec.toleration_seconds,
            default.toleration,
            86_400,
        ),
        cooldown: number.seconds(
            "spec.rebalance.cooldownSeconds",
            rebalance.cooldown_seconds,
            default.cooldown,
            3600,
        ),
        settle: number.settle(&rebalance).unwrap_or(default.settle),
        min_utilization: number.min_utilization(&rebalance),
        tolerations: clusters::tolerations(spec.cluster_tolerations.as_deref(), violations),
        source: match spec.workload_source.unwrap_or_default() {
            WireSource::Members => WorkloadSource::Members,
            WireSource::Hub => WorkloadSource::Hub,
        },
        ..default
    }
}

fn preferences(
    assignment: &FederatedHPAAssignment,
    kind: AssignmentKind,
    violations: &mut Vec<Violation>,
) -> Vec<Preference> {
    let wire = assignment.cluster_autoscaling_preference.iter().flatten();
    let read: Vec<_> = wire
        .enumerate()
        .map(|(position, wire)| preference(position, wire, violations))
        .collect();
    if kind == AssignmentKind::Prioritized && read.iter().all(|p| p.priority.is_none()) {
        violations.push(Violation::new(
            format!("{ASSIGNMENT}.clusterAutoscalingPreference"),
            "without any priority",
            "at least one entry with `priority`, because the policy is Prioritized",
        ));
    }
    read
}

const fn kind(wire: AssignmentType) -> AssignmentKind {
    match wire {
        AssignmentType::Duplicated => AssignmentKind::Duplicated,
        AssignmentType::Aggregated => AssignmentKind::Aggregated,
        AssignmentType::StaticWeighted => AssignmentKind::StaticWeighted,
        AssignmentType::DynamicWeighted => AssignmentKind::DynamicWeighted,
        AssignmentType::Prioritized => AssignmentKind::Prioritized,
    }
}

fn preference(
    position: usize,
    wire: &TargetClusterAutoscalingPreference,
    violations: &mut Vec<Violation>,
) -> Preference {
    let field = format!("{ASSIGNMENT}.clusterAutoscalingPreference[{position}]");
    let targets = AffinityConverter::new(&format!("{field}.targetCluster"), violations)
        .affinity(&wire.target_cluster);
    let mut number = NumberConverter(violations);
    let min_field = format!("{field}.autoscalingMinThreshold");
    let max_field = format!("{field}.autoscalingMaxThreshold");
    let min = number.threshold(&min_field, wire.autoscaling_min_threshold);
    let max = number.threshold(&max_field, wire.autoscaling_max_threshold);
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        number.0.push(Violation::new(
            min_field,
            min.to_string(),
            format!("at most autoscalingMaxThreshold, which is {max}"),
        ));
    }
    let weight = wire.static_weight.map(|n| {
        let n = number.within(&format!("{field}.staticWeight"), n, 0..=i32::MAX);
        u64::from(n.unsigned_abs())
    });
    Preference {
        targets,
        weight,
        priority: wire.priority.map(i64::from),
        min,
        max,
        elastic: wire.elastic.unwrap_or_default(),
    }
}

/// Converts numbers with a range and collects violations of it.
struct NumberConverter<'a>(&'a mut Vec<Violation>);

// === impl NumberConverter ===

impl NumberConverter<'_> {
    fn within(&mut self, field: &str, n: i32, range: RangeInclusive<i32>) -> i32 {
        let (least, most) = (*range.start(), *range.end());
        if !range.contains(&n) {
            let expected = match most {
                i32::MAX => format!("at least {least}"),
                most => format!("{least} to {most}"),
            };
            self.0.push(Violation::new(field, n.to_string(), expected));
        }
        // The spec is refused then; the clamp keeps a negative number from being read as a large positive one.
        n.clamp(least, most)
    }

    /// A number of seconds, or the default.
    fn seconds(
        &mut self,
        field: &str,
        written: Option<i32>,
        default: SignedDuration,
        most: i32,
    ) -> SignedDuration {
        written.map_or(default, |n| {
            SignedDuration::from_secs(self.within(field, n, 0..=most).into())
        })
    }

    /// A threshold of a member's count, if there is one.
    fn threshold(&mut self, field: &str, written: Option<i32>) -> Option<Replicas> {
        let n = self.within(field, written?, 0..=MAX_REPLICAS);
        Some(Replicas::from_i32(n))
    }

    fn settle(&mut self, rebalance: &Rebalance) -> Option<u32> {
        let field = "spec.rebalance.settleObservations";
        let observations = self.within(field, rebalance.settle_observations?, 1..=100);
        Some(observations.unsigned_abs())
    }

    fn min_utilization(&mut self, rebalance: &Rebalance) -> Option<f64> {
        let field = "spec.rebalance.minUtilizationPercent";
        let percent = self.within(field, rebalance.min_utilization_percent?, 1..=100);
        Some(f64::from(percent) / 100.0)
    }
}

#[cfg(test)]
mod tests;
