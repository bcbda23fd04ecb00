//! `foretide members list`: the members of a hub, and their problems.
//!
//! Each member is asked once whether it is ready, many at the same time; `check` examines one member in detail.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::{HubArgs, profiles_warning};
use crate::cli::output::{CommandOutput, Failure, Screen, TextFormat};
use foretide_base::{error::chain, machine::Machine};
use foretide_kube::members::{AdminClient, FleetShare, ListedMember, Unready};

/// Number of members that are asked at once.
const ASKED_AT_ONCE: usize = 64;

/// Arguments of `foretide members list`.
#[derive(Debug, Clone, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    hub: HubArgs,
    /// List the members without connecting to them
    #[arg(long)]
    offline: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: TextFormat,
}

/// Lists the members.
pub async fn run(
    args: &ListArgs,
    screen: Screen,
    machine: &Machine,
) -> Result<CommandOutput, Failure> {
    let hub = args.hub.client(machine).await?;
    let members = hub.members(&args.hub.settings()).await;
    let (mut members, missing) = members.map_err(Failure::outside)?;
    if !args.offline {
        ask(&mut members, &args.hub.namespace, machine).await;
    }
    let shares = hub.fleet_shares().await;
    let unread = shares.as_ref().err().map(|error| {
        let cause = chain(error);
        format!("warning: shares of members without a Secret are not listed: {cause}\n")
    });
    add_shares(&mut members, &shares.unwrap_or_default());
    let output = match args.output {
        TextFormat::Text => CommandOutput::text(text(&members, &args.hub, screen)),
        TextFormat::Json => CommandOutput::json("Members", json!({"items": items(&members)})),
    };
    Ok(CommandOutput {
        notes: profiles_warning(missing.as_ref()) + &unread.unwrap_or_default(),
        ..output
    })
}

/// Asks every member whether it is ready, and adds its problems; each has its own deadline.
async fn ask(members: &mut [ListedMember], namespace: &str, machine: &Machine) {
    let asked = members.iter().map(|member| async {
        let access = member.access.as_ref()?;
        let found = match AdminClient::for_member(access, machine) {
            Ok(client) => client.check_ready().await,
            Err(error) => Err(Unready::Other(chain(&error))),
        };
        found.err()
    });
    // Buffered in the order of the members, to which the answers are added.
    let asked: Vec<_> = stream::iter(asked).buffered(ASKED_AT_ONCE).collect().await;
    for (member, unready) in members.iter_mut().zip(asked) {
        member.problem = problem(member, unready, namespace);
    }
}

/// Adds the members without a Secret in which fleets have shares, and the progress of those that leave.
fn add_shares(members: &mut Vec<ListedMember>, shares: &[FleetShare]) {
    let mut fleets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for share in shares {
        fleets.entry(&share.member).or_default().push(&share.fleet);
    }
    for member in members.iter_mut() {
        let left = fleets.remove(&*member.name);
        if member.leaving {
            let progress = match left {
                Some(left) => format!("leaving; still in {}", left.join(", ")),
                None => "has left; delete its Secret".to_owned(),
            };
            let all = [Some(progress), member.problem.take()];
            member.problem = Some(all.into_iter().flatten().collect::<Vec<_>>().join("; "));
        }
    }
    let missing = fleets.into_iter().map(|(name, fleets)| {
        let fleets = fleets.join(", ");
        ListedMember {
            name: name.to_owned(),
            problem: Some(format!(
                "its Secret is missing, and {fleets} has a share there; restore the Secret, or remove the member with \
                 foretide members remove {name}"
            )),
            ..ListedMember::default()
        }
    });
    members.extend(missing);
    members.sort_by(|a, b| a.name.cmp(&b.name));
}

/// The problems of a member: of its readiness, and of its Secret.
fn problem(member: &ListedMember, unready: Option<Unready>, namespace: &str) -> Option<String> {
    let unready = unready.map(|unready| match (unready, &member.secret) {
        (Unready::Unauthorized, Some(secret)) => {
            format!("rejects its credentials (HTTP 401); renew them in Secret {namespace}/{secret}")
        }
        (unready, _) => unready.to_string(),
    });
    let all: Vec<String> = unready.into_iter().chain(member.problem.clone()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn text(members: &[ListedMember], hub: &HubArgs, screen: Screen) -> String {
    if members.is_empty() {
        return format!(
            "no members in namespace {}: no Secret there has the label {}\n",
            hub.namespace, hub.secret_label
        );
    }
    let header = [
        "NAME", "SERVER", "PROVIDER", "REGION", "ZONES", "TAINTS", "PROBLEM",
    ];
    screen.table(
        header,
        members.iter().map(|member| {
            let [provider, region, zones] = member.location.clone();
            [
                member.name.clone(),
                member.host.clone().unwrap_or_default(),
                provider,
                region,
                zones,
                member.taints.join(","),
                member.problem.clone().unwrap_or_default(),
            ]
            .map(|cell| {
                if cell.is_empty() {
                    "-".to_owned()
                } else {
                    cell
                }
            })
        }),
    )
}

fn items(members: &[ListedMember]) -> Vec<Value> {
    members
        .iter()
        .map(|member| {
            let [provider, region, zones] = &member.location;
            let zones: Vec<&str> = zones.split(',').filter(|zone| !zone.is_empty()).collect();
            json!({
                "name": member.name,
                "server": member.host,
                "provider": provider,
                "region": region,
                "zones": zones,
                "taints": member.taints,
                "problem": member.problem,
            })
        })
        .collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A hub with every default.
    pub fn hub() -> HubArgs {
        HubArgs {
            hub_kubeconfig: None,
            hub_context: None,
            namespace: "foretide-system".into(),
            secret_label: "a=b".into(),
            secret_key: "kubeconfig".into(),
            allow_loopback: false,
        }
    }

    #[test]
    fn members_are_rows_with_their_problems() {
        let good = ListedMember {
            name: "one".into(),
            host: Some("one.example:6443".into()),
            location: ["onprem".into(), "eu".into(), "a,b".into()],
            taints: vec!["upkeep:NoSchedule".into()],
            secret: Some("one".into()),
            ..ListedMember::default()
        };
        let bad = ListedMember {
            name: "two".into(),
            problem: Some("data.kubeconfig is missing".into()),
            secret: Some("two".into()),
            ..ListedMember::default()
        };
        let shown = text(&[good.clone(), bad], &hub(), Screen::default());
        let expected = "\
NAME  SERVER            PROVIDER  REGION  ZONES  TAINTS             PROBLEM
one   one.example:6443  onprem    eu      a,b    upkeep:NoSchedule  -
two   -                 -         -       -      -                  data.kubeconfig is missing
";
        assert_eq!(shown, expected);
        assert_eq!(items(&[good])[0]["zones"], json!(["a", "b"]));
        let none = "no members in namespace foretide-system: no Secret there has the label a=b\n";
        assert_eq!(text(&[], &hub(), Screen::default()), none);
    }

    #[test]
    fn a_member_that_leaves_has_its_progress_and_one_without_a_secret_its_fleets() {
        let listed = |name: &str, leaving| ListedMember {
            name: name.into(),
            leaving,
            problem: (name == "b").then(|| "no answer within 5 s".to_owned()),
            ..ListedMember::default()
        };
        let mut members = vec![listed("b", true), listed("c", true), listed("d", false)];
        let share = |fleet: &str, member: &str| FleetShare {
            fleet: fleet.into(),
            member: member.into(),
            current: None,
            reason: String::new(),
        };
        let shares = [
            share("shop/web", "a"),
            share("shop/api", "b"),
            share("shop/web", "b"),
            share("shop/web", "d"),
        ];
        add_shares(&mut members, &shares);
        let shown: Vec<_> = members
            .iter()
            .map(|member| (&*member.name, member.problem.as_deref().unwrap_or("-")))
            .collect();
        let missing = "its Secret is missing, and shop/web has a share there; restore the Secret, or remove the \
                       member with foretide members remove a";
        let expected = [
            ("a", missing),
            (
                "b",
                "leaving; still in shop/api, shop/web; no answer within 5 s",
            ),
            ("c", "has left; delete its Secret"),
            ("d", "-"),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn problems_of_readiness_and_of_the_secret_are_listed_together() {
        let member = |secret: Option<&str>, problem: Option<&str>| ListedMember {
            name: "one".into(),
            problem: problem.map(str::to_owned),
            secret: secret.map(str::to_owned),
            ..ListedMember::default()
        };
        let silent = Unready::Timeout(std::time::Duration::from_secs(5));
        for (member, unready, expected) in [
            (member(Some("s"), None), None, None),
            (
                member(Some("s"), None),
                Some(Unready::Unauthorized),
                Some("rejects its credentials (HTTP 401); renew them in Secret ns/s"),
            ),
            (
                member(Some("s"), None),
                Some(silent),
                Some("no answer within 5 s"),
            ),
            (
                member(Some("s"), Some("a bad taint")),
                Some(Unready::Other("etcd failed (HTTP 500)".into())),
                Some("etcd failed (HTTP 500); a bad taint"),
            ),
            (
                member(None, Some("data.kubeconfig is missing")),
                None,
                Some("data.kubeconfig is missing"),
            ),
        ] {
            assert_eq!(problem(&member, unready, "ns").as_deref(), expected);
        }
    }
}
