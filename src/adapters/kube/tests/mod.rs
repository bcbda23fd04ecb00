//! The adapter against a scripted API server: exact requests, and what becomes of the answers.

mod cluster;
mod get;
mod member;
mod objects;
mod watches;
