//! Delegated and Direct give the same trajectory: our decision, then a pass of the model autoscaler on
//! the same reading, equal at every tick.

use proptest::prelude::*;

use super::scenarios::{TICKS, Up, cases, scenario};
use super::world::{Edit, Scenario, TICK, World, at};
use crate::domain::workload::Mode;

fn trajectories(scenario: &Scenario) -> (Vec<u32>, Vec<u32>) {
    let direct = World::new(scenario, Mode::Direct).run(TICKS);
    let delegated = World::new(scenario, Mode::Delegated).run(TICKS);
    (direct, delegated)
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn direct_and_delegated_count_the_same_at_every_tick(scenario in scenario(Up::Silent)) {
        let (direct, delegated) = trajectories(&scenario);
        prop_assert_eq!(&direct, &delegated, "\ndirect    {:?}\ndelegated {:?}", direct, delegated);
    }

    #[test]
    fn the_child_answers_as_expected_to_every_reading(scenario in scenario(Up::Anything)) {
        let mut scenario = scenario;
        // A count changed by hand and by the child between two of our passes looks like one change.
        scenario.edits.retain(|(_, edit)| matches!(edit, Edit::Bounds(..)));
        let mut world = World::new(&scenario, Mode::Delegated);
        for tick in 0..TICKS {
            world.edit(tick);
            let now = at(i64::try_from(tick).unwrap() * TICK);
            let mut ahead = world.clone();
            ahead.child_pass(now);
            let decision = world.decide(now);
            if let Some(expected) = decision.mirror_desired {
                prop_assert_eq!(expected, ahead.count, "tick {}", tick);
            }
            world.child_pass(now);
        }
    }
}
