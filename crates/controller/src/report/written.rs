//! The status of each object that was written last, and the order in which statuses are written.
//!
//! A sync of a fleet stores a changed ledger before it writes members, while statuses of earlier syncs may still wait.
//! The writes of one object therefore take turns, and a status that was made before a ledger was stored is dropped: the
//! sync that stored it makes a newer status.

use std::sync::Arc;

use foretide_crds::{FederatedHPA, Mode};
use foretide_federate::Ledger;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::{StatusFingerprint, conditions};
use foretide_api::ports::{Cluster, ClusterError};
use foretide_api::{
    autoscaler::{Autoscaler, Status},
    published::HEARTBEAT,
    status::ledger_status,
};

/// Time for which the stored status has to differ from the one that was written last, before that is written again:
/// longer than a watch is late. Doubles with each such write in a row that had no effect.
const REPAIR_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// Maximum number of doublings of [`REPAIR_AFTER`]: to an hour.
const MOST_DOUBLINGS: u32 = 6;
/// Time for which another cause of a condition waits after one that was a reason to write: two that take turns, such as
/// a timeout and the wait after it, are no more writes than a heartbeat.
const CAUSES_EVERY: SignedDuration = HEARTBEAT;
/// Maximum number of times that a status is written again that is stored afterwards as it was before. Then the API
/// server keeps no more of it, because the definition of the kind is of an older version.
const MOST_FUTILE: u32 = 2;

/// The status of an object that was written last; clones share it.
#[derive(Debug, Clone)]
pub struct WrittenStatus(Arc<Written>);

#[derive(Debug)]
struct Written {
    last: Mutex<LastStatus>,
    /// Held while a status or a ledger of the object is written.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct LastStatus {
    fingerprint: StatusFingerprint,
    /// The time at which another cause was last the reason to write.
    caused: Option<Timestamp>,
    /// Number of ledgers that were stored by themselves.
    ledgers: u64,
    /// Time since when the stored status differs from the last one, as far as the watch shows.
    differs_since: Option<Timestamp>,
    /// True if the status has to be written again, because the stored one differs for too long.
    is_lost: bool,
    /// Number of times in a row that it was written again without effect.
    repairs: u32,
    /// The stored status when it was compared last, and when it was written again last.
    stored: Option<StatusFingerprint>,
    replaced: Option<StatusFingerprint>,
}

/// A status that differs from the one that was written last, or from the stored one.
#[derive(Debug)]
pub struct NewStatus {
    status: Status,
    fingerprint: StatusFingerprint,
    /// The time at which it was made.
    at: Timestamp,
    /// Number of ledgers that had been stored by themselves at that time.
    ledgers: u64,
    written: WrittenStatus,
}

/// A ledger that is to be stored before members are written by it.
#[derive(Debug)]
pub struct LedgerIntent {
    ledger: String,
    written: WrittenStatus,
}

// === impl WrittenStatus ===

impl WrittenStatus {
    /// The status after a restart: the stored one counts as the one written last.
    pub fn of_stored(autoscaler: &Autoscaler) -> Self {
        let publishes = autoscaler.spec().mode == Some(Mode::Metric)
            || conditions::is_scaled_by_keda(autoscaler);
        Self(Arc::new(Written {
            last: Mutex::new(LastStatus {
                fingerprint: StatusFingerprint::of(&autoscaler.stored_status(), publishes),
                caused: None,
                ledgers: 0,
                differs_since: None,
                is_lost: false,
                repairs: 0,
                stored: None,
                replaced: None,
            }),
            turn: tokio::sync::Mutex::new(()),
        }))
    }

    /// Compares the status that was written last with the `stored` one, as the watch shows it `now`.
    pub fn compare(&self, stored: &Status, now: Timestamp) {
        let mut last = self.0.last.lock();
        let stored = StatusFingerprint::of(stored, last.fingerprint.publishes());
        if stored.is_same_as(&last.fingerprint) {
            last.differs_since = None;
            last.is_lost = false;
            last.repairs = 0;
            last.replaced = None;
        } else {
            let since = *last.differs_since.get_or_insert(now);
            let limit = REPAIR_AFTER * (1 << last.repairs.min(MOST_DOUBLINGS));
            let is_as_before = last.replaced.iter().any(|it| it.is_same_as(&stored));
            // A clock that was set back ends the wait, too.
            let is_due = now.duration_since(since).abs() >= limit;
            let keeps_no_more = is_as_before && !stored.is_empty();
            last.is_lost = is_due && !(keeps_no_more && last.repairs >= MOST_FUTILE);
            last.stored = Some(stored);
        }
    }

    /// A status that is to be written `at` a time; none if it equals the last one, and that is stored. `publishes` says
    /// whether others read its forecasts.
    pub fn unless_equal(
        &self,
        status: Status,
        publishes: bool,
        at: Timestamp,
    ) -> Option<NewStatus> {
        let fingerprint = StatusFingerprint::of(&status, publishes);
        let last = self.0.last.lock();
        last.is_followed_by(&fingerprint, at).then(|| NewStatus {
            status,
            fingerprint,
            at,
            ledgers: last.ledgers,
            written: self.clone(),
        })
    }

    /// A ledger that is to be stored before members are written by it; none if the last status has it.
    pub fn intent(&self, ledger: &Ledger) -> Option<LedgerIntent> {
        let ledger = ledger_status(ledger);
        let is_stored = self.ledger().is_some_and(|stored| stored == ledger);
        (!is_stored).then(|| LedgerIntent {
            ledger,
            written: self.clone(),
        })
    }

    /// The ledger that was written last.
    pub fn ledger(&self) -> Option<String> {
        self.0.last.lock().fingerprint.ledger().map(str::to_owned)
    }

    /// Returns true if the last status says that zero replicas are the work of an autoscaler.
    pub fn has_zero(&self) -> bool {
        self.0.last.lock().fingerprint.has_own_zero()
    }

    /// True if others read the forecasts of the object, as far as the last status shows.
    pub fn publishes(&self) -> bool {
        self.0.last.lock().fingerprint.publishes()
    }
}

// === impl LastStatus ===

impl LastStatus {
    /// True if a status with this fingerprint is worth a write after the last one, `at` a time.
    fn is_followed_by(&self, fingerprint: &StatusFingerprint, at: Timestamp) -> bool {
        self.is_lost
            || fingerprint.is_news_after(&self.fingerprint)
            || fingerprint.has_other_causes_than(&self.fingerprint)
                && self
                    .caused
                    .is_none_or(|it| at.duration_since(it).abs() >= CAUSES_EVERY)
    }

    /// Records a write: from now on the watch may show the stored status as it was before.
    fn was_written(&mut self) {
        self.differs_since = None;
        if std::mem::take(&mut self.is_lost) {
            self.repairs = self.repairs.saturating_add(1);
            self.replaced = self.stored.take();
        } else {
            self.replaced = None;
        }
    }
}

// === impl NewStatus ===

impl NewStatus {
    /// Writes the status with `send`, unless it was written while this one waited, or a newer ledger was stored;
    /// returns the outcome if it was sent.
    pub async fn write<F>(self, send: impl FnOnce(Status) -> F) -> Option<F::Output>
    where
        F: Future<Output = Result<(), ClusterError>>,
    {
        let Self {
            status,
            fingerprint,
            at,
            ledgers,
            written,
        } = self;
        let _turn = written.0.turn.lock().await;
        // The lock of `last` is not held during the write: syncs of the object read it.
        {
            let last = written.0.last.lock();
            if !last.is_followed_by(&fingerprint, at) || last.ledgers != ledgers {
                return None;
            }
        }
        let outcome = send(status).await;
        if outcome.is_ok() {
            let mut last = written.0.last.lock();
            if !fingerprint.is_news_after(&last.fingerprint) {
                last.caused = Some(at);
            }
            last.fingerprint = fingerprint;
            last.was_written();
        }
        Some(outcome)
    }
}

// === impl LedgerIntent ===

impl LedgerIntent {
    /// Stores the ledger in the status of the fleet, after any write of that status that is in flight.
    ///
    /// # Errors
    /// When it is not known to be stored: then no member may be written by it.
    pub async fn store<C: Cluster>(
        &self,
        hub: &C,
        fdhpa: &FederatedHPA,
    ) -> Result<(), ClusterError> {
        let _turn = self.written.0.turn.lock().await;
        hub.write_ledger(fdhpa, &self.ledger).await?;
        let mut last = self.written.0.last.lock();
        last.ledgers += 1;
        if fdhpa.status.is_none() {
            // The ledger was written as the only field.
            last.fingerprint = StatusFingerprint::of(&Status::default(), false);
        }
        last.fingerprint.set_ledger(&self.ledger);
        last.was_written();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{future::ready, sync::Arc};

    use serde_json::json;

    use super::*;
    use foretide_api::status::condition;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn status(replicas: i32) -> Status {
        let mut status = Status::default();
        status.common.expect_replicas = Some(replicas);
        status
    }

    /// A status that says that the target cannot be read, for a cause.
    fn failed(cause: &str) -> Status {
        let mut status = status(4);
        let failed = condition("Ready", "False", "FailedGetScale", cause);
        status.common.conditions = Some(vec![failed]);
        status
    }

    /// The written status of an object that has no stored one.
    fn written() -> WrittenStatus {
        stored(&Status::default())
    }

    /// The written status of an object in mode Metric with this stored one, after a restart.
    fn stored(status: &Status) -> WrittenStatus {
        let object = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3, "mode": "Metric"},
            "status": status.common,
        });
        let ehpa = serde_json::from_value(object).unwrap();
        WrittenStatus::of_stored(&Autoscaler::Effective(Arc::new(ehpa)))
    }

    fn at(seconds: i64) -> Timestamp {
        START + SignedDuration::from_secs(seconds)
    }

    async fn write(new: NewStatus) -> bool {
        new.write(|_| ready(Ok(()))).await.is_some()
    }

    #[tokio::test]
    async fn a_condition_follows_its_cause_also_after_a_restart_and_no_numbers() {
        let causes = [
            "deployments.apps web is forbidden; asked 3 times in 40 s",
            "deployments.apps web not found; asked 3 times in 40 s",
            "the API server answers with status 500; asked 3 times in 40 s",
            "the API server answers with status 503; asked 3 times in 40 s",
        ];
        for cause in causes {
            let last = written();
            assert!(write(last.unless_equal(failed(cause), false, START).unwrap()).await);
            for last in [last, stored(&failed(cause))] {
                let later = cause.replace("3 times in 40 s", "1 time in 2 min");
                assert!(last.unless_equal(failed(&later), false, at(15)).is_none());
                for other in causes.iter().filter(|other| **other != cause) {
                    assert!(last.unless_equal(failed(other), false, at(15)).is_some());
                }
            }
        }
    }

    #[tokio::test]
    async fn causes_that_take_turns_are_written_once_in_five_minutes() {
        let last = written();
        let mut times = Vec::new();
        for second in (0..1_200).step_by(15) {
            let cause = ["timed out", "next attempt in 12 s"][usize::from(second % 30 == 0)];
            if let Some(new) = last.unless_equal(failed(cause), false, at(second)) {
                assert!(write(new).await);
                times.push(second);
            }
        }
        assert_eq!(times, [0, 15, 330, 645, 960]);
    }

    #[tokio::test]
    async fn what_others_read_is_written_by_its_third_digit_and_every_five_minutes() {
        for (publishes, before, after, expected) in [
            (true, "0.25", "0.25", &[0, 300, 600, 900][..]),
            (true, "0.2521", "0.2523", &[0, 300, 600, 900]),
            (true, "0.252", "0.254", &[0, 60, 360, 660]),
            (false, "0.252", "0.254", &[0]),
        ] {
            let decided = |second: i64| {
                let value = if second < 60 { before } else { after };
                let forecast =
                    json!({"source": "forecast", "name": "resource.cpu", "value": value});
                let decision = json!({"time": at(second).to_string(), "proposals": [forecast]});
                let common = json!({"expectReplicas": 3, "decision": decision});
                Status {
                    common: serde_json::from_value(common).unwrap(),
                    ..Status::default()
                }
            };
            // A successor knows the status that is stored, and writes no sooner.
            let successor = publishes.then(|| (stored(&decided(0)), &expected[1..]));
            for (last, expected) in [(written(), expected)].into_iter().chain(successor) {
                let mut times = Vec::new();
                for second in (0..=900).step_by(15) {
                    if let Some(new) = last.unless_equal(decided(second), publishes, at(second)) {
                        assert!(write(new).await);
                        times.push(second);
                    }
                }
                assert_eq!(times, expected, "{publishes}");
            }
        }
    }

    #[tokio::test]
    async fn a_watch_that_shows_a_write_late_is_no_reason_to_write_again() {
        let last = written();
        assert!(write(last.unless_equal(status(4), false, START).unwrap()).await);
        for second in 0..60 {
            last.compare(&Status::default(), at(second));
            assert!(
                last.unless_equal(status(4), false, START).is_none(),
                "{second}"
            );
        }
        last.compare(&status(4), at(60));
        last.compare(&Status::default(), at(61));
        assert!(last.unless_equal(status(4), false, START).is_none());
    }

    #[tokio::test]
    async fn a_status_of_which_the_server_keeps_only_a_part_is_written_again_twice() {
        let last = written();
        let whole = || {
            let mut status = status(4);
            status.common.observed_generation = Some(7);
            status
        };
        assert!(write(last.unless_equal(whole(), false, START).unwrap()).await);
        let mut repairs = 0;
        for minute in 0..600 {
            // An older definition has no field for the generation.
            last.compare(&status(4), at(60 * minute));
            if let Some(repair) = last.unless_equal(whole(), false, START) {
                assert!(write(repair).await);
                repairs += 1;
            }
        }
        assert_eq!(repairs, 2);
        // Another writer changes what is kept.
        last.compare(&status(9), at(60 * 600));
        last.compare(&status(9), at(60 * 700));
        assert!(last.unless_equal(whole(), false, START).is_some());
    }

    #[tokio::test]
    async fn what_waits_to_be_written_again_is_dropped_after_another_write() {
        let last = written();
        assert!(write(last.unless_equal(status(4), false, START).unwrap()).await);
        for second in [0, 60] {
            last.compare(&Status::default(), at(second));
        }
        let [first, second] = [(); 2].map(|()| last.unless_equal(status(4), false, START).unwrap());
        assert!(write(first).await);
        assert!(!write(second).await);
    }

    #[tokio::test]
    async fn a_status_that_another_writer_removes_is_written_again_ever_less_often() {
        let last = written();
        assert!(write(last.unless_equal(status(4), false, START).unwrap()).await);
        let mut times = Vec::new();
        for second in (0..3 * 3_600).step_by(15) {
            last.compare(&Status::default(), at(second));
            if let Some(new) = last.unless_equal(status(4), false, at(second)) {
                assert!(write(new).await);
                times.push(second);
            }
        }
        assert_eq!(times, [60, 195, 450, 945, 1920, 3855, 7710]);
        // One that stays ends that.
        last.compare(&status(4), at(11_000));
        last.compare(&Status::default(), at(11_015));
        last.compare(&Status::default(), at(11_075));
        assert!(last.unless_equal(status(4), false, START).is_some());
    }

    #[tokio::test]
    async fn a_status_that_waited_while_a_ledger_was_stored_is_dropped() {
        let last = written();
        let waiting = last.unless_equal(status(4), false, START).unwrap();
        last.0.last.lock().ledgers += 1;
        assert!(!write(waiting).await);
        assert!(write(last.unless_equal(status(4), false, START).unwrap()).await);
    }
}
