//! `foretide plan`: one whole decision, offline, from a manifest and a recorded history.
//!
//! ```text
//! manifest -> validate -> Workload --+
//! Deployment or --request --scene----+--> decide --> view
//! CSV --outlook--> demand, forecast -+
//! ```
//!
//! Everything between the files and the text is what the controller runs. What a cluster would have
//! told is assumed, and each assumption is printed. A fleet is decided as one workload and then divided.

mod fleet;
mod observed;
mod outlook;
mod view;

use std::path::PathBuf;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use jiff::Timestamp;

use self::{fleet::Fleet, outlook::Outlook};
use super::{
    assign::Assignment,
    cron::Output,
    inputs::{self, History, Inputs, Takes},
    output::{Answer, Failure, Screen},
    template::template,
    validate::Accepted,
};
use crate::{
    api::spec::FleetSpec,
    domain::{
        Replicas,
        autoscale::{self, Decision, decide, history},
        cron::Zone,
        hpa::Settings,
        workload::Workload,
    },
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
    /// Replicas that run now [default: what the demand needs]
    #[arg(long, value_name = "N")]
    pub replicas: Option<u32>,
    /// The clusters of a FederatedHPA, in the form of examples/clusters.yaml
    #[arg(long, value_name = "FILE")]
    pub clusters: Option<PathBuf>,
    /// When to decide, in RFC 3339 [default: the last line of the history]
    #[arg(long, value_name = "TIME")]
    pub at: Option<Timestamp>,
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
    /// How it is divided, if it is a fleet's.
    division: Option<Assignment>,
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
    let documents = args.inputs.documents()?;
    let which = (Takes::Both, args.inputs.name.as_deref());
    let accepted = inputs::chosen(&documents, which, local, now)?;
    let fleet = Fleet::of(&accepted, args)?;
    let mut assumptions = Vec::new();
    let (ehpa, mut workload) = match accepted {
        Accepted::Fleet(fdhpa, spec) if fleet.is_none() => {
            assumptions.extend(fleet::assumed_of_one(&spec));
            one_of(*fdhpa, &spec)
        }
        accepted => whole(accepted),
    };
    let histories = args.inputs.histories(&workload)?;
    assumptions.extend(inputs::without_history(&mut workload, &histories));
    let at = moment(args.at, &histories, now)?;
    let outlooks = outlook::look(&ehpa, &workload, histories, at);
    let told = match (args.replicas, &fleet) {
        (Some(replicas), _) => Some((Replicas::new(replicas), "as --replicas says")),
        (None, Some(fleet)) => Some((fleet.replicas(), "as the clusters have")),
        (None, None) => None,
    };
    if fleet.is_some() {
        let shared = "clusters as their file has them, the demand shared evenly by their pods";
        assumptions.push(shared.to_owned());
    }
    let template = template(&args.inputs.request, &documents, &workload)?;
    let scene = observed::set(&template, (&workload, &outlooks), told, at)?;
    assumptions.splice(0..0, scene.assumptions);
    let forecasts = outlooks
        .iter()
        .filter_map(|outlook| outlook.reading(&scene.observation.pods));
    let seen = autoscale::Inputs {
        forecasts: forecasts.collect(),
        observation: scene.observation,
        child: None,
        share: None,
    };
    let memory = history::History::default();
    let (decision, _) = decide(&workload, &seen, &memory, &Settings::default(), at);
    let demand = observed::demand(&template, &outlooks, at);
    let division = fleet.map(|fleet| fleet.divided((&workload, &seen), &decision, demand));
    Ok(Plan {
        ehpa,
        workload,
        at,
        decision,
        outlooks,
        assumptions,
        division: division.transpose()?,
    })
}

/// One cluster of a fleet that is not divided, with the metrics that it measures for itself.
fn one_of(fdhpa: FederatedHPA, spec: &FleetSpec) -> (EffectiveHorizontalPodAutoscaler, Workload) {
    let workload = Workload {
        metrics: spec.member_metrics().cloned().collect(),
        ..spec.workload.clone()
    };
    (as_one(fdhpa), workload)
}

fn as_one(fdhpa: FederatedHPA) -> EffectiveHorizontalPodAutoscaler {
    EffectiveHorizontalPodAutoscaler {
        metadata: fdhpa.metadata,
        spec: fdhpa.spec.autoscaling,
        status: None,
    }
}

/// What is decided as one workload.
fn whole(accepted: Accepted) -> (EffectiveHorizontalPodAutoscaler, Workload) {
    match accepted {
        Accepted::One(ehpa, workload) => (*ehpa, *workload),
        Accepted::Fleet(fdhpa, fleet) => (as_one(*fdhpa), fleet.workload),
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
