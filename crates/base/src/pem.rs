//! Certificates in PEM form.

use rustls::pki_types::{CertificateDer, pem::PemObject as _};

/// The certificates in a file's contents; absent if there is none, or if one of them is malformed.
pub fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .ok()?;
    (!certificates.is_empty()).then_some(certificates)
}
