//! The order in which items give way when memory is short.
//!
//! ```text
//! budget 90     a: 20      b: 50 = 30 + 20     c: 40 = 35 + 5
//!                               └ goes first: the newest of the namespace that holds most; 90 are left
//! ```
//!
//! Nothing goes while there is room, and a namespace that holds less than its equal share of the budget loses nothing to
//! another one.

use std::collections::{BTreeMap, BTreeSet};

use derive_where::derive_where;
use jiff::Timestamp;

/// The items of namespaces (`N`), with the bytes of each.
#[derive(Debug)]
#[derive_where(Default)]
pub struct FairShares<N, K> {
    held: usize,
    namespaces: BTreeMap<N, Namespace<K>>,
    by_size: BTreeSet<(usize, N)>,
}

/// One item. The newest is the last in the order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item<K> {
    /// Creation time of the object.
    pub created: Option<Timestamp>,
    /// Identifies the item.
    pub key: K,
    /// Size in memory.
    pub bytes: usize,
}

#[derive(Debug)]
struct Namespace<K> {
    held: usize,
    items: BTreeSet<Item<K>>,
}

// === impl FairShares ===

impl<N: Clone + Ord, K: Clone + Ord> FairShares<N, K> {
    /// Adds an item.
    pub fn insert(&mut self, namespace: &N, item: Item<K>) {
        let bytes = item.bytes;
        let inside = self
            .namespaces
            .entry(namespace.clone())
            .or_insert_with(|| Namespace {
                held: 0,
                items: BTreeSet::new(),
            });
        if inside.items.insert(item) {
            self.resize(namespace, |held| held + bytes);
        }
    }

    /// Removes an item, if it is there.
    pub fn remove(&mut self, namespace: &N, item: &Item<K>) {
        let inside = self.namespaces.get_mut(namespace);
        if inside.is_some_and(|inside| inside.items.remove(item)) {
            self.resize(namespace, |held| held - item.bytes);
        }
    }

    /// Removes and returns the item that gives way, if all together hold more than `budget` bytes.
    pub fn pop_beyond(&mut self, budget: usize) -> Option<(N, Item<K>)> {
        if self.held <= budget {
            return None;
        }
        let (_, largest) = self.by_size.last()?.clone();
        let newest = self.namespaces.get(&largest)?.items.last()?.clone();
        self.remove(&largest, &newest);
        Some((largest, newest))
    }

    /// Returns whether an item of `bytes` bytes that gave way would stay if it came back: it fits into the budget, or
    /// another namespace would hold more than this one. A margin of a twentieth keeps it from coming and going.
    pub(crate) fn would_stay(&self, namespace: &N, bytes: usize, budget: usize) -> bool {
        let own = self.namespaces.get(namespace).map_or(0, |it| it.held) + bytes;
        let largest = self.by_size.last().map_or(0, |(held, _)| *held);
        self.held + bytes <= budget - budget / 20 || own < largest - largest / 20
    }

    /// Removes all items whose key is gone.
    pub(crate) fn remove_all(&mut self, is_gone: impl Fn(&K) -> bool) {
        let mut gone = Vec::new();
        for (namespace, inside) in &self.namespaces {
            for item in inside.items.iter().filter(|item| is_gone(&item.key)) {
                gone.push((namespace.clone(), item.clone()));
            }
        }
        for (namespace, item) in gone {
            self.remove(&namespace, &item);
        }
    }

    fn resize(&mut self, namespace: &N, to: impl Fn(usize) -> usize) {
        let Some(inside) = self.namespaces.get_mut(namespace) else {
            return;
        };
        self.by_size.remove(&(inside.held, namespace.clone()));
        self.held = self.held - inside.held + to(inside.held);
        inside.held = to(inside.held);
        if inside.items.is_empty() {
            self.namespaces.remove(namespace);
        } else {
            self.by_size.insert((inside.held, namespace.clone()));
        }
    }
}

impl<K> Item<K> {
    /// The same item with another key.
    pub(crate) fn map_key<L>(self, key: impl FnOnce(K) -> L) -> Item<L> {
        Item {
            created: self.created,
            key: key(self.key),
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;

    /// Namespace, second of creation, number, and bytes.
    type Case = (usize, i64, usize, usize);

    fn item(&(_, created, key, bytes): &Case) -> Item<usize> {
        Item {
            created: Some(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(created)),
            key,
            bytes,
        }
    }

    prop_compose! {
        fn cases()(
            all in prop::collection::vec((0_usize..4, 0_i64..5, 1_usize..400), 0..40),
        ) -> Vec<Case> {
            let numbered = all.into_iter().enumerate();
            numbered.map(|(key, (namespace, created, bytes))| (namespace, created, key, bytes)).collect()
        }
    }

    proptest! {
        /// The kept items fit; of each namespace they are the oldest; and no namespace lost an item while another held
        /// more, so none lost one while it held less than its equal share.
        #[test]
        fn the_newest_of_the_namespace_that_holds_most_gives_way(all in cases(), budget in 0_usize..8000) {
            let mut shares = FairShares::default();
            for case in &all {
                shares.insert(&case.0, item(case));
            }
            let mut lost = BTreeSet::new();
            while let Some((namespace, lost_item)) = shares.pop_beyond(budget) {
                let held = |of: usize| -> usize {
                    let own = all.iter().filter(|case| case.0 == of && !lost.contains(&case.2));
                    own.map(|case| case.3).sum()
                };
                let most = (0..4).map(held).max();
                prop_assert_eq!(Some(held(namespace)), most);
                prop_assert!(held(namespace) * 4 > budget, "less than an equal share");
                let newest = all.iter().filter(|case| case.0 == namespace && !lost.contains(&case.2)).map(item).max();
                prop_assert_eq!(newest.as_ref(), Some(&lost_item));
                lost.insert(lost_item.key);
            }
            let kept = all.iter().filter(|case| !lost.contains(&case.2));
            prop_assert!(kept.clone().map(|case| case.3).sum::<usize>() <= budget);
            for case in kept {
                shares.remove(&case.0, &item(case));
            }
            prop_assert_eq!(shares.held, 0);
            prop_assert!(shares.by_size.is_empty() && shares.namespaces.is_empty());
        }
    }

    #[test]
    fn what_gave_way_stays_once_it_fits_or_another_namespace_holds_more() {
        let mut shares = FairShares::default();
        let cases = [(0, 0, 0, 40), (1, 0, 1, 30), (1, 1, 2, 30)];
        for case in &cases {
            shares.insert(&case.0, item(case));
        }
        assert_eq!(shares.pop_beyond(90), Some((1, item(&cases[2]))));
        assert!(!shares.would_stay(&1, 30, 90));
        assert!(!shares.would_stay(&1, 17, 90), "87 of 90 are too near");
        assert!(shares.would_stay(&1, 15, 90), "it fits");
        assert!(shares.would_stay(&1, 7, 50), "the other holds more");
        shares.remove(&0, &item(&cases[0]));
        assert!(shares.would_stay(&1, 30, 90));
    }
}
