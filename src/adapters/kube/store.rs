//! Compact copies of the objects of one kind, as of the last watch event.
//!
//! A store has one value per object, by namespace and name, and an index by label. A list replaces all objects of its
//! scope at once, so that a reader never sees a part of a list. An object that cannot be decoded is excluded and
//! logged; the others stay usable. Fetching is left to `watch.rs`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
};

use foretide_domain::{Requirement, Selector};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::changes::Changes;
use crate::{
    adapters::api_server::{CallError, Resource},
    clock::Contact,
    ports::StaleCopy,
};

/// A label: its key and its value.
pub(in crate::adapters) type Label = (Arc<str>, Arc<str>);

/// Maximum size of an object as JSON text, as of an event. Etcd stores 1.5 MiB of one by default, and in JSON a character
/// may have six bytes.
const OBJECT_MAX: usize = 16 << 20;
/// Maximum size of an object that is kept as it is, without the annotations of others.
const KEPT_MAX: usize = 256 << 10;
/// The domains of the annotations that are read.
const DOMAINS: [&str; 2] = ["crane.io", "foretide.io"];

/// The value that a store keeps of an object of one kind.
pub(in crate::adapters) trait Stored: Sized + Send + Sync + 'static {
    /// Whether the value is the object as it is, with all that its author wrote. The annotations of others are removed
    /// from such an object, because they may be as large as the API allows.
    const IS_WHOLE: bool = false;

    /// Decodes an object; the error names the field and what was expected.
    fn decode(object: Value) -> Result<Self, String>;

    /// Its labels, if objects of this kind are selected by label.
    fn labels(&self) -> &[Label] {
        &[]
    }

    /// Whether a selector selects it.
    fn is_selected_by(&self, selector: &Selector) -> bool {
        selector.matches_by(|key| label(self.labels(), key))
    }

    /// Whether its spec and annotations equal those of `before`; such a change is not reported.
    fn spec_eq(&self, _before: &Self) -> bool {
        true
    }
}

/// One object of a list or watch event.
pub(in crate::adapters) struct Entry<V> {
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Option<Arc<str>>,
    value: Result<V, String>,
}

/// What names an object.
#[derive(Deserialize)]
struct ObjectKey {
    metadata: KeyMeta,
}

#[derive(Deserialize)]
struct KeyMeta {
    #[serde(default)]
    namespace: String,
    name: String,
    uid: Option<String>,
}

/// The objects of one kind.
pub(in crate::adapters) struct Store<V> {
    /// The kind.
    pub(in crate::adapters) resource: Resource,
    /// Counters of its watches.
    pub(super) counts: Counts,
    scopes: Vec<Option<String>>,
    /// The last contact of each scope; absent for none.
    contacts: Mutex<Vec<Option<Contact>>>,
    /// The parameter of lists and watches that selects objects.
    selector: Option<(&'static str, String)>,
    changes: Option<Arc<Changes>>,
    /// Marked as changed whenever any object is, in any field.
    written: watch::Sender<()>,
    indexes: RwLock<NamespaceIndexes<V>>,
}

/// Counters of the watches of one kind.
#[derive(Debug, Default)]
pub(super) struct Counts {
    relists: AtomicU64,
    errors: AtomicU64,
    /// The status 403 or 404 if the server has answered that since it delivered last, else 0.
    refused: AtomicU16,
    failing: Mutex<Option<CallError>>,
}

/// The state of the watches of one kind, for readiness, metrics and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchReport {
    /// Kind of the objects.
    pub kind: &'static str,
    /// Objects held.
    pub objects: usize,
    /// Objects that cannot be decoded and are excluded.
    pub unreadable: usize,
    /// Whether every scope has a complete list.
    pub synced: bool,
    /// Complete lists fetched.
    pub relists: u64,
    /// Lists and watches that failed.
    pub errors: u64,
    /// Until when the oldest of its copies is known to be up to date: the last time at which its list was complete, or
    /// its watch delivered an event, a bookmark or its regular end. Absent while a scope has no list.
    pub last_contact: Option<Contact>,
    /// The last failure, until a request succeeds.
    pub failing: Option<String>,
    /// Whether that failure means that the kind may not be read or is not served (403, 404).
    pub forbidden_or_not_found: bool,
}

struct NamespaceIndexes<V> {
    synced: BTreeSet<Option<String>>,
    by_namespace: BTreeMap<Arc<str>, NamespaceIndex<V>>,
    unreadable: BTreeMap<(Arc<str>, Arc<str>), Undecoded>,
}

/// An object that cannot be decoded.
#[derive(PartialEq, Eq)]
struct Undecoded {
    uid: Option<Arc<str>>,
    expected: String,
}

/// The objects of one namespace by name, with an index by label.
#[derive(Debug)]
pub(super) struct NamespaceIndex<V> {
    objects: BTreeMap<Arc<str>, Arc<V>>,
    by_label: HashMap<Label, BTreeSet<Arc<str>>>,
}

// === impl WatchReport ===

impl WatchReport {
    /// Since when its most silent watch has received nothing, where watches run since `started`.
    #[must_use]
    pub fn silent_since<'a>(&'a self, started: &'a Contact) -> &'a Contact {
        self.last_contact.as_ref().unwrap_or(started)
    }
}

// === impl Entry ===

impl<V: Stored> Entry<V> {
    /// Decodes the JSON text of one object; `None` without a name, because the name is its key.
    pub(in crate::adapters) fn read(text: &str) -> Option<Self> {
        if text.len() <= OBJECT_MAX {
            return Self::decode(serde_json::from_str(text).ok()?);
        }
        let ObjectKey { metadata } = serde_json::from_str(text).ok()?;
        Some(Self {
            namespace: metadata.namespace.into(),
            name: metadata.name.into(),
            uid: metadata.uid.map(Arc::from),
            value: Err(longer_than(OBJECT_MAX)),
        })
    }

    /// Decodes one object; `None` without a name.
    pub(in crate::adapters) fn decode(mut object: Value) -> Option<Self> {
        let metadata = object.get_mut("metadata")?.as_object_mut()?;
        // Often the largest part of an object. Whoever needs them reads the object itself.
        metadata.remove("managedFields");
        let text = |key: &str| {
            metadata
                .get(key)
                .and_then(Value::as_str)
                .map(Arc::<str>::from)
        };
        let (namespace, name) = (text("namespace").unwrap_or_default(), text("name")?);
        let uid = text("uid");
        let value = if V::IS_WHOLE {
            remove_annotations_of_others(metadata);
            within_kept_max(object).and_then(V::decode)
        } else {
            V::decode(object)
        };
        Some(Self {
            namespace,
            name,
            uid,
            value,
        })
    }
}

fn remove_annotations_of_others(metadata: &mut Map<String, Value>) {
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return;
    };
    annotations.retain(|key, _| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        // The keys have subdomains, such as `autoscaling.crane.io`.
        DOMAINS.iter().any(|ours| domain.ends_with(ours))
    });
}

/// The object, if it is not too large to be kept.
fn within_kept_max(object: Value) -> Result<Value, String> {
    if object.to_string().len() > KEPT_MAX {
        return Err(longer_than(KEPT_MAX));
    }
    Ok(object)
}

fn longer_than(max: usize) -> String {
    format!("longer than {} KiB, annotations of others aside", max >> 10)
}

// === impl Store ===

impl<V: Stored> Store<V> {
    /// An empty store of the given scopes: namespaces, or all (`None`).
    pub(in crate::adapters) fn new(resource: Resource, scopes: &[Option<String>]) -> Self {
        let indexes = NamespaceIndexes {
            synced: BTreeSet::new(),
            by_namespace: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        };
        Self {
            resource,
            counts: Counts::default(),
            scopes: scopes.to_vec(),
            contacts: Mutex::new(scopes.iter().map(|_| None).collect()),
            selector: None,
            changes: None,
            written: watch::Sender::new(()),
            indexes: RwLock::new(indexes),
        }
    }

    /// The same store, which adds objects with a new spec to `changes`.
    pub(in crate::adapters) fn with_changes(self, changes: Arc<Changes>) -> Self {
        Self {
            changes: Some(changes),
            ..self
        }
    }

    /// The same store, of the objects that a label selector selects.
    pub(in crate::adapters) fn with_label_selector(self, label_selector: String) -> Self {
        Self {
            selector: Some(("labelSelector", label_selector)),
            ..self
        }
    }

    /// The same store, of the one object of this name.
    pub(super) fn with_name(self, name: &str) -> Self {
        Self {
            selector: Some(("fieldSelector", format!("metadata.name={name}"))),
            ..self
        }
    }

    /// The parameter of lists and watches for the objects of this store.
    pub(in crate::adapters) fn selector_parameter(&self) -> Option<(&'static str, &str)> {
        let selector = self.selector.as_ref();
        selector.map(|(parameter, selector)| (*parameter, selector.as_str()))
    }

    pub(super) fn scopes(&self) -> &[Option<String>] {
        &self.scopes
    }

    pub(in crate::adapters) fn is_synced(&self) -> bool {
        self.read().synced.len() == self.scopes.len()
    }

    /// Whether it is known if there are any: they are listed, may not be read, or the kind is not served.
    pub(super) fn is_answered(&self) -> bool {
        self.is_synced() || self.counts.refused.load(Ordering::Relaxed) != 0
    }

    /// Whether they may not be read.
    pub(super) fn is_forbidden(&self) -> bool {
        self.counts.refused.load(Ordering::Relaxed) == 403
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
        let indexes = self.read();
        indexes
            .by_namespace
            .get(namespace)
            .map_or_else(Vec::new, |index| index.all().collect())
    }

    /// Every object, by namespace and name.
    pub(in crate::adapters) fn all(&self) -> Vec<Arc<V>> {
        self.by_namespace().into_values().flatten().collect()
    }

    /// Every object, and the UIDs of those that cannot be decoded, at one time.
    pub(super) fn all_and_unreadable(&self) -> (Vec<Arc<V>>, HashSet<String>) {
        let indexes = self.read();
        let all = indexes.by_namespace.values().flat_map(NamespaceIndex::all);
        let undecoded = indexes.unreadable.values();
        let uids = undecoded.filter_map(|one| one.uid.as_deref().map(str::to_owned));
        (all.collect(), uids.collect())
    }

    /// Every object at one time, by namespace, then by name.
    pub(super) fn by_namespace(&self) -> BTreeMap<Arc<str>, Vec<Arc<V>>> {
        let indexes = self.read();
        let namespaces = indexes.by_namespace.iter();
        let all = |(namespace, index): (&Arc<str>, &NamespaceIndex<V>)| {
            (namespace.clone(), index.all().collect())
        };
        namespaces.map(all).collect()
    }

    /// The objects of a namespace that a selector selects, by name.
    pub(super) fn select(&self, namespace: &str, selector: &Selector) -> Vec<Arc<V>> {
        let indexes = self.read();
        let inside = indexes.by_namespace.get(namespace);
        inside.map_or_else(Vec::new, |index| index.select(selector))
    }

    /// Replaces all objects of a scope by a complete list.
    pub(in crate::adapters) fn replace(&self, scope: Option<&str>, fresh: Vec<Entry<V>>) {
        let mut indexes = self.write();
        // Under one write lock, so that a reader sees either the old list or the new one.
        let before = indexes.clear(scope);
        let mut gone: BTreeSet<(Arc<str>, Arc<str>)> = before.keys().cloned().collect();
        let mut listed = HashSet::with_capacity(fresh.len());
        for entry in fresh {
            let key = (entry.namespace.clone(), entry.name.clone());
            gone.remove(&key);
            listed.insert(key.clone());
            let old = before.get(&key);
            self.put(&mut indexes, entry, old);
        }
        indexes.forget_unreadable(scope, &listed);
        // Deleted between two watches.
        for (namespace, name) in gone {
            self.notify(&namespace, &name);
        }
        indexes.synced.insert(scope.map(str::to_owned));
        // Before subscribers wake, because they read.
        drop(indexes);
        self.written.send_replace(());
    }

    /// Adds or updates one object.
    pub(super) fn apply(&self, entry: Entry<V>) {
        let mut indexes = self.write();
        // Also from the index by label: the new version may lack a label of the old one.
        let old = indexes.remove(&entry.namespace, &entry.name);
        self.put(&mut indexes, entry, old.as_ref());
        drop(indexes);
        self.written.send_replace(());
    }

    /// Removes one object, also one whose last state cannot be decoded.
    pub(super) fn delete(&self, entry: &Entry<V>) {
        self.write().remove(&entry.namespace, &entry.name);
        self.notify(&entry.namespace, &entry.name);
        self.written.send_replace(());
    }

    /// A receiver that is marked as changed whenever any object is, in any field.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.written.subscribe()
    }

    /// The state of the watches of this store.
    pub(in crate::adapters) fn report(&self) -> WatchReport {
        let indexes = self.read();
        let failing = self.counts.failing().clone();
        WatchReport {
            kind: self.resource.kind,
            objects: indexes
                .by_namespace
                .values()
                .map(|index| index.objects.len())
                .sum(),
            unreadable: indexes.unreadable.len(),
            synced: indexes.synced.len() == self.scopes.len(),
            relists: self.counts.relists.load(Ordering::Relaxed),
            errors: self.counts.errors.load(Ordering::Relaxed),
            last_contact: self.last_contact(),
            forbidden_or_not_found: failing
                .as_ref()
                .is_some_and(CallError::is_forbidden_or_not_found),
            failing: failing.map(|error| error.to_string()),
        }
    }

    /// What is wrong with the age of the copies of a namespace, or of every scope: they are older than `max`, or there are
    /// none yet.
    pub(super) fn stale(&self, namespace: Option<&str>, max: SignedDuration) -> Option<StaleCopy> {
        let last_contacts = self.contacts();
        let scopes = self.scopes.iter().zip(&*last_contacts);
        let covers =
            |scope: Option<&str>| namespace.is_none_or(|it| scope.is_none_or(|of| of == it));
        let of_namespace = scopes.filter(|(scope, _)| covers(scope.as_deref()));
        let contacts = of_namespace.map(|(_, contact)| contact.as_ref());
        let stale = contacts.filter(|contact| contact.is_none_or(|contact| contact.age() > max));
        // Absent is older than any.
        let oldest = stale.min_by_key(|contact| contact.map(Contact::monotonic))?;
        Some(StaleCopy {
            kind: self.resource.kind,
            since: oldest.map(Contact::at),
        })
    }

    /// Records that the copies of a scope are up to date.
    pub(super) fn contacted(&self, scope: Option<&str>, contact: &Contact) {
        let mut contacts = self.contacts();
        let contacts = self.scopes.iter().zip(&mut *contacts);
        let of_scope = contacts.filter(|(of, _)| of.as_deref() == scope);
        of_scope.for_each(|(_, last)| *last = Some(contact.clone()));
    }

    /// Of the scope that has been silent longest.
    fn last_contact(&self) -> Option<Contact> {
        let contacts: Option<Vec<Contact>> = self.contacts().iter().cloned().collect();
        contacts?.into_iter().min_by_key(Contact::monotonic)
    }

    fn contacts(&self) -> MutexGuard<'_, Vec<Option<Contact>>> {
        self.contacts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, indexes: &mut NamespaceIndexes<V>, entry: Entry<V>, before: Option<&Arc<V>>) {
        let Entry {
            namespace,
            name,
            uid,
            value,
        } = entry;
        match value {
            Ok(value) => {
                if !before.is_some_and(|old| value.spec_eq(old)) {
                    self.notify(&namespace, &name);
                }
                indexes
                    .unreadable
                    .remove(&(namespace.clone(), name.clone()));
                indexes.index(namespace).insert(name, Arc::new(value));
            }
            Err(expected) => {
                let undecoded = Undecoded { uid, expected };
                self.exclude(indexes, (namespace, name), undecoded);
            }
        }
    }

    fn exclude(
        &self,
        indexes: &mut NamespaceIndexes<V>,
        key: (Arc<str>, Arc<str>),
        undecoded: Undecoded,
    ) {
        // Logged once, not with every list.
        if indexes.unreadable.get(&key) != Some(&undecoded) {
            let object = self.resource.object(&key.0, &key.1);
            let error = &undecoded.expected;
            tracing::warn!(%object, %error, "object cannot be decoded; not reconciled until it changes");
        }
        indexes.unreadable.insert(key, undecoded);
    }

    fn notify(&self, namespace: &str, name: &str) {
        if let Some(changes) = &self.changes {
            changes.add(namespace, name);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, NamespaceIndexes<V>> {
        self.indexes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, NamespaceIndexes<V>> {
        self.indexes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Counts ===

impl Counts {
    pub(super) fn relisted(&self) {
        self.relists.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, error: &CallError) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if error.is_forbidden_or_not_found() {
            let status = if error.is_status(403) { 403 } else { 404 };
            self.refused.store(status, Ordering::Relaxed);
        }
        *self.failing() = Some(error.clone());
    }

    pub(super) fn recovered(&self) {
        self.refused.store(0, Ordering::Relaxed);
        *self.failing() = None;
    }

    fn failing(&self) -> MutexGuard<'_, Option<CallError>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl NamespaceIndexes ===

impl<V: Stored> NamespaceIndexes<V> {
    fn index(&mut self, namespace: Arc<str>) -> &mut NamespaceIndex<V> {
        self.by_namespace.entry(namespace).or_default()
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

    /// Drops what could not be decoded in a scope and is not in its new list.
    fn forget_unreadable(&mut self, scope: Option<&str>, listed: &HashSet<(Arc<str>, Arc<str>)>) {
        let is_of_scope = |namespace: &str| scope.is_none_or(|scope| scope == namespace);
        self.unreadable
            .retain(|key, _| !is_of_scope(&key.0) || listed.contains(key));
    }

    /// Removes and returns the objects of a scope. The errors of undecodable objects stay, so that each is logged once.
    fn clear(&mut self, scope: Option<&str>) -> BTreeMap<(Arc<str>, Arc<str>), Arc<V>> {
        let taken = match scope {
            None => std::mem::take(&mut self.by_namespace),
            Some(scope) => self.by_namespace.remove_entry(scope).into_iter().collect(),
        };
        let named = |(namespace, index): (Arc<str>, NamespaceIndex<V>)| {
            index
                .objects
                .into_iter()
                .map(move |(name, v)| ((namespace.clone(), name), v))
        };
        taken.into_iter().flat_map(named).collect()
    }
}

// === impl NamespaceIndex ===

impl<V> Default for NamespaceIndex<V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            by_label: HashMap::new(),
        }
    }
}

impl<V: Stored> NamespaceIndex<V> {
    fn all(&self) -> impl Iterator<Item = Arc<V>> + '_ {
        self.objects.values().cloned()
    }

    /// The objects that a selector selects, by name.
    pub(super) fn select(&self, selector: &Selector) -> Vec<Arc<V>> {
        let is_selected = |object: &&Arc<V>| object.is_selected_by(selector);
        match self.candidates(selector) {
            None => {
                let all = self.objects.values();
                all.filter(is_selected).cloned().collect()
            }
            Some(names) => names
                .iter()
                .filter_map(|name| self.objects.get(name))
                .filter(is_selected)
                .cloned()
                .collect(),
        }
    }

    pub(super) fn insert(&mut self, name: Arc<str>, object: Arc<V>) {
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

    /// The names that satisfy the most selective equality of a selector; `None` without an equality.
    fn candidates(&self, selector: &Selector) -> Option<BTreeSet<Arc<str>>> {
        let equalities =
            selector
                .requirements()
                .iter()
                .filter_map(|requirement| match requirement {
                    Requirement::Equal(key, value) => {
                        Some((key.as_str().into(), value.as_str().into()))
                    }
                    _ => None,
                });
        equalities
            .map(|label: Label| self.by_label.get(&label))
            // The rarest label leaves the fewest objects to check.
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
