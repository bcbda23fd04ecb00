//! `foretide keda-scaler`: answers KEDA until SIGINT or SIGTERM.

use std::process::ExitCode;

use super::{
    controller::{SHUTDOWN_TIMEOUT, shutdown_signal},
    exit,
};
use crate::{
    app,
    clock::Clock,
    config::{KedaScalerArgs, KedaScalerConfig},
    error::chain,
    telemetry,
};

/// Runs the KEDA scaler until it is stopped or fails.
pub(super) fn run(args: KedaScalerArgs) -> ExitCode {
    if let Err(error) = telemetry::start_logging(&args.log, args.log_json) {
        return exit::usage(&chain(&error));
    }
    let config = match KedaScalerConfig::try_from(args) {
        Ok(config) => config,
        Err(error) => return exit::usage(&error.to_string()),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return exit::failed(&chain(&error)),
    };
    let run = app::keda_scaler::run(config, Clock::system(), shutdown_signal());
    let outcome = runtime.block_on(run);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    match outcome {
        Ok(()) => exit::OK,
        Err(error) => exit::failed(&chain(&error)),
    }
}
