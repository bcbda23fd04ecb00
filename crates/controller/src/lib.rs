//! The controller: it keeps every autoscaler's workload at the count that its metrics, forecasts and cron windows ask
//! for.
//!
//! ```text
//! due -> observe -> decide -> apply -> record -> report
//! ```
//!
//! Both kinds of autoscaler use the same loop (`run`); a kind (`kind`) says how its objects are observed, decided and
//! written: `effective` for those of one cluster, `fleet` for those of many. Only `observe`, `apply` and `report`
//! touch a cluster, and only through its port; the decisions are the domain's. A failure of one object stays with it.
//!
//! Each kind runs its own instance of the loop, so that an autoscaler of one cluster never waits for the members of a
//! fleet.

mod apply;
mod child_hpa;
mod conflicts;
mod decide;
mod demand_sample;
mod effective;
mod findings;
mod fleet;
pub mod forecaster;
mod foreign_hpa;
mod foreign_writes;
mod kind;
mod observe;
mod orphans;
mod part;
mod related_hpas;
mod report;
mod run;
mod running_syncs;
mod setup;
mod state;
mod sync;
mod target;
mod work_queue;

pub use self::{
    effective::EffectiveController,
    fleet::FleetController,
    run::Controller,
    setup::{Setup, Shared},
};
