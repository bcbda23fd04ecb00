//! The `Status` objects by which the server refuses a request: code, reason, message and details as upstream's
//! `apimachinery/pkg/api/errors` makes them.

use serde_json::{Value, json};

use crate::kinds::Kind;

/// Refusal of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The object and the causes; empty if there are none.
    pub(crate) details: Value,
}

impl Status {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: json!({}),
        }
    }

    /// A refusal about an object of a kind.
    fn about(code: u16, reason: &'static str, kind: &Kind, name: &str, message: String) -> Self {
        let mut details = json!({"kind": kind.plural});
        for (field, value) in [("name", name), ("group", &kind.group)] {
            if !value.is_empty() {
                details[field] = json!(value);
            }
        }
        Self {
            details,
            ..Self::new(code, reason, message)
        }
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.collection());
        Self::about(404, "NotFound", kind, name, message)
    }

    /// The refusal of a path that no API has, which is a text.
    pub(crate) fn no_such_page() -> Self {
        Self::new(404, "", "404 page not found")
    }

    /// The refusal of a path that no kind has.
    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message)
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str, is_leaving: bool) -> Self {
        let leaving = if is_leaving {
            "object is being deleted: "
        } else {
            ""
        };
        let message = format!("{leaving}{} \"{name}\" already exists", kind.collection());
        Self::about(409, "AlreadyExists", kind, name, message)
    }

    /// The object is not the one that the request is about, or has changed.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let what = kind.collection();
        let message = format!("Operation cannot be fulfilled on {what} \"{name}\": {why}");
        Self::about(409, "Conflict", kind, name, message)
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// Not allowed, whether or not the object exists.
    pub(crate) fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let plural = resource.split('/').next().unwrap_or_default();
        let mut what = if group.is_empty() {
            plural.to_owned()
        } else {
            format!("{plural}.{group}")
        };
        let mut details = json!({"kind": plural});
        for (field, value) in [("name", name), ("group", group)] {
            if !value.is_empty() {
                details[field] = json!(value);
            }
        }
        if !name.is_empty() {
            what.extend([" \"", name, "\""]);
        }
        Self {
            details,
            ..Self::new(403, "Forbidden", format!("{what} is forbidden: {why}"))
        }
    }

    /// A kind of patch that the server does not know.
    pub(crate) fn unsupported() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// A field has a value that it may not have.
    pub(crate) fn invalid(kind: &Kind, name: &str, field: &str, problem: &str) -> Self {
        let message = format!(
            "{} \"{name}\" is invalid: {field}: {problem}",
            kind.qualified()
        );
        let mut status = Self::about(422, "Invalid", kind, name, message);
        status.details["kind"] = json!(kind.kind);
        let reason = if problem.starts_with("Required") {
            "FieldValueRequired"
        } else {
            "FieldValueInvalid"
        };
        status.details["causes"] = json!([{"reason": reason, "message": problem, "field": field}]);
        status
    }

    /// A JSON patch that cannot be applied.
    pub(crate) fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message)
    }

    /// A replacement of a built-in kind names no version. Its kind is the plural there.
    pub(crate) fn without_version(kind: &Kind, name: &str) -> Self {
        let problem = "Invalid value: 0: must be specified for an update";
        let mut status = Self::invalid(kind, name, "metadata.resourceVersion", problem);
        status.message = status
            .message
            .replacen(&kind.qualified(), &kind.collection(), 1);
        status.details["kind"] = json!(kind.plural);
        status
    }

    /// A scale has a count that it may not have.
    pub(crate) fn invalid_scale(name: &str, problem: &str) -> Self {
        let cause =
            json!({"reason": "FieldValueInvalid", "message": problem, "field": "spec.replicas"});
        let details =
            json!({"name": name, "group": "autoscaling", "kind": "Scale", "causes": [cause]});
        let message = format!("Scale.autoscaling \"{name}\" is invalid: spec.replicas: {problem}");
        Self {
            details,
            ..Self::new(422, "Invalid", message)
        }
    }

    /// A scale is that of another object.
    pub(crate) fn other_scale(kind: &Kind, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!(
            "Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        );
        let mut status = Self::conflict(kind, name, &why);
        let what = format!("{}/scale", kind.plural);
        status.message = status.message.replacen(&kind.plural, &what, 1);
        status.details["kind"] = json!(what);
        status
    }

    /// A scale is requested for an object that has no count.
    pub(crate) fn without_count(path: &str) -> Self {
        let problem = format!("the spec replicas field \"{path}\" does not exist");
        let message = format!("Internal error occurred: {problem}");
        Self {
            details: json!({"causes": [{"message": problem}]}),
            ..Self::new(500, "InternalError", message)
        }
    }

    /// An apply names no manager.
    pub(crate) fn without_manager() -> Self {
        let problem = "Required value: is required for apply patch";
        let cause =
            json!({"reason": "FieldValueRequired", "message": problem, "field": "fieldManager"});
        let details = json!({"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]});
        let message = format!("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: {problem}");
        Self {
            details,
            ..Self::new(422, "Invalid", message)
        }
    }

    /// A patch would change the UID.
    pub(crate) fn immutable_uid(kind: &Kind, name: &str, uid: &str) -> Self {
        let problem = format!("Invalid value: \"{uid}\": field is immutable");
        let mut status = Self::invalid(kind, name, "metadata.uid", &problem);
        // Two rules find the violation.
        let cause = status.details["causes"][0].clone();
        status.details["causes"] = json!([cause, cause]);
        status
    }

    /// A deletion is of another object, or of another version of it.
    pub(crate) fn not_as_expected(
        kind: &Kind,
        name: &str,
        field: &str,
        wanted: &str,
        found: &str,
    ) -> Self {
        let rest = if field == "UID" {
            "deleted and then recreated"
        } else {
            "modified"
        };
        let why = format!(
            "the {field} in the precondition ({wanted}) does not match the {field} in record ({found}). The object might have been {rest}"
        );
        let (plural, what) = (kind.collection(), kind.qualified());
        let mut status = Self::conflict(kind, name, &why);
        status.message = status.message.replacen(&plural, &what, 1);
        status.details["kind"] = json!(kind.kind);
        status
    }

    /// Fields of a server-side apply that other managers own: the manager, and its fields.
    pub(crate) fn owned_by_others(conflicts: &[(String, Vec<String>)]) -> Self {
        let mut causes: Vec<Value> = conflicts
            .iter()
            .flat_map(|(manager, fields)| fields.iter().map(move |field| (manager, field)))
            .map(|(manager, field)| {
                let message = format!("conflict with {manager}");
                json!({"reason": "FieldManagerConflict", "message": message, "field": field})
            })
            .collect();
        causes.sort_by_key(|cause| cause["field"].to_string());
        let is_single = causes.len() == 1;
        let texts = conflicts.iter().map(|(manager, fields)| match &fields[..] {
            [field] if is_single => format!("conflict with {manager}: {field}"),
            fields => format!("conflicts with {manager}:\n- {}", fields.join("\n- ")),
        });
        let texts: Vec<String> = texts.collect();
        let plural = if is_single { "" } else { "s" };
        let message = format!(
            "Apply failed with {} conflict{plural}: {}",
            causes.len(),
            texts.join("\n")
        );
        Self {
            details: json!({"causes": causes}),
            ..Self::new(409, "Conflict", message)
        }
    }

    /// The history no longer reaches back to this revision.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(410, "Expired", message)
    }

    /// The body that the server sends.
    pub(crate) fn object(&self) -> Value {
        if self.code == 404 && self.reason.is_empty() {
            return json!(self.message);
        }
        let mut object = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if self
            .details
            .as_object()
            .is_some_and(|details| !details.is_empty())
            || matches!(self.code, 404 | 415 | 422)
        {
            object["details"] = self.details.clone();
        }
        object
    }
}
