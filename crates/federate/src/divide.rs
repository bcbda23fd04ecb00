//! Dividing whole numbers: quota for budgets, tiers for priorities, Webster for counts.
//!
//! Budgets change rarely and must stay within the exact share rounded down and up; counts change with every sync, and a
//! larger total must never take a replica away. No single method does both (Balinski and Young), so there are two. All
//! divisions are deterministic and independent of the order of the recipients, provided that names differ.
//!
//! Sources: house monotonicity of divisor methods and the quota rule (Balinski and Young); the tie order of
//! Karmada's seat allocation (`pkg/util/helper`).

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

/// One recipient of a division.
///
/// # Units
/// Shares and bounds in replicas; weights in any unit, because only their ratios matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recipient<'a> {
    /// The name, which breaks ties.
    pub name: &'a str,
    /// The weight; under [`fill`] its capacity as well.
    pub weight: u64,
    /// At least this.
    pub min: u32,
    /// At most this; less than `min` counts as `min`.
    pub max: u32,
}

/// A division.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// The part of each recipient, in the order of the recipients.
    pub shares: Vec<u32>,
    /// The rest that no recipient can take.
    pub left: u32,
}

/// The use that [`fill`] makes of an amount that exceeds every capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surplus {
    /// Given out beyond the capacities, to the first tier first: budgets, because capacities are estimates.
    Spread,
    /// Kept as `left`: floors, because a pod that cannot run serves no load.
    Keep,
}

/// The order of two equal recipients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// The first by name.
    #[default]
    NameAscending,
    /// The last by name.
    NameDescending,
}

impl Recipient<'_> {
    /// The effective upper bound.
    pub fn top(&self) -> u32 {
        self.max.max(self.min)
    }

    /// A recipient of at most `n`, weighted by it, where only the order tells recipients apart.
    pub(crate) fn up_to(n: u32) -> Self {
        Self {
            weight: u64::from(n),
            max: n,
            ..Self::default()
        }
    }
}

impl Split {
    /// The sum of the shares.
    ///
    /// ```
    /// use foretide_federate::Split;
    ///
    /// assert_eq!(Split { shares: vec![2, 8], left: 1 }.total(), 10);
    /// ```
    pub fn total(&self) -> u64 {
        sum(&self.shares)
    }

    /// The shares with the recipients that have them.
    pub fn of<'a>(
        &'a self,
        recipients: &'a [Recipient<'a>],
    ) -> impl Iterator<Item = (&'a Recipient<'a>, u32)> {
        recipients.iter().zip(self.shares.iter().copied())
    }
}

/// Divides `n` in proportion to the weights: `floor(n w_i / W)` for each, and one more for the heaviest of those with a
/// remainder, ties to the first by name. Each share is the exact one rounded down or up, unless a bound forbids it.
///
/// Where shares violate bounds, the side with the larger violation is fixed at its bounds (both when equal) and the
/// rest is divided again. A weight of zero gets `min`, and beyond it, in equal parts, only what the weighted recipients
/// cannot take. When all weights are zero they count as one each. The bounds win over `n`: the shares add up to `n`
/// clamped to the sums of the bounds, and `left` is what of `n` exceeds the sum of maximums.
///
/// ```
/// use foretide_federate::{Recipient, quota_split};
///
/// let recipient = |name, weight| Recipient { name, weight, min: 0, max: 100 };
/// let split = quota_split(10, &[recipient("a", 1), recipient("b", 2), recipient("c", 3)]);
/// // The exact shares are 1.67, 3.33 and 5.
/// assert_eq!((split.shares, split.left), (vec![1, 4, 5], 0));
/// ```
pub fn quota_split(n: u32, recipients: &[Recipient<'_>]) -> Split {
    weighted_first(n, recipients, quota)
}

/// Divides `n` by Webster's method: each share starts at `min`, and one replica after the other goes to the recipient
/// below `max` with the highest `weight / (2 share + 1)`; ties go to the smaller share, then by name as `ties` says.
///
/// A larger `n` never gives any recipient less. Zero weights and totals out of bounds are treated as by
/// [`quota_split`]. The time does not depend on `n`.
///
/// ```
/// use foretide_federate::{Recipient, Ties, webster};
///
/// let recipient = |name, weight| Recipient { name, weight, min: 0, max: 100 };
/// let recipients = [recipient("a", 1), recipient("b", 2), recipient("c", 3)];
/// assert_eq!(webster(10, &recipients, Ties::default()).shares, [2, 3, 5]);
/// assert_eq!(webster(11, &recipients, Ties::default()).shares, [2, 4, 5]);
/// ```
pub fn webster(n: u32, recipients: &[Recipient<'_>], ties: Ties) -> Split {
    weighted_first(n, recipients, |n, recipients| {
        highest_quotients(n, recipients, ties)
    })
}

/// Fills tier after tier up to the capacities, which are the weights of the recipients.
///
/// Every recipient starts at `min`. A tier takes at most the sum of `max(0, c_i - min_i)` with `c_i = min(weight_i,
/// max_i)`, divided by [`quota_split`] with the weights `c_i`. What exceeds every capacity is spread or kept, as
/// `surplus` says: spread, it goes to the first tier by capacity up to `max`, then to the next. The shares are in the
/// order of the tiers, and within a tier in the order of its recipients.
///
/// ```
/// use foretide_federate::{Recipient, Surplus, fill};
///
/// let tier = |name, capacity| vec![Recipient { name, weight: capacity, min: 0, max: 100 }];
/// let tiers = [tier("a", 8), tier("b", 2)];
/// assert_eq!(fill(12, &tiers, Surplus::Spread).shares, [10, 2]);
/// assert_eq!(fill(12, &tiers, Surplus::Keep).left, 2);
/// ```
pub fn fill(n: u32, tiers: &[Vec<Recipient<'_>>], surplus: Surplus) -> Split {
    fill_by(n, tiers, surplus, quota_split)
}

/// [`fill`] with another rule within the tiers.
pub fn fill_by(
    n: u32,
    tiers: &[Vec<Recipient<'_>>],
    surplus: Surplus,
    rule: impl Fn(u32, &[Recipient<'_>]) -> Split,
) -> Split {
    let least: u64 = tiers.iter().map(|tier| least(tier)).sum();
    // All minimums are reserved first: no tier may use up that of a later one.
    let mut rest = u64::from(n).saturating_sub(least);
    let mut shares = Vec::new();
    for tier in tiers {
        let capped: Vec<_> = tier.iter().map(up_to_capacity).collect();
        shares.push(fill_tier(&mut rest, &capped, &rule));
    }
    if surplus == Surplus::Spread {
        for (tier, shares) in tiers.iter().zip(&mut shares) {
            if rest == 0 {
                break;
            }
            let room: Vec<_> = tier
                .iter()
                .zip(&*shares)
                .map(|(recipient, share)| above(recipient, *share))
                .collect();
            let more = fill_tier(&mut rest, &room, &rule);
            for (share, more) in shares.iter_mut().zip(more) {
                *share = share.saturating_add(more);
            }
        }
    }
    Split {
        shares: shares.concat(),
        left: narrow(rest),
    }
}

/// The recipient with its capacity as upper bound and weight.
fn up_to_capacity<'a>(recipient: &Recipient<'a>) -> Recipient<'a> {
    let capacity = u32::try_from(recipient.weight).unwrap_or(u32::MAX);
    let max = capacity.min(recipient.top()).max(recipient.min);
    Recipient {
        name: recipient.name,
        weight: u64::from(max),
        min: recipient.min,
        max,
    }
}

/// The recipient of what comes on top of its share.
fn above<'a>(recipient: &Recipient<'a>, share: u32) -> Recipient<'a> {
    Recipient {
        name: recipient.name,
        weight: recipient.weight,
        min: 0,
        max: recipient.top().saturating_sub(share),
    }
}

/// Gives the recipients of a tier their `min`, and as much of `rest` as they have room for.
fn fill_tier(
    rest: &mut u64,
    recipients: &[Recipient<'_>],
    rule: impl Fn(u32, &[Recipient<'_>]) -> Split,
) -> Vec<u32> {
    let least = least(recipients);
    let taken = (*rest).min(most(recipients) - least);
    *rest -= taken;
    match recipients {
        // Most tiers are one member, and most are beyond what is left: neither needs a division.
        [recipient] => vec![narrow(u64::from(recipient.min) + taken)],
        recipients if taken == 0 => recipients.iter().map(|recipient| recipient.min).collect(),
        recipients => rule(narrow(least + taken), recipients).shares,
    }
}

/// The sum of the minimums.
fn least(recipients: &[Recipient<'_>]) -> u64 {
    recipients
        .iter()
        .map(|recipient| u64::from(recipient.min))
        .sum()
}

/// The sum of the maximums.
fn most(recipients: &[Recipient<'_>]) -> u64 {
    recipients
        .iter()
        .map(|recipient| u64::from(recipient.top()))
        .sum()
}

/// Divides among the weighted recipients by `rule`, then what they cannot take among the others.
fn weighted_first(
    n: u32,
    recipients: &[Recipient<'_>],
    rule: impl Fn(u64, &[Recipient<'_>]) -> Vec<u32>,
) -> Split {
    let total = u64::from(n).max(least(recipients)).min(most(recipients));
    let (weighted, mut others): (Vec<_>, Vec<_>) = recipients
        .iter()
        .copied()
        .partition(|recipient| recipient.weight > 0);
    for recipient in &mut others {
        recipient.weight = 1;
    }
    // Recipients without a weight keep their minimums, and get more only when the others are full.
    let first = (total - least(&others)).min(most(&weighted));
    let mut of_weighted = rule(first, &weighted).into_iter();
    let mut of_others = rule(total - first, &others).into_iter();
    let mut shares = Vec::with_capacity(recipients.len());
    for recipient in recipients {
        let part = if recipient.weight > 0 {
            &mut of_weighted
        } else {
            &mut of_others
        };
        shares.push(part.next().unwrap_or(recipient.min));
    }
    Split {
        shares,
        left: narrow(u64::from(n).saturating_sub(total)),
    }
}

/// [`quota_split`] of a total within the bounds among recipients that all have a weight.
fn quota(total: u64, recipients: &[Recipient<'_>]) -> Vec<u32> {
    let mut shares: Vec<u32> = recipients.iter().map(|recipient| recipient.min).collect();
    let mut active: Vec<usize> = (0..recipients.len()).collect();
    let mut rest = total;
    while !active.is_empty() {
        let open_recipients: Vec<_> = active.iter().filter_map(|at| recipients.get(*at)).collect();
        let base = proportions(rest, &open_recipients);
        let (over, under) = violations(&open_recipients, &base);
        let settled = over == 0 && under == 0;
        let mut open = Vec::new();
        for ((at, recipient), base) in active.iter().zip(open_recipients).zip(base) {
            let bounded = base.clamp(u64::from(recipient.min), u64::from(recipient.top()));
            let is_fixed = match base.cmp(&bounded) {
                // Only the side that is violated more is fixed: the other may fit once the rest is divided again.
                Ordering::Greater => over >= under,
                Ordering::Less => under >= over,
                Ordering::Equal => settled,
            };
            if is_fixed {
                rest = rest.saturating_sub(bounded);
                if let Some(share) = shares.get_mut(*at) {
                    *share = narrow(bounded);
                }
            } else {
                open.push(*at);
            }
        }
        active = open;
    }
    shares
}

/// By how much shares are above and below their bounds, in total.
fn violations(recipients: &[&Recipient<'_>], shares: &[u64]) -> (u64, u64) {
    let (mut over, mut under) = (0, 0);
    for (recipient, share) in recipients.iter().zip(shares) {
        over += share.saturating_sub(u64::from(recipient.top()));
        under += u64::from(recipient.min).saturating_sub(*share);
    }
    (over, under)
}

/// Exact shares rounded down, and one more for the heaviest of those with a remainder.
fn proportions(n: u64, recipients: &[&Recipient<'_>]) -> Vec<u64> {
    let weights: u128 = recipients
        .iter()
        .map(|recipient| u128::from(recipient.weight))
        .sum();
    let mut shares: Vec<_> = recipients
        .iter()
        .map(|recipient| claim(n, recipient).checked_div(weights).unwrap_or_default())
        .collect();
    let missing = u128::from(n).saturating_sub(shares.iter().sum());
    let mut order: Vec<_> = recipients.iter().zip(&mut shares).collect();
    // A share without a fraction gets nothing of the remainder.
    order.retain(|(recipient, share)| **share * weights != claim(n, recipient));
    order.sort_by_key(|(recipient, _)| (Reverse(recipient.weight), recipient.name));
    let heaviest = usize::try_from(missing).unwrap_or(usize::MAX);
    for (_, share) in order.into_iter().take(heaviest) {
        *share += 1;
    }
    shares
        .into_iter()
        .map(|share| u64::try_from(share).unwrap_or(n))
        .collect()
}

/// The exact share of a recipient, times the sum of the weights.
fn claim(n: u64, recipient: &Recipient<'_>) -> u128 {
    u128::from(n) * u128::from(recipient.weight)
}

/// A recipient in the heap, ordered by its claim to the next replica.
#[derive(PartialEq, Eq)]
struct HeapEntry<'a> {
    recipient: &'a Recipient<'a>,
    share: u32,
    at: usize,
    ties: Ties,
}

impl HeapEntry<'_> {
    fn divisor(&self) -> u128 {
        2 * u128::from(self.share) + 1
    }

    /// The quotient, times both divisors: multiplied crosswise, quotients are compared exactly.
    fn claim_against(&self, other: &Self) -> u128 {
        u128::from(self.recipient.weight) * other.divisor()
    }
}

impl Ord for HeapEntry<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.claim_against(other)
            .cmp(&other.claim_against(self))
            .then_with(|| other.share.cmp(&self.share))
            .then_with(|| match self.ties {
                Ties::NameAscending => other.recipient.name.cmp(self.recipient.name),
                Ties::NameDescending => self.recipient.name.cmp(other.recipient.name),
            })
    }
}

impl PartialOrd for HeapEntry<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// [`webster`] of a total within the bounds among recipients that all have a weight.
fn highest_quotients(total: u64, recipients: &[Recipient<'_>], ties: Ties) -> Vec<u32> {
    // Starting from zero would take one step per replica; the search by price leaves few steps.
    let mut shares = affordable_shares(total, recipients);
    let mut rest = total.saturating_sub(sum(&shares));
    let mut heap = BinaryHeap::new();
    for (at, (recipient, share)) in recipients.iter().zip(&shares).enumerate() {
        if *share < recipient.top() {
            heap.push(HeapEntry {
                recipient,
                share: *share,
                at,
                ties,
            });
        }
    }
    while rest > 0
        && let Some(mut entry) = heap.pop()
    {
        entry.share += 1;
        rest -= 1;
        if let Some(share) = shares.get_mut(entry.at) {
            *share = entry.share;
        }
        if entry.share < entry.recipient.top() {
            heap.push(entry);
        }
    }
    shares
}

/// The share that every recipient gets in any case: the replicas with `weight / (2 share + 1) >= price`, for the lowest
/// price that the total can pay. Taking them at once does not change the result, and makes the time independent of the
/// total.
fn affordable_shares(total: u64, recipients: &[Recipient<'_>]) -> Vec<u32> {
    let heaviest = recipients
        .iter()
        .map(|recipient| u128::from(recipient.weight))
        .max();
    // Above the highest quotient no recipient buys a replica.
    let (mut too_low, mut affordable) = (0, (heaviest.unwrap_or_default() << 64) + 1);
    while affordable - too_low > 1 {
        let price = too_low + (affordable - too_low) / 2;
        let shares = shares_at_price(price, recipients);
        match sum(&shares).cmp(&total) {
            Ordering::Less => affordable = price,
            Ordering::Equal => return shares,
            Ordering::Greater => too_low = price,
        }
    }
    shares_at_price(affordable, recipients)
}

/// The replicas that each recipient buys at a price, within its bounds. Prices are in units of 2^-64: fine enough to
/// distinguish any two quotients of 64-bit weights and 32-bit shares.
fn shares_at_price(price: u128, recipients: &[Recipient<'_>]) -> Vec<u32> {
    let mut shares = Vec::with_capacity(recipients.len());
    for recipient in recipients {
        let quotients = (u128::from(recipient.weight) << 64) / price;
        let bought = u32::try_from(quotients.div_ceil(2)).unwrap_or(u32::MAX);
        shares.push(bought.clamp(recipient.min, recipient.top()));
    }
    shares
}

/// The sum of shares.
fn sum(shares: &[u32]) -> u64 {
    shares.iter().map(|share| u64::from(*share)).sum()
}

/// Saturates; a share of a `u32` always fits.
fn narrow(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipient(name: &str, weight: u64, min: u32, max: u32) -> Recipient<'_> {
        Recipient {
            name,
            weight,
            min,
            max,
        }
    }

    const ANY: u32 = u32::MAX;
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    /// A number, the weights and bounds that it is divided over, and the shares.
    type Case<'a> = (u32, &'a [(u64, u32, u32)], &'a [u32]);

    #[test]
    fn quota_rounds_up_the_heaviest_and_obeys_the_bounds() {
        const HEAVY: u64 = u64::MAX;
        let cases: [Case<'_>; 14] = [
            // The documented example: 1.67, 3.33, 5.
            (10, &[(1, 0, ANY), (2, 0, ANY), (3, 0, ANY)], &[1, 4, 5]),
            // A light recipient does not starve: 1.17, 2.33, 3.5.
            (7, &[(1, 0, ANY), (2, 0, ANY), (3, 0, ANY)], &[1, 2, 4]),
            (10, &[(1, 0, ANY), (1, 0, ANY), (1, 0, ANY)], &[4, 3, 3]),
            // Fixing one side only would give 7 + 5 + 0 = 12.
            (10, &[(8, 0, 7), (1, 5, ANY), (1, 0, ANY)], &[5, 5, 0]),
            (10, &[(8, 0, 7), (1, 0, ANY), (1, 0, ANY)], &[7, 2, 1]),
            (10, &[(1, 0, 2), (1, 0, 3)], &[2, 3]),
            // No weight: its lower bound, and then only what the others cannot take.
            (10, &[(0, 2, ANY), (1, 0, ANY)], &[2, 8]),
            (10, &[(0, 0, ANY), (0, 0, ANY), (5, 0, 3)], &[4, 3, 3]),
            (7, &[(0, 0, ANY), (0, 0, ANY)], &[4, 3]),
            // The lower bounds win over the number, and over upper ones.
            (3, &[(1, 2, ANY), (1, 4, ANY)], &[2, 4]),
            (3, &[(1, 5, 1), (1, 0, ANY)], &[5, 0]),
            (0, &[(1, 0, ANY)], &[0]),
            (5, &[], &[]),
            (ANY, &[(HEAVY, 0, ANY); 2], &[1 << 31, (1 << 31) - 1]),
        ];
        for (n, rows, shares) in cases {
            let rows = NAMES.into_iter().zip(rows);
            let rows: Vec<_> = rows
                .map(|(name, row)| recipient(name, row.0, row.1, row.2))
                .collect();
            let expected = Split {
                shares: shares.to_vec(),
                left: n.saturating_sub(shares.iter().sum()),
            };
            assert_eq!(quota_split(n, &rows), expected, "{n} over {rows:?}");
        }
    }

    #[test]
    fn fill_goes_tier_by_tier_and_spreads_or_keeps_the_surplus() {
        let one = |weight, min, max, name| vec![recipient(name, weight, min, max)];
        let tiers = [
            one(8, 0, ANY, "a"),
            one(2, 0, ANY, "b"),
            one(2, 0, ANY, "c"),
        ];
        let split = |shares: &[u32], left| Split {
            shares: shares.to_vec(),
            left,
        };
        assert_eq!(fill(24, &tiers, Surplus::Spread), split(&[20, 2, 2], 0));
        assert_eq!(fill(24, &tiers, Surplus::Keep), split(&[8, 2, 2], 12));
        assert_eq!(fill(9, &tiers, Surplus::Spread), split(&[8, 1, 0], 0));
        let bounded = [one(8, 0, 10, "a"), one(2, 3, ANY, "b"), one(2, 0, 4, "c")];
        assert_eq!(fill(9, &bounded, Surplus::Spread), split(&[6, 3, 0], 0));
        assert_eq!(fill(30, &bounded, Surplus::Spread), split(&[10, 18, 2], 0));
        let one_tier = [[("a", 10), ("b", 40), ("c", 0)]
            .map(|(name, weight)| recipient(name, weight, 0, ANY))
            .to_vec()];
        assert_eq!(fill(20, &one_tier, Surplus::Keep), split(&[4, 16, 0], 0));
    }
}
