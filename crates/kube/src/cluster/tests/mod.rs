//! The adapter against a test server: exact requests, and what becomes of the responses.

mod access;
mod api_services;
mod client_authorities;
mod cluster;
mod copies;
mod get;
mod lease;
mod member;
mod objects;
mod pod_list;
mod watches;
