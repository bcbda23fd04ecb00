//! The loop around the elector: it sends what the elector asks for, and publishes the token.

use std::{future::Future, sync::Arc, time::Duration};

use jiff::SignedDuration;

use super::{
    Leadership, Timing, Token,
    elector::{Answer, Elector, Request},
};
use crate::{
    clock::{Clock, ClockReading, Monotonic},
    error::chain,
    opaque::Opaque,
    telemetry::Telemetry,
};
use foretide_api::ports::{ClusterError, LeaseStore};

/// One process that stands for leader.
#[derive(Debug)]
pub struct Campaign<L> {
    lease: L,
    timing: Timing,
    elector: Elector,
    leadership: Leadership,
    /// Permission to take the lease.
    is_eligible: Opaque<Box<dyn Fn() -> bool + Send + Sync>>,
    clock: Clock,
    telemetry: Arc<Telemetry>,
    /// The holder that was logged last.
    announced: Option<String>,
    /// The last attempt failed, which is logged once.
    failing: bool,
}

/// Reason for the end of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Stopped; the lease is free, unless the release could not be written.
    Stopped,
    /// Lost leadership: the process must end, because its memory may be ahead of the cluster.
    Lost,
}

// === impl Campaign ===

impl<L: LeaseStore> Campaign<L> {
    /// A candidate for a lease. No two processes may have the same identity.
    pub fn new(
        lease: L,
        identity: String,
        timing: Timing,
        clock: Clock,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        telemetry.set_leader(false);
        Self {
            lease,
            timing,
            elector: Elector::new(identity, timing),
            leadership: Leadership::standby(clock.clone()),
            is_eligible: Opaque(Box::new(|| true)),
            clock,
            telemetry,
            announced: None,
            failing: false,
        }
    }

    /// Returns the same candidate, which takes the lease only while it is eligible. A holder that is not eligible any
    /// more keeps the lease.
    #[must_use]
    pub fn eligible_when(self, is_eligible: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            is_eligible: Opaque(Box::new(is_eligible)),
            ..self
        }
    }

    /// Returns the leadership to which the token is published.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Takes the lease as soon as it is free and renews it, until it is lost or `stop` completes; then releases it.
    ///
    /// # Guarantees
    /// No write passes the gate after the lease was offered to others.
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) -> Ended {
        let ended = tokio::select! {
            biased;
            () = stop => Ended::Stopped,
            () = self.hold() => Ended::Lost,
        };
        self.publish(None);
        if ended == Ended::Stopped {
            self.release().await;
        }
        ended
    }

    /// Makes one attempt after the other, until the lease is lost.
    async fn hold(&mut self) {
        let mut led = false;
        loop {
            let started = self.clock.monotonic();
            let held = self.valid_token();
            // The process may have been paused for longer than its token lasted.
            if led && held.is_none() {
                return;
            }
            self.attempt_before(held.map(|token| token.valid_until))
                .await;
            let token = self.valid_token();
            self.publish(token);
            if led && token.is_none() {
                return;
            }
            led |= token.is_some();
            self.announce(token);
            let renewal = started + self.timing.retry_period;
            let until = match token {
                // At the latest when the token ends, so that a leader that could not renew ends with it.
                Some(token) => renewal.min(token.valid_until),
                None => self.elector.next_attempt(started),
            };
            reached(&self.clock, until).await;
        }
    }

    /// Makes one attempt, which a leader gives up when its token ends.
    async fn attempt_before(&mut self, end: Option<Monotonic>) {
        let clock = self.clock.clone();
        let ended = async {
            match end {
                Some(end) => reached(&clock, end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.attempt() => {}
            () = ended => {}
        }
    }

    /// Makes one attempt to take or to renew the lease.
    async fn attempt(&mut self) {
        let mut next = Some(self.elector.start(self.now()));
        while let Some(request) = next {
            // An ineligible candidate still reads the lease, so that its expiry is known.
            let takes = request != Request::Read && self.valid_token().is_none();
            if takes && !(self.is_eligible.0)() {
                return;
            }
            let answer = self.send(request).await;
            next = self.elector.answer(answer, self.now());
        }
    }

    async fn send(&mut self, request: Request) -> Answer {
        let outcome = match request {
            Request::Read => self.lease.read().await,
            Request::Create(record) => self.lease.create(&record).await.map(Some),
            Request::Replace(seen, record) => self.lease.replace(&seen, &record).await.map(Some),
        };
        match outcome {
            Ok(found) => {
                self.failing = false;
                found.map_or(Answer::Absent, Answer::Lease)
            }
            Err(ClusterError::NotFound { .. }) => Answer::Absent,
            Err(ClusterError::Conflict { .. }) => Answer::Conflict,
            Err(error) => {
                self.failed(&error);
                Answer::Failed
            }
        }
    }

    /// Gives the lease back, so that another candidate need not wait for it.
    async fn release(&self) {
        let mut released = self.attempt_release().await;
        if matches!(released, Err(ClusterError::Conflict { .. })) {
            // A renewal that was given up for the release can still arrive between the read and the write.
            released = self.attempt_release().await;
        }
        if let Err(error) = released {
            let error = chain(&error);
            tracing::warn!(%error, "could not release the lease; another replica leads once it expires");
        }
    }

    async fn attempt_release(&self) -> Result<(), ClusterError> {
        let Some(lease) = self.lease.read().await? else {
            return Ok(());
        };
        if let Some(record) = self.elector.released(&lease, self.clock.now()) {
            self.lease.replace(&lease, &record).await?;
        }
        Ok(())
    }

    fn publish(&self, token: Option<Token>) {
        self.leadership.set(token);
        self.telemetry.set_leader(token.is_some());
    }

    fn valid_token(&self) -> Option<Token> {
        let now = self.clock.monotonic();
        let token = self.elector.token();
        token.filter(|token| now < token.valid_until)
    }

    fn now(&self) -> ClockReading {
        ClockReading::new(self.clock.now(), self.clock.monotonic())
    }

    /// Logs a change of the leader.
    #[expect(
        clippy::cognitive_complexity,
        reason = "the branches are those of the log macros"
    )]
    fn announce(&mut self, token: Option<Token>) {
        let holder = self.elector.holder().filter(|holder| !holder.is_empty());
        if self.announced.as_deref() == holder {
            return;
        }
        self.announced = holder.map(str::to_owned);
        self.leadership.set_leader(self.announced.clone());
        match (token, holder) {
            (Some(token), _) => tracing::info!(epoch = token.epoch, "became the leader"),
            (None, Some(holder)) => tracing::info!(%holder, "standby: another replica leads"),
            (None, None) => {}
        }
    }

    #[expect(
        clippy::cognitive_complexity,
        reason = "the branches are those of the log macros"
    )]
    fn failed(&mut self, error: &ClusterError) {
        let error = chain(error);
        if std::mem::replace(&mut self.failing, true) {
            tracing::debug!(%error, "could not read or write the lease");
        } else {
            tracing::warn!(%error, "could not read or write the lease");
        }
    }
}

/// Waits until the clock reads `at`.
async fn reached(clock: &Clock, at: Monotonic) {
    loop {
        let left = at.since(clock.monotonic());
        if left == Duration::ZERO {
            return;
        }
        // A settable clock ends the sleep early when it is set.
        clock
            .sleep(SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX))
            .await;
    }
}
