//! Lists of autoscalers, one row each; and the last changes of one autoscaler.

use foretide_backtest::clock;
use foretide_crds::ReplicaChangeStatus;
use foretide_domain::proposal::Source;

use super::body;
use crate::cli::output::{CommandOutput, Paint, Screen, TextFormat, cell};
use foretide_api::autoscaler::Autoscaler;
use foretide_base::printable;

/// The autoscalers of a list.
pub fn listed(all: &[Autoscaler], output: TextFormat, screen: Screen) -> CommandOutput {
    if output == TextFormat::Json {
        let items: Vec<_> = all.iter().map(body).collect();
        return CommandOutput::json("ExplanationList", serde_json::json!({ "items": items }));
    }
    let header = [
        "NAMESPACE",
        "NAME",
        ">CURRENT",
        ">DESIRED",
        "WINNER",
        "READY",
    ];
    CommandOutput::text(screen.table(header, all.iter().map(row)))
}

fn row(autoscaler: &Autoscaler) -> [String; 6] {
    let status = autoscaler.status().cloned().unwrap_or_default();
    let winner = status.decision.and_then(|decision| decision.winner);
    let ready = status
        .conditions
        .unwrap_or_default()
        .iter()
        .find(|known| known.type_ == "Ready")
        .map(|ready| match &*ready.status {
            // The usual reason adds nothing to True.
            "True" if ready.reason == "Decided" => ready.status.clone(),
            _ => format!("{} {}", ready.status, ready.reason),
        });
    [
        printable::line(autoscaler.namespace()).to_string(),
        printable::line(autoscaler.name()).to_string(),
        cell(status.current_replicas),
        cell(status.expect_replicas),
        cell(winner.map(Source::as_str)),
        cell(ready),
    ]
}

/// The last changes of the number of replicas, the latest first.
pub fn changes(changes: &[ReplicaChangeStatus], screen: Screen) -> String {
    if changes.is_empty() {
        return "No change of the replicas has been recorded yet.\n".to_owned();
    }
    let arrow = if screen.unicode { "→" } else { "->" };
    let lines = changes.iter().rev().map(|change| {
        let ReplicaChangeStatus {
            time,
            from,
            to,
            message,
        } = change;
        let head = format!("{}  {from} {arrow} {to}", clock(time.0));
        let head = screen.paint(Paint::Strong, &head);
        format!("{head}\n{}", screen.indented(message))
    });
    lines.collect()
}
