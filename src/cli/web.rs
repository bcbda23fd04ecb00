//! Serves a page on this machine until Ctrl-C, for `foretide demo --web` and `foretide ui`.

pub mod lab;

use std::{future::Future, io, net::SocketAddr};

use axum::Router;
use tokio::{net::TcpListener, runtime::Runtime};

use super::output::{self, CommandOutput, Failure, Screen};
use foretide_base::error::chain;
use foretide_base::service::shutdown_signal;

/// Default address of a page.
pub const ADDRESS: &str = "127.0.0.1:8090";

/// Address of a page.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ListenArgs {
    /// Address of the page, on this machine; with port 0, a free one is chosen and printed
    #[arg(long, value_name = "ADDR", default_value = ADDRESS, value_parser = parse_loopback)]
    pub listen: SocketAddr,
}

fn parse_loopback(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().ok();
    address.filter(|address| address.ip().is_loopback()).ok_or_else(|| {
        "expected a loopback address and a port, such as 127.0.0.1:8090 or [::1]:8090: the page asks for no token".to_owned()
    })
}

/// Runs a page until it ends.
///
/// # Errors
/// The error of the page, or this machine gives the process no means to wait.
pub fn run(
    page: impl Future<Output = Result<CommandOutput, Failure>>,
) -> Result<CommandOutput, Failure> {
    let runtime = Runtime::new().map_err(Failure::outside)?;
    let ended = runtime.block_on(page);
    // An experiment may still be computing.
    runtime.shutdown_background();
    ended
}

/// Prints the address, and serves until a signal; `drive` runs as long.
///
/// # Errors
/// The address cannot be listened on.
pub async fn serve(
    listen: SocketAddr,
    router: Router,
    drive: impl Future<Output = ()> + Send + 'static,
    screen: Screen,
) -> Result<CommandOutput, Failure> {
    let unserved = |error: io::Error| {
        let error = chain(&error);
        Failure::runtime(format!(
            "cannot listen on {listen}: {error}; choose another address with --listen"
        ))
    };
    let listener = TcpListener::bind(listen).await.map_err(unserved)?;
    let address = listener.local_addr().map_err(unserved)?;
    let line = format!("http://{address}/\nPress Ctrl-C to stop.\n");
    output::print(Ok(CommandOutput::text(line)), screen);
    tokio::select! {
        biased;
        () = foretide_base::http::serve(listener, router) => {}
        _ended = tokio::spawn(drive) => {}
        () = shutdown_signal() => {}
    }
    Ok(CommandOutput::default())
}
