//! Where a Prometheus server is, and which files hold the credentials for it.
//!
//! ```text
//! url ─────────────► https://mimir.example.org/prometheus
//! authorization ───► Authorization: Bearer <token file>  or  Basic <username:password file>
//! headers ─────────► X-Scope-OrgID: team-a
//! ca, certificate ─► TLS: trusted certificate authorities, and the certificate of the client
//! ```

use std::{fmt, path::PathBuf};

use jiff::{SignedDuration, Timestamp};
use url::Url;

/// The time before its expiry at which a credential is reported.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The validity below which a credential is renewed often, and reported in the last tenth of that time.
const SHORT_LIVED: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Headers whose value is the name of a tenant, which is no secret and is shown in messages.
const TENANT_HEADERS: [&str; 2] = ["X-Scope-OrgID", "THANOS-TENANT"];

/// A Prometheus server, or one that imitates its query API, with the credentials that it asks for.
///
/// # Guarantees
/// - The URL is `http` or `https`, without a user, a password, a query or a fragment.
/// - With credentials that must be kept secret, it is `https`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryServer {
    url: Url,
    credentials: CredentialFiles,
}

/// The reason why a server cannot be used. The URL is not shown, because a part of it may be a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// Not an absolute http or https URL.
    #[error("expected http://HOST:PORT or https://HOST:PORT")]
    Url,
    /// Parts that a base URL must not have.
    #[error(
        "the URL holds a user, a password, a query or a fragment; expected http(s)://HOST:PORT/PREFIX, and credentials \
         as files in the configuration file"
    )]
    NotABase,
    /// A secret would be sent without encryption.
    #[error("the URL is not encrypted, and {0} would be sent to it; use https")]
    NotEncrypted(&'static str),
    /// Certificate authorities for a server that shows no certificate.
    #[error("tls.caFile has no effect on an http URL; use https")]
    NoCertificate,
}

/// The credentials for one server. Secrets are files, which are read again when they change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// The `Authorization` header, if one is sent.
    pub authorization: Option<Authorization>,
    /// Other headers, such as that of a tenant.
    pub headers: Vec<CustomHeader>,
    /// The certificates that are trusted, in PEM; absent means those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate that identifies us, if the server asks for one.
    pub client_certificate: Option<CertificateFiles>,
}

/// The authorization of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// By a bearer token.
    Bearer {
        /// The file with the token.
        token: PathBuf,
    },
    /// By a name and a password.
    Basic {
        /// The name.
        username: Setting,
        /// The file with the password.
        password: PathBuf,
    },
}

/// A header that each request has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomHeader {
    /// The name, such as `X-Scope-OrgID`.
    pub name: String,
    /// The value.
    pub value: Setting,
}

/// A text that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// Not a secret.
    Value(String),
    /// The file that holds it.
    File(PathBuf),
}

/// A certificate and its key, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by those that it is signed with.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The time at which a credential expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CredentialExpiry {
    /// The credential in words.
    pub credential: &'static str,
    /// The beginning of its validity, if it is known.
    pub valid_from: Option<Timestamp>,
    /// The end of its validity.
    pub expires: Timestamp,
}

/// The state of one server, as its client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHealth {
    /// The name of the endpoint; `hub` for the controller's own.
    pub name: String,
    /// True if it hangs, so that queries of it fail at once.
    pub is_circuit_open: bool,
    /// The times at which credentials expire, ours and its certificate.
    pub expiries: Vec<CredentialExpiry>,
    /// The reason why the files with the credentials cannot be used now, if so.
    pub credential_problem: Option<String>,
}

// === impl HistoryServer ===

impl HistoryServer {
    /// A server at a base URL, with a path prefix if there is one, without `/api/v1`.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn new(url: &str, credentials: CredentialFiles) -> Result<Self, ServerError> {
        // A URL parser also takes `http:host`.
        let is_absolute = url.starts_with("http://") || url.starts_with("https://");
        let url = match Url::parse(url.trim_end_matches('/')) {
            Ok(url) if is_absolute => url,
            _ => return Err(ServerError::Url),
        };
        let is_anonymous = url.username().is_empty() && url.password().is_none();
        if !is_anonymous || url.query().is_some() || url.fragment().is_some() {
            return Err(ServerError::NotABase);
        }
        match (url.scheme(), credentials.secret()) {
            ("http", Some(secret)) => Err(ServerError::NotEncrypted(secret)),
            ("http", None) if credentials.ca.is_some() => Err(ServerError::NoCertificate),
            _ => Ok(Self { url, credentials }),
        }
    }

    /// A server that asks for no credentials.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn at(url: &str) -> Result<Self, ServerError> {
        Self::new(url, CredentialFiles::default())
    }

    /// The base URL.
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// The credentials that it asks for, and the certificate authorities that are trusted.
    pub const fn credentials(&self) -> &CredentialFiles {
        &self.credentials
    }
}

// === impl CredentialFiles ===

impl CredentialFiles {
    /// The parts that must not be sent without encryption, in words; absent if nothing must be kept secret. A header whose value
    /// is in the configuration itself is no secret.
    pub fn secret(&self) -> Option<&'static str> {
        match &self.authorization {
            Some(Authorization::Bearer { .. }) => Some("a bearer token"),
            Some(Authorization::Basic { .. }) => Some("a password"),
            None if self.client_certificate.is_some() => Some("a client certificate"),
            None => self
                .headers
                .iter()
                .any(|header| matches!(header.value, Setting::File(_)))
                .then_some("a secret header"),
        }
    }

    /// The headers, in words, without secrets: one of them may name a tenant. Absent if there are none.
    pub fn headers_in_words(&self) -> Option<String> {
        let all: Vec<_> = self.headers.iter().map(CustomHeader::in_words).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

// === impl CustomHeader ===

impl CustomHeader {
    fn in_words(&self) -> String {
        match &self.value {
            Setting::Value(value) if self.names_tenant() => format!("{}: {value}", self.name),
            Setting::Value(_) => self.name.clone(),
            Setting::File(path) => format!("{} of {}", self.name, path.display()),
        }
    }

    fn names_tenant(&self) -> bool {
        TENANT_HEADERS
            .iter()
            .any(|header| header.eq_ignore_ascii_case(&self.name))
    }
}

/// The credentials that are sent, in words, without secrets.
impl fmt::Display for CredentialFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authorization = self.authorization.as_ref().map(|it| match it {
            Authorization::Bearer { token } => format!("the bearer token of {}", token.display()),
            Authorization::Basic { password, .. } => {
                format!("a username and the password of {}", password.display())
            }
        });
        let pair = self.client_certificate.as_ref();
        let certificate =
            pair.map(|pair| format!("the client certificate of {}", pair.certificate.display()));
        let headers = self
            .headers_in_words()
            .map(|headers| format!("the header {headers}"));
        let all: Vec<String> = [authorization, certificate, headers]
            .into_iter()
            .flatten()
            .collect();
        if all.is_empty() {
            f.write_str("no credentials")
        } else {
            f.write_str(&all.join(", "))
        }
    }
}

// === impl CredentialExpiry ===

impl CredentialExpiry {
    /// True if it expires within a week; what is valid for less than two weeks, within the last tenth of that time: a
    /// token that is valid for an hour is renewed in time every hour.
    ///
    /// ```
    /// # use foretide_api::ports::CredentialExpiry;
    /// let certificate = CredentialExpiry {
    ///     credential: "client certificate",
    ///     valid_from: Some("2026-01-01T00:00Z".parse()?),
    ///     expires: "2026-12-31T00:00Z".parse()?,
    /// };
    /// assert!(!certificate.is_soon("2026-12-23T00:00Z".parse()?));
    /// assert!(certificate.is_soon("2026-12-24T00:01Z".parse()?));
    /// # Ok::<(), jiff::Error>(())
    /// ```
    pub fn is_soon(&self, now: Timestamp) -> bool {
        let validity = self
            .valid_from
            .map(|from| self.expires.duration_since(from));
        let ahead = match validity {
            Some(validity) if validity < SHORT_LIVED => validity / 10,
            _ => EXPIRES_SOON,
        };
        self.expires.duration_since(now) < ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn bearer() -> CredentialFiles {
        CredentialFiles {
            authorization: Some(Authorization::Bearer {
                token: "token".into(),
            }),
            ..CredentialFiles::default()
        }
    }

    #[test]
    fn a_server_has_a_base_url_and_gets_no_secret_over_plain_http() {
        let none = CredentialFiles::default;
        let authority = CredentialFiles {
            ca: Some("ca.crt".into()),
            ..none()
        };
        let url = |url: &str, credentials| {
            let server = HistoryServer::new(url, credentials)?;
            Ok(server.url().to_string())
        };
        for (given, credentials, expected) in [
            (
                "https://p.example/base/",
                bearer(),
                Ok("https://p.example/base"),
            ),
            ("https://p", authority.clone(), Ok("https://p/")),
            ("http://p:9090", none(), Ok("http://p:9090/")),
            (
                "http://p",
                bearer(),
                Err(ServerError::NotEncrypted("a bearer token")),
            ),
            ("http://p", authority, Err(ServerError::NoCertificate)),
            ("ftp://p", none(), Err(ServerError::Url)),
            ("p:9090", none(), Err(ServerError::Url)),
            ("http:p", none(), Err(ServerError::Url)),
            ("https://", none(), Err(ServerError::Url)),
            ("https://u:secret", none(), Err(ServerError::Url)),
            ("", none(), Err(ServerError::Url)),
            ("https://u@p", none(), Err(ServerError::NotABase)),
            ("https://:secret@p", none(), Err(ServerError::NotABase)),
            ("https://p/?a=b", none(), Err(ServerError::NotABase)),
            ("https://p/#a", none(), Err(ServerError::NotABase)),
        ] {
            assert_eq!(
                url(given, credentials),
                expected.map(str::to_owned),
                "{given}"
            );
        }
    }

    #[test]
    fn expiry_is_told_a_week_ahead_and_of_short_lived_credentials_in_the_last_tenth() {
        let expires = at("2026-06-30T00:00Z");
        for (valid_from, not_yet, soon) in [
            (None, "2026-06-22T23:59Z", "2026-06-23T00:01Z"),
            (
                Some("2026-05-31T00:00Z"),
                "2026-06-22T23:59Z",
                "2026-06-23T00:01Z",
            ),
            (
                Some("2026-06-20T00:00Z"),
                "2026-06-28T23:59Z",
                "2026-06-29T00:01Z",
            ),
            (
                Some("2026-06-29T23:00Z"),
                "2026-06-29T23:53Z",
                "2026-06-29T23:55Z",
            ),
        ] {
            let credential = CredentialExpiry {
                credential: "bearer token",
                valid_from: valid_from.map(at),
                expires,
            };
            assert!(!credential.is_soon(at(not_yet)), "{valid_from:?}");
            assert!(credential.is_soon(at(soon)), "{valid_from:?}");
            assert!(
                credential.is_soon(at("2026-07-01T00:00Z")),
                "{valid_from:?}"
            );
        }
    }

    #[test]
    fn headers_are_shown_without_values_that_may_be_secret() {
        let header = |name: &str, value: &str| CustomHeader {
            name: name.to_owned(),
            value: Setting::Value(value.to_owned()),
        };
        let credentials = CredentialFiles {
            headers: vec![
                header("x-scope-orgid", "team-a"),
                header("X-Api-Key", "s3cret"),
            ],
            ..CredentialFiles::default()
        };
        let shown = credentials.headers_in_words().unwrap();
        assert_eq!(shown, "x-scope-orgid: team-a, X-Api-Key");
        assert_eq!(CredentialFiles::default().to_string(), "no credentials");
    }
}
