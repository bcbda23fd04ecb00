//! Fleets in simulated clusters: a hub, and members of their own nodes, metrics and HPA controllers.

mod floors;
pub(crate) mod world;
