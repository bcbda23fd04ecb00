//! The verbs: the effects of requests on the objects, and their answers.
//!
//! ```text
//! change ──► preconditions ──► only its part ──► defaults ──► owners ──► generation ──► stored, unless nothing differs
//!            uid, version      spec or status                 of fields
//! ```

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    audit::Audit,
    kinds::{Kind, Kinds, Trait},
    owners::{self, Writer},
    patch,
    request::{Call, Place, Selection, User},
    rights::{self, Access},
    status::Status,
    store::{Objects, Store},
    target::{Target, remove, specification, validate},
};

pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
pub(crate) const NAMESPACES: &str = "namespaces";
const APPLY: &str = "application/apply-patch+yaml";
/// The characters of a generated name, as upstream has them.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The state of a server.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    /// Users and accesses that RBAC has forbidden, in order.
    pub(crate) forbidden: Vec<(String, Access)>,
    pub(crate) audit: Audit,
    /// The most objects of a page of a list, also if a request asks for more.
    pub(crate) page_max: u64,
    /// Distinguishes the UIDs of this server from those of others.
    id: u32,
    created: u64,
}

/// Code and body of an answer.
pub(crate) type Answer = Result<(u16, Value), Status>;

impl State {
    /// A server with the namespaces that every cluster has.
    pub(crate) fn new(id: u32, now: Timestamp) -> Self {
        let mut state = Self {
            store: Store::default(),
            kinds: Kinds::default(),
            forbidden: Vec::new(),
            audit: Audit::default(),
            page_max: u64::MAX,
            id,
            created: 0,
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let uid = state.next_uid();
            let object = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {
                    "name": name, "uid": uid, "creationTimestamp": time(now),
                    "labels": {"kubernetes.io/metadata.name": name},
                },
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            state.store.put(NAMESPACES, name, object);
        }
        state
    }

    /// The kind that a place names.
    pub(crate) fn target<'a>(&self, place: &'a Place) -> Result<Target<'a>, Status> {
        let kind = self.kinds.find(&place.group, &place.version, &place.plural);
        if !self.kinds.has_group(&place.group) {
            return Err(Status::no_such_page());
        }
        let kind = kind.ok_or_else(Status::no_such_path)?;
        let is_served = place.subresource.is_empty() || kind.has_subresource(&place.subresource);
        if is_served && (kind.is_namespaced || place.namespace.is_empty()) {
            Ok(Target { kind, place })
        } else {
            Err(Status::no_such_path())
        }
    }

    fn allows(&self, user: &User, access: &Access) -> bool {
        user.is_admin() || rights::allow(&self.store, user, access)
    }

    /// Fails if RBAC does not allow this, and records it.
    pub(crate) fn authorize(&mut self, user: &User, access: Access) -> Result<(), Status> {
        // `system:basic-user`.
        let is_own_review =
            access.resource == "selfsubjectaccessreviews" && access.verb == "create";
        if is_own_review || self.allows(user, &access) {
            return Ok(());
        }
        let refusal = access.refusal(&user.name);
        let status = Status::forbidden(&access.group, &access.resource, &access.name, &refusal);
        self.forbidden.push((user.name.clone(), access));
        Err(status)
    }

    /// Answers a request for a resource that is no watch.
    pub(crate) fn answer(
        &mut self,
        call: &Call,
        target: &Target<'_>,
        user: &User,
        now: Timestamp,
    ) -> Answer {
        let is_named = !target.place.name.is_empty();
        match (&call.method, is_named) {
            (&Method::POST, false) if target.kind.has(Trait::Review) => {
                self.review(call, target, user)
            }
            (&Method::GET, true) => self.read(target),
            (&Method::GET, false) => self.list(call, target),
            (&Method::POST, false) => self.create(call, target, now),
            (&Method::PUT | &Method::PATCH, true) => self.change(call, target, user, now),
            (&Method::DELETE, true) => self.delete(call, target, now),
            _ => Err(Status::new(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )),
        }
    }

    pub(crate) fn live(&self, target: &Target<'_>) -> Result<Arc<Value>, Status> {
        let Target { kind, place } = target;
        let found = self.store.get(&kind.collection(), &place.key());
        found
            .cloned()
            .ok_or_else(|| Status::not_found(kind, &place.name))
    }

    fn read(&self, target: &Target<'_>) -> Answer {
        let live = self.live(target)?;
        target.check_scale(&live)?;
        Ok((200, target.view(&live)))
    }

    fn list(&self, call: &Call, target: &Target<'_>) -> Answer {
        let (kind, selection) = (&target.kind, call.selection()?);
        check_fields(kind, &selection)?;
        let (revision, start) = match call.parameter("continue") {
            Some(token) => read_token(token)?,
            None => (self.store.revision(), String::new()),
        };
        let prefix = target.place.prefix();
        let limit = call
            .number("limit")?
            .filter(|limit| *limit > 0)
            .map_or(u64::MAX, |limit| limit.min(self.page_max));
        let all = self.objects_at(kind, revision)?.into_iter();
        let mut left = all.filter(|(key, _)| *key > start && key.starts_with(&prefix));
        let selected = left
            .by_ref()
            .filter(|(_, object)| selection.matches(object));
        let page: Vec<(String, Arc<Value>)> = selected
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .collect();
        // Only the next page shows whether they are selected.
        let left = left.count();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if kind.is_custom {
            metadata["continue"] = json!("");
        }
        if let Some((last, _)) = page.last().filter(|_| left > 0) {
            metadata["continue"] =
                json!(STANDARD.encode(json!({"rv": revision, "start": last}).to_string()));
            if selection.is_everything() {
                metadata["remainingItemCount"] = json!(left);
            }
        }
        let items: Vec<Value> = page
            .into_iter()
            .map(|(_, object)| list_item(kind, &object))
            .collect();
        let list = json!({
            "kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(), "metadata": metadata, "items": items,
        });
        Ok((200, list))
    }

    /// The objects of a kind at a revision.
    pub(crate) fn objects_at(&self, kind: &Kind, revision: u64) -> Result<Objects, Status> {
        let at = self.store.at(&kind.collection(), revision);
        at.map_err(|_| Status::new(410, "Expired", CONTINUE_EXPIRED))
    }

    fn create(&mut self, call: &Call, target: &Target<'_>, now: Timestamp) -> Answer {
        let Target { kind, place } = target;
        let mut object = call.body()?;
        target.check_body(&mut object)?;
        let named = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        if !named("resourceVersion").is_empty() {
            return Err(Status::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let mut name = named("name");
        if name.is_empty() && !named("generateName").is_empty() {
            name = format!("{}{}", named("generateName"), self.suffix());
        } else if name.is_empty() {
            let problem = "Required value: name or generateName is required";
            return Err(Status::invalid(kind, "", "metadata.name", problem));
        }
        object["metadata"]["name"] = json!(name);
        let place = Place {
            name: name.clone(),
            ..(*place).clone()
        };
        let target = Target {
            kind: Arc::clone(kind),
            place: &place,
        };
        if let Some(other) = self.store.get(&kind.collection(), &place.key()) {
            let is_leaving = !other["metadata"]["deletionTimestamp"].is_null();
            return Err(Status::already_exists(kind, &name, is_leaving));
        }
        remove(&mut object["metadata"], "managedFields");
        target.complete(&mut object);
        let writer = Writer {
            manager: call.manager(),
            subresource: "",
            now: &time(now),
        };
        owners::record_update(kind, writer, &json!({}), &mut object);
        Ok((201, self.insert(&target, object, call.is_dry_run(), now)?))
    }

    /// Stores a complete object that is new.
    fn insert(
        &mut self,
        target: &Target<'_>,
        mut object: Value,
        is_dry_run: bool,
        now: Timestamp,
    ) -> Result<Value, Status> {
        let Target { kind, place } = target;
        self.check_namespace(target)?;
        if kind.has(Trait::Status) {
            remove(&mut object, "status");
            kind.set_defaults(&mut object);
        }
        validate(target, &object)?;
        let uid = self.next_uid();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.insert("uid".to_owned(), json!(uid));
            metadata.insert("creationTimestamp".to_owned(), json!(time(now)));
            for field in [
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "resourceVersion",
                "generation",
            ] {
                metadata.remove(field);
            }
            if kind.has(Trait::Generation) {
                metadata.insert("generation".to_owned(), json!(1));
            }
        }
        if kind.kind == "Pod" {
            object["status"]["qosClass"] = json!(quality_of_service(&object));
        }
        if is_dry_run {
            return Ok(object);
        }
        if kind.collection() == CRDS {
            object["status"] = established(&object);
        }
        let stored = self.store.put(&kind.collection(), &place.key(), object);
        if kind.collection() == CRDS {
            self.kinds.define(&stored);
        }
        Ok(Value::clone(&stored))
    }

    fn check_namespace(&self, target: &Target<'_>) -> Result<(), Status> {
        let Target { kind, place } = target;
        if !kind.is_namespaced {
            return Ok(());
        }
        let namespaces = self.kinds.of(NAMESPACES).ok_or_else(Status::no_such_path)?;
        let namespace = self.store.get(NAMESPACES, &place.namespace);
        let namespace =
            namespace.ok_or_else(|| Status::not_found(&namespaces, &place.namespace))?;
        if namespace["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            place.namespace
        );
        let mut status = Status::forbidden(&kind.group, &kind.plural, &place.name, &why);
        let message = format!("namespace {} is being terminated", place.namespace);
        status.details["causes"] = json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
        Err(status)
    }

    /// Replaces, patches or applies an object or one of its subresources.
    fn change(&mut self, call: &Call, target: &Target<'_>, user: &User, now: Timestamp) -> Answer {
        let Target { kind, place } = target;
        let at = time(now);
        let writer = Writer {
            manager: call.manager(),
            subresource: &place.subresource,
            now: &at,
        };
        let is_apply = call.content_type == APPLY;
        if is_apply && call.parameter("fieldManager").is_none() {
            return Err(Status::without_manager());
        }
        let live = match self.live(target) {
            Err(_) if is_apply && place.subresource.is_empty() => {
                return self.create_by_apply(call, target, user, now);
            }
            live => live?,
        };
        target.check_scale(&live)?;
        let mut wanted = target.view(&live);
        let body = call.body()?;
        match &*call.content_type {
            _ if call.method == Method::PUT => wanted = body,
            "application/merge-patch+json" => patch::merge(&mut wanted, &body),
            "application/json-patch+json" => {
                patch::apply_operations(&mut wanted, &body).map_err(|_| Status::unprocessable())?;
            }
            APPLY => {
                let mut config = body;
                target.check_body(&mut config)?;
                let applied = owners::apply(kind, writer, Some(&live), &config, call.is("force"));
                wanted = applied.map_err(|conflicts| Status::owned_by_others(&conflicts))?;
                // The preconditions are those of the configuration.
                for field in ["uid", "resourceVersion"] {
                    wanted["metadata"][field] = config["metadata"][field].clone();
                }
            }
            _ => return Err(Status::unsupported()),
        }
        target.check_body(&mut wanted)?;
        check_preconditions(call, target, &live, &wanted)?;
        let mut object = target.part(&live, wanted);
        target.complete(&mut object);
        if !is_apply {
            owners::record_update(kind, writer, &live, &mut object);
        }
        validate(target, &object)?;
        let stored = self.replace(target, &live, object, call.is_dry_run());
        Ok((200, target.view(&stored)))
    }

    fn create_by_apply(
        &mut self,
        call: &Call,
        target: &Target<'_>,
        user: &User,
        now: Timestamp,
    ) -> Answer {
        let Target { kind, place } = target;
        self.authorize(user, Access::new("create", place, &place.name))?;
        let mut config = call.body()?;
        target.check_body(&mut config)?;
        if let Some(uid) = config["metadata"]["uid"].as_str() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(kind, &place.name, &why));
        }
        let writer = Writer {
            manager: call.manager(),
            subresource: "",
            now: &time(now),
        };
        let applied = owners::apply(kind, writer, None, &config, call.is("force"));
        let mut object = applied.map_err(|conflicts| Status::owned_by_others(&conflicts))?;
        target.complete(&mut object);
        Ok((201, self.insert(target, object, call.is_dry_run(), now)?))
    }

    /// Stores an object in place of another, unless nothing differs; removes it if its last finalizer is gone.
    fn replace(
        &mut self,
        target: &Target<'_>,
        live: &Arc<Value>,
        mut object: Value,
        is_dry_run: bool,
    ) -> Arc<Value> {
        let kind = &target.kind;
        let (key, collection) = (target.place.key(), kind.collection());
        if kind.has(Trait::Generation) && specification(kind, live) != specification(kind, &object)
        {
            let generation = live["metadata"]["generation"].as_i64().unwrap_or_default();
            object["metadata"]["generation"] = json!(generation + 1);
        }
        if object == **live {
            return Arc::clone(live);
        }
        if is_dry_run {
            return Arc::new(object);
        }
        let is_leaving = !object["metadata"]["deletionTimestamp"].is_null();
        let is_free = object["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty);
        let waits = object["metadata"]["deletionGracePeriodSeconds"]
            .as_u64()
            .unwrap_or_default()
            > 0;
        if is_leaving && is_free && !waits && collection != NAMESPACES {
            self.store.remove(&collection, &key);
            return Arc::new(object);
        }
        let stored = self.store.put(&collection, &key, object);
        if collection == CRDS {
            self.kinds.define(&stored);
        }
        stored
    }

    /// Answers a question about rights.
    fn review(&self, call: &Call, target: &Target<'_>, user: &User) -> Answer {
        let mut object = call.body()?;
        target.check_body(&mut object)?;
        let spec = &object["spec"];
        let reviewed = match (&*target.kind.kind, spec["user"].as_str()) {
            ("SubjectAccessReview", Some(name)) => {
                let mut named = User::named(name);
                let groups = spec["groups"].as_array().into_iter().flatten();
                named.groups = groups
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect();
                named
            }
            _ => user.clone(),
        };
        let is_allowed = self.allows(&reviewed, &Access::of_review(spec));
        object["status"] = json!({"allowed": is_allowed});
        Ok((201, object))
    }

    fn next_uid(&mut self) -> String {
        self.created += 1;
        format!("{:08x}-0000-4000-8000-{:012x}", self.id, self.created)
    }

    /// Five characters with which no other generated name ends.
    fn suffix(&mut self) -> String {
        self.created += 1;
        let mut left = usize::try_from(self.created).unwrap_or_default();
        let mut character = || {
            let character = SUFFIX[left % SUFFIX.len()];
            left /= SUFFIX.len();
            char::from(character)
        };
        (0..5).map(|_| character()).collect()
    }
}

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";

/// Fails if an object is not the one, or not the version, that a request is about.
fn check_preconditions(
    call: &Call,
    target: &Target<'_>,
    live: &Value,
    wanted: &Value,
) -> Result<(), Status> {
    let Target { kind, place } = target;
    let text = |object: &Value, field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    if text(wanted, "name") != place.name {
        let (found, expected) = (text(wanted, "name"), &place.name);
        let message = format!(
            "the name of the object ({found}) does not match the name on the URL ({expected})"
        );
        return Err(Status::bad_request(message));
    }
    let (uid, version) = (text(wanted, "uid"), text(wanted, "resourceVersion"));
    if !uid.is_empty() && uid != text(live, "uid") {
        if place.subresource == "scale" {
            return Err(Status::other_scale(
                kind,
                &place.name,
                &uid,
                &text(live, "uid"),
            ));
        }
        if call.method == Method::PATCH {
            return Err(Status::immutable_uid(kind, &place.name, &uid));
        }
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            kind.plural,
            place.key(),
            text(live, "uid")
        );
        return Err(Status::conflict(kind, &place.name, &why));
    }
    if version.is_empty() && call.method == Method::PUT && kind.has(Trait::Conditional) {
        return Err(Status::without_version(kind, &place.name));
    }
    if !version.is_empty() && version != text(live, "resourceVersion") {
        return Err(Status::modified(kind, &place.name));
    }
    Ok(())
}

/// An object of a list; those of a built-in kind do not repeat the kind.
fn list_item(kind: &Kind, object: &Value) -> Value {
    let mut item = object.clone();
    if !kind.is_custom {
        remove(&mut item, "apiVersion");
        remove(&mut item, "kind");
    }
    item
}

fn check_fields(kind: &Kind, selection: &Selection) -> Result<(), Status> {
    let is_known = |path: &str| {
        matches!(path, "metadata.name" | "metadata.namespace")
            || (kind.kind == "Pod" && matches!(path, "spec.nodeName" | "status.phase"))
    };
    match selection.field_paths().find(|path| !is_known(path)) {
        Some(path) => Err(Status::bad_request(format!(
            "\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ))),
        None => Ok(()),
    }
}

fn read_token(token: &str) -> Result<(u64, String), Status> {
    let invalid = || Status::bad_request("continue key is not valid");
    let bytes = STANDARD.decode(token).map_err(|_| invalid())?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
    let start = token["start"].as_str().ok_or_else(invalid)?;
    Ok((token["rv"].as_u64().ok_or_else(invalid)?, start.to_owned()))
}

/// The class of a pod. No pod of the tests is guaranteed.
fn quality_of_service(pod: &Value) -> &'static str {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let has = |container: &Value| {
        container["resources"]
            .as_object()
            .is_some_and(|r| !r.is_empty())
    };
    if containers.into_iter().any(has) {
        "Burstable"
    } else {
        "BestEffort"
    }
}

/// The status of a definition that is served.
fn established(crd: &Value) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let version = &crd["spec"]["versions"][0]["name"];
    json!({
        "acceptedNames": crd["spec"]["names"], "storedVersions": [version],
        "conditions": [condition("NamesAccepted"), condition("Established")],
    })
}

/// A time as metadata has it: whole seconds.
pub(crate) fn time(at: Timestamp) -> String {
    format!("{at:.0}")
}
