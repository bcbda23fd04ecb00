//! X10 over the whole control loop: one member of a fleet at rest reports random pods and capacities for a while.

use crate::{Pods, Reason};

use super::convergence::always;
use super::fixtures::{Random, Violation, at, n, violation};
use super::scenario::calmed;
use super::simulation::{FalseReport, Simulation, SyncRecord};

/// For how many steps of half a minute the reports are false.
const FALSE_REPORT_STEPS: u32 = 60;

fn false_report(random: &mut Random, now: i64) -> FalseReport {
    let wild = if random.one_in(8) { 1_000_000 } else { 40 };
    let replicas = random.within(0, wild);
    let unschedulable = if random.one_in(2) {
        random.within(0, replicas)
    } else {
        0
    };
    let age = i64::from(random.within(0, 200));
    FalseReport {
        pods: Pods {
            replicas: n(replicas),
            ready: n(random.within(0, replicas - unschedulable)),
            unschedulable: n(unschedulable),
            unschedulable_since: (unschedulable > 0).then(|| at(now - age)),
        },
        desired: random.one_in(2).then(|| random.within(0, wild)),
        capacity: (!random.one_in(4)).then(|| random.within(0, wild)),
    }
}

fn run(seed: u64) -> Result<(), Violation> {
    let mut scenario = calmed(seed);
    scenario.simulation.policy.min_utilization = Some(0.7);
    let simulation = &mut scenario.simulation;
    let of = u32::try_from(simulation.clusters.len()).expect("few");
    let reporter = usize::try_from(scenario.random.within(0, of - 1)).expect("few");
    for step in 0..FALSE_REPORT_STEPS {
        if step == 0 || scenario.random.one_in(4) {
            simulation.clusters[reporter].false_report =
                Some(false_report(&mut scenario.random, simulation.now));
        }
        let before: Vec<_> = simulation
            .clusters
            .iter()
            .map(|cluster| cluster.hpa)
            .collect();
        let Some(sync) = simulation.step() else {
            continue;
        };
        always(simulation, &sync)?;
        others_keep_their_minima(simulation, &sync, reporter, &before)?;
    }
    Ok(())
}

/// No other member gets a maximum below the minimum that was written for it.
fn others_keep_their_minima(
    simulation: &Simulation,
    sync: &SyncRecord,
    reporter: usize,
    before: &[Option<(u32, u32)>],
) -> Result<(), Violation> {
    for (place, cluster) in simulation.clusters.iter().enumerate() {
        let (Some((min, _)), Some(decided)) = (before[place], sync.decision.member(&cluster.name))
        else {
            continue;
        };
        let seen = sync.members.iter().find(|m| m.profile.name == cluster.name);
        let pods = seen.and_then(|m| m.pods).unwrap_or_default();
        let own = pods.unschedulable > n(0)
            || pods.replicas == n(0)
            || decided.reasons.contains(&Reason::Slept);
        if place == reporter || own || !cluster.reached {
            continue;
        }
        if decided.max.get() < min {
            return violation(
                "X10 a false report puts no other member below its written minimum",
                format!("{} had {min}: {}", cluster.name, sync.decision.message()),
            );
        }
    }
    Ok(())
}

#[test]
fn false_reports_of_one_member_take_no_minimum_from_another() {
    let violations = (0..250).filter_map(|seed| Some((seed, run(seed).err()?)));
    let violations: Vec<_> = violations.collect();
    assert!(
        violations.is_empty(),
        "{} runs: {:?}",
        violations.len(),
        &violations[..violations.len().min(4)]
    );
}
