//! Reasons for which a configuration cannot be used.

use foretide_api::ports::ServerError;
use foretide_api::validation::{InvalidCostLimit, InvalidTargetKind};
use foretide_base::leadership::WRITE_TIME;

/// A flag with an invalid value, or values that cannot be used together.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// The rules of prometheus-adapter have two sources.
    #[error(
        "prometheusAdapterConfig and prometheusAdapterConfigmap exclude each other; give one of them"
    )]
    TwoAdapterConfigs,
    /// A kind of targets cannot be read.
    #[error("--allow-target-kinds: {0}")]
    TargetKind(InvalidTargetKind),
    /// A limit on the cost of forecasts cannot be read.
    #[error("--max-cost-percent: {0}")]
    CostLimit(InvalidCostLimit),
    /// A lease could expire while its holder may still write.
    #[error(
        "--leader-elect-lease-duration must be whole seconds and longer than --leader-elect-renew-deadline, \
         for example 15s and 10s"
    )]
    LeaseDuration,
    /// A leader would have no time to write, or to renew its lease again.
    #[error(
        "--leader-elect-renew-deadline must be longer than --leader-elect-retry-period by more than {WRITE_TIME:?}, the \
         time of one write, and longer than 1.2 times that period, for example 10s and 2s"
    )]
    RenewDeadline,
    /// The namespace of the lease is unknown.
    #[error(
        "--leader-elect outside a pod needs --leader-elect-namespace, for example foretide-system"
    )]
    LeaseNamespace,
    /// A section of the configuration file cannot be used.
    #[error("{field}: {message}")]
    Section {
        /// Path of the field, such as `prometheus.basicAuth`.
        field: String,
        /// Expected value.
        message: String,
    },
    /// A Prometheus server cannot be used.
    #[error("{origin}: {problem}")]
    Server {
        /// The field or the flag with the URL.
        origin: String,
        /// Problem of the server.
        problem: ServerError,
    },
    /// An endpoint has no name; it is not shown, because it may be a part of a URL with a password.
    #[error("--prometheus-endpoint expects NAME=http://HOST:PORT or NAME=https://HOST:PORT")]
    EndpointName,
    /// Two endpoints have one name.
    #[error("--prometheus-endpoint expects each name once, got {name} twice")]
    EndpointTwice {
        /// Name of both.
        name: String,
    },
}
