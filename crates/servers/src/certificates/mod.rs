//! The certificates that a server of ours presents, and the configuration that it accepts connections with.
//!
//! ```text
//! Secret ──► authorities ──► certificate ──┐
//!              │                           ├──► newest ServerConfig ──► http::serve_tls
//!              │                 files ────┘
//!              └──► bundle ──► caBundle of the APIServices, or a copy that people make
//! ```
//!
//! [`Certificates`] keeps the newest configuration and the bundle. When an authority is replaced is decided in
//! `rotation`; serving is left to `http`.

mod authority;
mod files;
mod rotation;
mod secret;
mod server_config;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::sync::{Mutex, watch};

use self::{
    authority::{AuthorityCertificate, AuthorityError, BACKDATED},
    files::FileError,
    rotation::{Authorities, Signed, Step},
    secret::StoredAuthorities,
    server_config::{Clients, ServerConfigError, ServingPair, server_config},
};
use foretide_api::ports::{
    CertificateFiles, CertificateSource, ClientCertificates, ClusterError, SelfManaged,
};
use foretide_base::{clock::Clock, error::chain};
use foretide_kube::cluster::{ApiServices, Connection, Observed, SharedSecret};

/// Period of reading files.
const FILES_PERIOD: SignedDuration = SignedDuration::from_mins(1);
/// Pause after a round that failed.
const RETRY: SignedDuration = SignedDuration::from_secs(2);
/// Maximum number of times that the Secret is read again at once because another replica wrote it.
const CONFLICTS_MAX: usize = 5;

/// The certificates of one server.
#[derive(Debug)]
pub struct Certificates {
    source: Source,
    clients: ClientCertificates,
    clock: Clock,
    configs: watch::Sender<Option<Arc<ServerConfig>>>,
    state: Mutex<State>,
}

/// Source of the certificate.
#[derive(Debug)]
enum Source {
    SelfManaged(SelfManaged, Box<SharedSecret>),
    Files(CertificateFiles),
}

/// State of earlier rounds.
#[derive(Debug, Default)]
struct State {
    authorities: Authorities,
    signed: Option<(Signed, ServingPair)>,
    /// The parts that the newest configuration was made from.
    presented: Option<(Vec<CertificateDer<'static>>, Clients)>,
    /// True if every registration has the bundle of the authorities.
    is_published: bool,
    /// The next authority, and the time since when every registration was seen to have it.
    next_seen: Option<(AuthorityCertificate, Timestamp)>,
    /// The problem that was logged last, so that a row of the same is logged once.
    problem: Option<String>,
}

/// Reasons why a round did not bring the configuration up to date.
#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("the Secret of the certificate authority cannot be used")]
    Secret(#[source] ClusterError),
    #[error(
        "Secret {0} not found; apply the manifests, which make it without data, or name other certificates with \
         --tls-cert-file and --tls-key-file"
    )]
    NoSecret(String),
    #[error(
        "the clock of this replica differs from that of the API server by {0:#}, expected at most {BACKDATED:#}; no \
         certificate is made until it is set"
    )]
    Clock(SignedDuration),
    #[error("the certificate authority cannot sign")]
    Authority(#[from] AuthorityError),
    #[error("the certificate cannot be used")]
    File(#[from] FileError),
    #[error("{place} cannot be used")]
    Config {
        place: String,
        #[source]
        source: ServerConfigError,
    },
}

// === impl State ===

impl State {
    /// Remembers since when every registration has the next authority of the last round.
    fn see(&mut self, observed: &Observed, now: Timestamp) {
        let next = self.authorities.next.as_ref().map(|next| &next.certificate);
        let next = next.filter(|next| observed.has_everywhere(&next.pem));
        let before = self.next_seen.take();
        self.next_seen = next.map(|next| match before {
            Some((seen, since)) if seen == *next => (seen, since),
            // A different one, or one that a registration lacked meanwhile: the overlap begins again.
            _ => (next.clone(), now),
        });
    }
}

// === impl Certificates ===

impl Certificates {
    /// Certificates of this source; none until [`Certificates::run`].
    pub fn new(
        connection: &Connection,
        source: CertificateSource,
        clients: ClientCertificates,
        clock: Clock,
    ) -> Self {
        let source = match source {
            CertificateSource::SelfManaged(settings) => {
                let SelfManaged {
                    namespace, secret, ..
                } = &settings;
                let secret = SharedSecret::new(connection, namespace, secret);
                Source::SelfManaged(settings, Box::new(secret))
            }
            CertificateSource::Files(files) => Source::Files(files),
        };
        Self {
            source,
            clients,
            clock,
            configs: watch::Sender::new(None),
            state: Mutex::default(),
        }
    }

    /// The newest configuration of new connections; none while there is no certificate, so that the server is not
    /// ready.
    pub fn configs(&self) -> watch::Receiver<Option<Arc<ServerConfig>>> {
        self.configs.subscribe()
    }

    /// Keeps the configuration up to date, and the bundle of a [`CertificateSource::SelfManaged`] authority in these
    /// registrations, until it is dropped.
    pub async fn run(&self, registrations: Option<&ApiServices>) {
        loop {
            let is_complete = self.round(registrations).await;
            self.clock.sleep(self.pause(is_complete)).await;
        }
    }

    /// Pause until the next round, after one that brought everything up to date or not.
    fn pause(&self, is_complete: bool) -> SignedDuration {
        let period = match &self.source {
            Source::SelfManaged(settings, _) => settings.lifetimes.period,
            Source::Files(_) => FILES_PERIOD,
        };
        if is_complete {
            period
        } else {
            period.min(RETRY)
        }
    }

    /// Brings everything up to date; returns true if that was possible.
    async fn round(&self, registrations: Option<&ApiServices>) -> bool {
        let mut state = self.state.lock().await;
        let done = match &self.source {
            Source::SelfManaged(settings, secret) => {
                let update = AuthorityUpdate {
                    settings,
                    secret,
                    registrations,
                    next_seen: None,
                };
                self.self_managed(update, &mut state).await
            }
            Source::Files(files) => self.of_files(files, &mut state).await,
        };
        let problem = done.err().map(|error| chain(&error));
        if let Some(problem) = &problem
            && state.problem.as_ref() != Some(problem)
        {
            tracing::warn!(
                error = problem,
                "TLS certificate not up to date; will retry"
            );
        }
        state.problem = problem;
        // While a registration lacks the bundle, the API server may not trust the certificate: it is tried again soon.
        state.problem.is_none() && (registrations.is_none() || state.is_published)
    }

    async fn self_managed(
        &self,
        mut update: AuthorityUpdate<'_>,
        state: &mut State,
    ) -> Result<(), CertificateError> {
        // Before the Secret: what is published below is then newer than what was observed.
        let observed = match update.registrations {
            Some(registrations) => registrations.observe().await,
            None => Observed::default(),
        };
        let (now, settings) = (self.clock.now(), update.settings);
        state.see(&observed, now);
        update.next_seen.clone_from(&state.next_seen);
        let stored = update.authorities(now).await;
        if let Ok(authorities) = &stored {
            state.authorities = authorities.clone();
        }
        // Signs without the Secret too: the certificate must not end because the API server does not respond.
        let signed = match stored {
            // A certificate would not be valid yet, or not any more.
            Err(CertificateError::Clock(_)) => Ok(()),
            _ => sign(settings, state, now),
        };
        if let (Some(registrations), Ok(authorities)) = (update.registrations, &stored) {
            let bundle = authorities.bundle();
            state.is_published = registrations.publish(&observed, &bundle).await;
        }
        if let Some((_, pair)) = &state.signed {
            let pair = pair.clone();
            let place = "the certificate of the server".to_owned();
            self.present(pair, place, state).await?;
        }
        // After the certificate is presented: one that is still valid serves, whatever is wrong with the Secret.
        signed?;
        stored.map(drop)
    }

    async fn of_files(
        &self,
        files: &CertificateFiles,
        state: &mut State,
    ) -> Result<(), CertificateError> {
        let pair = files::serving_pair(files).await?;
        let (certificate, key) = (files.certificate.display(), files.key.display());
        let place = format!("{certificate} with {key}");
        self.present(pair, place, state).await
    }

    /// Makes the configuration with this certificate, unless it is the newest one.
    async fn present(
        &self,
        pair: ServingPair,
        place: String,
        state: &mut State,
    ) -> Result<(), CertificateError> {
        let presented = (pair.chain.clone(), self.clients().await?);
        if state.presented.as_ref() == Some(&presented) {
            return Ok(());
        }
        let config = server_config(pair, &presented.1)
            .map_err(|source| CertificateError::Config { place, source })?;
        state.presented = Some(presented);
        self.configs.send_replace(Some(Arc::new(config)));
        Ok(())
    }

    async fn clients(&self) -> Result<Clients, FileError> {
        Ok(match &self.clients {
            ClientCertificates::None => Clients::None,
            ClientCertificates::Any => Clients::Any,
            ClientCertificates::SignedBy(file) => {
                Clients::SignedBy(files::certificates(file).await?)
            }
        })
    }
}

/// One update of the authorities in their Secret.
struct AuthorityUpdate<'a> {
    settings: &'a SelfManaged,
    secret: &'a SharedSecret,
    /// The registrations that give the bundle to the API server; absent where people copy it.
    registrations: Option<&'a ApiServices>,
    /// The next authority, and the time since when every registration was seen to have it.
    next_seen: Option<(AuthorityCertificate, Timestamp)>,
}

// === impl AuthorityUpdate ===

impl AuthorityUpdate<'_> {
    /// The authorities after the changes that are due, as they are stored.
    async fn authorities(&self, now: Timestamp) -> Result<Authorities, CertificateError> {
        let mut conflicts = 0;
        loop {
            let seen = StoredAuthorities::read(self.secret)
                .await
                .map_err(|error| self.unusable(error))?;
            let skew = self.secret.clock_skew();
            if skew.abs() > BACKDATED {
                return Err(CertificateError::Clock(skew));
            }
            let (after, step) = self.after(&seen, now)?;
            if seen.holds(&after) {
                return Ok(after);
            }
            match seen.replace(self.secret, &after).await {
                Ok(()) => {
                    self.report(&seen, step);
                    return Ok(after);
                }
                // Another replica wrote the Secret: what it wrote may be all that was due.
                Err(ClusterError::Conflict { .. }) if conflicts < CONFLICTS_MAX => conflicts += 1,
                Err(error) => return Err(self.unusable(error)),
            }
        }
    }

    fn after(
        &self,
        seen: &StoredAuthorities,
        now: Timestamp,
    ) -> Result<(Authorities, Option<Step>), AuthorityError> {
        let SelfManaged {
            service, lifetimes, ..
        } = self.settings;
        let stored = &seen.authorities;
        let next = stored.next.as_ref();
        let is_published = next.is_none_or(|next| self.is_published(&next.certificate, now));
        let step = stored.step(is_published, now, lifetimes);
        Ok((stored.after(step, service, now, lifetimes)?, step))
    }

    /// True if every client can have the next authority: the registrations have it for an overlap. Without
    /// registrations its age decides.
    fn is_published(&self, next: &AuthorityCertificate, now: Timestamp) -> bool {
        let overlap = self.settings.lifetimes.overlap;
        match (&self.registrations, &self.next_seen) {
            (None, _) => true,
            (Some(_), Some((seen, since))) => seen == next && now.duration_since(*since) >= overlap,
            (Some(_), None) => false,
        }
    }

    fn unusable(&self, error: ClusterError) -> CertificateError {
        match error {
            ClusterError::NotFound { .. } => {
                let SelfManaged {
                    namespace, secret, ..
                } = self.settings;
                CertificateError::NoSecret(format!("{namespace}/{secret}"))
            }
            error => CertificateError::Secret(error),
        }
    }

    #[expect(
        clippy::cognitive_complexity,
        reason = "the branches are those of the log macros"
    )]
    fn report(&self, seen: &StoredAuthorities, step: Option<Step>) {
        let secret = self.secret;
        for problem in &seen.problems {
            tracing::warn!(%secret, problem, "content of the Secret replaced");
        }
        match step {
            Some(Step::Create) => tracing::info!(%secret, "certificate authority created"),
            Some(Step::Announce) => {
                tracing::info!(%secret, "next certificate authority created; it is trusted and does not sign yet");
            }
            Some(Step::Promote) => {
                tracing::info!(%secret, "next certificate authority signs from now on");
            }
            None => tracing::info!(%secret, "bundle of certificate authorities updated"),
        }
    }
}

/// Signs a certificate if one is due.
fn sign(settings: &SelfManaged, state: &mut State, now: Timestamp) -> Result<(), AuthorityError> {
    let Some(current) = &state.authorities.current else {
        return Ok(());
    };
    let until = current.certificate.validity.until;
    if now >= until {
        return Err(AuthorityError::Ended(until));
    }
    if matches!(&state.signed, Some((signed, _)) if !signed.is_due(current, now)) {
        return Ok(());
    }
    let names = dns_names(settings);
    let (pair, validity) = current.sign(&names, now, settings.lifetimes.serving)?;
    let by = current.certificate.clone();
    state.signed = Some((Signed { by, validity }, pair));
    tracing::info!(until = %validity.until, "TLS certificate signed");
    Ok(())
}

/// The names by which clients in a cluster reach a service.
fn dns_names(settings: &SelfManaged) -> Vec<String> {
    let SelfManaged {
        namespace, service, ..
    } = settings;
    [
        // The name that the API server expects of an APIService's server. The first is also the common name.
        format!("{service}.{namespace}.svc"),
        service.clone(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc.cluster.local"),
    ]
    .into()
}
