//! What a request asks for: the place that its path names, its parameters, and the objects that it selects.

use std::collections::BTreeMap;

use http::{Method, Request};
use serde_json::Value;

use crate::status::Status;

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) place: Option<Place>,
    query: BTreeMap<String, String>,
    /// Without parameters.
    pub(crate) content_type: String,
    user_agent: String,
    body: Vec<u8>,
}

/// The resource that a path names; what it does not name is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

/// Which objects of a collection are selected, by labels and by fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    labels: Vec<(String, Requirement)>,
    /// Path, value, and whether it is to be equal.
    fields: Vec<(String, String, bool)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

// === impl User ===

impl User {
    /// May do everything.
    pub(crate) fn admin() -> Self {
        Self {
            name: "admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
        }
    }

    /// One who has authenticated; a service account is in the groups of service accounts.
    pub(crate) fn named(name: &str) -> Self {
        let mut groups = vec!["system:authenticated".to_owned()];
        if let Some(account) = name.strip_prefix("system:serviceaccount:") {
            let namespace = account.split(':').next().unwrap_or_default();
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        Self {
            name: name.to_owned(),
            groups,
        }
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

// === impl Call ===

impl Call {
    pub(crate) fn new(request: &Request<Vec<u8>>) -> Self {
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let header = |name: &str| {
            let value = request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok());
            value.unwrap_or_default()
        };
        let before =
            |text: &str, end: char| text.split(end).next().unwrap_or_default().trim().to_owned();
        Self {
            content_type: before(header("content-type"), ';'),
            user_agent: before(header("user-agent"), '/'),
            query: url::form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
            path: uri.path().to_owned(),
            place: Place::of(uri.path()),
            method: request.method().clone(),
            body: request.body().clone(),
        }
    }

    /// A parameter of the query; none if it is empty.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    pub(crate) fn is(&self, parameter: &str) -> bool {
        matches!(self.parameter(parameter), Some("true" | "1"))
    }

    /// A number of the query.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let Some(text) = self.parameter(name) else {
            return Ok(None);
        };
        let invalid = |_| Status::bad_request(format!("invalid {name}: {text:?}"));
        text.parse().map(Some).map_err(invalid)
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.parameter("dryRun") == Some("All")
    }

    /// Under which name the fields that it writes are owned.
    pub(crate) fn manager(&self) -> &str {
        let named = self.parameter("fieldManager").unwrap_or(&self.user_agent);
        if named.is_empty() { "unknown" } else { named }
    }

    /// The body, which is JSON; null if there is none.
    pub(crate) fn body(&self) -> Result<Value, Status> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        let malformed = |error| Status::bad_request(format!("the body is not JSON: {error}"));
        serde_json::from_slice(&self.body).map_err(malformed)
    }

    /// The verb of authorization.
    pub(crate) fn verb(&self) -> &'static str {
        let is_named = self
            .place
            .as_ref()
            .is_some_and(|place| !place.name.is_empty());
        match (self.method.as_str(), is_named) {
            ("GET", _) if self.is("watch") => "watch",
            ("GET", true) => "get",
            ("GET", false) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            _ => "deletecollection",
        }
    }

    /// The objects of a collection that it is about.
    pub(crate) fn selection(&self) -> Result<Selection, Status> {
        let labels = self.parameter("labelSelector").unwrap_or_default();
        let fields = self.parameter("fieldSelector").unwrap_or_default();
        Ok(Selection {
            labels: parse_labels(labels),
            fields: parse_fields(fields)?,
        })
    }
}

// === impl Place ===

impl Place {
    /// The resource of a path such as `/apis/apps/v1/namespaces/shop/deployments/web/scale`.
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/').map(str::to_owned);
        let mut part = || parts.next().filter(|part| !part.is_empty());
        let group = match part()?.as_str() {
            "api" => String::new(),
            "apis" => part()?,
            _ => return None,
        };
        let mut place = Self {
            group,
            version: part()?,
            plural: part()?,
            ..Self::default()
        };
        place.name = part().unwrap_or_default();
        place.subresource = part().unwrap_or_default();
        // Of a namespace itself there is a status; everything else below it are its objects.
        if place.plural == "namespaces" && !matches!(&*place.subresource, "" | "status") {
            place.namespace = std::mem::take(&mut place.name);
            place.plural = std::mem::take(&mut place.subresource);
            place.name = part().unwrap_or_default();
            place.subresource = part().unwrap_or_default();
        }
        Some(place)
    }

    /// The resource as a rule of RBAC names it.
    pub(crate) fn resource(&self) -> String {
        if self.subresource.is_empty() {
            self.plural.clone()
        } else {
            format!("{}/{}", self.plural, self.subresource)
        }
    }

    /// What the keys of its collection begin with.
    pub(crate) fn prefix(&self) -> String {
        if self.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", self.namespace)
        }
    }

    /// The key of its object in the store.
    pub(crate) fn key(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

// === impl Selection ===

impl Selection {
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The name that it selects; empty if it selects by other fields.
    pub(crate) fn name(&self) -> &str {
        let named = self
            .fields
            .iter()
            .find(|(path, _, is_equal)| path == "metadata.name" && *is_equal);
        named.map_or("", |(_, name, _)| name)
    }

    /// The paths of the fields by which it selects.
    pub(crate) fn field_paths(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(path, _, _)| &**path)
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let by_label = self.labels.iter().all(|(key, requirement)| {
            let value = labels.get(key).and_then(Value::as_str);
            match requirement {
                Requirement::In(values) => {
                    value.is_some_and(|value| values.iter().any(|v| v == value))
                }
                Requirement::NotIn(values) => {
                    value.is_none_or(|value| values.iter().all(|v| v != value))
                }
                Requirement::Exists => value.is_some(),
                Requirement::Absent => value.is_none(),
            }
        });
        by_label
            && self.fields.iter().all(|(path, wanted, is_equal)| {
                let found = object.pointer(&format!("/{}", path.replace('.', "/")));
                (found.and_then(Value::as_str).unwrap_or_default() == wanted) == *is_equal
            })
    }
}

/// `a=b,c!=d,e in (x,y),f notin (z),g,!h`.
fn parse_labels(text: &str) -> Vec<(String, Requirement)> {
    let mut depth = 0;
    let parts = text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    let values = |list: &str| {
        let list = list.trim().trim_matches(['(', ')']);
        list.split(',')
            .map(|value| value.trim().to_owned())
            .collect()
    };
    let parsed = parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (key, requirement) = if let Some((key, list)) = part.split_once(" notin ") {
                (key, Requirement::NotIn(values(list)))
            } else if let Some((key, list)) = part.split_once(" in ") {
                (key, Requirement::In(values(list)))
            } else if let Some((key, value)) = part.split_once("!=") {
                (key, Requirement::NotIn(values(value)))
            } else if let Some((key, value)) = part.split_once('=') {
                (key, Requirement::In(values(value.trim_start_matches('='))))
            } else if let Some(key) = part.strip_prefix('!') {
                (key, Requirement::Absent)
            } else {
                (part, Requirement::Exists)
            };
            (key.trim().to_owned(), requirement)
        });
    parsed.collect()
}

/// `metadata.name=a,status.phase!=Running`.
fn parse_fields(text: &str) -> Result<Vec<(String, String, bool)>, Status> {
    let parts = text.split(',').filter(|part| !part.is_empty()).map(|part| {
        let (path, value) = part.split_once('=').ok_or_else(|| {
            Status::bad_request(format!(
                "invalid field selector {part:?}: expected FIELD=VALUE"
            ))
        })?;
        let equal = path.strip_suffix('!');
        let value = value.trim_start_matches('=');
        Ok((
            equal.unwrap_or(path).to_owned(),
            value.to_owned(),
            equal.is_none(),
        ))
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_names_a_resource() {
        for (path, expected) in [
            ("/api/v1/pods", Some(["", "v1", "", "pods", "", ""])),
            (
                "/api/v1/namespaces/shop",
                Some(["", "v1", "", "namespaces", "shop", ""]),
            ),
            (
                "/api/v1/namespaces/shop/status",
                Some(["", "v1", "", "namespaces", "shop", "status"]),
            ),
            (
                "/api/v1/namespaces/shop/pods",
                Some(["", "v1", "shop", "pods", "", ""]),
            ),
            (
                "/apis/apps/v1/namespaces/shop/deployments/web/scale",
                Some(["apps", "v1", "shop", "deployments", "web", "scale"]),
            ),
            ("/apis/apps/v1", None),
            ("/readyz", None),
        ] {
            let place = Place::of(path);
            let parts = place.as_ref().map(|p| {
                [
                    &*p.group,
                    &p.version,
                    &p.namespace,
                    &p.plural,
                    &p.name,
                    &p.subresource,
                ]
            });
            assert_eq!(parts, expected, "{path}");
        }
    }

    #[test]
    fn labels_and_fields_select() {
        let object = json!({"metadata": {"name": "a", "labels": {"app": "web", "tier": "1"}}});
        for (labels, fields, expected) in [
            ("", "", true),
            ("app=web,tier==1", "metadata.name=a", true),
            ("app!=web", "", false),
            ("other!=web", "metadata.name!=b", true),
            ("app in (web, api),!gone", "", true),
            ("app notin (web,api)", "", false),
            ("app,tier in (2,3)", "", false),
            ("", "metadata.name=b", false),
        ] {
            let selection = Selection {
                labels: parse_labels(labels),
                fields: parse_fields(fields).unwrap(),
            };
            assert_eq!(selection.matches(&object), expected, "{labels} {fields}");
        }
    }
}
