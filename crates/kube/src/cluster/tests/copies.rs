//! The memory limit holds the copies of all stores, and leaves out those of the namespace that holds most.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{entry::Entry, pods::StoredPod, store::Store, stored::Stored};
use crate::api_server::Resource;
use foretide_api::ports::UnusableCopies;
use foretide_base::{clock::Clock, memory::Memory};

const MIB: usize = 1 << 20;

/// Memory in which copies may take this many bytes.
fn room_for(copies: usize) -> Memory {
    Memory::unused((copies + 64 * MIB).div_ceil(9) * 10)
}

fn store<V: Stored>(resource: Resource, memory: &Memory) -> Arc<Store<V>> {
    let store = Arc::new(Store::new(resource, &[None]));
    store.charge_to(|it| memory.copies().open("".into(), it, Clock::system()));
    store
}

/// Metadata of an object of this many bytes, created in this second.
fn metadata(namespace: &str, second: i64, bytes: usize) -> Value {
    let created = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second);
    let name = format!("of-{second}");
    let mut metadata = json!({
        "namespace": namespace, "name": name, "uid": format!("uid-{second}"), "creationTimestamp": created,
        "annotations": {"autoscaling.foretide.io/note": "x".repeat(bytes)},
    });
    let labels = (0..bytes / 16).map(|number| (format!("label-{number:09}"), json!("")));
    metadata["labels"] = labels.collect();
    metadata
}

fn pod(namespace: &str, second: i64, bytes: usize) -> Entry<StoredPod> {
    let metadata = metadata(namespace, second, bytes);
    Entry::decode(json!({"metadata": metadata, "spec": {"containers": []}})).unwrap()
}

fn autoscaler(
    namespace: &str,
    second: i64,
    bytes: usize,
) -> Entry<EffectiveHorizontalPodAutoscaler> {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 10, "scaleStrategy": "Auto"});
    Entry::decode(json!({"metadata": metadata(namespace, second, bytes), "spec": spec})).unwrap()
}

/// A store of pods and one of autoscalers that share room for 2 MiB, and what comes to them.
struct Shared {
    memory: Memory,
    pods: Arc<Store<StoredPod>>,
    autoscalers: Arc<Store<EffectiveHorizontalPodAutoscaler>>,
}

impl Shared {
    /// Twenty objects of each namespace; those of `large` are too many.
    fn filled() -> Self {
        let memory = room_for(2 * MIB);
        let pods = store(Resource::POD, &memory);
        let autoscalers = store(Resource::EHPA, &memory);
        for second in 0..20 {
            autoscalers.apply(autoscaler("large", second, 200 << 10));
            pods.apply(pod("large", 100 + second, 100 << 10));
            pods.apply(pod("shop", 200 + second, 100));
            autoscalers.apply(autoscaler("bank", 300 + second, 20 << 10));
        }
        Self {
            memory,
            pods,
            autoscalers,
        }
    }

    fn left_out(&self) -> BTreeMap<String, usize> {
        let all = self.memory.copies().left_out().into_iter();
        all.map(|((_, namespace), objects)| (namespace.to_string(), objects))
            .collect()
    }
}

#[test]
fn the_newest_copies_of_the_namespace_that_holds_most_are_left_out() {
    let shared = Shared::filled();
    let Shared {
        pods, autoscalers, ..
    } = &shared;
    let of_others = [
        pods.in_namespace("shop").len(),
        autoscalers.in_namespace("bank").len(),
    ];
    assert_eq!(of_others, [20, 20]);
    let kept = autoscalers.in_namespace("large");
    assert!(kept.len() < 20, "all are kept");
    let oldest = (0..kept.len()).map(|second| format!("of-{second}"));
    let names: BTreeSet<_> = kept
        .iter()
        .filter_map(|it| it.metadata.name.clone())
        .collect();
    assert_eq!(names, oldest.collect());
    // The pods are newer; one may be small enough for what an autoscaler left.
    let small = pods.in_namespace("large").len();
    assert!(small < 5, "{small}");
    assert_eq!(
        shared.left_out(),
        [("large".to_owned(), 40 - kept.len() - small)].into()
    );
    assert_eq!(pods.report().unreadable, 20 - small);
    // The autoscaler exists, though it cannot be read.
    assert!(autoscalers.all_and_unreadable().1.contains("uid-19"));
    let kind = "EffectiveHorizontalPodAutoscaler";
    assert_eq!(
        autoscalers.left_out("large"),
        Some(UnusableCopies::LeftOut { kind })
    );
    assert_eq!(autoscalers.left_out("bank"), None);
    assert!(!pods.has_room_again(), "the room is taken");
}

#[test]
fn copies_return_when_others_go_and_a_store_that_ends_gives_all_back() {
    let shared = Shared::filled();
    let listed = vec![autoscaler("bank", 300, 20 << 10)];
    shared.autoscalers.replace(None, listed);
    assert!(shared.pods.has_room_again());
    let listed = (0..10).map(|second| pod("large", 100 + second, 100 << 10));
    shared.pods.replace(None, listed.collect());
    assert_eq!(shared.pods.in_namespace("large").len(), 10);
    assert_eq!(shared.left_out(), [].into());
    for second in 0..9 {
        let large = autoscaler("large", second, 200 << 10);
        shared.autoscalers.apply(large);
    }
    assert_ne!(shared.left_out(), [].into());
    let memory = shared.memory.clone();
    drop(shared);
    assert_eq!(memory.copies().left_out(), [].into());
}

#[test]
fn an_autoscaler_takes_more_in_a_controller_than_in_a_process_that_publishes_its_metrics() {
    let memory = room_for(6 * MIB);
    let charged = |store: Store<_>| {
        let store = Arc::new(store);
        store.charge_to(|it| memory.copies().open("".into(), it, Clock::system()));
        for second in 0..40 {
            store.apply(autoscaler("shop", second, 200 << 10));
        }
        store.in_namespace("shop").len()
    };
    let in_adapter = charged(Store::new(Resource::EHPA, &[None]));
    let in_controller = charged(Store::new(Resource::EHPA, &[None]).of_managed());
    assert_eq!((in_adapter, in_controller), (30, 15));
}

#[test]
fn an_object_that_is_listed_again_as_it_was_stays_the_one_that_others_hold() {
    let store: Store<EffectiveHorizontalPodAutoscaler> = Store::new(Resource::EHPA, &[None]);
    store.apply(autoscaler("shop", 1, 100));
    let held = store.get("shop", "of-1").unwrap();
    store.replace(None, vec![autoscaler("shop", 1, 100)]);
    assert!(Arc::ptr_eq(&held, &store.get("shop", "of-1").unwrap()));
    store.replace(None, vec![autoscaler("shop", 1, 200)]);
    assert!(!Arc::ptr_eq(&held, &store.get("shop", "of-1").unwrap()));
}

#[test]
fn a_pod_is_too_large_by_its_labels_and_not_by_its_annotations() {
    let text = |place: &str| {
        let texts = json!({"a": "x".repeat(300 << 10)});
        let metadata = json!({"namespace": "shop", "name": "web", (place): texts});
        json!({"metadata": metadata, "spec": {"containers": []}}).to_string()
    };
    let value = |place| Entry::<StoredPod>::read(&text(place)).unwrap().value;
    assert!(value("labels").unwrap_err().contains("256 KiB"));
    assert!(value("annotations").is_ok());
}

#[test]
fn an_object_is_too_large_by_what_is_kept_of_it() {
    let pods: Store<StoredPod> = Store::new(Resource::POD, &[None]);
    pods.apply(pod("shop", 1, 200 << 10));
    assert_eq!(pods.report().unreadable, 0);
    pods.apply(pod("shop", 1, 300 << 10));
    assert_eq!(pods.report().unreadable, 1);
    assert!(pods.exclusion("shop", "of-1").unwrap().contains("256 KiB"));
}
