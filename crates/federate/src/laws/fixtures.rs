//! Fixtures: policies, members, a hub that applies decisions, and a generator of random numbers.

use jiff::{SignedDuration, Timestamp};

use crate::{
    Affinity, AssignmentKind, Entry, FleetDecision, Ledger, Member, MemberDecision, Pods, Policy,
    Preference, Profile, Total, decide,
};
use foretide_domain::workload::Mode;
use foretide_domain::{ReplicaBounds, Replicas};

pub const PERIOD: i64 = 30;

pub const KINDS: [AssignmentKind; 5] = [
    AssignmentKind::Duplicated,
    AssignmentKind::Aggregated,
    AssignmentKind::StaticWeighted,
    AssignmentKind::DynamicWeighted,
    AssignmentKind::Prioritized,
];

/// `seconds` after the start of a test.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
}

pub fn n(count: u32) -> Replicas {
    Replicas::new(count)
}

pub fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

pub fn policy(kind: AssignmentKind, min: u32, max: u32) -> Policy {
    Policy {
        period: secs(PERIOD),
        ..Policy::new(kind, ReplicaBounds::new(n(min), n(max)))
    }
}

/// An empty preference for one cluster.
pub fn prefer(name: &str) -> Preference {
    Preference {
        targets: only(name),
        ..Preference::default()
    }
}

/// Preferences for clusters with these priorities.
pub fn priorities(of: &[(&str, i64)]) -> Vec<Preference> {
    let all = of.iter().map(|(name, priority)| Preference {
        priority: Some(*priority),
        ..prefer(name)
    });
    all.collect()
}

pub fn only(name: &str) -> Affinity {
    Affinity {
        names: vec![name.to_owned()],
        ..Affinity::default()
    }
}

/// A healthy member with this many ready pods, no autoscaler, and an unknown capacity.
pub fn member(name: &str, replicas: u32) -> Member {
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

/// A ledger in which every member has had its budget for a long time.
pub fn ledger(budgets: &[(&str, u32, u32)]) -> Ledger {
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

/// A hub that decides once per period and applies each decision to the members' autoscalers.
pub struct Hub {
    pub policy: Policy,
    pub total: Total,
    pub members: Vec<Member>,
    pub ledger: Ledger,
    pub now: Timestamp,
}

impl Hub {
    pub fn new(policy: Policy, members: Vec<Member>, ledger: Ledger) -> Self {
        let bounds = |name: &str| {
            let entry = ledger.members.get(name);
            entry
                .filter(|e| e.max > n(0))
                .map(|e| ReplicaBounds::new(e.min, e.max))
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

    /// Decides and applies the decision; the test changes pods.
    pub fn step(&mut self) -> FleetDecision {
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
            member.hpa =
                (decided.max > n(0)).then_some(ReplicaBounds::new(decided.min, decided.max));
            if let (Some(pods), Some(replicas)) = (member.pods.as_mut(), decided.replicas) {
                pods.replicas = replicas;
            }
        }
        self.now = self.now.checked_add(secs(PERIOD)).expect("a time");
        decision
    }

    /// The decision about one member in the next step.
    pub fn decided(&mut self, name: &str) -> MemberDecision {
        let decision = self.step();
        decision.member(name).expect("a member").clone()
    }

    /// In Delegated, the count of a reference autoscaler after its windows, if the demand is known.
    fn lasting(&self) -> Option<Replicas> {
        let each = self.members.iter().map(|member| member.demand);
        let demand = self.total.demand.or(each.sum::<Option<f64>>())?;
        let requested = Replicas::from_f64_ceil(demand).max(self.total.floor.unwrap_or_default());
        let delegates = self.policy.mode == Mode::Delegated;
        delegates.then(|| self.policy.bounds.clamp(requested))
    }

    /// What the ledger holds of a member.
    pub fn entry(&mut self, name: &str) -> &mut Entry {
        self.ledger.members.get_mut(name).expect("an entry")
    }

    pub fn member(&mut self, name: &str) -> &mut Member {
        let named = |m: &&mut Member| m.profile.name == name;
        self.members.iter_mut().find(named).expect("a member")
    }

    /// Sets replicas, ready and unschedulable pods; the latter have been unschedulable since before the start.
    pub fn pods(&mut self, name: &str, replicas: u32, unschedulable: u32) {
        self.member(name).pods = Some(Pods {
            replicas: n(replicas),
            ready: n(replicas - unschedulable),
            unschedulable: n(unschedulable),
            unschedulable_since: (unschedulable > 0).then(|| at(-75)),
        });
    }

    /// Name, minimum and maximum of every member with a budget.
    pub fn budgets(&self) -> Vec<(&str, u32, u32)> {
        let all = self.ledger.members.iter();
        let held = all.filter(|(_, entry)| entry.max > n(0));
        held.map(|(name, entry)| (name.as_str(), entry.min.get(), entry.max.get()))
            .collect()
    }
}

/// A small generator of random numbers (SplitMix64): the same seed always gives the same numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x51_7c_c1_b7_27_22_0a_95)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A seed for another generator; the numbers of this one do not change.
    pub fn peek(&self) -> u64 {
        self.0
    }

    /// From `min` to `max`, inclusive.
    pub fn within(&mut self, min: u32, max: u32) -> u32 {
        let span = u64::from(max - min) + 1;
        min + u32::try_from(self.next() % span).expect("within the span")
    }

    /// True in one of `times` cases.
    pub fn one_in(&mut self, times: u32) -> bool {
        self.within(1, times) == 1
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.next() % of.len() as u64).expect("an index")]
    }

    /// At least 0 and less than 1.
    pub fn unit(&mut self) -> f64 {
        f64::from(self.within(0, 1_000_000)) / 1_000_001.0
    }
}

/// A violated law and the details.
#[derive(Debug)]
pub struct Violation {
    pub law: &'static str,
    pub how: String,
}

pub fn violation(law: &'static str, how: String) -> Result<(), Violation> {
    Err(Violation { law, how })
}

pub fn ceil(x: f64) -> u32 {
    Replicas::from_f64_ceil(x).get()
}
