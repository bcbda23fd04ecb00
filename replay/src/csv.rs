//! Reads files of comma-separated lines. An error names the file, the line and the column, and what was expected.

use std::fs;
use std::path::{Path, PathBuf};

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file is not there, or cannot be opened or read.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line has something else than expected.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from one on.
        line: usize,
        /// The column, what it has, and what was expected.
        what: String,
    },
    /// The file as a whole is not as expected.
    #[error("{path}: {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What was expected.
        what: String,
    },
}

/// The whole file as text.
///
/// # Errors
/// [`FileError::File`]
pub fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(|source| FileError::File {
        path: path.to_owned(),
        source,
    })
}

/// The fields of a line; a field may be quoted, and then hold commas and doubled quotes.
///
/// ```
/// assert_eq!(foretide_replay::fields(r#"a,"b, ""c""",d"#), ["a", "b, \"c\"", "d"]);
/// ```
pub fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                field.push('"');
                characters.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            _ => field.push(character),
        }
    }
    fields.push(field);
    fields.iter().map(|field| field.trim().to_owned()).collect()
}

/// A demand: a finite number of at least zero. The error says what is there instead.
pub(crate) fn demand(column: &str, text: &str) -> Result<f64, String> {
    let wrong = || format!("{column} is {text:?}; expected a finite number of at least zero");
    let value: f64 = text.parse().map_err(|_| wrong())?;
    let is_demand = value.is_finite() && value >= 0.0;
    is_demand.then_some(value).ok_or_else(wrong)
}
