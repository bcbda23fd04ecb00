//! `foretide members check`: is a member all that the hub needs?
//!
//! Reads its Secret as the controller does, connects with what is in it, and asks for each right by itself. It refuses
//! to mend anything: `add` does.

use super::{HubArgs, unconnected};
use crate::{
    adapters::members::{Access, Deed, Desk},
    cli::{
        exit::Exit,
        output::{Answer, Failure, Paint, Screen, Side},
    },
    validate::chain,
};

/// The oldest Kubernetes that a member may have.
const OLDEST: (u32, u32) = (1, 33);

/// Arguments of `foretide members check`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct CheckArgs {
    /// Name of the member
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    hub: HubArgs,
    /// Ask for the rights to place workloads too, for workloadSource: Hub
    #[arg(long)]
    place: bool,
}

/// What was found in a member.
#[derive(Debug, Clone, PartialEq)]
struct Findings {
    version: (u32, u32),
    rights: Vec<(Deed, bool)>,
}

/// Checks a member.
pub(super) async fn run(args: &CheckArgs, screen: Screen) -> Result<Answer, Failure> {
    let access = access(args).await?;
    let member = Desk::of_member(&access);
    let member = member.map_err(|error| unconnected(&error, "foretide members add"))?;
    let failed = |error| Failure::runtime(format!("member {}: {}", args.name, chain(&error)));
    let found = Findings {
        version: member.version().await.map_err(failed)?,
        rights: member.may(args.place).await.map_err(failed)?,
    };
    Ok(answer(args, &access.host(), &found, screen))
}

/// How the hub reaches the member.
async fn access(args: &CheckArgs) -> Result<Access, Failure> {
    let hub = args.hub.desk().await?;
    let members = hub.enrolled(&args.hub.settings()).await;
    let members = members.map_err(|error| Failure::runtime(chain(&error)))?;
    let name = &args.name;
    let Some(member) = members.into_iter().find(|member| member.name == *name) else {
        let (namespace, label) = (&args.hub.namespace, &args.hub.secret_label);
        return Err(Failure::runtime(format!(
            "no member {name}: namespace {namespace} has no Secret of that name with the label {label}"
        )));
    };
    let problem = member.problem.unwrap_or_default();
    member
        .access
        .ok_or_else(|| Failure::invalid(format!("the Secret of member {name}: {problem}")))
}

fn answer(args: &CheckArgs, host: &str, found: &Findings, screen: Screen) -> Answer {
    let name = &args.name;
    let place = if args.place { " --place" } else { "" };
    let Findings { version, rights } = found;
    let old = *version < OLDEST;
    let mut rows = vec![[
        format!("Kubernetes {}.{}", version.0, version.1),
        state(!old, screen),
        format!("{}.{} or later is needed", OLDEST.0, OLDEST.1),
    ]];
    rows.extend(rights.iter().map(|(deed, allowed)| {
        [
            deed.to_string(),
            state(*allowed, screen),
            deed.purpose.to_owned(),
        ]
    }));
    let missing = rights.iter().filter(|(_, allowed)| !allowed).count();
    let header = [
        ("RIGHT", Side::Left),
        ("STATE", Side::Left),
        ("FOR", Side::Left),
    ];
    let verdict = match (old, missing) {
        (false, 0) => format!("member {name} at {host} has all that is needed"),
        (_, 0) => format!("member {name} at {host} is too old"),
        (_, n) => format!(
            "member {name} at {host} lacks {n} of {} rights; foretide members add{place} grants them",
            rights.len()
        ),
    };
    Answer {
        text: format!("{}{verdict}\n", screen.table(header, &rows)),
        exit: if old || missing > 0 {
            Exit::Runtime
        } else {
            Exit::Ok
        },
        ..Answer::default()
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
    fn what_is_missing_is_named_and_fails() {
        let deed = |verb| Deed {
            group: "apps",
            resource: "deployments/scale",
            verb,
            purpose: "scaling",
        };
        let found = Findings {
            version: (1, 36),
            rights: vec![(deed("get"), true), (deed("patch"), false)],
        };
        let args = CheckArgs {
            name: "one".into(),
            hub: crate::cli::members::list::tests::hub(),
            place: true,
        };
        let answer_to = |found: &Findings| answer(&args, "one.example", found, Screen::default());
        let shown = answer_to(&found);
        let expected = "\
RIGHT                           STATE    FOR
Kubernetes 1.36                 ok       1.33 or later is needed
get deployments/scale (apps)    ok       scaling
patch deployments/scale (apps)  missing  scaling
member one at one.example lacks 1 of 2 rights; foretide members add --place grants them
";
        assert_eq!((shown.text.as_str(), shown.exit), (expected, Exit::Runtime));
        let old = Findings {
            version: (1, 32),
            rights: Vec::new(),
        };
        assert_eq!(answer_to(&old).exit, Exit::Runtime);
        let new = Findings {
            version: (1, 33),
            ..old
        };
        assert_eq!(answer_to(&new).exit, Exit::Ok);
    }
}
