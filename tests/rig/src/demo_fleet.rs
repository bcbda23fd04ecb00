//! The demo of `rig up --members N`: a hub, members of different size, the demo's Deployment in each
//! of them, and its load shared over all pods of the fleet, as a global load balancer shares it. It
//! decides nothing about scaling.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use rig::{
    Cluster, ClusterOptions, Component, Demand, Fleet, History, HpaFlags, NodeSize, Prometheus,
};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{demo, say};

/// Where the hub keeps its members' Secrets, and a member the account that lets the hub in.
const SYSTEM: &str = "foretide-system";
/// What a member lets the hub do.
const RIGHTS: &str = include_str!("member.yaml");
/// The account in `RIGHTS`.
const ACCOUNT: &str = "foretide-hub";
/// Cores of the members' nodes, over and over.
const CORES: [&str; 3] = ["2", "4", "8"];

/// Starts a fleet, tells how to use it, and drives its load for ever.
pub(crate) async fn keep(members: usize, demand: Option<&Demand>) -> rig::Result<()> {
    let fleet = Fleet::start(hub(), (1..=members).map(member).collect()).await?;
    let prometheus = Prometheus::start(&history(&fleet, demand)).await?;
    fleet.hub.namespace(SYSTEM).await?;
    for (name, member) in fleet.members() {
        member.cluster.apply(RIGHTS).await?;
        demo::deploy(&member.cluster).await?;
        let kubeconfig = member.kubeconfig(SYSTEM, ACCOUNT).await?;
        let metadata = json!({"labels": {"foretide.io/region": name}});
        fleet.enlist(name, SYSTEM, &kubeconfig, &metadata).await?;
    }
    tell(&fleet, &prometheus);
    match demand {
        Some(demand) => {
            tokio::join!(obey(&fleet), drive(&fleet, demand));
        }
        None => obey(&fleet).await,
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

/// The demand of the past came from every member alike.
fn history(fleet: &Fleet, demand: Option<&Demand>) -> History {
    let Some(demand) = demand else {
        return History::new();
    };
    let span = demo::told(demand, demo::now());
    let container = ["default", demo::PAST_POD, demo::NAME];
    let members: Vec<&str> = fleet.members().map(|(name, _)| name).collect();
    let share = 1.0 / f64::from(u32::try_from(members.len()).unwrap_or(u32::MAX).max(1));
    members.iter().fold(History::new(), |history, member| {
        history.cpu_usage_in(member, container, span, |at| demand.cores(at) * share)
    })
}

fn tell(fleet: &Fleet, prometheus: &Prometheus) {
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

/// Blocks and opens the roads to members, as people type, until they end their input.
async fn obey(fleet: &Fleet) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<&str> = line.split_whitespace().collect();
        let named = |name: &str| fleet.members().find(|(member, _)| *member == name);
        match words.as_slice() {
            ["block", name] if let Some((_, member)) = named(name) => member.black_hole(),
            ["open", name] if let Some((_, member)) = named(name) => member.restore(),
            [] => {}
            _ => say("expected `block MEMBER` or `open MEMBER`"),
        }
    }
}

/// Shares the demand of the moment among the pods of the fleet, for ever.
async fn drive(fleet: &Fleet, demand: &Demand) -> ! {
    let selector = format!("run={}", demo::NAME);
    let mut beat = tokio::time::interval(demo::BEAT);
    loop {
        beat.tick().await;
        let mut serving = Vec::new();
        for (_, member) in fleet.members() {
            // Who does not answer serves nobody just now.
            let pods = running(&member.cluster, &selector)
                .await
                .unwrap_or_default();
            serving.push((&member.cluster, pods));
        }
        let all: f64 = serving.iter().map(|(_, pods)| pods).sum();
        for (cluster, pods) in serving.into_iter().filter(|(_, pods)| *pods > 0.0) {
            let cores = demand.cores(demo::now()) * pods / all;
            if let Err(failure) = cluster.share_cpu("default", &selector, cores).await {
                demo::complain(&failure);
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
