//! The laws of the two lanes, over a model of the real autoscaler.

mod lockstep;
mod phases;
mod restarts;
mod scenarios;
mod sentences;
mod steps;
mod table;
mod world;
