//! The command line: one file per subcommand, exit codes in one place.

mod controller;
mod exit;

use std::process::ExitCode;

/// Prediction- and cron-augmented autoscaling for Kubernetes.
#[derive(Debug, clap::Parser)]
#[command(name = "foretide", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the controller.
    Controller(Box<crate::config::ControllerArgs>),
}

/// Runs one command line.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Controller(args) => controller::run(*args),
    }
}
