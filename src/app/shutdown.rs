//! How a controller ends: by a signal, by the loss of its lease, or because a part of it exited.
//!
//! ```text
//! signal ─► controllers finish their sync, fleets end their scale-down holds ─► the gate closes ─► the lease is released
//! ```

use std::{future::Future, time::Duration};

use futures::FutureExt as _;
use tokio::{sync::oneshot, task::JoinSet, time::timeout};

use super::AppError;

/// The parts that finish what they began before the lease is released.
pub(super) const CONTROLLER: &str = "controller";
pub(super) const FLEETS: &str = "fleet controller";
/// The part that holds the lease.
pub(super) const ELECTION: &str = "leader election";

/// How long the controllers may take to finish.
const TIME_TO_END: Duration = Duration::from_secs(10);
/// How long the release of the lease may take.
const TIME_TO_RELEASE: Duration = Duration::from_secs(5);

/// Parts that run until shutdown, by their names.
pub(super) type Parts = JoinSet<&'static str>;

/// Stops the parts that have something left to do.
#[derive(Debug, Default)]
pub(super) struct Stop {
    controllers: Vec<oneshot::Sender<()>>,
    election: Option<oneshot::Sender<()>>,
}

// === impl Stop ===

impl Stop {
    /// A signal to one controller.
    pub(super) fn controller(&mut self) -> impl Future<Output = ()> + use<> {
        let (stop, stopped) = oneshot::channel();
        self.controllers.push(stop);
        // A dropped sender means shutdown.
        stopped.map(|_stop| ())
    }

    /// The signal to the election, after the controllers have ended.
    pub(super) fn election(&mut self) -> impl Future<Output = ()> + use<> {
        let (stop, stopped) = oneshot::channel();
        self.election = Some(stop);
        stopped.map(|_stop| ())
    }

    /// Waits for the shutdown signal, or for a part to exit, which is a failure.
    pub(super) async fn until(
        self,
        shutdown: impl Future<Output = ()>,
        mut parts: Parts,
    ) -> Result<(), AppError> {
        tokio::select! {
            () = shutdown => {
                self.shut_down(&mut parts).await;
                Ok(())
            }
            ended = parts.join_next() => Err(match ended.and_then(Result::ok) {
                Some(ELECTION) => AppError::LeaseLost,
                part => AppError::Ended { part: part.unwrap_or("a panicked") },
            }),
        }
    }

    async fn shut_down(self, parts: &mut Parts) {
        let sent = |stop: oneshot::Sender<()>| stop.send(()).is_ok();
        let stopping = self.controllers.into_iter().map(sent);
        let stopping = stopping.filter(|sent| *sent).count();
        let ended = wait_for(&[CONTROLLER, FLEETS], stopping, parts);
        // In time or not: the process ends, and members keep what they have.
        timeout(TIME_TO_END, ended).await.ok();
        if self.election.is_some_and(sent) {
            let released = wait_for(&[ELECTION], 1, parts);
            timeout(TIME_TO_RELEASE, released).await.ok();
        }
    }
}

/// Waits until `count` of these parts have ended.
pub(super) async fn wait_for(names: &[&str], count: usize, parts: &mut Parts) {
    let mut left = count;
    while left > 0
        && let Some(ended) = parts.join_next().await
    {
        if ended.is_ok_and(|ended| names.contains(&ended)) {
            left -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::{Arc, Mutex},
    };

    use super::*;

    /// Parts that end when they are told to, and note that in the order in which they do.
    fn parts(stop: &mut Stop, release: Duration) -> (Parts, Arc<Mutex<Vec<&'static str>>>) {
        let order = Arc::<Mutex<Vec<&'static str>>>::default();
        let mut parts = Parts::new();
        let mut spawn = |name: &'static str, takes: Duration, stopped: Stopped| {
            let order = Arc::clone(&order);
            parts.spawn(async move {
                stopped.await;
                tokio::time::sleep(takes).await;
                order.lock().unwrap().push(name);
                name
            });
        };
        spawn(FLEETS, Duration::from_secs(3), Box::pin(stop.controller()));
        let short = Duration::from_secs(1);
        spawn(CONTROLLER, short, Box::pin(stop.controller()));
        spawn(ELECTION, release, Box::pin(stop.election()));
        parts.spawn(pending());
        (parts, order)
    }

    type Stopped = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_after_the_controllers_have_ended() {
        let mut stop = Stop::default();
        let (parts, order) = parts(&mut stop, Duration::from_secs(2));
        assert!(stop.until(ready(()), parts).await.is_ok());
        assert_eq!(*order.lock().unwrap(), [CONTROLLER, FLEETS, ELECTION]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_without_an_answer_does_not_keep_the_process() {
        let mut stop = Stop::default();
        let (parts, order) = parts(&mut stop, Duration::MAX);
        let stopped = stop.until(ready(()), parts);
        let limit = Duration::from_secs(20);
        assert!(tokio::time::timeout(limit, stopped).await.unwrap().is_ok());
        assert_eq!(*order.lock().unwrap(), [CONTROLLER, FLEETS]);
    }

    #[tokio::test]
    async fn a_lost_lease_and_a_part_that_exits_are_failures() {
        for (part, text) in [
            (ELECTION, "lost the leader lease"),
            ("HTTP server", "HTTP server task exited unexpectedly"),
        ] {
            let mut parts = Parts::new();
            parts.spawn(pending());
            parts.spawn(ready(part));
            let error = Stop::default().until(pending(), parts).await.unwrap_err();
            assert!(error.to_string().starts_with(text), "{error}");
        }
    }
}
