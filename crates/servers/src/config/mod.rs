//! Flags and environment of the servers, and the validated configurations that they become.

mod adapter;
mod keda_scaler;
mod server;

pub use self::{
    adapter::{AdapterArgs, AdapterConfig, AdapterConfigError},
    keda_scaler::{KedaScalerArgs, KedaScalerConfig, KedaScalerConfigError, KedaScalerTls},
    server::{MetricServerArgs, MetricServerConfig, MetricServerConfigError, ServiceConfig},
};

#[cfg(test)]
/// The arguments of a command line, without the environment; or the error message.
fn arguments<A: clap::Args>(line: &str) -> Result<A, String> {
    let command = A::augment_args(clap::Command::new("foretide"));
    let command = command.mut_args(|arg| arg.env(None::<&str>));
    let words = std::iter::once("foretide").chain(line.split_whitespace());
    let matches = command.try_get_matches_from(words);
    let args = matches.and_then(|matches| A::from_arg_matches(&matches));
    args.map_err(|error| error.to_string())
}
