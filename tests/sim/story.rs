//! What a seed tells of: loads that change, and upsets of the hosts.

use std::time::Duration;

use simkube::network::Way;

use crate::cluster::{Cluster, HUB};

/// What happens to a host, for so many seconds.
#[derive(Debug, Clone)]
pub(crate) struct Upset {
    host: String,
    kind: Kind,
    seconds: u64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Crash,
    Terminate,
    /// Paused after so many turns.
    Pause(u32),
    CutOff,
    Refused,
    Slow(Duration),
    HalfOpen,
    Reset,
    /// The API server forgets its history.
    Compaction,
    Over(Ended),
}

/// What ends by itself.
#[derive(Debug, Clone, Copy)]
enum Ended {
    Pause,
    Way,
}

/// Everything that a seed tells, in seconds from its start.
pub(crate) struct Story {
    needs: Vec<(u64, String, u64)>,
    upsets: Vec<(u64, Upset)>,
    /// By how many seconds the clock of each host is ahead.
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

// === impl Upset ===

impl Upset {
    pub(crate) const NAMES: [&str; 9] = [
        "crash",
        "terminate",
        "pause",
        "cut off",
        "refused way",
        "slow",
        "half-open",
        "reset",
        "compacted",
    ];

    /// Its kind; none of what only ends another one.
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
            Kind::Over(_) => return None,
        };
        Some(Self::NAMES[kind])
    }

    fn any(dice: &mut Dice, hosts: &[&str]) -> Self {
        let kind = match dice.below(9) {
            0 => Kind::Crash,
            1 => Kind::Terminate,
            2 => Kind::Pause(u32::try_from(dice.below(200)).unwrap()),
            3 => Kind::CutOff,
            4 => Kind::Refused,
            5 => Kind::Slow(Duration::from_millis(dice.below(2_000))),
            6 => Kind::HalfOpen,
            7 => Kind::Reset,
            _ => Kind::Compaction,
        };
        Self {
            host: dice.one_of(hosts).to_owned(),
            kind,
            seconds: 1 + dice.below(40),
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
            Kind::HalfOpen => cluster.network().strand(host, HUB),
            Kind::Reset => cluster.network().reset(host, HUB),
            Kind::Compaction => cluster.server.compact(),
            Kind::Over(Ended::Pause) => cluster.resume(host),
            Kind::Over(Ended::Way) => cluster.reach(host, Way::Open(Duration::ZERO)),
        }
    }

    /// What undoes it.
    fn over(&self) -> Option<Self> {
        let kind = match self.kind {
            Kind::Pause(_) => Kind::Over(Ended::Pause),
            Kind::CutOff | Kind::Refused | Kind::Slow(_) => Kind::Over(Ended::Way),
            _ => return None,
        };
        Some(Self {
            kind,
            ..self.clone()
        })
    }
}

// === impl Story ===

impl Story {
    /// The loads and upsets of so many seconds.
    pub(crate) fn new(seed: u64, apps: &[&str], hosts: &[&str], seconds: u64) -> Self {
        let mut dice = Dice(seed);
        let (mut needs, mut upsets) = (Vec::new(), Vec::new());
        for _change in 0..6 {
            let at = dice.below(seconds - 40);
            needs.push((at, dice.one_of(apps).to_owned(), 1 + dice.below(14)));
        }
        needs.sort();
        for _upset in 0..6 {
            let (at, upset) = (5 + dice.below(seconds - 10), Upset::any(&mut dice, hosts));
            let over = upset
                .over()
                .map(|over| ((at + upset.seconds).min(seconds), over));
            upsets.push((at, upset));
            upsets.extend(over);
        }
        let ahead = hosts
            .iter()
            .map(|_| i64::try_from(dice.below(5)).unwrap() - 2)
            .collect();
        Self {
            needs,
            upsets,
            ahead,
        }
    }

    /// Which apps need how many pods from this second on.
    pub(crate) fn needs_at(&self, second: u64) -> impl Iterator<Item = (&str, u64)> {
        let now = self.needs.iter().filter(move |(at, _, _)| *at == second);
        now.map(|(_, app, pods)| (&**app, *pods))
    }

    /// What happens in this second, with its number.
    pub(crate) fn upsets_at(&self, second: u64) -> Vec<(usize, Upset)> {
        let all = self.upsets.iter().enumerate();
        let now = all.filter(|(_, (at, _))| *at == second);
        now.map(|(number, (_, upset))| (number, upset.clone()))
            .collect()
    }
}
