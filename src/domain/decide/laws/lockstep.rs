//! Delegated and Direct give the same trajectory: our decision, then a pass of the model autoscaler on
//! the same reading, equal at every tick.

use proptest::prelude::*;

use super::scenarios::{TICKS, Up, cases, scenario};
use super::world::{Scenario, World};
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
}
