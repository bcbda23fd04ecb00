//! The scene of a fleet: three members, one or two replicas of the product, and a fleet whose terms, load, edits and upsets
//! are those of a seed.
//!
//! ```text
//! loads, edits                the same with faults and without
//! upsets of hosts             as in the scene of one cluster
//! upsets of members           cut off, flapping, slow, refusing, restarted, full; Secrets that are missing or bad; drift
//! crashes                     of whoever makes the first write of a kind
//! ```

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use simkube::{SimKube, faults::Plan, network::Way};

use super::{
    laws::{FleetLaws, RULES, Second, needed},
    world::{self, plain, token, with_preferences},
};
use crate::{
    cluster::{Cluster, HUB, PER_POD, SHOP},
    seeds::{self, Scene},
    story::{self, Dice, Story},
};

const MEMBERS: [(&str, u64); 3] = [("east", 8), ("north", 6), ("west", 8)];
const HOSTS: [&str; 2] = ["pod-0", "pod-1"];
/// Seconds for which a lost member is tolerated under `Reassign`.
const TOLERATED: u64 = 20;
/// A member that was disturbed for so long may have failed: lost, tolerated, and some time for what failed before.
const FAILED: u64 = 30 + TOLERATED - 20;
/// The kinds of writes after which a process is killed.
const WRITES: [&str; 8] = [
    "hub patch federatedhpas",
    "hub patch federatedhpas/status",
    "member create horizontalpodautoscalers",
    "member patch horizontalpodautoscalers",
    "member delete horizontalpodautoscalers",
    "member patch deployments/scale",
    "member create deployments",
    "member patch deployments",
];

/// What a seed decides about its fleet.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an ingredient of its own"
)]
pub(super) struct Terms {
    /// Whether the replicas elect a leader; else there is one.
    elects: bool,
    assignment: Value,
    direct: bool,
    reassign: bool,
    sleeps: bool,
    placed: bool,
    /// Whether shares depend on nothing but the spec.
    pub(super) is_static: bool,
}

/// What a user does, with faults or without.
#[derive(Debug, Clone)]
enum Edit {
    Spec(Value),
    Delete,
    Create,
}

/// What happens to a member, or to the leader.
#[derive(Debug, Clone)]
pub(super) enum Upset {
    Host(story::Upset),
    Member(&'static str, Trouble),
    /// Whoever makes the first write of this kind is killed after it.
    Crash(&'static str),
    /// The first host is suspended, or goes on.
    Suspension(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    CutOff,
    Refused,
    Slow(u64),
    HalfOpen,
    Restart,
    /// One of several times that it is cut off for a moment.
    Flap,
    NoSecret,
    BadToken,
    Spoiled,
    Full,
    /// Somebody changes the maximum of its HPA.
    Drift,
    /// Another HPA has the same target.
    Foreign,
    Over(Ended),
}

/// What ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Way,
    Secret,
    Full,
    Foreign,
}

struct FleetScene {
    cluster: Cluster,
    story: Story,
    terms: Terms,
    /// The load of each member, or their sum, which all share.
    loads: Vec<(u64, [u64; 3])>,
    is_shared: bool,
    edits: Vec<(u64, Edit)>,
    upsets: Vec<(u64, Upset)>,
    laws: FleetLaws,
    /// The fleet as its users want it.
    fleet: Value,
    is_wanted: bool,
    /// When the workload is created in the members.
    deployed: u64,
    second: u64,
    /// Since which second a member is disturbed.
    disturbed: BTreeMap<String, u64>,
    /// Members of which only the Secret is missing, each with how often a process had been started by then.
    secretless: BTreeMap<String, u64>,
    /// How often processes were started again, and in which second the last was.
    restarted: (u64, u64),
    /// Whether a member was disturbed for longer than tolerated since the spec was changed last.
    has_failed: bool,
    /// The kinds of writes after which somebody is to be killed.
    armed: Vec<&'static str>,
    crashes: BTreeMap<&'static str, u64>,
}

// === impl Terms ===

impl Terms {
    fn new(seed: u64, dice: &mut Dice) -> Self {
        let weights = MEMBERS.map(|(name, _)| (name, 1 + dice.below(3)));
        let priorities = [("east", 3), ("north", 2), ("west", 1)];
        let policy = seed % 6;
        // One that is elected would end, and forget what it knows of members.
        let is_suspended = seed % Upset::KINDS == Upset::SUSPENSION;
        let assignment = match policy {
            0 | 1 => with_preferences("StaticWeighted", "staticWeight", &weights),
            2 => plain("DynamicWeighted"),
            3 => with_preferences("Prioritized", "priority", &priorities),
            4 => plain("Aggregated"),
            _ => plain("Duplicated"),
        };
        let sleeps = dice.below(3) == 0;
        Self {
            elects: dice.below(4) > 0 && !is_suspended,
            assignment,
            direct: dice.below(4) == 0,
            reassign: dice.below(2) == 0 || is_suspended,
            sleeps,
            placed: dice.below(4) == 0,
            is_static: policy < 2 || policy == 5,
        }
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
        world::fleet(SHOP, "", (3, 14), &more)
    }
}

/// What users do to the fleet.
fn edits(dice: &mut Dice, end: u64) -> Vec<(u64, Edit)> {
    let mut edits = Vec::new();
    for _edit in 0..2 {
        let at = 30 + dice.below(end - 70);
        let later = at + 10 + dice.below(end - 10 - at);
        let spec = |spec: Value| Edit::Spec(spec);
        let (one, other) = match dice.below(6) {
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
            _ => continue,
        };
        edits.extend([(at, one), (later, other)]);
    }
    edits
}

// === impl Upset ===

impl Upset {
    const KINDS: u64 = 15;
    const SUSPENSION: u64 = 13;
    const NAMES: [&str; 13] = [
        "member cut off",
        "member refused",
        "member slow",
        "member half-open",
        "member restarted",
        "member flaps",
        "no Secret",
        "bad token",
        "spoiled Secret",
        "member full",
        "drift",
        "suspension",
        "foreign HPA",
    ];

    /// An upset by its number, and what ends it, in seconds from the start.
    fn new(number: u64, dice: &mut Dice, end: u64) -> Vec<(u64, Self)> {
        let (at, member) = (
            5 + dice.below(end - 10),
            MEMBERS[dice.index(MEMBERS.len())].0,
        );
        let until = (at + 1 + dice.below(90)).min(end);
        let of = |trouble| Self::Member(member, trouble);
        let for_a_while =
            |trouble, ended| vec![(at, of(trouble)), (until, of(Trouble::Over(ended)))];
        match number % Self::KINDS {
            0 | 1 => for_a_while(Trouble::CutOff, Ended::Way),
            2 => for_a_while(Trouble::Refused, Ended::Way),
            3 => for_a_while(Trouble::Slow(dice.below(800)), Ended::Way),
            4 => vec![(at, of(Trouble::HalfOpen))],
            5 => vec![(at, of(Trouble::Restart))],
            6 => {
                let period = 4 + dice.below(8);
                let times = (at..until).step_by(usize::try_from(period).unwrap());
                times
                    .flat_map(|at| {
                        [
                            (at, of(Trouble::Flap)),
                            (at + period / 2, of(Trouble::Over(Ended::Way))),
                        ]
                    })
                    .collect()
            }
            7 | 8 => for_a_while(Trouble::NoSecret, Ended::Secret),
            9 => for_a_while(Trouble::BadToken, Ended::Secret),
            10 => for_a_while(Trouble::Spoiled, Ended::Secret),
            11 => for_a_while(Trouble::Full, Ended::Full),
            12 => vec![(at, of(Trouble::Drift))],
            14 => for_a_while(Trouble::Foreign, Ended::Foreign),
            // For longer than a silence is tolerated; and the member does not answer at once afterwards.
            Self::SUSPENSION => vec![
                (at.min(40), Self::Suspension(true)),
                (100, of(Trouble::CutOff)),
                (101, Self::Suspension(false)),
                (118, of(Trouble::Over(Ended::Way))),
            ],
            _ => Vec::new(),
        }
    }
}

// === impl Scene ===

impl Scene for FleetScene {
    type Upset = Upset;
    type Record = Value;

    const UPSETS: &'static [&'static str] = &Upset::NAMES;
    const SHARE: u64 = 20;
    const COVERS: u64 = 300;
    const HEALED: u64 = 150;
    const ALIVE: u64 = 220;
    const SETTLED: u64 = 330;
    const END: u64 = 360;

    fn rate(_seed: u64) -> u64 {
        30
    }

    fn new(seed: u64, plan: Plan) -> Self {
        let mut dice = Dice::new(seed ^ 0xF1EE7);
        let terms = Terms::new(seed, &mut dice);
        let mut cluster = Cluster::fleet(seed, plan, &MEMBERS);
        cluster.elects = terms.elects;
        if terms.placed {
            cluster.deploy(HUB, 0);
        }
        let deployed = dice.below(2) * 12;
        let hosts = if terms.elects {
            &HOSTS[..]
        } else {
            &HOSTS[..1]
        };
        let story = Story::new(seed, &[SHOP], hosts, Self::HEALED);
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
        let edits = edits(&mut dice, Self::HEALED);
        // Each kind is the first of some seeds.
        let mut upsets = Upset::new(seed, &mut dice, Self::HEALED);
        for _more in 0..dice.below(4) {
            let number = dice.below(Upset::KINDS);
            upsets.extend(Upset::new(number, &mut dice, Self::HEALED));
        }
        if dice.below(2) == 0 {
            let kind = WRITES[usize::try_from(seed / 2).unwrap() % WRITES.len()];
            upsets.push((10 + dice.below(Self::HEALED - 30), Upset::Crash(kind)));
        }
        for (host, ahead) in hosts.iter().zip(story.ahead.clone()) {
            cluster.start_ahead(host, ahead);
        }
        cluster.evenly(3_000);
        let fleet = terms.fleet();
        Self {
            cluster,
            story,
            terms,
            loads,
            is_shared,
            edits,
            upsets,
            laws: FleetLaws::default(),
            fleet,
            is_wanted: true,
            deployed,
            second: 0,
            disturbed: BTreeMap::new(),
            secretless: BTreeMap::new(),
            restarted: (0, 0),
            has_failed: false,
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

    fn upsets_at(&self, second: u64) -> Vec<(usize, Upset)> {
        let of_hosts = self.story.upsets_at(second).into_iter();
        let mut upsets: Vec<_> = of_hosts
            .map(|(number, upset)| (number, Upset::Host(upset)))
            .collect();
        let others = self
            .upsets
            .iter()
            .enumerate()
            .filter(|(_, (at, _))| *at == second);
        upsets.extend(others.map(|(number, (_, upset))| (1_000 + number, upset.clone())));
        upsets
    }

    fn kind_of(upset: &Upset) -> Option<&'static str> {
        let trouble = match upset {
            Upset::Host(upset) => return upset.name(),
            Upset::Crash(_) | Upset::Suspension(false) => return None,
            Upset::Suspension(true) => return Some(Upset::NAMES[11]),
            Upset::Member(_, trouble) => trouble,
        };
        let kind = match trouble {
            Trouble::CutOff => 0,
            Trouble::Refused => 1,
            Trouble::Slow(_) => 2,
            Trouble::HalfOpen => 3,
            Trouble::Restart => 4,
            Trouble::Flap => 5,
            Trouble::NoSecret => 6,
            Trouble::BadToken => 7,
            Trouble::Spoiled => 8,
            Trouble::Full => 9,
            Trouble::Drift => 10,
            Trouble::Foreign => 12,
            Trouble::Over(_) => return None,
        };
        Some(Upset::NAMES[kind])
    }

    fn happen(&mut self, upset: &Upset) {
        match upset {
            Upset::Host(upset) => upset.happen(&mut self.cluster),
            Upset::Crash(kind) => self.armed.push(kind),
            Upset::Suspension(true) => self.cluster.pause(HOSTS[0]),
            Upset::Suspension(false) => self.cluster.resume(HOSTS[0]),
            Upset::Member(member, trouble) => self.trouble(member, *trouble),
        }
    }

    fn heal(&mut self) {
        self.armed.clear();
        self.cluster.heal();
        for (member, _) in MEMBERS {
            for ended in [Ended::Way, Ended::Secret, Ended::Full, Ended::Foreign] {
                self.trouble(member, Trouble::Over(ended));
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
        // Once the deletion of another one is over.
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
        self.has_failed |=
            self.terms.reassign && disturbed.values().any(|seconds| *seconds > FAILED);
        if self.restarted.0 != self.cluster.restarts() {
            self.restarted = (self.cluster.restarts(), second);
        }
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
        self.laws.check(&known)
    }

    /// What was due is done soon after the last fault.
    fn check_alive(&self) -> Result<(), String> {
        let (ready, most) = (self.cluster.serving(), self.most());
        let needed = needed(self.cluster.load.at(SHOP, self.cluster.now())).min(most);
        let has_fleet = most < u64::MAX;
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

    /// The conditions, the shares that follow from the spec alone, and whether as many pods are ready as the load asks for.
    fn record(&self) -> Value {
        let status = self.cluster.fleet_status();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let conditions: Vec<_> = conditions
            .map(|one| json!([one["type"], one["status"], one["reason"]]))
            .collect();
        let bounds = self.cluster.bounds();
        let maxima: BTreeMap<_, _> = bounds.iter().map(|(name, (_, max))| (name, max)).collect();
        let shares = if self.terms.is_static {
            json!(maxima)
        } else {
            json!(maxima.values().copied().sum::<u64>())
        };
        let load = self.cluster.load.at(SHOP, self.cluster.now());
        let ready = self.cluster.serving();
        if !self.is_shared {
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

    fn compare(_seed: u64, record: &Value, undisturbed: &Value) -> Result<(), String> {
        if record == undisturbed {
            return Ok(());
        }
        Err(format!("end: {record}, and without faults {undisturbed}"))
    }
}

impl FleetScene {
    /// How many replicas the fleet may run; without a fleet, any number.
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
            Edit::Delete => {
                self.is_wanted = false;
                self.cluster.try_with_fleet("DELETE", &Value::Null);
            }
            Edit::Create => self.is_wanted = true,
        }
        self.has_failed = false;
    }

    fn trouble(&mut self, member: &str, trouble: Trouble) {
        let cluster = &self.cluster;
        self.secretless.remove(member);
        // Since then all processes have connected.
        if trouble == Trouble::NoSecret
            && self.second >= self.restarted.1 + 40
            && !self.disturbed.contains_key(member)
        {
            self.secretless
                .insert(member.to_owned(), cluster.restarts());
        }
        match trouble {
            Trouble::CutOff | Trouble::Flap => cluster.block(member),
            Trouble::Refused => cluster.reach_member(member, Way::Refused),
            Trouble::Slow(millis) => {
                cluster.reach_member(member, Way::Open(Duration::from_millis(millis)));
            }
            Trouble::HalfOpen => cluster
                .hosts()
                .iter()
                .for_each(|host| cluster.network().strand(host, member)),
            Trouble::Restart => {
                cluster.site(member).compact();
                cluster
                    .hosts()
                    .iter()
                    .for_each(|host| cluster.network().reset(host, member));
            }
            Trouble::NoSecret => cluster.forget(member),
            Trouble::BadToken => cluster.rotate(member, "unknown"),
            Trouble::Spoiled => cluster.spoil(member),
            Trouble::Full => cluster.cordon(member, true),
            Trouble::Drift => cluster.drift(member),
            Trouble::Foreign => cluster.foreign_hpa(member, true),
            Trouble::Over(Ended::Foreign) => cluster.foreign_hpa(member, false),
            Trouble::Over(Ended::Way) => cluster.unblock(member),
            Trouble::Over(Ended::Secret) => {
                cluster.join(member, &json!({}));
                cluster.rotate(member, &token(member));
            }
            Trouble::Over(Ended::Full) => cluster.cordon(member, false),
        }
        match trouble {
            Trouble::Over(_) if !self.is_disturbed(member) => {
                self.disturbed.remove(member);
            }
            _ => {
                let since = self
                    .disturbed
                    .entry(member.to_owned())
                    .or_insert(self.second);
                *since = (*since).min(self.second);
            }
        }
    }

    /// Whether something of a member is not as it should be.
    fn is_disturbed(&self, member: &str) -> bool {
        let is_open =
            |host: &String| self.cluster.network().way(host, member) == Way::Open(Duration::ZERO);
        !self.cluster.hosts().iter().all(is_open) || !self.cluster.is_joined(member)
    }

    /// A second in which whoever makes a write of an armed kind is killed.
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
    seeds::play::<FleetScene>();
}

#[test]
fn a_seed_of_a_fleet_runs_twice_in_the_same_way() {
    seeds::play_twice::<FleetScene>();
}
