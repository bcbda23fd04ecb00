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
mod view;

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::Timestamp;

use self::outlook::Outlook;
use super::{
    cron::Output,
    inputs::{self, History, Inputs},
    output::{Answer, Failure, Screen},
};
use crate::domain::{
    cron::Zone,
    decide::{Decision, Seen, decide},
    history,
    hpa::Settings,
    workload::Workload,
};

/// Arguments of `foretide plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArgs {
    /// The autoscaler and its histories.
    #[command(flatten)]
    pub inputs: Inputs,
    /// Replicas that run now [default: what the demand needs]
    #[arg(long, value_name = "N")]
    pub replicas: Option<u32>,
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
    let (ehpa, mut workload) = inputs::chosen(&documents, args.inputs.name.as_deref(), local, now)?;
    let histories = args.inputs.histories(&workload)?;
    let mut assumptions = inputs::without_history(&mut workload, &histories);
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
        share: None,
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
