//! Autoscalers of a cluster, read with the kubeconfig that kubectl would use.

use std::{
    io::{self, Write},
    ops::ControlFlow,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use super::{ExplainArgs, explained, table};
use crate::cli::{
    cluster::{FLAGS, runtime, unconnected},
    context::CommandContext,
    output::{CommandOutput, Failure, Screen},
};
use foretide_api::autoscaler::Autoscaler;
use foretide_api::ports::ClusterError;
use foretide_base::{exit::print_error, machine::Machine};
use foretide_kube::cluster::Connection;

/// Period of the reads of a watched object.
const PERIOD: Duration = Duration::from_secs(2);

/// Flags that select a cluster and a namespace.
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

/// The name of an object, with its namespace if one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    namespace: Option<String>,
    name: String,
}

/// Output of a watch so far.
#[derive(Debug, Default)]
struct Watched {
    /// The last explanation.
    explanation: Option<String>,
    /// Reason for which the object could not be read since.
    problem: Option<String>,
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
pub fn run(args: &ExplainArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    runtime()?.block_on(async {
        let connection = connect(&args.cluster, &context.machine).await?;
        match &args.object {
            Some(object) => {
                let autoscaler = read(&connection, &args.cluster, object).await?;
                Ok(explained(&autoscaler, args, context))
            }
            None => list(&connection, args, context).await,
        }
    })
}

/// Explains one object, and again after each change of the explanation, until the process is ended or nobody reads
/// `to`. After the first explanation, a failed read is reported on standard error, and the next one is awaited.
///
/// # Errors
/// As [`run`] for the first explanation, and when `to` cannot be written.
pub fn watch(
    args: &ExplainArgs,
    context: &CommandContext,
    to: &mut impl Write,
) -> Result<(), Failure> {
    let Some(object) = &args.object else {
        return Err(Failure::usage("--watch needs the NAME of one object"));
    };
    runtime()?.block_on(async {
        let connection = connect(&args.cluster, &context.machine).await?;
        let mut watched = Watched::default();
        loop {
            match read(&connection, &args.cluster, object).await {
                Ok(autoscaler) => {
                    let text = explained(&autoscaler, args, context).text;
                    if watched.explain(text, context.screen, to)?.is_break() {
                        return Ok(());
                    }
                }
                Err(failure) => {
                    if let Some(problem) = watched.fail(failure)? {
                        print_error(&problem);
                    }
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    })
}

// === impl Watched ===

impl Watched {
    /// Prints an explanation that differs from the last one; breaks when nobody reads the output any more.
    ///
    /// # Errors
    /// `to` cannot be written.
    fn explain(
        &mut self,
        text: String,
        screen: Screen,
        to: &mut impl Write,
    ) -> Result<ControlFlow<()>, Failure> {
        self.problem = None;
        if self.explanation.as_ref() == Some(&text) {
            return Ok(ControlFlow::Continue(()));
        }
        let separator = self.explanation.as_ref().map_or("", |_| "\n");
        let printable = screen.printable(&text);
        let written = write!(to, "{separator}{printable}").and_then(|()| to.flush());
        // `printable` borrows the text, which is moved next.
        drop(printable);
        self.explanation = Some(text);
        match written {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            Err(error) => {
                let message = format!("cannot write the output: {error}");
                Err(Failure::runtime(message))
            }
        }
    }

    /// The report of a failed read: each problem once until the object is read again.
    ///
    /// # Errors
    /// Nothing has been explained yet.
    fn fail(&mut self, failure: Failure) -> Result<Option<String>, Failure> {
        if self.explanation.is_none() {
            return Err(failure);
        }
        let problem = Some(failure.message);
        if self.problem == problem {
            return Ok(None);
        }
        self.problem.clone_from(&problem);
        Ok(problem)
    }
}

async fn connect(args: &ClusterArgs, machine: &Machine) -> Result<Connection, Failure> {
    let (file, context) = (args.kubeconfig.as_deref(), args.context.as_deref());
    Connection::from_kubeconfig(file, context, machine)
        .await
        .map_err(|error| unconnected(&error, FLAGS))
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
        // The name may be that of a FederatedHPA.
        Err(ClusterError::NotFound { .. }) => {}
        Err(error) => return Err(Failure::outside(error)),
    }
    match connection.federated(namespace, name).await {
        Ok(fdhpa) => Ok(Autoscaler::Federated(Arc::new(fdhpa))),
        Err(ClusterError::NotFound { .. }) => Err(Failure::runtime(format!(
            "no EffectiveHorizontalPodAutoscaler or FederatedHPA {namespace}/{name} found; list them with: \
             foretide explain -n {namespace}, or of all namespaces with: foretide explain -A"
        ))),
        Err(error) => Err(Failure::outside(error)),
    }
}

/// The namespace of an object: the one before its name, of the flag, or of the context.
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

/// The autoscalers of a namespace or of all, one row each.
async fn list(
    connection: &Connection,
    args: &ExplainArgs,
    context: &CommandContext,
) -> Result<CommandOutput, Failure> {
    let given = args.cluster.namespace.as_deref();
    let own = given.unwrap_or_else(|| connection.namespace());
    let namespace = (!args.cluster.all_namespaces).then_some(own);
    let listed = connection.autoscalers(namespace).await;
    let (ehpas, fdhpas) = listed.map_err(Failure::outside)?;
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
    /// An output that fails with this error.
    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_watched_explanation_is_printed_after_each_change_without_what_a_terminal_obeys() {
        let (mut watched, mut to) = (Watched::default(), Vec::new());
        for text in ["a\n", "a\n", "\u{1b}]52;c;aGk=\u{7}\u{202e}b\n"] {
            let next = watched.explain(text.to_owned(), Screen::default(), &mut to);
            assert_eq!(next, Ok(ControlFlow::Continue(())), "{text:?}");
        }
        let expected = "a\n\n\\u001b]52;c;aGk=\\u0007\\u202eb\n";
        assert_eq!(String::from_utf8(to).unwrap(), expected);
    }

    #[test]
    fn a_watch_ends_without_an_error_when_nobody_reads_it() {
        let explain = |kind| {
            let text = "a\n".to_owned();
            Watched::default().explain(text, Screen::default(), &mut Broken(kind))
        };
        assert_eq!(
            explain(io::ErrorKind::BrokenPipe),
            Ok(ControlFlow::Break(()))
        );
        let full = explain(io::ErrorKind::StorageFull).unwrap_err();
        assert!(
            full.message.starts_with("cannot write the output: "),
            "{full}"
        );
    }

    #[test]
    fn a_failed_read_ends_a_watch_only_before_the_first_explanation() {
        let failure = |message: &str| Failure::runtime(message);
        let mut watched = Watched::default();
        assert_eq!(watched.fail(failure("gone")), Err(failure("gone")));
        let explain = |watched: &mut Watched| {
            let next = watched.explain("a\n".to_owned(), Screen::default(), &mut Vec::new());
            assert_eq!(next, Ok(ControlFlow::Continue(())));
        };
        explain(&mut watched);
        for (message, reported) in [("gone", true), ("gone", false), ("forbidden", true)] {
            let expected = reported.then(|| message.to_owned());
            assert_eq!(watched.fail(failure(message)), Ok(expected), "{message}");
        }
        explain(&mut watched);
        assert_eq!(
            watched.fail(failure("forbidden")),
            Ok(Some("forbidden".to_owned()))
        );
    }
}
