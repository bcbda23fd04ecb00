//! The scenario of a fleet: three members, one or two replicas of the product, and a fleet whose terms, load, edits and
//! disruptions are those of a seed.
//!
//! ```text
//! loads, edits, full nodes         and members that leave: the same with faults and without
//! disruptions of hosts, requests   as in the scenario of one cluster; none in half of the seeds
//! disruptions of members           cut off, flapping, slow, refusing, restarted; Secrets that are missing or bad; drift
//! crashes                          of whoever makes the first write of a kind
//! ```

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use simkube::{
    SimKube,
    faults::Plan,
    network::{Effect, Trouble as Requests, Way},
};

use super::{
    laws::{FleetLaws, RULES, Second, needed},
    world::{self, Ledger, plain, token, with_preferences},
};
use crate::{
    cluster::{Cluster, HUB, PER_POD, PERIOD, SHOP},
    schedule::{self, Dice, Schedule},
    seeds::{self, Scenario},
};

const MEMBERS: [(&str, u64); 3] = [("east", 8), ("north", 6), ("west", 8)];
const HOSTS: [&str; 2] = ["pod-0", "pod-1"];
/// Seconds for which a lost member is tolerated under `Reassign`.
const TOLERATED: u64 = 30;
/// Seconds of a disturbance after which a member may have failed: lost, tolerated, and some time for earlier failures.
const FAILED: u64 = 30 + TOLERATED - 20;
/// A second in which a suspension has begun and is not over.
const NOTED: u64 = 100;
/// Path of the list of the Secrets of members.
const SECRETS: &[&str] = &["/namespaces/foretide-system/secrets"];
/// The kinds of writes after which a process is killed.
const WRITES: [&str; 6] = [
    "hub patch federatedhpas",
    "hub patch federatedhpas/status",
    "member patch horizontalpodautoscalers",
    "member delete horizontalpodautoscalers",
    "member patch deployments/scale",
    "member patch deployments",
];

/// Settings of the fleet that a seed decides.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an ingredient of its own"
)]
pub(super) struct Terms {
    /// The replicas elect a leader; without an election there is one replica.
    elects: bool,
    assignment: Value,
    pub(super) direct: bool,
    reassign: bool,
    sleeps: bool,
    placed: bool,
    /// A deletion leaves the HPAs in the members.
    pub(super) retains: bool,
    /// Shares depend only on the spec.
    pub(super) is_static: bool,
    /// Nothing of the hub fails.
    pub(super) is_calm: bool,
    /// The hub is suspended.
    pub(super) is_suspended: bool,
}

/// Action of a user, with faults or without.
#[derive(Debug, Clone)]
enum Edit {
    Spec(Value),
    /// A note on the object, so that a watch has something to deliver.
    Annotation,
    Delete,
    Create,
    /// A member is to leave (true) or to stay; one whose Secret was deleted joins again.
    Leaves(&'static str, bool),
    /// The nodes of the first member are full (true) or have room again.
    Full(bool),
}

/// Disruption of a member, or of the leader.
#[derive(Debug, Clone)]
pub(super) enum Disruption {
    Host(schedule::Disruption),
    /// Trouble of a member begins (true) or ends.
    Member(&'static str, Trouble, bool),
    /// The process that makes the first write of this kind is killed after it.
    Crash(&'static str),
    /// The first host is suspended with its machine, so that connections to these members are lost.
    Suspension(Vec<&'static str>),
    /// End of the suspension.
    Resumption,
    /// All processes are killed.
    Succession,
    /// All processes are killed, and the Secrets of the members cannot be listed from then on.
    Unlisted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    CutOff,
    Refused,
    Slow,
    HalfOpen,
    Restart,
    /// One of several short interruptions.
    Flap,
    NoSecret,
    BadToken,
    Spoiled,
    /// Somebody changes the maximum of the managed HPA.
    Drift,
    /// Another HPA has the same target.
    Foreign,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is something of its own that has happened"
)]
struct FleetScenario {
    cluster: Cluster,
    schedule: Schedule,
    terms: Terms,
    /// The load of each member, or the sum that all share.
    loads: Vec<(u64, [u64; 3])>,
    is_shared: bool,
    edits: Vec<(u64, Edit)>,
    disruptions: Vec<(u64, Disruption)>,
    laws: FleetLaws,
    /// The fleet as its users want it.
    fleet: Value,
    is_wanted: bool,
    /// Second in which the workload is created in the members.
    deployed: u64,
    second: u64,
    /// Second since which the fleet runs fewer than `minReplicas`.
    low: Option<u64>,
    /// Second since which a member is disturbed.
    disturbed: BTreeMap<String, u64>,
    /// Second since which a member is no longer disturbed.
    answers: BTreeMap<String, u64>,
    /// Number of process starts when all processes were connected to a member last.
    connected: BTreeMap<&'static str, u64>,
    /// Members of which only the Secret is missing, each with the number of process starts by then.
    secretless: BTreeMap<String, u64>,
    /// The second until which the nodes of the first member count as full.
    full_until: u64,
    is_unlisted: bool,
    /// Some process does not see the hub as it is.
    is_stale: bool,
    /// Number of restarts, with the second of the last one.
    restarted: (u64, u64),
    /// A member was disturbed for longer than tolerated since the last change of the spec.
    has_failed: bool,
    /// A member has left, so that shares moved.
    has_left: bool,
    /// The kinds of writes after which a process is to be killed.
    armed: Vec<&'static str>,
    crashes: BTreeMap<&'static str, u64>,
}

// === impl Terms ===

impl Terms {
    fn new(seed: u64, dice: &mut Dice) -> Self {
        let weights = MEMBERS.map(|(name, _)| (name, 1 + dice.below(3)));
        let priorities = [("east", 3), ("north", 2), ("west", 1)];
        let policy = seed % 6;
        let assignment = match policy {
            0 | 1 => with_preferences("StaticWeighted", "staticWeight", &weights),
            2 => plain("DynamicWeighted"),
            3 => {
                let mut assignment = with_preferences("Prioritized", "priority", &priorities);
                // Nodes are never added, and only pods that stay pending show it, which takes a while.
                assignment["clusterAutoscalingPreference"][0]["elastic"] =
                    json!(dice.below(2) == 0);
                assignment
            }
            4 => plain("Aggregated"),
            _ => plain("Duplicated"),
        };
        let sleeps = dice.below(3) == 0;
        let is_suspended = seed % Disruption::KINDS == Disruption::SUSPENSION;
        Self {
            // An elected leader would end, and forget its knowledge of members.
            elects: dice.below(4) > 0 && !is_suspended,
            assignment,
            direct: dice.below(4) == 0,
            reassign: dice.below(2) == 0 || is_suspended,
            sleeps,
            placed: dice.below(4) == 0,
            retains: dice.below(3) == 0,
            is_static: policy < 2 || policy == 5,
            is_calm: is_calm(seed),
            is_suspended,
        }
    }

    pub(super) fn is_duplicated(&self) -> bool {
        self.assignment == plain("Duplicated")
    }

    fn fleet(&self) -> Value {
        let mut more = json!({
            "mode": if self.direct { "Direct" } else { "Delegated" },
            "scalingToZero": self.sleeps,
            "rebalance": {"cooldownSeconds": 30, "settleObservations": 2, "minUtilizationPercent": 50},
            "federatedHPAAssignment": self.assignment,
        });
        if self.reassign {
            more["failurePolicy"] = json!("Reassign");
            more["tolerationSeconds"] = json!(TOLERATED);
        }
        if self.placed {
            more["workloadSource"] = json!("Hub");
        }
        if self.retains {
            more["deletionPolicy"] = json!("Retain");
        }
        world::fleet(SHOP, "", (3, 14), &more)
    }
}

/// Returns whether nothing of the hub fails in a seed.
fn is_calm(seed: u64) -> bool {
    let alone = [
        Disruption::SUSPENSION,
        Disruption::SUCCESSION,
        Disruption::UNLISTED,
    ];
    (seed / 6).is_multiple_of(2) || alone.contains(&(seed % Disruption::KINDS))
}

/// Seconds until pods are ready in room that has become free: a sync, a write, and their start.
const TAKEN: u64 = 30;

/// Edits of the fleet by users.
fn edits(seed: u64, terms: &Terms, dice: &mut Dice, end: u64) -> Vec<(u64, Edit)> {
    let modes = if terms.direct {
        ["Delegated", "Direct"]
    } else {
        ["Direct", "Delegated"]
    };
    if seed % Disruption::KINDS == Disruption::UNLISTED {
        return vec![(10, Edit::Delete)];
    }
    // Nothing but the suspension has happened when it is over. The annotation makes the hub's own watch deliver
    // something at once, so that only members are silent.
    if terms.is_suspended {
        return vec![(NOTED, Edit::Annotation)];
    }
    let mut edits = Vec::new();
    for _edit in 0..2 {
        let at = 30 + dice.below(end - 70);
        let later = at + 10 + dice.below(end - 10 - at);
        let spec = |spec: Value| Edit::Spec(spec);
        let (one, other) = match dice.below(9) {
            0 => (
                spec(json!({"maxReplicas": 10})),
                spec(json!({"maxReplicas": 16})),
            ),
            1 => (
                spec(json!({"minReplicas": 6})),
                spec(json!({"minReplicas": 2})),
            ),
            2 => (
                spec(json!({"clusterAffinity": {"exclude": ["west"]}})),
                spec(json!({"clusterAffinity": null})),
            ),
            3 => (
                spec(json!({"scaleStrategy": "Preview"})),
                spec(json!({"scaleStrategy": "Auto"})),
            ),
            4 => (Edit::Delete, Edit::Create),
            5 => {
                let [one, other] = modes.map(|mode| spec(json!({"mode": mode})));
                (one, other)
            }
            6 => {
                let member = MEMBERS[dice.index(MEMBERS.len())].0;
                (Edit::Leaves(member, true), Edit::Leaves(member, false))
            }
            _ => continue,
        };
        edits.extend([(at, one), (later, other)]);
    }
    if dice.below(3) == 0 {
        // Before or after the check of due actions.
        let until = 60 + dice.below(2) * (end + 30);
        edits.extend([
            (20 + dice.below(20), Edit::Full(true)),
            (until, Edit::Full(false)),
        ]);
    }
    edits
}

/// Disruptions of members and processes.
fn disruptions(seed: u64, terms: &Terms, dice: &mut Dice, end: u64) -> Vec<(u64, Disruption)> {
    // Each kind is the first of some seeds.
    let mut disruptions = Disruption::new(seed, dice, end);
    let more = if terms.is_suspended { 1 } else { 4 };
    for _more in 0..dice.below(more) {
        let number = dice.below(Disruption::SUSPENSION);
        disruptions.extend(Disruption::new(number, dice, end));
    }
    if dice.below(6) == 0 && !terms.is_suspended {
        // A member joins later than the fleet begins.
        let (member, at) = (MEMBERS[dice.index(MEMBERS.len())].0, 20 + dice.below(60));
        disruptions.extend(
            [(0, true), (at, false)]
                .map(|(at, begins)| (at, Disruption::Member(member, Trouble::NoSecret, begins))),
        );
    }
    if !terms.is_calm {
        // The last kind needs placed workloads.
        let number = usize::try_from(seed + seed / 12).unwrap();
        let kind = WRITES[if terms.placed {
            2 + number % 4
        } else {
            number % 5
        }];
        let at = dice.below(2) * (10 + dice.below(end - 30));
        disruptions.push((at, Disruption::Crash(kind)));
    }
    disruptions
}

// === impl Disruption ===

impl Disruption {
    const KINDS: u64 = 17;
    const SUSPENSION: u64 = 14;
    const SUCCESSION: u64 = 15;
    const UNLISTED: u64 = 16;
    const TROUBLES: [Trouble; 14] = [
        Trouble::CutOff,
        Trouble::Refused,
        Trouble::Slow,
        Trouble::HalfOpen,
        Trouble::Restart,
        Trouble::Flap,
        Trouble::NoSecret,
        Trouble::BadToken,
        Trouble::Spoiled,
        Trouble::Drift,
        Trouble::Foreign,
        Trouble::CutOff,
        Trouble::NoSecret,
        Trouble::Foreign,
    ];
    /// Names of disruptions; those of members in the order of [`Trouble`].
    const NAMES: [&str; 14] = [
        "member cut off",
        "member refused",
        "member slow",
        "member half-open",
        "member restarted",
        "member flaps",
        "no Secret",
        "bad token",
        "spoiled Secret",
        "drift",
        "foreign HPA",
        "suspension",
        "succession while a member is silent",
        "Secrets are not listed",
    ];

    /// The disruption of a number with its end, in seconds from the start.
    fn new(number: u64, dice: &mut Dice, end: u64) -> Vec<(u64, Self)> {
        let (at, member) = (
            5 + dice.below(end - 10),
            MEMBERS[dice.index(MEMBERS.len())].0,
        );
        // Shorter or longer than tolerated.
        let until = (at + 1 + 75 * dice.below(2) + dice.below(30)).min(end);
        let between = |trouble, at, until| {
            [(at, true), (until, false)]
                .map(|(at, begins)| (at, Self::Member(member, trouble, begins)))
        };
        match number % Self::KINDS {
            // Longer than a tolerated silence.
            Self::SUSPENSION => {
                // The fleet has members by then, and the suspension is over before everything is healed.
                let at = at.clamp(30, 60);
                let all = MEMBERS.map(|(name, _)| name).to_vec();
                let stranded = vec![vec![member], all].swap_remove(dice.index(2));
                vec![
                    (at, Self::Suspension(stranded)),
                    (at + 80, Self::Resumption),
                ]
            }
            Self::SUCCESSION => {
                let at = at.min(80);
                let mut disruptions = Vec::from(between(Trouble::CutOff, at, at + 65));
                disruptions.push((at + 20, Self::Succession));
                disruptions
            }
            Self::UNLISTED => vec![(6, Self::Unlisted)],
            5 => {
                let period = 4 + dice.below(8);
                let times = (at..until).step_by(usize::try_from(period).unwrap());
                times
                    .flat_map(|at| between(Trouble::Flap, at, at + period / 2))
                    .collect()
            }
            kind => between(Self::TROUBLES[usize::try_from(kind).unwrap()], at, until).into(),
        }
    }
}

// === impl Scenario ===

impl Scenario for FleetScenario {
    type Disruption = Disruption;
    type Record = Value;

    const DISRUPTIONS: &'static [&'static str] = &Disruption::NAMES;
    const SHARE: u64 = 20;
    const COVERS: u64 = 300;
    const COMPARED: u64 = 5;
    const HEALED: u64 = 150;
    /// A watch that hangs when faults end is given up after a minute. Shares follow, and an HPA doubles its pods twice.
    const ALIVE: u64 = Self::HEALED + 100;
    const SETTLED: u64 = 372;
    const END: u64 = 404;

    fn rate(seed: u64) -> u64 {
        if is_calm(seed) { 0 } else { 30 }
    }

    fn new(seed: u64, plan: Plan) -> Self {
        let mut dice = Dice::new(seed ^ 0xF1EE7);
        let terms = Terms::new(seed, &mut dice);
        let mut cluster = Cluster::new(seed, plan).with_members(&MEMBERS);
        cluster.elects = terms.elects;
        if terms.placed {
            cluster.deploy(HUB, 0);
        }
        let is_unlisted = seed % Disruption::KINDS == Disruption::UNLISTED;
        let deployed = if is_unlisted { 0 } else { dice.below(2) * 12 };
        let hosts = if terms.elects {
            &HOSTS[..]
        } else {
            &HOSTS[..1]
        };
        let schedule = Schedule::new(seed, &[SHOP], hosts, Self::HEALED);
        let mut loads: Vec<_> = (0..4)
            .map(|_| {
                (
                    dice.below(Self::HEALED - 40),
                    [(); 3].map(|()| 1_000 * dice.below(6)),
                )
            })
            .collect();
        loads.sort_unstable();
        let is_shared = dice.below(3) > 0;
        let edits = edits(seed, &terms, &mut dice, Self::HEALED);
        let disruptions = disruptions(seed, &terms, &mut dice, Self::HEALED);
        for (host, ahead) in hosts.iter().zip(schedule.ahead.clone()) {
            cluster.start_ahead(host, ahead);
        }
        cluster.evenly(3_000);
        let fleet = terms.fleet();
        Self {
            cluster,
            schedule,
            terms,
            loads,
            is_shared,
            edits,
            disruptions,
            laws: FleetLaws::default(),
            fleet,
            is_wanted: true,
            deployed,
            second: 0,
            low: None,
            disturbed: BTreeMap::new(),
            answers: BTreeMap::new(),
            connected: BTreeMap::new(),
            secretless: BTreeMap::new(),
            full_until: 0,
            is_unlisted: false,
            is_stale: false,
            restarted: (0, 0),
            has_failed: false,
            has_left: false,
            armed: Vec::new(),
            crashes: WRITES.map(|kind| (kind, 0)).into(),
        }
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn servers(&self) -> Vec<&SimKube> {
        let members = self
            .cluster
            .members
            .iter()
            .map(|(_, member)| &member.server);
        std::iter::once(&self.cluster.server)
            .chain(members)
            .collect()
    }

    fn disruptions_at(&self, second: u64) -> Vec<(usize, Disruption)> {
        let mut of_hosts = self.schedule.disruptions_at(second);
        of_hosts.retain(|_| !self.terms.is_calm);
        let mut disruptions: Vec<_> = of_hosts
            .into_iter()
            .map(|(number, disruption)| (number, Disruption::Host(disruption)))
            .collect();
        let others = self
            .disruptions
            .iter()
            .enumerate()
            .filter(|(_, (at, _))| *at == second);
        disruptions
            .extend(others.map(|(number, (_, disruption))| (1_000 + number, disruption.clone())));
        disruptions
    }

    fn kind_of(disruption: &Disruption) -> Option<&'static str> {
        let kind = match disruption {
            Disruption::Host(disruption) => return disruption.name(),
            Disruption::Member(_, trouble, true) => *trouble as usize,
            Disruption::Suspension(_) => 11,
            Disruption::Succession => 12,
            Disruption::Unlisted => 13,
            _ => return None,
        };
        Some(Disruption::NAMES[kind])
    }

    fn happen(&mut self, disruption: &Disruption) {
        let cluster = &mut self.cluster;
        match disruption {
            Disruption::Host(disruption) => {
                self.is_stale |= disruption.name() == Some("stale");
                disruption.happen(cluster);
                if disruption.name() == Some("restored") {
                    let fleets = cluster.server.objects(world::FLEETS);
                    let fleet = fleets.first().map(|fleet| &**fleet);
                    self.laws.restored(cluster.now(), fleet);
                    // A fleet that was deleted since the backup is deleted again.
                    if !self.is_wanted {
                        self.edit(&Edit::Delete);
                    }
                }
            }
            Disruption::Crash(kind) => self.armed.push(kind),
            Disruption::Suspension(stranded) => {
                cluster.pause(HOSTS[0]);
                for member in stranded {
                    cluster.network().strand(HOSTS[0], member);
                }
            }
            Disruption::Resumption => cluster.resume(HOSTS[0]),
            Disruption::Succession => cluster.crash_all(),
            Disruption::Unlisted => {
                self.is_unlisted = true;
                cluster.crash_all();
                cluster.network().begin(unlisted());
            }
            Disruption::Member(member, trouble, begins) => self.trouble(member, *trouble, *begins),
        }
    }

    fn heal(&mut self) {
        self.armed.clear();
        self.cluster.heal();
        if self.is_unlisted {
            self.cluster.network().begin(unlisted());
        }
        for (member, _) in MEMBERS {
            for over in [Trouble::CutOff, Trouble::NoSecret, Trouble::Foreign] {
                self.trouble(member, over, false);
            }
        }
    }

    fn second(&mut self, second: u64) -> Result<(), String> {
        self.second = second;
        if second == self.deployed && !self.terms.placed {
            self.cluster.deploy_everywhere(1);
        }
        if let Some((_, loads)) = self.loads.iter().find(|(at, _)| *at == second) {
            if self.is_shared {
                self.cluster.evenly(loads.iter().sum());
            } else {
                let names = MEMBERS.iter().zip(loads);
                let local: Vec<_> = names.map(|((name, _), load)| (*name, *load)).collect();
                self.cluster.locally(&local);
            }
        }
        for (_, edit) in self.edits.clone().iter().filter(|(at, _)| *at == second) {
            self.edit(edit);
        }
        // Created once the deletion of the previous one is over.
        if self.is_wanted && self.cluster.server.objects(world::FLEETS).is_empty() {
            self.cluster.try_with_fleet("POST", &self.fleet);
        }
        if self.armed.is_empty() {
            self.cluster.second()?;
        } else {
            self.second_with_crashes()?;
        }
        let disturbed: BTreeMap<_, _> = self
            .disturbed
            .iter()
            .map(|(name, since)| (name.clone(), second - since))
            .collect();
        // Faults of requests can make two watches in a row hang, which is a silence of a minute.
        let may_fail = !self.terms.is_calm || disturbed.values().any(|seconds| *seconds > FAILED);
        self.has_failed |= self.terms.reassign && may_fail;
        if self.restarted.0 != self.cluster.restarts() {
            self.restarted = (self.cluster.restarts(), second);
        }
        self.note_connected();
        let (cluster, terms) = (&self.cluster, &self.terms);
        let is_connected = |(_, restarts): &(&String, &u64)| **restarts == cluster.restarts();
        let connected = self.secretless.iter().filter(is_connected);
        let connected = connected.map(|(name, _)| name.clone()).collect();
        let known = Second {
            cluster,
            terms,
            most: self.most(),
            disturbed: &disturbed,
            has_failed: self.has_failed,
            connected: &connected,
        };
        self.laws.check(&known)?;
        self.check_minimum()
    }

    /// Checks that due actions are done soon after the last fault.
    fn check_alive(&self) -> Result<(), String> {
        let (ready, most) = (self.cluster.serving(), self.most());
        let needed = needed(self.cluster.load.at(SHOP, self.cluster.now()))
            .min(most)
            .min(self.room());
        // A hub that never gets its lists moves no share.
        let has_fleet = most < u64::MAX && !self.is_unlisted;
        if has_fleet && ready < needed {
            return Err(format!(
                "alive: {ready} ready and {needed} needed\n{}",
                self.cluster.show()
            ));
        }
        Ok(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.crashes.clone();
        for (rule, _) in RULES {
            counts.insert(rule, 0);
        }
        counts.extend(self.laws.rules.clone());
        counts
    }

    /// Records the conditions, the shares that follow from the spec alone, and whether enough pods for the load are
    /// ready.
    fn record(&self) -> Value {
        let status = self.cluster.fleet_status();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        // Among counts within the tolerance, one may be at a bound.
        let conditions: Vec<_> = conditions
            .filter(|one| one["type"] != "ScalingLimited")
            .map(|one| json!([one["type"], one["status"], one["reason"]]))
            .collect();
        let bounds = self.cluster.bounds();
        let maxima: BTreeMap<_, _> = bounds.iter().map(|(name, (_, max))| (name, max)).collect();
        let shares = if self.terms.retains && !self.is_wanted {
            // The retained shares are those of the deletion, so they are not compared.
            Value::Null
        } else if self.terms.is_static {
            json!(maxima)
        } else {
            // Replicas that R9 takes have no other place (T8).
            let unassigned = Ledger::of(&json!({"metadata": {"uid": ""}, "status": status}));
            json!(
                maxima.values().copied().sum::<u64>()
                    + unassigned.map_or(0, |ledger| ledger.unassigned)
            )
        };
        let load = self.cluster.load.at(SHOP, self.cluster.now());
        let ready = self.cluster.serving();
        if !self.is_shared || !self.is_wanted {
            return json!({"conditions": conditions, "shares": shares});
        }
        // Each HPA rounds up.
        let is_enough = ready >= needed(load) && ready * PER_POD <= load + 3 * PER_POD;
        let serving = if is_enough {
            json!("as the load asks")
        } else {
            json!(ready)
        };
        json!({"conditions": conditions, "shares": shares, "serving": serving})
    }

    fn compare(seed: u64, record: &Value, undisturbed: &Value) -> Result<(), String> {
        // Without knowledge of its members, a deleted fleet leaves its objects there.
        if record == undisturbed || seed % Disruption::KINDS == Disruption::UNLISTED {
            return Ok(());
        }
        Err(format!("end: {record}, and without faults {undisturbed}"))
    }
}

impl FleetScenario {
    /// Checks that the fleet runs `minReplicas` soon after the last fault, and later never fewer for longer than a
    /// sync.
    fn check_minimum(&mut self) -> Result<(), String> {
        let fleet = self
            .cluster
            .server
            .objects(world::FLEETS)
            .into_iter()
            .next();
        let acting = fleet.filter(|fleet| {
            let is_kept = fleet["metadata"]["deletionTimestamp"].is_null();
            is_kept && fleet["spec"]["scaleStrategy"] != "Preview" && !self.is_unlisted
        });
        let least = acting.and_then(|fleet| fleet["spec"]["minReplicas"].as_u64());
        let counts = MEMBERS
            .iter()
            .filter_map(|(name, _)| self.cluster.counts(name));
        let all: u64 = counts.map(|(wanted, _)| wanted).sum();
        if Some(all) >= least {
            self.low = None;
            return Ok(());
        }
        let since = (*self.low.get_or_insert(self.second)).max(Self::ALIVE);
        if self.second > since + PERIOD.as_secs() + 2 {
            return Err(format!(
                "minimum: {all} replicas since {since}\n{}",
                self.cluster.show()
            ));
        }
        Ok(())
    }

    /// Returns the number of wanted pods that the members can run; a static budget stays in its member.
    fn room(&self) -> u64 {
        let preferences = &self.terms.assignment["clusterAutoscalingPreference"];
        match (self.second < self.full_until, self.terms.is_static) {
            // Further budget moves only when pods have been pending for a while.
            _ if preferences[0]["elastic"] == true => MEMBERS[0].1,
            (false, false) => u64::MAX,
            (false, true) => self.room_within_budgets(preferences),
            (true, true) => 0,
            (true, false) => MEMBERS[1..].iter().map(|(_, pods)| pods).sum(),
        }
    }

    /// Returns the number of pods that have room in the members within their budgets, which follow from the spec: pods
    /// beyond the room of a member move to no other. Any number, if each member has a budget of the whole.
    fn room_within_budgets(&self, preferences: &Value) -> u64 {
        let weights = MEMBERS.map(|(name, _)| {
            let mut each = preferences.as_array().into_iter().flatten();
            let own = each.find(|one| one["targetCluster"]["clusterNames"] == json!([name]));
            own.and_then(|own| own["staticWeight"].as_u64())
                .unwrap_or_default()
        });
        let (most, sum) = (self.most(), weights.iter().sum::<u64>());
        if sum == 0 || most == u64::MAX {
            return u64::MAX;
        }
        let beyond = weights.iter().zip(MEMBERS).map(|(weight, (_, room))| {
            let budget = (most * weight).div_ceil(sum);
            budget.saturating_sub(room)
        });
        most.saturating_sub(beyond.sum())
    }

    /// Returns the number of replicas that the fleet may run; without a fleet, any number.
    fn most(&self) -> u64 {
        let all = self.cluster.server.objects(world::FLEETS);
        let max = all
            .first()
            .and_then(|fleet| fleet["spec"]["maxReplicas"].as_u64());
        max.unwrap_or(u64::MAX)
    }

    fn edit(&mut self, edit: &Edit) {
        match edit {
            Edit::Spec(spec) => {
                let fields = spec.as_object().unwrap().clone();
                self.fleet["spec"].as_object_mut().unwrap().extend(fields);
                self.cluster.try_with_fleet("PATCH", &json!({"spec": spec}));
            }
            Edit::Annotation => {
                let note = json!({"metadata": {"annotations": {"note": "read"}}});
                self.cluster.try_with_fleet("PATCH", &note);
            }
            Edit::Delete => {
                self.is_wanted = false;
                self.cluster.try_with_fleet("DELETE", &Value::Null);
            }
            // Retained HPAs are not managed by another fleet.
            Edit::Create => self.is_wanted = !self.terms.retains,
            Edit::Leaves(member, is_leaving) => {
                if !is_leaving && self.second.is_multiple_of(2) {
                    self.cluster.forget(member);
                    self.cluster.join(member, &json!({}));
                }
                self.cluster.leave(member, *is_leaving);
                // Shares move, as after a failure, also after the next edit.
                self.has_left = true;
            }
            Edit::Full(is_full) => {
                self.cluster.cordon(MEMBERS[0].0, *is_full);
                self.full_until = if *is_full {
                    u64::MAX
                } else {
                    self.second + TAKEN
                };
            }
        }
        self.has_failed = self.has_left;
    }

    fn trouble(&mut self, member: &str, trouble: Trouble, begins: bool) {
        let (cluster, second) = (&self.cluster, self.second);
        self.secretless.remove(member);
        let is_known = self.connected.get(member) == Some(&cluster.restarts())
            && !self.is_stale
            && !self.disturbed.contains_key(member);
        if trouble == Trouble::NoSecret && begins && is_known {
            self.secretless
                .insert(member.to_owned(), cluster.restarts());
        }
        let hosts = cluster.hosts();
        match (trouble, begins) {
            (Trouble::CutOff | Trouble::Flap, true) => cluster.block(member),
            (Trouble::Refused, true) => {
                cluster.reach_member(member, Way::Refused);
                for host in hosts {
                    cluster.network().reset(&host, member);
                }
            }
            (Trouble::Slow, true) => {
                // An answer is late, or too late for a decision.
                let late = if second.is_multiple_of(2) { 800 } else { 4_500 };
                let latency = Duration::from_millis(second * 977 % late);
                cluster.reach_member(member, Way::Open(latency));
            }
            (Trouble::HalfOpen, true) => hosts
                .iter()
                .for_each(|host| cluster.network().strand(host, member)),
            (Trouble::Restart, true) => {
                cluster.site(member).compact();
                for host in hosts {
                    cluster.network().reset(&host, member);
                }
            }
            (Trouble::NoSecret, true) => cluster.forget(member),
            (Trouble::BadToken, true) => cluster.rotate(member, "unknown"),
            (Trouble::Spoiled, true) => cluster.spoil(member),
            (Trouble::NoSecret | Trouble::BadToken | Trouble::Spoiled, false) => {
                cluster.join(member, &json!({}));
                cluster.rotate(member, &token(member));
            }
            (Trouble::Drift, true) => cluster.drift(member),
            (Trouble::Foreign, _) => cluster.foreign_hpa(member, begins),
            (_, false) => cluster.unblock(member),
        }
        if begins || self.is_disturbed(member) {
            self.disturbed.entry(member.to_owned()).or_insert(second);
        } else if self.disturbed.remove(member).is_some() {
            self.answers.insert(member.to_owned(), second);
        }
    }

    /// Notes the members to which every process has connected: a process that was started while a member did not answer
    /// connects only when the member answers again.
    fn note_connected(&mut self) {
        for (member, _) in MEMBERS {
            let answers = self.answers.get(member).copied().unwrap_or_default();
            let since = answers.max(self.restarted.1);
            if !self.disturbed.contains_key(member) && self.second >= since + 40 {
                self.connected.insert(member, self.restarted.0);
            }
        }
    }

    /// Returns whether the connection or the Secret of a member is disturbed.
    fn is_disturbed(&self, member: &str) -> bool {
        let is_open =
            |host: &String| self.cluster.network().way(host, member) == Way::Open(Duration::ZERO);
        !self.cluster.hosts().iter().all(is_open) || !self.cluster.is_joined(member)
    }

    /// Lets a second pass in which the process that makes a write of an armed kind is killed.
    fn second_with_crashes(&mut self) -> Result<(), String> {
        let (armed, crashes) = (&mut self.armed, &mut self.crashes);
        let mut seen = BTreeMap::new();
        for (name, server) in sites(&self.cluster) {
            seen.insert(name, server.audit().len());
        }
        self.cluster.sliced_second(|cluster| {
            let mut writes = Vec::new();
            for (name, server) in sites(cluster) {
                let place = if name == HUB { "hub" } else { "member" };
                let known = seen.entry(name).or_default();
                for entry in server.audit_since(*known) {
                    *known += 1;
                    if entry.client.starts_with("pod-") && entry.written.is_some() {
                        writes.push((
                            entry.client,
                            format!("{place} {} {}", entry.access.verb, entry.access.resource),
                        ));
                    }
                }
            }
            for (host, kind) in writes {
                if let Some(at) = armed.iter().position(|armed| *armed == kind) {
                    let kind = armed.remove(at);
                    *crashes.entry(kind).or_default() += 1;
                    cluster.crash(&host, 5);
                }
            }
        })
    }
}

/// Requests that never list the Secrets of members.
fn unlisted() -> Requests {
    Requests {
        client: String::new(),
        method: "GET",
        parts: SECRETS,
        effect: Effect::Hang,
    }
}

/// All servers by name.
fn sites(cluster: &Cluster) -> Vec<(String, SimKube)> {
    let members = cluster
        .members
        .iter()
        .map(|(name, member)| (name.to_owned(), member.server.clone()));
    members
        .chain([(HUB.to_owned(), cluster.server.clone())])
        .collect()
}

#[test]
fn no_seed_breaks_a_law() {
    seeds::play::<FleetScenario>();
}

#[test]
fn a_seed_of_a_fleet_runs_twice_in_the_same_way() {
    seeds::play_twice::<FleetScenario>();
}
