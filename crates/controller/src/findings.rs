//! Findings of the decision about one object for others than the object: the forecaster's tables.
//!
//! A decision changes nothing but the state of its object; what it finds is recorded by the sync.

use foretide_domain::lead_time::LeadTimes;

use super::{decide::Decided, demand_sample::DemandReport, setup::Shared};
use crate::forecaster::shares::FleetMember;

/// Findings of the decision about one object, for others.
#[derive(Debug, Default)]
pub struct Findings {
    /// The demand that was seen, of each workload that is forecast.
    demand: Vec<DemandReport>,
    /// The members whose demand adds up to that of a fleet.
    shares: Option<Vec<FleetMember>>,
}

// === impl Findings ===

impl Findings {
    /// The findings of a fleet, whose demand is that of these members.
    pub fn of_fleet(members: Vec<FleetMember>) -> Self {
        Self {
            shares: Some(members),
            ..Self::default()
        }
    }

    /// Adds what one decision found; the series of its workload are keyed by `uid`.
    pub fn add(&mut self, uid: &str, lead_times: &mut LeadTimes, decided: &Decided) {
        self.demand
            .extend(DemandReport::of(uid, lead_times, decided));
    }

    /// Records everything; `uid` is that of the object.
    pub fn record(self, uid: &str, shared: &Shared) {
        if let Some(members) = self.shares {
            shared.forecasts.shares().report(uid, members);
        }
        for report in self.demand {
            report.record(shared.forecasts.demand_history());
        }
    }
}
