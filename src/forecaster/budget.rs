//! The budgets of namespaces: the one price at which the series of a namespace buy replicas, such that together they have
//! at most so many percent more than a plain HPA would have.
//!
//! The price follows from what each quantile would have cost and saved ([`TradeOffs`]), which the forecasters measure. A
//! namespace has its own price, so that none changes the forecasts of another. Series with a quantile of their own, or
//! with another algorithm, have no trade-offs and count neither way.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use foretide_models::{
    Algorithm,
    auto::{Config, ServiceLevel, SharedPrice, TradeOffs},
};
use jiff::SignedDuration;

use super::series_key::SeriesKey;
use crate::{api::validation::CostLimits, clock::Monotonic, telemetry::BudgetGauges};

/// How long a price is kept while the series of its namespace stay the same: the trade-offs are means of days.
const PRICE_PERIOD: SignedDuration = SignedDuration::from_mins(5);

/// What is measured of the series of a namespace, in the order of their keys.
pub(super) type Measured<'a> = BTreeMap<&'a SeriesKey, &'a TradeOffs>;

/// The prices of all namespaces with a limit.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    limits: CostLimits,
    shared: BTreeMap<Arc<str>, Shared>,
}

/// The price of one namespace.
#[derive(Debug)]
struct Shared {
    price: SharedPrice,
    /// Of how many series.
    series: usize,
    due_at: Monotonic,
}

/// Whether an algorithm buys replicas at the price of a budget.
pub(super) fn is_priced(algorithm: &Algorithm) -> bool {
    let Algorithm::Auto(Config { service_level, .. }) = algorithm else {
        return false;
    };
    matches!(service_level, ServiceLevel::Priced { .. })
}

// === impl Budgets ===

impl Budgets {
    pub(super) fn new(limits: CostLimits) -> Self {
        Self {
            limits,
            shared: BTreeMap::new(),
        }
    }

    /// Whether the series of a namespace share a budget.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.limits.percent(namespace).is_some()
    }

    /// What a forecast with this algorithm says about the origin of its quantile.
    pub(super) fn note(&self, namespace: &str, algorithm: &Algorithm) -> Option<Arc<str>> {
        let percent = self.limits.percent(namespace)?;
        if !is_priced(algorithm) {
            return None;
        }
        let note = format!(
            "the quantile is chosen by the budget of namespace {namespace}: at most {percent} % more replicas than a \
             plain HPA"
        );
        Some(note.into())
    }

    /// The price in a namespace, once it is known.
    pub(super) fn price(&self, namespace: &str) -> Option<f64> {
        Some(self.shared.get(namespace)?.price.price)
    }

    /// Computes the prices that are due; forgets namespaces without series.
    pub(super) fn update(&mut self, namespaces: &BTreeMap<Arc<str>, Measured<'_>>, now: Monotonic) {
        self.shared.retain(|name, _| namespaces.contains_key(name));
        for (namespace, measured) in namespaces {
            let entry = self.shared.entry(Arc::clone(namespace));
            if let Entry::Occupied(known) = &entry
                && known.get().series == measured.len()
                && known.get().due_at > now
            {
                continue;
            }
            let percent = self.limits.percent(namespace);
            let price = percent
                .and_then(|percent| SharedPrice::within(percent, measured.values().copied()));
            if let Some(price) = price {
                let shared = Shared {
                    price,
                    series: measured.len(),
                    due_at: now + PRICE_PERIOD.unsigned_abs(),
                };
                entry.insert_entry(shared);
            }
        }
    }

    /// What is published of each.
    pub(super) fn gauges(&self) -> impl Iterator<Item = BudgetGauges<'_>> {
        self.shared.iter().map(|(namespace, shared)| BudgetGauges {
            namespace,
            price: shared.price.price,
            cost_percent: shared.price.cost_percent,
        })
    }
}
