//! `foretide members remove`: a member leaves on purpose.
//!
//! The member is marked, and its Secret is deleted once no fleet has anything there any more. The controller does the
//! work between; a command that is interrupted can be run again.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use super::{HubArgs, add::object_name};
use crate::{
    cli::output::{CommandOutput, Failure},
    config::parse_duration,
};
use foretide_base::{clock::Clock, machine::Machine};
use foretide_kube::members::{AdminClient, FleetShare, ListedMember};

/// Time between two looks at the fleets.
const PERIOD: Duration = Duration::from_secs(2);

/// Arguments of `foretide members remove`.
#[derive(Debug, Clone, clap::Args)]
pub struct RemoveArgs {
    /// Name of the member
    #[arg(value_name = "NAME", value_parser = object_name)]
    name: String,
    #[command(flatten)]
    hub: HubArgs,
    /// Time to wait until no fleet has a share there any more
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "15m")]
    timeout: jiff::SignedDuration,
    /// Accept a member that is not listed and in no fleet: a controller may still have a connection to it, as long as
    /// its Secret was only deleted
    #[arg(long)]
    force: bool,
    /// Print what the fleets have there, without changing anything
    #[arg(long)]
    dry_run: bool,
}

/// Removes a member.
pub async fn run(args: &RemoveArgs, machine: &Machine) -> Result<CommandOutput, Failure> {
    let hub = args.hub.client(machine).await?;
    let listed = args.listed(&hub).await?;
    let shares = args.shares(&hub).await?;
    if listed.is_none() && shares.is_empty() && !args.force {
        let (name, namespace) = (&args.name, &args.hub.namespace);
        return Err(Failure::runtime(format!(
            "no member {name}: namespace {namespace} has no Secret for it, and no fleet has a share there; \
             foretide members list shows all members; --force removes what a controller may still know of it"
        )));
    }
    if args.dry_run {
        let text = format!("would remove member {}\n{}", args.name, shown(&shares));
        return Ok(CommandOutput::text(text));
    }
    let own = listed.as_ref().and_then(|member| member.secret.as_deref());
    let secret = own.unwrap_or(&args.name);
    // A member without a Secret is marked by a new one, which the controller finds by its label.
    let label = own.is_none().then_some(&*args.hub.secret_label);
    hub.leave(&args.hub.namespace, secret, label)
        .await
        .map_err(Failure::outside)?;
    report(&format!("member {} is leaving\n", args.name));
    args.wait(&hub, machine.clock()).await?;
    args.finish(&hub, listed.as_ref(), secret).await
}

// === impl RemoveArgs ===

impl RemoveArgs {
    /// The member, if it is listed.
    async fn listed(&self, hub: &AdminClient) -> Result<Option<ListedMember>, Failure> {
        let (members, _) = hub
            .members(&self.hub.settings())
            .await
            .map_err(Failure::outside)?;
        Ok(members.into_iter().find(|member| member.name == self.name))
    }

    /// Shares of fleets in the member.
    async fn shares(&self, hub: &AdminClient) -> Result<Vec<FleetShare>, Failure> {
        let mut shares = hub.fleet_shares().await.map_err(Failure::outside)?;
        shares.retain(|share| share.member == self.name);
        Ok(shares)
    }

    /// Waits until no fleet has anything in the member, and shows the remaining shares whenever they change.
    async fn wait(&self, hub: &AdminClient, clock: &Clock) -> Result<(), Failure> {
        let since = clock.monotonic();
        let mut last = Vec::new();
        loop {
            // Waits before the first look, so that the controller knows that the member leaves before its Secret is
            // deleted.
            tokio::time::sleep(PERIOD).await;
            let left = self.shares(hub).await?;
            if left.is_empty() {
                return Ok(());
            }
            if self.has_timed_out(clock.monotonic().since(since)) {
                return Err(Failure::runtime(format!(
                    "member {} still has shares after {:#}; it goes on leaving while the controller runs, and the \
                     command can be run again:\n{}",
                    self.name,
                    self.timeout,
                    shown(&left)
                )));
            }
            if left != last {
                report(&shown(&left));
                last = left;
            }
        }
    }

    fn has_timed_out(&self, waited: Duration) -> bool {
        jiff::SignedDuration::try_from(waited).is_ok_and(|waited| waited >= self.timeout)
    }

    /// Deletes the Secret, if it is the member's own.
    async fn finish(
        &self,
        hub: &AdminClient,
        listed: Option<&ListedMember>,
        secret: &str,
    ) -> Result<CommandOutput, Failure> {
        let (name, namespace) = (&self.name, &self.hub.namespace);
        if listed.is_some_and(|member| member.has_profile) {
            return Ok(CommandOutput::text(format!(
                "member {name} has left; delete its ClusterProfile, and Secret {namespace}/{secret}\n"
            )));
        }
        hub.forget(namespace, secret)
            .await
            .map_err(Failure::outside)?;
        Ok(CommandOutput::text(format!(
            "member {name} removed; Secret {namespace}/{secret} is deleted\n"
        )))
    }
}

/// One line for each fleet.
fn shown(shares: &[FleetShare]) -> String {
    shares
        .iter()
        .map(
            |FleetShare {
                 fleet,
                 current,
                 reason,
                 ..
             }: &FleetShare| match current {
                Some(pods) => format!("  {fleet}: {pods} pods; {reason}\n"),
                None => format!("  {fleet}: unknown pods; {reason}\n"),
            },
        )
        .collect()
}

/// Shows progress to the person who waits.
fn report(text: &str) {
    // A closed standard error does not stop the removal.
    let _printed = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_a_line_for_each_fleet() {
        let share = |fleet: &str, current| FleetShare {
            fleet: fleet.into(),
            member: "east".into(),
            current,
            reason: "Landing: it keeps its pods".into(),
        };
        let shares = [share("shop/web", Some(4)), share("shop/api", None)];
        let expected = "  shop/web: 4 pods; Landing: it keeps its pods\n  \
                        shop/api: unknown pods; Landing: it keeps its pods\n";
        assert_eq!(shown(&shares), expected);
    }
}
