//! One autoscaler over a hub and three real members: each with its own control plane, its own
//! autoscalers and nodes of limited size.

mod load;
mod world;
