//! Measurements, which a person runs by hand: `just isolation` and `just hostile-tenant`. They print a table and assert
//! nothing, because a time that is measured depends on the machine. `docs/isolation-measured.md` has their figures.

#![expect(
    clippy::print_stdout,
    reason = "the tables of a measurement are its result"
)]

mod decisions;
mod hostile;
mod hostile_tenant;
mod isolation;
mod large;
mod machine;
mod phase;
mod process;
mod thousand;

use self::machine::peak_resident;

use foretide::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use rig::eventually;

/// The default of `--sync-period`, and the unit in which lateness is judged.
const PERIOD: SignedDuration = SignedDuration::from_secs(15);

fn now() -> Timestamp {
    Clock::system().now()
}

/// Waits while a measurement goes on.
async fn until(end: Timestamp) {
    let left = end.duration_since(now()).unsigned_abs();
    eventually(
        left * 2 + PERIOD.unsigned_abs(),
        "the end of a phase",
        || async { (now() >= end).then_some(()).ok_or("not yet") },
    )
    .await;
}
