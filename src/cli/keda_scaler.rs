//! `foretide keda-scaler`: answers KEDA until SIGINT or SIGTERM.

use std::process::ExitCode;

use super::service::{self, Logging, shutdown_signal};
use crate::{
    app,
    config::{KedaScalerArgs, KedaScalerConfig},
};
use foretide_base::machine::Machine;

/// Runs the KEDA scaler until it is stopped or fails.
pub(super) fn run(args: KedaScalerArgs, machine: &Machine) -> ExitCode {
    let logging = Logging {
        filter: args.server.log.clone(),
        is_json: args.server.log_json,
    };
    service::run(&logging, KedaScalerConfig::try_from(args), |config| {
        app::keda_scaler::run(config, machine.clone(), shutdown_signal())
    })
}
