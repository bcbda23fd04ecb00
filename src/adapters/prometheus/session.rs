//! Requests to one server with the credentials that its files hold now.
//!
//! The files are read again before a request when they were last read a while ago, or when the server has refused what
//! was sent. Changed credentials give a new HTTP client, and with it new connections. Files that cannot be used leave
//! the last credentials in force, so that a half-finished rotation loses nothing.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use prometheus_http_query::Client;
use reqwest::{Response, Url, redirect, tls::TlsInfo};
use tokio::time::timeout;

use super::{
    credentials::{CredentialError, Credentials},
    tls,
};
use crate::{
    adapters::redact::Redactor,
    clock::{Clock, Monotonic},
    error::chain,
    ports::{CredentialExpiry, HistoryServer},
};

/// How old credentials may be when they are sent. The kubelet takes a minute to swap the files of a Secret.
const READ_PERIOD: Duration = Duration::from_secs(10);
/// How long the files may take to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The sessions of one server: one at a time, replaced when the credentials change.
pub(super) struct Sessions {
    server: HistoryServer,
    url: Url,
    timeout: Duration,
    current: tokio::sync::Mutex<Option<Current>>,
    /// Set when the server refused the credentials: they are read again before the next request.
    refused: AtomicBool,
    status: Mutex<CredentialStatus>,
}

/// A client with credentials, and what must not be shown of them.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) redactor: Redactor,
}

/// The session in use, and when its credentials were last found in the files.
#[derive(Clone)]
struct Current {
    credentials: Arc<Credentials>,
    session: Session,
    read_at: Monotonic,
}

/// What is known of the credentials of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CredentialStatus {
    /// When ours expire, if they say so.
    own: Vec<CredentialExpiry>,
    /// When the certificate of the server expires.
    server: Option<CredentialExpiry>,
    /// Why the files cannot be used now, if so.
    pub(super) problem: Option<String>,
}

// === impl Sessions ===

impl Sessions {
    /// Those of a server at a checked URL. Nothing is read yet.
    pub(super) fn new(server: &HistoryServer, url: Url, timeout: Duration) -> Self {
        Self {
            server: server.clone(),
            url,
            timeout,
            current: tokio::sync::Mutex::default(),
            refused: AtomicBool::default(),
            status: Mutex::default(),
        }
    }

    /// The session to use now.
    ///
    /// # Errors
    /// The files cannot be used, and never could.
    pub(super) async fn current(&self) -> Result<Session, CredentialError> {
        self.current_at(Clock::system().monotonic()).await
    }

    async fn current_at(&self, now: Monotonic) -> Result<Session, CredentialError> {
        let mut current = self.current.lock().await;
        let refused = self.refused.swap(false, Ordering::Relaxed);
        let is_fresh = |one: &&Current| !refused && now.since(one.read_at) < READ_PERIOD;
        if let Some(current) = current.as_ref().filter(is_fresh) {
            return Ok(current.session.clone());
        }
        let read = self.read(current.as_ref()).await;
        self.report(&read);
        let next = match (read, current.take()) {
            (Ok(next), _) => next,
            (Err(_), Some(before)) => before,
            (Err(error), None) => return Err(error),
        };
        let session = next.session.clone();
        *current = Some(Current {
            read_at: now,
            ..next
        });
        Ok(session)
    }

    /// Reads the files; the session is that of before if they are unchanged.
    async fn read(&self, before: Option<&Current>) -> Result<Current, CredentialError> {
        let reading = timeout(READ_TIMEOUT, Credentials::read(&self.server.credentials));
        let credentials = reading.await.unwrap_or(Err(CredentialError::TimedOut))?;
        if let Some(before) = before.filter(|before| *before.credentials == credentials) {
            return Ok(before.clone());
        }
        let session = self.session(&credentials)?;
        if before.is_some() {
            tracing::info!(url = %self.url, "using the changed credentials for Prometheus");
        }
        Ok(Current {
            credentials: Arc::new(credentials),
            session,
            read_at: Monotonic::default(),
        })
    }

    fn session(&self, credentials: &Credentials) -> Result<Session, CredentialError> {
        let encrypted = self.url.scheme() == "https";
        let http = reqwest::Client::builder()
            // A redirect could lead to a server that is not configured.
            .redirect(redirect::Policy::none())
            // A proxy from the environment is not part of the configuration.
            .no_proxy()
            .gzip(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(self.timeout)
            .default_headers(credentials.headers.clone())
            .tls_backend_preconfigured(tls::client_config(encrypted, credentials)?)
            .tls_info(true)
            .build()
            .map_err(|error| CredentialError::Setup(Box::new(error.without_url())))?;
        let client = Client::from(http, self.url.as_str())
            .map_err(|error| CredentialError::Setup(Box::new(error)))?;
        Ok(Session {
            client,
            redactor: Redactor::new(credentials.secrets()),
        })
    }

    /// Keeps what is known of the credentials; a problem is logged when it appears.
    fn report(&self, read: &Result<Current, CredentialError>) {
        let mut status = self.known();
        match read {
            Ok(current) => {
                let credentials = &*current.credentials;
                let certificate = tls::client_certificate_expiry(credentials);
                let token = credentials.token_expiry();
                status.own = certificate.into_iter().chain(token).collect();
                status.problem = None;
            }
            Err(error) => {
                let problem = chain(error);
                if status.problem.as_ref() != Some(&problem) {
                    tracing::warn!(url = %self.url, error = %problem, "cannot use the credentials for Prometheus");
                }
                status.problem = Some(problem);
            }
        }
    }

    /// Notes that the server refused the credentials.
    pub(super) fn refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Notes the certificate of the server, if the connection has one.
    pub(super) fn connected(&self, response: &Response) {
        let info = response.extensions().get::<TlsInfo>();
        let certificate = info.and_then(TlsInfo::peer_certificate);
        let expiry = certificate.and_then(|der| tls::certificate_expiry("server certificate", der));
        self.known().server = expiry;
    }

    /// What is known of the credentials.
    pub(super) fn status(&self) -> CredentialStatus {
        self.known().clone()
    }

    /// The server, and the files that are read for it.
    pub(super) const fn server(&self) -> &HistoryServer {
        &self.server
    }

    fn known(&self) -> MutexGuard<'_, CredentialStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl CredentialStatus ===

impl CredentialStatus {
    /// When each credential expires that says so.
    pub(super) fn expiries(&self) -> Vec<CredentialExpiry> {
        self.own.iter().chain(&self.server).copied().collect()
    }
}
