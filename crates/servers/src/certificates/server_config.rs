//! The configuration of a TLS server: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, and the client certificates that it
//! accepts.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature,
        verify_tls13_signature,
    },
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime},
    server::{
        NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

/// Identity that a TLS server presents: its certificate, those that it is signed with, and its key.
#[derive(Debug)]
pub struct ServingPair {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// Client certificates that a handshake accepts.
#[derive(Debug, Clone, PartialEq)]
pub enum Clients {
    /// No certificate is asked for.
    None,
    /// Any certificate, or none.
    Any,
    /// A certificate of one of these authorities is required.
    SignedBy(Vec<CertificateDer<'static>>),
}

// === impl ServingPair ===

impl Clone for ServingPair {
    fn clone(&self) -> Self {
        Self {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
        }
    }
}

/// Reasons why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ServerConfigError {
    /// The certificate and the key cannot be used.
    #[error("expected a certificate and the key that belongs to it")]
    Pair(#[source] rustls::Error),
    /// The authorities of the clients cannot be used.
    #[error("expected at least one certificate of an authority of the clients")]
    Clients(#[source] VerifierBuilderError),
}

/// The configuration of a server with this certificate.
pub fn server_config(
    pair: ServingPair,
    clients: &Clients,
) -> Result<ServerConfig, ServerConfigError> {
    // Not the default of the process: where there is none, a builder that uses it may panic.
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(ServerConfigError::Pair)?;
    let builder = match clients {
        Clients::None => builder.with_no_client_auth(),
        Clients::Any => builder.with_client_cert_verifier(Arc::new(AnyClient::new(&provider))),
        Clients::SignedBy(authorities) => {
            let mut roots = RootCertStore::empty();
            // Without a usable one there is no verifier.
            roots.add_parsable_certificates(authorities.iter().cloned());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(ServerConfigError::Clients)?)
        }
    };
    let mut config = builder
        .with_single_cert(pair.chain, pair.key)
        .map_err(ServerConfigError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would skip the check of the client's certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Accepts any certificate whose key the client has. Whether an authority that counts has signed it is decided for each
/// request, because these authorities change while connections are open.
#[derive(Debug)]
struct AnyClient {
    algorithms: WebPkiSupportedAlgorithms,
}

// === impl AnyClient ===

impl AnyClient {
    fn new(provider: &CryptoProvider) -> Self {
        Self {
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
