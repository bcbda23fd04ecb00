//! Settings of the controllers, and the state that they share.

use std::{sync::Arc, time::Duration};

use foretide_api::validation::TargetRules;
use foretide_base::telemetry::Telemetry;
use foretide_domain::{cron::Zone, hpa::Settings};
use foretide_page::DecisionLog;
use jiff::SignedDuration;

use crate::forecaster::forecasts::Forecasts;

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

// === impl Setup ===

impl Setup {
    /// `read_deadline` of the controller: together with the regular wait, less than two sync periods.
    pub const READ_DEADLINE: Duration = Duration::from_secs(10);
    /// `member_deadline` of the controller.
    pub const MEMBER_DEADLINE: Duration = Duration::from_secs(4);
    /// Time that a controller with that deadline takes to end: to observe, to write, and to report.
    pub const TIME_TO_RELEASE: Duration = Self::MEMBER_DEADLINE.saturating_mul(3);
}
