//! HTTP clients of API servers.

use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Builder, connect::Connect},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
};
use tower::{BoxError, ServiceBuilder};

use foretide_base::machine::Machine;

/// A client with this configuration, and its timeouts.
///
/// # Errors
/// When the certificates or credentials of the configuration are malformed.
pub fn client(config: Config, machine: &Machine) -> kube::Result<Client> {
    if !machine.is_simulated() {
        return Client::try_from(config);
    }
    // Simulated connections stay in memory, so nothing is encrypted, whatever the scheme of an address is.
    let mut connector = TimeoutConnector::new(machine.connector(config.connect_timeout));
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    over(connector, &config, machine)
}

/// A client over a connector, with the address and the credentials of this configuration.
///
/// # Errors
/// When the credentials of the configuration are malformed.
pub fn over<C>(connector: C, config: &Config, machine: &Machine) -> kube::Result<Client>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let mut http = Builder::new(TokioExecutor::new());
    if machine.is_simulated() {
        // Without this timer, the age of idle connections is measured by the clock of the system.
        http.pool_timer(TokioTimer::new());
    }
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http.build::<_, Body>(connector));
    Ok(Client::new(service, config.default_namespace.clone()))
}
