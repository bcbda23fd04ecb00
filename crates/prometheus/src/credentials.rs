//! The credentials for one server, as its files hold them now.
//!
//! Files are read whole and bounded; white space around a secret is not part of it. Reading blocks the thread. Error
//! messages name files, never their contents.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use foretide_api::ports::{Authorization, CredentialExpiry, CredentialFiles, Setting};

/// The largest file that is read: several times the CA bundle of a distribution.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// Reasons why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The path names something else than a file, such as a pipe, which might never be read to its end.
    #[error("{} is not a file", .0.display())]
    NotAFile(PathBuf),
    /// A file holds nothing that can be sent.
    #[error("{} is empty; expected a credential", .0.display())]
    Empty(PathBuf),
    /// A file is too large.
    #[error("{} has more than {} MiB; expected a credential", .0.display(), FILE_MAX >> 20)]
    TooLarge(PathBuf),
    /// A secret cannot be a part of a request.
    #[error("{} has characters that are not allowed in an HTTP header", .0.display())]
    NotAHeader(PathBuf),
    /// A name with a colon cannot be told from the password after it (RFC 7617).
    #[error("the username for Prometheus has a colon")]
    Username,
    /// A header of the configuration cannot be sent.
    #[error("the header {0:?} has characters that are not allowed in an HTTP header")]
    Header(String),
    /// A file should hold certificates.
    #[error("{} holds no certificate in PEM form", .0.display())]
    NoCertificate(PathBuf),
    /// A file should hold a private key.
    #[error("{} holds no private key in PEM form that is not encrypted", .0.display())]
    NoKey(PathBuf),
    /// The certificate and the key do not belong together, or rustls does not know their kind.
    #[error("the certificate and the key of the client cannot be used together")]
    Pair(#[source] rustls::Error),
    /// No certificate authority is trusted.
    #[error(
        "this system has no CA certificates; name a file with those of the server as tls.caFile in the configuration"
    )]
    NoRoots,
    /// The HTTP client could not be built.
    #[error("cannot set up the HTTP client")]
    Setup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The files were not read in time, as on a file system that hangs.
    #[error("timed out reading the credential files")]
    TimedOut,
    /// The task that read the files panicked.
    #[error("the task that reads the credential files exited unexpectedly")]
    Panicked,
}

/// The credentials that are sent to one server, and the certificate authorities that are trusted.
#[derive(Default, PartialEq, Eq, derive_more::Debug)]
#[debug("Credentials")]
pub struct Credentials {
    /// The headers of each request.
    pub headers: HeaderMap,
    /// The certificates that are trusted; absent means those of the system.
    pub ca: Option<Pem>,
    /// The certificate of the client, and its key.
    pub client_certificate: Option<(Pem, Pem)>,
    /// The texts among the credentials that must not be shown.
    secrets: Vec<String>,
    /// The values that may decide which series the server returns: the username, and the headers other than
    /// `Authorization`.
    tenant: Vec<String>,
    /// Expiry of the bearer token, if it states one.
    token_expiry: Option<CredentialExpiry>,
}

/// The contents of a PEM file, and its path.
#[derive(PartialEq, Eq)]
pub struct Pem {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// Claims of a JSON web token about its expiry (RFC 7519), in seconds since 1970.
#[derive(Deserialize)]
struct Claims {
    /// The time of issue, if stated.
    iat: Option<f64>,
    /// The time of expiry.
    exp: f64,
}

// === impl Credentials ===

impl Credentials {
    /// Reads all files. Blocks the thread.
    ///
    /// # Errors
    /// The first file that cannot be read, or does not hold what it should.
    pub fn read(files: &CredentialFiles) -> Result<Self, CredentialError> {
        let mut credentials = Self::default();
        if let Some(authorization) = &files.authorization {
            credentials.authorize(authorization)?;
        }
        for header in &files.headers {
            let name = HeaderName::try_from(&header.name)
                .map_err(|_| CredentialError::Header(header.name.clone()))?;
            let (text, value) = match &header.value {
                Setting::Value(text) => {
                    let Ok(value) = HeaderValue::from_str(text) else {
                        return Err(CredentialError::Header(header.name.clone()));
                    };
                    (text.clone(), value)
                }
                Setting::File(path) => {
                    let text = credentials.secret(path)?;
                    let value = header_value(&text, path)?;
                    (text, value)
                }
            };
            credentials.tenant.push(format!("{name}: {text}"));
            credentials.headers.insert(name, sensitive(value));
        }
        credentials.ca = files.ca.as_deref().map(pem).transpose()?;
        credentials.client_certificate = match &files.client_certificate {
            Some(pair) => Some((pem(&pair.certificate)?, pem(&pair.key)?)),
            None => None,
        };
        Ok(credentials)
    }

    fn authorize(&mut self, authorization: &Authorization) -> Result<(), CredentialError> {
        let (value, path) = match authorization {
            Authorization::Bearer { token: path } => {
                let token = self.secret(path)?;
                self.token_expiry = token_expiry(&token);
                (format!("Bearer {token}"), path)
            }
            Authorization::Basic {
                username,
                password: path,
            } => {
                let username = match username {
                    Setting::Value(name) => name.clone(),
                    Setting::File(path) => self.secret(path)?,
                };
                if username.contains(':') {
                    return Err(CredentialError::Username);
                }
                let password = self.secret(path)?;
                self.tenant.push(username.clone());
                let both = STANDARD.encode(format!("{username}:{password}"));
                // A server may quote the header, from which the password can be decoded.
                self.secrets.push(both.clone());
                (format!("Basic {both}"), path)
            }
        };
        let value = sensitive(header_value(&value, path)?);
        self.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    /// The text of a file, which must not be shown from now on.
    fn secret(&mut self, path: &Path) -> Result<String, CredentialError> {
        let bytes = contents(path)?;
        let text =
            String::from_utf8(bytes).map_err(|_| CredentialError::NotAHeader(path.to_owned()))?;
        let text = text.trim().to_owned();
        if text.is_empty() {
            return Err(CredentialError::Empty(path.to_owned()));
        }
        self.secrets.push(text.clone());
        Ok(text)
    }

    /// The texts that must not be shown.
    pub fn secrets(&self) -> Vec<String> {
        self.secrets.clone()
    }

    /// True if a server may return other series than with `before`, because the tenant is another one.
    pub fn is_other_tenant(&self, before: &Self) -> bool {
        self.tenant != before.tenant
    }

    /// Expiry of the bearer token, if it states one.
    pub const fn token_expiry(&self) -> Option<CredentialExpiry> {
        self.token_expiry
    }
}

fn header_value(text: &str, path: &Path) -> Result<HeaderValue, CredentialError> {
    HeaderValue::from_str(text).map_err(|_| CredentialError::NotAHeader(path.to_owned()))
}

/// A header value that debug output leaves out.
fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

fn pem(path: &Path) -> Result<Pem, CredentialError> {
    Ok(Pem {
        path: path.to_owned(),
        bytes: contents(path)?,
    })
}

fn contents(path: &Path) -> Result<Vec<u8>, CredentialError> {
    let unreadable = |source| CredentialError::Read {
        path: path.to_owned(),
        source,
    };
    // Before it is opened: a pipe without a writer would block that already.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(CredentialError::NotAFile(path.to_owned()));
    }
    let mut bounded = fs::File::open(path).map_err(unreadable)?.take(FILE_MAX + 1);
    let mut bytes = Vec::new();
    bounded.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(CredentialError::TooLarge(path.to_owned()));
    }
    Ok(bytes)
}

/// Expiry of a bearer token, if it is a JSON web token that states one.
fn token_expiry(token: &str) -> Option<CredentialExpiry> {
    let payload = token.split('.').nth(1)?;
    // RFC 7515 forbids padding; a token that has it is read anyway, because this is for a warning only.
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    Some(CredentialExpiry {
        credential: "bearer token",
        valid_from: claims.iat.and_then(instant),
        expires: instant(claims.exp)?,
    })
}

fn instant(seconds: f64) -> Option<Timestamp> {
    let since = SignedDuration::try_from_secs_f64(seconds).ok()?;
    Timestamp::from_duration(since).ok()
}
