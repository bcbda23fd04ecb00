//! Deletion: at once, or when finalizers, a kubelet or the contents of a namespace allow it; and garbage collection.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    kinds::Kind,
    request::Call,
    serve::{Answer, NAMESPACES, State, time},
    status::Status,
    target::Target,
};

impl State {
    /// Deletes an object on the conditions of the options.
    pub(crate) fn delete(&mut self, call: &Call, target: &Target<'_>, now: Timestamp) -> Answer {
        let Target { kind, place } = target;
        let live = self.live(target)?;
        let options = call.body()?;
        for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let (wanted, found) = (&options["preconditions"][field], &live["metadata"][field]);
            if !wanted.is_null() && wanted != found {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                return Err(Status::not_as_expected(
                    kind,
                    &place.name,
                    what,
                    &text(wanted),
                    &text(found),
                ));
            }
        }
        // Options in a body replace those of the query.
        let is_dry_run = if options.is_null() {
            call.is_dry_run()
        } else {
            options["dryRun"][0] == "All"
        };
        if is_dry_run {
            return Ok((200, deleted(kind, &live)));
        }
        let asked = options["gracePeriodSeconds"].as_i64().or(call
            .number("gracePeriodSeconds")?
            .and_then(|n| n.try_into().ok()));
        Ok((200, self.delete_object(kind, &live, asked, now)))
    }

    /// Removes an object, or marks it as deleted if something has to happen first: finalizers, the end of a pod, the
    /// contents of a namespace.
    fn delete_object(
        &mut self,
        kind: &Kind,
        live: &Value,
        grace: Option<i64>,
        now: Timestamp,
    ) -> Value {
        let (collection, key) = (kind.collection(), key(live));
        let is_running = kind.kind == "Pod" && live["spec"]["nodeName"].is_string();
        let usual = live["spec"]["terminationGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(30);
        let grace = if is_running {
            grace.unwrap_or(usual)
        } else {
            0
        };
        let is_free = live["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty);
        let is_removed = is_free && grace == 0 && collection != NAMESPACES;
        if is_removed && kind.kind != "Pod" {
            self.store.remove(&collection, &key);
            return deleted(kind, live);
        }
        let mut object = live.clone();
        let metadata = &mut object["metadata"];
        if metadata["deletionTimestamp"].is_null() {
            metadata["deletionTimestamp"] =
                json!(time(now + jiff::SignedDuration::from_secs(grace)));
            if kind.kind != "Namespace" {
                metadata["deletionGracePeriodSeconds"] = json!(grace);
            }
            if let Some(generation) = metadata["generation"].as_i64() {
                metadata["generation"] = json!(generation + 1);
            }
        }
        // The last state of a pod shows that it was deleted.
        if is_removed {
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            let last = self.store.remove_as(&collection, &key, object);
            return last.as_deref().cloned().unwrap_or_default();
        }
        if collection == NAMESPACES {
            object["status"]["phase"] = json!("Terminating");
        }
        if object == *live {
            return live.clone();
        }
        Value::clone(&self.store.put(&collection, &key, object))
    }

    /// Deletes the objects whose owners are all gone, and those of namespaces that are deleted, as the controller
    /// manager does; returns whether there were any.
    pub(crate) fn collect_garbage(&mut self, now: Timestamp) -> bool {
        let before = self.store.revision();
        let uid = |object: &Value| object["metadata"]["uid"].as_str().map(str::to_owned);
        let uids: BTreeSet<String> = self
            .store
            .everything()
            .filter_map(|(_, _, object)| uid(object))
            .collect();
        let is_orphan = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            let is_gone =
                |owner: &Value| owner["uid"].as_str().is_none_or(|uid| !uids.contains(uid));
            owners.is_some_and(|owners| !owners.is_empty() && owners.iter().all(is_gone))
        };
        let ends: Vec<String> = self
            .store
            .all(NAMESPACES)
            .filter(|(_, namespace)| !namespace["metadata"]["deletionTimestamp"].is_null())
            .map(|(name, _)| name.clone())
            .collect();
        let is_in = |key: &str, namespace: &String| {
            key.split_once('/')
                .is_some_and(|(found, _)| found == namespace)
        };
        let garbage: Vec<(String, Arc<Value>)> = self
            .store
            .everything()
            .filter(|(_, key, object)| {
                is_orphan(object) || ends.iter().any(|namespace| is_in(key, namespace))
            })
            .map(|(collection, _, object)| (collection.clone(), Arc::clone(object)))
            .collect();
        for (collection, object) in garbage {
            if let Some(kind) = self.kinds.of(&collection) {
                self.delete_object(&kind, &object, Some(0), now);
            }
        }
        for namespace in ends {
            if !self
                .store
                .everything()
                .any(|(_, key, _)| is_in(key, &namespace))
            {
                self.store.remove(NAMESPACES, &namespace);
            }
        }
        self.store.revision() != before
    }
}

/// The key of an object in the store.
fn key(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    }
}

/// The answer to a deletion that took effect.
fn deleted(kind: &Kind, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut details =
        json!({"name": metadata["name"], "kind": kind.plural, "uid": metadata["uid"]});
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
