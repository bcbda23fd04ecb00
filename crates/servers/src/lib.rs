//! The optional metric servers, each a process of its own: they decide nothing, and answer from the statuses of
//! autoscalers.
//!
//! | module | owns |
//! |---|---|
//! | [`adapter`] | `foretide-servers adapter`: composition of the metric adapter |
//! | [`metrics_api`], `identity` | its routes, and the authentication and authorization of their clients |
//! | [`keda_scaler`] | `foretide-servers keda-scaler`: composition of the scaler |
//! | [`keda`] | the external scaler of KEDA, over gRPC |
//! | [`certificates`] | certificates of both, and the authority that replicas share |
//! | [`config`] | flags and environment |
//!
//! The crate stands on `foretide-base` and `foretide-kube`, and knows no Prometheus, no forecaster and no controller.
//!
//! ```
//! use clap::Parser as _;
//! use foretide_servers::Cli;
//!
//! let unknown = Cli::try_parse_from(["foretide-servers", "adapter", "--apis", "resource"]);
//! assert!(unknown.unwrap_err().to_string().contains("external, custom"));
//! ```

pub mod adapter;
pub mod certificates;
pub mod config;
mod failure;
mod identity;
pub mod keda;
pub mod keda_scaler;
pub mod metrics_api;
pub mod server;

use std::process::ExitCode;

use foretide_base::{
    machine::Machine,
    service::{self, shutdown_signal},
};

use self::config::{AdapterArgs, AdapterConfig, KedaScalerArgs, KedaScalerConfig};

/// Optional metric servers of Foretide.
#[derive(Debug, clap::Parser)]
#[command(name = "foretide-servers", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Serve the forecasts and cron windows of autoscalers as Kubernetes metrics APIs
    Adapter(Box<AdapterArgs>),
    /// Serve floors, forecasts and cron windows of autoscalers to KEDA, as an external scaler
    KedaScaler(Box<KedaScalerArgs>),
}

impl Cli {
    /// Runs the server on a machine until it is stopped or fails.
    pub fn run(self, machine: &Machine) -> ExitCode {
        match self.command {
            Command::Adapter(args) => {
                let log = args.server.log.clone();
                service::run(&log, AdapterConfig::try_from(*args), |config| {
                    adapter::run(config, machine.clone(), shutdown_signal())
                })
            }
            Command::KedaScaler(args) => {
                let log = args.server.log.clone();
                service::run(&log, KedaScalerConfig::try_from(*args), |config| {
                    keda_scaler::run(config, machine.clone(), shutdown_signal())
                })
            }
        }
    }
}
