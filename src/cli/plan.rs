//! `foretide plan`: one decision, offline, from a manifest and a recorded history.
//!
//! ```text
//! manifest -> validate -> Workload --+
//! Deployment or --request -----------+--> decide --> view
//! history -outlook-> demand, forecast+
//! ```
//!
//! Everything between the files and the text is code of the controller. The state of a cluster is assumed, and each
//! assumption is printed. A fleet is decided as one workload and then divided.

mod fleet;
mod observed;
mod outlook;
mod view;

use std::path::PathBuf;
use std::sync::Arc;

use foretide_crds::FederatedHPA;
use foretide_domain::{
    Replicas,
    autoscale::{self, Decision, decide, history},
    hpa::Settings,
    workload::Workload,
};
use jiff::Timestamp;

use self::{fleet::FleetPlan, observed::GivenReplicas, outlook::Outlook};
use super::{
    assign::Assignment,
    cluster,
    context::{CommandContext, Progress, parse_time},
    history::Reading,
    inputs::{self, AutoscalerKind, AutoscalerWorkload, History, Inputs},
    output::{CommandOutput, Failure, OutputFormat},
    validate::Accepted,
};
use crate::api::{
    autoscaler::Autoscaler,
    validation::{FleetSpec, MAX_REPLICAS},
};

/// Arguments of `foretide plan`.
#[expect(
    clippy::doc_markdown,
    reason = "the help shows the doc comments as they are"
)]
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArgs {
    /// The autoscaler and its histories.
    #[command(flatten)]
    pub inputs: Inputs,
    /// Current number of replicas [default: what the demand needs]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_REPLICAS))
    )]
    pub replicas: Option<u32>,
    /// Clusters of the FederatedHPA, in the format of examples/clusters.yaml
    #[arg(long, value_name = "FILE")]
    pub clusters: Option<PathBuf>,
    /// Time of the decision, in RFC 3339 [default: the time of the last sample]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub at: Option<Timestamp>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// A decision and its inputs.
#[derive(Debug)]
struct PlanReport {
    autoscaler: Autoscaler,
    workload: Workload,
    at: Timestamp,
    decision: Decision,
    outlooks: Vec<Outlook>,
    assumptions: Vec<String>,
    /// The division, if it is of a fleet.
    division: Option<Assignment>,
    /// How the histories were read, and what is missing or doubtful in them, for standard error.
    notes: String,
}

/// Runs `foretide plan`.
///
/// # Errors
/// A file cannot be read or used, or the flags are invalid or incomplete.
pub(super) fn run(
    args: &PlanArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    let screen = context.screen.with_ascii(args.ascii);
    let plan = plan(args, context, progress)?;
    let output = match args.output {
        OutputFormat::Table => CommandOutput::text(view::text(&plan, screen)),
        OutputFormat::Json => CommandOutput::json("Plan", view::json(&plan)),
    };
    Ok(CommandOutput {
        notes: plan.notes,
        ..output
    })
}

fn plan(
    args: &PlanArgs,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PlanReport, Failure> {
    let runtime = cluster::runtime()?;
    let mut source = args.inputs.source(&runtime)?;
    let name = args.inputs.name.as_deref();
    let accepted = inputs::chosen(&source.documents, AutoscalerKind::Any, name, context)?;
    let fleet = FleetPlan::of(&accepted, args)?;
    let mut assumptions = std::mem::take(&mut source.converted);
    let mut chosen = match accepted {
        Accepted::Fdhpa(fdhpa, spec) if fleet.is_none() => {
            assumptions.extend(fleet::assumed_of_one(&spec));
            one_cluster_of(*fdhpa, &spec)
        }
        accepted => single_workload(accepted),
    };
    let until = args.at.map_or(context.now, |at| at.min(context.now));
    let histories = source.histories(&mut chosen, &mut Reading { until, progress })?;
    let AutoscalerWorkload {
        autoscaler,
        workload,
    } = chosen;
    assumptions.extend(histories.missing);
    let at = moment(args.at, &histories.read, context.now)?;
    let outlooks = outlook::outlooks(&autoscaler, &workload, histories.read, at);
    let given = given_replicas(args, fleet.as_ref());
    if fleet.is_some() {
        let shared = "clusters as in the clusters file, demand divided evenly over their pods";
        assumptions.push(shared.to_owned());
    }
    let template = source.templates(&workload)?.template(&workload)?;
    let assumed = observed::assume(&template, &workload, &outlooks, given, at)?;
    assumptions.splice(0..0, assumed.assumptions);
    let forecasts = outlooks
        .iter()
        .filter_map(|outlook| outlook.reading(&assumed.observation.pods));
    let seen = autoscale::Inputs {
        forecasts: forecasts.collect(),
        observation: assumed.observation,
        child: None,
        share: None,
    };
    let history = history::History::default();
    let (decision, _) = decide(&workload, &seen, &history, &Settings::default(), at);
    let demand = observed::demand(&template, &outlooks, at);
    let division = fleet.map(|fleet| fleet.divided(&workload, &seen, &decision, demand));
    Ok(PlanReport {
        autoscaler,
        workload,
        at,
        decision,
        outlooks,
        assumptions,
        division: division.transpose()?,
        notes: histories.notes,
    })
}

/// The replicas that run, where a flag or the clusters file gives them.
fn given_replicas(args: &PlanArgs, fleet: Option<&FleetPlan>) -> Option<GivenReplicas> {
    match (args.replicas, fleet) {
        (Some(replicas), _) => Some(GivenReplicas {
            replicas: Replicas::new(replicas),
            origin: "from --replicas",
        }),
        (None, Some(fleet)) => Some(GivenReplicas {
            replicas: fleet.replicas(),
            origin: "from the clusters file",
        }),
        (None, None) => None,
    }
}

/// One cluster of a fleet that is not divided, with the metrics that each cluster measures.
fn one_cluster_of(fdhpa: FederatedHPA, spec: &FleetSpec) -> AutoscalerWorkload {
    let workload = Workload {
        metrics: spec.member_metrics().cloned().collect(),
        ..spec.workload.clone()
    };
    AutoscalerWorkload {
        autoscaler: Autoscaler::Federated(Arc::new(fdhpa)),
        workload,
    }
}

/// The autoscaler as one workload; a fleet counts as one cluster.
fn single_workload(accepted: Accepted) -> AutoscalerWorkload {
    match accepted {
        Accepted::Ehpa(ehpa, workload) => AutoscalerWorkload {
            autoscaler: Autoscaler::Effective(Arc::new(*ehpa)),
            workload: *workload,
        },
        Accepted::Fdhpa(fdhpa, fleet) => AutoscalerWorkload {
            autoscaler: Autoscaler::Federated(Arc::new(*fdhpa)),
            workload: fleet.workload,
        },
    }
}

fn moment(
    at: Option<Timestamp>,
    histories: &[History],
    now: Timestamp,
) -> Result<Timestamp, Failure> {
    let first = |history: &History| history.recording.first();
    let first = histories.iter().filter_map(first).min();
    match (at, first) {
        (Some(at), Some(first)) if at < first => Err(Failure::usage(format!(
            "--at {at} is before the history begins, at {first}"
        ))),
        (Some(at), _) => Ok(at),
        (None, _) => Ok(histories
            .iter()
            .filter_map(|history| history.recording.last())
            .max()
            .unwrap_or(now)),
    }
}
