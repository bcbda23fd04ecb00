//! Compact copies of the objects of one kind, as of the last watch event.
//!
//! A store has one value per object, by namespace and name, and an index by labels. A list is read into it object by
//! object; those that it no longer has are removed at its end. An object that cannot be decoded, or for which the
//! memory limit has no room, is excluded; the others stay usable. Fetching is left to `watch.rs`.

use std::{
    collections::{BTreeMap, HashSet},
    iter,
    sync::{Arc, Weak},
};

use foretide_domain::Selector;
use jiff::SignedDuration;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use super::{
    changes::Changes,
    copies::{Copies, Copy, Excluded, Exclusion, Key},
    entry::{Entry, longer_than},
    stored::Stored,
    watch_report::{Counts, WatchReport},
};
use crate::api_server::{CallError, Resource};
use foretide_api::ports::UnusableCopies;
use foretide_base::{
    clock::Contact,
    memory::{Account, Item, Keeper},
};

/// Maximum size in memory of what is kept of an object, if it is not kept as it is.
const KEPT_MAX: usize = 256 << 10;
/// Memory that the indexes take for an object, beside its value.
const ENTRY: usize = 320;

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Store<V> {
    pub(crate) resource: Resource,
    /// Counters of its watches.
    pub counts: Counts,
    scopes: Vec<Option<String>>,
    /// The last contact of each scope; absent for none.
    contacts: Mutex<Vec<Option<Contact>>>,
    /// The parameter of lists and watches that selects objects.
    selector: Option<(&'static str, String)>,
    changes: Option<Arc<Changes>>,
    /// The memory that a value takes.
    size: fn(&V) -> usize,
    /// Channel that is marked as changed whenever an object changes in any field.
    written: watch::Sender<()>,
    copies: RwLock<Copies<V>>,
}

/// A list that is being read into a store.
pub(crate) struct Listing<'s, V> {
    store: &'s Store<V>,
    scope: Option<&'s str>,
    listed: HashSet<Key>,
}

// === impl Store ===

impl<V: Stored> Store<V> {
    /// An empty store of the given scopes: namespaces, or all (`None`).
    pub fn new(resource: Resource, scopes: &[Option<String>]) -> Self {
        Self {
            resource,
            counts: Counts::default(),
            scopes: scopes.to_vec(),
            contacts: Mutex::new(scopes.iter().map(|_| None).collect()),
            selector: None,
            changes: None,
            size: V::size,
            written: watch::Sender::new(()),
            copies: RwLock::default(),
        }
    }

    /// The same store, which adds objects with a new spec to `changes`.
    pub fn with_changes(self, changes: Arc<Changes>) -> Self {
        Self {
            changes: Some(changes),
            ..self
        }
    }

    /// The same store, of objects that a controller manages.
    pub fn of_managed(self) -> Self {
        let size = V::managed_size;
        Self { size, ..self }
    }

    /// The same store, of the objects that a label selector selects.
    pub fn with_label_selector(self, label_selector: String) -> Self {
        Self {
            selector: Some(("labelSelector", label_selector)),
            ..self
        }
    }

    /// The same store, of the one object of this name.
    pub fn with_name(self, name: &str) -> Self {
        Self {
            selector: Some(("fieldSelector", format!("metadata.name={name}"))),
            ..self
        }
    }

    /// The parameter of lists and watches for the objects of this store.
    pub fn selector_parameter(&self) -> Option<(&'static str, &str)> {
        let selector = self.selector.as_ref();
        selector.map(|(parameter, selector)| (*parameter, selector.as_str()))
    }

    pub(crate) fn scopes(&self) -> &[Option<String>] {
        &self.scopes
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.read().synced.len() == self.scopes.len()
    }

    /// Charges the copies of this store to the account that is opened for it.
    pub fn charge_to(self: &Arc<Self>, open: impl FnOnce(Weak<dyn Keeper>) -> Account) {
        let store: Weak<Self> = Arc::downgrade(self);
        self.write().charge_to(open(store));
    }

    /// True if it is known whether there are objects: they are listed, may not be read, or the kind is not served.
    pub fn is_answered(&self) -> bool {
        self.is_synced() || self.counts.refused().is_some()
    }

    /// True if every object is listed and none is excluded.
    pub fn is_complete(&self) -> bool {
        let copies = self.read();
        copies.synced.len() == self.scopes.len() && copies.excluded().is_empty()
    }

    /// True if the objects may not be read.
    pub fn is_forbidden(&self) -> bool {
        self.counts.refused() == Some(403)
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        self.read().get(namespace, name).cloned()
    }

    /// Reason why an object is excluded, if it is.
    pub fn exclusion(&self, namespace: &str, name: &str) -> Option<String> {
        let id = (namespace.into(), name.into());
        self.read().excluded().get(&id).map(|it| it.why.to_string())
    }

    /// Problem of copies if the memory limit has no room for objects of a namespace.
    pub fn left_out(&self, namespace: &str) -> Option<UnusableCopies> {
        let copies = self.read();
        for (_, excluded) in copies.excluded_in(namespace) {
            if let Exclusion::LeftOut(_) = excluded.why {
                let kind = self.resource.kind;
                return Some(UnusableCopies::LeftOut { kind });
            }
        }
        None
    }

    /// Number of objects of a namespace that are excluded, for whatever reason.
    pub fn excluded(&self, namespace: &str) -> usize {
        self.read().excluded_in(namespace).count()
    }

    /// True if there is room again for an object that was left out: then all are to be listed again.
    pub fn has_room_again(&self) -> bool {
        let copies = self.read();
        let Some(account) = copies.account() else {
            return false;
        };
        copies.excluded().iter().any(|((of, _), it)| match it.why {
            Exclusion::LeftOut(bytes) => account.has_room(of, bytes),
            Exclusion::Undecodable(_) => false,
        })
    }

    /// Every object of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        self.read().in_namespace(namespace).cloned().collect()
    }

    /// Every object, by namespace and name.
    pub fn all(&self) -> Vec<Arc<V>> {
        self.by_namespace().into_values().flatten().collect()
    }

    /// Every object, and the UIDs of those that are excluded, at one time.
    pub fn all_and_unreadable(&self) -> (Vec<Arc<V>>, HashSet<String>) {
        let copies = self.read();
        let all = copies.by_namespace().flat_map(|(_, inside)| inside);
        let uids = copies
            .excluded()
            .values()
            .filter_map(|it| it.uid.as_deref());
        (all.cloned().collect(), uids.map(str::to_owned).collect())
    }

    /// Every object at one time, by namespace, then by name.
    pub fn by_namespace(&self) -> BTreeMap<Arc<str>, Vec<Arc<V>>> {
        self.read()
            .by_namespace()
            .map(|(namespace, inside)| (namespace.clone(), inside.cloned().collect()))
            .collect()
    }

    /// The objects of a namespace that a selector selects, by name.
    pub fn select(&self, namespace: &str, selector: &Selector) -> Vec<Arc<V>> {
        self.read().select(namespace, selector)
    }

    /// Begins to read a list of a scope.
    pub fn list<'s>(&'s self, scope: Option<&'s str>) -> Listing<'s, V> {
        Listing {
            store: self,
            scope,
            listed: HashSet::new(),
        }
    }

    /// Replaces all objects of a scope by a complete list.
    pub fn replace(&self, scope: Option<&str>, fresh: Vec<Entry<V>>) {
        let mut listing = self.list(scope);
        for entry in fresh {
            listing.add(entry);
        }
        listing.complete();
    }

    /// Adds or updates one object.
    pub fn apply(&self, entry: Entry<V>) {
        self.put(entry);
        self.written.send_replace(());
    }

    /// Removes one object, also one that is excluded.
    pub fn delete(&self, entry: &Entry<V>) {
        self.write().remove(&entry.namespace, &entry.name);
        self.notify(&entry.namespace, &entry.name);
        self.written.send_replace(());
    }

    /// A receiver that is marked as changed whenever any object is, in any field.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.written.subscribe()
    }

    /// The state of the watches of this store.
    pub fn report(&self) -> WatchReport {
        let copies = self.read();
        let failing = self.counts.failure();
        WatchReport {
            kind: self.resource.kind,
            objects: copies.len(),
            unreadable: copies.excluded().len(),
            synced: copies.synced.len() == self.scopes.len(),
            errors: self.counts.errors(),
            last_contact: self.last_contact(),
            forbidden_or_not_found: failing
                .as_ref()
                .is_some_and(CallError::is_forbidden_or_not_found),
            failing: failing.map(|error| error.to_string()),
        }
    }

    /// Problem with the age of the copies of a namespace, or of every scope: they are older than `max`, or there are
    /// none yet.
    pub fn stale(&self, namespace: Option<&str>, max: SignedDuration) -> Option<UnusableCopies> {
        let last_contacts = self.contacts.lock();
        let oldest = iter::zip(&self.scopes, &*last_contacts)
            .filter(|(of, _)| namespace.is_none_or(|it| of.as_deref().is_none_or(|of| of == it)))
            .map(|(_, contact)| contact.as_ref())
            .filter(|contact| contact.is_none_or(|contact| contact.age() > max))
            // Absent is older than any.
            .min_by_key(|contact| contact.map(Contact::monotonic))?;
        Some(UnusableCopies::Stale {
            kind: self.resource.kind,
            since: oldest.map(Contact::at),
        })
    }

    /// Records that the copies of a scope are up to date.
    pub fn contacted(&self, scope: Option<&str>, contact: &Contact) {
        for (of, last) in iter::zip(&self.scopes, &mut *self.contacts.lock()) {
            if of.as_deref() == scope {
                *last = Some(contact.clone());
            }
        }
    }

    /// Last contact of the scope that has been silent longest.
    fn last_contact(&self) -> Option<Contact> {
        let contacts: Option<Vec<Contact>> = self.contacts.lock().iter().cloned().collect();
        contacts?.into_iter().min_by_key(Contact::monotonic)
    }

    fn put(&self, entry: Entry<V>) {
        let Entry {
            namespace,
            name,
            uid,
            created,
            value,
            version: _,
        } = entry;
        let key = ENTRY + namespace.len() + name.len();
        let sized = value.and_then(|value| match key + (self.size)(&value) {
            bytes if V::IS_WHOLE || bytes <= KEPT_MAX => Ok((bytes, value)),
            _ => Err(longer_than(KEPT_MAX)),
        });
        match sized {
            Ok((bytes, value)) => {
                let charge = Item {
                    created,
                    key: name,
                    bytes,
                };
                self.keep(&namespace, Copy { value, uid, charge });
            }
            Err(expected) => {
                let why = Exclusion::Undecodable(expected);
                self.exclude((namespace, name), Excluded { uid, why });
            }
        }
        // The lock is released: the copies that give way may be of this store.
        let account = self.read().account();
        if let Some(account) = account {
            account.settle();
        }
    }

    fn keep(&self, namespace: &Arc<str>, copy: Copy<V>) {
        let mut copies = self.write();
        let old = copies.get(namespace, &copy.charge.key);
        if old.is_some_and(|old| copy.value.equals(old)) {
            return;
        }
        if !old.is_some_and(|old| copy.value.spec_eq(old)) {
            self.notify(namespace, &copy.charge.key);
        }
        copies.keep(namespace, copy);
    }

    fn exclude(&self, key: Key, excluded: Excluded) {
        let object = self.resource.object(&key.0, &key.1).to_string();
        let error = excluded.why.to_string();
        // Logged once, not with every list and event.
        if self.write().exclude(key, excluded) {
            tracing::warn!(%object, %error, "object is excluded; not reconciled until it changes");
        }
    }

    fn notify(&self, namespace: &str, name: &str) {
        if let Some(changes) = &self.changes {
            changes.add(namespace, name);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Copies<V>> {
        self.copies.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Copies<V>> {
        self.copies.write()
    }
}

// === impl Keeper ===

impl<V: Stored> Keeper for Store<V> {
    fn leave_out(&self, namespace: &Arc<str>, charge: &Item<Arc<str>>) {
        // The copy may have been replaced since, by one with a charge of its own.
        if self.write().leave_out(namespace, charge) {
            self.notify(namespace, &charge.key);
        }
    }
}

// === impl Listing ===

impl<V: Stored> Listing<'_, V> {
    /// Adds one object of the list.
    pub fn add(&mut self, entry: Entry<V>) {
        let key = (entry.namespace.clone(), entry.name.clone());
        self.listed.insert(key);
        self.store.put(entry);
    }

    /// Ends a list that was read whole: removes the objects that it does not have.
    pub fn complete(self) {
        let store = self.store;
        let mut copies = store.write();
        let all = copies.keys(self.scope).into_iter();
        // Deleted between two watches.
        for (namespace, name) in all.filter(|key| !self.listed.contains(key)) {
            copies.remove(&namespace, &name);
            store.notify(&namespace, &name);
        }
        copies.synced.insert(self.scope.map(str::to_owned));
        // Before subscribers wake, because they read.
        drop(copies);
        store.written.send_replace(());
    }
}
