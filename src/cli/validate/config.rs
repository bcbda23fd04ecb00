//! `foretide validate` for the controller's configuration file.

use std::path::Path;

use foretide_backtest::{
    manifest::{Document, Location},
    validate::{Diagnostic, Severity},
};

use crate::config::{ConfigError, ConfigFile, FileError};
use foretide_base::error::chain;

/// Returns whether a document is a configuration. The values of the Helm chart have the fields of the configuration
/// without apiVersion and kind.
pub fn is_config(document: &Document) -> bool {
    let names: Vec<_> = document.members().collect();
    if ["apiVersion", "kind"]
        .iter()
        .any(|name| names.contains(name) && document.text(name).is_empty())
    {
        return false;
    }
    let has_header = ["apiVersion", "kind"]
        .iter()
        .any(|name| names.contains(name));
    let fields = names.iter().filter(|name| ConfigFile::has_field(name));
    document.text("kind") == ConfigFile::KIND || !has_header && 2 * fields.count() > names.len()
}

/// All findings about a file with one such document.
pub fn diagnostics(path: &Path, text: &str, document: &Document) -> Vec<Diagnostic> {
    let file = match ConfigFile::parse(path, text) {
        Ok(file) => file,
        Err(FileError::Content { line, message, .. }) => {
            let place = Location {
                line,
                ..document.place()
            };
            return vec![Diagnostic::new(place, Severity::Error, message)];
        }
        Err(error) => {
            return vec![Diagnostic::new(
                document.place(),
                Severity::Error,
                chain(&error),
            )];
        }
    };
    let mut findings = match file.config() {
        Ok(_) => Vec::new(),
        Err(error) => {
            let field = match &error {
                ConfigError::Section { field, .. } => field,
                ConfigError::Server { origin, .. } => origin,
                _ => "",
            };
            let place = document.find(field);
            vec![Diagnostic::new(place, Severity::Error, error.to_string())]
        }
    };
    let missing = file
        .credential_files()
        .into_iter()
        .filter(|file| !file.exists());
    findings.extend(missing.map(|file| {
        let message = format!(
            "{} does not exist here; it must where the controller runs",
            file.display()
        );
        Diagnostic::new(document.place(), Severity::Warning, message)
    }));
    findings
}
