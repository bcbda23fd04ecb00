//! The plan of a fleet: decided as one workload, then divided over its clusters.
//!
//! Under `Duplicated` every cluster decides from its own demand, which the history of the fleet does not contain; in
//! this case one cluster is planned like an autoscaler of one cluster.

use foretide_domain::{
    Replicas,
    autoscale::history::History,
    autoscale::{Decision, Inputs, decide},
    hpa::Settings,
    workload::{Mode, Workload},
};
use foretide_federate::{Ledger, Member, Total};

use super::PlanError;
use crate::{
    Error,
    assign::{AssignError, Assignment, NamedFleet, clusters::Clusters},
    validate::Accepted,
};
use foretide_api::validation::FleetSpec;

/// A fleet to be planned.
#[derive(Debug)]
pub(super) struct FleetPlan {
    pub(super) fleet: NamedFleet,
    pub(super) clusters: Clusters,
}

impl FleetPlan {
    /// Divides the fleet by the `decision` for all clusters; `demand` is their total in replicas, of which every pod
    /// has the same part. The demand and the totals of the clusters file are ignored.
    ///
    /// # Errors
    /// A cluster has a utilization, but no metric has a utilization target.
    pub fn divided(
        self,
        workload: &Workload,
        seen: &Inputs,
        decision: &Decision,
        demand: Option<f64>,
    ) -> Result<Assignment, AssignError> {
        let mut members = self.fleet.members(&self.clusters, decision.at)?;
        share(&mut members, demand);
        let total = Total {
            demand,
            floor: self.floor(workload, seen, decision),
            desired: Some(decision.desired),
        };
        let (ledger, at) = (Ledger::default(), decision.at);
        Ok(Assignment::make(self.fleet, members, total, &ledger, at))
    }

    /// The count that forecast, cron windows and metrics of fleet scope ask for.
    fn floor(&self, workload: &Workload, seen: &Inputs, decision: &Decision) -> Option<Replicas> {
        let metrics = workload.metrics.iter().zip(&seen.observation.readings);
        let (metrics, readings): (Vec<_>, Vec<_>) = metrics
            .filter(|(metric, _)| self.fleet.spec.scopes.contains(&metric.identifier()))
            .map(|(m, r)| (m.clone(), r.clone()))
            .unzip();
        if metrics.is_empty() {
            // Only forecasts and cron windows ask for a count: the floor lane of the decision.
            return decision.floor;
        }
        // Without the metrics that members measure, by which the HPA of each member decides.
        let workload = Workload {
            mode: Mode::Direct,
            metrics,
            ..workload.clone()
        };
        let mut seen = seen.clone();
        seen.observation.readings = readings;
        let history = History::default();
        let (decision, _) = decide(
            &workload,
            &seen,
            &history,
            &Settings::default(),
            decision.at,
        );
        Some(decision.desired)
    }
}

/// Returns whether an autoscaler is a fleet to be divided, for which the clusters must be given.
///
/// # Errors
/// Clusters are given without a fleet that is divided, or a divided fleet without clusters.
pub fn needs_clusters(accepted: &Accepted, are_given: bool) -> Result<bool, Error> {
    match accepted {
        Accepted::Ehpa(..) if are_given => Err(PlanError::ClustersOfOne.into()),
        Accepted::Fdhpa(_, spec) if spec.course.divides && !are_given => {
            Err(PlanError::NoClusters.into())
        }
        Accepted::Fdhpa(_, spec) if spec.course.divides => Ok(true),
        Accepted::Fdhpa(..) if are_given => Err(PlanError::ClustersOfDuplicated.into()),
        Accepted::Ehpa(..) | Accepted::Fdhpa(..) => Ok(false),
    }
}

/// The assumptions of a plan of one cluster of a fleet.
pub fn assumed_of_one(spec: &FleetSpec) -> Vec<String> {
    let one = "one cluster of the fleet and its own history: under Duplicated each cluster decides by itself";
    let of_all = spec.scopes.iter().map(|metric| {
        format!("{metric} ignored: it is measured for the fleet and divided over its clusters")
    });
    std::iter::once(one.to_owned()).chain(of_all).collect()
}

/// Gives every pod that has a node the same part of the demand.
fn share(members: &mut [Member], demand: Option<f64>) {
    let placed = |member: &Member| {
        let pods = member.pods.unwrap_or_default();
        let placed = pods.replicas.get().saturating_sub(pods.unschedulable.get());
        f64::from(placed)
    };
    let all: f64 = members.iter().map(placed).sum();
    for member in members {
        let part = placed(member) / all.max(1.0);
        member.demand = demand.filter(|_| all > 0.0).map(|demand| demand * part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretide_api::validation;
    use foretide_domain::{cron::Zone, hpa::MetricSpec};
    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;

    #[test]
    fn one_cluster_of_a_fleet_is_planned_without_metrics_of_fleet_scope() {
        let fdhpa = json!({
            "apiVersion": "autoscaling.foretide.io/v1alpha1",
            "kind": "FederatedHPA",
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": {
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "maxReplicas": 3,
                "federatedHPAAssignment": { "federatedHPAAssignmentType": "Duplicated" },
                "metrics": [
                    { "type": "External", "external": {
                        "metric": { "name": "queue" }, "target": { "type": "AverageValue", "averageValue": "10" },
                    } },
                    { "type": "Resource", "resource": {
                        "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 },
                    } },
                ],
            },
        });
        let fdhpa = serde_json::from_value(fdhpa).unwrap();
        let period = SignedDuration::from_secs(15);
        let spec = validation::fleet(&fdhpa, &Zone::utc(), period, &Settings::default()).unwrap();
        let left_out =
            "external.queue ignored: it is measured for the fleet and divided over its clusters";
        assert_eq!(assumed_of_one(&spec)[1..], [left_out]);
        let workload = super::super::workload_of_one(&spec);
        let metrics = workload.metrics.iter().map(MetricSpec::identifier);
        assert_eq!(metrics.collect::<Vec<_>>(), ["resource.cpu"]);
    }

    #[test]
    fn pods_with_a_node_share_the_demand_evenly() {
        let text = "clusters: [{name: a, replicas: 6}, {name: b, replicas: 4, unschedulable: 2}, {name: c}]";
        let clusters = Clusters::parse("c.yaml", text).unwrap();
        let mut members = clusters.members(None, Timestamp::UNIX_EPOCH).unwrap();
        let demands = |members: &[Member]| members.iter().map(|m| m.demand).collect::<Vec<_>>();
        share(&mut members, Some(4.0));
        assert_eq!(demands(&members), [Some(3.0), Some(1.0), Some(0.0)]);
        share(&mut members, None);
        assert_eq!(demands(&members), [None, None, None]);
    }

    #[test]
    fn a_fleet_without_pods_has_no_demand_per_cluster() {
        let clusters = Clusters::parse("c.yaml", "clusters: [{name: a}]").unwrap();
        let mut members = clusters.members(None, Timestamp::UNIX_EPOCH).unwrap();
        share(&mut members, Some(4.0));
        assert_eq!(members[0].demand, None);
    }
}
