//! The product in simulated clusters and in virtual time: scripted tests, and scenarios that seeds of faults play.
//!
//! ```text
//! cluster        the product's processes on hosts, SimKube with the rights of deploy/, the world, time second by second
//! fleet          the same with member clusters and fleets over them
//! hpa            the HPA controller of the cluster, by the algorithm that the vectors check
//! laws, log      what must hold after every second, and what must not be in the log, whatever fails
//!
//! autoscalers    single objects whose specs are wrong, whose writes fail or whose metrics are old
//! changes        their changes of replicas and problems, in events and statuses
//! keda           targets that KEDA scales or has paused
//! metric_mode    children that read what is published
//! predictions    forecasts: their queries, their writes, and what they may cost
//! stored_status  any status that a process before has left
//! signals        what the metrics show of each trouble that an alert is about
//! crashes        a process that ends at each of its writes, compared with one that never does
//!
//! seeds          scenarios with random faults: played, compared with none, replayed, and shrunk
//! single         the scenario of one cluster; schedule says what happens in it
//! forecasts      that of a Prometheus in trouble
//! harmless       that of what must not matter: one tenant in trouble, a clock that is stepped
//! stopped        that of a leader that is stopped while it writes
//! ```

#![cfg(test)]

/// Saves a quarter of a seed's time, which the system's allocator would take.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[path = "../it/alter.rs"]
mod alter;
mod autoscalers;
mod changes;
mod cluster;
mod crashes;
mod cron;
mod faults;
mod fleet;
mod forecasts;
mod harmless;
mod hpa;
#[path = "../../crates/api/tests/hpa_vectors/controller.rs"]
#[expect(
    dead_code,
    reason = "the vectors record more of the controller than a cluster shows"
)]
mod hpa_controller;
mod isolation;
mod keda;
mod laws;
mod log;
mod metric_mode;
mod ownership;
mod predictions;
mod schedule;
mod seeds;
mod signals;
mod silence;
mod single;
mod stopped;
mod stored_status;
mod succession;
