//! Where a Prometheus server is, and which files hold the credentials for it.
//!
//! ```text
//! url ─────────────► https://mimir.example.org/prometheus
//! authorization ───► Authorization: Bearer <token file>  or  Basic <username:password file>
//! headers ─────────► X-Scope-OrgID: team-a
//! ca, certificate ─► who is trusted, and who we are in TLS
//! ```

use std::{fmt, path::PathBuf};

use jiff::{SignedDuration, Timestamp};

/// How long before it expires a credential is reported, if it is valid for much longer.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A Prometheus server, or one that imitates its query API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryServer {
    /// Base URL, with a path prefix if there is one, without `/api/v1`.
    pub url: String,
    /// What it needs to know about us, and we about it.
    pub credentials: CredentialFiles,
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

/// How requests are authorized.
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
    /// Its name, such as `X-Scope-OrgID`.
    pub name: String,
    /// Its value.
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
    /// Its private key.
    pub key: PathBuf,
}

/// When a credential expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CredentialExpiry {
    /// Which one, in words.
    pub credential: &'static str,
    /// The beginning of its validity.
    pub valid_from: Timestamp,
    /// The end of its validity.
    pub expires: Timestamp,
}

/// The state of one server, as its client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHealth {
    /// The name of the endpoint; `hub` for the controller's own.
    pub name: String,
    /// Whether it hangs, so that queries of it fail at once.
    pub is_circuit_open: bool,
    /// When credentials expire, ours and its certificate.
    pub expiries: Vec<CredentialExpiry>,
    /// Why the files with the credentials cannot be used now, if so.
    pub credential_problem: Option<String>,
}

// === impl HistoryServer ===

impl HistoryServer {
    /// A server that asks for no credentials.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            credentials: CredentialFiles::default(),
        }
    }
}

// === impl CredentialFiles ===

impl CredentialFiles {
    /// What must not be sent without encryption, in words; absent if nothing must be kept secret. A header whose value
    /// is in the configuration itself is no secret.
    #[must_use]
    pub fn secret(&self) -> Option<&'static str> {
        match &self.authorization {
            Some(Authorization::Bearer { .. }) => Some("a bearer token"),
            Some(Authorization::Basic { .. }) => Some("a password"),
            None if self.client_certificate.is_some() => Some("a client certificate"),
            None => {
                let is_secret = |header: &CustomHeader| matches!(header.value, Setting::File(_));
                self.headers
                    .iter()
                    .any(is_secret)
                    .then_some("a secret header")
            }
        }
    }

    /// The headers that may name a tenant, in words; absent if there are none.
    #[must_use]
    pub fn tenant(&self) -> Option<String> {
        let each = self.headers.iter().map(|header| match &header.value {
            Setting::Value(value) => format!("{}: {value}", header.name),
            Setting::File(path) => format!("{} of {}", header.name, path.display()),
        });
        let all: Vec<String> = each.collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// What is sent, in words, without secrets.
impl fmt::Display for CredentialFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authorization = self.authorization.as_ref().map(|it| match it {
            Authorization::Bearer { token } => format!("the bearer token of {}", token.display()),
            Authorization::Basic { password, .. } => {
                format!("a username and the password of {}", password.display())
            }
        });
        let certificate = self.client_certificate.as_ref();
        let certificate = certificate
            .map(|pair| format!("the client certificate of {}", pair.certificate.display()));
        let headers = self.tenant().map(|headers| format!("the header {headers}"));
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
    /// Whether it expires within a week, or within the last tenth of its validity where that is shorter: a token that
    /// is valid for an hour is renewed in time every hour.
    ///
    /// ```
    /// # use foretide::ports::CredentialExpiry;
    /// let certificate = CredentialExpiry {
    ///     credential: "client certificate",
    ///     valid_from: "2026-01-01T00:00Z".parse()?,
    ///     expires: "2026-12-31T00:00Z".parse()?,
    /// };
    /// assert!(!certificate.is_soon("2026-12-23T00:00Z".parse()?));
    /// assert!(certificate.is_soon("2026-12-24T00:01Z".parse()?));
    /// # Ok::<(), jiff::Error>(())
    /// ```
    #[must_use]
    pub fn is_soon(&self, now: Timestamp) -> bool {
        let validity = self.expires.duration_since(self.valid_from);
        self.expires.duration_since(now) < EXPIRES_SOON.min(validity / 10)
    }
}
