//! Fleets in simulated clusters: a hub, and members of their own nodes, metrics and HPA controllers.

#![expect(
    clippy::too_many_lines,
    reason = "a test is one sequence of steps, and stops at the first failure"
)]

mod assignment;
mod conflicts;
mod deletion;
mod direct;
mod laws;
mod lost;
mod membership;
mod nonparticipants;
mod ownership;
mod permissions;
mod placement;
mod reports;
mod saturated;
mod scale_down;
mod scenario;
mod succession;
pub(crate) mod world;
mod zero;
