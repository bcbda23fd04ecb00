//! `foretide validate`: what is wrong with manifests, each with file, line and field.
//!
//! Three judges, each asked only if the one before is content: the rules that the API server will
//! apply, the one door from a spec to the domain, and the remarks about cron windows. The first two
//! make errors; what would be left out or surprise makes warnings.

use std::path::PathBuf;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, Rules, TimeSeriesPrediction, Violation};
use jiff::Timestamp;
use kube::Resource;
use serde_json::{Value, json};

use super::{
    cron::Output,
    exit::Exit,
    manifest::{self, Document, Place},
    output::{Answer, Failure, Paint, Screen},
};
use crate::{
    domain::{
        cron::{Bounds, Zone, lint},
        workload::{Subject, Workload},
    },
    validate::{self, chain},
};

/// Arguments of `foretide validate`.
#[derive(Debug, Clone, clap::Args)]
pub struct ValidateArgs {
    /// File or directory of manifests, or - for standard input; repeatable
    #[arg(
        short = 'f',
        long = "filename",
        required = true,
        value_name = "FILE|DIR"
    )]
    pub files: Vec<PathBuf>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// One thing to say about a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) place: Place,
    pub(super) severity: Severity,
    pub(super) message: String,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// The object is refused.
    Error,
    /// The object is accepted, and something in it is not used or may surprise.
    Warning,
    /// The object is not ours to judge.
    Note,
}

/// Compiled rules of our kinds.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    ehpa: Rules,
    tsp: Rules,
    local: &'a Zone,
    now: Timestamp,
}

/// What became of one document.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    /// The autoscaler and what it asks for, if it is one that can be acted on.
    pub(super) accepted: Option<Box<(EffectiveHorizontalPodAutoscaler, Workload)>>,
    pub(super) remarks: Vec<Remark>,
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

// === impl Judge ===

impl<'a> Judge<'a> {
    pub(super) fn new(local: &'a Zone, now: Timestamp) -> Self {
        let ehpa = Rules::of::<EffectiveHorizontalPodAutoscaler>();
        Self {
            ehpa,
            tsp: Rules::of::<TimeSeriesPrediction>(),
            local,
            now,
        }
    }

    /// Everything there is to say about one document.
    pub(super) fn judge(&self, document: &Document) -> Judgement {
        if is::<EffectiveHorizontalPodAutoscaler>(document) {
            return self.autoscaler(document);
        }
        let mut judgement = Judgement::default();
        if is::<TimeSeriesPrediction>(document) {
            judgement.remarks = refused(document, &self.tsp.check(&document.value()));
        } else {
            let (kind, version) = (document.text("kind"), document.text("apiVersion"));
            let message = match kind {
                "" => "not a Kubernetes object: no `kind`; skipped".to_owned(),
                _ => format!("{kind} ({version}) is not one of our kinds; skipped"),
            };
            judgement
                .remarks
                .push(remark(document.place(), Severity::Note, message));
        }
        judgement
    }

    fn autoscaler(&self, document: &Document) -> Judgement {
        let value = document.value();
        let mut remarks = refused(document, &self.ehpa.check(&value));
        if !remarks.is_empty() {
            return Judgement {
                accepted: None,
                remarks,
            };
        }
        let ehpa = match serde_json::from_value::<EffectiveHorizontalPodAutoscaler>(value) {
            Ok(ehpa) => ehpa,
            Err(error) => {
                let message = format!("cannot be read: {error}");
                let remarks = vec![remark(document.place(), Severity::Error, message)];
                return Judgement {
                    accepted: None,
                    remarks,
                };
            }
        };
        match validate::workload(&ehpa, self.local) {
            Ok(workload) => {
                remarks.extend(problems(document, &ehpa, &workload));
                remarks.extend(self.lints(document, &ehpa, &workload));
                Judgement {
                    accepted: Some(Box::new((ehpa, workload))),
                    remarks,
                }
            }
            Err(invalid) => {
                let each = invalid.0.iter();
                let each = each.map(|violation| {
                    let place = document.find(&violation.field);
                    remark(place, Severity::Error, violation.to_string())
                });
                Judgement {
                    accepted: None,
                    remarks: each.collect(),
                }
            }
        }
    }

    fn lints(
        &self,
        document: &Document,
        ehpa: &EffectiveHorizontalPodAutoscaler,
        workload: &Workload,
    ) -> Vec<Remark> {
        let found = lint(&workload.windows, bounds(workload), self.now);
        let each = found.iter().map(|finding| {
            let place = document.find(&cron_path(ehpa, &finding.cron));
            let message = format!(
                "cron {}: {} [{}]",
                finding.cron,
                finding.message,
                finding.code.as_str()
            );
            remark(place, Severity::Warning, message)
        });
        each.collect()
    }
}

/// Answers `foretide validate`.
///
/// # Errors
/// A directory cannot be listed.
pub(super) fn run(
    args: &ValidateArgs,
    screen: Screen,
    local: &Zone,
    now: Timestamp,
) -> Result<Answer, Failure> {
    let files = manifest::files(&args.files).map_err(|error| Failure::invalid(chain(&error)))?;
    let judge = Judge::new(local, now);
    let mut remarks = Vec::new();
    let mut accepted = 0;
    for file in &files {
        match manifest::read(file) {
            Ok(documents) => {
                for judgement in documents.iter().map(|document| judge.judge(document)) {
                    accepted += usize::from(judgement.accepted.is_some());
                    remarks.extend(judgement.remarks);
                }
            }
            Err(error) => remarks.push(unreadable(&error)),
        }
    }
    let (exit, summary) = summary(&remarks, accepted);
    let answer = match args.output {
        Output::Table => {
            let lines = remarks.iter().map(|remark| line(remark, screen));
            Answer::text(lines.chain([summary]).collect::<String>())
        }
        Output::Json => {
            let items: Vec<_> = remarks.iter().map(item).collect();
            Answer::json(
                "ValidationReport",
                json!({ "valid": accepted, "items": items }),
            )
        }
    };
    Ok(Answer { exit, ..answer })
}

/// A file that gives no documents, as a remark.
fn unreadable(error: &manifest::ManifestError) -> Remark {
    let (place, message) = match error {
        manifest::ManifestError::Yaml { place, message } => (place.clone(), message.clone()),
        manifest::ManifestError::Read { file, source } => (
            Place {
                file: file.clone(),
                line: None,
            },
            format!("cannot be read: {source}"),
        ),
    };
    remark(place, Severity::Error, message)
}

/// Whether all is well, and how many of what there are.
fn summary(remarks: &[Remark], accepted: usize) -> (Exit, String) {
    let count = |severity| remarks.iter().filter(|r| r.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let summary = format!(
        "{} valid, {}, {}\n",
        plural(accepted, "autoscaler"),
        plural(errors, "error"),
        plural(warnings, "warning")
    );
    (if errors > 0 { Exit::Invalid } else { Exit::Ok }, summary)
}

fn item(remark: &Remark) -> Value {
    json!({
        "file": remark.place.file,
        "line": remark.place.line,
        "severity": remark.severity.as_str(),
        "message": remark.message,
    })
}

/// One remark as compilers write them.
pub(super) fn line(remark: &Remark, screen: Screen) -> String {
    let paint = match remark.severity {
        Severity::Error => Paint::Error,
        Severity::Warning => Paint::Warning,
        Severity::Note => Paint::Dim,
    };
    let severity = screen.paint(paint, remark.severity.as_str());
    format!("{}: {severity}: {}\n", remark.place, remark.message)
}

fn remark(place: Place, severity: Severity, message: impl Into<String>) -> Remark {
    Remark {
        place,
        severity,
        message: message.into(),
    }
}

fn refused(document: &Document, violations: &[Violation]) -> Vec<Remark> {
    let each = violations.iter().map(|violation| {
        let place = document.find(&violation.field);
        remark(place, Severity::Error, violation.to_string())
    });
    each.collect()
}

/// The parts of a spec that are left out: crons, or fields with a default in their place.
fn problems(
    document: &Document,
    ehpa: &EffectiveHorizontalPodAutoscaler,
    workload: &Workload,
) -> Vec<Remark> {
    let each = workload.problems.iter().map(|problem| {
        let path = match &problem.subject {
            Subject::Cron(name) => cron_path(ehpa, name),
            Subject::Field(path) => path.clone(),
        };
        let message = format!("{}; left out [{}]", problem.message, problem.reason);
        remark(document.find(&path), Severity::Warning, message)
    });
    each.collect()
}

/// Path of the cron of a name.
fn cron_path(ehpa: &EffectiveHorizontalPodAutoscaler, name: &str) -> String {
    let crons = ehpa.spec.crons.iter().flatten();
    let position = crons
        .map(|cron| cron.name.as_deref().unwrap_or_default())
        .position(|n| n == name);
    position.map_or_else(|| "spec.crons".to_owned(), |i| format!("spec.crons[{i}]"))
}

/// The limits that cron targets are held against.
pub(super) fn bounds(workload: &Workload) -> Bounds {
    Bounds {
        min: workload.bounds.min.get(),
        max: workload.bounds.max.get(),
    }
}

/// Whether a document is of a kind of ours.
pub(super) fn is<K: Resource<DynamicType = ()>>(document: &Document) -> bool {
    document.text("kind") == K::kind(&()) && document.group() == K::group(&())
}
