//! The shape of a prometheus-adapter configuration: fields taken from a YAML document one by one, so that what is
//! wrong is named by its place, as in `rules[2].name.matches`. Refuses nothing that is not asked for: fields that only
//! matter to the adapter may hold anything.

use serde_json::{Map, Value};

/// One thing in the configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct Fault {
    /// The field, as in `rules[2].metricsQuery`.
    pub at: String,
    /// What is wrong with it, and what was expected.
    pub message: String,
}

impl Fault {
    pub(super) fn new(at: impl Into<String>, message: impl Into<String>) -> Self {
        let (at, message) = (at.into(), message.into());
        Self { at, message }
    }
}

/// A mapping of the document, and where it is.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    at: String,
    members: Option<&'a Map<String, Value>>,
}

impl<'a> Fields<'a> {
    /// The root of a document; an empty document has no fields.
    pub(super) fn root(document: &'a Value) -> Result<Self, Fault> {
        Self::new(String::new(), Some(document))
    }

    fn new(at: String, value: Option<&'a Value>) -> Result<Self, Fault> {
        let members = match value {
            None | Some(Value::Null) => None,
            Some(Value::Object(members)) => Some(members),
            Some(other) => return Err(expected(&at, "a mapping of fields", other)),
        };
        Ok(Self { at, members })
    }

    /// Where this mapping is.
    pub(super) fn at(&self) -> &str {
        &self.at
    }

    /// Where a field of it is.
    pub(super) fn place(&self, name: &str) -> String {
        match &*self.at {
            "" => name.to_owned(),
            at => format!("{at}.{name}"),
        }
    }

    /// A fault of one field.
    pub(super) fn fault(&self, name: &str, message: impl Into<String>) -> Fault {
        Fault::new(self.place(name), message)
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.members
            .and_then(|members| members.get(name))
            .filter(|value| !value.is_null())
    }

    /// A text; empty when it is not there.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, Fault> {
        match self.get(name) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(expected(&self.place(name), "a text", other)),
        }
    }

    /// A truth value, if it is there.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(expected(&self.place(name), "true or false", other)),
        }
    }

    /// A mapping; without fields when it is not there.
    pub(super) fn fields(&self, name: &str) -> Result<Self, Fault> {
        Self::new(self.place(name), self.get(name))
    }

    /// The mappings of a mapping, by their names.
    pub(super) fn named(&self, name: &str) -> Result<Vec<(&'a str, Self)>, Fault> {
        let parent = self.fields(name)?;
        let members = parent.members.into_iter().flatten();
        let fields = members.map(|(name, value)| {
            let fields = Self::new(parent.place(name), Some(value))?;
            Ok((name.as_str(), fields))
        });
        fields.collect()
    }

    /// The mappings of a list, each or why not; none when it is not there.
    pub(super) fn each(&self, name: &str) -> Result<Vec<Result<Self, Fault>>, Fault> {
        let place = self.place(name);
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let item = |(index, item)| Self::new(format!("{place}[{index}]"), Some(item));
                Ok(items.iter().enumerate().map(item).collect())
            }
            Some(other) => Err(expected(&place, "a list", other)),
        }
    }
}

fn expected(at: &str, wanted: &str, found: &Value) -> Fault {
    let found = match found {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    };
    let at = if at.is_empty() { "the document" } else { at };
    Fault::new(at, format!("expected {wanted}, found {found}"))
}
