//! The API server's audit log as values: the user, the request and the response status. Requests only, no bodies.

use std::{collections::BTreeSet, path::Path};

use jiff::Timestamp;
use serde::Deserialize;

use crate::{Error, Result};

/// One request that the API server has answered (or, for a watch, begun to answer).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// The time of the request.
    pub time: Timestamp,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// The user, the impersonated one when there is one.
    pub user: String,
    /// API group; empty for the core group, and for paths that are no resource.
    pub group: String,
    /// Plural resource name; empty for paths that are no resource.
    pub resource: String,
    /// `status`, `scale`, ...; empty for the object itself.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Object name, or empty.
    pub name: String,
    /// Path and query.
    pub uri: String,
    /// HTTP status of the response; 403 is a denied request.
    pub code: u16,
}

impl AuditEvent {
    /// Returns whether the request is a write.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// Returns whether the request is a write that succeeded.
    pub fn wrote(&self) -> bool {
        self.is_write() && self.code < 300
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    audit_id: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    object_ref: ObjectRef,
    response_status: Option<ResponseStatus>,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

/// Reads a log: each request once, in order of answers.
pub(crate) fn read(log: &Path) -> Result<Vec<AuditEvent>> {
    let text = std::fs::read_to_string(log).map_err(Error::file("read", log))?;
    parse(&text)
}

/// The last line is left out while it is being written.
fn parse(text: &str) -> Result<Vec<AuditEvent>> {
    let complete = text
        .rfind('\n')
        .and_then(|end| text.get(..end))
        .unwrap_or_default();
    let mut seen = BTreeSet::new();
    let mut events = Vec::new();
    for line in complete.lines() {
        let line: Line = serde_json::from_str(line).map_err(Error::json("an audit line"))?;
        if seen.insert(line.audit_id.clone()) {
            events.push(line.into());
        }
    }
    Ok(events)
}

impl From<Line> for AuditEvent {
    fn from(line: Line) -> Self {
        let object = line.object_ref;
        Self {
            time: line.request_received_timestamp,
            verb: line.verb,
            user: line.impersonated_user.unwrap_or(line.user).username,
            group: object.api_group,
            resource: object.resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            uri: line.request_uri,
            code: line.response_status.map_or(0, |status| status.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_counts_once_and_a_half_written_line_is_ignored() {
        let watch = |stage: &str| {
            format!(
                r#"{{"stage":"{stage}","auditID":"a","verb":"watch","requestURI":"/api/v1/pods?watch=1",
                "user":{{"username":"admin"}},"impersonatedUser":{{"username":"eve"}},
                "objectRef":{{"resource":"pods","apiVersion":"v1"}},"responseStatus":{{"code":200}},
                "requestReceivedTimestamp":"2026-01-02T03:04:05.000000Z"}}"#
            )
            .replace('\n', " ")
        };
        let text = format!(
            "{}\n{}\n{{\"stage\":",
            watch("ResponseStarted"),
            watch("ResponseComplete")
        );
        let expected = AuditEvent {
            time: "2026-01-02T03:04:05Z".parse().unwrap(),
            verb: "watch".into(),
            user: "eve".into(),
            group: String::new(),
            resource: "pods".into(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            uri: "/api/v1/pods?watch=1".into(),
            code: 200,
        };
        assert_eq!(parse(&text).unwrap(), vec![expected]);
    }
}
