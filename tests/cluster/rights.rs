//! What roles grant, and what requests in an audit log needed: each verb is used, and none is missing.

use std::collections::BTreeSet;

use rig::AuditEvent;
use serde_json::Value;

use crate::hands::written;

/// One right: verb, group, and resource with its subresource.
pub(crate) type Right = (String, String, String);

/// What the roles among these manifests grant.
pub(crate) fn granted(yaml: &str) -> BTreeSet<Right> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let roles = documents
        .iter()
        .filter(|one| one["kind"] == "ClusterRole" || one["kind"] == "Role");
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        serde_json::from_value(rule[field].clone()).unwrap()
    };
    let mut rights = BTreeSet::new();
    for rule in roles.flat_map(|role| role["rules"].as_array().unwrap()) {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                let verbs = texts(rule, "verbs").into_iter();
                rights.extend(verbs.map(|verb| (verb, group.clone(), resource.clone())));
            }
        }
    }
    rights
}

/// The rights that these requests needed.
pub(crate) fn used(requests: &[AuditEvent], granted: &BTreeSet<Right>) -> BTreeSet<Right> {
    let of_objects = requests.iter().filter(|event| !event.resource.is_empty());
    of_objects
        .flat_map(|event| needed(event, granted))
        .collect()
}

/// The rights that a request needed.
///
/// A server-side apply that makes an object needs `create` beside `patch`; the log shows the answer
/// 201. Where all resources of a group are granted, they are named by metrics.
fn needed(event: &AuditEvent, granted: &BTreeSet<Right>) -> Vec<Right> {
    let any = |verb: &str| (verb.to_owned(), event.group.clone(), "*".to_owned());
    let right = |verb: &str| {
        if granted.contains(&any(verb)) {
            any(verb)
        } else {
            (verb.to_owned(), event.group.clone(), written(event))
        }
    };
    let made = event.verb == "patch" && event.code == 201;
    let made = made.then(|| right("create"));
    made.into_iter().chain([right(&event.verb)]).collect()
}
