//! `foretide validate`: problems of manifests, each with file, line and field.
//!
//! Three checks, each only if the one before passes: the validation of the API server, the translation of a spec into
//! the domain, and the lint of cron windows. The first two give errors; ignored fields and lint findings are warnings.

mod config;
mod fleet;

use std::path::{Path, PathBuf};

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerSpec, FederatedHPA, Rules,
    TimeSeriesPrediction, Violation,
};
use foretide_domain::{
    cron::{Zone, lint},
    hpa::Settings,
    words::counted,
    workload::{SpecPart, Workload},
};
use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    context::CommandContext,
    exit::Exit,
    manifest::{self, Document, Location},
    output::{CommandOutput, Failure, OutputFormat, Paint, Screen},
};
use crate::{
    api::validation::{self, FleetSpec, Invalid},
    error::chain,
};

/// The default sync period of the controller: how long an observation of a fleet is valid.
const SYNC_PERIOD: SignedDuration = SignedDuration::from_secs(15);

/// The kinds of Foretide, as listed in messages.
pub(super) const KINDS: &str =
    "EffectiveHorizontalPodAutoscaler, FederatedHPA or TimeSeriesPrediction";

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
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// One finding about a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Diagnostic {
    pub(super) place: Location,
    pub(super) severity: Severity,
    pub(super) message: String,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// The object is refused.
    Error,
    /// The object is accepted, and something in it is ignored or may be a mistake.
    Warning,
    /// Not a problem, such as an object of another kind, which is skipped.
    Note,
}

/// Compiled rules of our kinds.
#[derive(Debug)]
pub(super) struct Validator<'a> {
    ehpa: Rules,
    fdhpa: Rules,
    tsp: Rules,
    local: &'a Zone,
    now: Timestamp,
}

/// The result for one document.
#[derive(Debug, Default)]
pub(super) struct Validation {
    /// The autoscaler and what it asks for, if it is one that can be acted on.
    pub(super) accepted: Option<Box<Accepted>>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// An autoscaler that can be acted on.
#[derive(Debug)]
pub(super) enum Accepted {
    /// Of one cluster.
    Ehpa(Box<EffectiveHorizontalPodAutoscaler>, Box<Workload>),
    /// Of many.
    Fdhpa(Box<FederatedHPA>, Box<FleetSpec>),
}

// === impl Accepted ===

impl Accepted {
    /// What it asks for; for a fleet, of all clusters together.
    pub(super) fn workload(&self) -> &Workload {
        match self {
            Self::Ehpa(_, workload) => workload,
            Self::Fdhpa(_, fleet) => &fleet.workload,
        }
    }

    fn spec(&self) -> &EffectiveHorizontalPodAutoscalerSpec {
        match self {
            Self::Ehpa(ehpa, _) => &ehpa.spec,
            Self::Fdhpa(fdhpa, _) => &fdhpa.spec.autoscaling,
        }
    }
}

// === impl Severity ===

impl Severity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

// === impl Validator ===

impl<'a> Validator<'a> {
    pub(super) fn new(context: &'a CommandContext) -> Self {
        Self {
            ehpa: Rules::of::<EffectiveHorizontalPodAutoscaler>(),
            fdhpa: Rules::of::<FederatedHPA>(),
            tsp: Rules::of::<TimeSeriesPrediction>(),
            local: &context.local,
            now: context.now,
        }
    }

    /// The result for each document of a file.
    fn file(&self, path: &Path) -> Result<Vec<Validation>, manifest::ManifestError> {
        let text = manifest::text(path)?;
        let documents = manifest::parse(&path.display().to_string(), &text)?;
        let validate = |document: &Document| {
            if config::is_config(document) {
                Validation {
                    accepted: None,
                    diagnostics: config::diagnostics(path, &text, document),
                }
            } else {
                self.validate(document)
            }
        };
        Ok(documents.iter().map(validate).collect())
    }

    /// All findings about one document, in the order of its lines.
    pub(super) fn validate(&self, document: &Document) -> Validation {
        let mut validation = self.by_kind(document);
        let order = |diagnostic: &Diagnostic| (diagnostic.place.line, diagnostic.message.clone());
        validation.diagnostics.sort_by_cached_key(order);
        validation
    }

    fn by_kind(&self, document: &Document) -> Validation {
        if is::<EffectiveHorizontalPodAutoscaler>(document) {
            return self.autoscaler(document, &self.ehpa, |ehpa| self.one(ehpa));
        }
        if is::<FederatedHPA>(document) {
            return self.autoscaler(document, &self.fdhpa, |fdhpa| self.fleet(fdhpa));
        }
        let diagnostics = if is::<TimeSeriesPrediction>(document) {
            refused(document, &self.tsp.check(&document.value()))
        } else {
            vec![diagnostic(
                document.place(),
                Severity::Note,
                not_ours(document),
            )]
        };
        Validation {
            accepted: None,
            diagnostics,
        }
    }

    fn one(&self, ehpa: EffectiveHorizontalPodAutoscaler) -> Result<Accepted, Invalid> {
        let workload = validation::workload(&ehpa, self.local)?;
        Ok(Accepted::Ehpa(Box::new(ehpa), Box::new(workload)))
    }

    fn fleet(&self, fdhpa: FederatedHPA) -> Result<Accepted, Invalid> {
        let fleet = validation::fleet(&fdhpa, self.local, SYNC_PERIOD, &Settings::default())?;
        Ok(Accepted::Fdhpa(Box::new(fdhpa), Box::new(fleet)))
    }

    fn autoscaler<K: DeserializeOwned>(
        &self,
        document: &Document,
        rules: &Rules,
        translate: impl Fn(K) -> Result<Accepted, Invalid>,
    ) -> Validation {
        let value = document.value();
        let diagnostics = refused(document, &rules.check(&value));
        let refused = |diagnostics| Validation {
            accepted: None,
            diagnostics,
        };
        if !diagnostics.is_empty() {
            return refused(diagnostics);
        }
        let object = match serde_json::from_value::<K>(value) {
            Ok(object) => object,
            Err(error) => {
                let message = format!("cannot be read: {error}");
                return refused(vec![diagnostic(document.place(), Severity::Error, message)]);
            }
        };
        match translate(object) {
            Ok(accepted) => Validation {
                diagnostics: self.diagnostics(document, &accepted),
                accepted: Some(Box::new(accepted)),
            },
            Err(invalid) => {
                let each = invalid.0.iter().map(|violation| {
                    let place = document.find(&violation.field);
                    diagnostic(place, Severity::Error, violation.to_string())
                });
                refused(each.collect())
            }
        }
    }

    fn diagnostics(&self, document: &Document, accepted: &Accepted) -> Vec<Diagnostic> {
        let mut diagnostics = problems(document, accepted);
        diagnostics.extend(self.lints(document, accepted));
        if let Accepted::Fdhpa(fdhpa, fleet) = accepted {
            let each = fleet::diagnostics(fdhpa, fleet).into_iter();
            diagnostics.extend(each.map(|(path, severity, message)| {
                diagnostic(document.find(&path), severity, message)
            }));
        }
        diagnostics
    }

    fn lints(&self, document: &Document, accepted: &Accepted) -> Vec<Diagnostic> {
        let workload = accepted.workload();
        let found = lint(&workload.windows, workload.bounds, self.now);
        let each = found.iter().map(|finding| {
            let place = document.find(&cron_path(accepted.spec(), &finding.cron));
            let message = format!(
                "cron {}: {} [{}]",
                finding.cron,
                finding.message,
                finding.lint.as_str()
            );
            diagnostic(place, Severity::Warning, message)
        });
        each.collect()
    }
}

/// The note about a document of another kind.
fn not_ours(document: &Document) -> String {
    let (kind, version) = (document.text("kind"), document.text("apiVersion"));
    if kind.is_empty() {
        return "not a Kubernetes object: no `kind`; skipped".to_owned();
    }
    let ours = [
        (
            EffectiveHorizontalPodAutoscaler::kind(&()),
            EffectiveHorizontalPodAutoscaler::api_version(&()),
        ),
        (FederatedHPA::kind(&()), FederatedHPA::api_version(&())),
        (
            TimeSeriesPrediction::kind(&()),
            TimeSeriesPrediction::api_version(&()),
        ),
    ];
    match ours.iter().find(|(name, _)| name == kind) {
        Some((_, ours)) => {
            format!(
                "{kind} ({version}) is not managed by Foretide, whose {kind} is of {ours}; skipped"
            )
        }
        None if version == super::API_VERSION => {
            format!("{kind} ({version}) is input of other commands; skipped")
        }
        None => format!("{kind} ({version}) is not a Foretide kind ({KINDS}); skipped"),
    }
}

/// Runs `foretide validate`.
///
/// # Errors
/// A directory cannot be listed.
pub(super) fn run(args: &ValidateArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let files = manifest::files(&args.files).map_err(|error| Failure::invalid(chain(&error)))?;
    let validator = Validator::new(context);
    let mut diagnostics = Vec::new();
    let mut accepted = 0;
    for file in &files {
        match validator.file(file) {
            Ok(validations) => {
                for validation in validations {
                    accepted += usize::from(validation.accepted.is_some());
                    diagnostics.extend(validation.diagnostics);
                }
            }
            Err(error) => diagnostics.push(unreadable(&error)),
        }
    }
    let (exit, summary) = summary(&diagnostics, accepted);
    let output = match args.output {
        OutputFormat::Table => {
            let lines = diagnostics
                .iter()
                .map(|diagnostic| line(diagnostic, context.screen));
            CommandOutput::text(lines.chain([summary]).collect::<String>())
        }
        OutputFormat::Json => {
            let items: Vec<_> = diagnostics.iter().map(item).collect();
            CommandOutput::json(
                "ValidationReport",
                json!({ "valid": accepted, "items": items }),
            )
        }
    };
    Ok(CommandOutput { exit, ..output })
}

/// A file that gives no documents, as a diagnostic.
fn unreadable(error: &manifest::ManifestError) -> Diagnostic {
    let (place, message) = match error {
        manifest::ManifestError::Yaml { place, message } => (place.clone(), message.clone()),
        manifest::ManifestError::Read { file, source } => (
            Location {
                file: file.clone(),
                line: None,
            },
            format!("cannot be read: {source}"),
        ),
    };
    diagnostic(place, Severity::Error, message)
}

/// The exit code, and the numbers of valid autoscalers, errors and warnings.
fn summary(diagnostics: &[Diagnostic], accepted: usize) -> (Exit, String) {
    let count = |severity| {
        diagnostics
            .iter()
            .filter(|r| r.severity == severity)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let summary = format!(
        "{} valid, {}, {}\n",
        counted(accepted, "autoscaler"),
        counted(errors, "error"),
        counted(warnings, "warning")
    );
    (if errors > 0 { Exit::Invalid } else { Exit::Ok }, summary)
}

fn item(diagnostic: &Diagnostic) -> Value {
    json!({
        "file": diagnostic.place.file,
        "line": diagnostic.place.line,
        "severity": diagnostic.severity.as_str(),
        "message": diagnostic.message,
    })
}

/// One diagnostic as compilers write them.
pub(super) fn line(diagnostic: &Diagnostic, screen: Screen) -> String {
    let paint = match diagnostic.severity {
        Severity::Error => Paint::Error,
        Severity::Warning => Paint::Warning,
        Severity::Note => Paint::Dim,
    };
    let severity = screen.paint(paint, diagnostic.severity.as_str());
    format!("{}: {severity}: {}\n", diagnostic.place, diagnostic.message)
}

fn diagnostic(place: Location, severity: Severity, message: impl Into<String>) -> Diagnostic {
    Diagnostic {
        place,
        severity,
        message: message.into(),
    }
}

fn refused(document: &Document, violations: &[Violation]) -> Vec<Diagnostic> {
    let each = violations.iter().map(|violation| {
        let place = document.find(&violation.field);
        let meant = fleet::meant(&violation.field).map(|name| format!("; use {name}"));
        let message = format!("{violation}{}", meant.unwrap_or_default());
        diagnostic(place, Severity::Error, message)
    });
    each.collect()
}

/// The parts of a spec that are left out: crons, or fields with a default in their place.
fn problems(document: &Document, accepted: &Accepted) -> Vec<Diagnostic> {
    let each = accepted.workload().problems.iter().map(|problem| {
        let path = match &problem.part {
            SpecPart::Cron(name) => cron_path(accepted.spec(), name),
            SpecPart::Field(path) => path.clone(),
        };
        let message = format!("{}; ignored [{}]", problem.message, problem.reason);
        diagnostic(document.find(&path), Severity::Warning, message)
    });
    each.collect()
}

/// Path of the cron of a name.
fn cron_path(spec: &EffectiveHorizontalPodAutoscalerSpec, name: &str) -> String {
    let crons = spec.crons.iter().flatten();
    let position = crons
        .map(|cron| cron.name.as_deref().unwrap_or_default())
        .position(|n| n == name);
    position.map_or_else(|| "spec.crons".to_owned(), |i| format!("spec.crons[{i}]"))
}

/// Whether a document is of a kind of ours.
pub(super) fn is<K: Resource<DynamicType = ()>>(document: &Document) -> bool {
    document.text("kind") == K::kind(&()) && document.group() == K::group(&())
}
