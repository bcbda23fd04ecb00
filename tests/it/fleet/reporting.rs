//! Reports of a fleet to users: the state of each member and its problem, the authors of changes, and the log records.

use std::io::Write;

use foretide_base::telemetry::MemberGauges;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

fn reason_of(world: &World, name: &str) -> String {
    world.cluster(name).reason.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_is_lost_after_a_while_and_tolerated_from_then_on() {
    for hangs in [true, false] {
        let mut world = World::new(&[("m1", 1), ("m2", 4)]);
        world.put(&weighted("failurePolicy: Reassign, tolerationSeconds: 60"));
        world.sync(0).await;
        if hangs {
            world.member("m2").state().hangs = true;
        } else {
            let since = world.start + LOST_AFTER;
            world.health("m2", Health::Unknown { since });
        }
        let mut reported = Vec::new();
        for pass in 1..10 {
            let writes = world.sync(pass * 15).await;
            assert_eq!(world.condition("MembersReachable").1, "Unreachable");
            let row = reason_of(&world, "m2");
            let reason = row.split(':').next().unwrap_or_default().to_owned();
            let is_lost = writes.contains(&"hub: event web MemberLost".to_owned());
            if is_lost || reported.last().is_none_or(|(_, _, last)| *last != reason) {
                reported.push((pass * 15, is_lost, reason));
            }
        }
        let expected = [
            (15, false, "Unknown".to_owned()),
            (45, true, "Unknown".to_owned()),
            (105, false, "Failed".to_owned()),
        ];
        assert_eq!(reported, expected, "hangs: {hangs}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_never_returns_after_a_restart_fails_later_and_never_sooner() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted("failurePolicy: Reassign, tolerationSeconds: 60"));
    world.sync(0).await;
    world.restart();
    world.member("m2").state().hangs = true;
    let mut failed = None;
    for pass in 10..20 {
        world.sync(pass * 15).await;
        let has_failed = reason_of(&world, "m2").starts_with("Failed");
        failed = failed.or(has_failed.then_some(pass * 15));
    }
    // The first sync after 150 s from the first check, plus 40 s and 60 s.
    assert_eq!(failed, Some(255));
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_reported_before_and_after_the_member_is_lost() {
    let refusal = "credentials rejected (HTTP 401); renew them in the Secret of the member";
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    world.sync(15).await;
    let fake = world.member("m2");
    fake.state().problem = Some(refusal.to_owned());
    fake.state().rejects_credentials = true;
    world.sync(30).await;
    let reported = (reason_of(&world, "m2"), message(&world, "MembersReachable"));
    assert!(
        reported
            .0
            .ends_with(". Credentials rejected (HTTP 401); renew them in the Secret of the member"),
        "{}",
        reported.0
    );
    assert!(
        reported.1.starts_with(&format!("m2: {refusal}")),
        "{}",
        reported.1
    );
    world.health("m2", Health::Unknown { since: world.start });
    world.sync(45).await;
    let row = format!("Unknown: {refusal}; its share and bounds stay unchanged");
    assert_eq!(reason_of(&world, "m2"), row);
    // Another problem is reported; another cause of the same problem once in five minutes.
    let since = "no answer since 2026-01-01T00:00:00Z";
    fake.state().problem = Some(format!("{since}: connection reset"));
    fake.state().rejects_credentials = false;
    world.sync(60).await;
    assert!(reason_of(&world, "m2").starts_with(&format!("Unknown: {since}: connection reset; ")));
    for (second, cause, writes) in [
        (75, "refused", vec!["hub: status web"]),
        (90, "reset", vec![]),
    ] {
        fake.state().problem = Some(format!("{since}: connection {cause}"));
        assert_eq!(world.sync(second).await, writes);
    }
    fake.state().unusable = true;
    fake.state().problem = Some("data.kubeconfig is not base64".to_owned());
    world.sync(105).await;
    let row = "Unknown: the Secret of the member cannot be used: data.kubeconfig is not base64; its share and bounds stay unchanged";
    assert_eq!(reason_of(&world, "m2"), row);
    fake.state().unusable = false;
    fake.state().problem = None;
    world.health("m2", Health::Ready);
    world.sync(120).await;
    assert!(
        !reason_of(&world, "m2").contains("Credentials"),
        "{}",
        reason_of(&world, "m2")
    );
    assert_eq!(
        message(&world, "MembersReachable"),
        "every member is reachable"
    );
}

#[tokio::test(start_paused = true)]
async fn a_member_without_a_preference_is_reported_separately_from_participants() {
    let mut world = World::new(&[("m1", 1), ("m2", 4), ("m3", 1)]);
    world.put(&weighted(""));
    let since = world.start;
    world.health("m3", Health::Unknown { since });
    world.member("m3").state().problem = Some("it is asleep".to_owned());
    world.sync(0).await;
    assert_eq!(world.condition("MembersReachable").0, "True");
    let expected = "every participating member is reachable; m3, which no preference selects, is not ready: it is asleep";
    assert_eq!(message(&world, "MembersReachable"), expected);
    let row = "NoPreference: no preference gives it a weight or priority. It is asleep";
    assert_eq!(reason_of(&world, "m3"), row);
    world.health("m3", Health::Ready);
    world.member("m3").state().problem = None;
    world.sync(15).await;
    let expected = "every participating member is reachable";
    assert_eq!(message(&world, "MembersReachable"), expected);
}

#[tokio::test(start_paused = true)]
async fn a_member_named_by_the_condition_is_not_ready_in_the_metric() {
    let ready = |world: &World| {
        let text = world.telemetry.encode();
        let line = |line: &str| {
            line.strip_prefix(r#"foretide_member_ready{member="m2"} "#)
                .map(str::to_owned)
        };
        text.lines().find_map(line)
    };
    // Reports of the connections from some seconds ago.
    let publish = |world: &World| {
        let ready = |name| MemberGauges {
            name,
            ready: true,
            silent: Some(1.0),
            usable: true,
            restarts: 0,
        };
        world.telemetry.members(["m1", "m2"].map(ready));
    };
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    publish(&world);
    world.sync(0).await;
    assert_eq!(ready(&world).as_deref(), Some("1"));
    world.member("m2").state().hangs = true;
    for pass in 1..3 {
        world.sync(pass * 15).await;
        assert_eq!(world.condition("MembersReachable").1, "Unreachable");
        assert_eq!(ready(&world).as_deref(), Some("0"));
        publish(&world);
        assert_eq!(ready(&world).as_deref(), Some("0"));
    }
    world.member("m2").state().hangs = false;
    world.health("m2", Health::NotReady { since: world.start });
    world.sync(45).await;
    assert_eq!(world.condition("MembersReachable").1, "Unreachable");
    assert_eq!(ready(&world).as_deref(), Some("0"));
    world.health("m2", Health::Ready);
    world.sync(60).await;
    publish(&world);
    assert_eq!(world.condition("MembersReachable").1, "Reachable");
    assert_eq!(ready(&world).as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_minimum_that_differs_from_that_of_the_hpa_is_explained() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    world.autoscale();
    // Nothing is lowered while history is missing.
    world.restart();
    world.sync(15).await;
    assert_eq!(world.bounds()["m2"], (4, 8));
    assert_eq!(world.cluster("m2").min, Some(2));
    let note = ". minReplicas of its HPA is 4 until fewer are needed; its minimum is 2";
    assert!(
        reason_of(&world, "m2").ends_with(note),
        "{}",
        reason_of(&world, "m2")
    );
    world.member("m2").state().millicores = 100;
    let mut reported = Vec::new();
    for pass in 2..60 {
        world.sync(pass * 15).await;
        world.autoscale();
        let differs = world.bounds()["m2"].0 != 2;
        let is_reported = reason_of(&world, "m2").contains("minReplicas of its HPA");
        assert_eq!(is_reported, differs, "pass {pass}");
        reported.push(is_reported);
    }
    assert!(
        reported.contains(&true) && reported.contains(&false),
        "{reported:?}"
    );
}

/// The log output.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// Returns the records so far and clears them.
    fn take(&self) -> Vec<serde_json::Value> {
        let text = std::mem::take(&mut *self.0.lock().unwrap());
        let text = String::from_utf8(text).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn every_decision_that_changes_a_count_is_one_record() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .without_time()
        .with_max_level(tracing::Level::INFO)
        .with_writer(log.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    // With a single subscriber, tracing asks only the one of the thread that logs first, and other tests have none.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    let first = log.take();
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(first[0]["level"], "INFO");
    let fields = ["namespace", "name", "target", "current", "desired"];
    let found = fields.map(|field| first[0]["fields"][field].clone());
    let expected = [
        json!("shop"),
        json!("web"),
        json!("Deployment/web"),
        json!(5),
        json!(5),
    ];
    assert_eq!(found, expected);
    let reported = first[0]["fields"]["message"].as_str().unwrap();
    let of_members = "; m1: minReplicas 0 -> 1, maxReplicas 0 -> 2: Assigned: its share of the budget by the policy, with a capacity of 10; \
                      m2: minReplicas 0 -> 2, maxReplicas 0 -> 8: Assigned: its share of the budget by the policy, with a capacity of 10";
    assert!(
        reported.starts_with("5 replicas: ") && reported.ends_with(of_members),
        "{reported}"
    );
    world.autoscale();
    world.sync(15).await;
    world.sync(30).await;
    assert_eq!(
        log.take(),
        Vec::<serde_json::Value>::new(),
        "nothing changes"
    );
    // The members' HPAs follow by themselves; the count of the fleet is still reported.
    world.member("m2").state().millicores = 700;
    world.sync(45).await;
    let more = log.take();
    assert_eq!(more.len(), 1, "{more:?}");
    let fields = ["current", "desired"].map(|field| more[0]["fields"][field].clone());
    assert_eq!(fields, [json!(5), json!(8)]);
    world.autoscale();
    world.sync(60).await;
    assert_eq!(
        log.take(),
        Vec::<serde_json::Value>::new(),
        "they are there"
    );
}
