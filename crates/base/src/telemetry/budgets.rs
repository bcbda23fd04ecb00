//! Metrics of the budgets that the forecasts of a namespace share, in the same registry.

use std::{collections::BTreeSet, sync::atomic::AtomicU64};

use parking_lot::Mutex;
use prometheus_client::metrics::{family::Family, gauge::Gauge};

use super::{Metrics, NamespaceLabels, Telemetry};

/// Metrics of the forecast budget of each namespace.
#[derive(Debug)]
pub(super) struct Budgets {
    price: Family<NamespaceLabels, Gauge<f64, AtomicU64>>,
    cost_percent: Family<NamespaceLabels, Gauge<f64, AtomicU64>>,
    /// The namespaces that have series.
    published: Mutex<BTreeSet<String>>,
}

/// The price of a budget in a namespace, and the cost of its series at that price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetGauges<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The share of minutes that a replica must save to be asked for.
    pub price: f64,
    /// The replicas beyond those of a plain HPA, in percent of them.
    pub cost_percent: f64,
}

// === impl Budgets ===

impl Budgets {
    pub(super) fn new(metrics: &mut Metrics) -> Self {
        Self {
            price: metrics.add(
                "budget_price",
                "Share of minutes that one more replica must save to be asked for, in a \
                 namespace with maxCostPercent",
            ),
            cost_percent: metrics.add(
                "budget_cost_percent",
                "Replicas beyond those of a plain HPA at this price, in percent, by what was \
                 measured of the last days",
            ),
            published: Mutex::default(),
        }
    }
}

impl Telemetry {
    /// Publishes the budgets of all namespaces; others have no series.
    pub fn set_budgets<'a>(&self, budgets: impl IntoIterator<Item = BudgetGauges<'a>>) {
        let Budgets {
            price,
            cost_percent,
            published,
        } = &self.budgets;
        let mut published = published.lock();
        let mut before = std::mem::take(&mut *published);
        for budget in budgets {
            let namespace = budget.namespace.to_owned();
            before.remove(&namespace);
            published.insert(namespace.clone());
            let labels = NamespaceLabels { namespace };
            price.get_or_create(&labels).set(budget.price);
            cost_percent.get_or_create(&labels).set(budget.cost_percent);
        }
        for namespace in before {
            let labels = NamespaceLabels { namespace };
            price.remove(&labels);
            cost_percent.remove(&labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_series_while_it_has_a_budget() {
        let telemetry = Telemetry::default();
        telemetry.set_budgets([BudgetGauges {
            namespace: "shop",
            price: 0.004,
            cost_percent: 14.5,
        }]);
        let text = telemetry.encode();
        assert!(text.contains(r#"foretide_budget_price{namespace="shop"} 0.004"#));
        assert!(text.contains(r#"foretide_budget_cost_percent{namespace="shop"} 14.5"#));
        telemetry.set_budgets([]);
        assert!(!telemetry.encode().contains("shop"));
    }
}
