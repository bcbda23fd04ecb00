//! `foretide validate`: problems of manifests, each with file, line and field.
//!
//! The checks are those of [`foretide_backtest::validate`]; with them come the queries in annotations, and the
//! controller's configuration file.

mod config;
mod report;

use std::path::{Path, PathBuf};

use foretide_backtest::{
    manifest::{self, Document},
    validate::{Accepted, Diagnostic, Severity, Subject, Validation, Validator},
};
use foretide_domain::cron::Zone;

pub use self::report::run;
use super::{
    files::{self, ManifestError},
    output::OutputFormat,
};
use crate::{app, config::ScopeArg};
use foretide_base::error::{TEMPLATE, is_template};

/// The kinds of Foretide, as listed in messages.
pub const KINDS: &str = "EffectiveHorizontalPodAutoscaler, FederatedHPA or TimeSeriesPrediction";

/// Arguments of `foretide validate`.
#[derive(Debug, Clone, clap::Args)]
pub struct ValidateArgs {
    /// File or directory of manifests; repeatable; - reads standard input
    #[arg(
        short = 'f',
        long = "filename",
        required = true,
        value_name = "FILE|DIR"
    )]
    pub files: Vec<PathBuf>,
    /// Treat warnings as errors
    #[arg(long)]
    pub strict: bool,
    /// Series that a query in an annotation may read, as the flag of the controller
    #[arg(long, value_enum, value_name = "SCOPE", default_value_t = ScopeArg::Namespace)]
    pub promql_scope: ScopeArg,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// The checks of the command.
struct Checks<'a> {
    validator: Validator<'a>,
    /// Series that the queries in annotations may read.
    scope: ScopeArg,
    local: &'a Zone,
}

// === impl Checks ===

impl Checks<'_> {
    /// The results for the documents of a file.
    fn file(&self, path: &Path) -> Result<Vec<Validation>, ManifestError> {
        let text = files::text(path)?;
        let documents = manifest::parse(&files::name(path), &text)?;
        Ok(documents
            .iter()
            .map(|document| {
                let mut validation = if config::is_config(document) {
                    let diagnostics = config::diagnostics(path, &text, document);
                    Validation::without_autoscaler(Subject::Configuration, diagnostics)
                } else {
                    self.with_queries(document)
                };
                hint_at_templates(&mut validation.diagnostics, &text);
                validation
            })
            .collect())
    }

    /// All findings about an object, with those about the queries in its annotations, which other commands check when
    /// they use them.
    fn with_queries(&self, document: &Document) -> Validation {
        let mut validation = self.validator.validate(document);
        let Some(accepted) = validation.accepted.as_ref().map(Accepted::autoscaler) else {
            return validation;
        };
        for (annotation, refused) in app::history::refused_queries(accepted, self.scope, self.local)
        {
            let place = document.find_annotation(&annotation);
            let found = Diagnostic::new(place, Severity::Error, refused.message);
            validation.diagnostics.push(found);
        }
        validation
    }
}

/// Explains an error on a line of a template by the template.
fn hint_at_templates(diagnostics: &mut [Diagnostic], text: &str) {
    for found in diagnostics
        .iter_mut()
        .filter(|found| found.severity == Severity::Error)
    {
        let index = found
            .place
            .line
            .and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
        if index
            .and_then(|index| text.lines().nth(index))
            .is_some_and(is_template)
        {
            found.message = format!("{}; {TEMPLATE}", found.message);
        }
    }
}
