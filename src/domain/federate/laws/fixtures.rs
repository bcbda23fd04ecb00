//! Fleets for tests: policies and members in few words, and a generator of random numbers.

use jiff::{SignedDuration, Timestamp};

use crate::domain::federate::{
    Affinity, Entry, FleetDecision, Kind, Ledger, Member, Pods, Policy, Preference, Profile, Total,
    decide,
};
use crate::domain::workload::Mode;
use crate::domain::{ReplicaBounds, Replicas};

pub(super) const PERIOD: i64 = 30;

/// `seconds` after the beginning.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
}

pub(super) fn n(count: u32) -> Replicas {
    Replicas::new(count)
}

pub(super) fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

pub(super) fn policy(kind: Kind, min: u32, max: u32) -> Policy {
    Policy {
        period: secs(PERIOD),
        ..Policy::new(kind, ReplicaBounds::new(n(min), n(max)))
    }
}

/// What is preferred for one cluster.
pub(super) fn prefer(name: &str) -> Preference {
    Preference {
        targets: only(name),
        ..Preference::default()
    }
}

pub(super) fn only(name: &str) -> Affinity {
    Affinity {
        names: vec![name.to_owned()],
        ..Affinity::default()
    }
}

/// A healthy member with so many ready pods, no autoscaler yet, and a capacity that is not known.
pub(super) fn member(name: &str, replicas: u32) -> Member {
    Member {
        profile: Profile {
            name: name.to_owned(),
            ..Profile::default()
        },
        pods: Some(Pods {
            replicas: n(replicas),
            ready: n(replicas),
            unschedulable: n(0),
            unschedulable_since: None,
        }),
        ..Member::default()
    }
}

/// A ledger in which everybody has a budget since long.
pub(super) fn ledger(budgets: &[(&str, u32, u32)]) -> Ledger {
    let entry = |(name, min, max): &(&str, u32, u32)| {
        let entry = Entry {
            min: n(*min),
            max: n(*max),
            written: n(*max),
            ..Entry::default()
        };
        ((*name).to_owned(), entry)
    };
    Ledger {
        generation: Some(1),
        members: budgets.iter().map(entry).collect(),
        ..Ledger::default()
    }
}

/// What a fleet does, one hub period after the other, with each decision carried out in the members' autoscalers.
pub(super) struct Hub {
    pub(super) policy: Policy,
    pub(super) total: Total,
    pub(super) members: Vec<Member>,
    pub(super) ledger: Ledger,
    pub(super) now: Timestamp,
}

impl Hub {
    pub(super) fn new(policy: Policy, members: Vec<Member>, ledger: Ledger) -> Self {
        let bounds = |name: &str| {
            let entry = ledger.members.get(name);
            entry.filter(|e| e.max > n(0)).map(|e| (e.min, e.max))
        };
        let members = members.into_iter().map(|mut member| {
            member.hpa = bounds(&member.profile.name);
            member
        });
        Self {
            members: members.collect(),
            policy,
            total: Total::default(),
            ledger,
            now: at(0),
        }
    }

    /// Decides, and writes what was decided; pods are the test's business.
    pub(super) fn step(&mut self) -> FleetDecision {
        let total = Total {
            desired: self.total.desired.or(self.lasting()),
            ..self.total
        };
        let (decision, ledger) =
            decide(&self.policy, &total, &self.members, &self.ledger, self.now);
        self.ledger = ledger;
        for at in &decision.order {
            let decided = &decision.members[*at];
            let named = |m: &&mut Member| m.profile.name == decided.name;
            let member = self.members.iter_mut().find(named).expect("a member");
            member.hpa = (decided.max > n(0)).then_some((decided.min, decided.max));
            if let (Some(pods), Some(replicas)) = (member.pods.as_mut(), decided.replicas) {
                pods.replicas = replicas;
            }
        }
        self.now = self.now.checked_add(secs(PERIOD)).expect("a time");
        decision
    }

    /// Delegated: the count that one autoscaler has come to under what is asked for now, if that is known and has been
    /// asked for longer than any window.
    fn lasting(&self) -> Option<Replicas> {
        let each = self.members.iter().map(|member| member.demand);
        let demand = self.total.demand.or(each.sum::<Option<f64>>())?;
        let asked = Replicas::from_f64_ceil(demand).max(self.total.floor.unwrap_or_default());
        let delegates = self.policy.mode == Mode::Delegated;
        delegates.then(|| self.policy.bounds.clamp(asked))
    }

    pub(super) fn member(&mut self, name: &str) -> &mut Member {
        let named = |m: &&mut Member| m.profile.name == name;
        self.members.iter_mut().find(named).expect("a member")
    }

    /// Sets spec, ready and unschedulable pods; those that are not ready are unschedulable since the beginning.
    pub(super) fn pods(&mut self, name: &str, replicas: u32, unschedulable: u32) {
        self.member(name).pods = Some(Pods {
            replicas: n(replicas),
            ready: n(replicas - unschedulable),
            unschedulable: n(unschedulable),
            unschedulable_since: (unschedulable > 0).then(|| at(-75)),
        });
    }

    /// Name, min and max of everybody with a budget.
    pub(super) fn budgets(&self) -> Vec<(&str, u32, u32)> {
        let all = self.ledger.members.iter();
        let held = all.filter(|(_, entry)| entry.max > n(0));
        held.map(|(name, entry)| (name.as_str(), entry.min.get(), entry.max.get()))
            .collect()
    }
}

/// A small generator of random numbers (SplitMix64): the same seed gives the same numbers for ever.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x51_7c_c1_b7_27_22_0a_95)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number for a generator beside this one, which goes on as if nothing had been drawn.
    pub(super) fn peek(&self) -> u64 {
        self.0
    }

    /// From `min` to `max`, both possible.
    pub(super) fn within(&mut self, min: u32, max: u32) -> u32 {
        let span = u64::from(max - min) + 1;
        min + u32::try_from(self.next() % span).expect("within the span")
    }

    /// True in one of `times` cases.
    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.within(1, times) == 1
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.next() % of.len() as u64).expect("an index")]
    }

    /// From 0 up to 1.
    pub(super) fn unit(&mut self) -> f64 {
        f64::from(self.within(0, 1_000_000)) / 1_000_001.0
    }
}
