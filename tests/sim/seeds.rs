//! Seeds: each is two minutes in which much fails, and two in which nothing does any more.
//!
//! ```text
//! 0:00                     2:00            2:50                 4:05         4:35
//! loads, windows, faults   faults end      alive                at rest      as if nothing had failed
//! ```
//!
//! `SEEDS=n` runs more of them, and `SEED=n` only this one. A seed that breaks a law is run again without ever more of its
//! faults, until each that is left is needed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    thread,
};

use serde_json::{Value, json};
use simkube::faults::{Plan, RequestId};

use crate::{
    cluster::{Cluster, MAX, SHOP},
    laws::{fits, needed},
    story::{Story, Upset},
};

/// Of a thousand requests, so many have a fault.
const RATE: u64 = 60;
/// When faults end, what was due is done, and nothing is left to do; in seconds.
const HEALED: u64 = 120;
const ALIVE: u64 = HEALED + 50;
const SETTLED: u64 = 245;
const END: u64 = 275;
/// How often a failing seed is tried without some of its faults.
const SHRINKS: usize = 120;
const APPS: [(&str, &str); 3] = [("web", "Delegated"), ("api", "Direct"), ("batch", "Direct")];
const HOSTS: [&str; 2] = ["pod-0", "pod-1"];

/// A fault of a request, or an upset of a host by its number in the story.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Request(RequestId),
    Upset(usize),
}

/// Which faults of a seed happen.
#[derive(Debug, Clone)]
enum Faults {
    None,
    AllBut(BTreeSet<Cause>),
}

/// What became of a run.
struct Outcome {
    broken: Option<String>,
    /// Of all requests, with their times and answers.
    digest: u64,
    causes: Vec<(Cause, String)>,
    counts: BTreeMap<&'static str, u64>,
    /// The counts and conditions of all apps at the end. Not the bounds of children: after a succession, `minReplicas` stays at
    /// a count that is needed anyway.
    end: Vec<Value>,
}

// === impl Faults ===

impl Faults {
    fn all() -> Self {
        Self::AllBut(BTreeSet::new())
    }

    fn plan(&self, seed: u64) -> Plan {
        let Self::AllBut(without) = self else {
            return Plan::default();
        };
        let requests = without.iter().filter_map(|cause| match cause {
            Cause::Request(request) => Some(request.clone()),
            Cause::Upset(_) => None,
        });
        Plan::new(seed, RATE).without(requests)
    }

    fn has(&self, upset: usize) -> bool {
        matches!(self, Self::AllBut(without) if !without.contains(&Cause::Upset(upset)))
    }
}

/// Runs a seed on a thread of its own, because the order of some maps differs from thread to thread.
fn run(seed: u64, faults: &Faults) -> Outcome {
    let faults = faults.clone();
    let run = move || Run::new(seed, faults).finish();
    thread::spawn(run).join().unwrap()
}

/// A run in progress.
struct Run {
    cluster: Cluster,
    story: Story,
    faults: Faults,
    second: u64,
    upsets: Vec<(usize, Upset)>,
}

// === impl Run ===

impl Run {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut cluster = Cluster::new(seed, faults.plan(seed));
        let story = Story::new(seed, &APPS.map(|(app, _)| app), &HOSTS, HEALED);
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
        for (host, ahead) in HOSTS.iter().zip(story.ahead.clone()) {
            cluster.start_ahead(host, ahead);
        }
        Self {
            cluster,
            story,
            faults,
            second: 0,
            upsets: Vec::new(),
        }
    }

    fn finish(mut self) -> Outcome {
        let broken = self
            .live()
            .err()
            .map(|law| format!("{} {law}", self.cluster.now()));
        let requests = self.cluster.network().plan().happened().to_vec();
        let mut counts = self.cluster.network().plan().counts();
        let mut causes: Vec<_> = requests
            .into_iter()
            .map(|(request, fault)| (Cause::Request(request), format!("{fault:?}")))
            .collect();
        for name in Upset::NAMES {
            counts.entry(name).or_default();
        }
        for (number, upset) in &self.upsets {
            if let Some(name) = upset.name() {
                *counts.entry(name).or_default() += 1;
            }
            causes.push((Cause::Upset(*number), format!("{upset:?}")));
        }
        Outcome {
            broken,
            digest: self.digest(),
            causes,
            counts,
            end: self.end(),
        }
    }

    fn live(&mut self) -> Result<(), String> {
        while self.second < ALIVE {
            self.second()?;
        }
        self.check_alive()?;
        while self.second < SETTLED {
            self.second()?;
        }
        let settled = self.cluster.server.audit().len();
        while self.second < END {
            self.second()?;
        }
        self.check_rest(settled)
    }

    fn second(&mut self) -> Result<(), String> {
        for (app, pods) in self.story.needs_at(self.second) {
            self.cluster.needs(app, pods);
        }
        for (number, upset) in self.story.upsets_at(self.second) {
            if self.faults.has(number) {
                upset.happen(&mut self.cluster);
                self.upsets.push((number, upset));
            }
        }
        if self.second == HEALED {
            self.cluster.heal();
        }
        self.second += 1;
        self.cluster.second()
    }

    /// What was due is done soon after the last fault.
    fn check_alive(&self) -> Result<(), String> {
        for (app, _) in APPS {
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

    /// At rest only the lease is written.
    fn check_rest(&self, settled: usize) -> Result<(), String> {
        let entries = self.cluster.server.audit_since(settled);
        let written = entries.iter().find(|entry| {
            entry.client.starts_with("pod-")
                && entry.written.is_some()
                && entry.access.resource != "leases"
        });
        match written {
            Some(entry) => {
                let what = entry
                    .written
                    .as_ref()
                    .map(|object| &object["status"]["decision"]["message"]);
                Err(format!(
                    "rest: {} {} at {}: {what:?}",
                    entry.access.verb,
                    entry.object(),
                    entry.time
                ))
            }
            None => Ok(()),
        }
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for entry in self.cluster.server.audit() {
            let (object, code) = (entry.object(), entry.code);
            (entry.time, entry.client, entry.access.verb, object, code).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn end(&self) -> Vec<Value> {
        let server = &self.cluster.server;
        let mut all = Vec::from(APPS.map(|(app, _)| json!({app: self.count(app)})));
        for ehpa in server.objects("effectivehorizontalpodautoscalers.autoscaling.crane.io") {
            let status = &ehpa["status"];
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let conditions: Vec<_> = conditions
                .map(|one| json!([one["type"], one["status"], one["reason"]]))
                .collect();
            assert_eq!(ehpa["metadata"]["namespace"], SHOP);
            all.push(json!({"name": ehpa["metadata"]["name"], "conditions": conditions}));
        }
        all
    }

    /// The count of an app. All that are within the tolerance of its load are as good.
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

/// Why a seed fails: a law, or an end that is another one than without faults.
fn fails(seed: u64, faults: &Faults, undisturbed: &[Value]) -> Result<Outcome, Failure> {
    let outcome = run(seed, faults);
    let mut law = outcome.broken.clone();
    if law.is_none() && outcome.end != undisturbed {
        let differs = outcome
            .end
            .iter()
            .zip(undisturbed)
            .find(|(one, other)| one != other);
        law = differs.map(|(end, other)| format!("end: {end}, and without faults {other}"));
    }
    match law {
        Some(law) => Err(Failure {
            seed,
            law,
            causes: outcome.causes,
        }),
        None => Ok(outcome),
    }
}

struct Failure {
    seed: u64,
    law: String,
    causes: Vec<(Cause, String)>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} breaks a law: {}", self.seed, self.law)?;
        self.causes
            .iter()
            .try_for_each(|(cause, what)| writeln!(f, "  {cause:?} {what}"))
    }
}

/// Leaves out ever fewer causes at once, as long as the seed still fails.
fn shrink(mut failure: Failure, undisturbed: &[Value]) -> Failure {
    let (seed, mut without, mut tries) = (failure.seed, BTreeSet::new(), 0);
    let mut size = failure.causes.len().div_ceil(2);
    while size > 0 && tries < SHRINKS {
        let mut at = 0;
        while at < failure.causes.len() && tries < SHRINKS {
            tries += 1;
            let mut fewer: BTreeSet<Cause> = without.clone();
            fewer.extend(
                failure
                    .causes
                    .iter()
                    .skip(at)
                    .take(size)
                    .map(|(cause, _)| cause.clone()),
            );
            match fails(seed, &Faults::AllBut(fewer.clone()), undisturbed) {
                Err(smaller) => (failure, without) = (smaller, fewer),
                Ok(_) => at += size,
            }
        }
        size /= 2;
    }
    failure
}

#[expect(
    clippy::disallowed_methods,
    reason = "how many seeds are run is not the product's configuration"
)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    match number("SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("SEEDS").unwrap_or(20),
    }
}

#[test]
fn no_seed_breaks_a_law_and_every_fault_happens() {
    let mut counts = BTreeMap::new();
    let mut failures = Vec::new();
    for seed in seeds() {
        let undisturbed = run(seed, &Faults::None);
        assert_eq!(undisturbed.broken, None, "seed {seed} without faults");
        match fails(seed, &Faults::all(), &undisturbed.end) {
            Ok(outcome) => outcome
                .counts
                .into_iter()
                .for_each(|(fault, count)| *counts.entry(fault).or_insert(0) += count),
            Err(failure) => {
                eprintln!("seed {} {}", failure.seed, failure.law);
                failures.push((failure, undisturbed.end));
            }
        }
    }
    let failed = failures.len();
    if let Some((failure, undisturbed)) = failures.into_iter().next() {
        panic!(
            "{failed} seeds fail; the first:\n{}",
            shrink(failure, &undisturbed)
        );
    }
    eprintln!("{counts:?}");
    assert!(
        number("SEED").is_some() || counts.values().all(|count| *count > 0),
        "{counts:?}"
    );
}

#[test]
fn a_seed_runs_twice_in_the_same_way() {
    for seed in seeds().take(3) {
        let (one, two) = (run(seed, &Faults::all()), run(seed, &Faults::all()));
        assert_eq!(one.digest, two.digest, "seed {seed}");
        assert_eq!(one.causes, two.causes);
    }
}
