//! The permissions that roles grant, and those that requests in an audit log used.

use std::collections::BTreeSet;

use rig::AuditEvent;
use serde_json::Value;

use crate::manual_changes::written;

/// One permission: verb, group, and resource with its subresource.
pub(crate) type Permission = (String, String, String);

/// The permissions that the roles among these manifests grant.
pub(crate) fn granted(yaml: &str) -> BTreeSet<Permission> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let roles = documents
        .iter()
        .filter(|one| one["kind"] == "ClusterRole" || one["kind"] == "Role");
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        serde_json::from_value(rule[field].clone()).unwrap()
    };
    let mut permissions = BTreeSet::new();
    let all = roles.flat_map(|role| role["rules"].as_array().unwrap());
    // Others are about paths that are no resource.
    for rule in all.filter(|rule| rule.get("resources").is_some()) {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                let verbs = texts(rule, "verbs").into_iter();
                permissions.extend(verbs.map(|verb| (verb, group.clone(), resource.clone())));
            }
        }
    }
    permissions
}

/// The permissions that these requests used.
pub(crate) fn used(
    requests: &[AuditEvent],
    granted: &BTreeSet<Permission>,
) -> BTreeSet<Permission> {
    let of_objects = requests.iter().filter(|event| !event.resource.is_empty());
    of_objects
        .flat_map(|event| needed(event, granted))
        .collect()
}

/// The permissions that a request used.
///
/// A server-side apply that creates an object needs `create` besides `patch`; the log then has response 201. Where all
/// resources of a group are granted, their names are metrics.
fn needed(event: &AuditEvent, granted: &BTreeSet<Permission>) -> Vec<Permission> {
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
