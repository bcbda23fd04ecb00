//! `foretide validate`: reads the files, and prints the findings and a summary.

use std::path::Path;

use foretide_backtest::{
    manifest::{Location, YamlError},
    validate::{Diagnostic, Severity, Subject, Validation},
};
use foretide_base::exit::Exit;
use foretide_domain::words::counted;
use serde::{Serialize, Serializer};

use super::{Checks, KINDS, ValidateArgs};
use crate::{
    cli::{
        context::CommandContext,
        files::{self, ManifestError},
        output::{CommandOutput, Failure, OutputFormat, Paint, Screen},
    },
    config::ConfigFile,
};

/// The findings of all files, and the numbers of checked objects.
#[derive(Debug, Default, Serialize)]
struct Report {
    #[serde(rename = "items")]
    diagnostics: Vec<Diagnostic>,
    /// Objects of Foretide, valid or not.
    #[serde(skip)]
    checked: usize,
    #[serde(rename = "valid")]
    autoscalers: usize,
    #[serde(rename = "validConfigurations")]
    configurations: usize,
    #[serde(rename = "validPredictions")]
    predictions: usize,
    /// The kind of each object that was not checked.
    #[serde(serialize_with = "count")]
    skipped: Vec<String>,
}

/// Writes a list as the number of its elements.
fn count<S: Serializer>(skipped: &[String], to: S) -> Result<S::Ok, S::Error> {
    skipped.len().serialize(to)
}

/// Runs `foretide validate`.
///
/// # Errors
/// A directory cannot be listed.
pub fn run(args: &ValidateArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let checks = Checks {
        validator: context.validator(),
        scope: args.promql_scope,
        local: &context.local,
    };
    let mut report = Report::default();
    for path in &args.files {
        let listed = files::files(std::slice::from_ref(path));
        let files = listed.map_err(Failure::in_file)?;
        if files.is_empty() {
            report.refuse(
                path,
                "nothing to validate: no .yaml, .yml or .json file in this folder",
            );
        }
        for file in files {
            let validations = checks.file(&file);
            // An empty file in a folder is no mistake, as for kubectl.
            if &file == path && validations.as_ref().is_ok_and(Vec::is_empty) {
                let message = format!(
                    "nothing to validate: no object in this file; expected {}",
                    expected()
                );
                report.refuse(path, message);
            }
            report.add(validations, args.strict);
        }
    }
    report.refuse_if_nothing_was_found(args);
    Ok(report.output(args.output, context.screen))
}

/// Names of the kinds that can be checked.
fn expected() -> String {
    format!("{KINDS}, or a {}", ConfigFile::KIND)
}

// === impl Report ===

impl Report {
    fn refuse(&mut self, path: &Path, message: impl Into<String>) {
        let place = Location::of_file(files::name(path));
        self.diagnostics
            .push(Diagnostic::new(place, Severity::Error, message));
    }

    /// Adds the findings of one file.
    fn add(&mut self, validations: Result<Vec<Validation>, ManifestError>, is_strict: bool) {
        let validations = match validations {
            Ok(validations) => validations,
            Err(error) => return self.diagnostics.push(unreadable(error)),
        };
        for mut validation in validations {
            if is_strict {
                harden(&mut validation);
            }
            let valid = usize::from(validation.is_valid());
            match validation.subject {
                Subject::Autoscaler => self.autoscalers += valid,
                Subject::Configuration => self.configurations += valid,
                Subject::Prediction => self.predictions += valid,
                Subject::Unknown => {}
                Subject::Skipped(kind) => {
                    self.skipped.push(kind);
                    self.diagnostics.extend(validation.diagnostics);
                    continue;
                }
            }
            self.checked += 1;
            self.diagnostics.extend(validation.diagnostics);
        }
    }

    /// Refuses files without any object of Foretide: they were meant to have some.
    fn refuse_if_nothing_was_found(&mut self, args: &ValidateArgs) {
        if self.checked > 0 || self.count(Severity::Error) > 0 {
            return;
        }
        let found = match self.skipped_kinds() {
            kinds if kinds.is_empty() => "no object".to_owned(),
            kinds => kinds.join(", "),
        };
        let message = format!(
            "nothing to validate: found {found}; expected {}",
            expected()
        );
        let files: Vec<_> = args
            .files
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        self.refuse(Path::new(&files.join(", ")), message);
    }

    fn count(&self, severity: Severity) -> usize {
        let severities = self.diagnostics.iter().map(|found| found.severity);
        severities.filter(|found| *found == severity).count()
    }

    /// Each skipped kind once, in alphabetical order.
    fn skipped_kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<_> = self.skipped.iter().map(String::as_str).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    fn output(&self, format: OutputFormat, screen: Screen) -> CommandOutput {
        let output = match format {
            OutputFormat::Table => {
                let lines = self.diagnostics.iter().map(|found| line(found, screen));
                CommandOutput::text(lines.chain([self.summary()]).collect::<String>())
            }
            OutputFormat::Json => CommandOutput::json("ValidationReport", self),
        };
        let exit = if self.count(Severity::Error) > 0 {
            Exit::Invalid
        } else {
            Exit::Ok
        };
        CommandOutput { exit, ..output }
    }

    /// Checked objects with the results, and skipped ones.
    fn summary(&self) -> String {
        let mut valid: Vec<_> = [
            (self.configurations, "configuration"),
            (self.predictions, "TimeSeriesPrediction"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| counted(count, what))
        .collect();
        if self.autoscalers > 0 || valid.is_empty() {
            valid.insert(0, counted(self.autoscalers, "autoscaler"));
        }
        let skipped = match self.skipped.len() {
            0 => String::new(),
            count => format!(
                "; {} skipped ({})",
                counted(count, "other object"),
                self.skipped_kinds().join(", ")
            ),
        };
        format!(
            "{} valid, {}, {}{skipped}\n",
            valid.join(", "),
            counted(self.count(Severity::Error), "error"),
            counted(self.count(Severity::Warning), "warning"),
        )
    }
}

/// Turns warnings into errors.
fn harden(validation: &mut Validation) {
    for found in &mut validation.diagnostics {
        if found.severity == Severity::Warning {
            found.severity = Severity::Error;
        }
    }
}

/// A file that gives no documents, as a diagnostic.
fn unreadable(error: ManifestError) -> Diagnostic {
    let (place, message) = match error {
        ManifestError::Yaml(YamlError { place, message }) => (place, message),
        ManifestError::Read { file, source } => {
            (Location::of_file(file), format!("cannot be read: {source}"))
        }
        ManifestError::Binary { file } => {
            let message = "not a text file; expected UTF-8".to_owned();
            (Location::of_file(file), message)
        }
    };
    Diagnostic::new(place, Severity::Error, message)
}

/// One diagnostic as compilers write them.
fn line(diagnostic: &Diagnostic, screen: Screen) -> String {
    let paint = match diagnostic.severity {
        Severity::Error => Paint::Error,
        Severity::Warning => Paint::Warning,
        Severity::Note => Paint::Dim,
    };
    let severity = screen.paint(paint, diagnostic.severity.as_str());
    format!("{}: {severity}: {}\n", diagnostic.place, diagnostic.message)
}
