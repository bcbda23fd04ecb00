//! Events in one cluster by a seed: loads that change, users who edit, and disruptions of the hosts.

use std::time::Duration;

use serde_json::{Value, json};
use simkube::network::Way;

use crate::cluster::{Cluster, HUB, MAX, SHOP, Stop, TENANT};

/// Number of large objects that a tenant stores.
const LARGE: usize = 40;
/// Seconds before the end of a host's silence at which loads show whether it acts.
const SHOWN: u64 = 25;

/// Disruption of a host for some seconds.
#[derive(Debug, Clone)]
pub(crate) struct Disruption {
    host: String,
    kind: Kind,
    seconds: u64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Crash,
    Terminate,
    /// Paused after this many turns.
    Pause(u32),
    CutOff,
    Refused,
    Slow(Duration),
    HalfOpen,
    Reset,
    /// The API server forgets its history.
    Compaction,
    /// A host, or all of them, see the cluster as it was: watches are silent, and lists do not end.
    Stale,
    /// Stopped after this many more readings of its clocks.
    StoppedReading(u32),
    /// A tenant stores objects so large that no usual page has all of them.
    LargeObjects,
    /// The metrics of pods are this many seconds old.
    OldMetrics(u64),
    /// The API server is backed up, and goes on from the backup.
    BackUp,
    Restore,
    Over(Ended),
}

/// Disruption that ends by itself.
#[derive(Debug, Clone, Copy)]
enum Ended {
    Pause,
    Way,
    Stale,
    OldMetrics,
}

/// Edit of an app by a user.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    /// A change of the spec of its autoscaler.
    Spec(Value),
    /// `kubectl scale`.
    Scale(u64),
    /// The Deployment is deleted and created again.
    Recreated,
    /// The Deployment is created again with a container that has no request.
    WithoutRequest,
}

/// Pods that an app needs from a second on.
type Needs = Vec<(u64, String, u64)>;

/// All decisions of a seed, in seconds from its start.
pub(crate) struct Schedule {
    needs: Needs,
    edits: Vec<(u64, String, Edit)>,
    disruptions: Vec<(u64, Disruption)>,
    /// Seconds by which the clock of each host is ahead.
    pub(crate) ahead: Vec<i64>,
}

/// Random numbers of a seed: `SplitMix64`.
pub(crate) struct Dice(u64);

// === impl Dice ===

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.index(all.len())]
    }
}

// === impl Disruption ===

impl Disruption {
    pub(crate) const NAMES: [&str; 14] = [
        "crash",
        "terminate",
        "pause",
        "cut off",
        "refused way",
        "slow",
        "half-open",
        "reset",
        "compacted",
        "stale",
        "stopped while reading clocks",
        "large objects",
        "old metrics",
        "restored",
    ];

    /// Returns the kind; none for a disruption that only ends another one.
    pub(crate) fn name(&self) -> Option<&'static str> {
        let kind = match self.kind {
            Kind::Crash => 0,
            Kind::Terminate => 1,
            Kind::Pause(_) => 2,
            Kind::CutOff => 3,
            Kind::Refused => 4,
            Kind::Slow(_) => 5,
            Kind::HalfOpen => 6,
            Kind::Reset => 7,
            Kind::Compaction => 8,
            Kind::Stale => 9,
            Kind::StoppedReading(_) => 10,
            Kind::LargeObjects => 11,
            Kind::OldMetrics(_) => 12,
            Kind::Restore => 13,
            Kind::BackUp | Kind::Over(_) => return None,
        };
        Some(Self::NAMES[kind])
    }

    fn any(dice: &mut Dice, hosts: &[&str]) -> Self {
        let kind = match dice.below(10) {
            0 => Kind::Crash,
            1 => Kind::Terminate,
            2 => Kind::Pause(u32::try_from(dice.below(200)).unwrap()),
            3 => Kind::CutOff,
            4 => Kind::Refused,
            5 => Kind::Slow(Duration::from_millis(dice.below(2_000))),
            6 => Kind::HalfOpen,
            7 => Kind::Reset,
            8 => return Self::stopped_reading(dice, hosts),
            _ => Kind::Compaction,
        };
        Self {
            host: dice.one_of(hosts).to_owned(),
            kind,
            seconds: 1 + dice.below(40),
        }
    }

    /// A stop that is longer than a lease.
    fn stopped_reading(dice: &mut Dice, hosts: &[&str]) -> Self {
        Self {
            host: dice.one_of(hosts).to_owned(),
            kind: Kind::StoppedReading(u32::try_from(dice.below(300)).unwrap()),
            seconds: 18 + dice.below(20),
        }
    }

    /// A silence of one host, or of all.
    fn stale(dice: &mut Dice, hosts: &[&str], seconds: u64) -> Self {
        let host = dice.index(3).checked_sub(1);
        Self {
            host: host.map_or("", |host| hosts[host % hosts.len()]).to_owned(),
            kind: Kind::Stale,
            seconds,
        }
    }

    pub(crate) fn happen(&self, cluster: &mut Cluster) {
        let host = &*self.host;
        match self.kind {
            Kind::Crash => cluster.crash(host, self.seconds),
            Kind::Terminate => cluster.terminate(host),
            Kind::Pause(turns) => cluster.stop_after(host, turns),
            Kind::CutOff => cluster.reach(host, Way::Blocked),
            Kind::Refused => cluster.reach(host, Way::Refused),
            Kind::Slow(latency) => cluster.reach(host, Way::Open(latency)),
            Kind::HalfOpen => cluster.strand(host),
            Kind::Reset => cluster.network().reset(host, HUB),
            Kind::Compaction => cluster.server.compact(),
            Kind::Stale => cluster.hold(host),
            Kind::StoppedReading(readings) => {
                let stop = Stop {
                    readings,
                    is_inside: readings.is_multiple_of(2),
                    span: Duration::from_secs(self.seconds),
                };
                cluster.stop_reading(host, stop);
            }
            Kind::LargeObjects => {
                (0..LARGE).for_each(|number| cluster.large_deployment(TENANT, number));
                cluster.server.compact();
            }
            Kind::OldMetrics(age) => cluster.age_metrics(age),
            Kind::BackUp => cluster.back_up(),
            Kind::Restore => cluster.restore(),
            Kind::Over(Ended::OldMetrics) => cluster.age_metrics(0),
            Kind::Over(Ended::Stale) => cluster.release(host),
            Kind::Over(Ended::Pause) => cluster.resume(host),
            Kind::Over(Ended::Way) => cluster.reach(host, Way::Open(Duration::ZERO)),
        }
    }

    /// Returns the disruption that undoes this one.
    fn over(&self) -> Option<Self> {
        let kind = match self.kind {
            Kind::Pause(_) => Kind::Over(Ended::Pause),
            Kind::CutOff | Kind::Refused | Kind::Slow(_) => Kind::Over(Ended::Way),
            Kind::Stale => Kind::Over(Ended::Stale),
            Kind::OldMetrics(_) => Kind::Over(Ended::OldMetrics),
            _ => return None,
        };
        Some(Self {
            kind,
            ..self.clone()
        })
    }
}

// === impl Edit ===

impl Edit {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(9) {
            0 => Self::Scale(1 + dice.below(14)),
            1 => Self::Recreated,
            8 => Self::WithoutRequest,
            2 => Self::Spec(json!({"scaleStrategy": "Preview"})),
            3 | 4 => Self::Spec(json!({"scaleStrategy": "Auto"})),
            5 => Self::Spec(json!({"maxReplicas": -1})),
            _ => {
                let least = 1 + dice.below(4);
                Self::Spec(json!({"minReplicas": least, "maxReplicas": MAX - dice.below(6)}))
            }
        }
    }

    pub(crate) fn make(&self, cluster: &mut Cluster, app: &str) {
        match self {
            Self::Spec(spec) => cluster.edit_in(SHOP, app, spec),
            Self::Scale(count) => cluster.scale_by_hand(app, *count),
            Self::Recreated => cluster.recreate(app),
            Self::WithoutRequest => cluster.recreate_without_request(app),
        }
    }
}

// === impl Schedule ===

impl Schedule {
    /// The loads and disruptions of this many seconds.
    pub(crate) fn new(seed: u64, apps: &[&str], hosts: &[&str], seconds: u64) -> Self {
        let mut dice = Dice(seed);
        let (mut needs, mut disruptions) = (Vec::new(), Vec::new());
        for _change in 0..6 {
            let at = dice.below(seconds - 40);
            needs.push((at, dice.one_of(apps).to_owned(), 1 + dice.below(14)));
        }
        let mut edits = Vec::new();
        if seed.is_multiple_of(2) {
            edits = Self::edits(&mut dice, apps, seconds);
        }
        let (of_loads, of_cluster) = Self::of_cluster(seed, &mut dice, hosts, seconds);
        needs.extend(of_loads);
        disruptions.extend(of_cluster);
        needs.sort();
        for _disruption in 0..6 {
            let (at, disruption) = (
                5 + dice.below(seconds - 10),
                Disruption::any(&mut dice, hosts),
            );
            // Decisions from before a pause are sent after it.
            if matches!(disruption.kind, Kind::Pause(_) | Kind::Slow(_)) {
                edits.push((at + 1, dice.one_of(apps).to_owned(), Edit::Recreated));
            }
            let over = disruption
                .over()
                .map(|over| ((at + disruption.seconds).min(seconds), over));
            disruptions.push((at, disruption));
            disruptions.extend(over);
        }
        let ahead = hosts
            .iter()
            .map(|_| i64::try_from(dice.below(5)).unwrap() - 2)
            .collect();
        let is_stale = |(_, disruption): &(u64, Disruption)| matches!(disruption.kind, Kind::Stale);
        let has_stale = disruptions.iter().any(is_stale);
        let mut schedule = Self {
            needs,
            edits,
            disruptions,
            ahead,
        };
        if has_stale {
            schedule.leave_alone("api", seconds - SHOWN);
        }
        schedule
    }

    /// Edits of a user, and those that undo them in the end.
    fn edits(dice: &mut Dice, apps: &[&str], seconds: u64) -> Vec<(u64, String, Edit)> {
        let mut edits = Vec::new();
        for _edit in 0..4 {
            let at = dice.below(seconds - 10);
            edits.push((at, dice.one_of(apps).to_owned(), Edit::any(dice)));
        }
        let regular = json!({"minReplicas": 1, "maxReplicas": MAX, "scaleStrategy": "Auto"});
        for app in apps {
            let edit = Edit::Spec(regular.clone());
            edits.push((seconds - 10, (*app).to_owned(), edit));
            let lacks = |(_, of, edit): &(u64, String, Edit)| {
                of == app && matches!(edit, Edit::WithoutRequest)
            };
            if edits.iter().any(lacks) {
                edits.push((seconds - 10, (*app).to_owned(), Edit::Recreated));
            }
        }
        edits
    }

    /// Keeps an app free of events until a second: a write by an old copy of an object that has changed since is
    /// refused.
    fn leave_alone(&mut self, app: &str, until: u64) {
        self.needs.retain(|(at, of, _)| *at >= until || of != app);
        self.edits.retain(|(at, of, _)| *at >= until || of != app);
    }

    /// Events of the whole cluster, and the loads that show the reaction of a replica.
    fn of_cluster(
        seed: u64,
        dice: &mut Dice,
        hosts: &[&str],
        seconds: u64,
    ) -> (Needs, Vec<(u64, Disruption)>) {
        let of_all = |kind| Disruption {
            host: String::new(),
            kind,
            seconds,
        };
        let (shown, disruptions) = match seed % 16 {
            0 | 4 | 8 | 12 => {
                let (at, stale) = (5 + dice.below(10), Disruption::stale(dice, hosts, seconds));
                (seconds - SHOWN, vec![(at, stale)])
            }
            5 | 13 => {
                let (at, old) = (10 + dice.below(40), 95 + dice.below(60));
                (at + 30, vec![(at, of_all(Kind::OldMetrics(old)))])
            }
            6 | 14 => {
                let at = 5 + dice.below(40);
                let restored = at + 10 + dice.below(30);
                let both = [(at, Kind::BackUp), (restored, Kind::Restore)];
                let disruptions = both.map(|(at, kind)| (at, of_all(kind)));
                (restored + 20, disruptions.into())
            }
            3 => (0, vec![(dice.below(60), of_all(Kind::LargeObjects))]),
            _ => (0, Vec::new()),
        };
        let overs = disruptions
            .iter()
            .filter_map(|(_, disruption)| disruption.over());
        let overs: Vec<_> = overs.map(|over| (seconds, over)).collect();
        let apps = ["api", "batch"].iter().filter(|_| shown > 0);
        let needs = apps.zip([shown, shown + 10]);
        let needs = needs.map(|(app, at)| (at, (*app).to_owned(), 1 + dice.below(14)));
        let needs = needs.collect();
        (needs, [disruptions, overs].concat())
    }

    /// Apps with the number of pods that they need from this second on.
    pub(crate) fn needs_at(&self, second: u64) -> impl Iterator<Item = (&str, u64)> {
        let now = self.needs.iter().filter(move |(at, _, _)| *at == second);
        now.map(|(_, app, pods)| (&**app, *pods))
    }

    /// Edits of users in this second.
    pub(crate) fn edits_at(&self, second: u64) -> impl Iterator<Item = (&str, &Edit)> {
        let now = self.edits.iter().filter(move |(at, _, _)| *at == second);
        now.map(|(_, app, edit)| (&**app, edit))
    }

    /// Disruptions in this second, with their numbers.
    pub(crate) fn disruptions_at(&self, second: u64) -> Vec<(usize, Disruption)> {
        let all = self.disruptions.iter().enumerate();
        let now = all.filter(|(_, (at, _))| *at == second);
        now.map(|(number, (_, disruption))| (number, disruption.clone()))
            .collect()
    }
}
