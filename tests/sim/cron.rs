//! Cron windows in zones around the world, in the night in which the clocks of New York are put forward: each asks for its
//! replicas from its minute on, as soon as the next sync, and no longer than until its end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;
use simkube::faults::Plan;

use crate::cluster::{Cluster, PERIOD};

/// Zones, with the local times at which a window opens and closes; in UTC from 06:40 to 07:20 on 8 March 2026. In New York
/// 02:00 is followed by 03:00 at 07:00 UTC.
const ZONES: [(&str, &str, &str); 9] = [
    ("UTC", "40 6", "20 7"),
    ("America/New_York", "40 1", "20 3"),
    ("America/Chicago", "40 0", "20 1"),
    ("America/St_Johns", "10 4", "50 4"),
    ("Asia/Kolkata", "10 12", "50 12"),
    ("Asia/Kathmandu", "25 12", "5 13"),
    ("Australia/Lord_Howe", "40 17", "20 18"),
    ("Pacific/Chatham", "25 20", "5 21"),
    ("Pacific/Kiritimati", "40 20", "20 21"),
];
const OPENS: &str = "2026-03-08T06:40:00Z";
const CLOSES: &str = "2026-03-08T07:20:00Z";
const FLOOR: u64 = 6;
/// The stabilization window of the simulated cluster, and two syncs.
const LOWERED: u64 = 30 + 2 * PERIOD.as_secs();

/// Number of autoscalers by count.
fn counts(cluster: &Cluster) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for n in 0..ZONES.len() {
        let count = cluster.replicas(&format!("zone-{n}"));
        *counts.entry(count).or_default() += 1;
    }
    counts
}

fn all_have(count: u64) -> BTreeMap<u64, usize> {
    BTreeMap::from([(count, ZONES.len())])
}

fn seconds_until(cluster: &Cluster, time: &str) -> u64 {
    let left = time
        .parse::<Timestamp>()
        .unwrap()
        .duration_since(cluster.now());
    u64::try_from(left.as_secs()).unwrap()
}

#[test]
fn windows_of_all_zones_open_and_close_at_their_minute_across_a_clock_change() {
    let start = "2026-03-08T06:36:00Z".parse().unwrap();
    let mut cluster = Cluster::starting_at(start, 1, Plan::default());
    cluster.elects = false;
    for (n, (zone, opens, closes)) in ZONES.into_iter().enumerate() {
        let window = json!({
            "name": zone, "timezone": zone, "targetReplicas": FLOOR,
            "start": format!("{opens} * * *"), "end": format!("{closes} * * *"),
        });
        let name = format!("zone-{n}");
        cluster.autoscaler(&name, 1, "Direct", &json!({"crons": [window]}));
        cluster.needs(&name, 1);
    }
    cluster.start("pod-0");
    for (time, before, after, within) in [
        (OPENS, 1, FLOOR, PERIOD.as_secs()),
        (CLOSES, FLOOR, 1, LOWERED),
    ] {
        for _second in 0..seconds_until(&cluster, time) {
            assert_eq!(counts(&cluster), all_have(before), "{}", cluster.now());
            cluster.run_for(1);
        }
        cluster.run_for(within + 1);
        assert_eq!(counts(&cluster), all_have(after), "{}", cluster.now());
    }
}
