//! `foretide convert`: another autoscaler as an `EffectiveHorizontalPodAutoscaler`, to be applied in Preview.

use std::path::PathBuf;

use foretide_backtest::{
    Error,
    conversion::{self, Converted},
    inputs::{self, AutoscalerKind, InputError},
    manifest::Document,
};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use serde_json::json;

use super::{
    context::CommandContext,
    inputs::documents,
    output::{CommandOutput, Failure},
};
use foretide_base::printable;

/// Arguments of `foretide convert`.
#[expect(clippy::doc_markdown, reason = "help shows it as it is")]
#[derive(Debug, Clone, clap::Args)]
pub struct ConvertArgs {
    /// Manifest of a HorizontalPodAutoscaler (autoscaling/v2 or v1) or of a ScaledObject of KEDA; repeatable; - reads
    /// standard input
    #[arg(
        short = 'f',
        long = "filename",
        required = true,
        value_name = "FILE|DIR"
    )]
    pub files: Vec<PathBuf>,
    /// Name of the autoscaler, if the manifests hold several
    #[arg(long)]
    pub name: Option<String>,
}

/// Runs `foretide convert`.
///
/// # Errors
/// A file cannot be read, or holds no autoscaler that can be converted, or several.
pub fn run(args: &ConvertArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let documents = documents(&args.files)?;
    let name = args.name.as_deref();
    let convertible = documents.iter().filter(|document| {
        conversion::is_convertible(document) && name.is_none_or(|name| document.name() == name)
    });
    let document = match convertible.collect::<Vec<_>>()[..] {
        [document] => document,
        [] => {
            const KINDS: &str = "HorizontalPodAutoscaler or ScaledObject";
            return Err(Failure::invalid(match name {
                Some(name) => format!("no {KINDS} {name} in the manifests"),
                None => format!("no {KINDS} in the manifests; add its file with -f"),
            }));
        }
        ref several => return Err(Error::from(InputError::several(several)).into()),
    };
    let mut converted = conversion::converted(document)?;
    let strategy = json!("Preview");
    converted.object["spec"]["scaleStrategy"] = strategy;
    let origin = document.place().file;
    let made = Document::of(origin, &converted.object);
    // Validated, so that the API server accepts the result.
    inputs::chosen(&[made], AutoscalerKind::Ehpa, None, &context.validator())?;
    Ok(CommandOutput::text(yaml(&converted)?))
}

/// The object as YAML, below its notes as comments.
fn yaml(converted: &Converted) -> Result<String, Failure> {
    let object: EffectiveHorizontalPodAutoscaler =
        serde_json::from_value(converted.object.clone()).map_err(Failure::in_file)?;
    let object = serde_saphyr::to_string(&object).map_err(Failure::in_file)?;
    let preview = format!(
        "In Preview: it shows its decisions in its status and scales nothing. To switch it on, {}.",
        converted.switch_on
    );
    let lines = converted.notes.iter().chain([&preview]);
    let comments = lines.map(|note| format!("# {}\n", printable::line(note)));
    Ok(format!("{}{object}", comments.collect::<String>()))
}
