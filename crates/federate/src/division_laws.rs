//! Laws of the divisions as property tests: sums, bounds, quota, order, monotonicity.

use std::{collections::BTreeMap, fmt};

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{
    AssignmentKind, Budget, Budgets, Candidate, EffectivePreference, Policy, Recipient, Split,
    Surplus, Ties, WeightBy, assign, distribute, fill, quota_split, share, webster, weights,
};
use foretide_domain::{ReplicaBounds, Replicas};

fn n(count: u32) -> Replicas {
    Replicas::new(count)
}

pub fn policy(kind: AssignmentKind, min: u32, max: u32) -> Policy {
    Policy::new(kind, ReplicaBounds::new(n(min), n(max)))
}

const DIVIDING: [AssignmentKind; 4] = [
    AssignmentKind::Aggregated,
    AssignmentKind::StaticWeighted,
    AssignmentKind::DynamicWeighted,
    AssignmentKind::Prioritized,
];

fn policies(kinds: &'static [AssignmentKind]) -> impl Strategy<Value = Policy> {
    let by = select(vec![WeightBy::Capacity, WeightBy::Demand]);
    (select(kinds), 0_u32..20, 0_u32..50, by).prop_map(|(kind, min, more, weight_by)| Policy {
        weight_by,
        ..policy(kind, min, (min + more).max(1))
    })
}

/// Draws small numbers from one random one: ten thousand fleets take a second, and still shrink.
struct Dice(u64);

impl Dice {
    /// Less than `sides`.
    fn roll(&mut self, sides: u32) -> u32 {
        let sides = u64::from(sides);
        let rolled = self.0 % sides;
        self.0 /= sides;
        u32::try_from(rolled).unwrap()
    }

    /// Less than `sides`, and sometimes none.
    fn maybe(&mut self, sides: u32) -> Option<u32> {
        self.roll(sides + sides / 8 + 1).checked_sub(sides / 8 + 1)
    }

    /// A lower and an upper bound that mostly do not bind.
    fn bounds(&mut self) -> (u32, u32) {
        let min = self.roll(60).saturating_sub(40);
        let max = self.roll(60);
        (min, if max < 20 { max.max(min) } else { 1000 })
    }
}

/// Names for members and recipients, in order.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn candidate(name: &str, seed: u64) -> Candidate<'_> {
    let mut dice = Dice(seed);
    let (min, max) = dice.bounds();
    let preference = EffectivePreference {
        weight: dice.maybe(6).map(u64::from),
        priority: dice.maybe(4).map(i64::from),
        min: n(min),
        max: n(max),
        elastic: dice.roll(10) == 0,
    };
    Candidate {
        name,
        preference,
        capacity: dice.maybe(40),
        demand: dice.maybe(400).map(|tenths| f64::from(tenths) / 10.0),
        hosts: dice.roll(2) == 0,
    }
}

/// Fewer than seven, at least `least`, each with a name and a seed of its own.
fn several<T: fmt::Debug>(
    least: usize,
    one: fn(&'static str, u64) -> T,
) -> impl Strategy<Value = Vec<T>> {
    vec(any::<u64>(), least..7).prop_map(move |seeds| {
        let named = NAMES.into_iter().zip(seeds);
        named.map(|(name, seed)| one(name, seed)).collect()
    })
}

fn fleet() -> impl Strategy<Value = Vec<Candidate<'static>>> {
    several(1, candidate)
}

fn recipient(name: &str, seed: u64) -> Recipient<'_> {
    let mut dice = Dice(seed);
    let (min, max) = dice.bounds();
    let weight = match dice.roll(10) {
        0 => seed,
        small => u64::from(small - 1),
    };
    Recipient {
        name,
        weight,
        min,
        max,
    }
}

fn recipients() -> impl Strategy<Value = Vec<Recipient<'static>>> {
    several(0, recipient)
}

/// The number of seats that were added; none if one was taken away.
fn raised(less: &Split, more: &Split) -> Option<u32> {
    let each = less.shares.iter().zip(&more.shares);
    each.map(|(less, more)| more.checked_sub(*less)).sum()
}

fn sum(counts: impl Iterator<Item = u32>) -> u32 {
    counts.sum()
}

fn bounds_of(fleet: &[Candidate<'_>]) -> (u32, u32) {
    let least = sum(fleet.iter().map(|c| c.preference.min.get()));
    let most = sum(fleet.iter().map(|c| c.preference.max.get()));
    (least, most)
}

fn budgets(policy: &Policy, fleet: &[Candidate<'_>]) -> Budgets {
    assign(policy, policy.bounds, fleet)
}

fn total(budgets: &Budgets, of: fn(&Budget) -> Replicas) -> u32 {
    sum(budgets.members.values().map(|b| of(b).get()))
}

/// The shares of [`webster`], one replica at a time.
fn webster_by_hand(n: u32, recipients: &[Recipient<'_>], ties: Ties) -> Vec<u32> {
    let any = recipients.iter().any(|recipient| recipient.weight > 0);
    let mut shares: Vec<u32> = recipients.iter().map(|recipient| recipient.min).collect();
    while sum(shares.iter().copied()) < n {
        let open = |at: &usize| shares[*at] < recipients[*at].top();
        let weight = |at: usize| u128::from(recipients[at].weight.max(u64::from(!any)));
        let best = (0..recipients.len()).filter(open).max_by(|a, b| {
            let (x, y) = (weight(*a), weight(*b));
            let quotients =
                (x * (2 * u128::from(shares[*b]) + 1)).cmp(&(y * (2 * u128::from(shares[*a]) + 1)));
            let names = recipients[*b].name.cmp(recipients[*a].name);
            let names = if ties == Ties::NameAscending {
                names
            } else {
                names.reverse()
            };
            quotients.then(shares[*b].cmp(&shares[*a])).then(names)
        });
        let Some(best) = best else { break };
        // Recipients without weight get replicas only when no weighted one is open.
        shares[best] += 1;
    }
    shares
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn quota_shares_sum_to_the_number_and_stay_within_the_bounds(count in 0_u32..200, recipients in recipients()) {
        let split = quota_split(count, &recipients);
        let least = sum(recipients.iter().map(|s| s.min));
        let most = sum(recipients.iter().map(Recipient::top));
        prop_assert_eq!(split.total(), u64::from(count.max(least).min(most)));
        prop_assert_eq!(split.left, count.saturating_sub(most));
        for (recipient, share) in split.of(&recipients) {
            prop_assert!((recipient.min..=recipient.top()).contains(&share), "{recipient:?} has {share}");
        }
    }

    /// P7, P6.
    #[test]
    fn unbounded_quota_shares_are_rounded_exact_shares_in_the_order_of_the_weights(
        count in 0_u32..2000, weights in vec(0_u64..100, 1..7),
    ) {
        let all: u64 = weights.iter().sum();
        prop_assume!(all > 0);
        let recipient = |(name, weight): (&'static str, &u64)| Recipient { name, weight: *weight, min: 0, max: u32::MAX };
        let recipients: Vec<_> = NAMES.into_iter().zip(&weights).map(recipient).collect();
        let split = quota_split(count, &recipients);
        for (recipient, share) in split.of(&recipients) {
            let exact = u64::from(count) * recipient.weight;
            let rounded = exact / all..=exact.div_ceil(all);
            prop_assert!(rounded.contains(&u64::from(share)), "{share} of {exact}/{all}");
        }
        for ((a, x), (b, y)) in split.of(&recipients).zip(split.of(&recipients).skip(1)) {
            prop_assert!(a.weight <= b.weight || x >= y);
            prop_assert!(a.weight >= b.weight || x <= y);
        }
    }

    #[test]
    fn webster_equals_giving_one_seat_at_a_time(
        count in 0_u32..120, mut recipients in recipients(), descending in any::<bool>(),
    ) {
        // All weighted or none: the law on growing numbers covers both together.
        let any = recipients.iter().any(|recipient| recipient.weight > 0);
        for recipient in recipients.iter_mut().filter(|_| any) {
            recipient.weight = recipient.weight.max(1);
        }
        let ties = if descending { Ties::NameDescending } else { Ties::NameAscending };
        prop_assert_eq!(webster(count, &recipients, ties).shares, webster_by_hand(count, &recipients, ties));
    }

    /// P13, with weights of zero among the others.
    #[test]
    fn webster_never_takes_a_seat_away_because_the_number_grew(count in 0_u32..200, recipients in recipients()) {
        let less = webster(count, &recipients, Ties::default());
        let more = webster(count + 1, &recipients, Ties::default());
        prop_assert_eq!(raised(&less, &more).map(u64::from), Some(more.total() - less.total()));
        prop_assert!(more.total() - less.total() <= 1);
    }

    #[test]
    fn a_tier_gets_more_than_its_minimum_only_when_those_before_are_full(
        count in 0_u32..200, tiers in vec(recipients(), 0..4),
    ) {
        let split = fill(count, &tiers, Surplus::Keep);
        let mut shares = split.shares.iter();
        let mut is_full = true;
        for tier in &tiers {
            let full = |s: &Recipient<'_>| s.min.max(s.top().min(u32::try_from(s.weight).unwrap_or(u32::MAX)));
            let has = sum(tier.iter().zip(&mut shares).map(|(_, share)| *share));
            prop_assert!(is_full || has == sum(tier.iter().map(|s| s.min)), "{has} in {tier:?}");
            is_full &= has == sum(tier.iter().map(full));
        }
        prop_assert!(is_full || split.left == 0);
        let spread = fill(count, &tiers, Surplus::Spread);
        let recipients = tiers.concat();
        prop_assert_eq!(spread.total(), quota_split(count, &recipients).total());
        for ((recipient, base), share) in split.of(&recipients).zip(&spread.shares) {
            prop_assert!((base..=recipient.top()).contains(share));
        }
    }

    /// P1 to P4.
    #[test]
    fn budgets_are_ordered_within_bounds_and_sum_to_the_bounds_of_the_fleet(
        policy in policies(&DIVIDING), fleet in fleet(),
    ) {
        let (min, max) = (policy.bounds.min.get(), policy.bounds.max.get());
        let (least, most) = bounds_of(&fleet);
        let budgets = budgets(&policy, &fleet);
        for candidate in &fleet {
            let Some(budget) = budgets.members.get(candidate.name) else {
                prop_assert_eq!(candidate.preference.min, n(0));
                continue;
            };
            prop_assert!(budget.min >= n(1) && budget.min <= budget.max, "{budget:?}");
            prop_assert!(budget.min >= candidate.preference.min && budget.max <= candidate.preference.max);
        }
        let (mins, maxes) = (total(&budgets, |b| b.min), total(&budgets, |b| b.max));
        prop_assert_eq!(maxes, max.max(least).min(most));
        prop_assert_eq!(maxes + budgets.unassigned.get(), max.max(least));
        prop_assert!(mins >= min.min(maxes));
        // Minimums raised to one are recognizable only as ones: at most all of those.
        let ones = budgets.members.values().filter(|b| b.min == n(1)).count();
        prop_assert!(mins <= min.max(least) + u32::try_from(ones).unwrap());
    }

    /// P8, for what fits into the capacities; the rest is spread afterwards.
    #[test]
    fn a_lower_priority_has_more_than_its_minimum_only_when_the_higher_ones_are_full(
        policy in policies(&[AssignmentKind::Prioritized]), fleet in fleet(), count in 0_u32..100,
    ) {
        for surplus in [Surplus::Keep, Surplus::Spread] {
            let split = share(&policy, n(count), &fleet, surplus);
            let capacity = weights(&policy, &fleet);
            let all: Vec<_> = fleet.iter().zip(split.shares).zip(capacity).collect();
            let is_short = |((c, share), capacity): &((&Candidate<'_>, u32), u64)| {
                u64::from(*share) < (*capacity).min(c.preference.max.get().into())
            };
            for ((low, has), _) in &all {
                let above = all.iter().filter(|((high, _), _)| high.preference.priority > low.preference.priority);
                let is_short = above.clone().any(is_short);
                prop_assert!(*has == low.preference.min.get() || !is_short, "{low:?} has {has}");
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// P5.
    #[test]
    fn the_order_of_the_candidates_changes_nothing(
        policy in policies(&DIVIDING), (fleet, shuffled) in fleet().prop_flat_map(|f| (Just(f.clone()), Just(f).prop_shuffle())),
    ) {
        prop_assert_eq!(budgets(&policy, &fleet), budgets(&policy, &shuffled));
        let by_name = |fleet: &[Candidate<'_>]| -> BTreeMap<String, u32> {
            let split = distribute(&policy, n(30), fleet, &BTreeMap::new());
            fleet.iter().map(|c| c.name.to_owned()).zip(split.shares).collect()
        };
        prop_assert_eq!(by_name(&fleet), by_name(&shuffled));
    }

    /// P11.
    #[test]
    fn sleeping_changes_what_new_workloads_start_with_and_no_budget(
        policy in policies(&DIVIDING), fleet in fleet(), present in option::of(0_u32..9),
    ) {
        let sleeping = Policy { scaling_to_zero: true, ..policy.clone() };
        let awake = budgets(&policy, &fleet);
        prop_assert_eq!(&awake, &budgets(&sleeping, &fleet));
        for budget in awake.members.values() {
            let present = present.map(n);
            prop_assert_eq!(budget.start(present, false), present.unwrap_or(budget.min));
            prop_assert_eq!(budget.start(present, true), present.unwrap_or_default());
        }
    }

    /// P12, P13.
    #[test]
    fn one_replica_more_raises_one_member_by_one_and_lowers_none(
        policy in policies(&DIVIDING), fleet in fleet(), count in 0_u32..150, previous in vec(0_u32..30, 0..7),
    ) {
        let names = fleet.iter().map(|c| c.name.to_owned());
        let previous = names.zip(previous.into_iter().map(n)).collect();
        let (least, most) = bounds_of(&fleet);
        let less = distribute(&policy, n(count), &fleet, &previous);
        let more = distribute(&policy, n(count + 1), &fleet, &previous);
        prop_assert_eq!(less.total(), u64::from(count.max(least).min(most)));
        prop_assert_eq!(less.left, count.saturating_sub(most));
        prop_assert_eq!(raised(&less, &more), Some(u32::from(count >= least && count < most)), "{:?} {:?}", less, more);
        for (candidate, share) in fleet.iter().zip(less.shares) {
            prop_assert!(n(share) >= candidate.preference.min && n(share) <= candidate.preference.max);
        }
    }

    /// P14.
    #[test]
    fn one_replica_less_is_taken_from_the_lowest_priority_above_its_bounds(
        policy in policies(&[AssignmentKind::Prioritized]), fleet in fleet(), count in 0_u32..150,
    ) {
        let none = BTreeMap::new();
        let more = distribute(&policy, n(count + 1), &fleet, &none).shares;
        let less = distribute(&policy, n(count), &fleet, &none).shares;
        let all: Vec<_> = fleet.iter().zip(more.into_iter().zip(less)).collect();
        let above = all.iter().filter(|(c, (more, _))| n(*more) > c.preference.min);
        let lowest = above.map(|(c, _)| c.preference.priority).min();
        for (candidate, (more, less)) in &all {
            prop_assert!(more == less || Some(candidate.preference.priority) == lowest, "{candidate:?}");
        }
    }

    /// An unchanged count stays where it is, even if capacities have changed.
    #[test]
    fn an_unchanged_count_moves_nothing_under_dynamic_weights(
        policy in policies(&[AssignmentKind::DynamicWeighted]), fleet in fleet(), count in 0_u32..150,
        again in any::<u64>(),
    ) {
        let first = distribute(&policy, n(count), &fleet, &BTreeMap::new());
        let names = || fleet.iter().map(|c| c.name.to_owned());
        let previous = names().zip(first.shares.iter().map(|s| n(*s))).collect();
        let mut fleet = fleet.clone();
        let mut dice = Dice(again);
        for candidate in &mut fleet {
            candidate.capacity = dice.maybe(40);
        }
        prop_assert_eq!(distribute(&policy, n(count), &fleet, &previous), first);
    }
}

#[test]
fn a_count_of_two_billion_is_divided_without_a_loop_over_it() {
    let names: Vec<_> = (0..100).map(|i| format!("member-{i:03}")).collect();
    let recipients = (0..).zip(&names).map(|(i, name)| Recipient {
        name,
        weight: i % 7 + 1,
        min: 0,
        max: u32::MAX,
    });
    let recipients: Vec<_> = recipients.collect();
    let split = webster(2_000_000_000, &recipients, Ties::default());
    assert_eq!((split.total(), split.left), (2_000_000_000, 0));
    // The weights add up to 399: fourteen or fifteen members have each of the seven.
    let share = |at: usize| f64::from(split.shares[at]);
    assert!((share(6) / share(0) - 7.0).abs() < 1e-6, "{split:?}");
}
