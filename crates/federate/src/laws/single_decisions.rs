//! The laws over single decisions: fleets whose members report random states, false ones included.

use std::fmt;

use crate::{
    AssignmentKind, ClassifiedFleet, Entry, FailurePolicy, FleetDecision, Health, Ledger, Member,
    MemberDecision, Pods, Policy, Preference, Reason, ShareStatus, Total, WeightBy, decide,
};
use foretide_domain::ReplicaBounds;
use foretide_domain::workload::Mode;

use super::fixtures::{KINDS, Random, at, member, n, policy, prefer};
use super::moves::Move;

fn random_policy(random: &mut Random, count: u32) -> Policy {
    let max = random.within(1, 40);
    let mut policy = policy(random.pick(&KINDS), random.within(1, max), max);
    policy.scaling_to_zero = random.one_in(2);
    policy.mode = random.pick(&[Mode::Delegated, Mode::Delegated, Mode::Direct]);
    policy.failure = random.pick(&[FailurePolicy::Retain, FailurePolicy::Reassign]);
    policy.min_utilization = random.one_in(3).then_some(0.5);
    for at in 0..count {
        let lower_limit = if random.one_in(4) {
            random.within(0, 4)
        } else {
            0
        };
        policy.preferences.push(Preference {
            weight: Some(u64::from(random.within(0, 4))),
            priority: (!random.one_in(8)).then(|| i64::from(random.within(1, 3))),
            min: Some(n(lower_limit)),
            max: random.one_in(3).then(|| n(random.within(lower_limit, 30))),
            elastic: random.one_in(8),
            ..prefer(&format!("m{at}"))
        });
    }
    policy
}

/// A random report of a member, sometimes an absurd one.
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
    member.foreign_writer = random.one_in(30).then(|| "kubectl".to_owned());
}

/// Runs one seed: a few decisions, each on new reports.
///
/// `weight_by` is not drawn, so that every seed keeps its fleet.
fn run(seed: u64, weight_by: WeightBy) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random::new(seed);
    let count = random.within(1, 6);
    let mut policy = random_policy(&mut random, count);
    if weight_by == WeightBy::Demand && policy.kind != AssignmentKind::DynamicWeighted {
        return tally;
    }
    policy.weight_by = weight_by;
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
        tally.decided += 1;
        tally.repeated += u32::from(case.check(&decision, &next));
        for decided in decision.order.iter().map(|at| &decision.members[*at]) {
            let named = |m: &&mut Member| m.profile.name == decided.name;
            let member = members
                .iter_mut()
                .find(named)
                .expect("a decision is about a member");
            if policy.mode == Mode::Delegated {
                member.hpa =
                    (decided.max > n(0)).then_some(ReplicaBounds::new(decided.min, decided.max));
            }
        }
        ledger = next;
    }
    tally
}

/// How many decisions were made, and how many were repeated on their own result.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    decided: u32,
    repeated: u32,
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
    /// Whether the decision was repeated on its own result.
    fn check(&self, decision: &FleetDecision, after: &Ledger) -> bool {
        let seed = self.seed;
        self.order_of_members_does_not_matter(decision, after);
        if decision.conditions.len() == 1 {
            let mut before = self.before.clone();
            for (name, entry) in &mut before.members {
                entry.recovered = after.members.get(name).and_then(|entry| entry.recovered);
            }
            assert_eq!(*after, before, "seed {seed}: R0 changes nothing");
            assert!(decision.order.is_empty(), "seed {seed}: R0 writes nothing");
            return false;
        }
        self.budgets_are_sound(after);
        let one = Move {
            policy: self.policy,
            total: self.total,
            members: self.members,
            before: self.before,
            decision,
            after,
        };
        if let Err(violation) = one.check() {
            panic!("seed {seed}: {violation:?}");
        }
        self.writes_are_sound(decision);
        self.running_pods_stay(decision, after);
        self.prefixes_stay_within_max(decision);
        self.again_nothing_changes()
    }

    /// Fails unless a law holds of these.
    fn holds(&self, holds: bool, law: &str, of: impl fmt::Debug) {
        assert!(holds, "seed {}: {law} {of:?}", self.seed);
    }

    /// P5.
    fn order_of_members_does_not_matter(&self, decision: &FleetDecision, after: &Ledger) {
        let mut reversed = self.members.to_vec();
        reversed.reverse();
        let now = at(self.now);
        let other = decide(self.policy, self.total, &reversed, self.before, now);
        self.holds((&other.0, &other.1) == (decision, after), "P5", &other);
    }

    /// P1, P2, P4.
    fn budgets_are_sound(&self, after: &Ledger) {
        let (mut maximums, mut least, mut most, mut held) = (0u64, 0u64, 0u64, false);
        for (name, entry) in &after.members {
            held |= entry.share_status == ShareStatus::Pinned || self.is_pinned(name);
            if matches!(
                entry.share_status,
                ShareStatus::Failed | ShareStatus::Draining
            ) {
                self.holds(entry.max == n(0), "a budget without a share", name);
                continue;
            }
            let member = self.member(name).expect("listed");
            let preference = self.policy.effective_preference(&member.profile);
            let preference = preference.expect("selected");
            maximums += u64::from(entry.max.get());
            least += u64::from(preference.min.get());
            most += u64::from(preference.max.get());
            let pinned = self.is_pinned(name);
            let of = (name, entry, preference);
            self.holds(pinned || entry.max <= preference.max, "P1", of);
            self.holds(pinned || entry.max >= preference.min, "lower limit", of);
            let lifted = entry.max == n(0) || entry.min >= n(1);
            self.holds(lifted && entry.min <= entry.max, "P1", of);
        }
        let goal = u64::from(self.policy.bounds.max.get()).max(least);
        if self.policy.kind != AssignmentKind::Duplicated && !held {
            let unassigned = u64::from(after.unassigned.get());
            self.holds(maximums + unassigned == goal, "P2", (goal, after));
            self.holds(maximums <= most, "P2", most);
        }
    }

    fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.profile.name == name)
    }

    fn is_pinned(&self, name: &str) -> bool {
        self.member(name)
            .is_some_and(|m| m.health != Health::Ready || m.foreign_writer.is_some())
    }

    /// P15, and the bounds of every write.
    fn writes_are_sound(&self, decision: &FleetDecision) {
        for (place, decided) in decision.members.iter().enumerate() {
            let member = self.member(&decided.name).expect("listed");
            let writes = decided.action.writes();
            let is_ordered = decision.order.contains(&place);
            self.holds(is_ordered == writes, "order", decided);
            let unseen = matches!(member.health, Health::Unknown { .. });
            self.holds(!(unseen && writes), "P15", decided);
            self.holds(decided.min <= decided.max, "bounds", decided);
            let sane = decided.max == n(0) || decided.min >= n(1);
            self.holds(sane || !writes, "a minimum of one", decided);
            let has_reason = !decided.sentence().is_empty() && !decided.reasons.is_empty();
            self.holds(has_reason, "reason", decided);
            if let (Mode::Direct, Some(count)) = (self.policy.mode, decided.replicas) {
                let asleep = count == n(0);
                self.holds(asleep || count <= decided.max, "P12", decided);
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
            let member = self.member(&decided.name).expect("listed");
            let pods = member.pods.unwrap_or_default();
            let placed = pods.replicas.get().saturating_sub(pods.unschedulable.get());
            let placed = placed.min(old.written.get());
            let kept = n(placed.min(old.max.get()));
            let both = [old, new];
            let is_candidate = both
                .iter()
                .all(|e| e.share_status == ShareStatus::Candidate);
            let is_kept = assigned || !is_candidate || new.max >= kept;
            self.holds(is_kept, "P9", (decided, both));
        }
    }

    /// X9: after any prefix of the writes, maximums add up to no more than MAX, before or after, except for those that
    /// are written last.
    fn prefixes_stay_within_max(&self, decision: &FleetDecision) {
        if self.policy.mode == Mode::Direct {
            return;
        }
        let mut sum: u64 = self.members.iter().map(|m| written_max(m.hpa)).sum();
        let after: u64 = decision.order.iter().fold(sum, |sum, place| {
            let decided = &decision.members[*place];
            sum + u64::from(decided.max.get()) - written_max(decided.before)
        });
        let late: u64 = decision
            .order
            .iter()
            .map(|place| {
                let decided = &decision.members[*place];
                let was = written_max(decided.before);
                let member = self.member(&decided.name).expect("listed");
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
            sum = sum + u64::from(decided.max.get()) - written_max(decided.before);
            self.holds(sum <= most, "X9", (sum, most, decision.message()));
        }
    }

    /// P16: repeated on its own result, with writes applied, the decision writes and moves nothing. Reports are as
    /// trusted: a landing waits for the end of reported pods that were never trusted. False where the result itself
    /// changes the input.
    fn again_nothing_changes(&self) -> bool {
        let before: Vec<_> = self.members.iter().map(|m| self.as_believed(m)).collect();
        let (decision, after) =
            &decide(self.policy, self.total, &before, self.before, at(self.now));
        let mut members = before.clone();
        for decided in &decision.members {
            let named = |m: &&mut Member| m.profile.name == decided.name;
            let member = members.iter_mut().find(named).expect("listed");
            self.carry_out(decided, member);
        }
        let changed = before.iter().zip(&members);
        if self.is_news(decision, after, changed) || self.others_count(&members, after) {
            return false;
        }
        let (again, ledger) = decide(self.policy, self.total, &members, after, at(self.now));
        let text = || {
            let (first, then) = (decision.message(), again.message());
            format!("seed {}: P16 {first}\nand then {then}", self.seed)
        };
        let budgets = |ledger: &Ledger| -> Vec<_> {
            let all = ledger.members.iter();
            all.map(|(name, e)| (name.clone(), e.min, e.max)).collect()
        };
        assert_eq!(budgets(&ledger), budgets(after), "{}", text());
        assert_eq!(again.order, Vec::<usize>::new(), "{}", text());
        true
    }

    /// Whether applying the decision changes the next input: pods end, a proved capacity is exceeded, a maximum is
    /// reached, or a landing counts what is ready within the maximums.
    fn is_news<'m>(
        &self,
        decision: &FleetDecision,
        after: &Ledger,
        mut changed: impl Iterator<Item = (&'m Member, &'m Member)>,
    ) -> bool {
        let lands = self.before.landing.is_some() || after.landing.is_some();
        let grew = |m: &MemberDecision| {
            let by = [Reason::Relief, Reason::Saturated, Reason::FloorLifted];
            m.reasons.iter().any(|reason| by.contains(reason))
        };
        lands && decision.members.iter().any(grew)
            || changed.any(|(was, is)| {
                let name = &is.profile.name;
                let decided = decision.member(name).expect("a decision is about a member");
                let (was, is) = (was.pods.unwrap_or_default(), is.pods.unwrap_or_default());
                let cut = was.replicas > decided.max;
                let ends = is.replicas < was.replicas || cut && was.unschedulable > n(0);
                let backoff = after.members.get(name).and_then(|entry| entry.backoff);
                let outdone = backoff.is_some_and(|backoff| is.placed() > backoff.placed);
                let fills = is.replicas > was.replicas && is.replicas >= decided.max;
                let held =
                    was.replicas < is.replicas && self.policy.kind == AssignmentKind::Prioritized;
                ends || outdone || fills || held
            })
    }

    /// Whether other members are counted than before, which changes the totals.
    fn others_count(&self, members: &[Member], after: &Ledger) -> bool {
        let now = at(self.now);
        ClassifiedFleet::new(self.policy, self.members, self.before, now).participation()
            != ClassifiedFleet::new(self.policy, members, after, now).participation()
    }

    /// The report of a member as far as it was trusted: up to what was written for it.
    fn as_believed(&self, member: &Member) -> Member {
        let mut member = member.clone();
        let entry = self.before.members.get(&member.profile.name);
        let written = entry.map_or(self.policy.bounds.max, |entry| entry.written);
        if let Some(pods) = member.pods.as_mut() {
            let most = written.max(n(1));
            let placed = pods.placed().min(most);
            pods.replicas = pods.replicas.min(most);
            pods.ready = pods.ready.min(pods.replicas);
            pods.unschedulable = n(pods.replicas.get() - placed.get());
            member.desired = member.desired.map(|desired| desired.min(written));
        }
        member
    }

    /// Applies a write at once.
    fn carry_out(&self, decided: &MemberDecision, member: &mut Member) {
        if self.policy.mode == Mode::Delegated && decided.action.writes() {
            member.hpa =
                (decided.max > n(0)).then_some(ReplicaBounds::new(decided.min, decided.max));
        }
        if let (Some(pods), Some(count)) = (member.pods.as_mut(), decided.replicas) {
            // Pods without a node end first; new ones get one where there is room.
            let holds = match member.capacity {
                _ if pods.unschedulable > n(0) => pods.placed(),
                None => count,
                Some(capacity) => capacity.max(pods.placed()),
            };
            let placed = holds.min(count).get();
            pods.replicas = count;
            pods.ready = pods.ready.min(count);
            pods.unschedulable = n(count.get() - placed);
        }
    }
}

/// The maximum of an HPA, if there is one.
fn written_max(hpa: Option<ReplicaBounds>) -> u64 {
    hpa.map_or(0, |bounds| u64::from(bounds.max.get()))
}

/// Runs seeds; at least 60 % of the decisions must be repeated for P16.
fn runs(seeds: std::ops::Range<u64>, weight_by: WeightBy) {
    let mut all = Tally::default();
    for seed in seeds {
        let one = run(seed, weight_by);
        all.decided += one.decided;
        all.repeated += one.repeated;
    }
    let share = all.repeated * 100 / all.decided;
    assert!(
        share >= 60,
        "too few decisions were repeated for P16: {all:?}"
    );
}

#[test]
fn ten_thousand_fleets_with_random_reports_obey_the_laws() {
    runs(0..10_000, WeightBy::Capacity);
}

#[test]
fn fleets_with_random_reports_obey_the_laws_when_weighted_by_demand() {
    runs(0..5_000, WeightBy::Demand);
}

/// A status can be edited or restored: its budgets may contradict each other and the policy.
#[test]
fn any_budgets_in_a_ledger_cause_no_panic_and_no_impossible_write() {
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let count = random.within(1, 4);
        let policy = random_policy(&mut random, count);
        let mut members: Vec<_> = (0..count).map(|at| member(&format!("m{at}"), 1)).collect();
        let mut ledger = Ledger {
            generation: Some(policy.generation),
            unassigned: n(random.within(0, 60)),
            ..Ledger::default()
        };
        for member in &mut members {
            report(&mut random, member, 0);
            let mut bound = || n(random.pick(&[0, 1, 7, 40, u32::MAX]));
            let entry = Entry {
                min: bound(),
                max: bound(),
                written: bound(),
                ..Entry::default()
            };
            ledger.members.insert(member.profile.name.clone(), entry);
        }
        let total = Total {
            desired: random.one_in(2).then(|| n(random.within(0, 50))),
            floor: random.one_in(2).then(|| n(random.within(0, 50))),
            demand: random.one_in(2).then(|| random.unit() * 60.0),
        };
        let (decision, _) = decide(&policy, &total, &members, &ledger, at(0));
        for decided in decision.members.iter().filter(|one| one.action.writes()) {
            let is_accepted =
                decided.max == n(0) || n(1) <= decided.min && decided.min <= decided.max;
            assert!(is_accepted, "seed {seed}: {decided:?}");
            if decided.max > n(0) {
                let is_within = decided.replicas.is_none_or(|count| count <= decided.max);
                assert!(is_within, "seed {seed}: {decided:?}");
            }
        }
    }
}
