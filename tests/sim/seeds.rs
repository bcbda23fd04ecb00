//! Seeds: each plays a scenario in which much fails for a while, and then nothing does any more.
//!
//! ```text
//! 0:00                     healed          alive            settled           end
//! loads, windows, faults   faults end      what was due     at rest           as if nothing had failed
//! ```
//!
//! `SEEDS=n` plays n of them instead of [`SEEDS`], of which each scenario has its share; `AFTER=m` plays the n after
//! the first m, and `SEED=n` only this one in each scenario. A seed that breaks a law is played again without ever more
//! of its faults, until each remaining fault is needed. The output of a clean run has a digest of all requests, their
//! times and answers: two machines that play the same seeds print the same.

use std::{
    any::type_name,
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
    thread,
};

use serde_json::Value;
use simkube::{
    SimKube,
    faults::{Plan, RequestId},
};

use crate::cluster::Cluster;

/// Number of seeds that all scenarios play together.
const SEEDS: u64 = 100;
/// Number of seeds of which one is played twice, in the same way.
const TWICE: u64 = 50;
/// Number of attempts of a failing seed without some of its faults.
const SHRINKS: u64 = 120;

/// The rules of a seed: a cluster, its events by second, and the checks.
pub(crate) trait Scenario: Sized {
    /// Events of the cluster besides faults of requests.
    type Disruption: Clone + fmt::Debug + Send + 'static;
    /// State that is compared with the same seed without faults.
    type Record: Default + Send + 'static;

    /// The kinds of disruptions, each of which some seed must have.
    const DISRUPTIONS: &'static [&'static str];
    /// Number of seeds of which one is compared with its run without faults; none if it is zero.
    const COMPARED: u64 = 1;
    /// Number of seeds in a hundred that are played in this scenario.
    const SHARE: u64;
    /// Number of seeds in which everything that is counted must happen.
    const COVERS: u64 = Self::SHARE * SEEDS / 100;
    /// Second in which faults end.
    const HEALED: u64;
    /// Second in which everything that was due is done.
    const ALIVE: u64;
    /// Second from which nothing is left to do.
    const SETTLED: u64;
    /// Last second of the run.
    const END: u64;

    /// Returns how many of a thousand requests have a fault.
    fn rate(seed: u64) -> u64;

    /// Begins the scenario of a seed with the faults of a plan.
    fn new(seed: u64, plan: Plan) -> Self;

    /// The cluster of the product's processes.
    fn cluster(&self) -> &Cluster;

    /// All API servers, on which nothing is written at rest.
    fn servers(&self) -> Vec<&SimKube> {
        vec![&self.cluster().server]
    }

    /// Returns the events of this second, each with a number of its own.
    fn disruptions_at(&self, second: u64) -> Vec<(usize, Self::Disruption)>;

    /// Returns the kind of a disruption; none for one that only ends another one.
    fn kind_of(disruption: &Self::Disruption) -> Option<&'static str>;

    fn happen(&mut self, disruption: &Self::Disruption);

    /// Ends all faults and disruptions.
    fn heal(&mut self);

    /// Lets a second pass.
    ///
    /// # Errors
    /// The law that is broken after it.
    fn second(&mut self, second: u64) -> Result<(), String>;

    /// Checks that due actions are done, soon after the last fault.
    ///
    /// # Errors
    /// The action that is not done.
    fn check_alive(&self) -> Result<(), String>;

    /// Numbers of other events that must happen in some seed.
    fn counts(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }

    fn record(&self) -> Self::Record {
        Self::Record::default()
    }

    /// Compares a run with the one without faults.
    ///
    /// # Errors
    /// A forbidden difference.
    fn compare(
        _seed: u64,
        _record: &Self::Record,
        _undisturbed: &Self::Record,
    ) -> Result<(), String> {
        Ok(())
    }
}

/// A fault of a request, or a disruption by its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Request(RequestId),
    Disruption(usize),
}

/// Faults of a seed that happen.
#[derive(Debug, Clone)]
enum Faults {
    None,
    AllBut(BTreeSet<Cause>),
}

/// Result of a run.
struct Outcome<R> {
    broken: Option<String>,
    /// Digest of all requests, with their times and answers.
    digest: u64,
    causes: Vec<(Cause, String)>,
    counts: BTreeMap<&'static str, u64>,
    record: R,
}

// === impl Faults ===

impl Faults {
    fn all() -> Self {
        Self::AllBut(BTreeSet::new())
    }

    fn plan(&self, seed: u64, rate: u64) -> Plan {
        let Self::AllBut(without) = self else {
            return Plan::default();
        };
        let requests = without.iter().filter_map(|cause| match cause {
            Cause::Request(request) => Some(request.clone()),
            Cause::Disruption(_) => None,
        });
        Plan::new(seed, rate).without(requests)
    }

    fn has(&self, disruption: usize) -> bool {
        matches!(self, Self::AllBut(without) if !without.contains(&Cause::Disruption(disruption)))
    }
}

/// Runs a seed on a thread of its own, because the order of some maps differs from thread to thread.
fn run<S: Scenario>(seed: u64, faults: &Faults) -> Outcome<S::Record> {
    let faults = faults.clone();
    let run = move || Run::<S>::new(seed, faults).finish();
    thread::spawn(run).join().unwrap()
}

/// A run in progress.
struct Run<S: Scenario> {
    scenario: S,
    faults: Faults,
    /// Requests have faults.
    has_rate: bool,
    second: u64,
    disruptions: Vec<(usize, S::Disruption)>,
}

// === impl Run ===

impl<S: Scenario> Run<S> {
    fn new(seed: u64, faults: Faults) -> Self {
        Self {
            scenario: S::new(seed, faults.plan(seed, S::rate(seed))),
            faults,
            has_rate: S::rate(seed) > 0,
            second: 0,
            disruptions: Vec::new(),
        }
    }

    fn finish(mut self) -> Outcome<S::Record> {
        let broken = self
            .live()
            .err()
            .map(|law| format!("{law} ({})", self.scenario.cluster().now()));
        let plan = self.scenario.cluster().network().plan();
        let (requests, mut counts) = (plan.happened().to_vec(), plan.counts());
        drop(plan);
        if !self.has_rate {
            counts.clear();
        }
        let mut causes: Vec<_> = requests
            .into_iter()
            .map(|(request, fault)| (Cause::Request(request), format!("{fault:?}")))
            .collect();
        for name in S::DISRUPTIONS {
            counts.entry(name).or_default();
        }
        for (number, disruption) in &self.disruptions {
            if let Some(name) = S::kind_of(disruption) {
                *counts.entry(name).or_default() += 1;
            }
            causes.push((Cause::Disruption(*number), format!("{disruption:?}")));
        }
        counts.extend(self.scenario.counts());
        Outcome {
            broken,
            digest: self.digest(),
            causes,
            counts,
            record: self.scenario.record(),
        }
    }

    fn live(&mut self) -> Result<(), String> {
        self.live_until(S::ALIVE)?;
        self.scenario.check_alive()?;
        self.live_until(S::SETTLED)?;
        let settled = self.asked();
        self.live_until(S::END)?;
        self.check_rest(&settled)
    }

    fn live_until(&mut self, end: u64) -> Result<(), String> {
        while self.second < end {
            for (number, disruption) in self.scenario.disruptions_at(self.second) {
                if self.faults.has(number) {
                    self.scenario.happen(&disruption);
                    self.disruptions.push((number, disruption));
                }
            }
            if self.second == S::HEALED {
                self.scenario.heal();
            }
            self.second += 1;
            self.scenario.second(self.second - 1)?;
        }
        Ok(())
    }

    /// Returns the number of requests to each server until now.
    fn asked(&self) -> Vec<usize> {
        let servers = self.scenario.servers().into_iter();
        servers.map(|server| server.audit().len()).collect()
    }

    /// Checks that no object but the lease is written again and again at rest. Each may still be written once because
    /// of earlier events, such as a share that moves by a rule with a period of minutes: its ledger is stored first,
    /// and reported when the members are written. In the same way a condition that is not healthy may follow its cause
    /// (ADR 0059).
    fn check_rest(&self, settled: &[usize]) -> Result<(), String> {
        for (server, asked) in self.scenario.servers().into_iter().zip(settled) {
            let mut written = BTreeSet::new();
            let mut last = BTreeMap::new();
            for (number, entry) in server.audit().into_iter().enumerate() {
                let is_ours = entry.client.starts_with("pod-");
                let Some(what) = entry.written.as_ref() else {
                    continue;
                };
                let before = last.insert(entry.object(), what.clone());
                if number < *asked || !is_ours || entry.access.resource == "leases" {
                    continue;
                }
                // Each event is an object of its own.
                let object = if entry.access.resource.starts_with("events") {
                    format!("{} {}", what["regarding"]["name"], what["reason"])
                } else if before
                    .as_ref()
                    .is_some_and(|before| moves_shares_only(before, what))
                {
                    format!("ledger of {}", entry.object())
                } else if before.is_some_and(|before| follows_a_cause(&before, what)) {
                    format!("cause of {}", entry.object())
                } else {
                    entry.object()
                };
                if !written.insert(object) {
                    let (verb, object, time) = (&entry.access.verb, entry.object(), entry.time);
                    let what = &what["status"]["decision"]["message"];
                    return Err(format!("rest: {verb} {object} again at {time}: {what:?}"));
                }
            }
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for entry in self
            .scenario
            .servers()
            .iter()
            .flat_map(|server| server.audit())
        {
            let (object, code) = (entry.object(), entry.code);
            (entry.time, entry.client, entry.access.verb, object, code).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Returns whether a status says the same of everything, except for another cause of a condition that is not healthy.
fn follows_a_cause(before: &Value, now: &Value) -> bool {
    let conditions = |object: &Value| {
        object["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let (before, now) = (conditions(before), conditions(now));
    let is_same = |(one, other): (&Value, &Value)| {
        ["type", "status", "reason"]
            .iter()
            .all(|key| one[*key] == other[*key])
    };
    let mut both = before.iter().zip(&now);
    before.len() == now.len()
        && both.clone().all(is_same)
        && both.any(|(one, other)| one["message"] != other["message"])
}

/// Returns whether a write of a status has stored shares that moved, and reports nothing else.
fn moves_shares_only(before: &Value, after: &Value) -> bool {
    let shares = |object: &Value| {
        let ledger = object["status"]["ledger"].as_str().unwrap_or_default();
        let ledger: Value = serde_json::from_str(ledger).unwrap_or_default();
        let members = ledger["members"].as_object().into_iter().flatten();
        let share = |member: &Value| ["min", "max", "written"].map(|field| member[field].clone());
        let shares = members.map(|(name, member)| (name.clone(), share(member)));
        shares.collect::<BTreeMap<_, _>>()
    };
    let without_ledger = |object: &Value| {
        let mut status = object["status"].clone();
        status["ledger"].take();
        status
    };
    shares(before) != shares(after) && without_ledger(before) == without_ledger(after)
}

/// Returns the failure of a seed: a law, or the difference from the run without faults.
fn fails<S: Scenario>(
    seed: u64,
    faults: &Faults,
    undisturbed: Option<&S::Record>,
) -> Result<Outcome<S::Record>, Failure> {
    let outcome = run::<S>(seed, faults);
    let is_same = seed % TWICE != 1 || run::<S>(seed, faults).digest == outcome.digest;
    let differs = || (!is_same).then(|| "twice: the seed is played in another way".to_owned());
    let law = outcome
        .broken
        .clone()
        .or_else(|| S::compare(seed, &outcome.record, undisturbed?).err())
        .or_else(differs);
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

impl Failure {
    /// Returns whether both break the same law, which is the first word.
    fn is_like(&self, other: &Self) -> bool {
        self.law.split(':').next() == other.law.split(':').next()
    }
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
fn shrink<S: Scenario>(mut failure: Failure, undisturbed: Option<&S::Record>) -> Failure {
    let (seed, mut without, mut tries) = (failure.seed, BTreeSet::new(), 0);
    let most = number("SHRINKS").unwrap_or(SHRINKS);
    let mut size = failure.causes.len().div_ceil(2);
    while size > 0 && tries < most {
        let mut at = 0;
        while at < failure.causes.len() && tries < most {
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
            match fails::<S>(seed, &Faults::AllBut(fewer.clone()), undisturbed) {
                Err(smaller) if smaller.is_like(&failure) => (failure, without) = (smaller, fewer),
                _ => at += size,
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

fn seeds<S: Scenario>() -> Range<u64> {
    if let Some(seed) = number("SEED") {
        return seed..seed + 1;
    }
    let after = number("AFTER").unwrap_or(0);
    let last = after + number("SEEDS").unwrap_or(SEEDS);
    let share = |of: u64| of * S::SHARE / 100;
    share(after) + 1..share(last) + 1
}

/// Plays all seeds, of which none may break a law, and in some of which every fault must happen.
pub(crate) fn play<S: Scenario>() {
    let (mut counts, mut failures, mut digest) = (BTreeMap::new(), Vec::new(), 0_u64);
    let seeds = seeds::<S>();
    let covers = seeds.end - seeds.start >= S::COVERS;
    for seed in seeds {
        if seed.is_multiple_of(100) {
            let (scenario, failed) = (type_name::<S>(), failures.len());
            eprintln!("{scenario}: at seed {seed}; {failed} have failed");
        }
        let is_compared = S::COMPARED > 0 && seed.is_multiple_of(S::COMPARED);
        let undisturbed = is_compared.then(|| run::<S>(seed, &Faults::None));
        if let Some(broken) = undisturbed.as_ref().and_then(|run| run.broken.as_ref()) {
            panic!("seed {seed} without faults: {broken}");
        }
        let undisturbed = undisturbed.map(|run| run.record);
        match fails::<S>(seed, &Faults::all(), undisturbed.as_ref()) {
            Ok(outcome) => {
                digest = digest.rotate_left(1) ^ outcome.digest;
                for (fault, count) in outcome.counts {
                    *counts.entry(fault).or_insert(0) += count;
                }
            }
            Err(failure) => {
                eprintln!("seed {} {}", failure.seed, failure.law);
                failures.push((failure, undisturbed));
            }
        }
    }
    let failed = failures.len();
    if let Some((failure, undisturbed)) = failures.into_iter().next() {
        panic!(
            "{failed} seeds fail; the first:\n{}",
            shrink::<S>(failure, undisturbed.as_ref())
        );
    }
    // The same on every machine.
    eprintln!("{}: digest {digest:016x}, {counts:?}", type_name::<S>());
    assert!(
        !covers || counts.values().all(|count| *count > 0),
        "{counts:?}"
    );
}

/// Checks that equal seeds give equal runs.
pub(crate) fn play_twice<S: Scenario>() {
    for seed in seeds::<S>().take(3) {
        let (one, two) = (
            run::<S>(seed, &Faults::all()),
            run::<S>(seed, &Faults::all()),
        );
        assert_eq!(one.digest, two.digest, "seed {seed}");
        assert_eq!(one.causes, two.causes);
    }
}
