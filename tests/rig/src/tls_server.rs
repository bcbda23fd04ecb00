//! An HTTPS server of the rig itself, on a free port of loopback.

use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use crate::{Error, Result, pki::Identity};

/// A running server; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct TlsServer {
    port: u16,
    task: JoinHandle<()>,
}

impl TlsServer {
    /// Serves `router` under this certificate.
    pub(crate) async fn start(identity: &Identity, router: Router) -> Result<Self> {
        let failed = Error::file("listen on", "127.0.0.1");
        let listener = match TcpListener::bind(("127.0.0.1", 0)).await {
            Ok(listener) => listener,
            Err(source) => return Err(failed(source)),
        };
        let port = listener.local_addr().map_err(failed)?.port();
        let task = tokio::spawn(serve(listener, acceptor(identity)?, router));
        Ok(Self { port, task })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Base URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn acceptor(identity: &Identity) -> Result<TlsAcceptor> {
    let pem = |_| Error::Tls(rustls::Error::General("the server's own PEM".to_owned()));
    let certificate =
        CertificateDer::from_pem_slice(identity.certificate.as_bytes()).map_err(pem)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(pem)?;
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until it is aborted. A failed connection is left to its client.
async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let (acceptor, router) = (acceptor.clone(), router.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let server = http1::Builder::new();
            let service = TowerToHyperService::new(router);
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}
