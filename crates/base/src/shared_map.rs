//! A bounded map of shared values, for keys that come from objects that users write.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

/// Values by key, each created at its first use.
///
/// # Guarantees
/// A value that is held elsewhere is never evicted. At `limit` all other values are evicted, but first only those for
/// which `is_like_new` returns true.
#[derive(Debug)]
pub struct SharedMap<K, V> {
    limit: usize,
    is_like_new: fn(&V) -> bool,
    values: Mutex<BTreeMap<K, Arc<V>>>,
}

// === impl SharedMap ===

impl<K: Ord, V> SharedMap<K, V> {
    /// An empty map that evicts values that are not held elsewhere when it reaches this size.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            is_like_new: |_| true,
            values: Mutex::default(),
        }
    }

    /// The same map, which first evicts the values that `is_like_new` returns true for.
    #[must_use]
    pub fn evicting_first(self, is_like_new: fn(&V) -> bool) -> Self {
        Self {
            is_like_new,
            ..self
        }
    }

    /// The value of a key; `make` creates a missing one.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut values = self.values.lock();
        if values.len() >= self.limit && !values.contains_key(&key) {
            // Values that are held elsewhere stay.
            values.retain(|_, it| Arc::strong_count(it) > 1 || !(self.is_like_new)(it));
            if values.len() >= self.limit {
                values.retain(|_, value| Arc::strong_count(value) > 1);
            }
        }
        Arc::clone(values.entry(key).or_insert_with(|| Arc::new(make())))
    }

    /// The keys of the values for which `has` returns true.
    pub fn keys_where(&self, has: impl Fn(&V) -> bool) -> Vec<K>
    where
        K: Clone,
    {
        self.values
            .lock()
            .iter()
            .filter(|(_, value)| has(value))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// All values.
    pub fn values(&self) -> Vec<Arc<V>> {
        self.values.lock().values().map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_held_are_evicted_at_the_limit() {
        let map = SharedMap::new(3);
        let held = map.get_or_insert_with(0, || 0);
        for key in 1..10 {
            drop(map.get_or_insert_with(key, || key));
            assert!(map.keys_where(|_| true).len() <= 3);
        }
        assert!(Arc::ptr_eq(&held, &map.get_or_insert_with(0, || 7)));
    }

    #[test]
    fn values_that_are_like_new_are_evicted_first() {
        let map = SharedMap::new(3).evicting_first(|value: &i32| value % 2 == 0);
        for key in [1, 2, 4, 6, 8] {
            drop(map.get_or_insert_with(key, || key));
        }
        assert_eq!(map.keys_where(|value| *value == 1), [1]);
        for key in [3, 5, 7] {
            drop(map.get_or_insert_with(key, || key));
            assert!(map.keys_where(|_| true).len() <= 3);
        }
        assert_eq!(map.keys_where(|_| true), [7]);
    }
}
