//! The fields of a prometheus-adapter configuration, taken from a YAML document one by one, so that an error names the
//! path of its field, as in `rules[2].name.matches`. Fields that are not read may hold anything.

use serde_json::{Map, Value};

/// A field of the configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Path of the field, as in `rules[2].metricsQuery`.
    pub field: String,
    /// The problem with the value, and what is expected.
    pub message: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        Self { field, message }
    }
}

/// A mapping of the document, and its path.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    path: String,
    members: Option<&'a Map<String, Value>>,
}

impl<'a> Fields<'a> {
    /// The root of a document; an empty document has no fields.
    pub fn root(document: &'a Value) -> Result<Self, FieldError> {
        Self::new(String::new(), Some(document))
    }

    fn new(path: String, value: Option<&'a Value>) -> Result<Self, FieldError> {
        let members = match value {
            None | Some(Value::Null) => None,
            Some(Value::Object(members)) => Some(members),
            Some(other) => return Err(expected(&path, "a mapping of fields", other)),
        };
        Ok(Self { path, members })
    }

    /// The path of this mapping.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path of one of its fields.
    pub fn path_of(&self, name: &str) -> String {
        match &*self.path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// An error of one of its fields.
    pub fn error(&self, name: &str, message: impl Into<String>) -> FieldError {
        FieldError::new(self.path_of(name), message)
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.members
            .and_then(|members| members.get(name))
            .filter(|value| !value.is_null())
    }

    /// A string; empty when the field is absent.
    pub fn string(&self, name: &str) -> Result<&'a str, FieldError> {
        match self.get(name) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(expected(&self.path_of(name), "a string", other)),
        }
    }

    /// A boolean, if the field is present.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, FieldError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(expected(&self.path_of(name), "true or false", other)),
        }
    }

    /// A mapping; without fields when it is absent.
    pub fn mapping(&self, name: &str) -> Result<Self, FieldError> {
        Self::new(self.path_of(name), self.get(name))
    }

    /// The mappings of a mapping, by their names.
    pub fn mappings(&self, name: &str) -> Result<Vec<(&'a str, Self)>, FieldError> {
        let parent = self.mapping(name)?;
        let mut mappings = Vec::new();
        for (name, value) in parent.members.into_iter().flatten() {
            let fields = Self::new(parent.path_of(name), Some(value))?;
            mappings.push((name.as_str(), fields));
        }
        Ok(mappings)
    }

    /// The items of a list, each as a mapping or the reason why it is not one; empty when the list is absent.
    pub fn list(&self, name: &str) -> Result<Vec<Result<Self, FieldError>>, FieldError> {
        let path = self.path_of(name);
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let items = items.iter().enumerate();
                Ok(items
                    .map(|(index, item)| Self::new(format!("{path}[{index}]"), Some(item)))
                    .collect())
            }
            Some(other) => Err(expected(&path, "a list", other)),
        }
    }
}

fn expected(path: &str, wanted: &str, found: &Value) -> FieldError {
    let found = match found {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    };
    let path = if path.is_empty() {
        "the document"
    } else {
        path
    };
    FieldError::new(path, format!("expected {wanted}, found {found}"))
}
