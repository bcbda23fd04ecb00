//! Requests to one server with the credentials that its files hold now.
//!
//! The files are read again before a request when they were last read a while ago, or when the server has refused what
//! was sent. Changed credentials give a new HTTP client, and with it new connections. Files that cannot be used leave
//! the last credentials in force, so that a half-finished rotation loses nothing.
//!
//! Files are read on a thread of their own, one for each server at most: a file system that hangs delays the queries of
//! that server only.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::{task::JoinHandle, time::timeout};

use super::{
    credentials::{CredentialError, Credentials},
    http_client::{Connections, HttpClient, ServerCertificate},
    tls,
};
use foretide_api::ports::{CredentialExpiry, HistoryServer};
use foretide_base::{clock::Monotonic, error::chain, machine::Machine, redact::Redactor};

/// Largest age of credentials that are sent. The kubelet takes a minute to swap the files of a Secret.
const READ_PERIOD: Duration = Duration::from_secs(10);
/// Timeout for reading the files.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The sessions of one server: one at a time, replaced when the credentials change.
pub struct Sessions {
    server: HistoryServer,
    machine: Machine,
    timeout: Duration,
    state: tokio::sync::Mutex<State>,
    /// Set when the server refused the credentials: they are read again before the next request.
    refused: AtomicBool,
    /// Number of changes of the tenant.
    version: AtomicU64,
    status: Mutex<CredentialStatus>,
    server_certificate: ServerCertificate,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// The reading of the files that is under way.
    reading: Option<JoinHandle<Result<Loaded, CredentialError>>>,
}

/// Contents of the files.
enum Loaded {
    /// The credentials in use.
    Unchanged,
    /// Changed credentials, and the TLS settings for them.
    Changed(Box<(Credentials, ClientConfig)>),
}

/// A client with credentials, and the redactor of their secrets.
#[derive(Clone)]
pub struct Session {
    pub client: HttpClient,
    pub redactor: Redactor,
}

/// The session in use, and the time at which its files were last read.
struct Current {
    credentials: Arc<Credentials>,
    session: Session,
    read_at: Monotonic,
}

/// State of the credentials of a server, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialStatus {
    /// Expiries of the credentials that state one.
    pub expiries: Vec<CredentialExpiry>,
    /// Reason why the files cannot be used now, if any.
    pub problem: Option<String>,
}

// === impl Sessions ===

impl Sessions {
    /// The sessions of a server. Nothing is read yet.
    pub fn new(server: &HistoryServer, machine: &Machine, timeout: Duration) -> Self {
        Self {
            server: server.clone(),
            machine: machine.clone(),
            timeout,
            state: tokio::sync::Mutex::default(),
            refused: AtomicBool::default(),
            version: AtomicU64::default(),
            status: Mutex::default(),
            server_certificate: ServerCertificate::default(),
        }
    }

    /// The session to use now.
    ///
    /// # Errors
    /// The files cannot be used, and never could.
    pub async fn current(&self) -> Result<Session, CredentialError> {
        let mut state = self.state.lock().await;
        let now = self.machine.clock().monotonic();
        let refused = self.refused.swap(false, Ordering::Relaxed);
        if let Some(current) = &state.current
            && !refused
            && now.since(current.read_at) < READ_PERIOD
        {
            return Ok(current.session.clone());
        }
        let loading = self.load(&mut state).await;
        let replaced = loading.map(|loaded| self.replace(&mut state, loaded));
        self.report(replaced.as_ref().err());
        match (&mut state.current, replaced) {
            (Some(current), _) => {
                // Also if the files could not be used, so that they are not read again for each query.
                current.read_at = now;
                Ok(current.session.clone())
            }
            (None, Err(error)) => Err(error),
            // Only credentials in use can be unchanged.
            (None, Ok(())) => Err(CredentialError::Panicked),
        }
    }

    /// Reads the files. A reading that is not over in time goes on, and no other one begins.
    async fn load(&self, state: &mut State) -> Result<Loaded, CredentialError> {
        let limit = match &state.reading {
            // An earlier query has waited for this reading already.
            Some(reading) if !reading.is_finished() => Duration::ZERO,
            _ => READ_TIMEOUT,
        };
        let current = state.current.as_ref();
        let reading = state.reading.get_or_insert_with(|| {
            let before = current.map(|current| Arc::clone(&current.credentials));
            let server = self.server.clone();
            self.machine
                .run_blocking(move || load(&server, before.as_deref()))
        });
        let Ok(joined) = timeout(limit, reading).await else {
            return Err(CredentialError::TimedOut);
        };
        state.reading = None;
        joined.unwrap_or(Err(CredentialError::Panicked))
    }

    /// Uses what was read from now on.
    fn replace(&self, state: &mut State, loaded: Loaded) {
        let Loaded::Changed(changed) = loaded else {
            return;
        };
        let (credentials, config) = *changed;
        let session = self.session(&credentials, config);
        if let Some(before) = &state.current {
            tracing::info!(url = %self.server.url(), "using the changed credentials for Prometheus");
            if credentials.is_other_tenant(&before.credentials) {
                self.version.fetch_add(1, Ordering::Relaxed);
            }
        }
        let expiries = tls::expiries(&credentials);
        self.status.lock().expiries = expiries.chain(credentials.token_expiry()).collect();
        state.current = Some(Current {
            credentials: Arc::new(credentials),
            session,
            // `current` sets it when this returns.
            read_at: Monotonic::default(),
        });
    }

    fn session(&self, credentials: &Credentials, config: ClientConfig) -> Session {
        let certificate = self.server_certificate.clone();
        let client = HttpClient::new(
            Connections::new(&self.machine, config, certificate),
            self.server.url().clone(),
            credentials.headers.clone(),
            self.timeout,
        );
        Session {
            client,
            redactor: Redactor::new(credentials.secrets()),
        }
    }

    /// Keeps the reason why the files cannot be used; a problem is logged when it appears.
    fn report(&self, error: Option<&CredentialError>) {
        let mut status = self.status.lock();
        let problem = error.map(|error| chain(error));
        if let Some(problem) = problem.as_ref().filter(|_| status.problem != problem) {
            tracing::warn!(url = %self.server.url(), error = %problem, "cannot use the credentials for Prometheus");
        }
        status.problem = problem;
    }

    /// Notes that the server refused the credentials.
    pub fn refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Number of changes of the tenant: queries return other series since the last one.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// State of the credentials, with the expiry of the server's certificate.
    pub fn status(&self) -> CredentialStatus {
        let mut status = self.status.lock().clone();
        status.expiries.extend(self.server_certificate.expiry());
        status
    }

    /// The server, and the files that are read for it.
    pub const fn server(&self) -> &HistoryServer {
        &self.server
    }
}

/// Reads the files of a server. Blocks the thread.
fn load(server: &HistoryServer, before: Option<&Credentials>) -> Result<Loaded, CredentialError> {
    let credentials = Credentials::read(server.credentials())?;
    if before == Some(&credentials) {
        return Ok(Loaded::Unchanged);
    }
    let encrypted = server.url().scheme() == "https";
    let config = tls::client_config(encrypted, &credentials)?;
    Ok(Loaded::Changed(Box::new((credentials, config))))
}
