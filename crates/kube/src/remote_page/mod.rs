//! The page of a controller in a cluster, read with the rights of the person who runs `foretide ui`.
//!
//! ```text
//! RemotePage --GET, bearer token--> an address, or the pod that leads through the API server (`pods`)
//!      token: of the kubeconfig, or requested for a service account and the page alone     (`account`)
//! ```
//!
//! Only GET requests are sent to the page. What of an answer may be passed on is left to `http::page`.

mod account;
mod client;
mod pods;

use std::path::{Path, PathBuf};

use http::{HeaderMap, Response};
use hyper_util::{client::legacy::Builder, rt::TokioExecutor};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _, middleware::AuthLayer},
    config::AuthInfo,
};
use tower::{BoxError, ServiceBuilder};
use url::{Host, Url};

use self::{account::AccountTokens, client::PageClient, pods::ControllerPods};
use super::api_server::{ConnectError, Connection};
use foretide_base::{machine::Machine, opaque::Opaque, pem};

/// The page that is read, and the account that reads it.
#[derive(Debug, Clone)]
pub struct RemotePageSettings {
    /// The kubeconfig file; absent for `$KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// The context; absent for the current one.
    pub context: Option<String>,
    /// The location of the page.
    pub location: PageLocation,
    /// The service account that reads; absent for the user of the kubeconfig.
    pub account: Option<ServiceAccount>,
}

/// Location of the page of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageLocation {
    /// A page at an address.
    Address {
        /// The base URL.
        url: Url,
        /// The authorities of its certificate, in PEM; absent for those of this machine.
        ca_file: Option<PathBuf>,
    },
    /// A page in the pods of a controller.
    Pods {
        /// The namespace of the pods.
        namespace: String,
    },
}

/// A service account, as `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Reasons why a page cannot be read with these settings.
#[derive(Debug, thiserror::Error)]
pub enum RemotePageError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A token would be readable on its way.
    #[error(
        "{url}: expected https, because a token is sent there; http is for addresses of this machine only"
    )]
    Plaintext {
        /// The address.
        url: Url,
    },
    /// The file of authorities cannot be used.
    #[error("{path}: expected a file of certificates in PEM form", path = .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
    },
    /// The user of the kubeconfig has no token.
    #[error(
        "the user of the kubeconfig has no token: a client certificate is for the API server alone; read the page as a \
         service account, with --service-account NAMESPACE/NAME"
    )]
    NoToken,
    /// The user of the kubeconfig acts as another one.
    #[error(
        "the user of the kubeconfig impersonates another one, which the API server alone can do; read the page as a service \
         account, with --service-account NAMESPACE/NAME, or without impersonation"
    )]
    Impersonation,
    /// Credentials or addresses are malformed.
    #[error("invalid connection settings")]
    Client(#[source] Box<kube::Error>),
}

/// The page of a controller.
#[derive(Debug)]
pub struct RemotePage {
    client: PageClient,
    /// The pods; absent if the page is at an address.
    pods: Option<ControllerPods>,
}

// === impl RemotePage ===

impl RemotePage {
    /// True if the tokens that are sent are good for the page alone, and not for the API server.
    pub fn sends_page_tokens(&self) -> bool {
        self.client.tokens.is_some()
    }

    /// The page as these settings name it; nothing is sent yet, but a plugin of the kubeconfig may run.
    ///
    /// # Errors
    /// [`RemotePageError`].
    pub async fn open(
        settings: RemotePageSettings,
        machine: Machine,
    ) -> Result<Self, RemotePageError> {
        if let PageLocation::Address { url, .. } = &settings.location {
            expect_confidential(url)?;
        }
        let file = settings.kubeconfig.as_deref();
        let config = Connection::config(file, settings.context.as_deref()).await?;
        let connection = Connection::new(config.clone(), &machine)?;
        let tokens = settings
            .account
            .map(|account| AccountTokens::new(&connection, account, machine.clock().clone()));
        let token = match tokens {
            Some(_) => None,
            None => Some(token_of(&config)?),
        };
        let (client, pods) = match settings.location {
            PageLocation::Address { url, ca_file } => {
                (at_address(&url, ca_file.as_deref(), token)?, None)
            }
            PageLocation::Pods { namespace } => {
                let client = pods::client(config, namespace.clone(), token).map_err(malformed)?;
                let pods = ControllerPods::new(&connection, namespace, machine.clock().clone());
                (client, Some(pods))
            }
        };
        let client = Opaque(client);
        let client = PageClient { client, tokens };
        Ok(Self { client, pods })
    }

    /// Gets a path of the page.
    ///
    /// # Errors
    /// A sentence that says why there is no answer, and what to do.
    pub async fn get(&self, path: &str, headers: HeaderMap) -> Result<Response<Body>, String> {
        let Some(pods) = &self.pods else {
            return self.client.get(path, headers).await;
        };
        let pod = pods.current().await?;
        let answer = self.client.get(&format!("{pod}{path}"), headers).await;
        if answer.is_err() {
            // The pod may have ended, or another one leads.
            pods.forget(&pod).await;
        }
        answer
    }
}

/// The layer that sends the token of the kubeconfig's user. A client certificate, also one of a plugin, is never shown
/// to the controller, and the API server alone knows how to impersonate.
fn token_of(config: &Config) -> Result<AuthLayer, RemotePageError> {
    let user = &config.auth_info;
    if user.impersonate.is_some() || user.impersonate_groups.is_some() {
        return Err(RemotePageError::Impersonation);
    }
    let mut sent = Config::new(config.cluster_url.clone());
    sent.auth_info = AuthInfo {
        token: user.token.clone(),
        token_file: user.token_file.clone(),
        exec: user.exec.clone(),
        auth_provider: user.auth_provider.clone(),
        ..AuthInfo::default()
    };
    sent.auth_layer()
        .map_err(malformed)?
        .ok_or(RemotePageError::NoToken)
}

fn expect_confidential(url: &Url) -> Result<(), RemotePageError> {
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_this_machine(url) => Ok(()),
        _ => Err(RemotePageError::Plaintext { url: url.clone() }),
    }
}

/// A client that shows nothing but the token.
fn at_address(
    url: &Url,
    ca_file: Option<&Path>,
    token: Option<AuthLayer>,
) -> Result<Client, RemotePageError> {
    let parsed = url.as_str().parse();
    let uri =
        parsed.map_err(|error| malformed(kube::Error::HttpError(http::Error::from(error))))?;
    let mut config = Config::new(uri);
    config.root_cert = ca_file.map(authorities).transpose()?;
    let connector = config.rustls_https_connector().map_err(malformed)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(token)
        .map_err(BoxError::from)
        .service(Builder::new(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn authorities(path: &Path) -> Result<Vec<Vec<u8>>, RemotePageError> {
    let text = std::fs::read(path).unwrap_or_default();
    let found = pem::certificates(&text).ok_or_else(|| RemotePageError::Authorities {
        path: path.to_owned(),
    })?;
    Ok(found.iter().map(|der| der.to_vec()).collect())
}

fn malformed(error: kube::Error) -> RemotePageError {
    RemotePageError::Client(Box::new(error))
}
