//! The identity of client certificates by the two kinds of authorities that an API server has.
//!
//! Both may sign a certificate of any name. So they are kept apart: an authority of users cannot make a certificate
//! that counts as the front proxy, and the authority of the front proxy makes no user.

use std::sync::Arc;

use axum::http::HeaderMap;
use rustls::{
    RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use x509_parser::{parse_x509_certificate, x509::X509Name};

use super::headers;
use foretide_api::ports::{ClientAuthorities, RequestHeader, User};
use foretide_base::http::PeerCertificates;

/// Verifiers of client certificates.
#[derive(Debug)]
pub struct Verifiers {
    front_proxy: Option<FrontProxy>,
    users: Option<Arc<dyn ClientCertVerifier>>,
}

/// The proxy that may name users in headers.
#[derive(Debug)]
struct FrontProxy {
    verifier: Arc<dyn ClientCertVerifier>,
    request_header: RequestHeader,
}

// === impl Verifiers ===

impl Verifiers {
    pub fn new(authorities: &ClientAuthorities) -> Self {
        let front_proxy = authorities.request_header.as_ref();
        Self {
            front_proxy: front_proxy.and_then(|request_header| {
                Some(FrontProxy {
                    verifier: verifier(&request_header.ca)?,
                    request_header: request_header.clone(),
                })
            }),
            users: authorities.client_ca.as_deref().and_then(verifier),
        }
    }

    /// The user of a connection with these certificates; none if no authority vouches for them.
    pub fn identify(
        &self,
        peer: &PeerCertificates,
        headers: &HeaderMap,
        now: UnixTime,
    ) -> Option<User> {
        let (own, intermediates) = peer.0.split_first()?;
        let is_of = |verifier: &dyn ClientCertVerifier| {
            verifier.verify_client_cert(own, intermediates, now).is_ok()
        };
        let (_, certificate) = parse_x509_certificate(own).ok()?;
        let subject = certificate.subject();
        let configured = self.front_proxy.as_ref();
        let front_proxy = configured.filter(|one| one.allows(subject) && is_of(&*one.verifier));
        if let Some(user) = front_proxy.and_then(|one| headers::user(headers, &one.request_header))
        {
            return Some(user);
        }
        // A front proxy that sends no user may still have a certificate of a user.
        let users = self.users.as_ref()?;
        is_of(&**users).then(|| user_of(subject))?
    }

    /// Removes the headers that name a user, so that no handler takes them for its identity.
    pub fn remove_headers(&self, headers: &mut HeaderMap) {
        if let Some(front_proxy) = &self.front_proxy {
            headers::remove(headers, &front_proxy.request_header);
        }
    }
}

// === impl FrontProxy ===

impl FrontProxy {
    /// Returns whether a certificate of this subject may name users.
    fn allows(&self, subject: &X509Name<'_>) -> bool {
        let allowed = &self.request_header.allowed_names;
        allowed.is_empty()
            || common_name(subject).is_some_and(|name| allowed.iter().any(|one| one == name))
    }
}

/// Verifies client certificates by these authorities (PEM); none without a usable one.
fn verifier(pem: &str) -> Option<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
    let (added, _unusable) = roots.add_parsable_certificates(certificates);
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = (added > 0).then(|| builder.build())?;
    verifier.ok()
}

/// The user whose certificate has this subject: the name is its common name, the groups are its organizations.
fn user_of(subject: &X509Name<'_>) -> Option<User> {
    let organizations = subject.iter_organization();
    let groups = organizations.filter_map(|one| one.as_str().ok().map(str::to_owned));
    Some(User {
        name: common_name(subject)
            .filter(|name| !name.is_empty())?
            .to_owned(),
        groups: groups.collect(),
        ..User::default()
    })
}

/// The common name of a subject: the last one, as Go takes it.
fn common_name<'a>(subject: &'a X509Name<'_>) -> Option<&'a str> {
    subject.iter_common_name().last()?.as_str().ok()
}
