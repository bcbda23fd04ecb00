//! `foretide adapter`: serves the metric APIs until SIGINT or SIGTERM.

use std::process::ExitCode;

use super::service::{self, Logging, shutdown_signal};
use crate::{
    app,
    config::{AdapterArgs, AdapterConfig},
};
use foretide_base::machine::Machine;

/// Runs the metric adapter until it is stopped or fails.
pub(super) fn run(args: AdapterArgs, machine: &Machine) -> ExitCode {
    let logging = Logging {
        filter: args.server.log.clone(),
        is_json: args.server.log_json,
    };
    service::run(&logging, AdapterConfig::try_from(args), |config| {
        app::adapter::run(config, machine.clone(), shutdown_signal())
    })
}
