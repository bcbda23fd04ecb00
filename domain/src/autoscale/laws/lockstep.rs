//! Delegated and Direct give the same trajectory: a decision, then a pass of the model autoscaler on
//! the same reading, equal at every tick.

use proptest::prelude::*;

use super::scenarios::{TICKS, Up, cases, scenario};
use super::world::{Scenario, World, tick_at};
use crate::workload::{FloorSources, Mode};

fn trajectories(scenario: &Scenario) -> (Vec<u32>, Vec<u32>) {
    let direct = World::new(scenario, Mode::Direct).run(TICKS);
    let delegated = World::new(scenario, Mode::Delegated).run(TICKS);
    (direct, delegated)
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn direct_and_delegated_count_the_same_at_every_tick(scenario in scenario(Up::Silent)) {
        let (direct, delegated) = trajectories(&scenario);
        prop_assert_eq!(&direct, &delegated, "\ndirect    {:?}\ndelegated {:?}", direct, delegated);
    }

    #[test]
    fn without_forecast_and_cron_they_count_the_same_under_any_behavior(scenario in scenario(Up::Anything)) {
        let scenario = Scenario { forecast: vec![], floor: FloorSources::default(), ..scenario };
        let (direct, delegated) = trajectories(&scenario);
        prop_assert_eq!(&direct, &delegated, "\ndirect    {:?}\ndelegated {:?}", direct, delegated);
    }

    /// Exception from equal counts: under explicit policies, past scale-downs allow a delegated floor more replicas for
    /// 15 s less, because they may leave the policy period before the child's pass.
    #[test]
    fn under_explicit_policies_a_delegated_floor_comes_later_and_is_never_higher(
        scenario in scenario(Up::Policies),
    ) {
        let (direct, delegated) = trajectories(&scenario);
        let first = direct.iter().zip(&delegated).find(|(direct, delegated)| direct != delegated);
        prop_assert!(first.is_none_or(|(direct, delegated)| delegated < direct));
    }

    #[test]
    fn the_child_reaches_the_expected_count_from_every_reading(
        scenario in scenario(Up::Anything), deleted in 0..TICKS,
    ) {
        let mut world = World::new(&scenario, Mode::Delegated);
        for tick in 0..TICKS {
            world.edit(tick);
            world.child = world.child.filter(|_| tick != deleted || scenario.behavior.is_some());
            let now = tick_at(tick);
            let mut ahead = world.clone();
            ahead.child_pass(now);
            let decision = world.decide(now);
            if let Some(expected) = decision.child_desired {
                prop_assert_eq!(expected, ahead.count, "tick {}", tick);
            }
            world.child_pass(now);
        }
    }
}
