//! The common part of the commands that run until SIGINT or SIGTERM.

use std::{error::Error, fmt::Display, future::Future, process::ExitCode, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit;
use foretide_base::{error::chain, open_files, telemetry};

/// The time for blocking threads to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The flags `--log` and `--log-json`.
pub(super) struct Logging {
    pub(super) filter: String,
    pub(super) is_json: bool,
}

/// Runs a service with its configuration until it ends by itself, which is a failure, or by a signal.
pub(super) fn run<C, I, F, E>(
    logging: &Logging,
    config: Result<C, I>,
    service: impl FnOnce(C) -> F,
) -> ExitCode
where
    I: Display,
    F: Future<Output = Result<(), E>>,
    E: Error,
{
    if let Err(error) = telemetry::start_logging(&logging.filter, logging.is_json) {
        return exit::usage(&chain(&error));
    }
    let config = match config {
        Ok(config) => config,
        Err(error) => return exit::usage(&error.to_string()),
    };
    open_files::raise_limit();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return exit::failed(&chain(&error)),
    };
    let outcome = runtime.block_on(service(config));
    // A thread may wait for a file that is never read to its end.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    match outcome {
        Ok(()) => exit::OK,
        Err(error) => exit::failed(&chain(&error)),
    }
}

/// Completes when the process is asked to end.
pub(super) async fn shutdown_signal() {
    // A signal that cannot be listened for is left out; the other one still ends the process.
    let mut interrupt = signal(SignalKind::interrupt()).ok();
    let mut terminate = signal(SignalKind::terminate()).ok();
    let on = async |signal: &mut Option<Signal>| match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    };
    tokio::select! {
        biased;
        () = on(&mut interrupt) => {}
        () = on(&mut terminate) => {}
    }
    tracing::info!("stopping");
}
