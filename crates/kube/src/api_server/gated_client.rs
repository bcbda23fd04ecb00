//! The HTTP client of writes: it sends nothing while this process may not write.
//!
//! A write that the [`WriteGate`] has admitted still passes through the queues of the HTTP stack. A process that is
//! stopped in between, and resumes when another one leads, would send it. The connections of this client therefore ask
//! the gate again before they pass data to the kernel.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use kube::{Client, Config, client::ConfigExt as _};
use tower::ServiceExt as _;

use super::{http_client, write_gate::WriteGate};
use foretide_base::machine::Machine;

/// The gate of a client's connections, which is set after the client is made; open until then.
pub type SharedGate = Arc<OnceLock<WriteGate>>;

/// A client with this configuration, whose connections ask this gate. It has the connect timeout of the configuration
/// and no other: each write has a deadline.
///
/// # Errors
/// When the certificates or credentials of the configuration are malformed.
pub fn gated_client(config: &Config, machine: &Machine, gate: SharedGate) -> kube::Result<Client> {
    let connector = machine.connector(config.connect_timeout);
    let connector = connector.map_response(move |stream| GatedStream {
        stream,
        gate: Arc::clone(&gate),
    });
    if machine.is_simulated() {
        return http_client::over(connector, config, machine);
    }
    let connector = config.rustls_https_connector_with_connector(connector)?;
    http_client::over(connector, config, machine)
}

/// A connection that sends only while its gate is open.
#[derive(Debug)]
struct GatedStream<S> {
    stream: S,
    gate: SharedGate,
}

// === impl GatedStream ===

impl<S> GatedStream<S> {
    fn check(&self) -> io::Result<()> {
        let gate = self.gate.get();
        // Zero: that there is time for the whole write was checked when it began. Now only a right that has ended
        // counts.
        if let Some(gate) = gate {
            gate.admit(Duration::ZERO).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl<S: Read + Unpin> Read for GatedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for GatedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: Connection> Connection for GatedStream<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use jiff::Timestamp;
    use kube::client::Body;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use foretide_base::{
        clock::{Clock, Monotonic},
        leadership::{Leadership, Token},
    };

    /// Responds to the requests on one connection until that is closed; returns how many there were.
    async fn serve(listener: TcpListener) -> usize {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let mut requests = 0;
        while connection.read(&mut request).await.unwrap() > 0 {
            requests += 1;
            let response = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            connection.write_all(response.as_bytes()).await.unwrap();
        }
        requests
    }

    #[tokio::test]
    async fn a_request_that_is_on_its_way_when_the_token_ends_is_not_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let leadership = Leadership::standby(Clock::standing_at(Timestamp::UNIX_EPOCH));
        leadership.set(Some(Token {
            epoch: 1,
            valid_until: Monotonic::after_origin(Duration::from_secs(10)),
        }));
        let gate = SharedGate::default();
        let config = Config::new(url.parse().unwrap());
        let client = gated_client(&config, &Machine::system(), Arc::clone(&gate)).unwrap();
        gate.set(WriteGate::of(leadership.clone())).unwrap();
        let patch = || {
            let request = Request::builder().method("PATCH").uri("/status");
            client.send(request.body(Body::from(vec![b'x'])).unwrap())
        };
        let server = tokio::spawn(serve(listener));
        patch().await.unwrap();
        leadership.set(None);
        let refused = patch().await.unwrap_err();
        let mut cause: &dyn std::error::Error = &refused;
        while let Some(source) = cause.source() {
            cause = source;
        }
        assert_eq!(cause.to_string(), "not the leader; write refused");
        assert_eq!(server.await.unwrap(), 1);
    }
}
