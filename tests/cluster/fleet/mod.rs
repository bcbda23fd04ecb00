//! One autoscaler over a hub and three real members: each with its own control plane, its own
//! autoscalers and nodes of limited size.

mod assignment;
mod bystanders;
mod direct;
mod floors;
mod inventory;
mod load;
mod lost;
mod overflow;
mod ownership;
mod patience;
mod placement;
mod saturated;
mod world;
mod zero;
