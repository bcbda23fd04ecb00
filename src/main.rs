//! The `foretide` command: runs a subcommand and exits with its code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    foretide::cli::run(foretide::cli::Cli::parse())
}
