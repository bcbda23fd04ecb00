//! A certificate authority of our own, and the certificates that it signs.
//!
//! Keys are ECDSA P-256. A key is neither logged nor part of any message.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use x509_parser::parse_x509_certificate;

use super::server_config::ServingPair;

/// Time before its creation from which a certificate is valid: the clocks of its clients may be behind.
pub const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// The period in which a certificate is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The time of creation; the certificate is valid from an hour earlier on.
    pub from: Timestamp,
    pub until: Timestamp,
}

/// The certificate of an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityCertificate {
    pub pem: String,
    pub validity: Validity,
}

/// A certificate authority that signs.
#[derive(Debug)]
pub struct Authority {
    pub certificate: AuthorityCertificate,
    issuer: Issuer<'static, KeyPair>,
}

/// Reasons why there is no authority, or no certificate of it.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The authority cannot sign any more.
    #[error(
        "the certificate authority ended at {0}; another one is made when the Secret can be read and written"
    )]
    Ended(Timestamp),
    /// A certificate cannot be made.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    /// Text that should be a certificate is none.
    #[error("expected a certificate in PEM")]
    Certificate,
    /// Text that should be a key is none, or one of another certificate.
    #[error("expected the key of the certificate in PEM")]
    Key,
}

// === impl Validity ===

impl Validity {
    /// A period that starts now.
    pub fn starting(now: Timestamp, lasts: SignedDuration) -> Self {
        Self {
            from: now,
            until: now.saturating_add(lasts).unwrap_or(Timestamp::MAX),
        }
    }

    pub fn has_ended(&self, now: Timestamp) -> bool {
        now >= self.until
    }

    /// True if the last third has begun.
    pub fn is_in_last_third(&self, now: Timestamp) -> bool {
        let whole = self.until.duration_since(self.from);
        now.duration_since(self.from) >= whole / 3 * 2
    }

    fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = parse_x509_certificate(der).ok()?;
        let validity = certificate.validity();
        let from = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
        Some(Self {
            from: from.saturating_add(BACKDATED).ok()?,
            until: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
        })
    }

    fn set(&self, params: &mut CertificateParams) {
        let from = self.from.saturating_sub(BACKDATED).unwrap_or(self.from);
        params.not_before = SystemTime::from(from).into();
        params.not_after = SystemTime::from(self.until).into();
    }
}

// === impl AuthorityCertificate ===

impl AuthorityCertificate {
    fn parse(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        Some(Self {
            // One form for all, because certificates are compared as text and a bundle is their concatenation.
            pem: format!("{}\n", pem.trim()),
            validity: Validity::of(&der)?,
        })
    }

    /// The certificates of a bundle that can be read, in its order.
    pub fn all_of(bundle: &str) -> Vec<Self> {
        const END: &str = "-----END CERTIFICATE-----";
        bundle
            .split_inclusive(END)
            .filter_map(Self::parse)
            .collect()
    }
}

// === impl Authority ===

impl Authority {
    /// A new authority. No two of one name have the same subject, by which clients tell them apart.
    pub fn new(name: &str, now: Timestamp, lasts: SignedDuration) -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::default();
        let name = format!("{name}-ca@{}", now.as_second());
        params.distinguished_name = common_name(name);
        // The authority signs servers, and no further authorities.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let validity = Validity::starting(now, lasts);
        validity.set(&mut params);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            certificate: AuthorityCertificate::parse(&pem).ok_or(AuthorityError::Certificate)?,
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority of this certificate and this key, both in PEM.
    pub fn load(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| AuthorityError::Certificate)?;
        let (_, parsed) = parse_x509_certificate(&der).map_err(|_| AuthorityError::Certificate)?;
        let key = KeyPair::from_pem(key).map_err(|_| AuthorityError::Key)?;
        if !parsed.is_ca() {
            return Err(AuthorityError::Certificate);
        }
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(AuthorityError::Key);
        }
        Ok(Self {
            certificate: AuthorityCertificate::parse(certificate)
                .ok_or(AuthorityError::Certificate)?,
            issuer: Issuer::from_ca_cert_der(&der, key)?,
        })
    }

    /// The key, in PEM.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A new key and a certificate for a server of these DNS names. It is not valid for longer than the authority.
    pub fn sign(
        &self,
        names: &[String],
        now: Timestamp,
        lasts: SignedDuration,
    ) -> Result<(ServingPair, Validity), AuthorityError> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = names.first().map(common_name).unwrap_or_default();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let mut validity = Validity::starting(now, lasts);
        // Go, and so the API server, rejects a certificate whose authority has ended.
        validity.until = validity.until.min(self.certificate.validity.until);
        validity.set(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes());
        let pair = ServingPair {
            chain: vec![certificate.der().clone()],
            key: key.map_err(|_| AuthorityError::Key)?,
        };
        Ok((pair, validity))
    }
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        // The certificate has the public key, to which the other one belongs.
        self.certificate == other.certificate
    }
}

fn common_name(name: impl Into<String>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name.into());
    subject
}
