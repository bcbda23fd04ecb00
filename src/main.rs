//! The `foretide` command: runs a subcommand and exits with its code.

use std::process::ExitCode;

use clap::Parser;
use foretide::cli;
use foretide_base::machine::Machine;

fn main() -> ExitCode {
    cli::run(cli::Cli::parse(), &Machine::system())
}
