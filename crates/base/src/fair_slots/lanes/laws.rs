//! Laws of the lanes, for any sequence of requests and durations.

use proptest::{collection, prelude::*};

use super::*;

const SLOTS: usize = 5;

/// Next event; indices are taken modulo the number of choices.
#[derive(Debug, Clone)]
enum Step {
    Enqueue { tenant: u8 },
    EndPromptly { hold: usize },
    BecomeSlow { hold: usize },
    Release { hold: usize },
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u8).prop_map(|tenant| Step::Enqueue { tenant }),
        2 => any::<usize>().prop_map(|hold| Step::EndPromptly { hold }),
        1 => any::<usize>().prop_map(|hold| Step::BecomeSlow { hold }),
        2 => any::<usize>().prop_map(|hold| Step::Release { hold }),
        1 => (0..90_u64).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// Lanes whose free slots are assigned after every step.
struct World {
    lanes: Lanes<()>,
    now: Monotonic,
}

impl World {
    fn apply(&mut self, step: &Step) {
        let nth = |lanes: &Lanes<()>, n: usize| {
            let holds = lanes.holds.len().max(1);
            lanes.holds.keys().nth(n % holds).copied()
        };
        match *step {
            Step::Enqueue { tenant } => {
                self.lanes.enqueue(&tenant.to_string().into(), ());
            }
            Step::EndPromptly { hold } => {
                if let Some(hold) = nth(&self.lanes, hold) {
                    self.lanes.was_prompt(hold, self.now);
                    self.lanes.release(hold, self.now);
                }
            }
            Step::BecomeSlow { hold } => {
                if let Some(hold) = nth(&self.lanes, hold) {
                    self.lanes.is_slow(hold, self.now);
                }
            }
            Step::Release { hold } => {
                if let Some(hold) = nth(&self.lanes, hold) {
                    self.lanes.release(hold, self.now);
                }
            }
            Step::Wait { seconds } => self.now = self.now + Duration::from_secs(seconds),
        }
        while self.lanes.start_next(self.now, |()| false).is_some() {}
    }

    fn in_use(&self, lane: Lane) -> usize {
        let holds = self.lanes.holds.values();
        holds.filter(|hold| hold.lane == lane).count()
    }
}

proptest! {
    #[test]
    fn no_lane_is_overbooked_and_no_tenant_has_all_of_one(steps in collection::vec(step(), 1..80)) {
        let mut world = World { lanes: Lanes::new(SLOTS), now: Monotonic::default() };
        for step in &steps {
            world.apply(step);
            for lane in [Lane::Prompt, Lane::Slow] {
                prop_assert!(world.in_use(lane) <= SLOTS);
                for tenant in world.lanes.shares.keys() {
                    prop_assert!(world.lanes.holds_of(tenant, Some(lane)) < SLOTS);
                }
            }
        }
    }

    #[test]
    fn a_tenant_without_a_slot_waits_only_while_its_lane_is_full(steps in collection::vec(step(), 1..80)) {
        let mut world = World { lanes: Lanes::new(SLOTS), now: Monotonic::default() };
        for step in &steps {
            world.apply(step);
            for (tenant, share) in &world.lanes.shares {
                let waits = !share.waiting.is_empty() && world.lanes.holds_of(tenant, None) == 0;
                prop_assert!(!waits || world.in_use(share.latency.lane()) == SLOTS);
            }
        }
    }

    #[test]
    fn slow_work_of_one_tenant_does_not_stay_in_the_prompt_lane(
        steps in collection::vec(step(), 1..80),
        tenant in 0..6_u8,
    ) {
        let mut world = World { lanes: Lanes::new(SLOTS), now: Monotonic::default() };
        let slow: Arc<str> = tenant.to_string().into();
        for step in &steps {
            // Only this tenant is ever slow.
            if let Step::BecomeSlow { hold } = step {
                let holds = world.lanes.holds.iter();
                let mut its = holds.filter(|(_, hold)| hold.tenant == slow);
                let Some((id, _)) = its.nth(hold % SLOTS) else { continue };
                let id = *id;
                world.lanes.is_slow(id, world.now);
                continue;
            }
            world.apply(step);
            let overdue = |hold: &&Hold| hold.is_slow && hold.lane == Lane::Prompt;
            prop_assert_eq!(world.lanes.holds.values().filter(overdue).count(), 0);
        }
    }
}
