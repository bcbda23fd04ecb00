//! `foretide plan`: one decision, offline, from a manifest and a recorded history; or the expected replicas of a span.
//!
//! ```text
//! manifest -> validate -> Workload --+           +-> decide --> view
//! Deployment or --request -----------+-> Situation
//! history -outlook-> demand, forecast+           +-> sim::Ahead --> expected
//! ```
//!
//! Everything between the files and the text is code of the controller. The state of a cluster is assumed, and each
//! assumption is printed. A fleet is decided as one workload and then divided.

mod expected;
mod fleet;
mod observed;
mod outlook;
mod view;

use std::path::PathBuf;
use std::sync::Arc;

use foretide_crds::FederatedHPA;
use foretide_domain::{
    Observation, Replicas,
    autoscale::{self, Decision, decide, history},
    hpa::Settings,
    workload::Workload,
};
use jiff::{SignedDuration, Timestamp};

use self::{fleet::FleetPlan, observed::GivenReplicas, outlook::Outlook};
use super::{
    assign::Assignment,
    cluster,
    context::{CommandContext, Progress, parse_time},
    history::Reading,
    inputs::{self, AutoscalerKind, AutoscalerWorkload, History, Inputs},
    manifest,
    output::{CommandOutput, Failure, ReportFormat},
    template::WorkloadTemplate,
    validate::Accepted,
};
use foretide_api::{
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
    /// Instead of one decision, the replicas that forecast, cron windows and bounds ask for from this time on, in RFC
    /// 3339 [default: the time of the last sample]; a time in the history is forecast from what was known then
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "at")]
    pub from: Option<Timestamp>,
    /// End of that span [default: a day after --from]
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "at")]
    pub to: Option<Timestamp>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Output format; csv, svg and html show a span, as of --from and --to
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ReportFormat,
}

/// Inputs of a plan: the autoscaler, and the state at a moment.
struct Situation {
    autoscaler: Autoscaler,
    workload: Workload,
    fleet: Option<FleetPlan>,
    /// Template of a pod.
    template: WorkloadTemplate,
    /// The moment up to which the histories are known.
    at: Timestamp,
    outlooks: Vec<Outlook>,
    /// Assumed pods with their measurements.
    observation: Observation,
    assumptions: Vec<String>,
    /// Notes on the reading of the histories and on their missing and doubtful parts, for standard error.
    notes: String,
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
    /// The division of a fleet.
    division: Option<Assignment>,
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
    let charts = [ReportFormat::Csv, ReportFormat::Svg, ReportFormat::Html];
    if args.from.is_some() || args.to.is_some() || charts.contains(&args.output) {
        return expected::run(args, context, progress);
    }
    let situation = Situation::read(args, context, |_, _| Ok(outlook::AHEAD), progress)?;
    let notes = situation.notes.clone();
    let plan = PlanReport::new(situation)?;
    let output = match args.output {
        ReportFormat::Json => CommandOutput::json("Plan", view::json(&plan)),
        _ => CommandOutput::text(view::text(&plan, screen)),
    };
    Ok(CommandOutput { notes, ..output })
}

// === impl Situation ===

impl Situation {
    /// Reads the state at `--at`, or at `--from` if that is in the history; `length` returns the least length of the
    /// forecasts made at that moment.
    fn read(
        args: &PlanArgs,
        context: &CommandContext,
        length: impl FnOnce(&Workload, Timestamp) -> Result<SignedDuration, Failure>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Self, Failure> {
        let runtime = cluster::runtime()?;
        let mut source = args.inputs.source(&runtime, &context.machine)?;
        let name = args.inputs.name.as_deref();
        let accepted = inputs::chosen(&source.documents, AutoscalerKind::Any, name, context)?;
        let fleet = FleetPlan::of(&accepted, args)?;
        let mut assumptions = std::mem::take(&mut source.converted);
        let is_converted = !assumptions.is_empty();
        let mut chosen = match accepted {
            Accepted::Fdhpa(fdhpa, spec) if fleet.is_none() => {
                assumptions.extend(fleet::assumed_of_one(&spec));
                one_cluster_of(*fdhpa, &spec)
            }
            accepted => single_workload(accepted),
        };
        if is_converted {
            manifest::preview(&mut chosen.autoscaler);
        }
        // The demand after --from is shown together with its forecast.
        let asked = args.at.or(args.to);
        let until = asked.map_or(context.now, |at| at.min(context.now));
        let histories = source.histories(&mut chosen, &mut Reading { until, progress })?;
        let AutoscalerWorkload {
            autoscaler,
            workload,
        } = chosen;
        assumptions.extend(histories.missing);
        let at = moment(args, &histories.read, context.now)?;
        let length = length(&workload, at)?;
        let outlooks = outlook::outlooks(&autoscaler, &workload, histories.read, at, length);
        let given = given_replicas(args, fleet.as_ref());
        if fleet.is_some() {
            let shared = "clusters as in the clusters file, demand divided evenly over their pods";
            assumptions.push(shared.to_owned());
        }
        let template = source.templates(&workload)?.template(&workload)?;
        let assumed = observed::assume(&template, &workload, &outlooks, given, at)?;
        assumptions.splice(0..0, assumed.assumptions);
        Ok(Self {
            autoscaler,
            workload,
            fleet,
            template,
            at,
            outlooks,
            observation: assumed.observation,
            assumptions,
            notes: histories.notes,
        })
    }
}

// === impl PlanReport ===

impl PlanReport {
    /// The decision at the moment of the situation.
    fn new(situation: Situation) -> Result<Self, Failure> {
        let Situation {
            autoscaler,
            workload,
            outlooks,
            at,
            ..
        } = situation;
        let pods = &situation.observation.pods;
        let forecasts = outlooks.iter().filter_map(|outlook| outlook.reading(pods));
        let seen = autoscale::Inputs {
            forecasts: forecasts.collect(),
            observation: situation.observation,
            child: None,
            share: None,
        };
        let history = history::History::default();
        let (decision, _) = decide(&workload, &seen, &history, &Settings::default(), at);
        let demand = observed::demand(&situation.template, &outlooks, at);
        let division = situation
            .fleet
            .map(|fleet| fleet.divided(&workload, &seen, &decision, demand));
        Ok(Self {
            autoscaler,
            workload,
            at,
            decision,
            outlooks,
            assumptions: situation.assumptions,
            division: division.transpose()?,
        })
    }
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

/// The moment up to which the histories are known: that of the flag, but not after the last sample if it begins a span.
fn moment(args: &PlanArgs, histories: &[History], now: Timestamp) -> Result<Timestamp, Failure> {
    let first = histories.iter().filter_map(|it| it.recording.first()).min();
    let last = histories.iter().filter_map(|it| it.recording.last()).max();
    for (flag, at) in [("--at", args.at), ("--from", args.from)] {
        if let (Some(at), Some(first)) = (at, first.filter(|first| at < Some(*first))) {
            return Err(Failure::usage(format!(
                "{flag} {at} is before the history begins, at {first}"
            )));
        }
    }
    let known = args
        .from
        .map(|from| last.map_or(from, |last| from.min(last)));
    Ok(args.at.or(known).or(last).unwrap_or(now))
}
