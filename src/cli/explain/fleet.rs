//! The part of an explanation that only fleets have: their clusters, with one sentence each.

use foretide_backtest::clock;
use foretide_crds::{ClusterStatus, FederatedHPA};
use foretide_domain::words::counted;
use jiff::{SignedDuration, Timestamp};

use crate::cli::output::{Paint, Screen, cell};

/// Age of an observation at the decision from which a cluster counts as stale.
const STALE: SignedDuration = SignedDuration::from_mins(1);

/// The clusters in a table, and a sentence for each.
pub fn clusters(fdhpa: &FederatedHPA, screen: Screen) -> String {
    let status = fdhpa.status.clone().unwrap_or_default();
    let decided = status.fleet.decision.and_then(|decision| decision.time);
    let clusters = status.clusters.unwrap_or_default();
    if clusters.is_empty() {
        return String::new();
    }
    let header = [
        "CLUSTER",
        ">MIN",
        ">MAX",
        ">FLOOR",
        ">REPLICAS",
        ">READY",
        ">PENDING",
        ">CAPACITY",
        ">USED",
    ];
    let mut text = screen.table(header, clusters.iter().map(row));
    let decided = decided.map(|time| time.0);
    let sentences = clusters.iter().map(|it| sentence(it, decided));
    text.extend(sentences.map(|line| screen.line(None, line)));
    if let Some(unassigned) = status.unassigned.filter(|unassigned| *unassigned > 0) {
        let left = counted(unassigned.unsigned_abs(), "replica");
        let line = format!("no cluster can take {left} of maxReplicas");
        text.extend([format!("{}\n", screen.paint(Paint::Warning, &line))]);
    }
    text
}

fn row(cluster: &ClusterStatus) -> [String; 9] {
    let percent = cluster.utilization.map(|percent| format!("{percent} %"));
    [
        cluster.name.clone(),
        cell(cluster.min),
        cell(cluster.max),
        cell(cluster.floor),
        cell(cluster.current),
        cell(cluster.ready),
        cell(cluster.pending),
        cell(cluster.capacity),
        cell(percent),
    ]
}

fn sentence(cluster: &ClusterStatus, decided: Option<Timestamp>) -> String {
    let reason = cluster.reason.as_deref().unwrap_or("no decision yet");
    let mut text = format!("{}: {reason}", cluster.name);
    if let Some(moved) = &cluster.last_transfer {
        text.extend([format!("; replicas last moved {}", clock(moved.0))]);
    }
    let seen = cluster.observed.as_ref().map(|time| time.0);
    if let (Some(seen), Some(decided)) = (seen, decided)
        && decided.duration_since(seen) > STALE
    {
        text.extend([format!("; last seen {}", clock(seen))]);
    }
    text
}
