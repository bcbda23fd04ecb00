//! One autoscaler over a hub and three real members: each has its own control plane, its own HPA controller and nodes
//! of limited size.

mod assignment;
mod direct;
mod floors;
mod inventory;
mod load;
mod lost;
mod nonparticipants;
mod overflow;
mod ownership;
mod placement;
mod saturated;
mod scale_down;
pub(crate) mod world;
mod zero;
