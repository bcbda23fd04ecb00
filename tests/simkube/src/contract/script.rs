//! The steps of `script.txt`.
//!
//! ```text
//! CODE [UNTIL] VERB PATH [as user] [<NAME>] [BODY]     a request, and the code that is expected
//!     ...                                              more of it
//!   keep NAME                                          the answer, as NAME
//!   only FIELD ... | resources NAME ... | groups NAME ... | owners FIELD     what of the answer is compared
//! FORGET | CONTROLLERS                                 what happens to the server
//! ```
//!
//! A path without a slash begins with a kind of the namespace `contract`, whose `kind` and `apiVersion` its bodies need
//! not name. `<web#1>` is the first UID of an object `web`, and `<web#1@2>` the second version of that; `<NAME>` in a
//! path is the version of a list that was kept, `<NAME.continue>` where it continues, and before a body the object that
//! the body is merged into. `UNTIL` asks until the code is the expected one.

use http::Method;
use serde_json::{Value, json};

use super::{Peer, Script, Sent, normal::sorted};
use crate::patch::merge;

const TEXT: &str = include_str!("script.txt");
/// User with the permissions of the script's roles.
const USER: &str = "system:serviceaccount:contract:user";
/// A kind in a path, the path of its API, and its kind.
const KINDS: [(&str, &str, &str); 10] = [
    ("configmaps", "v1", "ConfigMap"),
    ("deployments", "apps/v1", "Deployment"),
    ("events", "events.k8s.io/v1", "Event"),
    (
        "horizontalpodautoscalers",
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
    ),
    ("leases", "coordination.k8s.io/v1", "Lease"),
    ("pods", "v1", "Pod"),
    ("replicasets", "apps/v1", "ReplicaSet"),
    ("secrets", "v1", "Secret"),
    ("statefulsets", "apps/v1", "StatefulSet"),
    ("widgets", "contract.example/v1", "Widget"),
];

pub(super) async fn run<P: Peer>(script: &mut Script<'_, P>) {
    for step in steps() {
        match &*step {
            "FORGET" => script.peer.forget().await,
            "CONTROLLERS" => script.peer.start_controllers().await,
            directive if directive.starts_with(' ') => script.direct(directive.trim()),
            request => script.request(request).await,
        }
    }
}

/// The lines without comments; those of one request as one.
fn steps() -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    for line in TEXT
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match (line.strip_prefix("    "), steps.last_mut()) {
            (Some(more), Some(last)) => last.extend([" ", more]),
            _ => steps.push(line.to_owned()),
        }
    }
    steps
}

impl<P: Peer> Script<'_, P> {
    async fn request(&mut self, step: &str) {
        let line = step.to_owned();
        let (code, rest) = step.split_once(' ').unwrap_or_default();
        let expected = code.parse().unwrap_or_default();
        let (is_awaited, rest) = match rest.strip_prefix("UNTIL ") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let (verb, rest) = rest.split_once(' ').unwrap_or_default();
        let (path, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (user, body) = match rest.strip_prefix("as user") {
            Some(body) => (USER, body.trim_start()),
            None => ("", rest),
        };
        let (method, content_type) = method_of(verb, !body.is_empty());
        let kind = KINDS
            .iter()
            .find(|(plural, ..)| path.split(['/', '?']).next() == Some(plural));
        let path = kind.map_or_else(
            || path.to_owned(),
            |(_, api, _)| {
                let root = if *api == "v1" { "/api" } else { "/apis" };
                format!("{root}/{api}/namespaces/contract/{path}")
            },
        );
        let names_kind = matches!(verb, "POST" | "PUT" | "APPLY") && !path.contains("/scale");
        let body = self.body(body, kind.filter(|_| names_kind));
        let sent = Sent {
            user,
            method,
            path: self.resolved(&path),
            content_type,
            body,
        };
        if is_awaited {
            self.until(&sent, expected).await;
        }
        self.send(line, &sent, expected).await;
    }

    /// The body in a text.
    fn body(&self, text: &str, kind: Option<&(&str, &str, &str)>) -> Value {
        let (kept, text) = match text
            .strip_prefix('<')
            .and_then(|text| text.split_once("> "))
        {
            Some((name, text)) => (self.kept.get(name), text),
            None => (None, text),
        };
        let mut body: Value = serde_json::from_str(&self.resolved(text)).unwrap_or_default();
        if let Some(kept) = kept {
            let mut whole = kept.clone();
            merge(&mut whole, &body);
            return whole;
        }
        if let (Some((_, api, kind)), Some(fields)) = (kind, body.as_object_mut()) {
            fields.entry("apiVersion").or_insert_with(|| json!(api));
            fields.entry("kind").or_insert_with(|| json!(kind));
        }
        body
    }

    /// A text with the values that its words stand for.
    fn resolved(&self, text: &str) -> String {
        let mut parts = text.split('<');
        let mut resolved = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (word, rest) = part.split_once('>').unwrap_or((part, ""));
            let (name, field) = word.split_once('.').unwrap_or((word, "resourceVersion"));
            let kept = self
                .kept
                .get(name)
                .and_then(|kept| kept["metadata"][field].as_str());
            let value = self.normal.value_of(word).or(kept).unwrap_or(word);
            let encoded = url::form_urlencoded::byte_serialize(value.as_bytes());
            resolved.extend(encoded);
            resolved += rest;
        }
        resolved
    }

    /// Carries out a directive about the last answer.
    fn direct(&mut self, directive: &str) {
        let (verb, rest) = directive.split_once(' ').unwrap_or_default();
        if verb == "keep" {
            self.kept.insert(rest.to_owned(), self.last.clone());
            return;
        }
        let Some(last) = self.exchanges.last_mut() else {
            return;
        };
        let names: Vec<&str> = rest.split(' ').collect();
        let of_list = |field: &str| {
            let all = last.answer[field].as_array().cloned().unwrap_or_default();
            let is_named = |one: &Value| names.iter().any(|name| one["name"] == *name);
            all.into_iter().filter(is_named).collect::<Vec<_>>()
        };
        last.answer = match verb {
            "resources" => sorted(of_list("resources").iter().map(resource).collect()),
            "groups" => sorted(
                of_list("groups")
                    .iter()
                    .map(|one| one["name"].clone())
                    .collect(),
            ),
            "owners" => {
                let owners = last.answer["metadata"]["managedFields"].as_array();
                let path = json!(rest);
                let owns =
                    |owner: &&Value| owner[4].as_array().is_some_and(|all| all.contains(&path));
                let owners = owners.into_iter().flatten().filter(owns);
                owners
                    .map(|owner| json!([owner[0], owner[1], owner[2]]))
                    .collect()
            }
            _ => {
                let pointer = |name: &str| format!("/{}", name.replace('.', "/"));
                let field = |name: &&str| last.answer.pointer(&pointer(name)).cloned();
                names
                    .iter()
                    .map(|name| field(name).unwrap_or_default())
                    .collect()
            }
        };
    }
}

/// A resource in discovery, without `deletecollection`, which has no user.
fn resource(resource: &Value) -> Value {
    let verbs = resource["verbs"].as_array().into_iter().flatten();
    let mut verbs: Vec<&Value> = verbs.filter(|verb| **verb != "deletecollection").collect();
    verbs.sort_by_key(ToString::to_string);
    let fields = [
        "name",
        "kind",
        "namespaced",
        "singularName",
        "group",
        "version",
    ]
    .map(|field| &resource[field]);
    json!([fields, verbs])
}

fn method_of(verb: &str, has_body: bool) -> (Method, &'static str) {
    match verb {
        "MERGE" => (Method::PATCH, "application/merge-patch+json"),
        "JSON" => (Method::PATCH, "application/json-patch+json"),
        "APPLY" => (Method::PATCH, "application/apply-patch+yaml"),
        verb => {
            let content_type = if has_body { "application/json" } else { "" };
            (verb.parse().unwrap_or_default(), content_type)
        }
    }
}
