//! The end of a controller: by a signal, by the loss of its lease, or because a part of it exited.
//!
//! ```text
//! signal ─► controllers finish their sync, fleets end their scale-down holds ─► the gate closes ─► writes in flight end
//!        ─► the lease is released
//! ```
//!
//! The lease is renewed until the last step: another replica must not lead while a write of this one is in flight.

use std::{future::Future, time::Duration};

use futures::{FutureExt as _, future::join};
use tokio::{sync::oneshot, time::timeout};

use super::AppError;
use foretide_base::{
    leadership::{Leadership, WRITE_TIME},
    service::{Parts, wait_for},
};
use foretide_controller::Setup;

/// The parts that finish running work before the lease is released.
pub const CONTROLLER: &str = "controller";
pub const FLEETS: &str = "fleet controller";
/// The part that holds the lease.
pub const ELECTION: &str = "leader election";

/// The time for the controllers to finish: as long as they try to end the holds of members.
const TIME_TO_END: Duration = Setup::TIME_TO_RELEASE;
/// The time for the release of the lease.
const TIME_TO_RELEASE: Duration = Duration::from_secs(5);

/// Stops the parts that have something left to do.
#[derive(Debug, Default)]
pub struct Stop {
    controllers: Vec<oneshot::Sender<()>>,
    election: Option<(oneshot::Sender<()>, Leadership)>,
}

// === impl Stop ===

impl Stop {
    /// A signal to one controller.
    pub fn controller(&mut self) -> impl Future<Output = ()> + use<> {
        let (stop, stopped) = oneshot::channel();
        self.controllers.push(stop);
        // A dropped sender means shutdown.
        stopped.map(|_stop| ())
    }

    /// The signal to the election of this leadership, after the last write.
    pub fn election(&mut self, leadership: Leadership) -> impl Future<Output = ()> + use<> {
        let (stop, stopped) = oneshot::channel();
        self.election = Some((stop, leadership));
        stopped.map(|_stop| ())
    }

    /// Waits for the shutdown signal, or for a part to exit, which is a failure.
    pub async fn until(
        self,
        shutdown: impl Future<Output = ()>,
        mut parts: Parts,
    ) -> Result<(), AppError> {
        tokio::select! {
            biased;
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
        // A controller that has exited receives no signal, and is not waited for.
        let mut left = self
            .controllers
            .into_iter()
            .filter_map(|stop: oneshot::Sender<()>| stop.send(()).ok())
            .count();
        let ended = wait_for(&[CONTROLLER, FLEETS], &mut left, parts);
        // The process ends even if they are not in time; members keep what they have.
        timeout(TIME_TO_END, ended).await.ok();
        let Some((election, leadership)) = self.election else {
            return;
        };
        // No write starts from here on. A write in flight ends by its deadline, and so does the sync that waits for it.
        // A request that its sync gave up may still arrive, so the controllers' end is not enough.
        leadership.close();
        let ended = wait_for(&[CONTROLLER, FLEETS], &mut left, parts);
        timeout(WRITE_TIME, join(ended, leadership.written()))
            .await
            .ok();
        if election.send(()).is_ok() {
            let mut left = 1;
            let released = wait_for(&[ELECTION], &mut left, parts);
            timeout(TIME_TO_RELEASE, released).await.ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::{Arc, Mutex},
    };

    use jiff::Timestamp;

    use super::*;
    use foretide_base::{
        clock::{Clock, Monotonic},
        leadership::Token,
    };

    /// Parts that end after a given time, with the order of the events.
    struct World {
        stop: Stop,
        parts: Parts,
        leadership: Leadership,
        order: Arc<Mutex<Vec<&'static str>>>,
    }

    impl World {
        /// Parts that end this many seconds after the signal, and record it.
        fn new(controller: u64, fleets: u64, release: u64) -> Self {
            let clock = Clock::standing_at(Timestamp::UNIX_EPOCH);
            let leadership = Leadership::standby(clock);
            leadership.set(Some(TOKEN));
            let mut world = Self {
                stop: Stop::default(),
                parts: Parts::new(),
                leadership: leadership.clone(),
                order: Arc::default(),
            };
            let stopped = Box::pin(world.stop.controller());
            world.spawn(FLEETS, fleets, stopped);
            let stopped = Box::pin(world.stop.controller());
            world.spawn(CONTROLLER, controller, stopped);
            let stopped = Box::pin(world.stop.election(leadership));
            world.spawn(ELECTION, release, stopped);
            world.parts.spawn(pending());
            world
        }

        fn spawn(&mut self, name: &'static str, seconds: u64, stopped: Stopped) {
            let (order, leadership) = (Arc::clone(&self.order), self.leadership.clone());
            self.parts.spawn(async move {
                stopped.await;
                if name == ELECTION {
                    // A late renewal does not open the gate again.
                    leadership.set(Some(TOKEN));
                    order.lock().unwrap().push(if leadership.may_act() {
                        "gate open"
                    } else {
                        "gate closed"
                    });
                }
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                order.lock().unwrap().push(name);
                name
            });
        }

        async fn shut_down(self) -> Vec<&'static str> {
            let limit = Duration::from_secs(25);
            let stopped = timeout(limit, self.stop.until(ready(()), self.parts));
            assert!(stopped.await.unwrap().is_ok());
            self.order.lock().unwrap().clone()
        }
    }

    const TOKEN: Token = Token {
        epoch: 1,
        valid_until: Monotonic::after_origin(Duration::from_hours(1)),
    };

    type Stopped = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_after_the_controllers_have_ended() {
        assert_eq!(
            World::new(1, 3, 2).shut_down().await,
            [CONTROLLER, FLEETS, "gate closed", ELECTION]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_after_a_write_that_is_in_flight_at_the_limit() {
        // The last write of the fleets starts before the gate closes, and ends by its deadline.
        let last = (TIME_TO_END + WRITE_TIME).as_secs() - 1;
        assert_eq!(
            World::new(1, last, 2).shut_down().await,
            [CONTROLLER, FLEETS, "gate closed", ELECTION]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_after_writes_that_nobody_waits_for_any_more() {
        for is_given_up in [false, true] {
            let world = World::new(0, 1, 1);
            let write = world.leadership.begin_write();
            let order = Arc::clone(&world.order);
            tokio::spawn(async move {
                let write = if is_given_up {
                    drop(write);
                    None
                } else {
                    Some(write)
                };
                tokio::time::sleep(Duration::from_secs(4)).await;
                order.lock().unwrap().push("arrived");
                if let Some(write) = write {
                    write.end();
                }
            });
            let mut order = world.shut_down().await;
            order.retain(|event| *event != CONTROLLER);
            assert_eq!(order, [FLEETS, "arrived", "gate closed", ELECTION]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_does_not_end_does_not_keep_the_lease() {
        let never = u64::from(u32::MAX);
        assert_eq!(
            World::new(1, never, 2).shut_down().await,
            [CONTROLLER, "gate closed", ELECTION]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_without_an_answer_does_not_keep_the_process() {
        let never = u64::from(u32::MAX);
        assert_eq!(
            World::new(1, 3, never).shut_down().await,
            [CONTROLLER, FLEETS, "gate closed"]
        );
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
