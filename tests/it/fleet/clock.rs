//! Steps of the hub's wall clock and pauses of the hub: no member is lost by them, and no share moves.

use super::*;

const HOUR: i64 = 3_600;
const MEMBERS: [(&str, u32); 3] = [("m1", 3), ("m2", 3), ("m3", 3)];

/// Event of the hub's clocks between two syncs.
#[derive(Debug, Clone, Copy)]
enum Event {
    Step(i64),
    Pause(i64),
}

const EVENTS: [Event; 3] = [Event::Step(HOUR), Event::Step(-HOUR), Event::Pause(600)];

/// A fleet whose hub has a wall clock that is stepped, while the clocks of the members are right.
struct Stepped {
    world: World,
    /// Seconds by which the hub's clock is ahead.
    ahead: i64,
    second: i64,
}

impl Stepped {
    fn new(spec: &str) -> Self {
        let world = World::new(&MEMBERS);
        world.put(&format!(
            "minReplicas: 3, maxReplicas: 30, {CPU}, failurePolicy: Reassign, {spec}, federatedHPAAssignment: \
             {{federatedHPAAssignmentType: StaticWeighted}}"
        ));
        Self {
            world,
            ahead: 0,
            second: 0,
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Pause(seconds) => self.second += seconds,
            Event::Step(seconds) => {
                self.ahead += seconds;
                let clock = &self.world.clock;
                clock.set(clock.now() + SignedDuration::from_secs(seconds));
            }
        }
    }

    /// Runs a sync, a period after the previous one.
    async fn sync(&mut self) -> Vec<String> {
        let now = self.world.start + SignedDuration::from_secs(self.second);
        self.second += 15;
        run_to(
            &self.world.clock,
            now + SignedDuration::from_secs(self.ahead),
        );
        let members = self.world.members.clusters.lock().unwrap().clone();
        for (fake, _) in members.values() {
            fake.state().now = now;
        }
        self.world.controller.sync().await;
        let writes = members.iter().flat_map(|(name, (fake, _))| {
            let writes = fake.writes().into_iter();
            writes.map(move |write| format!("{name}: {write}"))
        });
        writes.collect()
    }

    fn counts(&self) -> [u32; 3] {
        MEMBERS.map(|(name, _)| self.world.member(name).state().replicas["web"])
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_answer_at_once_after_a_step_or_a_pause_keeps_its_share() {
    for event in EVENTS {
        let mut fleet = Stepped::new("rebalance: {cooldownSeconds: 60}");
        for _ in 0..4 {
            fleet.sync().await;
            fleet.world.autoscale();
        }
        let before = fleet.world.bounds();
        fleet.world.hub.writes();
        fleet.happens(event);
        fleet.world.member("m2").state().hangs = true;
        for pass in 0..2 {
            assert_eq!(
                fleet.sync().await,
                Vec::<String>::new(),
                "{event:?}, {pass}"
            );
            let lost = "event web MemberLost".to_owned();
            assert!(!fleet.world.hub.writes().contains(&lost), "{event:?}");
        }
        fleet.world.member("m2").state().hangs = false;
        for pass in 0..30 {
            fleet.world.autoscale();
            assert_eq!(
                fleet.sync().await,
                Vec::<String>::new(),
                "{event:?}, {pass}"
            );
        }
        assert_eq!(fleet.world.bounds(), before, "{event:?}");
        assert_eq!(fleet.counts(), [3, 3, 3], "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_up_of_a_fleet_is_neither_early_nor_late_after_a_step_or_a_pause() {
    let policies = "mode: Direct, behavior: {scaleUp: {policies: [{type: Pods, value: 3, periodSeconds: 60}]}}";
    for event in EVENTS {
        let mut fleet = Stepped::new(policies);
        for _ in 0..4 {
            fleet.sync().await;
        }
        assert_eq!(fleet.counts(), [3, 3, 3]);
        let busy = || {
            for (name, _) in MEMBERS {
                fleet.world.member(name).state().millicores = 800;
            }
        };
        busy();
        fleet.sync().await;
        assert_eq!(fleet.counts(), [4, 4, 4], "{event:?}");
        fleet.happens(event);
        let mut counts = Vec::new();
        for _ in 0..4 {
            fleet.sync().await;
            counts.push(fleet.counts());
        }
        let due = match event {
            Event::Step(_) => [[4; 3], [4; 3], [4; 3], [5; 3]],
            // The minute passed during the pause.
            Event::Pause(_) => [[5; 3], [5; 3], [5; 3], [5; 3]],
        };
        assert_eq!(counts, due, "{event:?}");
    }
}
