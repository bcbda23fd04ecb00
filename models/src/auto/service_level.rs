//! [`ServiceLevel`]: the part of the demand to provide for, and the quantile that follows from it.

use super::quantile_selector::{DEFAULT_QUANTILE, Goal, PerLevel, QuantileSelector, ReplicaTiming};
use crate::budget::TradeOffs;
use crate::forecast::DemandBounds;
use crate::grid::Grid;
use crate::series::count;

/// Minutes that a replica count is held before it may decrease.
const HELD_MINUTES: i64 = 5;

/// The part of the demand to provide for.
///
/// ```
/// use foretide_models::auto::{Auto, Config, ServiceLevel};
///
/// // One minute in a hundred may be short of replicas that serve half a core each.
/// let service_level = ServiceLevel::UnderProvisioned { percent: 1.0, per_replica: Some(0.5) };
/// assert!(Auto::new(Config { service_level, ..Config::default() }).is_ok());
///
/// let beyond = Config { service_level: ServiceLevel::Quantile(1.0), ..Config::default() };
/// assert_eq!(Auto::new(beyond).unwrap_err().field, "quantile");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ServiceLevel {
    /// The probability with which the peak demand of a decision window stays within the forecast, in `(0, 1)`.
    Quantile(f64),
    /// The lowest quantile that keeps the under-provisioned minutes below a share of all minutes.
    UnderProvisioned {
        /// The largest share of under-provisioned minutes, in percent.
        percent: f64,
        /// The demand that one replica serves, in the unit of the history; `None` treats capacity as continuous.
        per_replica: Option<f64>,
    },
    /// The quantile at which another replica saves as much as it costs, at a price that many series share.
    Priced {
        /// The share of minutes that a replica must save to be worth asking for, as
        /// [`SharedPrice`](crate::SharedPrice) finds it and
        /// [`Forecaster::set_price`](crate::Forecaster::set_price) sets it. Without one, it is
        /// [`DEFAULT_QUANTILE`].
        price: Option<f64>,
        /// The demand that one replica serves, in the unit of the history; `None` treats capacity as continuous.
        per_replica: Option<f64>,
    },
}

/// The quantile in use: fixed, or selected by its measured under-provisioning.
#[derive(Debug, Clone)]
pub enum Quantile {
    Fixed(f64),
    Selected(Box<QuantileSelector>),
}

/// A quantile of [`DEFAULT_QUANTILE`].
impl Default for ServiceLevel {
    fn default() -> Self {
        Self::Quantile(DEFAULT_QUANTILE)
    }
}

// === impl ServiceLevel ===

impl ServiceLevel {
    /// The quantile in use before anything is measured.
    pub(crate) fn initial_quantile(self) -> f64 {
        match self {
            Self::Quantile(quantile) => quantile,
            Self::UnderProvisioned { .. } | Self::Priced { .. } => DEFAULT_QUANTILE,
        }
    }
}

// === impl Quantile ===

impl Quantile {
    /// The quantile for a service level, with a lead time in minutes.
    pub fn new(service_level: ServiceLevel, grid: Grid, lead_minutes: i64) -> Self {
        let (goal, per_replica) = match service_level {
            ServiceLevel::Quantile(quantile) => return Self::Fixed(quantile),
            ServiceLevel::UnderProvisioned {
                percent,
                per_replica,
            } => (Goal::AtMost(percent / 100.0), per_replica),
            ServiceLevel::Priced { price, per_replica } => (Goal::Price(price), per_replica),
        };
        let timing = ReplicaTiming {
            lead: grid.minutes(lead_minutes),
            held: grid.minutes(HELD_MINUTES),
            day: count(grid.day()),
        };
        Self::Selected(Box::new(QuantileSelector::new(goal, per_replica, timing)))
    }

    /// Changes the price, if the quantile is chosen by one.
    pub fn set_price(&mut self, price: f64) {
        if let Self::Selected(selector) = self {
            selector.set_goal(Goal::Price(Some(price)));
        }
    }

    /// The short minutes and the replicas of each level, if they are measured.
    pub fn trade_offs(&self) -> Option<TradeOffs> {
        match self {
            Self::Fixed(_) => None,
            Self::Selected(selector) => selector.trade_offs(),
        }
    }

    /// The quantile in use.
    pub fn get(&self) -> f64 {
        match self {
            Self::Fixed(quantile) => *quantile,
            Self::Selected(selector) => selector.quantile(),
        }
    }

    /// Returns true if the quantile depends on measurements, so that [`step`](Self::step) must be called.
    pub fn is_selected(&self) -> bool {
        matches!(self, Self::Selected(_))
    }

    /// Records the demand of the last step and the bounds that each quantile level gives for the coming windows.
    pub fn step(&mut self, demand: f64, bounds: &PerLevel<Option<DemandBounds>>) {
        if let Self::Selected(selector) = self {
            selector.step(demand, bounds);
        }
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Fixed(_) => 0,
            Self::Selected(selector) => selector.bytes(),
        }
    }
}
