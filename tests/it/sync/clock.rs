//! Steps of the wall clock and pauses of the controller: remembered times end when they have passed, and not before.

use super::*;

const HOUR: i64 = 3_600;

/// An autoscaler whose controller has a wall clock that is stepped, while the clocks of the cluster are right.
struct Stepped {
    world: World,
    /// Seconds by which the clock is ahead.
    ahead: i64,
}

impl Stepped {
    fn new(replicas: u32, spec: &str) -> Self {
        let fake = FakeCluster::default();
        let spec = format!("mode: Direct, minReplicas: 1, maxReplicas: 20, {spec}");
        fake.put("web", replicas, &spec);
        Self {
            world: World::new(fake),
            ahead: 0,
        }
    }

    fn step(&mut self, seconds: i64) {
        self.ahead += seconds;
        let clock = &self.world.clock;
        clock.set(clock.now() + SignedDuration::from_secs(seconds));
    }

    /// Runs a sync at this second after the start, while the pods together use as much as this many replicas should;
    /// returns the replicas after it.
    async fn sync(&mut self, second: i64, load: i64) -> u32 {
        let World {
            fake,
            clock,
            start,
            controller,
        } = &mut self.world;
        let now = *start + SignedDuration::from_secs(second);
        run_to(clock, now + SignedDuration::from_secs(self.ahead));
        fake.state().now = now;
        fake.state().millicores = load * 100;
        controller.sync().await;
        fake.state().replicas["web"]
    }
}

#[tokio::test]
async fn a_scale_up_that_waits_is_neither_early_nor_late_after_a_step() {
    let policies = "policies: [{type: Pods, value: 2, periodSeconds: 60}]";
    let window = "stabilizationWindowSeconds: 60";
    for (rules, first_load, load, step_at, expected) in [
        (policies, 12, 12, 30, [4, 4, 4, 4, 6, 6, 6]),
        // A minute after the last low recommendation, by at most four in 15 s.
        (window, 2, 8, 45, [2, 2, 2, 2, 6, 8, 8]),
    ] {
        for step in [HOUR, -HOUR] {
            let mut world = Stepped::new(2, &format!("{CPU}, behavior: {{scaleUp: {{{rules}}}}}"));
            let mut counts = Vec::new();
            for second in [0, 15, 30, 45, 60, 75, 90] {
                if second == step_at {
                    world.step(step);
                }
                let load = if second == 0 { first_load } else { load };
                counts.push(world.sync(second, load).await);
            }
            assert_eq!(counts, expected, "{rules}, a step of {step} s");
        }
    }
}

#[tokio::test]
async fn a_step_ends_no_stabilization_window() {
    for step in [HOUR, -HOUR] {
        let mut world = Stepped::new(8, CPU);
        assert_eq!(world.sync(0, 8).await, 8);
        assert_eq!(world.sync(15, 2).await, 8);
        world.step(step);
        for second in (30..=300).step_by(15) {
            assert_eq!(
                world.sync(second, 2).await,
                8,
                "a step of {step} s, {second}"
            );
        }
        assert_eq!(world.sync(315, 2).await, 2, "a step of {step} s");
    }
}

#[tokio::test]
async fn a_pause_scales_nothing_down_under_a_steady_load_and_a_rise_is_followed_at_once() {
    let policies = "behavior: {scaleUp: {policies: [{type: Pods, value: 2, periodSeconds: 60}]}}";
    let mut world = Stepped::new(4, &format!("{CPU}, {policies}"));
    for second in [0, 15, 30] {
        assert_eq!(world.sync(second, 4).await, 4);
    }
    let after = 30 + 600;
    assert_eq!(world.sync(after, 4).await, 4);
    assert_eq!(world.sync(after + 15, 9).await, 6);
}

#[tokio::test]
async fn a_cron_window_opens_and_closes_by_the_clock_as_it_is_now() {
    let cron = "crons: [{name: one, start: '0 1 * * *', end: '0 2 * * *', targetReplicas: 9, timezone: UTC}]";
    let mut world = Stepped::new(2, &format!("{CPU}, {cron}"));
    assert_eq!(world.sync(0, 2).await, 2);
    world.step(HOUR + 60);
    assert_eq!(world.sync(15, 2).await, 9);
    // Back before the window: the floor ends with its stabilization window.
    world.step(-HOUR);
    assert_eq!(world.sync(30, 2).await, 9);
    assert_eq!(world.sync(300, 2).await, 9);
    assert_eq!(world.sync(330, 2).await, 2);
    // The window is not lost.
    assert_eq!(world.sync(HOUR, 2).await, 9);
}
