//! From what a kubeconfig said to a connection, over which nothing is sent yet.
//!
//! Every setting that the client library would take from elsewhere - files, commands, proxies, other identities - stays
//! at "none". TLS is rustls, and trusts the given authority only.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::config::AuthInfo;

use super::kubeconfig::{Access, Credentials};
use crate::adapters::api_server::{ConnectError, Connection, Redactor};

/// Prepares a connection.
///
/// # Errors
/// The certificates or keys are not what rustls takes.
pub(super) fn connect(access: &Access) -> Result<Connection, ConnectError> {
    // A URL that the parser took has no characters that a URI refuses; should it, its server cannot be reached.
    let server = access.server.as_str().parse().unwrap_or_default();
    let mut config = kube::Config::new(server);
    config.root_cert = Some(access.authority.clone());
    config.tls_server_name.clone_from(&access.tls_server_name);
    config.auth_info = match &access.credentials {
        Credentials::Token(token) => AuthInfo {
            token: Some(token.clone().into()),
            ..AuthInfo::default()
        },
        Credentials::Certificate { certificate, key } => AuthInfo {
            client_certificate_data: Some(STANDARD.encode(certificate)),
            client_key_data: Some(STANDARD.encode(key).into()),
            ..AuthInfo::default()
        },
    };
    Ok(Connection::new(config)?.with_redactor(hidden(&access.credentials)))
}

/// What must not be seen of it.
pub(super) fn hidden(credentials: &Credentials) -> Redactor {
    Redactor::new(match credentials {
        Credentials::Token(token) => vec![token.clone()],
        Credentials::Certificate { key, .. } => {
            vec![
                STANDARD.encode(key),
                String::from_utf8_lossy(key).into_owned(),
            ]
        }
    })
}
