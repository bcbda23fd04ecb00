//! Certificates and keys in files, which others write and renew.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use super::server_config::ServingPair;
use foretide_api::ports::CertificateFiles;
use foretide_base::pem;

/// Reasons why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file has no certificate.
    #[error("expected a certificate in PEM in {}", .0.display())]
    NoCertificate(PathBuf),
    /// The file has no key.
    #[error("expected a private key in PEM in {}", .0.display())]
    NoKey(PathBuf),
}

/// The certificate, with those that it is signed with, and the key in these files.
pub async fn serving_pair(files: &CertificateFiles) -> Result<ServingPair, FileError> {
    let key = read(&files.key).await?;
    let key = PrivateKeyDer::from_pem_slice(&key);
    Ok(ServingPair {
        chain: certificates(&files.certificate).await?,
        key: key.map_err(|_| FileError::NoKey(files.key.clone()))?,
    })
}

/// The certificates in a file.
pub async fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let bytes = read(file).await?;
    pem::certificates(&bytes).ok_or_else(|| FileError::NoCertificate(file.to_owned()))
}

async fn read(file: &Path) -> Result<Vec<u8>, FileError> {
    tokio::fs::read(file)
        .await
        .map_err(|error| FileError::Read(file.to_owned(), error))
}
