//! The campaign over a fake lease, on tokio's paused time.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::oneshot, task::JoinHandle, time::advance};

use super::*;
use crate::{clock::Monotonic, machine::Machine, telemetry::Telemetry};
use foretide_api::ports::{ClusterError, LeaseRecord, LeaseStore, StoredLease};

/// A lease in memory; clones share it.
#[derive(Debug, Clone, Default)]
struct FakeLease(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    lease: Option<StoredLease>,
    version: u32,
    /// A write that is under way: it arrives after the next read.
    under_way: Option<LeaseRecord>,
}

impl FakeLease {
    fn put(&self, record: LeaseRecord) -> StoredLease {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let lease = StoredLease {
            record,
            version: state.version.to_string(),
            object: Value::Null,
        };
        state.lease = Some(lease.clone());
        lease
    }

    fn stored(&self) -> Option<StoredLease> {
        self.0.lock().unwrap().lease.clone()
    }

    fn holder(&self) -> String {
        self.stored()
            .map(|lease| lease.record.holder)
            .unwrap_or_default()
    }
}

impl LeaseStore for FakeLease {
    async fn read(&self) -> Result<Option<StoredLease>, ClusterError> {
        let found = self.stored();
        let under_way = self.0.lock().unwrap().under_way.take();
        if let Some(record) = under_way {
            self.put(record);
        }
        Ok(found)
    }

    async fn create(&self, record: &LeaseRecord) -> Result<StoredLease, ClusterError> {
        match self.stored() {
            None => Ok(self.put(record.clone())),
            Some(_) => Err(conflict()),
        }
    }

    async fn replace(
        &self,
        seen: &StoredLease,
        record: &LeaseRecord,
    ) -> Result<StoredLease, ClusterError> {
        match self.stored() {
            Some(found) if found.version == seen.version => Ok(self.put(record.clone())),
            _ => Err(conflict()),
        }
    }
}

fn conflict() -> ClusterError {
    ClusterError::Conflict {
        what: "lease".to_owned(),
    }
}

/// A campaign that runs.
struct Running {
    leadership: Leadership,
    telemetry: Arc<Telemetry>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Ended>,
}

impl Running {
    fn start(lease: &FakeLease, identity: &str) -> Self {
        Self::start_when(lease, identity, || true)
    }

    fn start_when(
        lease: &FakeLease,
        identity: &str,
        is_eligible: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let telemetry = Arc::<Telemetry>::default();
        let clock = Clock::simulated(Timestamp::from_second(1_767_225_600).unwrap());
        let campaign = Campaign::new(
            lease.clone(),
            identity.to_owned(),
            Timing::default(),
            clock,
            Arc::clone(&telemetry),
        );
        let campaign = campaign.eligible_when(is_eligible);
        let leadership = campaign.leadership().clone();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(campaign.run(async { drop(stopped.await) }));
        Self {
            leadership,
            telemetry,
            stop,
            task,
        }
    }

    fn shows(&self, leader: u8) -> bool {
        let line = format!("foretide_leader {leader}\n");
        self.telemetry.encode().contains(&line)
    }
}

/// Lets this time pass in small steps, with all tasks running.
async fn pass(seconds: u64) {
    pass_tenths(seconds * 10).await;
}

async fn pass_tenths(tenths: u64) {
    for _tenth in 0..tenths {
        advance(Duration::from_millis(100)).await;
        for _turn in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_candidates_leads_and_the_other_takes_over_when_it_stops() {
    let lease = FakeLease::default();
    let first = Running::start(&lease, "a");
    pass(1).await;
    let second = Running::start(&lease, "b");
    pass(60).await;
    assert_eq!(lease.holder(), "a");
    assert!(first.leadership.may_act() && first.shows(1));
    assert!(!second.leadership.may_act() && second.shows(0));

    first.stop.send(()).unwrap();
    assert_eq!(first.task.await.unwrap(), Ended::Stopped);
    let free = lease.stored().unwrap().record;
    assert_eq!((&*free.holder, free.transitions), ("", 0));
    assert_eq!(free.duration, Some(Duration::from_secs(1)));
    assert_eq!(first.leadership.time_left(), None);
    pass(3).await;
    let taken = lease.stored().unwrap().record;
    assert_eq!((&*taken.holder, taken.transitions), ("b", 1));
    assert!(second.leadership.may_act() && second.shows(1));
}

#[tokio::test(start_paused = true)]
async fn a_standby_leads_within_the_lease_duration_and_two_seconds_after_the_leader_died() {
    // The standby begins, and the leader dies, at any time between two renewals.
    for (began, died) in (0..20).flat_map(|began| (0..20).map(move |died| (began, died))) {
        let lease = FakeLease::default();
        let leader = Running::start(&lease, "a");
        pass_tenths(10 + began).await;
        let _standby = Running::start(&lease, "b");
        pass_tenths(40 + died).await;
        leader.task.abort();
        pass_tenths(170).await;
        assert_eq!(lease.holder(), "b", "began {began}, died {died}");
    }
}

#[test]
fn a_token_ends_by_the_monotonic_clock_whatever_the_wall_clock_does() {
    let start = Timestamp::from_second(1_767_225_600).unwrap();
    let clock = Clock::standing_at(start);
    let leadership = Leadership::standby(clock.clone());
    assert_eq!(leadership.time_left(), None);
    leadership.set(Some(Token {
        epoch: 3,
        valid_until: Monotonic::after_origin(Duration::from_secs(10)),
    }));
    for hours in [-1, 1] {
        clock.set(start + jiff::SignedDuration::from_hours(hours));
        assert_eq!(leadership.time_left(), Some(Duration::from_secs(10)));
    }
    clock.advance(Duration::from_secs(5));
    assert!(leadership.may_act());
    clock.advance(Duration::from_secs(1));
    assert!(!leadership.may_act());
    assert_eq!(leadership.time_left(), Some(Duration::from_secs(4)));
    clock.advance(Duration::from_secs(4));
    assert_eq!(leadership.time_left(), None);
}

#[test]
fn two_processes_of_one_host_have_different_identities() {
    let machine = Machine::system();
    assert_ne!(identity(&machine), identity(&machine));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_although_a_renewal_that_was_given_up_arrives_meanwhile() {
    for (holder, left) in [("a", ""), ("b", "b")] {
        let lease = FakeLease::default();
        let leader = Running::start(&lease, "a");
        pass(1).await;
        let mut renewal = lease.stored().unwrap().record;
        renewal.holder = holder.to_owned();
        lease.0.lock().unwrap().under_way = Some(renewal);
        leader.stop.send(()).unwrap();
        assert_eq!(leader.task.await.unwrap(), Ended::Stopped);
        assert_eq!(lease.holder(), left, "a write of {holder} arrives");
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_could_not_act_leaves_the_lease_and_a_leader_keeps_it() {
    let lease = FakeLease::default();
    let is_current = Arc::new(AtomicBool::new(false));
    let is_eligible = Arc::clone(&is_current);
    let standby = Running::start_when(&lease, "a", move || is_eligible.load(Ordering::Relaxed));
    advance(Duration::from_mins(1)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lease.stored(), None, "there was none to take");
    assert!(!standby.leadership.may_act());
    is_current.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(standby.leadership.may_act());
    // A failure of the API server would keep the other candidates from acting, too.
    is_current.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(standby.leadership.may_act());
}
