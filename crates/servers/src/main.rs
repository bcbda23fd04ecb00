//! The `foretide-servers` command: runs one of the optional metric servers and exits with its code.

use std::process::ExitCode;

use clap::Parser;
use foretide_base::machine::Machine;
use foretide_servers::Cli;

fn main() -> ExitCode {
    Cli::parse().run(&Machine::system())
}
