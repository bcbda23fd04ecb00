//! The memory limit holds the copies of all stores, and leaves out those of the namespace that holds most.

use std::{collections::BTreeMap, sync::Arc};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{entry::Entry, pods::StoredPod, store::Store, stored::Stored};
use crate::{adapters::api_server::Resource, clock::Clock, memory::Memory, ports::UnusableCopies};

const MIB: usize = 1 << 20;

/// Memory in which copies may take so many bytes.
fn room_for(copies: usize) -> Memory {
    Memory::unused((copies + 64 * MIB).div_ceil(9) * 10)
}

fn store<V: Stored>(resource: Resource, memory: &Memory) -> Arc<Store<V>> {
    let store = Arc::new(Store::new(resource, &[None]));
    store.charge_to(|it| memory.copies().open("".into(), it, Clock::system()));
    store
}

/// Metadata of an object of so many bytes, which was created in this second.
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

#[test]
fn the_newest_copies_of_the_namespace_that_holds_most_are_left_out_and_return() {
    let memory = room_for(2 * MIB);
    let pods = store::<StoredPod>(Resource::POD, &memory);
    let autoscalers = store::<EffectiveHorizontalPodAutoscaler>(Resource::EHPA, &memory);
    let left_out = || -> BTreeMap<_, _> {
        let all = memory.copies().left_out().into_iter();
        all.map(|((_, namespace), objects)| (namespace.to_string(), objects))
            .collect()
    };
    for second in 0..20 {
        autoscalers.apply(autoscaler("large", second, 200 << 10));
        pods.apply(pod("large", 100 + second, 100 << 10));
        // They come later, and stay.
        pods.apply(pod("shop", 200 + second, 100));
        autoscalers.apply(autoscaler("bank", 300 + second, 20 << 10));
    }
    for kept in [
        pods.in_namespace("shop").len(),
        autoscalers.in_namespace("bank").len(),
    ] {
        assert_eq!(kept, 20);
    }
    let kept = autoscalers.in_namespace("large");
    let names: Vec<_> = kept
        .iter()
        .filter_map(|it| it.metadata.name.clone())
        .collect();
    assert!(names.len() < 20, "all are kept");
    assert!(
        (0..names.len()).all(|oldest| names.contains(&format!("of-{oldest}"))),
        "{names:?}"
    );
    // They are newer; one may be small enough for what an autoscaler left.
    let small = pods.in_namespace("large").len();
    assert!(small < 5, "{small}");
    assert_eq!(
        left_out(),
        [("large".to_owned(), 40 - names.len() - small)].into()
    );
    assert_eq!(pods.report().unreadable, 20 - small);
    // It exists, though it cannot be read.
    assert!(autoscalers.all_and_unreadable().1.contains("uid-19"));
    let kind = "EffectiveHorizontalPodAutoscaler";
    assert_eq!(
        autoscalers.left_out("large"),
        Some(UnusableCopies::LeftOut { kind })
    );
    assert_eq!(autoscalers.left_out("bank"), None);
    assert!(!pods.has_room_again(), "the room is taken");

    autoscalers.replace(None, vec![autoscaler("bank", 300, 20 << 10)]);
    assert!(pods.has_room_again());
    let listed = (0..20).map(|second| pod("large", 100 + second, 100 << 10));
    pods.replace(None, listed.take(10).collect());
    assert_eq!(pods.in_namespace("large").len(), 10);
    assert_eq!(left_out(), [].into());
    pods.apply(pod("large", 130, 250 << 10));
    for second in 0..5 {
        autoscalers.apply(autoscaler("large", second, 200 << 10));
    }
    assert_ne!(left_out(), [].into());
    // A store that ends, as that of a member that left, gives everything back.
    drop((pods, autoscalers));
    assert_eq!(left_out(), [].into());
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
