//! Where the certificate of a server comes from, which clients it accepts, and how long certificates are valid.

use std::path::PathBuf;

use jiff::SignedDuration;

use super::CertificateFiles;

/// The origin of the certificate of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// An authority of our own, which all replicas share by a Secret. Each replica signs its own certificate.
    SelfManaged(SelfManaged),
    /// Files, which are read again every minute.
    Files(CertificateFiles),
}

/// An authority of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfManaged {
    /// The namespace of the Secret and of the service.
    pub namespace: String,
    /// The Secret that holds the authority. It exists, and is empty at first.
    pub secret: String,
    /// The service by whose DNS names the clients reach the server.
    pub service: String,
    /// The lifetimes of the certificates.
    pub lifetimes: CertificateLifetimes,
}

/// The time for which the certificates of [`SelfManaged`] are valid. The last third of a validity is for its renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateLifetimes {
    /// The validity of the authority.
    pub authority: SignedDuration,
    /// The time for which a new authority is in the bundle before it signs: the time that every client has to read the bundle.
    pub overlap: SignedDuration,
    /// The validity of the certificate of a replica.
    pub serving: SignedDuration,
    /// The period in which the Secret and the registrations are read.
    pub period: SignedDuration,
}

/// The client certificates that a server accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None: no client is asked for one.
    None,
    /// Any or none: the handler of a request decides what a certificate is worth.
    Any,
    /// One that is signed by an authority of this file in PEM is required. The file is read again every minute.
    SignedBy(PathBuf),
}

// === impl CertificateLifetimes ===

impl CertificateLifetimes {
    /// For clients that get the bundle from us, in the field `caBundle` of an `APIService`.
    pub const PUBLISHED: Self = Self {
        authority: SignedDuration::from_hours(365 * 24),
        overlap: SignedDuration::from_hours(1),
        serving: SignedDuration::from_hours(7 * 24),
        period: SignedDuration::from_secs(30),
    };

    /// For clients for whom people copy the bundle.
    pub const COPIED: Self = Self {
        overlap: SignedDuration::from_hours(60 * 24),
        ..Self::PUBLISHED
    };
}
