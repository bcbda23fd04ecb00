//! The controller: it keeps every autoscaler's workload at the count that its metrics, forecasts and cron windows ask
//! for.
//!
//! ```text
//! due -> observe -> decide -> apply -> record -> report
//! ```
//!
//! Both kinds of autoscaler use the same loop (`run`); a kind (`kind`) says how its objects are observed, decided and
//! written: `effective` for those of one cluster, [`fleet`] for those of many. Only `observe`, `apply` and `report`
//! touch a cluster, and only through its port; the decisions are the domain's. A failure of one object stays with it.
//!
//! Each kind runs its own instance of the loop, so that an autoscaler of one cluster never waits for the members of a
//! fleet.

mod apply;
pub mod child_hpa;
mod conflicts;
mod decide;
mod demand_sample;
mod effective;
mod findings;
pub mod fleet;
pub mod forecaster;
mod foreign_hpa;
mod foreign_writes;
mod kind;
mod observe;
mod orphans;
mod part;
pub mod related_hpas;
mod report;
mod run;
mod state;
mod sync;
mod target;
mod work_queue;

use std::{future::Future, sync::Arc, time::Duration};

use foretide_domain::{cron::Zone, hpa::Settings};
use jiff::SignedDuration;

use self::{effective::Effective, fleet::Federated, run::Controller};
use crate::forecaster::forecasts::Forecasts;
use foretide_api::ports::{Cluster, Fleet};
use foretide_api::validation::TargetRules;
use foretide_base::{clock::Clock, leadership::Leadership, telemetry::Telemetry};
use foretide_page::DecisionLog;

/// The settings of a controller.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Time between two decisions about one object.
    pub sync_period: SignedDuration,
    /// The zone that `Local` names.
    pub local_zone: Zone,
    /// The algorithm's constants.
    pub settings: Settings,
    /// Time for which an object waits for one metric; what has not come by then is missing, and crons and floors are
    /// carried out without it.
    pub read_deadline: Duration,
    /// The rules for the targets that may be scaled.
    pub targets: Arc<TargetRules>,
    /// Time that one member of a fleet may take to answer everything that one sync asks of it, and then to take
    /// everything that it writes.
    pub member_deadline: Duration,
}

/// State that controllers share with each other and with the forecaster.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The forecasts in force, and the history of what syncs see.
    pub forecasts: Arc<Forecasts>,
    /// The metrics.
    pub telemetry: Arc<Telemetry>,
    /// The log of decisions, for the page.
    pub page: Arc<DecisionLog>,
}

/// The controller of `EffectiveHorizontalPodAutoscaler`s.
#[derive(Debug)]
pub struct EffectiveController<C: Cluster>(Controller<C, Effective<C>>);

/// The controller of `FederatedHPA`s.
#[derive(Debug)]
pub struct FleetController<C: Cluster, F: Fleet>(Controller<C, Federated<C, F>>);

// === impl Setup ===

impl Setup {
    /// `read_deadline` of the controller: together with the regular wait, less than two sync periods.
    pub const READ_DEADLINE: Duration = Duration::from_secs(10);
    /// `member_deadline` of the controller.
    pub const MEMBER_DEADLINE: Duration = Duration::from_secs(4);
    /// Time that a controller with that deadline takes to end: to observe, to write, and to report.
    pub const TIME_TO_RELEASE: Duration = Self::MEMBER_DEADLINE.saturating_mul(3);
}

// === impl EffectiveController ===

impl<C: Cluster> EffectiveController<C> {
    /// A controller without state.
    #[must_use]
    pub fn new(cluster: Arc<C>, clock: Clock, setup: Setup, shared: Shared) -> Self {
        let kind = Effective::new(Arc::clone(&cluster), &setup, shared.clone());
        Self(Controller::new(cluster, kind, clock, setup, shared))
    }

    /// The same controller, which waits while this process is not the leader.
    #[must_use]
    pub fn led_by(self, leadership: Leadership) -> Self {
        Self(self.0.led_by(leadership))
    }

    /// Syncs until `stop` completes.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        self.0.run(stop).await;
    }

    /// One sync over everything that is due.
    pub async fn sync(&mut self) {
        self.0.sync().await;
    }
}

// === impl FleetController ===

impl<C: Cluster, F: Fleet> FleetController<C, F> {
    /// A controller of the fleets whose objects are in the cluster `hub`, without state.
    #[must_use]
    pub fn new(hub: Arc<C>, fleet: Arc<F>, clock: Clock, setup: Setup, shared: Shared) -> Self {
        let kind = Federated::new(Arc::clone(&hub), fleet, &setup, shared.clone());
        Self(Controller::new(hub, kind, clock, setup, shared))
    }

    /// The same controller, which waits while this process is not the leader.
    #[must_use]
    pub fn led_by(self, leadership: Leadership) -> Self {
        Self(self.0.led_by(leadership))
    }

    /// Syncs until `stop` completes, and then ends the scale-down holds of members.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        self.0.run(stop).await;
    }

    /// One sync over everything that is due.
    pub async fn sync(&mut self) {
        self.0.sync().await;
    }
}
