//! The page of a controller: the state of its process, and the task that compares autoscalers with a plain HPA.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{fleets::Fleets, left_out};
use foretide_api::ports::ServerHealth;
use foretide_base::{
    clock::Contact, leadership::Leadership, machine::Machine, telemetry::Telemetry,
};
use foretide_kube::{
    cluster::{KubeCluster, WatchReport},
    members::MemberReport,
};
use foretide_page::{Health, Host, MemberState, Page, api::SourceHealth};

/// The longest that a watch that works receives nothing, in seconds.
const WATCH_SILENCE: f64 = 60.0;
/// The time between two comparisons with a plain HPA, so that they take little of a processor.
const BETWEEN: SignedDuration = SignedDuration::from_millis(100);
/// The time between two looks for an autoscaler that is due.
const IDLE: SignedDuration = SignedDuration::from_secs(30);

/// State of this process for the page.
#[derive(Debug)]
pub struct PageHost {
    pub machine: Machine,
    pub telemetry: Arc<Telemetry>,
    pub leadership: Leadership,
    pub hub: Arc<KubeCluster>,
    pub members: Arc<Fleets>,
    pub started: Contact,
    pub namespace: Option<String>,
}

impl Host for PageHost {
    fn now(&self) -> Timestamp {
        self.machine.clock().now()
    }

    fn leads(&self) -> bool {
        self.leadership.may_act()
    }

    fn namespace(&self) -> Option<String> {
        self.namespace.clone()
    }

    fn leader(&self) -> Option<String> {
        self.leadership.leader()
    }

    fn health(&self) -> Health {
        let watches = self.hub.watches();
        let servers = self.telemetry.servers();
        Health {
            unready: self.telemetry.unready(),
            lag_seconds: self.telemetry.lag_seconds(),
            sources: watches
                .iter()
                .map(|watch| self.watch(watch))
                .chain(servers.into_iter().map(server))
                .chain(self.memory())
                .collect(),
        }
    }

    fn members(&self) -> Vec<MemberState> {
        self.members.reports().into_iter().map(member).collect()
    }
}

// === impl PageHost ===

impl PageHost {
    fn watch(&self, watch: &WatchReport) -> SourceHealth {
        let age = watch.silent_since(&self.started).age().as_secs_f64();
        let silent = age > WATCH_SILENCE;
        let problem = match &watch.failing {
            Some(failure) => failure.clone(),
            None if silent => format!("nothing received for {age:.0} s"),
            None if watch.unreadable > 0 => {
                format!("{} objects cannot be decoded", watch.unreadable)
            }
            None => String::new(),
        };
        SourceHealth {
            age_seconds: Some(age),
            errors: watch.errors,
            ..source(format!("watch of {}", watch.kind), problem)
        }
    }

    /// The copies of objects in memory, if they have a limit.
    fn memory(&self) -> Option<SourceHealth> {
        let limit = self.machine.memory()?.limit() >> 20;
        let problem = left_out(&self.machine).iter().max_by_key(|(_, objects)| **objects).map_or_else(String::new, |((cluster, namespace), objects)| {
            let place = [("namespace", namespace), ("member", cluster)];
            let place = place.into_iter().filter(|(_, name)| !name.is_empty());
            let place: Vec<_> = place.map(|(what, name)| format!("{what} {name}")).collect();
            let place = place.join(" of ");
            format!(
                "the limit of {limit} MiB does not hold {objects} objects of {place}, which holds most"
            )
        });
        Some(source("memory".to_owned(), problem))
    }
}

/// A source of data, which is healthy without a problem.
fn source(name: String, problem: String) -> SourceHealth {
    SourceHealth {
        name,
        healthy: problem.is_empty(),
        age_seconds: None,
        errors: 0,
        problem,
    }
}

fn server(server: ServerHealth) -> SourceHealth {
    let unanswered = "several queries in a row were not answered";
    let hangs = server.is_circuit_open.then(|| unanswered.to_owned());
    let problem = hangs.or(server.credential_problem).unwrap_or_default();
    source(format!("Prometheus {}", server.name), problem)
}

fn member(report: MemberReport) -> MemberState {
    let silence = report.silence.map(|silence| silence.as_secs_f64());
    MemberState {
        name: report.name,
        ready: report.ready,
        silent_seconds: silence.filter(|_| !report.ready),
    }
}

/// Keeps the comparisons of all autoscalers with a plain HPA at most an hour old.
pub async fn compare(page: Arc<Page>, machine: Machine) {
    loop {
        let next = Arc::clone(&page);
        // Days are simulated, so not on a thread on which syncs run.
        let found = machine.run_blocking(move || next.refresh_worth()).await;
        let pause = if found.unwrap_or(false) {
            BETWEEN
        } else {
            IDLE
        };
        machine.clock().sleep(pause).await;
    }
}
