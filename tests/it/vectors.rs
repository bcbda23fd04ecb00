//! The files of vectors, and a row of them: each field is read by name, and a field that no check reads is an error.
//!
//! The files come from the folder named by `FORETIDE_VECTORS`, or else from the committed copy.

use std::{error::Error, fmt::Debug, fs, path::PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(crate) type Fallible<T> = Result<T, Box<dyn Error>>;
pub(crate) type Outcome = Fallible<()>;

/// An object of a row, or the row, with the fields that were not read so far.
pub(crate) struct Row(Map<String, Value>);

// === impl Row ===

impl Row {
    /// Reads an object completely.
    pub(crate) fn read<T>(
        value: Value,
        read: impl FnOnce(&mut Self) -> Fallible<T>,
    ) -> Fallible<T> {
        let Value::Object(fields) = value else {
            return Err(format!("not an object: {value}").into());
        };
        let given = fields.into_iter().filter(|(_, value)| !value.is_null());
        let mut row = Self(given.collect());
        let result = read(&mut row)?;
        if row.0.is_empty() {
            Ok(result)
        } else {
            Err(format!("no check reads {:?}", row.0).into())
        }
    }

    /// A field; null counts as absent.
    pub(crate) fn get<T: DeserializeOwned>(&mut self, field: &str) -> Fallible<Option<T>> {
        let value = self.0.remove(field);
        let read = value.map(serde_json::from_value).transpose();
        read.map_err(|e| format!("{field}: {e}").into())
    }

    pub(crate) fn or_default<T: DeserializeOwned + Default>(&mut self, field: &str) -> Fallible<T> {
        Ok(self.get(field)?.unwrap_or_default())
    }

    pub(crate) fn must<T: DeserializeOwned>(&mut self, field: &str) -> Fallible<T> {
        let value = self.get(field)?;
        value.ok_or_else(|| format!("no {field}").into())
    }

    /// A field that is an object.
    pub(crate) fn object<T>(
        &mut self,
        field: &str,
        read: impl FnOnce(&mut Self) -> Fallible<T>,
    ) -> Fallible<Option<T>> {
        let value = self.get(field)?;
        value.map(|value| Self::read(value, read)).transpose()
    }

    /// A field that is a list of objects.
    pub(crate) fn list<T>(
        &mut self,
        field: &str,
        mut read: impl FnMut(&mut Self) -> Fallible<T>,
    ) -> Fallible<Option<Vec<T>>> {
        let values: Option<Vec<Value>> = self.get(field)?;
        let read = |value| Self::read(value, &mut read);
        let all = values.map(|all| all.into_iter().map(read).collect());
        all.transpose()
    }

    /// A field that is a list of objects; an absent list counts as empty.
    pub(crate) fn all<T>(
        &mut self,
        field: &str,
        read: impl FnMut(&mut Self) -> Fallible<T>,
    ) -> Fallible<Vec<T>> {
        Ok(self.list(field, read)?.unwrap_or_default())
    }

    /// Checks the expectations of the row, which must have some.
    pub(crate) fn expect(&mut self, check: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        Self::read(self.must("expect")?, check)
    }

    /// Compares with a field of the expectations, if it is there.
    pub(crate) fn same<T>(&mut self, field: &str, got: T) -> Outcome
    where
        T: DeserializeOwned + PartialEq + Debug,
    {
        let want = self.get(field)?;
        want.map_or(Ok(()), |want| same(field, got, want))
    }
}

/// Fails with both values unless they are equal.
#[expect(
    clippy::needless_pass_by_value,
    reason = "values read better where it is called"
)]
pub(crate) fn same<T: PartialEq + Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want {
        Ok(())
    } else {
        Err(format!("{what}: got {got:?}, want {want:?}").into())
    }
}

/// All files of vectors, by name.
pub(crate) fn files() -> Fallible<Vec<(String, Value)>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "which vectors to run is a matter of the test run"
    )]
    let folder = std::env::var("FORETIDE_VECTORS");
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors");
    let folder = PathBuf::from(folder.unwrap_or_else(|_| committed.into()));
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let file = serde_json::from_str(&fs::read_to_string(&path)?)?;
            all.push((name.into_owned(), file));
        }
    }
    Ok(all)
}
