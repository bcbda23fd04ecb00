//! Changes of authorities and certificates, and the trust of clients in what is presented at every time.

use proptest::prelude::*;

use super::*;
use crate::certificates::{
    authority::{Authority, AuthorityCertificate},
    rotation::{Authorities, Step},
};

const PUBLISHED: CertificateLifetimes = CertificateLifetimes::PUBLISHED;

fn days(count: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * count)
}

fn authority(from: Timestamp) -> Arc<Authority> {
    let made = Authority::new("foretide-adapter", from, PUBLISHED.authority);
    Arc::new(made.unwrap())
}

#[test]
fn an_authority_is_announced_after_two_thirds_and_signs_when_every_client_can_have_it() {
    let now = start() + days(1_000);
    let minute = SignedDuration::from_mins(1);
    for (current, next, is_published, step) in [
        (None, None, true, Some(Step::Create)),
        (Some(days(365)), None, true, Some(Step::Create)),
        (Some(days(365)), Some(days(365)), true, Some(Step::Create)),
        // Without another one that is valid, the next one signs in any case.
        (Some(days(365)), Some(minute), false, Some(Step::Promote)),
        (None, Some(minute), false, Some(Step::Promote)),
        (Some(days(0)), None, true, None),
        (Some(days(243)), None, true, None),
        (Some(days(244)), None, false, Some(Step::Announce)),
        (Some(days(250)), Some(minute * 59), true, None),
        (
            Some(days(250)),
            Some(minute * 60),
            true,
            Some(Step::Promote),
        ),
        (Some(days(250)), Some(days(6)), false, None),
        // A clock that is behind changes nothing.
        (Some(-days(1)), None, true, None),
        (Some(days(250)), Some(-days(1)), true, None),
    ] {
        let made = |age: Option<SignedDuration>| age.map(|age| authority(now - age));
        let authorities = Authorities {
            current: made(current),
            next: made(next),
            former: Vec::new(),
        };
        let found = authorities.step(is_published, now, &PUBLISHED);
        assert_eq!(found, step, "{current:?} {next:?} {is_published}");
    }
}

#[tokio::test]
async fn a_year_of_rotation_is_trusted_by_clients_that_have_the_published_bundle() {
    let objects = Objects::new();
    let clock = Clock::standing_at(start());
    let [one, other] = [(); 2].map(|()| Replica::new(&objects, &clock, PUBLISHED));
    let mut authorities = Vec::new();
    let mut certificates = Vec::new();
    for _half_day in 0..730 {
        for replica in [&one, &other] {
            replica.round().await;
            let presented = replica.presented().await.unwrap();
            let bundle = objects.published().unwrap();
            assert_eq!(
                trusts(&bundle, &presented, clock.now()),
                Ok(()),
                "{}",
                clock.now()
            );
            if certificates.last() != Some(&presented) && std::ptr::eq(replica, &raw const one) {
                certificates.push(presented);
            }
        }
        let current = objects.text("ca.crt").unwrap();
        if authorities.last() != Some(&current) {
            authorities.push(current);
        }
        clock.advance(std::time::Duration::from_hours(12));
    }
    // At the start, and a day after the next one was announced on day 243.5.
    assert_eq!(authorities.len(), 2);
    // Every 5 days: two thirds of 7 days are 4 days and 16 hours.
    assert!(
        (73..=75).contains(&certificates.len()),
        "{}",
        certificates.len()
    );
    // The former one was trusted until its end.
    let bundle = objects.published().unwrap();
    assert!(bundle.contains(authorities[1].trim()));
    assert_eq!(objects.text("ca-bundle.crt"), Some(bundle));
    assert_eq!(objects.text("next-ca.key"), None);
    clock.advance(std::time::Duration::from_hours(12));
    one.round().await;
    assert_eq!(objects.published(), Some(authorities[1].clone()));
    assert_eq!(objects.secret()["metadata"]["labels"], json!({"a": "b"}));
}

#[tokio::test]
async fn the_next_authority_does_not_sign_before_every_registration_has_it() {
    let objects = Objects::new();
    let clock = Clock::standing_at(start());
    let replica = Replica::new(&objects, &clock, PUBLISHED);
    replica.round().await;
    let first = objects.text("ca.crt");
    clock.advance(std::time::Duration::from_hours(244 * 24));
    objects.fail(&["PATCH"]);
    for _hour in 0..5 {
        replica.round().await;
        clock.advance(std::time::Duration::from_hours(1));
    }
    assert!(objects.text("next-ca.crt").is_some());
    assert_eq!(objects.text("ca.crt"), first);
    objects.fail(&[]);
    replica.round().await;
    assert_eq!(objects.text("ca.crt"), first, "published in this round");
    // A registration that cannot be read may have another bundle.
    objects.fail(&["GET /apis"]);
    replica.round().await;
    assert_eq!(objects.text("ca.crt"), first);
    objects.fail(&[]);
    replica.round().await;
    // Every client has it when it was there for an hour.
    clock.advance(std::time::Duration::from_mins(59));
    replica.round().await;
    assert_eq!(objects.text("ca.crt"), first);
    clock.advance(std::time::Duration::from_mins(1));
    replica.round().await;
    assert_ne!(objects.text("ca.crt"), first);
}

#[tokio::test]
async fn a_replica_with_a_wrong_clock_makes_nothing() {
    let objects = Objects::new();
    let clock = Clock::standing_at(start());
    let wrong_clock = Clock::standing_at(start() + days(365));
    let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
    let wrong = Replica::with_date(&objects, &wrong_clock, PUBLISHED, date);
    assert!(!wrong.round().await);
    let problem = wrong.problem().await.unwrap();
    assert!(problem.contains("clock of this replica"), "{problem}");
    assert_eq!((objects.text("ca.crt"), objects.published()), (None, None));
    let right = Replica::new(&objects, &clock, PUBLISHED);
    assert!(right.round().await);
    let authority = objects.text("ca.crt");
    wrong.round().await;
    assert_eq!(
        (objects.text("ca.crt"), objects.text("next-ca.crt")),
        (authority, None)
    );
    assert_eq!(wrong.presented().await, None, "it would not be valid yet");
}

#[tokio::test]
async fn without_the_secret_the_known_authority_signs_on_until_it_ends() {
    let objects = Objects::new();
    let clock = Clock::standing_at(start());
    let replica = Replica::new(&objects, &clock, PUBLISHED);
    replica.round().await;
    let bundle = objects.published().unwrap();
    let first = replica.presented().await.unwrap();
    objects.fail(&["GET", "PUT", "PATCH"]);
    clock.advance(std::time::Duration::from_hours(6 * 24));
    replica.round().await;
    let renewed = replica.presented().await.unwrap();
    assert_ne!(renewed, first);
    assert_eq!(trusts(&bundle, &renewed, clock.now() + days(6)), Ok(()));
    clock.advance(std::time::Duration::from_hours(357 * 24));
    replica.round().await;
    let last = replica.presented().await.unwrap();
    assert_eq!(trusts(&bundle, &last, start() + days(365)), Ok(()));
    assert!(trusts(&bundle, &last, start() + days(366)).is_err());
    // An authority that has ended signs nothing.
    clock.advance(std::time::Duration::from_hours(9 * 24));
    replica.round().await;
    assert_eq!(replica.presented().await, Some(last));
    let problem = replica.problem().await.unwrap();
    assert!(
        problem.contains("the certificate authority ended at 2027-01-01"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_registration_that_was_modified_since_it_was_observed_is_written_in_the_next_round() {
    let objects = Objects::new();
    let clock = Clock::standing_at(start());
    let replica = Replica::new(&objects, &clock, PUBLISHED);
    let observed = replica.registrations.observe().await;
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io";
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, _) = objects.server.ask("kubectl", "PATCH", path, &change);
    assert_eq!(code, 200);
    assert!(!replica.registrations.publish(&observed, "a bundle").await);
    assert_eq!(objects.published(), None);
    let observed = replica.registrations.observe().await;
    assert!(replica.registrations.publish(&observed, "a bundle").await);
    assert_eq!(objects.published().as_deref(), Some("a bundle"));
}

#[tokio::test]
async fn data_that_was_removed_or_damaged_makes_a_new_authority() {
    let objects = Objects::new();
    let clock = Clock::standing_at(start());
    let replica = Replica::new(&objects, &clock, PUBLISHED);
    replica.round().await;
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let damages = [
        Value::Null,
        json!({"ca.key": "not base64"}),
        json!({"ca.crt": STANDARD.encode("no certificate")}),
        json!({"ca.key": STANDARD.encode(key)}),
    ];
    for damage in damages {
        let before = objects.text("ca.crt");
        let change = json!({"data": damage});
        let (code, _) = objects.server.ask("kubectl", "PATCH", SECRET, &change);
        assert_eq!(code, 200);
        clock.advance(std::time::Duration::from_secs(1));
        replica.round().await;
        assert_ne!(objects.text("ca.crt"), before);
        let (bundle, presented) = (objects.published().unwrap(), replica.presented().await);
        assert_eq!(trusts(&bundle, &presented.unwrap(), clock.now()), Ok(()));
    }
}

/// An event in one step of a random schedule.
#[derive(Debug, Clone)]
struct Event {
    minutes: u32,
    replica: usize,
    failing: Vec<&'static str>,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let minutes = prop_oneof![4 => 0_u32..90, 1 => 90_u32..2_000];
    let failures = ["GET /api/", "GET /apis", "PUT", "PATCH"];
    let failing = prop::sample::subsequence(failures.to_vec(), 0..=1);
    let event = (minutes, 0_usize..3, failing).prop_map(|(minutes, replica, failing)| Event {
        minutes,
        replica,
        failing,
    });
    prop::collection::vec(event, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Replicas run rounds in any order, and requests of any kind fail: what each presents is trusted by clients that
    /// have the published bundle, as long as any authority in that bundle has not ended.
    #[test]
    fn law_what_is_presented_is_trusted(events in events()) {
        let lifetimes = CertificateLifetimes {
            authority: days(3),
            overlap: SignedDuration::from_hours(1),
            serving: SignedDuration::from_hours(8),
            period: SignedDuration::from_mins(1),
        };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let objects = Objects::new();
            let clock = Clock::standing_at(start());
            let replicas = [(); 3].map(|()| Replica::new(&objects, &clock, lifetimes));
            for event in &events {
                clock.advance(std::time::Duration::from_mins(event.minutes.into()));
                objects.fail(&event.failing);
                replicas[event.replica].round().await;
                let Some(bundle) = objects.published() else { continue };
                let Some(presented) = replicas[event.replica].presented().await else { continue };
                let trusted = trusts(&bundle, &presented, clock.now());
                let authorities = AuthorityCertificate::all_of(&bundle);
                let mut authorities = authorities.iter();
                let may_work = authorities.any(|one| !one.validity.has_ended(clock.now()));
                // A certificate that ended while no round could renew it is no surprise to the client.
                let is_expected = |error: &String| !may_work || error.to_lowercase().contains("expired");
                prop_assert!(trusted.as_ref().err().is_none_or(is_expected), "{trusted:?}");
                if event.failing.is_empty() {
                    prop_assert_eq!(trusted, Ok(()));
                }
            }
            Ok(())
        })?;
    }
}
