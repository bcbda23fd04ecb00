//! The objects at every revision that the history still reaches: what etcd is to the API server.
//!
//! ```text
//! revision   ... 41 ─── 42 ─── 43 ─── 44          each write is one revision of the whole store
//! history        └ compacted  └ put   └ remove    what was before, and what is after
//! ```
//!
//! A watch reads the changes after a revision, and a list the objects at one; both fail when the history no longer
//! reaches back to it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::{Value, json};

/// The first revision; a real server has written much before its first client.
const FIRST: u64 = 100;
/// Revisions that pass after a backup. A restored server is behind for long.
const SINCE_BACKUP: u64 = 1 << 20;
/// Number of changes that are kept unless they are compacted.
const HISTORY: usize = 4_096;

/// Objects of one kind, by `namespace/name`, or by name if they are in no namespace.
pub(crate) type Objects = BTreeMap<String, Arc<Value>>;

/// The history no longer reaches back to a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The oldest revision that it reaches.
    pub(crate) oldest: u64,
}

/// One write.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// The kind, such as `deployments.apps`.
    pub(crate) collection: String,
    pub(crate) key: String,
    /// The object before it; none if it was created.
    pub(crate) before: Option<Arc<Value>>,
    /// The object after it; of a deletion its last state, at the revision of the deletion.
    pub(crate) object: Arc<Value>,
    pub(crate) is_deletion: bool,
}

/// All objects, and the last changes.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    /// Changes up to this revision are forgotten.
    compacted: u64,
    objects: BTreeMap<String, Objects>,
    history: VecDeque<Change>,
    /// The revision of the last backup, with all objects at that time.
    backup: Option<(u64, BTreeMap<String, Objects>)>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            revision: FIRST,
            compacted: FIRST,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            backup: None,
        }
    }
}

impl Store {
    /// The revision of the last write.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, collection: &str, key: &str) -> Option<&Arc<Value>> {
        self.objects.get(collection)?.get(key)
    }

    /// All objects of a kind.
    pub(crate) fn all(
        &self,
        collection: &str,
    ) -> impl Iterator<Item = (&String, &Arc<Value>)> + use<'_> {
        self.objects.get(collection).into_iter().flatten()
    }

    /// All objects of all kinds: the kind, the key and the object.
    pub(crate) fn everything(&self) -> impl Iterator<Item = (&String, &String, &Arc<Value>)> {
        let kinds = self.objects.iter();
        kinds.flat_map(|(kind, objects)| {
            objects.iter().map(move |(key, object)| (kind, key, object))
        })
    }

    /// Stores an object at a new revision.
    pub(crate) fn put(&mut self, collection: &str, key: &str, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let object = Arc::new(object);
        let objects = self.objects.entry(collection.to_owned()).or_default();
        let before = objects.insert(key.to_owned(), Arc::clone(&object));
        self.record(Change {
            revision: self.revision,
            collection: collection.to_owned(),
            key: key.to_owned(),
            before,
            object: Arc::clone(&object),
            is_deletion: false,
        });
        object
    }

    /// Removes an object at a new revision; returns its last state.
    pub(crate) fn remove(&mut self, collection: &str, key: &str) -> Option<Arc<Value>> {
        let last = Value::clone(self.get(collection, key)?);
        self.remove_as(collection, key, last)
    }

    /// Removes an object at a new revision, with another last state.
    pub(crate) fn remove_as(
        &mut self,
        collection: &str,
        key: &str,
        mut last: Value,
    ) -> Option<Arc<Value>> {
        let before = self.objects.get_mut(collection)?.remove(key)?;
        self.revision += 1;
        last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let last = Arc::new(last);
        self.record(Change {
            revision: self.revision,
            collection: collection.to_owned(),
            key: key.to_owned(),
            before: Some(before),
            object: Arc::clone(&last),
            is_deletion: true,
        });
        Some(last)
    }

    fn record(&mut self, change: Change) {
        self.history.push_back(change);
        if self.history.len() > HISTORY {
            self.compact(self.revision - HISTORY as u64);
        }
    }

    /// Keeps the present state of all objects.
    pub(crate) fn back_up(&mut self) {
        self.backup = Some((self.revision, self.objects.clone()));
        self.revision += SINCE_BACKUP;
    }

    /// Goes on from the last backup, without a history; returns whether there was one.
    pub(crate) fn restore(&mut self) -> bool {
        let Some((revision, objects)) = self.backup.take() else {
            return false;
        };
        (self.revision, self.compacted, self.objects) = (revision, revision, objects);
        self.history.clear();
        true
    }

    /// Forgets the changes up to a revision.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        while self
            .history
            .front()
            .is_some_and(|change| change.revision <= self.compacted)
        {
            self.history.pop_front();
        }
    }

    /// The changes after a revision, in order.
    pub(crate) fn since(&self, revision: u64) -> Result<impl Iterator<Item = &Change>, Expired> {
        if revision < self.compacted {
            return Err(Expired {
                oldest: self.compacted,
            });
        }
        let first = self
            .history
            .partition_point(|change| change.revision <= revision);
        Ok(self.history.range(first..))
    }

    /// The objects of a kind at a revision.
    pub(crate) fn at(&self, collection: &str, revision: u64) -> Result<Objects, Expired> {
        let mut objects = self.objects.get(collection).cloned().unwrap_or_default();
        let changes: Vec<&Change> = self.since(revision)?.collect();
        for change in changes
            .into_iter()
            .rev()
            .filter(|change| change.collection == collection)
        {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Arc::clone(before)),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_history_is_bounded() {
        let mut store = Store::default();
        for _ in 0..=HISTORY {
            store.put("pods", "ns/a", json!({"metadata": {}}));
        }
        assert!(store.since(FIRST).is_err());
        assert_eq!(store.since(FIRST + 1).unwrap().count(), HISTORY);
    }

    #[test]
    fn a_restored_store_is_behind_whoever_has_seen_it() {
        let mut store = Store::default();
        let object = store.put("pods", "ns/a", json!({"metadata": {}}));
        store.back_up();
        store.put("pods", "ns/b", json!({"metadata": {}}));
        let seen = store.revision();
        assert!(store.restore());
        let all: Vec<_> = store.all("pods").collect();
        assert_eq!(all, [(&"ns/a".to_owned(), &object)]);
        store.put("pods", "ns/c", json!({"metadata": {}}));
        assert_eq!(store.since(seen).unwrap().count(), 0);
    }
}
