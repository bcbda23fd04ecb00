//! `foretide assign`: the division of a fleet over clusters, offline.
//!
//! ```text
//! manifest -> validate -> policy -------+
//! clusters.yaml -> members, total ------+--> foretide_federate::decide --> view, data
//! previous output (--after) -> ledger --+
//! ```
//!
//! The decision is the controller's own. The demand of the fleet comes from the clusters file; `foretide plan` computes
//! it from a history.

mod budgets;
mod view;

use std::path::{Path, PathBuf};

use foretide_backtest::{
    assign::{Assignment, NamedFleet, Previous, clusters::Clusters},
    inputs::{self, AutoscalerKind},
    validate::Accepted,
};
use jiff::Timestamp;

use super::{
    context::{CommandContext, parse_time},
    files,
    inputs::documents,
    output::{CommandOutput, Failure, OutputFormat},
};

pub use self::view::division;

/// Arguments of `foretide assign`.
#[expect(clippy::doc_markdown, reason = "help shows it as it is")]
#[derive(Debug, Clone, clap::Args)]
pub struct AssignArgs {
    /// Manifest of the FederatedHPA; repeatable; - reads standard input
    #[arg(
        short = 'f',
        long = "filename",
        required = true,
        value_name = "FILE|DIR"
    )]
    pub files: Vec<PathBuf>,
    /// Name of the FederatedHPA, if the manifests hold several
    #[arg(long)]
    pub name: Option<String>,
    /// State of the clusters, in the format of examples/clusters.yaml
    #[arg(long, value_name = "FILE", required = true)]
    pub clusters: PathBuf,
    /// Continue from previous output of -o json: from its ledger, and from its bounds where the clusters file has none
    #[arg(long, value_name = "FILE")]
    pub after: Option<PathBuf>,
    /// Time of the decision, in RFC 3339 [default: now; with --after, one sync after it]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub at: Option<Timestamp>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Runs `foretide assign`.
///
/// # Errors
/// A file cannot be read or used.
pub fn run(args: &AssignArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let (documents, name) = (documents(&args.files)?, args.name.as_deref());
    let kind = AutoscalerKind::Fdhpa;
    let chosen = inputs::chosen(&documents, kind, name, &context.validator())?;
    let Accepted::Fdhpa(fdhpa, spec) = chosen else {
        return Err(Failure::invalid("expected a FederatedHPA"));
    };
    let fleet = NamedFleet {
        name: fdhpa.metadata.name.clone().unwrap_or_default(),
        spec: *spec,
    };
    let clusters = clusters(&args.clusters)?;
    let previous = args.after.as_deref().map(previous).transpose()?;
    let assignment = Assignment::new(fleet, &clusters, previous.as_ref(), args.at, context.now)?;
    Ok(match args.output {
        OutputFormat::Table => CommandOutput::text(view::text(&assignment, context.screen)),
        OutputFormat::Json => CommandOutput::json("Assignment", &assignment),
    })
}

/// Reads a clusters file; `-` is standard input.
///
/// # Errors
/// The file cannot be read, or has invalid fields; each with its line.
pub fn clusters(path: &Path) -> Result<Clusters, Failure> {
    let text = files::text(path).map_err(Failure::in_file)?;
    Ok(Clusters::parse(&files::name(path), &text)?)
}

fn previous(path: &Path) -> Result<Previous, Failure> {
    let text = files::text(path).map_err(Failure::in_file)?;
    Ok(Previous::parse(&files::name(path), &text)?)
}
