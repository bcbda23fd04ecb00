//! The Secret in which the replicas of a server share their authorities.
//!
//! | key | holds |
//! |---|---|
//! | `ca.crt`, `ca.key` | the authority that signs |
//! | `next-ca.crt`, `next-ca.key` | the one that will sign |
//! | `ca-bundle.crt` | every authority that clients are to trust |
//!
//! It is written only at the version that was read, so of several replicas one succeeds, and the others read what it
//! wrote. No message shows a key.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    authority::{Authority, AuthorityCertificate},
    rotation::Authorities,
};
use foretide_api::ports::ClusterError;
use foretide_kube::cluster::{SecretContents, SharedSecret};

const CURRENT: [&str; 2] = ["ca.crt", "ca.key"];
const NEXT: [&str; 2] = ["next-ca.crt", "next-ca.key"];
const BUNDLE: &str = "ca-bundle.crt";

/// The contents of the Secret.
pub struct StoredAuthorities {
    pub authorities: Authorities,
    /// The contents that cannot be used, and are replaced.
    pub problems: Vec<String>,
    bundle: String,
    contents: SecretContents,
}

// === impl StoredAuthorities ===

impl StoredAuthorities {
    /// Reads the Secret.
    pub async fn read(secret: &SharedSecret) -> Result<Self, ClusterError> {
        secret.read().await.map(Self::of)
    }

    /// Replaces the authorities in the Secret, if it is as it was read.
    pub async fn replace(
        &self,
        secret: &SharedSecret,
        authorities: &Authorities,
    ) -> Result<(), ClusterError> {
        secret.write(&self.contents, data(authorities)).await
    }

    /// True if the Secret holds these authorities.
    pub fn holds(&self, authorities: &Authorities) -> bool {
        self.problems.is_empty()
            && self.authorities == *authorities
            && self.bundle == authorities.bundle()
    }

    fn of(contents: SecretContents) -> Self {
        let mut problems = Vec::new();
        let mut text = |key: &str| {
            let value = contents.data.get(key).filter(|value| !value.is_empty())?;
            let decoded = STANDARD.decode(value).ok();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            if decoded.is_none() {
                problems.push(format!("data.{key}: expected a text in base64"));
            }
            decoded
        };
        let [current, next] = [CURRENT, NEXT].map(|keys| (keys, keys.map(&mut text)));
        let bundle = text(BUNDLE).unwrap_or_default();
        let [current, next] = [current, next].map(|pair| authority(pair, &mut problems));
        let mut former = AuthorityCertificate::all_of(&bundle);
        // The bundle has the current and the next one as well.
        for signing in current.iter().chain(&next) {
            former.retain(|one| *one != signing.certificate);
        }
        Self {
            authorities: Authorities {
                current,
                next,
                former,
            },
            problems,
            bundle,
            contents,
        }
    }
}

/// The authority under two keys of the data, if there is one that can be used.
fn authority(
    (keys, texts): ([&str; 2], [Option<String>; 2]),
    problems: &mut Vec<String>,
) -> Option<Arc<Authority>> {
    let [certificate, key] = &texts;
    let loaded = match (certificate, key) {
        (None, None) => return None,
        (Some(certificate), Some(key)) => Authority::load(certificate, key).ok(),
        _ => None,
    };
    if loaded.is_none() {
        let [certificate, key] = keys;
        problems.push(format!(
            "data[{certificate}], data[{key}]: expected the certificate of an authority and its key in PEM"
        ));
    }
    loaded.map(Arc::new)
}

/// The data of the Secret, in base64; without a value, a key is removed.
fn data(authorities: &Authorities) -> BTreeMap<&'static str, Option<String>> {
    let encoded = |text: &str| Some(STANDARD.encode(text));
    let mut data = BTreeMap::from([(BUNDLE, encoded(&authorities.bundle()))]);
    for ([certificate, key], authority) in
        [(CURRENT, &authorities.current), (NEXT, &authorities.next)]
    {
        let authority = authority.as_ref();
        let pem = authority.and_then(|one| encoded(&one.certificate.pem));
        data.insert(certificate, pem);
        data.insert(key, authority.and_then(|one| encoded(&one.key_pem())));
    }
    data
}
