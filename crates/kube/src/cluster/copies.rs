//! The copies of a store: the values that are kept, by namespace and name, and the reasons why others are not.
//!
//! What is kept is charged to an account of the memory limit. A copy that has to give way is left out: its object is
//! excluded, as one that cannot be decoded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use derive_where::derive_where;
use foretide_domain::Selector;

use super::{labels::LabelIndex, stored::Stored};
use foretide_base::memory::{Account, Item};

/// The namespace and the name of an object.
pub type Key = (Arc<str>, Arc<str>);

/// The copies of the objects of one kind.
#[derive(Debug)]
#[derive_where(Default)]
pub struct Copies<V> {
    /// The scopes that were listed whole.
    pub synced: BTreeSet<Option<String>>,
    by_namespace: BTreeMap<Arc<str>, NamespaceCopies<V>>,
    excluded: BTreeMap<Key, Excluded>,
    /// The account that copies are charged to; none without a limit of memory.
    account: Option<Arc<Account>>,
}

/// A value with what is charged for it.
#[derive(Debug)]
pub struct Copy<V> {
    pub value: V,
    pub uid: Option<Arc<str>>,
    pub charge: Item<Arc<str>>,
}

/// An object that is excluded.
#[derive(Debug, PartialEq, Eq)]
pub struct Excluded {
    pub uid: Option<Arc<str>>,
    pub why: Exclusion,
}

/// Reasons why an object is excluded.
#[derive(Debug, PartialEq, Eq, derive_more::Display)]
pub enum Exclusion {
    /// An object that cannot be decoded; the text says what was expected.
    #[display("it cannot be decoded: {_0}")]
    Undecodable(String),
    /// An object of this many bytes, for which the memory limit has no room.
    #[display(
        "the memory limit of the controller has no room for it ({} KiB), and its namespace holds most; raise the limit, \
         or delete what is large in the namespace",
        _0 >> 10
    )]
    LeftOut(usize),
}

#[derive(Debug)]
struct NamespaceCopies<V> {
    by_name: BTreeMap<Arc<str>, Copy<Arc<V>>>,
    by_labels: LabelIndex<V>,
}

// === impl Copies ===

impl<V: Stored> Copies<V> {
    /// Charges what is kept from now on to this account.
    pub fn charge_to(&mut self, account: Account) {
        self.account = Some(Arc::new(account));
    }

    pub fn account(&self) -> Option<Arc<Account>> {
        self.account.clone()
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<V>> {
        let inside = self.by_namespace.get(namespace)?;
        inside.by_name.get(name).map(|copy| &copy.value)
    }

    /// Every value of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<V>> {
        let inside = self.by_namespace.get(namespace);
        inside.into_iter().flat_map(NamespaceCopies::all)
    }

    /// Every value, by namespace, then by name.
    pub fn by_namespace(&self) -> impl Iterator<Item = (&Arc<str>, impl Iterator<Item = &Arc<V>>)> {
        self.by_namespace
            .iter()
            .map(|(namespace, inside)| (namespace, inside.all()))
    }

    /// The values of a namespace that a selector selects, by name.
    pub fn select(&self, namespace: &str, selector: &Selector) -> Vec<Arc<V>> {
        let inside = self.by_namespace.get(namespace);
        inside.map_or_else(Vec::new, |inside| inside.by_labels.select(selector))
    }

    /// Number of values that are kept.
    pub fn len(&self) -> usize {
        let inside = self.by_namespace.values();
        inside.map(|inside| inside.by_name.len()).sum()
    }

    /// The excluded objects, by namespace and name.
    pub const fn excluded(&self) -> &BTreeMap<Key, Excluded> {
        &self.excluded
    }

    /// The excluded objects of a namespace.
    pub fn excluded_in(&self, namespace: &str) -> impl Iterator<Item = (&Key, &Excluded)> {
        let namespace: Arc<str> = namespace.into();
        self.excluded
            .range((namespace.clone(), "".into())..)
            .take_while(move |((of, _), _)| *of == namespace)
    }

    /// The objects of a scope, kept or excluded.
    pub fn keys(&self, scope: Option<&str>) -> Vec<Key> {
        let mut keys = Vec::new();
        for (namespace, inside) in &self.by_namespace {
            if is_of_scope(namespace, scope) {
                keys.extend(
                    inside
                        .by_name
                        .keys()
                        .map(|it| (namespace.clone(), it.clone())),
                );
            }
        }
        let excluded = self.excluded.keys();
        keys.extend(excluded.filter(|key| is_of_scope(&key.0, scope)).cloned());
        keys
    }

    /// Keeps a value instead of the one that is kept of the object.
    pub fn keep(&mut self, namespace: &Arc<str>, copy: Copy<V>) {
        let name = copy.charge.key.clone();
        self.remove(namespace, &name);
        if let Some(account) = &self.account {
            account.charge(namespace, copy.charge.clone());
        }
        self.by_namespace
            .entry(namespace.clone())
            .or_insert_with(|| NamespaceCopies {
                by_name: BTreeMap::new(),
                by_labels: LabelIndex::default(),
            })
            .insert(name, copy);
    }

    /// Excludes an object; returns true if it was not excluded before, or for another reason.
    pub fn exclude(&mut self, key: Key, excluded: Excluded) -> bool {
        let is_new = self.excluded.get(&key) != Some(&excluded);
        self.remove(&key.0, &key.1);
        self.count(&key.0, &excluded, 1);
        self.excluded.insert(key, excluded);
        is_new
    }

    /// Leaves out an object, if this is the charge of its copy; returns true if it was left out.
    pub fn leave_out(&mut self, namespace: &Arc<str>, charge: &Item<Arc<str>>) -> bool {
        let inside = self.by_namespace.get(namespace);
        let copy = inside.and_then(|inside| inside.by_name.get(&charge.key));
        let Some(copy) = copy.filter(|copy| copy.charge == *charge) else {
            return false;
        };
        let excluded = Excluded {
            uid: copy.uid.clone(),
            why: Exclusion::LeftOut(charge.bytes),
        };
        self.exclude((namespace.clone(), charge.key.clone()), excluded)
    }

    /// Removes an object, also one that is excluded.
    pub fn remove(&mut self, namespace: &Arc<str>, name: &Arc<str>) {
        let key = (namespace.clone(), name.clone());
        if let Some(excluded) = self.excluded.remove(&key) {
            self.count(namespace, &excluded, -1);
        }
        let Some(inside) = self.by_namespace.get_mut(namespace) else {
            return;
        };
        let removed = inside.remove(name);
        if inside.by_name.is_empty() {
            self.by_namespace.remove(namespace);
        }
        if let (Some(account), Some(removed)) = (&self.account, removed) {
            account.release(namespace, removed.charge);
        }
    }

    fn count(&self, namespace: &Arc<str>, excluded: &Excluded, change: isize) {
        if let (Some(account), Exclusion::LeftOut(_)) = (&self.account, &excluded.why) {
            account.count_left_out(namespace, change);
        }
    }
}

fn is_of_scope(namespace: &str, scope: Option<&str>) -> bool {
    scope.is_none_or(|scope| scope == namespace)
}

// === impl NamespaceCopies ===

impl<V: Stored> NamespaceCopies<V> {
    fn all(&self) -> impl Iterator<Item = &Arc<V>> {
        self.by_name.values().map(|copy| &copy.value)
    }

    fn insert(&mut self, name: Arc<str>, mut copy: Copy<V>) {
        let labels = copy.value.labels();
        let labels = labels.map(|labels| self.by_labels.shared(labels));
        if let Some(labels) = &labels {
            copy.value.share_labels(labels.clone());
        }
        let value = Arc::new(copy.value);
        if let Some(labels) = labels {
            let value = Arc::clone(&value);
            self.by_labels.insert(labels, name.clone(), value);
        }
        let Copy { uid, charge, .. } = copy;
        self.by_name.insert(name, Copy { value, uid, charge });
    }

    fn remove(&mut self, name: &str) -> Option<Copy<Arc<V>>> {
        let removed = self.by_name.remove(name)?;
        if let Some(labels) = removed.value.labels() {
            self.by_labels.remove(labels, name);
        }
        Some(removed)
    }
}

// === impl Exclusion ===
