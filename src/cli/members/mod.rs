//! `foretide members`: adds member clusters, lists them, checks one for missing permissions, and removes one.
//!
//! Every object that is written is listed. No credential is printed.

mod add;
mod check;
mod list;
mod manifests;
mod remove;

use std::path::PathBuf;

use self::{add::AddArgs, check::CheckArgs, list::ListArgs, remove::RemoveArgs};
use super::{
    cluster::{self, unconnected},
    context::CommandContext,
    output::{CommandOutput, Failure},
};
use crate::config::{MEMBER_SECRET_KEY, MEMBER_SECRET_LABEL, member_label};
use foretide_api::ports::ClusterError;
use foretide_base::{error::chain, machine::Machine};
use foretide_kube::members::{AdminClient, MemberSettings, Timeouts};

/// Namespace of the controller, and of the hub's account in a member.
pub const NAMESPACE: &str = "foretide-system";

/// Arguments of `foretide members`.
#[derive(Debug, Clone, clap::Args)]
pub struct MembersArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Command {
    /// Add a cluster: create an account with least privileges in it, and a Secret with its kubeconfig in the hub
    Add(Box<AddArgs>),
    /// List the members of a hub
    List(ListArgs),
    /// Connect to a member as the hub does, and report each missing permission
    Check(CheckArgs),
    /// Remove a member on purpose: its shares go to others, its pods end when those are ready, then its Secret is deleted
    Remove(RemoveArgs),
}

/// The hub, and the place of its members' Secrets.
#[derive(Debug, Clone, clap::Args)]
struct HubArgs {
    /// Kubeconfig file of the hub [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    hub_kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig [default: its current one]
    #[arg(long, value_name = "CONTEXT")]
    hub_context: Option<String>,
    /// Namespace of the Secrets, as --member-namespace of the controller
    #[arg(long, default_value = NAMESPACE)]
    namespace: String,
    /// Label of the Secrets, as --member-secret-label of the controller
    #[arg(long, value_name = "LABEL", default_value = MEMBER_SECRET_LABEL, value_parser = member_label)]
    secret_label: String,
    /// Key of the kubeconfig in a Secret, as --member-secret-key of the controller
    #[arg(long, value_name = "KEY", default_value = MEMBER_SECRET_KEY, value_parser = secret_key)]
    secret_key: String,
    /// Allow members on this machine, as --member-allow-loopback of the controller
    #[arg(long)]
    allow_loopback: bool,
}

/// Checks a key of a Secret as the API does.
fn secret_key(text: &str) -> Result<String, String> {
    let mut bytes = text.bytes();
    let fits = bytes.all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if text.is_empty() || text.len() > 253 || !fits {
        return Err("expected letters, digits, '-', '_' and '.', such as kubeconfig".to_owned());
    }
    Ok(text.to_owned())
}

/// The warning that members of `ClusterProfiles` may be missing.
fn profiles_warning(error: Option<&ClusterError>) -> String {
    error.map_or_else(String::new, |error| {
        let cause = chain(error);
        format!("warning: members of ClusterProfiles are not listed: {cause}\n")
    })
}

/// Runs `foretide members`.
///
/// # Errors
/// A cluster cannot be reached or refuses a request, or a kubeconfig cannot be used.
pub fn run(args: &MembersArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    let runtime = cluster::runtime()?;
    let (screen, machine) = (context.screen, &context.machine);
    match &args.command {
        Command::Add(args) => runtime.block_on(add::run(args, machine)),
        Command::List(args) => runtime.block_on(list::run(args, screen, machine)),
        Command::Check(args) => runtime.block_on(check::run(args, screen, machine)),
        Command::Remove(args) => runtime.block_on(remove::run(args, machine)),
    }
}

// === impl HubArgs ===

impl HubArgs {
    async fn client(&self, machine: &Machine) -> Result<AdminClient, Failure> {
        let (file, context) = (self.hub_kubeconfig.as_deref(), self.hub_context.as_deref());
        AdminClient::open(file, context, machine)
            .await
            .map_err(|error| unconnected(&error, "--hub-kubeconfig or --hub-context"))
    }

    fn settings(&self) -> MemberSettings {
        MemberSettings {
            namespace: self.namespace.clone(),
            label: self.secret_label.clone(),
            key: self.secret_key.clone(),
            allow_loopback: self.allow_loopback,
            namespaces: Vec::new(),
            // The default of the controller's --member-lost-after.
            timeouts: Timeouts::new(jiff::SignedDuration::from_secs(45)),
        }
    }
}
