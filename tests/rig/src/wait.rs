//! Waits for conditions, never for a fixed time: polls until the condition holds, or reports the last state. Nothing
//! else in the rig sleeps.

use std::{fmt::Display, future::Future, panic::Location, time::Duration};

use crate::{Error, Result};

/// The polling interval.
const PAUSE: Duration = Duration::from_millis(150);

/// Waits before the next attempt.
pub(crate) async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// Waits until `check` returns `Ok`, and returns its value. `Err` means "not yet, because".
///
/// # Panics
/// When it is not so within `deadline`, with `what`, the last reason and the caller's line. It
/// panics rather than returns, so that a [`Cluster`](crate::Cluster) dropped on the way writes
/// down its state.
#[track_caller]
pub fn eventually<T, E, F, Fut>(deadline: Duration, what: &str, check: F) -> impl Future<Output = T>
where
    E: Display,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let caller = Location::caller();
    let waiting = within(deadline, what, check);
    async move {
        #[expect(
            clippy::panic,
            reason = "a test's wait that fails must fail the test, by unwinding"
        )]
        match waiting.await {
            Ok(value) => value,
            Err(failure) => panic!("{caller}: {failure}"),
        }
    }
}

/// Like [`eventually`], with the failure as a value.
pub(crate) fn within<T, E, F, Fut>(
    deadline: Duration,
    what: &str,
    mut check: F,
) -> impl Future<Output = Result<T>>
where
    E: Display,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let what = what.to_owned();
    async move {
        let mut last = "no answer at all".to_owned();
        let polling = async {
            loop {
                match check().await {
                    Ok(value) => break value,
                    Err(reason) => last = reason.to_string(),
                }
                pause().await;
            }
        };
        let outcome = tokio::time::timeout(deadline, polling).await;
        outcome.map_err(|_| Error::Deadline {
            what,
            deadline,
            last,
        })
    }
}
