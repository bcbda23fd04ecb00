//! Replacement of authorities, and the choice of the one that signs a certificate.
//!
//! ```text
//! authority 1   |====== signs ==========================|-- trusted --|
//! authority 2                          |-- trusted -----|====== signs ==========...
//!               created                two thirds       in every bundle for the overlap, as one replica saw it
//! ```
//!
//! A client reads the bundle before an authority signs, and trusts a former authority until its end. So a rotation
//! presents no certificate to a client that does not trust it, however late a replica notices a change.
//!
//! This does not hold where the data of the Secret is removed or cannot be used: the new authority signs at once, and
//! another replica presents its former certificate until its next round, to clients that trust the new authority only.

use std::sync::Arc;

use jiff::Timestamp;

use super::authority::{Authority, AuthorityCertificate, AuthorityError, Validity};
use foretide_api::ports::CertificateLifetimes;

/// The authorities of one server, as its replicas share them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Authorities {
    /// The authority that signs; none at first.
    pub current: Option<Arc<Authority>>,
    /// The authority that will sign, if it is time for it to be trusted.
    pub next: Option<Arc<Authority>>,
    /// Other authorities that are trusted.
    pub former: Vec<AuthorityCertificate>,
}

/// The next change of the authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Make an authority, because none may sign.
    Create,
    /// Make the next authority, which clients are to trust.
    Announce,
    /// Let the next authority sign from now on.
    Promote,
}

/// Signer and validity of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub by: AuthorityCertificate,
    pub validity: Validity,
}

// === impl Authorities ===

impl Authorities {
    /// The certificates that clients are to trust, in PEM.
    pub fn bundle(&self) -> String {
        self.current
            .iter()
            .chain(&self.next)
            .map(|authority| &authority.certificate)
            .chain(&self.former)
            .map(|certificate| certificate.pem.as_str())
            .collect()
    }

    /// The change that is due; `is_published` says whether every client can have the bundle of these authorities.
    pub fn step(
        &self,
        is_published: bool,
        now: Timestamp,
        lifetimes: &CertificateLifetimes,
    ) -> Option<Step> {
        let [current, next] = [&self.current, &self.next].map(|authority| {
            authority
                .as_ref()
                .map(|one| one.certificate.validity)
                .filter(|validity| !validity.has_ended(now))
        });
        match (current, next) {
            (None, None) => Some(Step::Create),
            // The current one has ended or is gone. Clients may trust the next one already, unlike a new one.
            (None, Some(_)) => Some(Step::Promote),
            (Some(_), Some(next)) => {
                let is_old = now.duration_since(next.from) >= lifetimes.overlap;
                (is_old && is_published).then_some(Step::Promote)
            }
            (Some(current), None) => current.is_in_last_third(now).then_some(Step::Announce),
        }
    }

    /// The authorities after a change, without those that have ended.
    pub fn after(
        &self,
        step: Option<Step>,
        name: &str,
        now: Timestamp,
        lifetimes: &CertificateLifetimes,
    ) -> Result<Self, AuthorityError> {
        let create = || Authority::new(name, now, lifetimes.authority).map(Arc::new);
        let mut after = self.clone();
        match step {
            Some(Step::Create) => {
                after.current = Some(create()?);
                after.next = None;
            }
            Some(Step::Announce) => after.next = Some(create()?),
            Some(Step::Promote) => {
                let former = after.current.take();
                after
                    .former
                    .extend(former.map(|former| former.certificate.clone()));
                after.current = after.next.take();
            }
            None => {}
        }
        after.former.retain(|one| !one.validity.has_ended(now));
        Ok(after)
    }
}

// === impl Signed ===

impl Signed {
    /// True if a server needs another certificate, where `current` signs.
    pub fn is_due(&self, current: &Authority, now: Timestamp) -> bool {
        self.by != current.certificate || self.validity.is_in_last_third(now)
    }
}
