//! `foretide members list`: the members of a hub as they are written down there.
//!
//! Connects to the hub only; `check` connects to a member.

use serde_json::{Value, json};

use super::{HubArgs, unread};
use crate::{
    adapters::members::Enrolled,
    cli::{
        explain::Form,
        output::{Answer, Failure, Screen, Side},
    },
    validate::chain,
};

/// Arguments of `foretide members list`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    hub: HubArgs,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// Lists the members.
pub(super) async fn run(args: &ListArgs, screen: Screen) -> Result<Answer, Failure> {
    let hub = args.hub.desk().await?;
    let members = hub.enrolled(&args.hub.settings()).await;
    let (members, missing) = members.map_err(|error| Failure::runtime(chain(&error)))?;
    let answer = match args.output {
        Form::Text => Answer::text(text(&members, &args.hub, screen)),
        Form::Json => Answer::json("Members", json!({"items": items(&members)})),
    };
    Ok(Answer {
        notes: unread(missing.as_ref()),
        ..answer
    })
}

fn text(members: &[Enrolled], hub: &HubArgs, screen: Screen) -> String {
    if members.is_empty() {
        return format!(
            "no members in namespace {}: no Secret there has the label {}\n",
            hub.namespace, hub.secret_label
        );
    }
    let header = [
        "NAME", "SERVER", "PROVIDER", "REGION", "ZONES", "TAINTS", "PROBLEM",
    ];
    let row = |member: &Enrolled| {
        let [provider, region, zones] = member.place.clone();
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
    };
    let rows: Vec<_> = members.iter().map(row).collect();
    screen.table(header.map(|name| (name, Side::Left)), &rows)
}

fn items(members: &[Enrolled]) -> Vec<Value> {
    let item = |member: &Enrolled| {
        let [provider, region, zones] = &member.place;
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
    };
    members.iter().map(item).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A hub with every default.
    pub(in crate::cli::members) fn hub() -> HubArgs {
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
    fn members_are_rows_and_what_is_wrong_is_said() {
        let good = Enrolled {
            name: "one".into(),
            host: Some("one.example:6443".into()),
            place: ["onprem".into(), "eu".into(), "a,b".into()],
            taints: vec!["upkeep:NoSchedule".into()],
            problem: None,
            access: None,
        };
        let bad = Enrolled {
            name: "two".into(),
            host: None,
            place: Default::default(),
            taints: Vec::new(),
            problem: Some("data.kubeconfig is missing".into()),
            access: None,
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
}
