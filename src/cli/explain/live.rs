//! Autoscalers of a cluster, read with the kubeconfig that kubectl would use.

use std::{io::Write, path::PathBuf, sync::Arc, time::Duration};

use super::{ExplainArgs, explained, table};
use crate::{
    adapters::kube::{ConnectError, Connection},
    api::autoscaler::Autoscaler,
    cli::{
        context::CommandContext,
        output::{CommandOutput, Failure},
    },
    error::chain,
    ports::ClusterError,
};

/// How often a watched object is read.
const PERIOD: Duration = Duration::from_secs(2);

/// Which cluster, and which namespace of it.
#[derive(Debug, Clone, clap::Args)]
pub struct ClusterArgs {
    /// Namespace of the object [default: that of the context]
    #[arg(short, long, conflicts_with = "files")]
    pub namespace: Option<String>,
    /// List the autoscalers of all namespaces
    #[arg(
        short = 'A',
        long = "all-namespaces",
        conflicts_with_all = ["object", "namespace", "files", "watch", "history"]
    )]
    pub all_namespaces: bool,
    /// Kubeconfig file [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long)]
    pub context: Option<String>,
}

/// The name of an object, with its namespace if that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    namespace: Option<String>,
    name: String,
}

impl std::str::FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split('/').collect();
        let (namespace, name) = match parts[..] {
            [name] => (None, name),
            [namespace, name] => (Some(namespace), name),
            _ => (None, ""),
        };
        if name.is_empty() || namespace == Some("") {
            return Err(format!(
                "expected NAME or NAMESPACE/NAME such as shop/web, got {text:?}"
            ));
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }
}

/// Explains one object, or lists those of a namespace or of all.
///
/// # Errors
/// The cluster cannot be reached, or has no such object.
pub(super) fn run(args: &ExplainArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    runtime()?.block_on(async {
        let connection = connect(&args.cluster).await?;
        match &args.object {
            Some(object) => {
                let autoscaler = read(&connection, &args.cluster, object).await?;
                Ok(explained(&autoscaler, args, context))
            }
            None => list(&connection, args, context).await,
        }
    })
}

/// Explains one object, and again after each change of what is explained, until the process is ended.
///
/// # Errors
/// As [`run`], and when `to` cannot be written.
pub(super) fn watch(
    args: &ExplainArgs,
    context: &CommandContext,
    to: &mut impl Write,
) -> Result<(), Failure> {
    let Some(object) = &args.object else {
        return Err(Failure::usage("--watch needs the NAME of one object"));
    };
    runtime()?.block_on(async {
        let connection = connect(&args.cluster).await?;
        let mut shown = String::new();
        loop {
            let autoscaler = read(&connection, &args.cluster, object).await?;
            let text = explained(&autoscaler, args, context).text;
            if text != shown {
                let separator = if shown.is_empty() { "" } else { "\n" };
                let written = write!(to, "{separator}{text}").and_then(|()| to.flush());
                written.map_err(|error| Failure::runtime(chain(&error)))?;
                shown = text;
            }
            tokio::time::sleep(PERIOD).await;
        }
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Failure::runtime(chain(&error)))
}

async fn connect(args: &ClusterArgs) -> Result<Connection, Failure> {
    let file = args.kubeconfig.as_deref();
    let connection = Connection::from_kubeconfig(file, args.context.as_deref()).await;
    connection.map_err(|error| unconnected(&error))
}

async fn read(
    connection: &Connection,
    args: &ClusterArgs,
    object: &ObjectName,
) -> Result<Autoscaler, Failure> {
    let name = &object.name;
    let namespace = namespace(connection, args, object)?;
    match connection.autoscaler(namespace, name).await {
        Ok(ehpa) => return Ok(Autoscaler::Effective(Arc::new(ehpa))),
        // A FederatedHPA may have this name.
        Err(ClusterError::NotFound { .. }) => {}
        Err(error) => return Err(failed(&error)),
    }
    match connection.federated(namespace, name).await {
        Ok(fdhpa) => Ok(Autoscaler::Federated(Arc::new(fdhpa))),
        Err(ClusterError::NotFound { .. }) => Err(Failure::runtime(format!(
            "no EffectiveHorizontalPodAutoscaler or FederatedHPA {namespace}/{name} found; list them with: \
             foretide explain -n {namespace}, or of all namespaces with: foretide explain -A"
        ))),
        Err(error) => Err(failed(&error)),
    }
}

/// The namespace of an object: before its name, of the flag, or of the context.
fn namespace<'a>(
    connection: &'a Connection,
    args: &'a ClusterArgs,
    object: &'a ObjectName,
) -> Result<&'a str, Failure> {
    match (&object.namespace, &args.namespace) {
        (Some(own), Some(flag)) if own != flag => Err(Failure::usage(format!(
            "{own}/{} is not in the namespace {flag} of --namespace; expected one of the two",
            object.name
        ))),
        (Some(named), _) | (None, Some(named)) => Ok(named),
        (None, None) => Ok(connection.namespace()),
    }
}

/// Every autoscaler of a namespace or of all, one row each.
async fn list(
    connection: &Connection,
    args: &ExplainArgs,
    context: &CommandContext,
) -> Result<CommandOutput, Failure> {
    let own = args.cluster.namespace.as_deref();
    let own = own.unwrap_or_else(|| connection.namespace());
    let namespace = (!args.cluster.all_namespaces).then_some(own);
    let listed = connection.autoscalers(namespace).await;
    let (ehpas, fdhpas) = listed.map_err(|error| failed(&error))?;
    let ehpas = ehpas
        .into_iter()
        .map(|it| Autoscaler::Effective(Arc::new(it)));
    let fdhpas = fdhpas
        .into_iter()
        .map(|it| Autoscaler::Federated(Arc::new(it)));
    let mut all: Vec<_> = ehpas.chain(fdhpas).collect();
    all.sort_by_cached_key(|it| (it.namespace().to_owned(), it.name().to_owned()));
    if all.is_empty() {
        let place = namespace.map_or("any namespace".to_owned(), |name| {
            format!("namespace {name}")
        });
        return Err(Failure::runtime(format!(
            "no EffectiveHorizontalPodAutoscaler or FederatedHPA found in {place}"
        )));
    }
    Ok(table::listed(&all, args.output, context.screen))
}

fn failed(error: &ClusterError) -> Failure {
    Failure::runtime(chain(error))
}

/// The client library's errors repeat their sources, so one of them is enough.
fn unconnected(error: &ConnectError) -> Failure {
    let cause = std::error::Error::source(error).map(|source| format!(": {source}"));
    let cause = cause.unwrap_or_default();
    Failure::runtime(format!(
        "{error}{cause}; select another one with --kubeconfig or --context"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_namespace_before_it_and_nothing_else() {
        let object = |namespace: Option<&str>, name: &str| ObjectName {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        for (text, want) in [
            ("web", Some(object(None, "web"))),
            ("shop/web", Some(object(Some("shop"), "web"))),
            ("shop/web/x", None),
            ("/web", None),
            ("shop/", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<ObjectName>().ok(), want, "{text}");
        }
    }
}
