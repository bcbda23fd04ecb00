//! A proxy before several Prometheus servers, one per tenant, as Mimir and Thanos are: it wants a bearer token and the
//! header of a tenant, and answers nothing else.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};

use crate::{Error, Identity, Result, tls_server::TlsServer};

/// The header that names the tenant.
const TENANT: &str = "X-Scope-OrgID";

/// The proxy; it ends when it is dropped.
#[derive(Debug)]
pub struct TenantProxy {
    server: TlsServer,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    token: Mutex<String>,
    /// The status of a refusal.
    refusal: AtomicU16,
    /// The base URL of each tenant's server.
    tenants: BTreeMap<String, String>,
    http: reqwest::Client,
}

impl TenantProxy {
    /// Serves these tenants (name, and base URL of the server) under a certificate, to bearers of the token.
    ///
    /// # Errors
    /// When the server cannot be set up.
    pub async fn start(
        identity: &Identity,
        token: &str,
        tenants: &[(&str, String)],
    ) -> Result<Self> {
        crate::install_crypto();
        let http = reqwest::Client::builder().no_proxy().build();
        let http = http.map_err(|source| Error::Query {
            query: "anything".to_owned(),
            source,
        })?;
        let tenants = tenants
            .iter()
            .map(|(name, url)| ((*name).to_owned(), url.clone()));
        let shared = Arc::new(Shared {
            token: Mutex::new(token.to_owned()),
            refusal: AtomicU16::new(401),
            tenants: tenants.collect(),
            http,
        });
        let router = Router::new()
            .fallback(pass_on)
            .with_state(Arc::clone(&shared));
        let server = TlsServer::start(identity, router).await?;
        Ok(Self { server, shared })
    }

    /// Base URL of the proxy.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Accepts this token from now on, and no other.
    pub fn accept(&self, token: &str) {
        token.clone_into(&mut self.shared.token());
    }

    /// Refuses with this status from now on, instead of 401.
    pub fn refuse_with(&self, status: u16) {
        self.shared.refusal.store(status, Ordering::Relaxed);
    }
}

impl Shared {
    fn token(&self) -> std::sync::MutexGuard<'_, String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal(&self) -> StatusCode {
        let status = self.refusal.load(Ordering::Relaxed);
        StatusCode::from_u16(status).unwrap_or(StatusCode::UNAUTHORIZED)
    }

    /// The base URL for a request, or the refusal of the proxy: it quotes the request, as bad proxies do.
    fn url_for(&self, headers: &HeaderMap) -> std::result::Result<&str, (StatusCode, String)> {
        let text = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let sent = text(header::AUTHORIZATION.as_str());
        if sent != format!("Bearer {}", self.token()) {
            let others = headers
                .keys()
                .filter(|name| name.as_str().starts_with("x-"));
            let others = others.map(|name| format!(", {name}: {}", text(name.as_str())));
            let quoted = others.collect::<String>();
            return Err((self.refusal(), format!("not accepted: {sent}{quoted}")));
        }
        let tenant = text(TENANT);
        let url = self.tenants.get(&tenant).map(String::as_str);
        url.ok_or_else(|| (self.refusal(), "no org id".to_owned()))
    }
}

async fn pass_on(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let url = match shared.url_for(&headers) {
        Ok(url) => format!("{url}{uri}"),
        Err(refusal) => return refusal.into_response(),
    };
    let mut request = shared.http.post(url).body(body);
    if let Some(form) = headers.get(header::CONTENT_TYPE) {
        request = request.header(header::CONTENT_TYPE, form);
    }
    let answer = async {
        let response = request.send().await?;
        let status = response.status();
        reqwest::Result::Ok((status, response.bytes().await?))
    };
    match answer.await {
        Ok((status, body)) => {
            (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}
