//! `rig up`: keeps a cluster or a fleet, and a Prometheus, running for users. The demo in it is one Deployment (one in
//! each member) under a repeating daily load, with history in Prometheus that reaches a day ahead. Tests do not use
//! it.

mod demo;
mod demo_fleet;

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use rig::{
    Binaries, Clients, Cluster, ClusterOptions, Component, Demand, HpaFlags, KedaClient, NodeSize,
    Prometheus,
};

#[derive(Parser)]
#[command(
    name = "rig",
    about = "A real Kubernetes control plane and Prometheus on loopback"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster, or a hub and its members, and a Prometheus; end them on Ctrl-C
    Up(Up),
    /// Only build the programs (etcd, Kubernetes, kwok, metrics-server, Prometheus; kubectl, Helm and KEDA's client for tests)
    Build,
}

#[derive(clap::Args)]
struct Up {
    /// CPU demand of the demo Deployment in cores: CSV of `timestamp,value`, a day or more
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Number of nodes, 16 cores each
    #[arg(
        long,
        default_value_t = 3,
        value_name = "N",
        conflicts_with = "members"
    )]
    nodes: usize,
    /// Number of member clusters of a hub, with one node each: 2, 4, 8, 2, 4, 8, ... cores
    #[arg(long, value_name = "N")]
    members: Option<usize>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Up(up) => up.run().await,
        Command::Build => tokio::task::block_in_place(build),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("rig: {failure:?}"));
            ExitCode::FAILURE
        }
    }
}

impl Up {
    async fn run(self) -> rig::Result<()> {
        // Installed first: Ctrl-C during startup must clean up as well.
        let interrupt = tokio::signal::ctrl_c();
        tokio::select! {
            outcome = self.keep() => outcome,
            _ = interrupt => Ok(()),
        }
    }

    async fn keep(self) -> rig::Result<()> {
        let demand = self.history.as_deref().map(Demand::read).transpose()?;
        let demand = demand.map(|demand| demand.ending_at(demo::now()));
        if let Some(members) = self.members {
            return demo_fleet::keep(members, demand.as_ref()).await;
        }
        let options = ClusterOptions::named("up")
            .with(Component::MetricsServer)
            .hpa(HpaFlags::upstream())
            .nodes(self.nodes, NodeSize::new("16", "64Gi", 110));
        let cluster = Cluster::start(options).await?;
        let prometheus = Prometheus::start(&demo::history(demand.as_ref(), demo::now())).await?;
        demo::deploy(&cluster).await?;
        say(&format!(
            "export KUBECONFIG={}\nexport FORETIDE_PROMETHEUS={}\n\
             Deployment default/{} runs{}. Ctrl-C ends everything.",
            cluster.kubeconfig_path().display(),
            prometheus.url(),
            demo::NAME,
            if demand.is_some() {
                " under the load of the history, live"
            } else {
                ""
            },
        ));
        match &demand {
            Some(demand) => demo::drive(&cluster, demand).await,
            None => std::future::pending().await,
        }
    }
}

fn build() -> rig::Result<()> {
    Binaries::ensure()?;
    Clients::ensure()?;
    KedaClient::ensure().map(drop)
}

/// Prints a line on standard output; a closed reader is no failure.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
