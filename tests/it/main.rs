//! Integration tests through the public API, in one binary.

#![cfg(test)]

mod alter;
mod architecture;
mod certificates;
mod chart;
mod circles;
mod cli;
mod credentials;
mod deploy;
mod english;
mod examples;
mod fuzz;
mod members;
mod monitoring;
mod page;
mod pages;
mod pictures;
mod reliability;
mod where_to_add;
