//! Tokens of a service account for the page alone, requested from the API server before the last one ends. A process
//! that gets one can read pages with it, and nothing at the API server.

use std::time::Duration;

use http::{HeaderValue, Method};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use super::ServiceAccount;
use crate::api_server::{Body, CallError, Calls, Connection, segment};
use foretide_api::ports::PAGE_AUDIENCE;
use foretide_base::{
    clock::{Clock, Monotonic},
    error::chain,
};

/// Time for which a token is valid. The API server may make it shorter or longer.
const LIFETIME: Duration = Duration::from_hours(1);
/// Time for which a token is used, well before its end.
const USED_FOR: Duration = Duration::from_mins(10);

/// The tokens of one service account.
#[derive(Debug)]
pub struct AccountTokens {
    calls: Calls,
    account: ServiceAccount,
    clock: Clock,
    last: Mutex<Option<(Monotonic, HeaderValue)>>,
}

#[derive(Deserialize)]
struct TokenRequest {
    status: TokenStatus,
}

#[derive(Deserialize)]
struct TokenStatus {
    token: String,
}

// === impl AccountTokens ===

impl AccountTokens {
    pub fn new(connection: &Connection, account: ServiceAccount, clock: Clock) -> Self {
        Self {
            calls: connection.calls(),
            account,
            clock,
            last: Mutex::default(),
        }
    }

    /// The `Authorization` header of a token that is valid now.
    ///
    /// # Errors
    /// A sentence; it never contains a token.
    pub async fn header(&self) -> Result<HeaderValue, String> {
        let mut last = self.last.lock().await;
        let now = self.clock.monotonic();
        if let Some((since, header)) = &*last
            && now.since(*since) < USED_FOR
        {
            return Ok(header.clone());
        }
        let ServiceAccount { namespace, name } = &self.account;
        let token = self.request().await.map_err(|error| {
            format!(
                "no token for service account {namespace}/{name}: {}; you need the right to create serviceaccounts/token",
                chain(&error)
            )
        })?;
        let header = HeaderValue::try_from(format!("Bearer {token}"));
        let mut header =
            header.map_err(|_| format!("the token of {namespace}/{name} is malformed"))?;
        // Otherwise the debug output of a request shows it.
        header.set_sensitive(true);
        *last = Some((now, header.clone()));
        Ok(header)
    }

    async fn request(&self) -> Result<String, CallError> {
        let ServiceAccount { namespace, name } = &self.account;
        let (namespace, name) = (segment(namespace)?, segment(name)?);
        let url = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "audiences": [PAGE_AUDIENCE], "expirationSeconds": LIFETIME.as_secs() },
        });
        let made: TokenRequest = self
            .calls
            .write(Method::POST, &url, Body::json(&body))
            .await?;
        Ok(made.status.token)
    }
}
