//! The input of offline commands: one autoscaler, its workload, and the histories of its metrics.
//!
//! Objects come from manifests or from a cluster, histories from files or from Prometheus. Of several autoscalers one
//! must be selected by name; of several metrics each file names its own. An autoscaler of another kind is converted.

mod source;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use foretide_domain::{
    cron::Zone, demand::TargetError, hpa::MetricSpec, sim::Recording, workload::Workload,
};
use tokio::runtime::Runtime;

pub(super) use self::source::{Source, convert};
use super::{
    cluster::ClusterArgs,
    context::CommandContext,
    history::HistoryArgs,
    manifest::{self, Document},
    output::Failure,
    recording,
    template::{self, WorkloadTemplate},
    validate::{self, Accepted, Severity, Validator},
};
use crate::config::ScopeArg;
use foretide_api::autoscaler::Autoscaler;
use foretide_base::{error::chain, machine::Machine};

/// Flags that all offline commands share.
#[expect(
    clippy::doc_markdown,
    reason = "the help shows the doc comments as they are"
)]
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
    #[arg(long, value_name = "ZONE", value_parser = recording::parse_zone)]
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

/// The recorded history of one metric.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// Identifier of the metric.
    pub(super) metric: String,
    /// File or server of the history.
    pub(super) file: String,
    /// Samples of the metric.
    pub(super) recording: Recording,
    /// Missing and doubtful parts of the history, one sentence each.
    pub(super) notes: Vec<String>,
}

// === impl History ===

impl History {
    /// Reads the history of a file.
    pub(super) fn read(metric: &str, file: &str, zone: Option<&Zone>) -> Result<Self, Failure> {
        let text = manifest::text(Path::new(file)).map_err(|e| Failure::invalid(chain(&e)))?;
        Self::parse(metric, file, &text, zone)
    }

    /// Parses the text of a file.
    pub(super) fn parse(
        metric: &str,
        file: &str,
        text: &str,
        zone: Option<&Zone>,
    ) -> Result<Self, Failure> {
        let read = recording::parse(file, text, zone).map_err(Failure::invalid)?;
        Ok(Self {
            metric: metric.to_owned(),
            file: file.to_owned(),
            recording: read.recording,
            notes: read.notes,
        })
    }
}

// === impl Inputs ===

impl Inputs {
    /// The objects of the manifests, or of the cluster.
    ///
    /// # Errors
    /// A file or the cluster cannot be read.
    pub(super) fn source<'a>(
        &'a self,
        runtime: &'a Runtime,
        machine: &'a Machine,
    ) -> Result<Source<'a>, Failure> {
        Source::new(self, runtime, machine)
    }

    /// Returns these inputs for each autoscaler of the manifests, or for the one that is selected. A history that names
    /// an autoscaler, as `NAME=FILE` or `NAME/METRIC=FILE`, is for that one only; other histories are for every
    /// autoscaler.
    ///
    /// # Errors
    /// A file cannot be read, or only once.
    pub(super) fn each(&self) -> Result<Vec<Self>, Failure> {
        if self.object.is_some() || self.name.is_some() {
            return Ok(vec![self.clone()]);
        }
        if self.files.iter().any(|file| file.as_os_str() == "-") {
            return Err(Failure::usage(
                "-f -: expected files, which are read once for each autoscaler",
            ));
        }
        let documents = documents(&self.files)?;
        let all = documents.iter();
        let ours = all.filter(|document| AutoscalerKind::Ehpa.matches(document));
        let names: Vec<String> = ours.map(Document::name).collect();
        if names.is_empty() {
            return Ok(vec![self.clone()]);
        }
        let one = |name: &String| {
            let csv = self.csv.iter();
            Self {
                name: Some(name.clone()),
                csv: csv.filter_map(|flag| csv_of(flag, name, &names)).collect(),
                ..self.clone()
            }
        };
        Ok(names.iter().map(one).collect())
    }

    /// The histories of files by metric; a file without a metric has that of the first one.
    ///
    /// # Errors
    /// A history is missing, given twice, or cannot be read.
    fn recorded(&self, workload: &Workload) -> Result<Vec<History>, Failure> {
        let known = identifiers(workload);
        let given = self.csv.iter().map(|flag| {
            let parts = flag.split_once('=');
            // The name of a file may contain `=`, too.
            let named = parts.filter(|(metric, _)| known.iter().any(|k| k == metric));
            named.map_or((None, flag.as_str()), |(metric, file)| (Some(metric), file))
        });
        let zone = self.time_zone.as_ref();
        recorded(workload, given, |metric, file| {
            History::read(metric, file, zone)
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

/// The given histories, each of the metric that it names, or else of the first one.
///
/// # Errors
/// A history is missing, given twice, of no metric of the workload, or cannot be read.
pub(super) fn recorded<'a, T>(
    workload: &Workload,
    given: impl IntoIterator<Item = (Option<&'a str>, T)>,
    read: impl Fn(&str, T) -> Result<History, Failure>,
) -> Result<Vec<History>, Failure> {
    let known = identifiers(workload);
    let mut histories: Vec<History> = Vec::new();
    for (named, file) in given {
        let first = known.first().map(String::as_str);
        let metric = named.or(first);
        let metric =
            metric.ok_or_else(|| Failure::usage("--csv: the autoscaler has no metrics"))?;
        let problem = if !known.iter().any(|known| known == metric) {
            "a history"
        } else if histories.iter().any(|history| history.metric == metric) {
            "two histories"
        } else {
            histories.push(read(metric, file)?);
            continue;
        };
        let known = known.join(", ");
        return Err(Failure::usage(format!(
            "--csv: {problem} of {metric}; use --csv METRIC=FILE, where METRIC is one of {known}"
        )));
    }
    // A spec with cron windows only has no metrics, and needs no history.
    if histories.is_empty() && !known.is_empty() {
        let message = format!(
            "--csv FILE or --prometheus URL is required: the history of {}",
            known.join(" or ")
        );
        return Err(Failure::usage(message));
    }
    Ok(histories)
}

fn identifiers(workload: &Workload) -> Vec<String> {
    let metrics = workload.metrics.iter();
    metrics.map(MetricSpec::identifier).collect()
}

/// All objects of some manifests.
///
/// # Errors
/// A file cannot be read.
pub(super) fn documents(files: &[PathBuf]) -> Result<Vec<Document>, Failure> {
    let invalid = |error: manifest::ManifestError| Failure::invalid(chain(&error));
    let mut documents = Vec::new();
    for file in manifest::files(files).map_err(invalid)? {
        documents.extend(manifest::read(&file).map_err(invalid)?);
    }
    Ok(documents)
}

/// An autoscaler of one cluster and the workload that its spec describes.
#[derive(Clone, Debug)]
pub(super) struct AutoscalerWorkload {
    pub(super) autoscaler: Autoscaler,
    pub(super) workload: Workload,
}

/// The kinds of autoscaler that a command accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoscalerKind {
    /// `EffectiveHorizontalPodAutoscaler`.
    Ehpa,
    /// Either of the two.
    Any,
    /// `FederatedHPA`.
    Fdhpa,
}

// === impl AutoscalerKind ===

impl AutoscalerKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Ehpa => {
                "EffectiveHorizontalPodAutoscaler, HorizontalPodAutoscaler or ScaledObject"
            }
            Self::Any => {
                "EffectiveHorizontalPodAutoscaler, FederatedHPA, HorizontalPodAutoscaler or ScaledObject"
            }
            Self::Fdhpa => "FederatedHPA",
        }
    }

    fn matches(self, document: &Document) -> bool {
        let one = validate::is::<EffectiveHorizontalPodAutoscaler>(document);
        let fleet = validate::is::<FederatedHPA>(document);
        (one && self != Self::Fdhpa) || (fleet && self != Self::Ehpa)
    }
}

/// The one autoscaler among the documents, or the one of a name.
///
/// # Errors
/// No autoscaler matches, or several do, or the one is not valid.
pub(super) fn chosen(
    documents: &[Document],
    kind: AutoscalerKind,
    name: Option<&str>,
    context: &CommandContext,
) -> Result<Accepted, Failure> {
    let kinds = kind.name();
    let of_kind = documents.iter().filter(|document| kind.matches(document));
    let ours: Vec<_> = of_kind
        .filter(|d| name.is_none_or(|name| d.name() == name))
        .collect();
    let document = match (ours.as_slice(), name) {
        ([document], _) => *document,
        ([], None) => {
            return Err(Failure::invalid(format!(
                "no {kinds} in the manifests; add its file with -f"
            )));
        }
        ([], Some(name)) => {
            let message = format!("no {kinds} {name} in the manifests");
            return Err(Failure::invalid(message));
        }
        (all, _) => return Err(several(all)),
    };
    let validation = Validator::new(context).validate(document);
    let refused = validation
        .diagnostics
        .iter()
        .filter(|remark| remark.severity == Severity::Error);
    let errors: Vec<_> = refused
        .map(|r| format!("{}: {}", r.place, r.message))
        .collect();
    validation
        .accepted
        .map(|both| *both)
        .ok_or_else(|| Failure::invalid(errors.join("\n")))
}

/// The error for several autoscalers where one is needed.
pub(super) fn several(documents: &[&Document]) -> Failure {
    let names: Vec<_> = documents.iter().map(|document| document.name()).collect();
    let names = names.join(", ");
    Failure::usage(format!(
        "several autoscalers; select one with --name: {names}"
    ))
}

/// The one autoscaler of one cluster, for commands that do not support fleets.
///
/// # Errors
/// As [`chosen`].
pub(super) fn chosen_one(
    documents: &[Document],
    name: Option<&str>,
    context: &CommandContext,
) -> Result<AutoscalerWorkload, Failure> {
    match chosen(documents, AutoscalerKind::Ehpa, name, context)? {
        Accepted::Ehpa(ehpa, workload) => Ok(AutoscalerWorkload {
            autoscaler: Autoscaler::Effective(Arc::new(*ehpa)),
            workload: *workload,
        }),
        Accepted::Fdhpa(..) => Err(Failure::invalid(
            "expected an EffectiveHorizontalPodAutoscaler, found a FederatedHPA",
        )),
    }
}

/// The notes on some histories as lines for standard error.
pub(super) fn notes(histories: &[History]) -> String {
    let notes = histories.iter().flat_map(|history| &history.notes);
    notes
        .flat_map(|note| ["foretide: ", note.as_str(), "\n"])
        .collect()
}

/// Removes the metrics without a history; returns one assumption for each.
pub(super) fn without_history(workload: &mut Workload, histories: &[History]) -> Vec<String> {
    let (kept, left): (Vec<_>, Vec<_>) = workload
        .metrics
        .drain(..)
        .partition(|metric| histories.iter().any(|h| h.metric == metric.identifier()));
    workload.metrics = kept;
    let left = left.iter().map(MetricSpec::identifier);
    left.map(|metric| format!("without {metric}: no history is given"))
        .collect()
}

/// The error for a utilization target without a resource request.
pub(super) fn requests_unknown(template: &WorkloadTemplate, error: &TargetError) -> Failure {
    let TargetError::MissingRequest { resource, .. } = error else {
        return Failure::invalid(error);
    };
    if let Some(place) = &template.place {
        return Failure::invalid(format!("{place}: {error}"));
    }
    Failure::usage(format!(
        "the {resource} request of a pod is unknown: add the workload's manifest with -f, or set \
         --request {resource}=200m"
    ))
}
