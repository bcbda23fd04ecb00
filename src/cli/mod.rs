//! The command line: one file per subcommand, exit codes in one place.
//!
//! Every command but `controller` and `ui` is a function from its arguments and a [`CommandContext`] to a
//! [`CommandOutput`]; [`run`] detects the context and prints the output.

mod assign;
pub mod backtest;
mod cluster;
mod context;
mod controller;
mod convert;
mod cron;
mod decision;
pub mod demo;
pub mod explain;
mod files;
mod forecast;
mod history;
mod inputs;
mod members;
mod output;
mod plan;
mod plot;
mod progress;
mod recording;
mod report;
mod shell;
mod ui;
mod validate;
pub mod web;

use std::process::ExitCode;

use self::context::Progress;
pub use self::{
    context::CommandContext,
    output::{API_VERSION, CommandOutput, Failure, Paint, Screen, Size},
};
use crate::config;
pub use foretide_base::exit::Exit;
use foretide_base::{exit, machine::Machine};

/// Prediction- and cron-augmented autoscaling for Kubernetes.
#[derive(Debug, clap::Parser)]
#[command(name = "foretide", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Play an example that Foretide and a plain HPA scale side by side; takes half a minute, needs no cluster
    Demo(demo::DemoArgs),
    /// Run the controller
    Controller(Box<config::ControllerArgs>),
    /// Make one scaling decision offline, from a manifest and a recorded history
    Plan(plan::PlanArgs),
    /// Replay the controller's decisions over a recorded history, and score them
    Backtest(backtest::BacktestArgs),
    /// Draw one series and its forecast, from Prometheus or from a recorded history
    Forecast(forecast::ForecastArgs),
    /// Write the autoscaler that does what an HPA or a scaled object of KEDA does, with a forecast, in Preview
    Convert(convert::ConvertArgs),
    /// Show how a fleet is divided over clusters, offline
    Assign(assign::AssignArgs),
    /// Explain why an autoscaler in a cluster has its number of replicas
    Explain(explain::ExplainArgs),
    /// Validate manifests without a cluster
    Validate(validate::ValidateArgs),
    /// Print the next times of cron windows
    Cron(cron::CronArgs),
    /// Open the page of a cluster's controller on this machine, with your rights
    Ui(Box<ui::UiArgs>),
    /// Add, list and check the member clusters of fleets
    Members(members::MembersArgs),
    /// Print the custom resource definitions
    Crds,
    /// Print the script with which a shell completes commands and flags
    Completions(shell::CompletionsArgs),
    /// Print a page for man
    Man(shell::ManArgs),
}

/// Runs one command line on a machine.
pub fn run(cli: Cli, machine: &Machine) -> ExitCode {
    match cli.command {
        Command::Controller(args) => controller::run(*args, machine),
        Command::Ui(args) => {
            let context = CommandContext::detect(machine);
            output::print(ui::run(*args, &context), context.screen)
        }
        Command::Explain(args) if args.watch => {
            let context = CommandContext::detect(machine);
            match explain::watch(&args, &context) {
                Ok(()) => exit::OK,
                Err(failure) => output::print(Err(failure), context.screen),
            }
        }
        _ => {
            let context = CommandContext::detect(machine);
            let outcome =
                progress::with_progress(|progress| execute_with(&cli, &context, progress));
            output::print(outcome, context.screen)
        }
    }
}

/// Executes a command line other than `controller` and `ui`.
///
/// # Errors
/// The command fails, or is one of those two.
pub fn execute(cli: &Cli, context: &CommandContext) -> Result<CommandOutput, Failure> {
    execute_with(cli, context, &mut |_| {})
}

fn execute_with(
    cli: &Cli,
    context: &CommandContext,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CommandOutput, Failure> {
    match &cli.command {
        Command::Controller(_) | Command::Ui(_) => {
            Err(Failure::usage("this command runs until it is stopped"))
        }
        Command::Plan(args) => plan::run(args, context, progress),
        Command::Demo(args) => demo::run(args, context),
        Command::Backtest(args) => backtest::run(args, context, progress),
        Command::Forecast(args) => forecast::run(args, context, progress),
        Command::Convert(args) => convert::run(args, context),
        Command::Assign(args) => assign::run(args, context),
        Command::Explain(args) => explain::run(args, context),
        Command::Validate(args) => validate::run(args, context),
        Command::Cron(args) => cron::run(args, context),
        Command::Members(args) => members::run(args, context),
        Command::Crds => Ok(CommandOutput::text(crds())),
        Command::Completions(args) => Ok(shell::completions(args)),
        Command::Man(args) => shell::man(args),
    }
}

/// All definitions as one stream of YAML documents.
fn crds() -> String {
    let manifests = foretide_crds::manifests().into_iter();
    manifests.flat_map(|(_, yaml)| ["---\n", yaml]).collect()
}
