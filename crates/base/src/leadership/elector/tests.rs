//! Actions of a candidate in each situation.

use serde_json::Value;

use super::*;

const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

fn reading(seconds: u64) -> Monotonic {
    Monotonic::after_origin(Duration::from_secs(seconds))
}

/// The wall clock of every test stands an hour after the epoch.
fn wall() -> Timestamp {
    Timestamp::from_second(3_600).unwrap()
}

fn at(seconds: u64) -> ClockReading {
    ClockReading::new(wall(), reading(seconds))
}

fn record(holder: &str, transitions: i32) -> LeaseRecord {
    LeaseRecord {
        holder: holder.to_owned(),
        duration: Some(Duration::from_secs(15)),
        acquired: Some(wall()),
        renewed: Some(wall()),
        transitions,
    }
}

fn lease(record: LeaseRecord, version: &str) -> StoredLease {
    StoredLease {
        record,
        version: version.to_owned(),
        object: Value::Null,
    }
}

fn elector() -> Elector {
    Elector::new("me".to_owned(), TIMING)
}

/// Runs one attempt at this time in which the lease has this content.
fn reads(elector: &mut Elector, seconds: u64, found: &StoredLease) -> Option<Request> {
    assert_eq!(elector.start(at(seconds)), Request::Read);
    elector.answer(Answer::Lease(found.clone()), at(seconds))
}

/// An elector that has taken the lease, version 1, by a write that was sent at second 100.
fn leader() -> Elector {
    let mut elector = elector();
    elector.start(at(99));
    elector.answer(Answer::Absent, at(100));
    let written = lease(record("me", 0), "1");
    assert_eq!(elector.answer(Answer::Lease(written), at(103)), None);
    elector
}

#[test]
fn a_lease_that_is_absent_is_created_and_its_token_counts_from_the_write() {
    let mut elector = elector();
    assert_eq!(elector.start(at(99)), Request::Read);
    let create = elector.answer(Answer::Absent, at(100));
    assert_eq!(create, Some(Request::Create(record("me", 0))));
    assert_eq!(elector.token(), None);
    let written = lease(record("me", 0), "1");
    assert_eq!(elector.answer(Answer::Lease(written), at(103)), None);
    let token = Token {
        epoch: 0,
        valid_until: reading(110),
    };
    assert_eq!(elector.token(), Some(token));
}

#[test]
fn a_held_lease_is_taken_when_it_did_not_change_for_as_long_as_it_says() {
    for (says, expires) in [(Some(15), 15), (Some(60), 60), (Some(4), 4), (None, 15)] {
        let mut held = record("other", 7);
        held.duration = says.map(Duration::from_secs);
        // The holder's wall clock has no influence on the expiry.
        held.renewed = Some(Timestamp::UNIX_EPOCH);
        let held = lease(held, "5");
        let mut elector = elector();
        assert_eq!(reads(&mut elector, 100, &held), None);
        assert_eq!(reads(&mut elector, 100 + expires - 1, &held), None);
        let taken = record("me", 8);
        assert_eq!(
            reads(&mut elector, 100 + expires, &held),
            Some(Request::Replace(held, taken)),
            "{says:?}"
        );
    }
}

#[test]
fn a_standby_reads_the_lease_when_it_expires_and_otherwise_every_second() {
    let mut elector = elector();
    assert_eq!(elector.next_attempt(reading(99)), reading(100));
    let mut held = record("other", 7);
    // The lease is taken after the duration in its record.
    held.duration = Some(Duration::from_millis(4_300));
    assert_eq!(reads(&mut elector, 100, &lease(held, "5")), None);
    let expires = Monotonic::after_origin(Duration::from_millis(104_300));
    for (began, next) in [
        (reading(100), reading(101)),
        (reading(103), reading(104)),
        (reading(104), expires),
        // The attempt to take it failed.
        (expires, expires + Duration::from_secs(1)),
    ] {
        assert_eq!(elector.next_attempt(began), next, "{began:?}");
    }
}

#[test]
fn a_standby_reads_the_lease_twice_per_retry_period_where_that_is_short() {
    let timing = Timing {
        retry_period: Duration::from_secs(1),
        ..TIMING
    };
    let elector = Elector::new("me".to_owned(), timing);
    let next = reading(99) + Duration::from_millis(500);
    assert_eq!(elector.next_attempt(reading(99)), next);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let free = lease(record("", 7), "5");
    let taken = record("me", 8);
    // Two renewals differ, also with a wall clock that stands still.
    let renewed = Some(wall() + RENEWAL_STEP);
    let taken = LeaseRecord { renewed, ..taken };
    assert_eq!(
        reads(&mut elector(), 100, &free),
        Some(Request::Replace(free, taken))
    );
}

#[test]
fn a_lease_that_was_deleted_is_not_created_while_its_holder_may_act() {
    let mut elector = elector();
    assert_eq!(
        reads(&mut elector, 100, &lease(record("other", 7), "5")),
        None
    );
    for (second, creates) in [(114, false), (115, true)] {
        elector.start(at(second));
        let next = elector.answer(Answer::Absent, at(second));
        let create = Request::Create(record("me", 8));
        assert_eq!(next, creates.then_some(create), "{second}");
    }
}

#[test]
fn a_leader_renews_without_reading_and_keeps_its_epoch() {
    let mut elector = leader();
    let renewed = LeaseRecord {
        renewed: Some(wall() + RENEWAL_STEP),
        ..record("me", 0)
    };
    let held = lease(record("me", 0), "1");
    let replace = Request::Replace(held, renewed.clone());
    assert_eq!(elector.start(at(105)), replace);
    assert_eq!(
        elector.answer(Answer::Lease(lease(renewed, "2")), at(106)),
        None
    );
    assert_eq!(elector.token().unwrap().valid_until, reading(115));
}

#[test]
fn a_renewal_whose_answer_is_lost_does_not_extend_the_token() {
    let mut elector = leader();
    elector.start(at(105));
    assert_eq!(elector.answer(Answer::Failed, at(108)), None);
    assert_eq!(elector.token().unwrap().valid_until, reading(110));
    // The renewal took effect, which the conflict of the next attempt shows.
    assert!(matches!(elector.start(at(108)), Request::Replace(..)));
    assert_eq!(
        elector.answer(Answer::Conflict, at(108)),
        Some(Request::Read)
    );
    let renewed = lease(record("me", 0), "2");
    let again = elector.answer(Answer::Lease(renewed.clone()), at(109));
    assert!(matches!(again, Some(Request::Replace(seen, _)) if seen == renewed));
    elector.answer(Answer::Lease(lease(record("me", 0), "3")), at(109));
    assert_eq!(elector.token().unwrap().valid_until, reading(119));
}

#[test]
fn a_lease_that_was_taken_without_an_answer_is_recognized_at_the_next_attempt() {
    let mut elector = elector();
    elector.start(at(100));
    elector.answer(Answer::Absent, at(100));
    assert_eq!(elector.answer(Answer::Failed, at(105)), None);
    assert_eq!(elector.token(), None);
    let own = lease(record("me", 0), "1");
    let next = reads(&mut elector, 107, &own);
    assert!(matches!(next, Some(Request::Replace(_, written)) if written.transitions == 0));
}

#[test]
fn a_leader_that_sees_another_holder_has_no_token() {
    let mut elector = leader();
    elector.start(at(105));
    elector.answer(Answer::Conflict, at(105));
    let taken = lease(record("other", 1), "2");
    assert_eq!(elector.answer(Answer::Lease(taken), at(105)), None);
    assert_eq!(elector.token(), None);
    assert_eq!(elector.holder(), Some("other"));
}

#[test]
fn only_an_own_lease_is_released() {
    let elector = leader();
    let own = lease(record("me", 3), "1");
    let want = LeaseRecord {
        duration: Some(RELEASED),
        ..record("", 3)
    };
    assert_eq!(elector.released(&own, wall()), Some(want));
    let others = lease(record("other", 3), "1");
    assert_eq!(elector.released(&others, wall()), None);
}
