//! The demo of `rig up --members N`: a hub, members of different size, the demo's Deployment in each of them, and its
//! load shared over all pods of the fleet, as a global load balancer shares it. It leaves scaling to the controllers.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use rig::{
    Cluster, ClusterOptions, Component, Demand, Fleet, History, HpaFlags, NodeSize, Prometheus,
};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{demo, say};

/// The namespace of the members' Secrets in the hub, and of the hub's service account in a member.
const SYSTEM: &str = "foretide-system";
/// The permissions of the hub in a member.
const PERMISSIONS: &str = include_str!("member.yaml");
/// The account in `PERMISSIONS`.
const ACCOUNT: &str = "foretide-hub";
/// Cores of the members' nodes, repeated in this order.
const CORES: [&str; 3] = ["2", "4", "8"];

/// Starts a fleet, prints how to use it, and drives its load forever.
pub(crate) async fn keep(members: usize, demand: Option<&Demand>) -> rig::Result<()> {
    let fleet = Fleet::start(hub(), (1..=members).map(member).collect()).await?;
    let prometheus = Prometheus::start(&history(&fleet, demand)).await?;
    fleet.hub.namespace(SYSTEM).await?;
    for (name, member) in fleet.members() {
        member.cluster.apply(PERMISSIONS).await?;
        demo::deploy(&member.cluster).await?;
        let kubeconfig = member.kubeconfig(SYSTEM, ACCOUNT).await?;
        let metadata = json!({"labels": {"foretide.io/region": name}});
        fleet
            .register_member(name, SYSTEM, &kubeconfig, &metadata)
            .await?;
    }
    print_instructions(&fleet, &prometheus);
    match demand {
        Some(demand) => {
            tokio::join!(run_commands(&fleet), drive(&fleet, demand));
        }
        None => run_commands(&fleet).await,
    }
    std::future::pending().await
}

fn hub() -> ClusterOptions {
    ClusterOptions::named("hub")
        .without(Component::KubeScheduler)
        .without(Component::Kwok)
        .hpa(HpaFlags::upstream())
        .nodes(0, NodeSize::new("1", "1Gi", 1))
}

fn member(number: usize) -> ClusterOptions {
    let cores = CORES.iter().cycle().nth(number.saturating_sub(1));
    ClusterOptions::named(&format!("member{number}"))
        .with(Component::MetricsServer)
        .hpa(HpaFlags::upstream())
        .nodes(1, NodeSize::new(cores.unwrap_or(&"2"), "64Gi", 110))
}

/// In the past, every member had the same demand.
fn history(fleet: &Fleet, demand: Option<&Demand>) -> History {
    let Some(demand) = demand else {
        return History::new();
    };
    let span = demo::sample_span(demand, demo::now());
    let container = ["default", demo::PAST_POD, demo::NAME];
    let members: Vec<&str> = fleet.members().map(|(name, _)| name).collect();
    let share = 1.0 / f64::from(u32::try_from(members.len()).unwrap_or(u32::MAX).max(1));
    members.iter().fold(History::new(), |history, member| {
        history.cpu_usage_in(member, container, span, |at| demand.cores(at) * share)
    })
}

fn print_instructions(fleet: &Fleet, prometheus: &Prometheus) {
    say(&format!(
        "export KUBECONFIG={}\nexport FORETIDE_PROMETHEUS={}",
        fleet.hub.kubeconfig_path().display(),
        prometheus.url(),
    ));
    for (name, member) in fleet.members() {
        let path = member.cluster.kubeconfig_path();
        say(&format!(
            "export {}={}",
            name.to_uppercase(),
            path.display()
        ));
    }
    say(&format!(
        "The hub is KUBECONFIG; it knows its members by Secrets in {SYSTEM}. \
         Deployment default/{} runs in each of them.\n\
         Type `block member2` to cut a member off, `open member2` to let it back. \
         Ctrl-C ends everything.",
        demo::NAME,
    ));
}

/// Runs `block` and `open` commands from standard input until it ends.
async fn run_commands(fleet: &Fleet) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<&str> = line.split_whitespace().collect();
        let named = |name: &str| fleet.members().find(|(member, _)| *member == name);
        match words.as_slice() {
            ["block", name] if let Some((_, member)) = named(name) => member.block(),
            ["open", name] if let Some((_, member)) = named(name) => member.unblock(),
            [] => {}
            _ => say("expected `block MEMBER` or `open MEMBER`"),
        }
    }
}

/// Shares the present demand among the pods of the fleet, forever.
async fn drive(fleet: &Fleet, demand: &Demand) -> ! {
    let selector = format!("run={}", demo::NAME);
    let mut beat = tokio::time::interval(demo::BEAT);
    loop {
        beat.tick().await;
        let mut serving = Vec::new();
        for (_, member) in fleet.members() {
            // A member that does not answer receives no load.
            let pods = running(&member.cluster, &selector)
                .await
                .unwrap_or_default();
            serving.push((&member.cluster, pods));
        }
        let all: f64 = serving.iter().map(|(_, pods)| pods).sum();
        for (cluster, pods) in serving.into_iter().filter(|(_, pods)| *pods > 0.0) {
            let cores = demand.cores(demo::now()) * pods / all;
            if let Err(failure) = cluster.share_cpu("default", &selector, cores).await {
                demo::print_error(&failure);
            }
        }
    }
}

async fn running(cluster: &Cluster, selector: &str) -> kube::Result<f64> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    let only = ListParams::default()
        .labels(selector)
        .fields("status.phase=Running");
    let count = pods.list(&only).await?.items.len();
    Ok(f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
}
