//! `foretide cron`: reads the manifests, and prints what `cron` renders.

use std::fmt::Write as _;

use super::{
    context::CommandContext,
    cron::{self, CronArgs, CronCommand, Crons, LintArgs},
    exit::Exit,
    manifest,
    output::{CommandOutput, Failure},
    validate::{self, Severity, Validator},
};
use crate::error::chain;

/// Runs `foretide cron`.
///
/// # Errors
/// A flag or a file cannot be used.
pub(super) fn run(args: &CronArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    match &args.command {
        CronCommand::Next(args) => match cron::next(args, &context.local, context.now) {
            Ok(text) => Ok(CommandOutput::text(text)),
            Err(error) => Err(Failure::usage(chain(&error))),
        },
        CronCommand::Lint(args) => lint(args, context),
    }
}

/// Invalid crons are reported on standard error, so that the report stays one document.
fn lint(args: &LintArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let invalid = |error: manifest::ManifestError| Failure::invalid(chain(&error));
    let validator = Validator::new(context);
    let mut all = Vec::new();
    let mut notes = String::new();
    let mut has_errors = false;
    for file in manifest::files(&args.files).map_err(invalid)? {
        for document in manifest::read(&file).map_err(invalid)? {
            let validation = validator.validate(&document);
            let Some(accepted) = validation.accepted else {
                let errors = validation
                    .diagnostics
                    .iter()
                    .filter(|r| r.severity == Severity::Error);
                let lines: String = errors
                    .map(|diagnostic| validate::line(diagnostic, context.screen))
                    .collect();
                has_errors |= !lines.is_empty();
                notes.push_str(&lines);
                continue;
            };
            let workload = accepted.workload();
            for (_, problem) in workload.cron_problems() {
                has_errors = true;
                let _infallible = writeln!(notes, "{}: {}", document.place(), problem.message);
            }
            all.push(Crons {
                object: object(&document),
                windows: workload.windows.clone(),
                bounds: workload.bounds,
            });
        }
    }
    let report = cron::lint_report(&all, args.output, context.now);
    let exit = if report.has_errors || has_errors {
        Exit::Invalid
    } else {
        Exit::Ok
    };
    Ok(CommandOutput {
        text: report.text,
        notes,
        exit,
    })
}

fn object(document: &manifest::Document) -> String {
    match document.namespace().as_str() {
        "" => document.name(),
        namespace => format!("{namespace}/{}", document.name()),
    }
}
