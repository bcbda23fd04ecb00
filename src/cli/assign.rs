//! `foretide assign`: how a fleet is divided over clusters, step by step, offline.
//!
//! ```text
//! manifest -> validate -> policy ------+
//! clusters.yaml -> members, total -----+--> federate::decide --> view, data
//! former answer (--after) -> ledger ---+
//! ```
//!
//! What is decided is what the controller decides; this file computes nothing of it. It refuses to guess what the
//! fleet needs: the clusters' file says it, or `foretide plan` works it out.

pub(super) mod clusters;
mod data;
mod previous;
mod view;

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};

use self::{clusters::Clusters, previous::Previous};
use super::{
    cron::Output,
    inputs::{self, Takes},
    output::{Answer, Failure, Screen},
    validate::Accepted,
};
use crate::{
    api::spec::FleetSpec,
    domain::{
        cron::Zone,
        federate::{self, FleetDecision, Ledger, Member, Total},
        hpa::{MetricSpec, Target},
    },
};

pub(super) use self::{data::json, view::division};

/// Arguments of `foretide assign`.
#[expect(
    clippy::doc_markdown,
    reason = "the help shows the doc comments as they are"
)]
#[derive(Debug, Clone, clap::Args)]
pub struct AssignArgs {
    /// Manifest of the FederatedHPA; repeatable, - for standard input
    #[arg(
        short = 'f',
        long = "filename",
        required = true,
        value_name = "FILE|DIR"
    )]
    pub files: Vec<PathBuf>,
    /// Name of the FederatedHPA, where the manifests hold several
    #[arg(long)]
    pub name: Option<String>,
    /// The clusters as they are, in the form of examples/clusters.yaml
    #[arg(long, value_name = "FILE", required = true)]
    pub clusters: PathBuf,
    /// Go on from a former answer, as -o json printed it: its memory, and its bounds where the clusters' file has none
    #[arg(long, value_name = "FILE")]
    pub after: Option<PathBuf>,
    /// When to decide, in RFC 3339 [default: now; with --after, one sync after it]
    #[arg(long, value_name = "TIME")]
    pub at: Option<Timestamp>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// A fleet that was divided, with everything it was made from.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) name: String,
    pub(super) fleet: FleetSpec,
    pub(super) members: Vec<Member>,
    pub(super) total: Total,
    pub(super) decision: FleetDecision,
    pub(super) ledger: Ledger,
}

// === impl Assignment ===

impl Assignment {
    /// Divides a fleet anew, or once more after a former answer.
    fn make(
        (name, fleet): (String, FleetSpec),
        members: Vec<Member>,
        total: Total,
        (ledger, at): (&Ledger, Timestamp),
    ) -> Self {
        let (decision, ledger) = federate::decide(&fleet.policy, &total, &members, ledger, at);
        Self {
            name,
            fleet,
            members,
            total,
            decision,
            ledger,
        }
    }

    /// Divides for the first time.
    pub(super) fn first(
        named: (String, FleetSpec),
        members: Vec<Member>,
        total: Total,
        at: Timestamp,
    ) -> Self {
        Self::make(named, members, total, (&Ledger::default(), at))
    }
}

/// The clusters of a file as they are seen at a moment.
///
/// # Errors
/// A cluster's demand cannot be told.
pub(super) fn members(
    fleet: &FleetSpec,
    clusters: &Clusters,
    at: Timestamp,
) -> Result<Vec<Member>, Failure> {
    clusters.members(utilization(fleet), at)
}

/// Answers `foretide assign`.
///
/// # Errors
/// A file cannot be read or used.
pub(super) fn run(
    args: &AssignArgs,
    screen: Screen,
    local: &Zone,
    now: Timestamp,
) -> Result<Answer, Failure> {
    let documents = inputs::documents(&args.files)?;
    let which = (Takes::Fleets, args.name.as_deref());
    let Accepted::Fleet(fdhpa, fleet) = inputs::chosen(&documents, which, local, now)? else {
        return Err(Failure::invalid("a fleet is expected"));
    };
    let clusters = Clusters::read(&args.clusters)?;
    let former = args.after.as_deref().map(Previous::read).transpose()?;
    let at = moment(args.at, former.as_ref(), fleet.policy.period, now)?;
    let mut members = members(&fleet, &clusters, at)?;
    let ledger = match &former {
        Some(former) => former.applied(&mut members),
        None => Ledger::default(),
    };
    let total = clusters.total(&members, &fleet.policy, (&ledger, at));
    let named = (fdhpa.metadata.name.unwrap_or_default(), *fleet);
    let assignment = Assignment::make(named, members, total, (&ledger, at));
    Ok(match args.output {
        Output::Table => Answer::text(view::text(&assignment, screen)),
        Output::Json => Answer::json("Assignment", json(&assignment)),
    })
}

fn moment(
    at: Option<Timestamp>,
    former: Option<&Previous>,
    period: SignedDuration,
    now: Timestamp,
) -> Result<Timestamp, Failure> {
    let next = |former: &Previous| former.at.checked_add(period).unwrap_or(Timestamp::MAX);
    match (at, former) {
        (Some(at), Some(former)) if at < former.at => Err(Failure::usage(format!(
            "--at {at} is before the answer of --after, which is of {}",
            former.at
        ))),
        (Some(at), _) => Ok(at),
        (None, Some(former)) => Ok(next(former)),
        (None, None) => Ok(now),
    }
}

/// The utilization that the workload is held at, in percent, if a metric is of that kind.
fn utilization(fleet: &FleetSpec) -> Option<i64> {
    let targets = fleet.workload.metrics.iter().map(MetricSpec::target);
    let mut held = targets.filter_map(|target| match target {
        Target::Utilization(percent) => Some(i64::from(percent)),
        _ => None,
    });
    held.next()
}
