//! HTTP client of one server: form-encoded requests over TLS, each with a deadline and a limit on the size of its
//! answer.
//!
//! It follows no redirects, because one could lead to a server that is not configured, and reads no proxy from the
//! environment.

use std::{
    error::Error,
    future::poll_fn,
    io::{self, Read as _},
    iter,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use flate2::read::MultiGzDecoder;
use futures::{FutureExt as _, future::BoxFuture};
use http::{
    HeaderMap, HeaderValue, Request, Response, Uri,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE},
    uri::InvalidUri,
};
use hyper::body::{Body as _, Incoming};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use parking_lot::Mutex;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::time::{error::Elapsed, timeout};
use tokio_rustls::TlsConnector;
use tower::{BoxError, Service};
use url::{Url, form_urlencoded};

use super::tls;
use foretide_api::ports::CredentialExpiry;
use foretide_base::machine::{Connector, Machine, Stream};

/// The largest body that is read, before and after decompression: several times the 11,000 samples that one request may
/// ask for.
pub const BODY_MAX: usize = 4 * 1024 * 1024;
/// Timeout of a new connection, with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A client of one server, with the credentials of one moment. Clones share connections.
#[derive(Clone)]
pub struct HttpClient {
    http: Client<Connections, String>,
    /// The base URL of the server.
    server: Url,
    /// The headers of each request.
    headers: HeaderMap,
    /// Timeout of a request, from the first byte sent to the last received.
    timeout: Duration,
}

/// A complete answer.
pub struct Answer {
    pub status: u16,
    /// The body, decompressed.
    pub body: Vec<u8>,
}

/// Reasons why there is no complete answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The deadline of the request or of the connection has passed.
    #[error("timed out")]
    TimedOut,
    /// The body has more than [`BODY_MAX`].
    #[error("the body is too large")]
    TooLarge,
    /// The body cannot be decompressed as its header says.
    #[error("the body cannot be decompressed")]
    Compression(#[source] io::Error),
    /// No connection, or it was lost before the answer was complete.
    #[error("cannot send the request, or lost the connection")]
    Lost(#[source] BoxError),
}

/// Expiry of the certificate that the server showed last, if it showed one.
#[derive(Debug, Clone, Default)]
pub struct ServerCertificate(Arc<Mutex<Option<CredentialExpiry>>>);

/// Opens connections, with TLS if the address says so.
#[derive(Clone)]
pub struct Connections {
    plain: Connector,
    tls: TlsConnector,
    certificate: ServerCertificate,
}

// === impl HttpClient ===

impl HttpClient {
    /// A client of `server`; nothing is sent yet.
    pub fn new(
        connections: Connections,
        server: Url,
        headers: HeaderMap,
        timeout: Duration,
    ) -> Self {
        let http = Client::builder(TokioExecutor::new())
            // Without this timer, the age of idle connections is measured by the clock of the system.
            .pool_timer(TokioTimer::new())
            .build(connections);
        Self {
            http,
            server,
            headers,
            timeout,
        }
    }

    /// Sends a form to a path below that of the server, and reads the answer to its end.
    ///
    /// # Errors
    /// [`RequestError`]; an answer of any status is no error.
    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Result<Answer, RequestError> {
        let request = self.request(path, form).map_err(BoxError::from)?;
        let answered = async {
            let mut response = self.http.request(request).await.map_err(BoxError::from)?;
            let body = body(&mut response).await?;
            Ok((response, body))
        };
        let answered = timeout(self.timeout, answered).await;
        let (response, body) = answered.unwrap_or(Err(RequestError::TimedOut))?;
        let encoding = response.headers().get(CONTENT_ENCODING);
        // An empty body is no gzip stream, whatever its header says.
        let is_compressed = encoding.is_some_and(|encoding| encoding == "gzip") && !body.is_empty();
        Ok(Answer {
            status: response.status().as_u16(),
            body: if is_compressed {
                decompressed(&body)?
            } else {
                body
            },
        })
    }

    fn request(&self, path: &str, form: &[(&str, &str)]) -> Result<Request<String>, InvalidUri> {
        let base = self.server.as_str().trim_end_matches('/');
        let address: Uri = format!("{base}/{path}").parse()?;
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let mut request = Request::new(form);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = address;
        let headers = request.headers_mut();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers.extend(self.headers.clone());
        Ok(request)
    }
}

/// The body of a response as it was sent.
async fn body(response: &mut Response<Incoming>) -> Result<Vec<u8>, RequestError> {
    let mut body = Vec::new();
    let incoming = response.body_mut();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context)).await {
        let frame = frame.map_err(BoxError::from)?;
        let data = frame.data_ref().map_or(&[][..], AsRef::as_ref);
        if body.len() + data.len() > BODY_MAX {
            return Err(RequestError::TooLarge);
        }
        body.extend_from_slice(data);
    }
    Ok(body)
}

/// Contents of a compressed body.
fn decompressed(body: &[u8]) -> Result<Vec<u8>, RequestError> {
    let mut text = Vec::new();
    MultiGzDecoder::new(body)
        // One more than is accepted, so that a longer body differs from one of exactly that length.
        .take(BODY_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(RequestError::Compression)?;
    if text.len() > BODY_MAX {
        return Err(RequestError::TooLarge);
    }
    Ok(text)
}

// === impl RequestError ===

impl From<BoxError> for RequestError {
    fn from(error: BoxError) -> Self {
        if is_timeout(&*error) {
            Self::TimedOut
        } else {
            Self::Lost(error)
        }
    }
}

/// True if an error is a timeout: ours, or that of the system's connection.
fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source()).any(|error| {
        let io = error.downcast_ref::<io::Error>();
        error.is::<Elapsed>() || io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut)
    })
}

// === impl ServerCertificate ===

impl ServerCertificate {
    /// Expiry of the certificate.
    pub fn expiry(&self) -> Option<CredentialExpiry> {
        *self.0.lock()
    }

    fn note(&self, expiry: Option<CredentialExpiry>) {
        *self.0.lock() = expiry;
    }
}

// === impl Connections ===

impl Connections {
    /// Connections that note in `certificate` which one the server shows.
    pub fn new(machine: &Machine, tls: ClientConfig, certificate: ServerCertificate) -> Self {
        Self {
            plain: machine.connector(Some(CONNECT_TIMEOUT)),
            tls: TlsConnector::from(Arc::new(tls)),
            certificate,
        }
    }

    /// A connection with TLS over a plain one.
    async fn encrypted(
        self,
        host: String,
        plain: Box<dyn Stream>,
    ) -> Result<Box<dyn Stream>, BoxError> {
        // `Uri::host` keeps the brackets of an IPv6 address.
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(name.to_owned())?;
        let stream = self.tls.connect(name, plain).await?;
        let shown = stream.get_ref().1.peer_certificates();
        let shown = shown.and_then(|chain| chain.first());
        let expiry = shown.and_then(|der| tls::certificate_expiry("server certificate", der));
        self.certificate.note(expiry);
        Ok(Box::new(stream))
    }
}

impl Service<Uri> for Connections {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.plain.poll_ready(context)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let this = self.clone();
        let is_encrypted = server.scheme() == Some(&http::uri::Scheme::HTTPS);
        let host = server.host().unwrap_or_default().to_owned();
        let plain = self.plain.call(server);
        let connecting = async move {
            let plain = plain.await?;
            if !is_encrypted {
                return Ok(plain);
            }
            let encrypted = this.encrypted(host, plain.into_inner()).await?;
            Ok(TokioIo::new(encrypted))
        };
        // For the TLS handshake too: the timeout of the connector ends when TCP is connected.
        timeout(CONNECT_TIMEOUT, connecting)
            .map(|connected| connected.unwrap_or_else(|elapsed| Err(elapsed.into())))
            .boxed()
    }
}
