//! `foretide plan`: one whole decision, offline, from a manifest and a recorded history.
//!
//! ```text
//! manifest -> validate -> Workload --+
//! Deployment or --request --scene----+--> decide --> view
//! CSV --outlook--> demand, forecast -+
//! ```
//!
//! Everything between the files and the text is what the controller runs. What a cluster would have
//! told is assumed, and each assumption is printed.

mod outlook;
mod scene;
mod template;
mod view;

use std::path::PathBuf;

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::Timestamp;

use self::outlook::{History, Outlook};
use super::{
    cron::Output,
    manifest::{self, Document},
    output::{Answer, Failure, Screen},
    validate::{self, Judge, Severity},
};
use crate::{
    domain::{
        Replicas,
        cron::Zone,
        decide::{Decision, Seen, decide},
        history,
        hpa::{MetricSpec, Settings},
        workload::Workload,
    },
    validate::chain,
};

/// Arguments of `foretide plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArgs {
    /// Manifest of the autoscaler, and of its workload if you have it; repeatable, - for standard input
    #[arg(
        short = 'f',
        long = "filename",
        required = true,
        value_name = "FILE|DIR"
    )]
    pub files: Vec<PathBuf>,
    /// Name of the autoscaler, where the manifests hold several
    #[arg(long)]
    pub name: Option<String>,
    /// History of a metric: lines of timestamp,value, where value is the workload's total in base units
    /// (cores, bytes, requests per second); METRIC, such as resource.memory, where the spec has several
    #[arg(long, value_name = "[METRIC=]FILE")]
    pub csv: Vec<String>,
    /// Replicas that run now [default: what the demand needs]
    #[arg(long, value_name = "N")]
    pub replicas: Option<u32>,
    /// When to decide, in RFC 3339 [default: the last line of the history]
    #[arg(long, value_name = "TIME")]
    pub at: Option<Timestamp>,
    /// What each pod requests, where no manifest says it, such as cpu=200m; repeatable
    #[arg(long, value_name = "RESOURCE=QUANTITY", value_parser = template::parse_request)]
    pub request: Vec<(String, i64)>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// A decision with everything it was made from.
#[derive(Debug)]
struct Plan {
    ehpa: EffectiveHorizontalPodAutoscaler,
    workload: Workload,
    at: Timestamp,
    decision: Decision,
    outlooks: Vec<Outlook>,
    assumptions: Vec<String>,
}

/// Answers `foretide plan`.
///
/// # Errors
/// A file cannot be read or used, or the flags leave something open.
pub(super) fn run(
    args: &PlanArgs,
    screen: Screen,
    local: &Zone,
    now: Timestamp,
) -> Result<Answer, Failure> {
    let screen = Screen {
        unicode: screen.unicode && !args.ascii,
        ..screen
    };
    let plan = plan(args, local, now)?;
    Ok(match args.output {
        Output::Table => Answer::text(view::text(&plan, screen)),
        Output::Json => Answer::json("Plan", view::json(&plan)),
    })
}

fn plan(args: &PlanArgs, local: &Zone, now: Timestamp) -> Result<Plan, Failure> {
    let documents = documents(&args.files)?;
    let (ehpa, mut workload) = chosen(&documents, args.name.as_deref(), local, now)?;
    let histories = histories(args, &workload)?;
    let mut assumptions = without_history(&mut workload, &histories);
    let at = moment(args.at, &histories, now)?;
    let outlooks = outlook::look(&ehpa, &workload, histories, at);
    let scene = scene::set(args, &documents, (&workload, &outlooks), at)?;
    assumptions.splice(0..0, scene.assumptions);
    let forecasts = outlooks
        .iter()
        .filter_map(|outlook| outlook.reading(&scene.observation.pods));
    let seen = Seen {
        forecasts: forecasts.collect(),
        observation: scene.observation,
        child: None,
    };
    let memory = history::History::default();
    let (decision, _) = decide(&workload, &seen, &memory, &Settings::default(), at);
    Ok(Plan {
        ehpa,
        workload,
        at,
        decision,
        outlooks,
        assumptions,
    })
}

fn documents(files: &[PathBuf]) -> Result<Vec<Document>, Failure> {
    let invalid = |error: manifest::ManifestError| Failure::invalid(chain(&error));
    let mut documents = Vec::new();
    for file in manifest::files(files).map_err(invalid)? {
        documents.extend(manifest::read(&file).map_err(invalid)?);
    }
    Ok(documents)
}

/// The one autoscaler among the documents, or the one of a name.
fn chosen(
    documents: &[Document],
    name: Option<&str>,
    local: &Zone,
    now: Timestamp,
) -> Result<(EffectiveHorizontalPodAutoscaler, Workload), Failure> {
    let ours = documents
        .iter()
        .filter(|d| validate::is::<EffectiveHorizontalPodAutoscaler>(d));
    let ours: Vec<_> = ours
        .filter(|d| name.is_none_or(|name| d.name() == name))
        .collect();
    let document = match (ours.as_slice(), name) {
        ([document], _) => *document,
        ([], None) => {
            return Err(Failure::invalid(
                "no EffectiveHorizontalPodAutoscaler in the manifests; name its file with -f",
            ));
        }
        ([], Some(name)) => {
            let message = format!("no EffectiveHorizontalPodAutoscaler {name} in the manifests");
            return Err(Failure::invalid(message));
        }
        (several, _) => {
            let names: Vec<_> = several.iter().map(|document| document.name()).collect();
            let names = names.join(", ");
            return Err(Failure::usage(format!(
                "several autoscalers: choose one with --name: {names}"
            )));
        }
    };
    let judgement = Judge::new(local, now).judge(document);
    let errors = judgement
        .remarks
        .iter()
        .filter(|remark| remark.severity == Severity::Error);
    let errors: Vec<_> = errors
        .map(|r| format!("{}: {}", r.place, r.message))
        .collect();
    judgement
        .accepted
        .map(|both| *both)
        .ok_or_else(|| Failure::invalid(errors.join("\n")))
}

/// The histories by metric; one that names no metric is the first metric's.
fn histories(args: &PlanArgs, workload: &Workload) -> Result<Vec<History>, Failure> {
    let known: Vec<String> = workload
        .metrics
        .iter()
        .map(MetricSpec::identifier)
        .collect();
    let mut histories: Vec<History> = Vec::new();
    for flag in &args.csv {
        let named = flag
            .split_once('=')
            .filter(|(metric, _)| known.iter().any(|k| k == metric));
        let (metric, file) = match (named, known.first()) {
            (Some((metric, file)), _) => (metric, file),
            (None, Some(first)) => (first.as_str(), flag.as_str()),
            (None, None) => return Err(Failure::usage("--csv: the autoscaler has no metrics")),
        };
        if histories.iter().any(|history| history.metric == metric) {
            let known = known.join(", ");
            let message = format!(
                "--csv: two histories of {metric}; write --csv METRIC=FILE with a metric of {known}"
            );
            return Err(Failure::usage(message));
        }
        histories.push(History::read(metric, file)?);
    }
    if histories.is_empty() && !known.is_empty() {
        let message = format!(
            "--csv FILE is needed: the history of {}",
            known.join(" or ")
        );
        return Err(Failure::usage(message));
    }
    Ok(histories)
}

/// Leaves out the metrics that have no history, and says so.
fn without_history(workload: &mut Workload, histories: &[History]) -> Vec<String> {
    let (kept, left): (Vec<_>, Vec<_>) = workload
        .metrics
        .drain(..)
        .partition(|metric| histories.iter().any(|h| h.metric == metric.identifier()));
    workload.metrics = kept;
    let left = left.iter().map(MetricSpec::identifier);
    left.map(|metric| format!("without {metric}, of which no history is given"))
        .collect()
}

fn moment(
    at: Option<Timestamp>,
    histories: &[History],
    now: Timestamp,
) -> Result<Timestamp, Failure> {
    let first = histories.iter().filter_map(History::first).min();
    match (at, first) {
        (Some(at), Some(first)) if at < first => Err(Failure::usage(format!(
            "--at {at} is before the history begins, at {first}"
        ))),
        (Some(at), _) => Ok(at),
        (None, _) => Ok(histories
            .iter()
            .filter_map(History::last)
            .max()
            .unwrap_or(now)),
    }
}

/// A count within what the API can carry.
fn count(n: usize) -> Replicas {
    Replicas::new(u32::try_from(n).unwrap_or(u32::MAX))
}
