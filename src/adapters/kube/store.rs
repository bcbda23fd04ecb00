//! Compact copies of one kind of object, as the watches last saw them.
//!
//! Holds one value per object by namespace and name, and an index by label. A new first list replaces
//! a scope in one step, so that a reader never sees half a list. It refuses to fetch, and it keeps an
//! object that cannot be read out of sight rather than let it hurt the others.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use kube::core::Expression;
use serde_json::Value;

use super::{changes::Changes, selector};
use crate::adapters::api_server::{CallError, Resource};

/// A label: its key and its value.
pub(in crate::adapters) type Label = (Arc<str>, Arc<str>);

/// What a store keeps of one kind of object.
pub(in crate::adapters) trait Stored: Sized + Send + Sync + 'static {
    /// Reads an object; the error says what was expected of which field.
    fn decode(object: Value) -> Result<Self, String>;

    /// Its labels, if objects of this kind are looked up by label.
    fn labels(&self) -> &[Label] {
        &[]
    }

    /// Whether its labels satisfy all requirements.
    fn satisfies(&self, requirements: &[Expression]) -> bool {
        requirements
            .iter()
            .all(|r| selector::matches(r, |key| label(self.labels(), key)))
    }

    /// Whether `self` asks for the same as `before`: then nobody needs to hear of the change.
    fn asks_the_same_as(&self, _before: &Self) -> bool {
        true
    }
}

/// One object of a list or watch event.
pub(in crate::adapters) struct Seen<V> {
    namespace: Arc<str>,
    name: Arc<str>,
    value: Result<V, String>,
}

/// The objects of one kind.
pub(in crate::adapters) struct Store<V> {
    /// The kind.
    pub(in crate::adapters) resource: Resource,
    /// What the watches of this store counted.
    pub(super) counts: Counts,
    scopes: Vec<Option<String>>,
    label_selector: Option<String>,
    changes: Option<Arc<Changes>>,
    shelves: RwLock<NamespaceIndexes<V>>,
}

/// Counters of the watches of one kind.
#[derive(Debug, Default)]
pub(super) struct Counts {
    relists: AtomicU64,
    errors: AtomicU64,
    heard_millis: AtomicI64,
    failing: Mutex<Option<CallError>>,
}

/// How the watch of one kind is doing: data for readiness, metrics and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchReport {
    /// Kind of the objects.
    pub kind: &'static str,
    /// Objects held.
    pub objects: usize,
    /// Objects that could not be read and are left out.
    pub unreadable: usize,
    /// Whether every scope has seen a complete list.
    pub synced: bool,
    /// Complete lists fetched.
    pub relists: u64,
    /// Lists and watches that failed.
    pub errors: u64,
    /// When the server last said anything, bookmarks included; wall clock.
    pub heard: Option<Timestamp>,
    /// The last failure, until the server answers well again.
    pub failing: Option<String>,
    /// Whether that failure is that the kind may not be read or is not served (403, 404).
    pub withheld: bool,
}

struct NamespaceIndexes<V> {
    synced: BTreeSet<Option<String>>,
    by_namespace: BTreeMap<Arc<str>, NamespaceIndex<V>>,
    unreadable: BTreeMap<(Arc<str>, Arc<str>), String>,
}

struct NamespaceIndex<V> {
    objects: BTreeMap<Arc<str>, Arc<V>>,
    by_label: HashMap<Label, BTreeSet<Arc<str>>>,
}

// === impl Seen ===

impl<V: Stored> Seen<V> {
    /// Reads one object; `None` when it has no name, so that there is nothing to keep it by.
    pub(in crate::adapters) fn decode(mut object: Value) -> Option<Self> {
        let metadata = object.get_mut("metadata")?.as_object_mut()?;
        metadata.remove("managedFields");
        let text = |key: &str| {
            metadata
                .get(key)
                .and_then(Value::as_str)
                .map(Arc::<str>::from)
        };
        let (namespace, name) = (text("namespace").unwrap_or_default(), text("name")?);
        Some(Self {
            namespace,
            name,
            value: V::decode(object),
        })
    }
}

// === impl Store ===

impl<V: Stored> Store<V> {
    /// An empty store of the given scopes: namespaces, or all (`None`).
    pub(in crate::adapters) fn new(resource: Resource, scopes: &[Option<String>]) -> Self {
        let shelves = NamespaceIndexes {
            synced: BTreeSet::new(),
            by_namespace: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        };
        Self {
            resource,
            counts: Counts::default(),
            scopes: scopes.to_vec(),
            label_selector: None,
            changes: None,
            shelves: RwLock::new(shelves),
        }
    }

    /// The same store, telling `changes` which objects ask for something new.
    pub(in crate::adapters) fn telling(self, changes: Arc<Changes>) -> Self {
        Self {
            changes: Some(changes),
            ..self
        }
    }

    /// The same store, of the objects that a label selector (in its text form) selects.
    pub(in crate::adapters) fn narrowed(self, label_selector: String) -> Self {
        Self {
            label_selector: Some(label_selector),
            ..self
        }
    }

    /// The parameter that narrows a list or watch to what this store holds.
    pub(in crate::adapters) fn narrowed_by(&self) -> Option<(&'static str, &str)> {
        let selector = self.label_selector.as_deref();
        selector.map(|selector| ("labelSelector", selector))
    }

    pub(super) fn scopes(&self) -> &[Option<String>] {
        &self.scopes
    }

    pub(in crate::adapters) fn is_synced(&self) -> bool {
        self.read().synced.len() == self.scopes.len()
    }

    pub(in crate::adapters) fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        self.read()
            .by_namespace
            .get(namespace)?
            .objects
            .get(name)
            .cloned()
    }

    /// Every object of a namespace, by name.
    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        let shelves = self.read();
        shelves
            .by_namespace
            .get(namespace)
            .map_or_else(Vec::new, |shelf| shelf.all().collect())
    }

    /// Every object, by namespace and name.
    pub(in crate::adapters) fn all(&self) -> Vec<Arc<V>> {
        self.by_namespace().into_values().flatten().collect()
    }

    /// Every object as of one moment, each namespace's by name.
    pub(super) fn by_namespace(&self) -> BTreeMap<Arc<str>, Vec<Arc<V>>> {
        let shelves = self.read();
        let namespaces = shelves.by_namespace.iter();
        let all = |(namespace, shelf): (&Arc<str>, &NamespaceIndex<V>)| {
            (namespace.clone(), shelf.all().collect())
        };
        namespaces.map(all).collect()
    }

    /// The objects of a namespace that satisfy all requirements, by name.
    pub(super) fn select(&self, namespace: &str, requirements: &[Expression]) -> Vec<Arc<V>> {
        let shelves = self.read();
        let Some(inside) = shelves.by_namespace.get(namespace) else {
            return Vec::new();
        };
        let satisfies = |object: &&Arc<V>| object.satisfies(requirements);
        match inside.narrowest(requirements) {
            None => inside.objects.values().filter(satisfies).cloned().collect(),
            Some(names) => names
                .iter()
                .filter_map(|name| inside.objects.get(name))
                .filter(satisfies)
                .cloned()
                .collect(),
        }
    }

    /// Replaces everything of a scope by a complete list.
    pub(in crate::adapters) fn replace(&self, scope: Option<&str>, fresh: Vec<Seen<V>>) {
        let mut shelves = self.write();
        let before = shelves.take(scope);
        let mut gone: BTreeSet<(Arc<str>, Arc<str>)> = before.keys().cloned().collect();
        for seen in fresh {
            let key = (seen.namespace.clone(), seen.name.clone());
            gone.remove(&key);
            let old = before.get(&key);
            self.put(&mut shelves, seen, old);
        }
        for (namespace, name) in gone {
            self.tell(&namespace, &name);
        }
        shelves.synced.insert(scope.map(str::to_owned));
    }

    /// Adds or updates one object.
    pub(super) fn apply(&self, seen: Seen<V>) {
        let mut shelves = self.write();
        let old = shelves.remove(&seen.namespace, &seen.name);
        self.put(&mut shelves, seen, old.as_ref());
    }

    /// Removes one object.
    pub(super) fn delete(&self, seen: &Seen<V>) {
        self.write().remove(&seen.namespace, &seen.name);
        self.tell(&seen.namespace, &seen.name);
    }

    /// How the watches of this store are doing.
    pub(in crate::adapters) fn report(&self) -> WatchReport {
        let shelves = self.read();
        let heard = self.counts.heard_millis.load(Ordering::Relaxed);
        let failing = self.counts.failing().clone();
        WatchReport {
            kind: self.resource.kind,
            objects: shelves
                .by_namespace
                .values()
                .map(|shelf| shelf.objects.len())
                .sum(),
            unreadable: shelves.unreadable.len(),
            synced: shelves.synced.len() == self.scopes.len(),
            relists: self.counts.relists.load(Ordering::Relaxed),
            errors: self.counts.errors.load(Ordering::Relaxed),
            heard: (heard > 0)
                .then(|| Timestamp::from_millisecond(heard).ok())
                .flatten(),
            withheld: failing.as_ref().is_some_and(CallError::is_withheld),
            failing: failing.map(|error| error.to_string()),
        }
    }

    fn put(&self, shelves: &mut NamespaceIndexes<V>, seen: Seen<V>, before: Option<&Arc<V>>) {
        let Seen {
            namespace,
            name,
            value,
        } = seen;
        match value {
            Ok(value) => {
                if !before.is_some_and(|old| value.asks_the_same_as(old)) {
                    self.tell(&namespace, &name);
                }
                shelves
                    .unreadable
                    .remove(&(namespace.clone(), name.clone()));
                shelves.shelf(namespace).insert(name, Arc::new(value));
            }
            Err(expected) => self.leave_out(shelves, (namespace, name), expected),
        }
    }

    fn leave_out(
        &self,
        shelves: &mut NamespaceIndexes<V>,
        key: (Arc<str>, Arc<str>),
        expected: String,
    ) {
        if shelves.unreadable.get(&key) != Some(&expected) {
            let object = self.resource.shown(&key.0, &key.1);
            tracing::warn!(%object, error = %expected, "object cannot be read and is left out until it changes");
        }
        shelves.unreadable.insert(key, expected);
    }

    fn tell(&self, namespace: &str, name: &str) {
        if let Some(changes) = &self.changes {
            changes.add(namespace, name);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, NamespaceIndexes<V>> {
        self.shelves.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, NamespaceIndexes<V>> {
        self.shelves.write().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Counts ===

impl Counts {
    pub(super) fn relisted(&self) {
        self.relists.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, error: &CallError) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        *self.failing() = Some(error.clone());
    }

    pub(super) fn recovered(&self) {
        *self.failing() = None;
    }

    fn failing(&self) -> MutexGuard<'_, Option<CallError>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn heard(&self, at: Timestamp) {
        self.heard_millis
            .store(at.as_millisecond(), Ordering::Relaxed);
    }
}

// === impl NamespaceIndexes ===

impl<V: Stored> NamespaceIndexes<V> {
    fn shelf(&mut self, namespace: Arc<str>) -> &mut NamespaceIndex<V> {
        self.by_namespace
            .entry(namespace)
            .or_insert_with(|| NamespaceIndex {
                objects: BTreeMap::new(),
                by_label: HashMap::new(),
            })
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<V>> {
        self.unreadable.remove(&(namespace.into(), name.into()));
        let inside = self.by_namespace.get_mut(namespace)?;
        let removed = inside.remove(name);
        if inside.objects.is_empty() {
            self.by_namespace.remove(namespace);
        }
        removed
    }

    /// Empties a scope; the complaints about unreadable objects stay, so that each is logged once.
    fn take(&mut self, scope: Option<&str>) -> BTreeMap<(Arc<str>, Arc<str>), Arc<V>> {
        let taken = match scope {
            None => std::mem::take(&mut self.by_namespace),
            Some(scope) => self.by_namespace.remove_entry(scope).into_iter().collect(),
        };
        let named = |(namespace, shelf): (Arc<str>, NamespaceIndex<V>)| {
            shelf
                .objects
                .into_iter()
                .map(move |(name, v)| ((namespace.clone(), name), v))
        };
        taken.into_iter().flat_map(named).collect()
    }
}

// === impl NamespaceIndex ===

impl<V: Stored> NamespaceIndex<V> {
    fn all(&self) -> impl Iterator<Item = Arc<V>> + '_ {
        self.objects.values().cloned()
    }

    fn insert(&mut self, name: Arc<str>, object: Arc<V>) {
        for label in object.labels() {
            self.by_label
                .entry(label.clone())
                .or_default()
                .insert(name.clone());
        }
        self.objects.insert(name, object);
    }

    fn remove(&mut self, name: &str) -> Option<Arc<V>> {
        let removed = self.objects.remove(name)?;
        for label in removed.labels() {
            if let Some(names) = self.by_label.get_mut(label) {
                names.remove(name);
                if names.is_empty() {
                    self.by_label.remove(label);
                }
            }
        }
        Some(removed)
    }

    /// The smallest set of names that an equality among the requirements leaves; `None` without one.
    fn narrowest(&self, requirements: &[Expression]) -> Option<BTreeSet<Arc<str>>> {
        let equalities = requirements
            .iter()
            .filter_map(|requirement| match requirement {
                Expression::Equal(key, value) => Some((key.as_str().into(), value.as_str().into())),
                _ => None,
            });
        equalities
            .map(|label: Label| self.by_label.get(&label))
            .min_by_key(|names| names.map_or(0, BTreeSet::len))
            .map(|names| names.cloned().unwrap_or_default())
    }
}

fn label<'a>(labels: &'a [Label], key: &str) -> Option<&'a str> {
    labels
        .iter()
        .find(|(found, _)| &**found == key)
        .map(|(_, value)| &**value)
}
