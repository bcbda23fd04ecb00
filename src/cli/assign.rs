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
pub(super) mod clusters;
mod data;
mod previous;
mod view;

use std::path::PathBuf;

use foretide_domain::hpa::{MetricSpec, Target};
use foretide_federate::{
    EffectivePreference, FleetDecision, Ledger, Member, Policy, Profile, Total,
};
use jiff::{SignedDuration, Timestamp};

use self::{clusters::Clusters, previous::Previous};
use super::{
    context::{CommandContext, parse_time},
    inputs::{self, AutoscalerKind},
    output::{CommandOutput, Failure, OutputFormat},
    validate::Accepted,
};
use foretide_api::validation::FleetSpec;

pub(super) use self::{data::json, view::division};

/// Arguments of `foretide assign`.
#[expect(
    clippy::doc_markdown,
    reason = "the help shows the doc comments as they are"
)]
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

/// A `FederatedHPA` with its validated spec.
#[derive(Debug)]
pub(super) struct NamedFleet {
    pub(super) name: String,
    pub(super) spec: FleetSpec,
}

/// A divided fleet and its inputs.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) fleet: NamedFleet,
    pub(super) members: Vec<Member>,
    pub(super) total: Total,
    pub(super) decision: FleetDecision,
    pub(super) ledger: Ledger,
}

// === impl Assignment ===

impl Assignment {
    /// Divides a fleet, continuing from a ledger.
    fn make(
        fleet: NamedFleet,
        members: Vec<Member>,
        total: Total,
        ledger: &Ledger,
        at: Timestamp,
    ) -> Self {
        let (decision, ledger) =
            foretide_federate::decide(&fleet.spec.policy, &total, &members, ledger, at);
        Self {
            fleet,
            members,
            total,
            decision,
            ledger,
        }
    }

    /// Assignment policy of the fleet.
    pub(super) fn policy(&self) -> &Policy {
        &self.fleet.spec.policy
    }

    /// Preference of the policy for a cluster; `None` if it gets no share.
    fn preference_of(&self, cluster: &Profile) -> Option<EffectivePreference> {
        self.policy().effective_preference(cluster)
    }

    /// Divides for the first time.
    pub(super) fn first(
        fleet: NamedFleet,
        members: Vec<Member>,
        total: Total,
        at: Timestamp,
    ) -> Self {
        Self::make(fleet, members, total, &Ledger::default(), at)
    }
}

/// The members that a clusters file describes, as observed at `at`.
///
/// # Errors
/// A cluster has a utilization, but no metric has a utilization target.
pub(super) fn members(
    fleet: &FleetSpec,
    clusters: &Clusters,
    at: Timestamp,
) -> Result<Vec<Member>, Failure> {
    clusters.members(utilization(fleet), at)
}

/// Runs `foretide assign`.
///
/// # Errors
/// A file cannot be read or used.
pub(super) fn run(args: &AssignArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let documents = inputs::documents(&args.files)?;
    let name = args.name.as_deref();
    let chosen = inputs::chosen(&documents, AutoscalerKind::Fdhpa, name, context)?;
    let Accepted::Fdhpa(fdhpa, fleet) = chosen else {
        return Err(Failure::invalid("expected a FederatedHPA"));
    };
    let clusters = Clusters::read(&args.clusters)?;
    let previous = args.after.as_deref().map(Previous::read).transpose()?;
    let at = moment(args.at, previous.as_ref(), fleet.policy.period, context.now)?;
    let mut members = members(&fleet, &clusters, at)?;
    let ledger = match &previous {
        Some(previous) => previous.applied(&mut members),
        None => Ledger::default(),
    };
    let total = clusters.total(&members, &fleet.policy, &ledger, at);
    let fleet = NamedFleet {
        name: fdhpa.metadata.name.unwrap_or_default(),
        spec: *fleet,
    };
    let assignment = Assignment::make(fleet, members, total, &ledger, at);
    Ok(match args.output {
        OutputFormat::Table => CommandOutput::text(view::text(&assignment, context.screen)),
        OutputFormat::Json => CommandOutput::json("Assignment", json(&assignment)),
    })
}

fn moment(
    at: Option<Timestamp>,
    previous: Option<&Previous>,
    period: SignedDuration,
    now: Timestamp,
) -> Result<Timestamp, Failure> {
    let next = |previous: &Previous| previous.at.checked_add(period).unwrap_or(Timestamp::MAX);
    match (at, previous) {
        (Some(at), Some(previous)) if at < previous.at => Err(Failure::usage(format!(
            "--at {at} is before the time of --after, {}",
            previous.at
        ))),
        (Some(at), _) => Ok(at),
        (None, Some(previous)) => Ok(next(previous)),
        (None, None) => Ok(now),
    }
}

/// The utilization target in percent, if a metric has one.
fn utilization(fleet: &FleetSpec) -> Option<i64> {
    let targets = fleet.workload.metrics.iter().map(MetricSpec::target);
    let mut held = targets.filter_map(|target| match target {
        Target::Utilization(percent) => Some(i64::from(percent)),
        _ => None,
    });
    held.next()
}
