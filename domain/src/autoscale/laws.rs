//! The laws of the two lanes, over a model of the real autoscaler.

mod counterexamples;
mod decisions;
mod lockstep;
mod messages;
mod metric_mode;
mod phases;
mod restarts;
mod scenarios;
mod undivided;
mod world;
