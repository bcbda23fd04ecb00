//! `foretide validate` for the controller's configuration file.

use std::path::Path;

use super::{Diagnostic, Severity, diagnostic};
use crate::{
    cli::manifest::{Document, Location},
    config::{ConfigError, ConfigFile, FileError},
};
use foretide_base::error::chain;

/// All findings about a file with one such document.
pub(super) fn diagnostics(path: &Path, text: &str, document: &Document) -> Vec<Diagnostic> {
    let file = match ConfigFile::parse(path, text) {
        Ok(file) => file,
        Err(FileError::Content { line, message, .. }) => {
            let place = Location {
                line,
                ..document.place()
            };
            return vec![diagnostic(place, Severity::Error, message)];
        }
        Err(error) => return vec![diagnostic(document.place(), Severity::Error, chain(&error))],
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
            vec![diagnostic(place, Severity::Error, error.to_string())]
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
        diagnostic(document.place(), Severity::Warning, message)
    }));
    findings
}
