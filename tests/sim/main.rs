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

/// Saves a quarter of a seed's time, which the system's allocator would take.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(test)]
#[path = "../it/alter.rs"]
mod alter;
#[cfg(test)]
mod autoscalers;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod cron;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod forecasts;
#[cfg(test)]
mod harmless;
#[cfg(test)]
mod hpa;
#[cfg(test)]
#[path = "../../crates/api/tests/hpa_vectors/controller.rs"]
#[expect(
    dead_code,
    reason = "the vectors record more of the controller than a cluster shows"
)]
mod hpa_controller;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod keda;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod log;
#[cfg(test)]
mod metric_mode;
#[cfg(test)]
mod ownership;
#[cfg(test)]
mod predictions;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod single;
#[cfg(test)]
mod stopped;
#[cfg(test)]
mod stored_status;
#[cfg(test)]
mod succession;
