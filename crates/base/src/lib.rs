//! Foundations of every process of the service.
//!
//! | module | owns |
//! |---|---|
//! | [`clock`], [`machine`] | time, network, randomness and threads of a process, real or simulated; nothing else reads them |
//! | [`leadership`] | the election: which replica decides and writes |
//! | [`telemetry`] | every metric, the health of loops and watches, the format of the log |
//! | [`memory`], [`fair_slots`], [`circuits`], [`breaker`] | limits that tenants share: bytes of copies, slots of requests, servers that fail |
//! | [`http`] | ports: connections and their limits, probes, `/metrics`, tokens and their reviews |
//! | [`service`], [`exit`] | a process that runs until a signal: its flags, its parts, its end, its exit code |
//! | [`error`], [`printable`], [`redact`], [`opaque`] | text that is safe to log and to show |
//!
//! It knows the ports of [`foretide_api`] and nothing about Prometheus, clusters, decisions or commands.
//!
//! ```
//! use foretide_base::clock::Clock;
//!
//! let clock = Clock::standing_at("2026-01-01T00:00:00Z".parse()?);
//! let before = clock.monotonic();
//! clock.advance(std::time::Duration::from_secs(30));
//! assert_eq!(clock.monotonic().since(before).as_secs(), 30);
//! # Ok::<(), jiff::Error>(())
//! ```

pub mod breaker;
pub mod circuits;
pub mod clock;
pub mod error;
pub mod exit;
pub mod fair_slots;
pub mod http;
pub mod leadership;
pub mod machine;
pub mod memory;
pub mod opaque;
pub mod open_files;
pub mod pem;
pub mod printable;
pub mod redact;
pub mod service;
pub mod shared_map;
pub mod telemetry;
