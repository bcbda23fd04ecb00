//! GET requests with the token of the person.

use http::{HeaderMap, HeaderValue, Request, Response, header};
use kube::{Client, client::Body};

use super::account::AccountTokens;
use foretide_base::{error::chain, opaque::Opaque};

/// A client, and its tokens.
#[derive(Debug)]
pub struct PageClient {
    pub client: Opaque<Client>,
    /// Tokens for the page; absent if the client adds the token of the kubeconfig.
    pub tokens: Option<AccountTokens>,
}

// === impl PageClient ===

impl PageClient {
    /// Gets a path, or an address.
    ///
    /// # Errors
    /// A sentence that says why there is no answer, and what to do.
    pub async fn get(&self, uri: &str, headers: HeaderMap) -> Result<Response<Body>, String> {
        let request = Request::get(uri).body(Body::empty());
        let mut request =
            request.map_err(|error| format!("the path cannot be requested: {error}"))?;
        *request.headers_mut() = headers;
        if let Some(tokens) = &self.tokens {
            let token = tokens.header().await?;
            request.headers_mut().insert(header::AUTHORIZATION, token);
        }
        if request.uri().authority().is_some() {
            // A pod: its page may be open to itself alone.
            let itself = HeaderValue::from_static("localhost");
            request.headers_mut().insert(header::HOST, itself);
        }
        let sending = self.client.0.send(request);
        sending
            .await
            .map_err(|error| format!("the controller cannot be reached: {}", chain(&error)))
    }
}
