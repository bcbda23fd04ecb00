//! The laws of a fleet, over members alone and over a model of the whole loop.
//!
//! Every test draws its fleets from a seeded generator; a failure names the seed.

mod alone;
mod examples;
mod fleets;
mod rules;
mod whole;
mod world;
