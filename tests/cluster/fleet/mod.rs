//! What only real members show of a fleet: joining, credentials, `ClusterProfile`s and permissions. Each has its own control
//! plane, its own HPA controller and nodes of limited size. What a fleet decides is proven in `tests/sim/fleet`.

mod credentials;
mod inventory;
mod load;
pub(crate) mod world;
