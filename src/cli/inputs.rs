//! The input of offline commands: one autoscaler, its workload, and the histories of its metrics.
//!
//! Objects come from manifests or from a cluster, histories from files or from Prometheus. Of several autoscalers one
//! must be selected by name; of several metrics each file names its own. An autoscaler of another kind is converted.

mod source;

use std::path::PathBuf;

use foretide_backtest::{
    inputs::{self, AutoscalerKind},
    manifest::Document,
    recording::{History, parse_zone},
    template,
};
use foretide_domain::{cron::Zone, workload::Workload};

pub use self::source::Source;
use super::{cluster::ClusterArgs, files, history::HistoryArgs, output::Failure, recording};
use crate::config::ScopeArg;

/// Flags that all offline commands share.
#[expect(clippy::doc_markdown, reason = "help shows it as it is")]
#[derive(Debug, Clone, clap::Args)]
pub struct Inputs {
    /// Autoscaler in the cluster, instead of -f: NAMESPACE/NAME, or NAME in the namespace of the context
    #[arg(value_name = "NAME", conflicts_with = "files")]
    pub object: Option<String>,
    /// Manifest of the autoscaler (an EffectiveHorizontalPodAutoscaler, HorizontalPodAutoscaler or ScaledObject), and
    /// of its workload if available; repeatable; - reads standard input
    #[arg(
        short = 'f',
        long = "filename",
        required_unless_present = "object",
        value_name = "FILE|DIR"
    )]
    pub files: Vec<PathBuf>,
    /// Name of the autoscaler, if the manifests hold several
    #[arg(long)]
    pub name: Option<String>,
    /// History of a metric: lines of timestamp,value, or the JSON of a range query of Prometheus, where value is the
    /// workload's total in base units (cores, bytes, requests per second); METRIC, such as resource.memory, selects
    /// one of several metrics
    #[arg(long, value_name = "[METRIC=]FILE")]
    pub csv: Vec<String>,
    /// Zone of the times in a history that have none, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", value_parser = parse_zone)]
    pub time_zone: Option<Zone>,
    /// Resource request of each pod, if no manifest sets it, such as cpu=200m; repeatable
    #[arg(long, value_name = "RESOURCE=QUANTITY", value_parser = template::parse_request)]
    pub request: Vec<(String, i64)>,
    /// Namespace of objects that name none
    #[arg(short = 'n', long)]
    pub namespace: Option<String>,
    /// The source of the history, if it is not in files.
    #[command(flatten)]
    pub history: HistoryArgs,
    /// Series that a query of the autoscaler may read, as the flag of the controller [default: that of --config, else
    /// namespace]
    #[arg(long, value_enum, value_name = "SCOPE")]
    pub promql_scope: Option<ScopeArg>,
    /// The source of the objects, if they are not in files.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

// === impl Inputs ===

impl Inputs {
    /// Returns these inputs for each autoscaler of the manifests, or for the one that is selected. A history that names
    /// an autoscaler, as `NAME=FILE` or `NAME/METRIC=FILE`, is for that one only; other histories are for every
    /// autoscaler.
    ///
    /// # Errors
    /// A file cannot be read, or only once.
    pub fn each(&self) -> Result<Vec<Self>, Failure> {
        if self.object.is_some() || self.name.is_some() {
            return Ok(vec![self.clone()]);
        }
        if self.files.iter().any(|file| file.as_os_str() == "-") {
            return Err(Failure::usage(
                "-f -: expected files, which are read once for each autoscaler",
            ));
        }
        let names: Vec<String> = documents(&self.files)?
            .iter()
            .filter(|document| AutoscalerKind::Ehpa.matches(document))
            .map(|it| it.name().to_owned())
            .collect();
        if names.is_empty() {
            return Ok(vec![self.clone()]);
        }
        Ok(names
            .iter()
            .map(|name| {
                let csv = self.csv.iter();
                Self {
                    name: Some(name.clone()),
                    csv: csv.filter_map(|flag| csv_of(flag, name, &names)).collect(),
                    ..self.clone()
                }
            })
            .collect())
    }

    /// The histories of files by metric; a file without a metric has that of the first one.
    ///
    /// # Errors
    /// A history is missing, given twice, or cannot be read.
    fn recorded(&self, workload: &Workload) -> Result<Vec<History>, Failure> {
        let known = inputs::identifiers(workload);
        let given = self.csv.iter().map(|flag| {
            // The name of a file may contain `=`, too.
            flag.split_once('=')
                .filter(|(metric, _)| known.iter().any(|k| k == metric))
                .map_or((None, flag.as_str()), |(metric, file)| (Some(metric), file))
        });
        let zone = self.time_zone.as_ref();
        inputs::recorded(workload, given, |metric, file| {
            recording::read(metric, file, zone)
        })
    }
}

/// A `--csv` flag for the autoscaler `name`, without that name; `None` if it is for another one.
fn csv_of(flag: &str, name: &str, all: &[String]) -> Option<String> {
    let Some((key, file)) = flag.split_once('=') else {
        return Some(flag.to_owned());
    };
    let (named, metric) = match key.split_once('/') {
        Some((named, metric)) => (named, Some(metric)),
        None => (key, None),
    };
    if !all.iter().any(|known| known == named) {
        return Some(flag.to_owned());
    }
    let own = metric.map_or_else(|| file.to_owned(), |metric| format!("{metric}={file}"));
    (named == name).then_some(own)
}

/// All objects of some manifests.
///
/// # Errors
/// A file cannot be read.
pub fn documents(paths: &[PathBuf]) -> Result<Vec<Document>, Failure> {
    files::documents(paths).map_err(Failure::in_file)
}

/// The notes on some histories as lines for standard error.
pub fn notes(histories: &[History]) -> String {
    histories
        .iter()
        .flat_map(|history| &history.notes)
        .flat_map(|note| ["foretide: ", note.as_str(), "\n"])
        .collect()
}
