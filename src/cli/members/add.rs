//! `foretide members add`: makes a cluster a member, or prints the manifests for it.
//!
//! Name, taints and address are validated before anything is written. A repeated command applies only the differences.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::Value;

use super::{
    HubArgs, NAMESPACE,
    manifests::{MemberSecret, TOKEN, in_hub, in_member, kubeconfig},
};
use crate::cli::{
    cluster::{FLAGS, unconnected},
    output::{CommandOutput, Failure},
};
use foretide_api::ports::ClusterError;
use foretide_base::{error::chain, machine::Machine};
use foretide_kube::members::{
    Access, AdminClient, ApiServer, JoinFailure, ZONE_SEPARATOR, describe, invalid_taints,
};

/// Arguments of `foretide members add`.
#[derive(Debug, Clone, clap::Args)]
pub struct AddArgs {
    /// Name of the member, and of its Secret
    #[arg(value_name = "NAME", value_parser = object_name)]
    name: String,
    /// Kubeconfig file of the member, for a user who may create accounts and roles there
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Context of that kubeconfig [default: its current one]
    #[arg(long)]
    context: Option<String>,
    /// Address of the member as the hub reaches it [default: that of the kubeconfig]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    hub: HubArgs,
    /// Cloud provider of the member
    #[arg(long, value_parser = label_value)]
    provider: Option<String>,
    /// Region of the member
    #[arg(long, value_parser = label_value)]
    region: Option<String>,
    /// Zones of the member; repeatable, or comma-separated
    #[arg(long = "zone", value_delimiter = ',', value_parser = label_value)]
    zones: Vec<String>,
    /// Taint of the member, as KEY=VALUE:EFFECT or KEY:EFFECT; repeatable
    #[arg(long = "taint", value_name = "TAINT", value_parser = taint)]
    taints: Vec<String>,
    /// Name of the controller's --prometheus-endpoint that holds the history of this member
    #[arg(long, value_name = "NAME")]
    prometheus: Option<String>,
    /// Let the hub place workloads in the member, for workloadSource: Hub
    #[arg(long)]
    place: bool,
    /// Print what would be applied, without applying it
    #[arg(long)]
    dry_run: bool,
    /// Print the manifests instead of applying them
    #[arg(short, long, value_enum)]
    output: Option<ManifestFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ManifestFormat {
    /// Manifests, with a placeholder for the token.
    Yaml,
}

pub fn object_name(text: &str) -> Result<String, String> {
    let mut bytes = text.bytes();
    let fits = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
    let edges = text.starts_with(['-', '.']) || text.ends_with(['-', '.']);
    if text.is_empty() || text.len() > 63 || edges || !fits {
        return Err(
            "expected lower-case letters, digits, '-' and '.', such as member-1".to_owned(),
        );
    }
    Ok(text.to_owned())
}

fn label_value(text: &str) -> Result<String, String> {
    // Without `_`, which labels may have: it separates zones here.
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-.".contains(&b);
    let is_inner = |c: char| !c.is_ascii_alphanumeric();
    let edges = text.starts_with(is_inner) || text.ends_with(is_inner);
    if text.is_empty() || text.len() > 63 || edges || !text.bytes().all(allowed) {
        return Err(
            "expected a label value of letters, digits, '-' and '.', such as eu-west-1".to_owned(),
        );
    }
    Ok(text.to_owned())
}

fn taint(text: &str) -> Result<String, String> {
    match invalid_taints(text).as_slice() {
        [] if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(
            "expected KEY=VALUE:EFFECT with the effect NoSchedule, PreferNoSchedule or NoExecute"
                .to_owned(),
        ),
    }
}

/// Adds a member.
pub async fn run(args: &AddArgs, machine: &Machine) -> Result<CommandOutput, Failure> {
    let server = args.reached_at().await?;
    args.check(&server)?;
    if args.output == Some(ManifestFormat::Yaml) {
        return args.manifests(&server);
    }
    if args.dry_run {
        return Ok(CommandOutput::text(args.summary("would apply")));
    }
    let file = Some(args.kubeconfig.as_path());
    let member = AdminClient::open(file, args.context.as_deref(), machine)
        .await
        .map_err(|error| unconnected(&error, FLAGS))?;
    let hub = args.hub.client(machine).await?;
    args.apply(&server, &member, &hub).await?;
    let (summary, name) = (args.summary("applied"), &args.name);
    Ok(CommandOutput::text(format!(
        "{summary}member {name} added; check it with: foretide members check {name}\n"
    )))
}

// === impl AddArgs ===

impl AddArgs {
    /// The member's server as the hub is to reach it.
    async fn reached_at(&self) -> Result<ApiServer, Failure> {
        let file = Some(self.kubeconfig.as_path());
        let server = ApiServer::from_kubeconfig(file, self.context.as_deref())
            .await
            .map_err(|error| unconnected(&error, FLAGS))?;
        Ok(ApiServer {
            url: self.server.clone().unwrap_or(server.url),
            ..server
        })
    }

    /// Parses the kubeconfig for the hub as the hub parses it.
    fn check(&self, server: &ApiServer) -> Result<(), Failure> {
        // The placeholder stands for a token, because the member has no account yet.
        let text = kubeconfig(&self.name, server, "token").to_string();
        Access::parse(text.as_bytes(), self.hub.allow_loopback)
            .map(drop)
            .map_err(|refusal| {
                let advice = "correct the kubeconfig, or set another address with --server";
                Failure::invalid(format!(
                    "the hub would reject this member: {refusal}; {advice}"
                ))
            })
    }

    /// Writes to the member only after a dry run in the hub.
    async fn apply(
        &self,
        server: &ApiServer,
        member: &AdminClient,
        hub: &AdminClient,
    ) -> Result<(), Failure> {
        let secret = |token: &str| -> Result<Value, Failure> {
            let text = yaml(&kubeconfig(&self.name, server, token))?;
            Ok(in_hub(&self.member_secret(), &text, false))
        };
        let label = &self.hub.secret_label;
        hub.check_secret(&secret("token")?, label)
            .await
            .map_err(|error| Failure::runtime(self.unwritten(&error)))?;
        let objects = in_member(self.place);
        let token = member.join(&objects, NAMESPACE, TOKEN).await.map_err(
            |JoinFailure { applied, error }| {
                Failure::runtime(format!("{}{}", chain(&error), left_behind(&applied)))
            },
        )?;
        hub.apply(&secret(&token)?).await.map_err(|error| {
            let remains: Vec<_> = objects.iter().map(describe).collect();
            Failure::runtime(format!(
                "{}{}",
                self.unwritten(&error),
                left_behind(&remains)
            ))
        })
    }

    /// The error of a write to the hub.
    fn unwritten(&self, error: &ClusterError) -> String {
        let namespace = &self.hub.namespace;
        match error {
            ClusterError::NotFound { .. } => format!(
                "the hub has no namespace {namespace}; install the controller there, or set its namespace with --namespace"
            ),
            other => chain(other),
        }
    }

    fn member_secret(&self) -> MemberSecret {
        let (key, value) = self
            .hub
            .secret_label
            .split_once('=')
            .unwrap_or((&self.hub.secret_label, "true"));
        let zones = self.zones.join(&ZONE_SEPARATOR.to_string());
        let labels = [
            (key, Some(value.to_owned())),
            ("foretide.io/provider", self.provider.clone()),
            ("foretide.io/region", self.region.clone()),
            (
                "foretide.io/zone",
                Some(zones).filter(|zones| !zones.is_empty()),
            ),
        ];
        let taints = self.taints.join(",");
        let annotations = [
            (
                "foretide.io/taints",
                Some(taints).filter(|taints| !taints.is_empty()),
            ),
            ("foretide.io/prometheus", self.prometheus.clone()),
        ];
        MemberSecret {
            name: self.name.clone(),
            namespace: self.hub.namespace.clone(),
            key: self.hub.secret_key.clone(),
            labels: given(labels),
            annotations: given(annotations),
        }
    }

    /// One line per object, with its cluster.
    fn summary(&self, done: &str) -> String {
        let in_hub = in_hub(&self.member_secret(), "", false);
        let member = in_member(self.place).into_iter().map(|it| ("member", it));
        let all = member.chain([("hub", in_hub)]);
        all.map(|(place, it)| format!("{place}: {done} {}\n", describe(&it)))
            .collect::<Vec<_>>()
            .concat()
    }

    fn manifests(&self, server: &ApiServer) -> Result<CommandOutput, Failure> {
        let mut text = String::from("# In the member:\n");
        for manifest in in_member(self.place) {
            text.extend([format!("---\n{}", yaml(&manifest)?)]);
        }
        text.extend([format!(
            "---\n# In the hub, with the token of the member in place of TOKEN:\n\
             # kubectl get secret -n {NAMESPACE} {TOKEN} -o jsonpath='{{.data.token}}' | base64 -d\n"
        )]);
        let kubeconfig = yaml(&kubeconfig(&self.name, server, "TOKEN"))?;
        text += &yaml(&in_hub(&self.member_secret(), &kubeconfig, true))?;
        Ok(CommandOutput::text(text))
    }
}

/// Objects that a failure leaves in the member.
fn left_behind(remains: &[String]) -> String {
    match remains {
        [] => String::new(),
        some => format!(
            "; already created in the member: {}; run the command again, or delete them",
            some.join(", ")
        ),
    }
}

fn given<const N: usize>(pairs: [(&str, Option<String>); N]) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

fn yaml(value: &Value) -> Result<String, Failure> {
    serde_saphyr::to_string(value).map_err(Failure::outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_left_in_the_member_by_a_failure_are_listed() {
        assert_eq!(left_behind(&[]), "");
        let remains = ["Namespace a".to_owned(), "Secret a/b".to_owned()];
        let expected = "; already created in the member: Namespace a, Secret a/b; run the command again, or delete them";
        assert_eq!(left_behind(&remains), expected);
    }
}
