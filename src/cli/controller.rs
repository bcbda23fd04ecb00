//! `foretide controller`: runs the service until SIGINT or SIGTERM.

use std::process::ExitCode;

use super::{
    exit,
    service::{self, Logging, shutdown_signal},
};
use crate::{
    app,
    config::{Config, ControllerArgs, FileError},
};
use foretide_base::{error::chain, machine::Machine};

/// Runs the controller until it is stopped or fails.
pub(super) fn run(args: ControllerArgs, machine: &Machine) -> ExitCode {
    let args = match args.with_file() {
        Ok(args) => args,
        Err(FileError::Flags(error)) => error.exit(),
        Err(error) => return exit::usage(&chain(&error)),
    };
    let logging = Logging {
        filter: args.log.clone(),
        is_json: args.log_json,
    };
    service::run(&logging, Config::try_from(args), |config| {
        app::run(config, machine.clone(), shutdown_signal())
    })
}
