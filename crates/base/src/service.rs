//! Skeleton of a process that runs until SIGINT or SIGTERM: flags, ports, parts, end.

use std::{
    collections::BTreeSet, error::Error, fmt::Display, future::Future, io, net::SocketAddr,
    process::ExitCode, time::Duration,
};

use clap::{Arg, ArgAction};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};

use crate::{error::chain, exit, machine::Machine, open_files, telemetry};

/// The time for blocking threads to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Flags of the log; each can be given as `FORETIDE_...` in the environment.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// Log filter, such as info or foretide=debug.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Write logs as JSON.
    #[arg(long, switch())]
    pub log_json: bool,
}

/// A flag that is off by default, on without a value, and set by `=true` or `=false`.
pub trait Switch {
    /// The flag as a switch.
    #[must_use]
    fn switch(self) -> Self;
}

impl Switch for Arg {
    fn switch(self) -> Self {
        self.action(ArgAction::Set)
            .value_name("BOOL")
            .num_args(0..=1)
            // Without this, the word after the flag would be taken for its value.
            .require_equals(true)
            .default_value("false")
            .default_missing_value("true")
            .hide_default_value(true)
            .hide_possible_values(true)
    }
}

/// A flag that the environment can give, too: `--sync-period` as `FORETIDE_SYNC_PERIOD`.
pub fn with_variable(arg: Arg) -> Arg {
    let Some(flag) = arg.get_long() else {
        return arg;
    };
    let variable = format!("FORETIDE_{}", flag.replace('-', "_").to_uppercase());
    arg.env(variable)
}

/// Names of a flag that can be repeated, each once, in order; empty ones, as an empty variable gives them, are left out.
pub fn distinct(names: Vec<String>) -> Vec<String> {
    let given = names.into_iter().filter(|name| !name.is_empty());
    given.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Parts of a process that run until it ends, by their names.
pub type Parts = JoinSet<&'static str>;

/// Runs a service with its configuration until it ends by itself, which is a failure, or by a signal.
pub fn run<C, I, F, E>(
    log: &LogArgs,
    config: Result<C, I>,
    service: impl FnOnce(C) -> F,
) -> ExitCode
where
    I: Display,
    F: Future<Output = Result<(), E>>,
    E: Error,
{
    if let Err(error) = telemetry::start_logging(&log.log, log.log_json) {
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

/// Opens a port, except on a simulated machine, which has none.
///
/// # Errors
/// The address cannot be listened on.
pub async fn listen(addr: SocketAddr, machine: &Machine) -> io::Result<Option<TcpListener>> {
    if machine.is_simulated() {
        return Ok(None);
    }
    TcpListener::bind(addr).await.map(Some)
}

/// Waits until as many of these parts have ended as are `left`, and counts them down.
pub async fn wait_for(names: &[&str], left: &mut usize, parts: &mut Parts) {
    while *left > 0
        && let Some(ended) = parts.join_next().await
    {
        if ended.is_ok_and(|ended| names.contains(&ended)) {
            *left -= 1;
        }
    }
}

/// Completes when the process is asked to end.
pub async fn shutdown_signal() {
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
