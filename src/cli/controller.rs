//! `foretide controller`: runs the service until SIGINT or SIGTERM.

use std::{process::ExitCode, time::Duration};

use tokio::signal::unix::{SignalKind, signal};

use super::exit;
use crate::{
    app,
    clock::Clock,
    config::{Config, ControllerArgs, FileError},
    error::chain,
    telemetry,
};

/// How long threads that block may take to end.
pub(super) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the controller until it is stopped or fails.
pub(super) fn run(args: ControllerArgs) -> ExitCode {
    let args = match args.with_file() {
        Ok(args) => args,
        Err(FileError::Flags(error)) => error.exit(),
        Err(error) => return exit::usage(&chain(&error)),
    };
    if let Err(error) = telemetry::start_logging(&args.log, args.log_json) {
        return exit::usage(&chain(&error));
    }
    let config = match Config::try_from(args) {
        Ok(config) => config,
        Err(error) => return exit::usage(&error.to_string()),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return exit::failed(&chain(&error)),
    };
    let outcome = runtime.block_on(app::run(config, Clock::system(), shutdown_signal()));
    // A thread may wait for a file that is never read to its end.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    match outcome {
        Ok(()) => exit::OK,
        Err(error) => exit::failed(&chain(&error)),
    }
}

/// Completes when the process is asked to end.
pub(super) async fn shutdown_signal() {
    let mut interrupt = signal(SignalKind::interrupt()).ok();
    let mut terminate = signal(SignalKind::terminate()).ok();
    let on = async |signal: &mut Option<tokio::signal::unix::Signal>| match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    };
    tokio::select! {
        () = on(&mut interrupt) => {}
        () = on(&mut terminate) => {}
    }
    tracing::info!("stopping");
}
