//! The labels of an object in one text, because a hundred thousand pods have a million of them; and an index by them.

use std::{collections::BTreeMap, sync::Arc};

use derive_where::derive_where;
use foretide_domain::Selector;

/// The labels of an object. Objects with equal labels share them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackedLabels(Arc<str>);

/// Objects by their labels, then by name. Pods of one template have equal labels, so a selector is compared with few.
#[derive(Debug)]
#[derive_where(Default)]
pub struct LabelIndex<V>(BTreeMap<PackedLabels, BTreeMap<Arc<str>, Arc<V>>>);

/// Ends a key, and a value; the API allows it in neither.
const END: char = '\0';

// === impl PackedLabels ===

impl PackedLabels {
    pub fn new(labels: &BTreeMap<String, String>) -> Self {
        let fields = labels.iter().flat_map(|(key, value)| [key, value]);
        let mut text = String::new();
        for field in fields {
            text.push_str(field);
            text.push(END);
        }
        Self(text.into())
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut fields = self.0.split_terminator(END);
        while let (Some(found), Some(value)) = (fields.next(), fields.next()) {
            if found == key {
                return Some(value);
            }
        }
        None
    }
}

// === impl LabelIndex ===

impl<V> LabelIndex<V> {
    /// The labels in one text for all objects that have them.
    pub fn shared(&self, labels: &PackedLabels) -> PackedLabels {
        let equal = self.0.get_key_value(labels).map(|(equal, _)| equal);
        equal.unwrap_or(labels).clone()
    }

    /// Adds an object.
    pub fn insert(&mut self, labels: PackedLabels, name: Arc<str>, object: Arc<V>) {
        self.0.entry(labels).or_default().insert(name, object);
    }

    /// Removes an object.
    pub fn remove(&mut self, labels: &PackedLabels, name: &str) {
        if let Some(named) = self.0.get_mut(labels) {
            named.remove(name);
            if named.is_empty() {
                self.0.remove(labels);
            }
        }
    }

    /// The objects that a selector selects, by name.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<V>> {
        let mut by_name = BTreeMap::new();
        for (labels, named) in &self.0 {
            if selector.matches_by(|key| labels.get(key)) {
                by_name.extend(named);
            }
        }
        by_name.into_values().map(Arc::clone).collect()
    }
}
