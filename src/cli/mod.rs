//! The command line: one file per subcommand, exit codes in one place.
//!
//! Every command but `controller` is a function from its arguments, the screen, a zone and an instant
//! to an [`Answer`]; [`run`] reads clock and environment, and prints.

pub mod assign;
pub mod backtest;
mod controller;
pub mod cron;
mod cron_table;
mod csv;
mod decision;
pub mod demo;
mod exit;
pub mod explain;
pub mod inputs;
mod manifest;
pub mod members;
mod output;
pub mod plan;
mod plot;
mod template;
mod terminal;
pub mod validate;

use std::io::IsTerminal;
use std::process::ExitCode;

use jiff::Timestamp;

pub use self::{
    exit::Exit,
    output::{API_VERSION, Answer, Failure, Paint, Screen, Side},
};
use crate::{clock::Clock, config, domain::cron::Zone};

/// Prediction- and cron-augmented autoscaling for Kubernetes.
#[derive(Debug, clap::Parser)]
#[command(name = "foretide", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Watch it scale an example beside a plain HPA, in half a minute and without a cluster
    Demo(demo::DemoArgs),
    /// Run the controller
    Controller(Box<config::ControllerArgs>),
    /// Decide once, offline, from a manifest and a recorded history
    Plan(plan::PlanArgs),
    /// Run the controller's decisions over a recorded history, and count what would have come of it
    Backtest(backtest::BacktestArgs),
    /// Divide a fleet over clusters, step by step and offline
    Assign(assign::AssignArgs),
    /// Say why an autoscaler in a cluster has its number of replicas
    Explain(explain::ExplainArgs),
    /// Check manifests, without a cluster
    Validate(validate::ValidateArgs),
    /// Look at cron windows: when they open, and what is odd about them
    Cron(cron::CronArgs),
    /// Enrol, list and check the member clusters of fleets
    Members(members::MembersArgs),
    /// Print the custom resource definitions
    Crds,
}

/// What a command is told about the world.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// What the terminal can show.
    pub screen: Screen,
    /// What `timezone: Local` means.
    pub local: Zone,
    /// The present.
    pub now: Timestamp,
}

/// Runs one command line.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Controller(args) => controller::run(*args),
        Command::Demo(args) if !args.no_animation && std::io::stdout().is_terminal() => {
            terminal::play(&args, &surroundings())
        }
        Command::Backtest(args) => terminal::backtest(&args, &surroundings()),
        _ => output::print(answer(&cli, &surroundings())),
    }
}

/// Answers one command line that is not `controller`.
///
/// # Errors
/// What the command was asked for cannot be done; `controller` always.
pub fn answer(cli: &Cli, around: &Surroundings) -> Result<Answer, Failure> {
    let Surroundings { screen, local, now } = around;
    match &cli.command {
        Command::Controller(_) => Err(Failure::usage("the controller does not end with an answer")),
        Command::Plan(args) => plan::run(args, *screen, local, *now),
        Command::Demo(args) => demo::run(args, *screen, (local, *now)),
        Command::Backtest(args) => backtest::run(args, *screen, (local, *now), &mut |_| {}),
        Command::Assign(args) => assign::run(args, *screen, local, *now),
        Command::Explain(args) => explain::run(args, *screen, local),
        Command::Validate(args) => validate::run(args, *screen, local, *now),
        Command::Cron(args) => cron_table::run(args, *screen, local, *now),
        Command::Members(args) => members::run(args, *screen),
        Command::Crds => Ok(Answer::text(crds())),
    }
}

fn surroundings() -> Surroundings {
    let environment = config::terminal_environment();
    let colour = std::io::stdout().is_terminal() && !environment.plain;
    Surroundings {
        screen: Screen {
            colour,
            unicode: environment.utf8,
        },
        local: config::system_zone(),
        now: Clock::system().now(),
    }
}

/// All definitions as one stream of YAML documents.
fn crds() -> String {
    let manifests = foretide_crds::manifests().into_iter();
    manifests.flat_map(|(_, yaml)| ["---\n", yaml]).collect()
}
