//! Seven cron windows over a night with a clock change: the replicas reach exactly the target after each start, and fall
//! after each end. How soon is exact in the tests of the domain, whose clock does not run by itself.

use foretide::{clock::Clock, config::Config, config::parse_zone};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::{SignedDuration, Timestamp};
use rig::{ClusterOptions, NodeSize, eventually};

use crate::world::{TIMEOUT, World, pass_to};

/// One change of the scale, as recorded by status on the controller's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    at: Timestamp,
    to: i32,
}

/// The scale-down window: the default of the example manifest.
const WINDOW: SignedDuration = SignedDuration::from_mins(5);
/// As the controller's default.
const SYNC_PERIOD: SignedDuration = SignedDuration::from_secs(15);

fn change(ehpa: &EffectiveHorizontalPodAutoscaler) -> Option<Change> {
    let status = ehpa.status.as_ref()?;
    Some(Change {
        at: status.last_scale_time.as_ref()?.0,
        to: status.current_replicas?,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn seven_cron_windows_set_the_replicas_across_a_clock_change() {
    let nodes = NodeSize::new("64", "64Gi", 110);
    let world = World::start(ClusterOptions::named("cron").nodes(1, nodes)).await;
    world.deployment("php-apache", 80, "0m").await;
    // In New York the clocks go from 02:00 to 03:00 on 8 March 2026; 20:00 on the 7th is 01:00 UTC.
    let instants: [(&str, &str, i32); 6] = [
        ("the evening window ends", "2026-03-08T01:00:00Z", 10),
        (
            "the morning window starts, an hour earlier in UTC",
            "2026-03-08T10:00:00Z",
            80,
        ),
        ("the morning window ends", "2026-03-08T13:00:00Z", 10),
        ("the noon window starts", "2026-03-08T15:00:00Z", 80),
        ("the noon window ends", "2026-03-08T18:00:00Z", 10),
        ("the evening window starts", "2026-03-08T21:00:00Z", 80),
    ];
    // Half an hour before the first change, fifteen times as fast as real time.
    let start: Timestamp = "2026-03-08T00:30:00Z".parse().unwrap();
    let clock = Clock::starting_at(start, 15.0);
    let mut config = Config {
        local_zone: parse_zone("America/New_York").unwrap(),
        sync_period: SYNC_PERIOD,
        ..world.config()
    };
    config.settings.downscale_stabilization = WINDOW;
    let controller = world.run(config, clock.clone());
    world
        .apply(include_str!("../../examples/php-apache-local.yaml"))
        .await;
    world
        .status("php-apache-local", "a first decision", |status| {
            status.get("decision").cloned()
        })
        .await;

    for (what, at, to) in instants {
        let at: Timestamp = at.parse().unwrap();
        // The controller takes it for a pause, and decides nothing for two seconds, half a minute of its clock.
        let before = at - SignedDuration::from_mins(2);
        pass_to(&clock, before);
        let seen = eventually(TIMEOUT, &format!("{what}: {to} replicas"), || async {
            let ehpa = world
                .ehpas()
                .get("php-apache-local")
                .await
                .map_err(|no| no.to_string())?;
            change(&ehpa)
                .filter(|change| change.to == to)
                .ok_or_else(|| format!("{:?}", change(&ehpa)))
        })
        .await;
        assert!(seen.at >= at, "{what} at {at}, seen {seen:?}");
        world
            .ready("php-apache", &format!("exactly {to}"), |count| count == to)
            .await;
    }
    drop(controller);
    world.assert_nothing_forbidden();
}
