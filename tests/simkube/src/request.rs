//! The parts of a request: the place that its path names, its parameters, and the objects that it selects.

use std::collections::BTreeMap;

use http::{Method, Request};
use serde_json::Value;

use crate::status::Status;

/// User of a request.
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
    /// Media type without parameters.
    pub(crate) content_type: String,
    user_agent: String,
    body: Vec<u8>,
}

/// The resource that a path names; parts that it does not name are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

/// Selection of objects of a collection by labels and by fields, all of which must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Keys of labels, with the values where any value will not do.
    labels: Vec<(String, Option<String>)>,
    fields: Vec<(String, String)>,
}

// === impl User ===

impl User {
    /// An administrator, who may do everything.
    pub(crate) fn admin() -> Self {
        Self {
            name: "admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
        }
    }

    /// An authenticated user; a service account is in the groups of service accounts.
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

    /// The manager that owns the written fields.
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

    /// The selected objects of the collection.
    pub(crate) fn selection(&self) -> Result<Selection, Status> {
        let labels = self.parameter("labelSelector").unwrap_or_default();
        let fields = self.parameter("fieldSelector").unwrap_or_default();
        Ok(Selection {
            labels: parse(labels)?,
            fields: parse(fields)?
                .into_iter()
                .map(|(path, value)| (path, value.unwrap_or_default()))
                .collect(),
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
        // A namespace has only the subresource status; everything else below it are its objects.
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

    /// Returns the prefix of the keys of the collection.
    pub(crate) fn prefix(&self) -> String {
        if self.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", self.namespace)
        }
    }

    /// The key of the object in the store.
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

    /// The selected name; empty if objects are selected by other fields.
    pub(crate) fn name(&self) -> &str {
        let named = self.fields.iter().find(|(path, _)| path == "metadata.name");
        named.map_or("", |(_, name)| name)
    }

    /// The paths of the fields of the selection.
    pub(crate) fn field_paths(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(path, _)| &**path)
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let by_label = self.labels.iter().all(|(key, wanted)| {
            let found = object["metadata"]["labels"].get(key);
            found.is_some_and(|found| wanted.as_ref().is_none_or(|wanted| found == wanted))
        });
        let by_field = self.fields.iter().all(|(path, wanted)| {
            let found = object.pointer(&format!("/{}", path.replace('.', "/")));
            found.and_then(Value::as_str).unwrap_or_default() == wanted
        });
        by_label && by_field
    }
}

/// Parses `a=b,c`: keys with their values. Foretide and its world use no other selectors.
fn parse(text: &str) -> Result<Vec<(String, Option<String>)>, Status> {
    let parts = text.split(',').filter(|part| !part.is_empty()).map(|part| {
        let (key, value) = part
            .split_once('=')
            .map_or((part, None), |(key, value)| (key, Some(value)));
        if key.contains([' ', '!']) {
            return Err(Status::bad_request(format!(
                "SimKube has no selector {part:?}: expected KEY=VALUE or KEY"
            )));
        }
        Ok((key.to_owned(), value.map(str::to_owned)))
    });
    parts.collect()
}
