//! `foretide members check`: checks that a member meets all requirements of the hub.
//!
//! The Secret of the member is read as the controller does it, a connection is made with it, and each permission is
//! checked by an access review. `add` repairs missing permissions.

use super::{HubArgs, profiles_warning};
use crate::cli::{
    cluster::unconnected,
    output::{CommandOutput, Failure, Paint, Screen},
};
use foretide_base::exit::Exit;
use foretide_base::{error::chain, machine::Machine};
use foretide_kube::members::{Access, AccessReview, AdminClient};

/// The oldest Kubernetes that a member may have.
const OLDEST: (u32, u32) = (1, 33);

/// Arguments of `foretide members check`.
#[derive(Debug, Clone, clap::Args)]
pub struct CheckArgs {
    /// Name of the member
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    hub: HubArgs,
    /// Check the permissions to place workloads as well, for workloadSource: Hub
    #[arg(long)]
    place: bool,
    /// Check namespaced permissions in this namespace, as --namespace of the controller; repeatable, or comma-separated
    /// [default: all namespaces]
    #[arg(long = "in-namespace", value_name = "NAMESPACE", value_delimiter = ',')]
    in_namespaces: Vec<String>,
}

/// State and permissions of a member.
#[derive(Debug, Clone, PartialEq)]
struct Findings {
    version: (u32, u32),
    /// Reason for which the member is not ready, if there is one.
    unready: Option<String>,
    rights: Vec<(AccessReview, bool)>,
}

/// Checks a member.
pub async fn run(
    args: &CheckArgs,
    screen: Screen,
    machine: &Machine,
) -> Result<CommandOutput, Failure> {
    let (access, notes) = access(args, machine).await?;
    let opened = AdminClient::for_member(&access, machine);
    let member = opened.map_err(|error| unconnected(&error, "foretide members add"))?;
    let failed = |error| Failure::runtime(format!("member {}: {}", args.name, chain(&error)));
    let found = Findings {
        version: member.version().await.map_err(failed)?,
        unready: member.check_ready().await.err().map(|why| why.to_string()),
        rights: member
            .review_access(args.place, &args.in_namespaces)
            .await
            .map_err(failed)?,
    };
    let report = report(args, &access.host(), &found, screen);
    Ok(CommandOutput { notes, ..report })
}

/// The hub's access to the member, and a warning for standard error.
async fn access(args: &CheckArgs, machine: &Machine) -> Result<(Access, String), Failure> {
    let hub = args.hub.client(machine).await?;
    let members = hub.members(&args.hub.settings()).await;
    let (members, missing) = members.map_err(Failure::outside)?;
    let notes = profiles_warning(missing.as_ref());
    let name = &args.name;
    let Some(member) = members.into_iter().find(|member| member.name == *name) else {
        let (namespace, label) = (&args.hub.namespace, &args.hub.secret_label);
        return Err(Failure::runtime(format!(
            "no member {name}: namespace {namespace} has no Secret of that name with the label {label}{}",
            if notes.is_empty() {
                String::new()
            } else {
                format!("\n{}", notes.trim_end())
            }
        )));
    };
    let problem = member.problem.unwrap_or_default();
    member
        .access
        .map(|access| (access, notes))
        .ok_or_else(|| Failure::invalid(format!("the Secret of member {name}: {problem}")))
}

fn report(args: &CheckArgs, host: &str, found: &Findings, screen: Screen) -> CommandOutput {
    let name = &args.name;
    let place = if args.place { " --place" } else { "" };
    let Findings {
        version,
        unready,
        rights,
    } = found;
    let old = *version < OLDEST;
    let mut rows = vec![
        [
            format!("Kubernetes {}.{}", version.0, version.1),
            state(!old, screen),
            format!("{}.{} or later is required", OLDEST.0, OLDEST.1),
        ],
        [
            "GET /readyz".to_owned(),
            match unready {
                None => state(true, screen),
                Some(_) => screen.paint(Paint::Error, "failing"),
            },
            "health checks".to_owned(),
        ],
    ];
    rows.extend(rights.iter().map(|(review, allowed)| {
        [
            review.to_string(),
            state(*allowed, screen),
            review.purpose.to_owned(),
        ]
    }));
    let missing = rights.iter().filter(|(_, allowed)| !allowed).count();
    let header = ["PERMISSION", "STATE", "FOR"];
    let summary = match (old, missing) {
        (false, 0) => match unready {
            None => format!("member {name} at {host} meets all requirements"),
            Some(words) => format!("member {name} at {host} is not ready: {words}"),
        },
        (_, 0) => format!("member {name} at {host} runs an unsupported version of Kubernetes"),
        (_, n) => format!(
            "member {name} at {host} lacks {n} of {} permissions; grant them with: foretide members add{place}",
            rights.len()
        ),
    };
    CommandOutput {
        text: format!("{}{summary}\n", screen.table(header, rows)),
        exit: if old || missing > 0 || unready.is_some() {
            Exit::Runtime
        } else {
            Exit::Ok
        },
        ..CommandOutput::default()
    }
}

fn state(ok: bool, screen: Screen) -> String {
    if ok {
        "ok".to_owned()
    } else {
        screen.paint(Paint::Error, "missing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_permissions_are_listed_and_fail() {
        let review = |verb| AccessReview {
            group: "apps",
            resource: "deployments/scale",
            verb,
            namespace: None,
            purpose: "scaling",
        };
        let found = Findings {
            version: (1, 36),
            unready: None,
            rights: vec![(review("get"), true), (review("patch"), false)],
        };
        let args = CheckArgs {
            name: "one".into(),
            hub: crate::cli::members::list::tests::hub(),
            place: true,
            in_namespaces: Vec::new(),
        };
        let report_of = |found: &Findings| report(&args, "one.example", found, Screen::default());
        let shown = report_of(&found);
        let expected = "\
PERMISSION                      STATE    FOR
Kubernetes 1.36                 ok       1.33 or later is required
GET /readyz                     ok       health checks
get deployments/scale (apps)    ok       scaling
patch deployments/scale (apps)  missing  scaling
member one at one.example lacks 1 of 2 permissions; grant them with: foretide members add --place
";
        assert_eq!((shown.text.as_str(), shown.exit), (expected, Exit::Runtime));
        let old = Findings {
            version: (1, 32),
            unready: None,
            rights: Vec::new(),
        };
        assert_eq!(report_of(&old).exit, Exit::Runtime);
        let new = Findings {
            version: (1, 33),
            ..old
        };
        assert_eq!(report_of(&new).exit, Exit::Ok);
        let unready = Findings {
            unready: Some("etcd failed (HTTP 500)".into()),
            ..new
        };
        let shown = report_of(&unready);
        assert_eq!(shown.exit, Exit::Runtime);
        let summary = "member one at one.example is not ready: etcd failed (HTTP 500)\n";
        assert!(shown.text.ends_with(summary), "{}", shown.text);
    }
}
