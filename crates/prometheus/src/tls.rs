//! TLS with a Prometheus server: trusted certificate authorities, the certificate of the client, and errors in words.
//!
//! Certificates are always verified; no setting switches that off. With a file of certificate authorities only those in
//! it are trusted, otherwise those of the system.

use std::{error::Error, io, iter, path::Path, sync::Arc};

use jiff::Timestamp;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use x509_parser::parse_x509_certificate;

use super::credentials::{CredentialError, Credentials, Pem};
use foretide_api::ports::{CredentialExpiry, CredentialFiles};
use foretide_base::pem;

/// The TLS settings for these credentials; `encrypted` says whether they are needed at all.
///
/// # Errors
/// A file that holds no certificate or key, a pair that does not belong together, or no authority to trust.
pub fn client_config(
    encrypted: bool,
    credentials: &Credentials,
) -> Result<ClientConfig, CredentialError> {
    // Plain http needs no authority, so it works on a system that has none.
    let roots = match &credentials.ca {
        _ if !encrypted => RootCertStore::empty(),
        Some(ca) => roots_in(ca)?,
        None => system_roots()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| CredentialError::Setup(Box::new(error)))?
        .with_root_certificates(roots);
    match &credentials.client_certificate {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(CredentialError::Pair),
    }
}

fn roots_in(ca: &Pem) -> Result<RootCertStore, CredentialError> {
    let mut roots = RootCertStore::empty();
    // A bundle may hold old certificates that rustls does not accept beside the one that is needed.
    let (added, _unusable) = roots.add_parsable_certificates(certificates(ca)?);
    if added == 0 {
        return Err(CredentialError::NoCertificate(ca.path.clone()));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, CredentialError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(CredentialError::NoRoots);
    }
    Ok(roots)
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    pem::certificates(&pem.bytes).ok_or_else(|| CredentialError::NoCertificate(pem.path.clone()))
}

fn private_key(pem: &Pem) -> Result<PrivateKeyDer<'static>, CredentialError> {
    PrivateKeyDer::from_pem_slice(&pem.bytes).map_err(|_| CredentialError::NoKey(pem.path.clone()))
}

/// Expiries of the client's certificate and of the authority, if there are any. A bundle of authorities has none: it is
/// not known which one signed the server's certificate.
pub fn expiries(credentials: &Credentials) -> impl Iterator<Item = CredentialExpiry> {
    let mut expiries = Vec::new();
    if let Some((pem, _)) = &credentials.client_certificate
        // The first of a chain is the client's own.
        && let Ok([own, ..]) = certificates(pem).as_deref()
    {
        expiries.extend(certificate_expiry("client certificate", own));
    }
    if let Some(ca) = &credentials.ca
        && let Ok([authority]) = certificates(ca).as_deref()
    {
        expiries.extend(certificate_expiry("certificate authority", authority));
    }
    expiries.into_iter()
}

/// Expiry of a certificate.
pub fn certificate_expiry(credential: &'static str, der: &[u8]) -> Option<CredentialExpiry> {
    let (_, certificate) = parse_x509_certificate(der).ok()?;
    let validity = certificate.validity();
    Some(CredentialExpiry {
        credential,
        valid_from: Timestamp::from_second(validity.not_before.timestamp()).ok(),
        expires: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
    })
}

/// Text for an error of TLS, such as a certificate that is not trusted; none for other errors.
pub fn tls_error_message(error: &(dyn Error + 'static), files: &CredentialFiles) -> Option<String> {
    let error = tls_error(error)?;
    Some(match error {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".to_owned()
            }
            // Another authority of the same name gives a bad signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => match &files.ca {
                Some(ca) => format!(
                    "its certificate is not signed by an authority in {}",
                    ca.display()
                ),
                None => "its certificate is not signed by an authority that this system trusts; name a file with its \
                         authority as tls.caFile in the configuration"
                    .to_owned(),
            },
            other => format!("its certificate cannot be trusted: {other}"),
        },
        rustls::Error::AlertReceived(alert) => {
            let sent = files.client_certificate.as_ref();
            refused(*alert, sent.map(|pair| pair.certificate.as_path()))
        }
        rustls::Error::InvalidMessage(_) => {
            "its answer is not TLS; if it serves plain http, the URL begins with http://".to_owned()
        }
        other => other.to_string(),
    })
}

/// Meaning of an alert of the server about the certificate of the client.
fn refused(alert: AlertDescription, sent: Option<&Path>) -> String {
    let Some(sent) = sent else {
        return match alert {
            AlertDescription::CertificateRequired | AlertDescription::BadCertificate => {
                "it asks for the certificate of the client; name it as tls.certFile and its key as tls.keyFile in the \
                 configuration"
                    .to_owned()
            }
            other => format!("it ended the handshake: {other:?}"),
        };
    };
    let why = match alert {
        AlertDescription::CertificateExpired => "has expired".to_owned(),
        AlertDescription::UnknownCA => "is not signed by an authority that it trusts".to_owned(),
        other => format!("is refused: {other:?}"),
    };
    format!("the certificate of the client in {} {why}", sent.display())
}

/// The error of rustls in a chain; the HTTP client wraps it in errors of input and output.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    iter::successors(Some(error), |&error| error.source()).find_map(|error| {
        let wrapped = || tls_error(error.downcast_ref::<io::Error>()?.get_ref()?);
        error.downcast_ref().or_else(wrapped)
    })
}
