//! Builds the client of a member from its kubeconfig; nothing is sent.
//!
//! Every setting that the client library would take from elsewhere (files, commands, proxies, impersonation) stays
//! unset. TLS is rustls and trusts the given certificate authority only.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::config::AuthInfo;

use super::kubeconfig::{Access, Credentials};
use crate::api_server::{ConnectError, Connection};
use foretide_base::{machine::Machine, redact::Redactor};

/// Prepares a connection.
///
/// # Errors
/// rustls does not accept the certificates or keys.
pub fn connect(access: &Access, machine: &Machine) -> Result<Connection, ConnectError> {
    // A parsed URL has only characters that a URI accepts; otherwise the default URI makes every request fail.
    let server = access.server.as_str().parse().unwrap_or_default();
    let mut config = kube::Config::new(server);
    config.root_cert = Some(access.certificate_authority.clone());
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
    Ok(Connection::new(config, machine)?.with_redactor(secrets_of(&access.credentials)))
}

/// The redactor of these credentials.
pub fn secrets_of(credentials: &Credentials) -> Redactor {
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
