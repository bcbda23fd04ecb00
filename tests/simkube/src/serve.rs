//! The verbs: what a request does to the objects, and how it is answered.
//!
//! ```text
//! change ──► preconditions ──► only its part ──► defaults ──► owners ──► generation ──► stored, unless nothing differs
//!            uid, version      spec or status                 of fields
//! ```

use std::{collections::BTreeSet, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    kinds::{Kind, Kinds, Trait},
    owners::{self, Writer},
    patch,
    request::{Call, Place, Selection, User},
    rights::{self, Access, Ledger},
    status::Status,
    store::{Objects, Store},
};

const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const NAMESPACES: &str = "namespaces";
const APPLY: &str = "application/apply-patch+yaml";
/// The characters of a generated name, as upstream has them.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The state of a server.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) ledger: Ledger,
    /// Distinguishes the UIDs of this server from those of others.
    id: u32,
    created: u64,
}

/// Code and body of an answer.
pub(crate) type Answer = Result<(u16, Value), Status>;

/// What a request is about.
pub(crate) struct Target<'a> {
    pub(crate) kind: Arc<Kind>,
    pub(crate) place: &'a Place,
}

impl State {
    /// A server with the namespaces that every cluster has.
    pub(crate) fn new(id: u32, now: Timestamp) -> Self {
        let mut state = Self {
            store: Store::default(),
            kinds: Kinds::default(),
            ledger: Ledger::default(),
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

    /// Fails if RBAC does not allow this; records it either way.
    pub(crate) fn authorize(&mut self, user: &User, access: Access) -> Result<(), Status> {
        if user.is_admin() {
            return Ok(());
        }
        if let Some(grant) = rights::grant(&self.store, user, &access) {
            self.ledger.used.insert(grant);
            return Ok(());
        }
        // `system:basic-user`.
        if access.resource == "selfsubjectaccessreviews" && access.verb == "create" {
            return Ok(());
        }
        let refusal = access.refusal(&user.name);
        let status = Status::forbidden(&access.group, &access.resource, &access.name, &refusal);
        self.ledger.forbidden.insert((user.name.clone(), access));
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

    fn live(&self, target: &Target<'_>) -> Result<Arc<Value>, Status> {
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
        let now = self.store.revision();
        let exact = call.parameter("resourceVersionMatch") == Some("Exact");
        let asked = call.number("resourceVersion")?.unwrap_or_default();
        let (revision, start) = match call.parameter("continue") {
            Some(token) => read_token(token)?,
            None => (if exact { asked } else { now }, String::new()),
        };
        let prefix = target.place.prefix();
        let limit = call
            .number("limit")?
            .filter(|limit| *limit > 0)
            .unwrap_or(u64::MAX);
        let all = self.objects_at(kind, revision)?.into_iter();
        let mut left = all.filter(|(key, _)| *key > start && key.starts_with(&prefix));
        let selected = left
            .by_ref()
            .filter(|(_, object)| selection.matches(object));
        let page: Vec<(String, Arc<Value>)> = selected
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .collect();
        // Whether they are selected shows only the next page.
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
        self.check_preconditions(call, target, &live, &wanted)?;
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

    fn check_preconditions(
        &self,
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
            self.remove(&collection, &key);
            return Arc::new(object);
        }
        let stored = self.store.put(&collection, &key, object);
        if collection == CRDS {
            self.kinds.define(&stored);
        }
        stored
    }

    fn delete(&mut self, call: &Call, target: &Target<'_>, now: Timestamp) -> Answer {
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
        // Options in a body are all that counts.
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
            self.remove(&collection, &key);
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

    fn remove(&mut self, collection: &str, key: &str) {
        let removed = self.store.remove(collection, key);
        if let Some(definition) = removed.filter(|_| collection == CRDS) {
            let of = definition["metadata"]["name"].as_str().unwrap_or_default();
            let keys: Vec<String> = self.store.all(of).map(|(key, _)| key.clone()).collect();
            for key in keys {
                self.store.remove(of, &key);
            }
            self.kinds.remove(of);
        }
    }

    /// Deletes the objects of which every owner is gone, and those of namespaces that are deleted, as the controller
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
        let access = Access::of_review(spec);
        let is_allowed =
            reviewed.is_admin() || rights::grant(&self.store, &reviewed, &access).is_some();
        object["status"] = json!({"allowed": is_allowed});
        Ok((201, object))
    }

    fn next_uid(&mut self) -> String {
        self.created += 1;
        format!("{:08x}-0000-4000-8000-{:012x}", self.id, self.created)
    }

    /// Five characters that no other generated name ends with.
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

// === impl Target ===

impl Target<'_> {
    /// The object as the subresource shows it.
    pub(crate) fn view(&self, object: &Value) -> Value {
        let Some(paths) = self
            .kind
            .scale
            .as_ref()
            .filter(|_| self.place.subresource == "scale")
        else {
            return object.clone();
        };
        let count = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_i64)
                .unwrap_or_default()
        };
        let mut metadata = Map::new();
        for field in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
        ] {
            metadata.insert(field.to_owned(), object["metadata"][field].clone());
        }
        // A count of zero is left out of the spec.
        let spec = Some(count(&paths.spec)).filter(|count| *count != 0);
        let mut status = json!({"replicas": count(&paths.status)});
        let selector = paths
            .selector
            .as_ref()
            .and_then(|pointer| object.pointer(pointer));
        let selector = selector.map(selector_text).filter(|text| !text.is_empty());
        if let Some(selector) = selector {
            status["selector"] = json!(selector);
        }
        json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
            "spec": spec.map_or_else(|| json!({}), |count| json!({"replicas": count})), "status": status,
        })
    }

    /// A custom object without a count has no scale.
    fn check_scale(&self, object: &Value) -> Result<(), Status> {
        match &self.kind.scale {
            Some(paths)
                if self.place.subresource == "scale" && object.pointer(&paths.spec).is_none() =>
            {
                Err(Status::without_count(&paths.spec.replace('/', ".")))
            }
            _ => Ok(()),
        }
    }

    /// The object with the part of `wanted` that this request may change.
    fn part(&self, live: &Value, mut wanted: Value) -> Value {
        let mut object = live.clone();
        match &*self.place.subresource {
            "scale" => {
                let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or_default();
                if let Some(paths) = &self.kind.scale {
                    set(&mut object, &paths.spec, json!(replicas));
                }
            }
            "status" => {
                object["status"] = wanted["status"].take();
                object["metadata"]["managedFields"] = wanted["metadata"]["managedFields"].take();
            }
            _ => {
                for field in [
                    "uid",
                    "creationTimestamp",
                    "deletionTimestamp",
                    "deletionGracePeriodSeconds",
                    "generation",
                    "resourceVersion",
                    "namespace",
                ] {
                    wanted["metadata"][field] = live["metadata"][field].clone();
                }
                if self.kind.has(Trait::Status) {
                    wanted["status"] = live["status"].clone();
                }
                object = wanted;
            }
        }
        object
    }

    /// Fails if a body is not of this kind and place; writes into it what the URL says already.
    fn check_body(&self, object: &mut Value) -> Result<(), Status> {
        let Self { kind, place } = self;
        let malformed = || Status::bad_request("the body is no object with metadata");
        let fields = object.as_object_mut().ok_or_else(malformed)?;
        let (api_version, name) = if place.subresource == "scale" {
            ("autoscaling/v1".to_owned(), "Scale")
        } else {
            (kind.api_version(), &*kind.kind)
        };
        for (field, expected) in [("apiVersion", &*api_version), ("kind", name)] {
            let found = fields.entry(field).or_insert_with(|| json!(expected));
            if *found != expected {
                return Err(Status::bad_request(format!(
                    "the object provided is unrecognized (must be of type {name}): found {field} {found}, expected {expected}"
                )));
            }
        }
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        let metadata = metadata.as_object_mut().ok_or_else(malformed)?;
        if !place.name.is_empty() {
            metadata.entry("name").or_insert_with(|| json!(place.name));
        }
        if kind.is_namespaced {
            let namespace = metadata
                .entry("namespace")
                .or_insert_with(|| json!(place.namespace));
            if *namespace != *place.namespace {
                let message = "the namespace of the provided object does not match the namespace sent on the request";
                return Err(Status::bad_request(message));
            }
        }
        Ok(())
    }

    /// Brings an object into the form in which it is stored.
    fn complete(&self, object: &mut Value) {
        let kind = &self.kind;
        without_nulls(object);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            let is_empty = |value: &Value| {
                value.as_object().is_some_and(Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty)
            };
            metadata.retain(|_, value| !is_empty(value));
        }
        if !kind.is_custom && object["data"].as_object().is_some_and(Map::is_empty) {
            remove(object, "data");
        }
        if kind.kind == "Secret" {
            encode_texts(object);
        }
        if kind.kind == "Namespace" {
            let name = object["metadata"]["name"].clone();
            set(
                object,
                "/metadata/labels/kubernetes.io~1metadata.name",
                name,
            );
        }
        kind.set_defaults(object);
    }
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

/// The key of an object in the store.
fn key(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    }
}

/// How a deletion that took effect is answered.
fn deleted(kind: &Kind, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut details =
        json!({"name": metadata["name"], "kind": kind.plural, "uid": metadata["uid"]});
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Everything of which a change is a new generation.
fn specification<'a>(kind: &Kind, object: &'a Value) -> Vec<(&'a String, &'a Value)> {
    let fields = object.as_object().into_iter().flatten();
    let counts = |field: &str| match field {
        "metadata" => false,
        "status" => !kind.has(Trait::Status),
        field => kind.is_custom || field == "spec",
    };
    // Upstream's rule of Deployments.
    let metadata = object["metadata"]
        .as_object()
        .filter(|_| kind.kind == "Deployment");
    let annotations = metadata.and_then(|metadata| metadata.get_key_value("annotations"));
    fields
        .filter(|(field, _)| counts(field))
        .chain(annotations)
        .collect()
}

/// The rules of upstream's validation that our requests could break.
fn validate(target: &Target<'_>, object: &Value) -> Result<(), Status> {
    let Target { kind, place } = target;
    let Some(paths) = &kind.scale else {
        return Ok(());
    };
    match object.pointer(&paths.spec).and_then(Value::as_i64) {
        Some(count @ ..=-1) => {
            let problem = format!("Invalid value: {count}: must be greater than or equal to 0");
            Err(match &*place.subresource {
                "scale" => Status::invalid_scale(&place.name, &problem),
                _ => Status::invalid(kind, &place.name, "spec.replicas", &problem),
            })
        }
        _ => Ok(()),
    }
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

/// A label selector as text.
fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    labels.collect::<Vec<_>>().join(",")
}

/// The class of a pod. None of ours is guaranteed.
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

/// `stringData` of a Secret is written into its `data`.
fn encode_texts(object: &mut Value) {
    let texts = object
        .as_object_mut()
        .and_then(|fields| fields.remove("stringData"));
    for (key, text) in texts.iter().filter_map(Value::as_object).flatten() {
        let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
        object["data"][key] = json!(encoded);
    }
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Sets the value at a pointer, with the objects on the way to it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for part in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part.replace("~1", "/")];
    }
    *place = value;
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// A time as metadata has it: whole seconds.
fn time(at: Timestamp) -> String {
    format!("{at:.0}")
}
