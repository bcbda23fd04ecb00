//! A TCP relay on loopback to one server, or in turn to several, as a Service does it. It can be blocked: while blocked
//! it still accepts connections, but no data moves, on old connections or new ones: what a client sees of a peer behind
//! a broken network, which refuses nothing. The relay does not interpret the data.

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use crate::{Error, Result};

/// A relay from a port of its own; it ends, with its connections, when it is dropped.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    open: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Relay {
    /// An unblocked relay to these ports of 127.0.0.1. A new connection goes to the next one that accepts it.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn to(targets: impl Into<Vec<u16>>) -> Result<Self> {
        let failed = Error::file("listen on", "127.0.0.1");
        let listener = match TcpListener::bind(("127.0.0.1", 0)).await {
            Ok(listener) => listener,
            Err(source) => return Err(failed(source)),
        };
        let port = listener.local_addr().map_err(failed)?.port();
        let (open, gate) = watch::channel(true);
        let server = tokio::spawn(serve(listener, targets.into(), gate));
        Ok(Self { port, open, server })
    }

    /// The port that clients connect to.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Blocks it: connections are accepted and hang, and existing ones transfer nothing.
    pub fn block(&self) {
        self.open.send_replace(false);
    }

    /// Unblocks it: data in transit arrives.
    pub fn unblock(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, mut targets: Vec<u16>, gate: watch::Receiver<bool>) {
    loop {
        if let Ok((client, _)) = listener.accept().await {
            tokio::spawn(connect(client, targets.clone(), gate.clone()));
            let next = targets.len().min(1);
            targets.rotate_left(next);
        }
    }
}

/// Connects a client with the first of the servers that accepts. Without one the connection is closed.
async fn connect(client: TcpStream, targets: Vec<u16>, mut gate: watch::Receiver<bool>) {
    if !is_open(&mut gate).await {
        return;
    }
    for target in targets {
        if let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await {
            return join(client, server, gate).await;
        }
    }
}

/// Carries the data of one connection, in both directions.
async fn join(client: TcpStream, server: TcpStream, gate: watch::Receiver<bool>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        carry(from_client, to_server, gate.clone()),
        carry(from_server, to_client, gate),
    );
}

/// Waits until the relay is unblocked; false when it was dropped.
async fn is_open(gate: &mut watch::Receiver<bool>) -> bool {
    gate.wait_for(|open| *open).await.is_ok()
}

/// Copies bytes in one direction until either end is closed, or the relay is dropped.
async fn carry<R, W>(mut from: R, mut to: W, mut gate: watch::Receiver<bool>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or_default(),
            // The relay was dropped.
            _ = gate.wait_for(|_| false) => return,
        };
        if !is_open(&mut gate).await {
            return;
        }
        let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else {
            break;
        };
        if to.write_all(part).await.is_err() {
            return;
        }
    }
    drop(to.shutdown().await);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A server that answers every byte with itself.
    async fn echo() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    drop(tokio::io::copy(&mut from, &mut to).await);
                });
            }
        });
        port
    }

    /// The byte that arrives within this number of milliseconds.
    async fn within(millis: u64, stream: &mut TcpStream) -> Option<u8> {
        let answer = tokio::time::timeout(Duration::from_millis(millis), stream.read_u8()).await;
        answer.ok().and_then(Result::ok)
    }

    async fn answer(stream: &mut TcpStream) -> Option<u8> {
        within(10_000, stream).await
    }

    async fn silence(stream: &mut TcpStream) -> Option<u8> {
        within(200, stream).await
    }

    #[tokio::test]
    async fn a_blocked_relay_accepts_connections_and_delivers_the_data_once_unblocked() {
        let relay = Relay::to([echo().await]).await.unwrap();
        let connect = || TcpStream::connect(("127.0.0.1", relay.port()));
        let mut old = connect().await.unwrap();
        old.write_u8(1).await.unwrap();
        assert_eq!(answer(&mut old).await, Some(1));

        relay.block();
        let mut new = connect().await.unwrap();
        old.write_u8(2).await.unwrap();
        new.write_u8(3).await.unwrap();
        assert_eq!(
            (silence(&mut old).await, silence(&mut new).await),
            (None, None)
        );

        relay.unblock();
        assert_eq!(
            (answer(&mut old).await, answer(&mut new).await),
            (Some(2), Some(3))
        );
    }
}
