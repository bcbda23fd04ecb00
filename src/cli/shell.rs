//! `foretide completions` and `foretide man`: scripts for shells and pages for `man`, from the definitions of the flags.

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use super::{
    Cli,
    output::{CommandOutput, Failure},
};

/// Arguments of `foretide completions`.
#[derive(Debug, Clone, clap::Args)]
pub struct CompletionsArgs {
    /// Shell that reads the script
    pub shell: Shell,
}

/// Arguments of `foretide man`.
#[derive(Debug, Clone, clap::Args)]
pub struct ManArgs {
    /// Command that the page is about, such as backtest or cron next [default: foretide itself]
    pub command: Vec<String>,
}

/// Runs `foretide completions`.
pub fn completions(args: &CompletionsArgs) -> CommandOutput {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "foretide", &mut script);
    CommandOutput::text(String::from_utf8_lossy(&script))
}

/// Runs `foretide man`.
///
/// # Errors
/// There is no such command.
pub fn man(args: &ManArgs) -> Result<CommandOutput, Failure> {
    let mut root = Cli::command();
    // Names the subcommands after their parents.
    root.build();
    let mut command = &root;
    for name in &args.command {
        command = command
            .find_subcommand(name)
            .ok_or_else(|| unknown(command, name))?;
    }
    let mut page = Vec::new();
    let version = format!("foretide {}", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command.clone())
        .source(version)
        .render(&mut page)
        .map_err(Failure::outside)?;
    Ok(CommandOutput::text(String::from_utf8_lossy(&page)))
}

fn unknown(parent: &Command, name: &str) -> Failure {
    let known: Vec<_> = parent.get_subcommands().map(Command::get_name).collect();
    let expected = match known.join(", ") {
        none if none.is_empty() => "it has no commands".to_owned(),
        known => format!("expected one of {known}"),
    };
    Failure::usage(format!(
        "{} has no command {name}; {expected}",
        parent.get_name()
    ))
}
