//! The scenario of one cluster: three apps, two replicas of the product, and loads, windows and disruptions from the seed.
//!
//! Three more apps are the same for every seed. A restart changes nothing that must last: `queue` sleeps and wakes, and
//! `paused` was scaled to zero by its user. When nothing fails any more, another writer scales `low` below its minimum
//! again and again.

use std::{collections::BTreeMap, ops::Range};

use jiff::SignedDuration;
use serde_json::{Value, json};
use simkube::faults::Plan;

use crate::{
    cluster::{Cluster, EHPAS, MAX, SHOP, external},
    laws::{fits, needed},
    schedule::{Dice, Disruption, Schedule},
    seeds::{self, Scenario},
};

const APPS: [(&str, &str); 3] = [("web", "Delegated"), ("api", "Direct"), ("batch", "Direct")];
/// Seconds in which `low` is scaled below its minimum.
const LOW: Range<u64> = 185..215;
const HOSTS: [&str; 2] = ["pod-0", "pod-1"];

struct Single {
    cluster: Cluster,
    schedule: Schedule,
    /// Second in which the queue is filled.
    filled: u64,
    /// The server went on from a backup.
    is_restored: bool,
}

impl Scenario for Single {
    type Disruption = Disruption;
    /// The counts and conditions of all apps at the end. The bounds of children are left out: after a succession,
    /// `minReplicas` stays at a count that is needed anyway.
    type Record = BTreeMap<String, Value>;

    const DISRUPTIONS: &'static [&'static str] = &Disruption::NAMES;
    const COMPARED: u64 = 5;
    const SHARE: u64 = 44;
    const HEALED: u64 = 120;
    const ALIVE: u64 = Self::HEALED + 100;
    const SETTLED: u64 = 245;
    const END: u64 = 275;

    fn rate(seed: u64) -> u64 {
        if seed % 3 == 1 { 0 } else { 60 }
    }

    fn new(seed: u64, plan: Plan) -> Self {
        let mut cluster = Cluster::new(seed, plan);
        let schedule = Schedule::new(seed, &APPS.map(|(app, _)| app), &HOSTS, Self::HEALED);
        for (app, mode) in APPS {
            let window = json!({"name": "rush", "start": "1/4 * * * *", "end": "2/4 * * * *", "targetReplicas": 6});
            let crons = if app == "batch" {
                json!({"crons": [window]})
            } else {
                json!({})
            };
            cluster.autoscaler(app, 2, mode, &crons);
            cluster.needs(app, 2);
        }
        let mut queue = external("queue");
        queue["minReplicas"] = json!(0);
        cluster.autoscaler("queue", 1, "Direct", &queue);
        cluster.autoscaler("paused", 2, "Direct", &json!({}));
        cluster.autoscaler("low", 3, "Direct", &json!({"minReplicas": 3}));
        cluster.needs("paused", 2);
        // Also in all seeds with silent watches (`seed % 4 == 0`): pods that were new when they were seen last have no
        // readings.
        if seed % 4 != 2 {
            cluster.world.has_run_for(SignedDuration::from_hours(1));
        }
        for (host, ahead) in HOSTS.iter().zip(schedule.ahead.clone()) {
            cluster.start_ahead(host, ahead);
        }
        Self {
            cluster,
            schedule,
            filled: 60 + Dice::new(seed ^ 0x51EE9).below(60),
            is_restored: false,
        }
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn disruptions_at(&self, second: u64) -> Vec<(usize, Disruption)> {
        self.schedule.disruptions_at(second)
    }

    fn kind_of(disruption: &Disruption) -> Option<&'static str> {
        disruption.name()
    }

    fn happen(&mut self, disruption: &Disruption) {
        self.is_restored |= disruption.name() == Some("restored");
        disruption.happen(&mut self.cluster);
    }

    fn heal(&mut self) {
        self.cluster.heal();
    }

    fn second(&mut self, second: u64) -> Result<(), String> {
        for (app, pods) in self.schedule.needs_at(second) {
            self.cluster.needs(app, pods);
        }
        for (app, edit) in self.schedule.edits_at(second) {
            edit.make(&mut self.cluster, app);
        }
        if second == 0 {
            self.cluster.scale_by_hand("paused", 0);
        }
        if second == self.filled {
            self.cluster.needs("queue", 3);
        }
        if LOW.contains(&second) {
            self.cluster.scale_by_hand("low", 1);
        }
        self.cluster.second()
    }

    fn check_alive(&self) -> Result<(), String> {
        let paused = self.cluster.replicas("paused");
        if paused > 0 {
            return Err(format!("asleep: paused has {paused}"));
        }
        // A backup from the time in which the app slept may be back in the copy of its status before it is in that of
        // its scale: in this case it is a zero of another writer.
        let queue = (!self.is_restored).then_some("queue");
        for app in APPS.map(|(app, _)| app).into_iter().chain(queue) {
            let (count, load) = (
                self.cluster.replicas(app),
                self.cluster.load.at(app, self.cluster.now()),
            );
            let needed = needed(load).min(MAX);
            if count < needed {
                return Err(format!("alive: {app} has {count} and needs {needed}"));
            }
        }
        Ok(())
    }

    fn record(&self) -> Self::Record {
        let server = &self.cluster.server;
        let counts = APPS.map(|(app, _)| (format!("replicas of {app}"), self.count(app)));
        let mut all = BTreeMap::from(counts);
        for ehpa in server.objects(EHPAS) {
            assert_eq!(ehpa["metadata"]["namespace"], SHOP);
            let name = ehpa["metadata"]["name"].as_str().unwrap();
            // A count that goes back to that of a backup was changed by another writer, and the third change is a
            // conflict; the number of those of `low` that a sync sees depends on its time.
            let is_written = self.is_restored || name == "low";
            let is_excused = |one: &Value| is_written && one["reason"] == "ExternalWriter";
            let conditions = ehpa["status"]["conditions"].as_array();
            let conditions = conditions.into_iter().flatten().map(|one| {
                let known = (&one["status"], &one["reason"]);
                let excused = (&json!("True"), &json!("Decided"));
                json!([one["type"], if is_excused(one) { excused } else { known }])
            });
            all.insert(name.to_owned(), conditions.collect());
        }
        // As in `check_alive`.
        all.retain(|name, _| !self.is_restored || name != "queue");
        all
    }

    fn compare(_: u64, record: &Self::Record, undisturbed: &Self::Record) -> Result<(), String> {
        let differs = |name: &&String| record[*name] != undisturbed[*name];
        match record.keys().find(differs) {
            Some(name) => Err(format!(
                "end: {name}: {}, and without faults {}",
                record[name], undisturbed[name]
            )),
            None => Ok(()),
        }
    }
}

impl Single {
    /// The count of an app. All counts within the tolerance of its load are equivalent.
    fn count(&self, app: &str) -> Value {
        let (count, load) = (
            self.cluster.replicas(app),
            self.cluster.load.at(app, self.cluster.now()),
        );
        if fits(count, load) {
            json!("as the load asks")
        } else {
            json!(count)
        }
    }
}

#[test]
fn no_seed_breaks_a_law() {
    seeds::play::<Single>();
}

#[test]
fn a_seed_runs_twice_in_the_same_way() {
    seeds::play_twice::<Single>();
}
