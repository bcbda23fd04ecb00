//! The configuration of prometheus-adapter as a source of history queries.
//!
//! A cluster that serves custom metrics with prometheus-adapter has a rule for each metric already. The rules are read
//! backwards: from the name of a metric to the series that the adapter derives it from, and to one query for the total
//! of a workload, bound to its namespace. Text in, query text out: Prometheus is not asked which series exist.
//!
//! | file | holds |
//! |---|---|
//! | `config.rs` | the configuration, and which of its rules serve a metric |
//! | `rule.rs` | one rule, and its query |
//! | `naming.rs` | `seriesQuery`, `seriesFilters` and `name`: from metric to series |
//! | `labels.rs` | `resources`: from object to label |
//! | `template.rs` | `metricsQuery` and `containerQuery`: Go templates, filled in |
//! | `fields.rs` | the fields of the YAML document |
//! | `reload.rs` | the configuration in use, while the file changes |

mod config;
mod fields;
mod labels;
mod naming;
mod reload;
mod rule;
mod template;

pub use self::{
    config::AdapterConfig,
    reload::{ReloadOutcome, RulesCache},
    rule::{QueryRequest, RuleError},
};

#[cfg(test)]
mod tests;
