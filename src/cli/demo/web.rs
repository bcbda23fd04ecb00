//! The simulated cluster of `foretide demo --web`: autoscalers of four namespaces, and a fleet of clusters.
//!
//! ```text
//! generated demand -> sim::Run, FleetSimulation -> Record, minute by minute -> DecisionLog -> Page
//! ```
//!
//! The last days are replayed at once; from then on a simulated minute takes a second, or another time. Every decision and
//! forecast is the controller's own, and so are the texts of the statuses.

mod fleet;
mod simulation;
mod workloads;

use std::{collections::VecDeque, fmt, future::Future, sync::Arc, time::Duration};

use foretide_crds::{EffectiveHorizontalPodAutoscalerStatus, ReplicaChangeStatus};
use foretide_domain::{Replicas, autoscale::Decision, sim::MINUTE};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use parking_lot::Mutex;

use self::{fleet::FleetRun, workloads::Workloads};
use crate::cli::{context::CommandContext, output::Failure};
use foretide_api::status::{
    decided_condition, decision_status, window_status, with_transition_times,
};
use foretide_base::clock::Clock;
use foretide_page::{DecisionLog, Health, Host, MemberState, Page, api::SourceHealth};

/// The end of the replay, at which the simulation goes on: a Tuesday, 10 March 2026, 08:50 UTC.
const PRESENT: Timestamp = Timestamp::constant(1_773_132_600, 0);
/// Length of the replay: enough for a back-test, which learns from two days before it evaluates.
const REPLAYED: SignedDuration = SignedDuration::from_hours(96);
/// Length of the generated demand, after which the demo starts over.
const LENGTH: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Period of the clock's moves.
const TICK: Duration = Duration::from_millis(100);
/// Number of changes of the replicas in a status.
const CHANGES: usize = 10;

/// The first moment that is replayed.
fn replay_begin() -> Timestamp {
    PRESENT.checked_sub(REPLAYED).unwrap_or(PRESENT)
}

/// The simulation as the page shows it.
#[derive(Debug)]
struct DemoHost {
    clock: Clock,
    speed: f64,
    members: Mutex<Vec<MemberState>>,
}

/// The page of a simulated cluster, and the task that drives it until it is dropped; `speed` is the number of simulated
/// seconds per second after the replay.
///
/// # Errors
/// An example cannot be used, which a test rules out.
pub fn start(
    context: &CommandContext,
    speed: f64,
) -> Result<(Arc<Page>, impl Future<Output = ()> + Send + use<>), Failure> {
    let log = Arc::new(DecisionLog::default());
    let host = Arc::new(DemoHost {
        clock: Clock::standing_at(replay_begin()),
        speed,
        members: Mutex::default(),
    });
    let workloads = Workloads::new(context)?;
    // A first fleet checks the example, because the task could not report an error.
    drop(FleetRun::new(context)?);
    let page = Arc::new(Page::new(
        Arc::clone(&log),
        Arc::clone(&host) as Arc<dyn Host>,
    ));
    let context = context.clone();
    let served = Arc::clone(&page);
    let run = async move {
        loop {
            let Ok(mut fleet) = FleetRun::new(&context) else {
                return;
            };
            drive(&workloads, &mut fleet, &served, &host).await;
        }
    };
    Ok((page, run))
}

/// Runs from the beginning of the replay to the end of the generated demand.
async fn drive(workloads: &Workloads, fleet: &mut FleetRun, page: &Page, host: &DemoHost) {
    let mut runs = workloads.runs();
    let begin = replay_begin();
    let end = PRESENT.checked_add(LENGTH).unwrap_or(PRESENT);
    let mut now = begin;
    while now < end {
        let is_live = now >= PRESENT;
        host.clock.set(now);
        for run in &mut runs {
            run.minute(now, page.log());
            // Each minute may make a forecast, which takes some milliseconds: requests have their turn in between.
            tokio::task::yield_now().await;
        }
        let members = fleet.minute(now, page.log());
        *host.members.lock() = members;
        now = now.checked_add(MINUTE).unwrap_or(end);
        if is_live {
            page.refresh_worth();
            host.run_to(now).await;
        }
    }
}

// === impl DemoHost ===

impl DemoHost {
    /// Returns whether the last days are still replayed, as fast as they can be.
    fn replays(&self) -> bool {
        self.clock.now() < PRESENT
    }

    /// Lets the clock run to a later time, at the speed of the demo.
    async fn run_to(&self, later: Timestamp) {
        let span = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        loop {
            let left = later.duration_since(self.clock.now());
            let Some(left) = Duration::try_from(left).ok().filter(|left| !left.is_zero()) else {
                return;
            };
            let tick = TICK.min(span(left.as_secs_f64() / self.speed));
            tokio::time::sleep(tick).await;
            let passed = span(tick.as_secs_f64() * self.speed);
            // A tick that is shorter than `TICK` is the last one, and ends the minute exactly, without an error of
            // rounding.
            self.clock
                .advance(if tick < TICK { left } else { passed.min(left) });
        }
    }
}

impl Host for DemoHost {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn speed(&self) -> f64 {
        if self.replays() { 0.0 } else { self.speed }
    }

    fn source(&self) -> &'static str {
        "demo"
    }

    fn leader(&self) -> Option<String> {
        Some("the demo".to_owned())
    }

    fn health(&self) -> Health {
        Health {
            unready: self
                .replays()
                .then(|| "replaying the last four days".to_owned()),
            sources: ["simulated demand", "simulated clusters"]
                .map(|name| SourceHealth {
                    name: name.to_owned(),
                    healthy: true,
                    age_seconds: Some(0.0),
                    errors: 0,
                    problem: String::new(),
                })
                .into(),
            ..Health::default()
        }
    }

    fn members(&self) -> Vec<MemberState> {
        self.members.lock().clone()
    }
}

/// The status of one simulated autoscaler, from minute to minute.
#[derive(Debug, Default)]
struct StatusTrack {
    conditions: Option<Vec<Condition>>,
    changes: VecDeque<ReplicaChangeStatus>,
}

// === impl StatusTrack ===

impl StatusTrack {
    /// The status after a decision; `from` and `to` are the counts before and after it was carried out.
    fn status(
        &mut self,
        decision: &Decision,
        (from, to): (Replicas, Replicas),
        more: impl IntoIterator<Item = Condition>,
    ) -> EffectiveHorizontalPodAutoscalerStatus {
        let mut conditions: Vec<Condition> = decision
            .conditions
            .iter()
            .map(|one| decided_condition(one.kind.as_str(), one))
            .collect();
        for condition in more {
            conditions.retain(|known| known.type_ != condition.type_);
            conditions.insert(0, condition);
        }
        let conditions = with_transition_times(conditions, self.conditions.as_deref(), decision.at);
        self.conditions = Some(conditions.clone());
        if from != to {
            self.changes.push_back(ReplicaChangeStatus {
                time: Time(decision.at),
                from: from.as_i32(),
                to: to.as_i32(),
                message: decision.message(),
            });
            if self.changes.len() > CHANGES {
                self.changes.pop_front();
            }
        }
        EffectiveHorizontalPodAutoscalerStatus {
            expect_replicas: Some(decision.desired.as_i32()),
            current_replicas: Some(to.as_i32()),
            last_scale_time: self.changes.back().map(|change| change.time.clone()),
            conditions: Some(conditions),
            decision: Some(decision_status(decision)),
            windows: (!decision.windows.is_empty()).then(|| window_status(decision)),
            changes: Some(self.changes.iter().cloned().collect()),
            ..EffectiveHorizontalPodAutoscalerStatus::default()
        }
    }
}

/// An example that cannot be used.
fn unusable(error: impl fmt::Display) -> Failure {
    Failure::invalid(error.to_string())
}

#[cfg(test)]
mod tests;
