//! The doors of `foretide cron` to the outside: manifests in, answers out.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{
    cron::{self, CronArgs, CronCommand, Crons, LintArgs},
    exit::Exit,
    manifest,
    output::{Answer, Failure, Screen},
    validate::{self, Severity, Validator},
};
use crate::{domain::cron::Zone, error::chain};

/// Answers `foretide cron`.
///
/// # Errors
/// A flag or a file cannot be used.
pub(super) fn run(
    args: &CronArgs,
    screen: Screen,
    local: &Zone,
    now: Timestamp,
) -> Result<Answer, Failure> {
    match &args.command {
        CronCommand::Next(args) => match cron::next(args, local, now) {
            Ok(text) => Ok(Answer::text(text)),
            Err(error) => Err(Failure::usage(chain(&error))),
        },
        CronCommand::Lint(args) => lint(args, screen, local, now),
    }
}

/// Crons that cannot be read are said on standard error, so that the report stays one document.
fn lint(args: &LintArgs, screen: Screen, local: &Zone, now: Timestamp) -> Result<Answer, Failure> {
    let invalid = |error: manifest::ManifestError| Failure::invalid(chain(&error));
    let judge = Validator::new(local, now);
    let mut all = Vec::new();
    let mut notes = String::new();
    let mut has_errors = false;
    for file in manifest::files(&args.files).map_err(invalid)? {
        for document in manifest::read(&file).map_err(invalid)? {
            let judgement = judge.judge(&document);
            let Some(accepted) = judgement.accepted else {
                let errors = judgement
                    .remarks
                    .iter()
                    .filter(|r| r.severity == Severity::Error);
                let lines: String = errors
                    .map(|remark| validate::line(remark, screen))
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
    let report = cron::lint_report(&all, args.output, now);
    let exit = if report.has_errors || has_errors {
        Exit::Invalid
    } else {
        Exit::Ok
    };
    Ok(Answer {
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
