//! What people are told of a fleet: when a member counts as what, what is wrong with it, who changed what, and what the
//! log has of it.

use std::io::Write;

use tracing_subscriber::fmt::MakeWriter;

use super::*;

fn why(world: &World, name: &str) -> String {
    world.cluster(name).reason.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_silence_is_a_loss_after_a_while_and_is_tolerated_from_then_on() {
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
        let mut told = Vec::new();
        for pass in 1..10 {
            let writes = world.sync(pass * 15).await;
            assert_eq!(world.condition("MembersReachable").1, "Unreachable");
            let row = why(&world, "m2");
            let reason = row.split(':').next().unwrap_or_default().to_owned();
            let is_lost = writes.contains(&"hub: event web MemberLost".to_owned());
            if is_lost || told.last().is_none_or(|(_, _, last)| *last != reason) {
                told.push((pass * 15, is_lost, reason));
            }
        }
        let expected = [
            (15, false, "Unknown".to_owned()),
            (45, true, "Unknown".to_owned()),
            (105, false, "Failed".to_owned()),
        ];
        assert_eq!(told, expected, "hangs: {hangs}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_never_there_again_after_a_restart_fails_later_and_never_sooner() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted("failurePolicy: Reassign, tolerationSeconds: 60"));
    world.sync(0).await;
    world.restart();
    world.member("m2").state().hangs = true;
    let mut failed = None;
    for pass in 10..20 {
        world.sync(pass * 15).await;
        let has_failed = why(&world, "m2").starts_with("Failed");
        failed = failed.or(has_failed.then_some(pass * 15));
    }
    // The first sync after 150 s, when it was looked for first, and 40 s and 60 s.
    assert_eq!(failed, Some(255));
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_told_as_such_before_and_after_the_member_is_lost() {
    let refusal = "it does not accept our credentials (HTTP 401); renew them in its Secret";
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    world.sync(15).await;
    let memory = world.member("m2");
    memory.state().problem = Some(refusal.to_owned());
    memory.state().rejects_us = true;
    world.sync(30).await;
    let told = (why(&world, "m2"), message(&world, "MembersReachable"));
    assert!(
        told.0
            .ends_with(". It does not accept our credentials (HTTP 401); renew them in its Secret"),
        "{}",
        told.0
    );
    assert!(told.1.starts_with(&format!("m2: {refusal}")), "{}", told.1);
    world.health("m2", Health::Unknown { since: world.start });
    world.sync(45).await;
    let row = format!("Unknown: {refusal}; its share and bounds stay unchanged");
    assert_eq!(why(&world, "m2"), row);
    // Another trouble is told, another word of the same is no news.
    let since = "it does not answer since 2026-01-01T00:00:00Z";
    memory.state().problem = Some(format!("{since}: connection reset"));
    memory.state().rejects_us = false;
    world.sync(60).await;
    assert!(why(&world, "m2").starts_with(&format!("Unknown: {since}: connection reset; ")));
    memory.state().problem = Some(format!("{since}: connection refused"));
    assert_eq!(world.sync(75).await, Vec::<String>::new());
    memory.state().unusable = true;
    memory.state().problem = Some("data.kubeconfig is not base64".to_owned());
    world.sync(90).await;
    let row = "Unknown: its Secret cannot be used: data.kubeconfig is not base64; its share and bounds stay unchanged";
    assert_eq!(why(&world, "m2"), row);
    memory.state().unusable = false;
    memory.state().problem = None;
    world.health("m2", Health::Ready);
    world.sync(105).await;
    assert!(
        !why(&world, "m2").contains("It does not"),
        "{}",
        why(&world, "m2")
    );
    assert_eq!(message(&world, "MembersReachable"), "every member answers");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_no_preference_names_is_told_apart_from_those_that_take_part() {
    let mut world = World::new(&[("m1", 1), ("m2", 4), ("m3", 1)]);
    world.put(&weighted(""));
    let since = world.start;
    world.health("m3", Health::Unknown { since });
    world.member("m3").state().problem = Some("it is asleep".to_owned());
    world.sync(0).await;
    assert_eq!(world.condition("MembersReachable").0, "True");
    let said = "every member that takes part answers; m3, which no preference names, is not ready: it is asleep";
    assert_eq!(message(&world, "MembersReachable"), said);
    let row = "NoPreference: no preference gives it a weight or priority. It is asleep";
    assert_eq!(why(&world, "m3"), row);
    world.health("m3", Health::Ready);
    world.member("m3").state().problem = None;
    world.sync(15).await;
    let said = "every member that takes part answers";
    assert_eq!(message(&world, "MembersReachable"), said);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_the_condition_names_is_not_ready_in_the_metric() {
    let ready = |world: &World| {
        let text = world.telemetry.encode();
        let line = |line: &str| {
            line.strip_prefix(r#"foretide_member_ready{member="m2"} "#)
                .map(str::to_owned)
        };
        text.lines().find_map(line)
    };
    // What the connections say, some seconds ago.
    let publish = |world: &World| {
        world
            .telemetry
            .members([("m1", true, Some(1.0)), ("m2", true, Some(1.0))]);
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
async fn a_minimum_that_differs_from_that_of_the_autoscaler_explains_it() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    world.autoscale();
    // While history is lost nothing is lowered.
    world.restart();
    world.sync(15).await;
    assert_eq!(world.bounds()["m2"], (4, 8));
    assert_eq!(world.cluster("m2").min, Some(2));
    let note = ". minReplicas of its HPA is 4 until less is needed; its minimum is 2";
    assert!(why(&world, "m2").ends_with(note), "{}", why(&world, "m2"));
    world.member("m2").state().millicores = 100;
    let mut told = Vec::new();
    for pass in 2..60 {
        world.sync(pass * 15).await;
        world.autoscale();
        let differs = world.bounds()["m2"].0 != 2;
        let is_told = why(&world, "m2").contains("minReplicas of its HPA");
        assert_eq!(is_told, differs, "pass {pass}");
        told.push(is_told);
    }
    assert!(told.contains(&true) && told.contains(&false), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn labels_that_were_taken_from_our_own_autoscaler_are_put_back() {
    let strip = |world: &World, which: &[&str]| {
        let memory = world.member("m2");
        let mut state = memory.state();
        let labels = &mut state.hpas.get_mut("fdhpa-web").unwrap().labels;
        let labels = labels.as_object_mut().unwrap();
        labels.retain(|key, _| !which.iter().any(|which| key.contains(which)));
    };
    let is_ours = |world: &World| {
        let state = world.member("m2");
        let state = state.state();
        state.hpas["fdhpa-web"].labels["autoscaling.foretide.io/fleet-uid"] == "uid-fleet"
    };
    let restored = "hub: event web HPARestored".to_owned();
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    for (second, which) in [(15, "fleet-uid"), (30, "")] {
        strip(&world, &[which]);
        let writes = world.sync(second).await;
        assert!(writes.contains(&restored), "{writes:?}");
        assert!(is_ours(&world));
        assert!(
            !why(&world, "m2").starts_with("Foreign"),
            "{}",
            why(&world, "m2")
        );
    }
    // Another controller knows it by the labels that are left, and none of it by none.
    for (second, which, ours) in [(45, "fleet-uid", true), (60, "", false)] {
        strip(&world, &[which]);
        world.restart();
        let writes = world.sync(second).await;
        assert!(!writes.contains(&restored), "{writes:?}");
        assert_eq!(is_ours(&world), ours);
        assert_eq!(why(&world, "m2").starts_with("Foreign"), !ours);
    }
}

/// What was logged.
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
    /// The records so far, and forgets them.
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
    // While there is one subscriber alone, tracing asks that of whichever thread logs first, and other tests have none.
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
    let told = first[0]["fields"]["message"].as_str().unwrap();
    let of_members = "; m1: minReplicas 0 -> 1, maxReplicas 0 -> 2: Assigned: its share of the budget by the policy, with a capacity of 10; \
                      m2: minReplicas 0 -> 2, maxReplicas 0 -> 8: Assigned: its share of the budget by the policy, with a capacity of 10";
    assert!(
        told.starts_with("5 replicas: ") && told.ends_with(of_members),
        "{told}"
    );
    world.autoscale();
    world.sync(15).await;
    world.sync(30).await;
    assert_eq!(
        log.take(),
        Vec::<serde_json::Value>::new(),
        "nothing changes"
    );
    // The members' autoscalers follow by themselves; the fleet's count is news nevertheless.
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
