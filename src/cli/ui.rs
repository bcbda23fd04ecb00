//! `foretide ui`: the page of the controller in a cluster, on this machine, read with the rights of the person.
//!
//! The page listens on loopback only, and the browser holds no token. As with `kubectl proxy`, everyone who can open
//! connections on this machine can read as much as the person, while the command runs.

use std::{path::PathBuf, sync::Arc};

use axum::body::Body;
use futures::FutureExt as _;
use http::{HeaderMap, header};
use url::Url;

use super::{
    context::CommandContext,
    members::NAMESPACE,
    output::{self, CommandOutput, Failure},
    web::{self, ListenArgs},
};
use foretide_kube::remote_page::{PageLocation, RemotePage, RemotePageSettings, ServiceAccount};
use foretide_page::http::{RemoteRequest, proxy};

/// Note before the token of a person is sent.
const OWN_TOKEN: &str = "note: the page is read with your token of the kubeconfig, which the API server accepts too. It is sent to one \
                         process, the controller's that leads, or to --url; --service-account sends a token for the page alone.\n";

/// Arguments of `foretide ui`.
#[derive(Debug, Clone, clap::Args)]
pub struct UiArgs {
    #[command(flatten)]
    page: ListenArgs,
    /// Namespace of the controller
    #[arg(short, long, value_name = "NAME", default_value = NAMESPACE, conflicts_with = "url")]
    namespace: String,
    /// Address of the controller's HTTP port, instead of a port-forward to its pod
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// Certificate authorities of that address, in PEM [default: those of this machine]
    #[arg(long, value_name = "FILE", requires = "url")]
    ca_file: Option<PathBuf>,
    /// Read as this service account, for whose tokens you may ask [default: the user of the kubeconfig]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_account)]
    service_account: Option<ServiceAccount>,
    /// Kubeconfig file [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

fn parse_account(text: &str) -> Result<ServiceAccount, String> {
    match text.split_once('/') {
        Some((namespace, name)) if ![namespace, name].contains(&"") && !name.contains('/') => {
            Ok(ServiceAccount {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => Err("expected NAMESPACE/NAME, such as monitoring/page-reader".to_owned()),
    }
}

/// Runs `foretide ui` until a signal.
///
/// # Errors
/// The kubeconfig or an address cannot be used.
pub fn run(args: UiArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    web::run(async {
        let listen = args.page.listen;
        let page = RemotePage::open(args.settings(), context.machine.clone()).await;
        let page = Arc::new(page.map_err(Failure::outside)?);
        if !page.sends_page_tokens() {
            let notes = CommandOutput {
                notes: OWN_TOKEN.to_owned(),
                ..CommandOutput::default()
            };
            output::print(Ok(notes), context.screen);
        }
        let router = proxy(
            move |request| fetch(Arc::clone(&page), request).boxed(),
            web::lab::routes(context),
        );
        web::serve(listen, router, std::future::pending(), context.screen).await
    })
}

async fn fetch(
    page: Arc<RemotePage>,
    request: RemoteRequest,
) -> Result<http::Response<Body>, String> {
    let encoding = request.accept_encoding;
    let headers = encoding.map(|encoding| (header::ACCEPT_ENCODING, encoding));
    let answer = page
        .get(&request.path, HeaderMap::from_iter(headers))
        .await?;
    Ok(answer.map(Body::new))
}

// === impl UiArgs ===

impl UiArgs {
    fn settings(self) -> RemotePageSettings {
        let location = match self.url {
            Some(url) => PageLocation::Address {
                url,
                ca_file: self.ca_file,
            },
            None => PageLocation::Pods {
                namespace: self.namespace,
            },
        };
        RemotePageSettings {
            kubeconfig: self.kubeconfig,
            context: self.context,
            location,
            account: self.service_account,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    fn location(line: &str) -> Result<PageLocation, clap::Error> {
        let command = UiArgs::augment_args(Command::new("ui"));
        let matches = command.try_get_matches_from(line.split(' '))?;
        Ok(UiArgs::from_arg_matches(&matches)?.settings().location)
    }

    #[test]
    fn authorities_are_those_of_an_address() {
        let file = location("ui --url https://foretide.example --ca-file ca.crt").unwrap();
        let expected = PageLocation::Address {
            url: Url::parse("https://foretide.example").unwrap(),
            ca_file: Some("ca.crt".into()),
        };
        assert_eq!(file, expected);
        let error = location("ui --ca-file ca.crt").unwrap_err().to_string();
        assert!(error.contains("--url <URL>"), "{error}");
    }
}
