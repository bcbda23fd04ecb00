//! The laws of the two lanes, over a model of the real autoscaler.

mod lockstep;
mod scenarios;
mod world;
