//! The laws over `decide` alone: fleets whose members report anything at all, lies included.

use crate::domain::federate::{
    Action, FailurePolicy, FleetDecision, Health, Kind, Ledger, Member, Pods, Policy, Preference,
    Reason, Tenure, Total, decide,
};
use crate::domain::workload::Mode;

use super::fleets::{Random, at, member, n, policy, prefer};

const KINDS: [Kind; 5] = [
    Kind::Duplicated,
    Kind::Aggregated,
    Kind::StaticWeighted,
    Kind::DynamicWeighted,
    Kind::Prioritized,
];

fn random_policy(random: &mut Random, count: u32) -> Policy {
    let max = random.within(1, 40);
    let mut policy = policy(random.pick(&KINDS), random.within(1, max), max);
    policy.scaling_to_zero = random.one_in(2);
    policy.mode = random.pick(&[Mode::Delegated, Mode::Delegated, Mode::Direct]);
    policy.failure = random.pick(&[FailurePolicy::Retain, FailurePolicy::Reassign]);
    policy.min_utilization = random.one_in(3).then_some(0.5);
    for at in 0..count {
        let lo = if random.one_in(4) {
            random.within(0, 4)
        } else {
            0
        };
        policy.preferences.push(Preference {
            weight: Some(u64::from(random.within(0, 4))),
            priority: (!random.one_in(8)).then(|| i64::from(random.within(1, 3))),
            min: Some(n(lo)),
            max: random.one_in(3).then(|| n(random.within(lo, 30))),
            elastic: random.one_in(8),
            ..prefer(&format!("m{at}"))
        });
    }
    policy
}

/// Anything a member may say, now and then beyond all reason.
fn report(random: &mut Random, member: &mut Member, now: i64) {
    let wild = random.one_in(15);
    let replicas = if wild {
        1_000_000
    } else {
        random.within(0, 30)
    };
    let pending = if random.one_in(3) {
        random.within(0, replicas.min(9))
    } else {
        0
    };
    member.pods = (!random.one_in(12)).then(|| Pods {
        replicas: n(replicas),
        ready: n(random.within(0, replicas - pending)),
        unschedulable: n(pending),
        unschedulable_since: (pending > 0).then(|| at(now - i64::from(random.within(0, 200)))),
    });
    member.capacity = (!random.one_in(4)).then(|| {
        n(if wild {
            5_000_000
        } else {
            replicas - pending + random.within(0, 25)
        })
    });
    member.desired = random.one_in(2).then(|| n(replicas + random.within(0, 5)));
    member.demand = (!random.one_in(4)).then(|| {
        if wild {
            random.pick(&[f64::NAN, f64::INFINITY, -3.0, 1e12])
        } else {
            random.unit() * 30.0
        }
    });
    member.health = match random.within(1, 12) {
        1 => Health::Unknown {
            since: at(now - i64::from(random.within(0, 900))),
        },
        2 => Health::NotReady {
            since: at(now - i64::from(random.within(0, 900))),
        },
        _ => Health::Ready,
    };
    member.fought_by = random.one_in(30).then(|| "kubectl".to_owned());
}

/// What one seed goes through: a few decisions, each on new reports.
fn run(seed: u64) {
    let mut random = Random::new(seed);
    let count = random.within(1, 6);
    let mut policy = random_policy(&mut random, count);
    let mut members: Vec<_> = (0..count).map(|at| member(&format!("m{at}"), 1)).collect();
    let (mut ledger, mut now) = (Ledger::default(), 0);
    for _ in 0..5 {
        now += i64::from(random.within(10, 400));
        for member in &mut members {
            report(&mut random, member, now);
        }
        if random.one_in(8) {
            policy.generation += 1;
        }
        let total = Total {
            demand: random.one_in(2).then(|| random.unit() * 60.0),
            floor: random.one_in(2).then(|| n(random.within(0, 50))),
            desired: random.one_in(2).then(|| n(random.within(0, 50))),
        };
        let (decision, next) = decide(&policy, &total, &members, &ledger, at(now));
        let case = Case {
            seed,
            policy: &policy,
            total: &total,
            members: &members,
            before: &ledger,
            now,
        };
        case.check(&decision, &next);
        for decided in decision.order.iter().map(|at| &decision.members[*at]) {
            let named = |m: &&mut Member| m.profile.name == decided.name;
            let member = members
                .iter_mut()
                .find(named)
                .expect("a decision is about a member");
            if policy.mode == Mode::Delegated {
                member.hpa = (decided.max > n(0)).then_some((decided.min, decided.max));
            }
        }
        ledger = next;
    }
}

struct Case<'a> {
    seed: u64,
    policy: &'a Policy,
    total: &'a Total,
    members: &'a [Member],
    before: &'a Ledger,
    now: i64,
}

impl Case<'_> {
    fn check(&self, decision: &FleetDecision, after: &Ledger) {
        let seed = self.seed;
        self.order_of_members_does_not_matter(decision, after);
        if decision.conditions.len() == 1 {
            assert_eq!(after, self.before, "seed {seed}: R0 changes nothing");
            assert!(decision.order.is_empty(), "seed {seed}: R0 writes nothing");
            return;
        }
        self.budgets_are_sound(after);
        self.writes_are_sound(decision);
        self.running_pods_stay(decision, after);
        self.prefixes_stay_within_max(decision);
        self.again_nothing_changes(decision, after);
    }

    /// P5.
    fn order_of_members_does_not_matter(&self, decision: &FleetDecision, after: &Ledger) {
        let mut turned = self.members.to_vec();
        turned.reverse();
        let other = decide(self.policy, self.total, &turned, self.before, at(self.now));
        assert_eq!(
            (&other.0, &other.1),
            (decision, after),
            "seed {}: P5",
            self.seed
        );
    }

    /// P1, P2, P4.
    fn budgets_are_sound(&self, after: &Ledger) {
        let seed = self.seed;
        let (mut maxima, mut least, mut most, mut held) = (0u64, 0u64, 0u64, false);
        for (name, entry) in &after.members {
            held |= entry.tenure == Tenure::Pinned || self.is_pinned(name);
            if matches!(entry.tenure, Tenure::Failed | Tenure::Leaving) {
                assert_eq!(
                    entry.max,
                    n(0),
                    "seed {seed}: {name} has a budget and no share"
                );
                continue;
            }
            let member = self
                .members
                .iter()
                .find(|m| m.profile.name == *name)
                .expect("listed");
            let standing = self.policy.standing(&member.profile).expect("selected");
            maxima += u64::from(entry.max.get());
            least += u64::from(standing.lo.get());
            most += u64::from(standing.hi.get());
            let pinned = self.is_pinned(name);
            assert!(
                pinned || entry.max <= standing.hi,
                "seed {seed}: P1 {name} {entry:?} {standing:?}"
            );
            assert!(
                pinned || entry.max >= standing.lo,
                "seed {seed}: {name} below lo {entry:?}"
            );
            let lifted = entry.max == n(0) || entry.min >= n(1);
            assert!(
                lifted && entry.min <= entry.max,
                "seed {seed}: P1 {name} {entry:?}"
            );
        }
        let goal = u64::from(self.policy.bounds.max.get()).max(least);
        if self.policy.kind != Kind::Duplicated && !held {
            let unassigned = u64::from(after.unassigned.get());
            assert_eq!(maxima + unassigned, goal, "seed {seed}: P2 {after:?}");
            assert!(maxima <= most, "seed {seed}: P2");
        }
    }

    fn is_pinned(&self, name: &str) -> bool {
        let member = self.members.iter().find(|m| m.profile.name == name);
        member.is_some_and(|m| m.health != Health::Ready || m.fought_by.is_some())
    }

    /// P15, and the bounds of every write.
    fn writes_are_sound(&self, decision: &FleetDecision) {
        for (place, decided) in decision.members.iter().enumerate() {
            let member = self
                .members
                .iter()
                .find(|m| m.profile.name == decided.name)
                .expect("listed");
            let (seed, writes) = (self.seed, decided.action.writes());
            assert_eq!(
                decision.order.contains(&place),
                writes,
                "seed {seed}: {decided:?}"
            );
            let unseen = matches!(member.health, Health::Unknown { .. });
            assert!(!(unseen && writes), "seed {seed}: P15 {decided:?}");
            assert!(decided.min <= decided.max, "seed {seed}: {decided:?}");
            let sane = decided.max == n(0) || decided.min >= n(1);
            assert!(sane || !writes, "seed {seed}: {decided:?}");
            assert!(
                !decided.sentence().is_empty() && !decided.reasons.is_empty(),
                "seed {seed}: {decided:?}"
            );
            if let (Mode::Direct, Some(count)) = (self.policy.mode, decided.replicas) {
                let asleep = count == n(0);
                assert!(
                    asleep || count <= decided.max,
                    "seed {seed}: P12 {decided:?}"
                );
            }
        }
    }

    /// P9, P10 and X10: only R3 and R9 take a maximum below what runs, whatever others report.
    fn running_pods_stay(&self, decision: &FleetDecision, after: &Ledger) {
        if after.landing.is_some() || after.generation != self.before.generation {
            return;
        }
        for decided in &decision.members {
            let names = (
                self.before.members.get(&decided.name),
                after.members.get(&decided.name),
            );
            let (Some(old), Some(new)) = names else {
                continue;
            };
            let assigned = decided
                .reasons
                .iter()
                .any(|r| matches!(r, Reason::Assigned | Reason::NoBudget | Reason::ShrinkOrder));
            let member = self
                .members
                .iter()
                .find(|m| m.profile.name == decided.name)
                .expect("listed");
            let pods = member.pods.unwrap_or_default();
            let placed = pods.replicas.get().saturating_sub(pods.unschedulable.get());
            let placed = placed.min(old.written.get());
            let kept = n(placed.min(old.max.get()));
            if new.tenure == Tenure::Candidate && old.tenure == Tenure::Candidate && !assigned {
                assert!(
                    new.max >= kept,
                    "seed {}: P9 {decided:?} {old:?} {new:?}",
                    self.seed
                );
            }
        }
    }

    /// X9: whatever write is the last that succeeds, maxima do not sum to more than MAX, before or after, but for what
    /// is ended last.
    fn prefixes_stay_within_max(&self, decision: &FleetDecision) {
        if self.policy.mode == Mode::Direct {
            return;
        }
        let standing = |m: &Member| m.hpa.map_or(0, |(_, max)| u64::from(max.get()));
        let mut sum: u64 = self.members.iter().map(standing).sum();
        let after: u64 = decision.order.iter().fold(sum, |sum, place| {
            let decided = &decision.members[*place];
            let was = decided.before.map_or(0, |(_, max)| u64::from(max.get()));
            sum + u64::from(decided.max.get()) - was
        });
        let late: u64 = decision
            .order
            .iter()
            .map(|place| {
                let decided = &decision.members[*place];
                let was = decided.before.map_or(0, |(_, max)| u64::from(max.get()));
                let member = self
                    .members
                    .iter()
                    .find(|m| m.profile.name == decided.name)
                    .expect("listed");
                let ends = member.pods.is_some_and(|p| {
                    p.ready > decided.max || decided.replicas.is_some_and(|r| r < p.ready)
                });
                if ends {
                    was.saturating_sub(u64::from(decided.max.get()))
                } else {
                    0
                }
            })
            .sum();
        let most = sum.max(after) + late;
        for place in &decision.order {
            let decided = &decision.members[*place];
            let was = decided.before.map_or(0, |(_, max)| u64::from(max.get()));
            sum = sum + u64::from(decided.max.get()) - was;
            assert!(
                sum <= most,
                "seed {}: X9 {sum} > {most}: {}",
                self.seed,
                decision.message()
            );
        }
    }

    /// P16.
    fn again_nothing_changes(&self, decision: &FleetDecision, after: &Ledger) {
        let mut members = self.members.to_vec();
        for decided in decision.members.iter().filter(|d| d.action.writes()) {
            let named = |m: &&mut Member| m.profile.name == decided.name;
            let member = members.iter_mut().find(named).expect("listed");
            if self.policy.mode == Mode::Delegated {
                member.hpa = (decided.max > n(0)).then_some((decided.min, decided.max));
            }
        }
        let (again, ledger) = decide(self.policy, self.total, &members, after, at(self.now));
        let budgets = |ledger: &Ledger| -> Vec<_> {
            ledger
                .members
                .iter()
                .map(|(name, e)| (name.clone(), e.min, e.max))
                .collect()
        };
        // Of a member that reports more than was written for it, more is believed when more is written.
        let believed = |m: &Member| {
            let entry = self.before.members.get(&m.profile.name);
            let written = entry.map_or(n(0), |e| e.written);
            m.pods.is_none_or(|pods| pods.replicas <= written)
        };
        let lands = after.landing.is_some() || self.before.landing.is_some();
        if lands || !self.members.iter().all(believed) {
            return;
        }
        let text = format!("seed {}: P16 {}", self.seed, again.message());
        assert_eq!(budgets(&ledger), budgets(after), "{text}");
        let bounds = |decision: &FleetDecision| -> Vec<_> {
            let all = decision.members.iter();
            all.map(|m| (m.name.clone(), m.min, m.max)).collect()
        };
        if self.policy.mode == Mode::Delegated && !wakes(decision) {
            assert_eq!(bounds(&again), bounds(decision), "{text}");
        }
    }
}

/// Whether somebody starts or ends, which changes who has a floor when it has happened.
fn wakes(decision: &FleetDecision) -> bool {
    decision
        .members
        .iter()
        .any(|m| !matches!(m.action, Action::Keep | Action::Update | Action::Skip))
}

#[test]
fn ten_thousand_fleets_that_report_anything_obey_the_laws() {
    for seed in 0..10_000 {
        run(seed);
    }
}
