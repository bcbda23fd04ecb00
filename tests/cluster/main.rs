//! Scenarios on a real control plane, real metrics-server and real Prometheus.
//!
//! Every controller runs in this process with the rights of `deploy/`, under a clock that may start
//! elsewhere and run faster. Tests wait on conditions with deadlines and never for a time.

mod beside;
mod conformance;
mod faults;
mod wave;
mod world;
