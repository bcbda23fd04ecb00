//! The `foretide` command: hands its arguments to the subcommand and its outcome to the shell.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    foretide::cli::run(foretide::cli::Cli::parse())
}
