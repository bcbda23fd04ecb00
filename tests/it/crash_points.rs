//! Crash points: a controller that ends at any of its writes is succeeded by one that reaches the same.
//!
//! A scenario runs once undisturbed. It then runs again for each write: the controller ends when a cluster has accepted
//! that write, and a new one, which knows only what the clusters store, goes on; or only the answer is lost, and the
//! same controller goes on. For the clusters it makes no difference whether a controller ends before or after it sees an
//! answer, so one run stands for both. Compared with the undisturbed run:
//!
//! - the objects are the same at the end, apart from times, identities and measured values;
//! - there were never fewer ready pods, and no more ready pods were ended;
//! - each HPA and workload was created and deleted as often.

mod fleets;
mod masks;
mod single;
mod world;

use std::collections::BTreeMap;

use serde_json::Value;

use self::world::World;
use crate::process::{Fault, Process};

/// How many steps a successor misses before its first sync: pods that were started before become ready meanwhile.
const TAKEOVER: usize = 1;
/// How many steps longer than between two writes of the undisturbed run nothing must be written until a run is over.
const CALM: usize = 4;

/// Something that users, clusters or load do, and the step before which they do it.
type Change = (usize, fn(&World));

/// A small history of one autoscaler.
struct Scenario {
    name: &'static str,
    /// The clusters and the autoscaler before the first sync.
    world: fn() -> World,
    changes: &'static [Change],
    /// The number of steps, one sync each: the undisturbed run takes all of them, others end when all is calm.
    steps: usize,
    /// A write of the undisturbed run without which the scenario would show nothing.
    shows: &'static str,
    /// What may differ from the undisturbed run.
    allowed: &'static [Allowed],
}

/// A difference from the undisturbed run that is no fault.
struct Allowed {
    /// What the message of the difference contains, in the order of fault, write and difference.
    parts: &'static [&'static str],
    /// Why it is none; shown nowhere, but required.
    #[expect(dead_code, reason = "it documents the exception where it is made")]
    because: &'static str,
}

/// What a run led to.
#[derive(Debug)]
struct Outcome {
    /// Every write of the first process, in order.
    writes: Vec<String>,
    /// The objects at the end, by cluster and name, without what may differ.
    objects: BTreeMap<String, Value>,
    /// The smallest number of ready pods, of all clusters together, at the end of any step.
    lowest: u32,
    /// How many ready pods were ended, in all clusters together.
    ended: u32,
    /// How often each object was created and deleted.
    lifecycle: BTreeMap<String, usize>,
    /// The largest number of steps from one with a write, or from the beginning, to the next.
    gap: usize,
    /// Whether nothing was written in the last steps.
    is_calm: bool,
}

// === impl Scenario ===

impl Scenario {
    /// Runs the scenario undisturbed, and then with each fault at each write.
    async fn check(&self) {
        let undisturbed = self.run(Process::default(), self.steps).await;
        let Self { name, .. } = self;
        let calm = undisturbed.gap + CALM;
        assert!(
            undisturbed.is_calm,
            "{name}: still writes at the end: {:#?}",
            undisturbed.writes
        );
        assert!(
            undisturbed.writes.iter().any(|write| write == self.shows),
            "{name}: expected {} among {:#?}",
            self.shows,
            undisturbed.writes
        );
        let mut failures = Vec::new();
        for position in 1..=undisturbed.writes.len() {
            for fault in [Fault::Ends, Fault::LosesAnswer] {
                let process = Process::with_fault(position, fault);
                let outcome = self.run(process, calm).await;
                assert!(
                    outcome.writes.len() >= position,
                    "{name}: {fault:?} at write {position} did not happen"
                );
                let write = undisturbed.writes.get(position - 1).map_or("", |w| w);
                let differences = differences(&undisturbed, &outcome).into_iter();
                failures.extend(differences.map(|difference| {
                    format!("{name}: {fault:?} at write {position}, {write}: {difference}")
                }));
            }
        }
        for allowed in self.allowed {
            let is_needed = failures.iter().any(|failure| allowed.covers(failure));
            assert!(is_needed, "{name}: nothing is like {:?}", allowed.parts);
        }
        failures.retain(|failure| !self.allows(failure));
        assert!(
            failures.is_empty(),
            "{} differences:\n{}\nundisturbed: {:#?}",
            failures.len(),
            failures.join("\n"),
            undisturbed.writes,
        );
    }

    /// Runs the scenario until nothing was written for `calm` steps.
    async fn run(&self, process: Process, calm: usize) -> Outcome {
        let world = (self.world)();
        let mut controller = world.controller(&process);
        let mut current = process.clone();
        let mut lowest = world.ready();
        let changed = self.changes.iter().map(|(at, _)| *at);
        let changed = changed.max().unwrap_or_default();
        let (mut active, mut gap, mut is_calm) = (0, 0, false);
        let mut leads_from = 0;
        for step in 0..self.steps {
            world.begin(step);
            for (_, change) in self.changes.iter().filter(|(at, _)| *at == step) {
                change(&world);
            }
            world.settle();
            lowest = lowest.min(world.ready());
            if step < leads_from {
                continue;
            }
            let before = current.written();
            let has_ended = tokio::select! {
                biased;
                () = current.ended() => true,
                () = controller.sync() => false,
            };
            lowest = lowest.min(world.ready());
            if has_ended || current.written() > before {
                gap = gap.max(step - active);
                active = step;
            }
            if has_ended {
                current = Process::default();
                controller = world.controller(&current);
                leads_from = step + 1 + TAKEOVER;
            }
            let since = step.saturating_sub(active.max(changed));
            // Longer than between any two writes so far.
            is_calm = since >= CALM + gap;
            if since >= calm {
                is_calm = true;
                break;
            }
        }
        Outcome {
            writes: process.writes(),
            objects: world.objects(),
            lowest,
            ended: world.ended(),
            lifecycle: world.lifecycle(),
            gap,
            is_calm,
        }
    }

    /// Whether a failure is a difference that is allowed.
    fn allows(&self, failure: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed.covers(failure))
    }
}

// === impl Allowed ===

impl Allowed {
    /// Whether the message has every part, each behind the one before.
    fn covers(&self, failure: &str) -> bool {
        let mut rest = Some(failure);
        for part in self.parts {
            rest = rest.and_then(|rest| Some(rest.split_once(part)?.1));
        }
        rest.is_some()
    }
}

/// What differs from the undisturbed run.
fn differences(undisturbed: &Outcome, other: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    if other.lowest < undisturbed.lowest {
        found.push(format!(
            "ready pods fell to {} instead of {}",
            other.lowest, undisturbed.lowest
        ));
    }
    if other.ended > undisturbed.ended {
        found.push(format!(
            "ready pods ended: {} more than {}",
            other.ended - undisturbed.ended,
            undisturbed.ended
        ));
    }
    for (what, before, after) in pairs(&undisturbed.lifecycle, &other.lifecycle) {
        found.push(format!("{what}: {after:?} times instead of {before:?}"));
    }
    for (what, before, after) in pairs(&undisturbed.objects, &other.objects) {
        let mut paths = Vec::new();
        let null = Value::Null;
        masks::differing(
            &what,
            before.unwrap_or(&null),
            after.unwrap_or(&null),
            &mut paths,
        );
        found.extend(paths);
    }
    if !other.is_calm {
        found.push("still writes at the end".to_owned());
    }
    found
}

/// The entries that differ, with both values.
fn pairs<'a, V: PartialEq>(
    one: &'a BTreeMap<String, V>,
    other: &'a BTreeMap<String, V>,
) -> Vec<(String, Option<&'a V>, Option<&'a V>)> {
    let names: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let both = names
        .into_iter()
        .map(|name| (name.clone(), one.get(name), other.get(name)));
    both.filter(|(_, before, after)| before != after).collect()
}
