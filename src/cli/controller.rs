//! `foretide controller`: runs the service until SIGINT or SIGTERM.

use std::{process::ExitCode, sync::Arc};

use crate::{
    app,
    config::{Config, ControllerArgs, FileError},
};
use foretide_base::{
    error::chain,
    exit,
    machine::Machine,
    service::{self, shutdown_signal},
};

/// Runs the controller until it is stopped or fails.
pub fn run(args: ControllerArgs, machine: &Machine) -> ExitCode {
    let args = match args.with_file() {
        Ok(args) => args,
        Err(FileError::Flags(error)) => error.exit(),
        Err(error) => return exit::usage(&chain(&error)),
    };
    let log = args.log.clone();
    service::run(&log, Config::try_from(args), |config| {
        app::run(config, machine.clone(), Arc::default(), shutdown_signal())
    })
}
