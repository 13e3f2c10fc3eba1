//! The differences of a kind when it is created, updated or deleted.
//!
//! The verbs call, in this order, `prepare_*` (drop what the caller may not set), `validate_*`, `warnings`. What all
//! kinds share (system metadata, generation, status kept from a spec write and spec from a status write) is done by
//! [`Strategy::begin_create`], [`Strategy::begin_update`] and [`Strategy::begin_status_update`], which call them.
//! Source: `k8s.io/apiserver/pkg/registry/rest`.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use machinery::field::FieldErrors;
use machinery::metadata::{self, Metadata};
use serde_json::{Map, Value};

use crate::gated::{UntilOn, drop_disabled, drop_until_on};
use crate::times::set_absent;

/// The rule for `metadata.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain; most kinds.
    Subdomain,
    /// DNS-1123 label; namespaces.
    Label,
    /// DNS-1035 label; services.
    Label1035,
    /// One segment of a URL path; RBAC kinds.
    PathSegment,
    /// A key of a ConfigMap; LeaseCandidates.
    ConfigKey,
    /// Any text: the object is never stored.
    Any,
}

/// The changes that raise `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    None,
    /// Never: it stays 1.
    First,
    /// Changes of `spec`.
    Spec,
    /// Changes of `spec` or the annotations: Deployments, whose ReplicaSets have the same annotations.
    SpecAndAnnotations,
    /// Changes of anything but `metadata` and `status`.
    Content,
    /// Changes of anything but `status` and the rest of `metadata`: EndpointSlices, which are found by label.
    ContentAndLabels,
    /// Changes of anything but `metadata`: custom kinds whose status is no subresource.
    ContentAndStatus,
}

/// The part of an object's metadata that a write to its `/status` may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMetadata {
    /// Nothing but the managed fields. Source: `metav1.ResetObjectMetaForStatus`.
    Kept,
    /// Everything that an update may, but for these fields; kinds older than that function.
    FreeBut(&'static [&'static str]),
}

/// The effect of a DELETE besides removing the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The object goes at once (finalizers apart).
    Immediate,
    /// Pods: `deletionTimestamp` is set and the node's kubelet deletes again with grace 0.
    PodGrace,
    /// Namespaces: `status.phase` becomes `Terminating` until `spec.finalizers` is empty.
    Namespace,
    /// CustomResourceDefinitions: a finalizer holds it until all objects of its kind are gone.
    Definition,
}

/// The treatment of dependents when a DELETE does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are deleted afterwards.
    Background,
    /// Dependents lose their owner reference and stay.
    Orphan,
}

/// Rules that a strategy has beside its functions: what is known of a kind only while the program runs, such as the schema
/// and the expressions of a CustomResourceDefinition. They are as pure as the functions are.
pub trait Rules: Debug + Send + Sync {
    /// The broken rules of a new object, metadata apart.
    fn validate_create(&self, new: &Value) -> FieldErrors;

    /// The broken rules of an update, metadata apart.
    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors;

    /// The broken rules of a status update, metadata apart.
    fn validate_status_update(&self, new: &Value, old: &Value) -> FieldErrors;

    /// Whether they may take so long that others should not wait for the thread: expressions do.
    fn may_take_long(&self) -> bool {
        false
    }
}

/// The functions and flags of one kind. All functions are pure.
#[derive(Clone, Debug)]
pub struct Strategy {
    /// The rule for `metadata.name`.
    pub name_rule: NameRule,
    /// The changes that raise `metadata.generation`.
    pub generation: Generation,
    /// The effect of a DELETE besides removing the object.
    pub deletion: Deletion,
    /// The treatment of dependents when a DELETE does not say.
    pub default_propagation: Propagation,
    /// Warning for the caller of a delete who does not say what happens to dependents; empty for none.
    pub warning_on_delete: &'static str,
    /// A PUT to a name that does not exist creates the object.
    pub allow_create_on_update: bool,
    /// A PUT without `resourceVersion` overwrites.
    pub allow_unconditional_update: bool,
    /// `true` if a write of the whole object keeps the stored `status`. Only for kinds with that subresource.
    pub keeps_status: bool,
    /// `true` if a create may bring a `status`; Nodes are registered with theirs.
    pub creates_with_status: bool,
    /// The part of the metadata that a write to `/status` may change.
    pub status_metadata: StatusMetadata,
    /// Fields beside status, spec and metadata that nobody comes to own.
    pub unowned: Unowned,
    /// Numbers that the status always has, 0 at first.
    pub status_counts: &'static [&'static str],
    /// Fields of features that are off: see [`crate::gated`].
    pub gated: &'static [&'static str],
    /// The fields whose features can be turned on.
    pub until_on: &'static [UntilOn],
    /// Times that are set where they are absent, once the object around them is there: paths as in [`crate::gated`].
    pub times: &'static [&'static str],
    /// The JSON pointer to the Pod's spec in the object, empty if it has none.
    pub pod_spec: &'static str,
    /// Changes what the caller may not set in a new object.
    pub prepare_for_create: fn(&mut Value),
    /// Changes what the caller may not set in an update: `(new, old)`.
    pub prepare_for_update: fn(&mut Value, &Value),
    /// Changes what the caller may not set through `/status`: `(new, old, now)`; after spec and metadata were restored.
    pub prepare_for_status_update: fn(&mut Value, &Value, Timestamp),
    /// The broken rules of a new object, metadata apart.
    pub validate_create: fn(&Value) -> FieldErrors,
    /// The broken rules of an update, metadata apart: `(new, old)`.
    pub validate_update: fn(&Value, &Value) -> FieldErrors,
    /// The broken rules of a status update, metadata apart: `(new, old)`.
    pub validate_status_update: fn(&Value, &Value) -> FieldErrors,
    /// Warnings for the caller of a create.
    pub warnings: fn(&Value) -> Vec<String>,
    /// Warnings for the caller of an update: `(new, old)`.
    pub warnings_on_update: fn(&Value, &Value) -> Vec<String>,
    /// Warnings for the caller of a status update: `(new, old)`.
    pub warnings_on_status_update: fn(&Value, &Value) -> Vec<String>,
    /// `true` if an update only says that the object is still there: `(new, old)`. Such a write may be acknowledged
    /// before it is on disk, as its loss in a crash does no harm.
    pub is_heartbeat: fn(&Value, &Value) -> bool,
    /// The grace period of a deletion in seconds, asked for or not; only called for [`Deletion::PodGrace`].
    pub grace_period: fn(&Value, Option<i64>) -> i64,
    /// Further checks.
    pub rules: Option<Arc<dyn Rules>>,
}

fn nothing(_: &mut Value) {}

fn nothing_on_update(_: &mut Value, _: &Value) {}

fn nothing_on_status_update(_: &mut Value, _: &Value, _: Timestamp) {}

fn valid(_: &Value) -> FieldErrors {
    FieldErrors::new()
}

fn valid_update(_: &Value, _: &Value) -> FieldErrors {
    FieldErrors::new()
}

fn no_warnings(_: &Value) -> Vec<String> {
    Vec::new()
}

fn no_update_warnings(_: &Value, _: &Value) -> Vec<String> {
    Vec::new()
}

fn no_heartbeat(_: &Value, _: &Value) -> bool {
    false
}

fn no_grace(_: &Value, _: Option<i64>) -> i64 {
    0
}

/// Paths of fields that writes of a kind do not change although they may be sent: they are not the writer's.
///
/// Source: `GetResetFields` of upstream's strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unowned {
    /// By writes of the object, creates included.
    pub by_object: &'static [&'static [&'static str]],
    /// By writes to `/status`.
    pub by_status: &'static [&'static [&'static str]],
    /// By writes to `/approval`.
    pub by_approval: &'static [&'static [&'static str]],
}

impl Unowned {
    /// None of one's own.
    pub const NOTHING: Self = Self { by_object: &[], by_status: &[], by_approval: &[] };
}

/// A kind without a generation, rules of its own or a status.
pub const GENERIC: Strategy = Strategy {
    name_rule: NameRule::Subdomain,
    generation: Generation::None,
    deletion: Deletion::Immediate,
    default_propagation: Propagation::Background,
    warning_on_delete: "",
    allow_create_on_update: false,
    allow_unconditional_update: true,
    keeps_status: false,
    creates_with_status: false,
    status_metadata: StatusMetadata::Kept,
    unowned: Unowned::NOTHING,
    status_counts: &[],
    gated: &[],
    until_on: &[],
    times: &[],
    pod_spec: "",
    prepare_for_create: nothing,
    prepare_for_update: nothing_on_update,
    prepare_for_status_update: nothing_on_status_update,
    validate_create: valid,
    validate_update: valid_update,
    validate_status_update: valid_update,
    warnings: no_warnings,
    warnings_on_update: no_update_warnings,
    warnings_on_status_update: no_update_warnings,
    is_heartbeat: no_heartbeat,
    grace_period: no_grace,
    rules: None,
};

/// A kind with `spec`, `status` and a generation, without rules of its own.
pub const SPEC_AND_STATUS: Strategy =
    Strategy { generation: Generation::Spec, keeps_status: true, ..GENERIC };

/// The strategy [`SPEC_AND_STATUS`] for the older kinds: who may write the status may write the metadata too.
pub const SPEC_AND_FREE_STATUS: Strategy =
    Strategy { status_metadata: StatusMetadata::FreeBut(&[]), ..SPEC_AND_STATUS };

/// A kind with `spec` and a generation but no status.
pub const SPEC: Strategy = Strategy { generation: Generation::Spec, ..GENERIC };

/// A kind with `status`, without a generation.
pub const STATUS_ONLY: Strategy = Strategy { keeps_status: true, ..GENERIC };

/// The strategy [`STATUS_ONLY`] for the older kinds: who may write the status may write the metadata too.
pub const FREE_STATUS_ONLY: Strategy =
    Strategy { status_metadata: StatusMetadata::FreeBut(&[]), ..STATUS_ONLY };

/// A kind that is never stored.
pub const VIRTUAL: Strategy = Strategy { name_rule: NameRule::Any, ..GENERIC };

impl Strategy {
    /// Sets the times of an object that its author has left to the server.
    pub fn set_times(&self, object: &mut Value, now: Timestamp) {
        let time = metadata::time(now);
        self.times.iter().for_each(|path| set_absent(path, object, &time));
    }

    /// Prepares a decoded and defaulted new object, in place. System metadata (uid, creationTimestamp) is the
    /// caller's to fill.
    pub fn begin_create(&self, object: &mut Value) {
        let drops_status = self.keeps_status && !self.creates_with_status;
        if drops_status && let Some(map) = object.as_object_mut() {
            let counts = self.status_counts.iter().map(|name| ((*name).to_owned(), Value::from(0)));
            map.insert("status".to_owned(), Value::Object(counts.collect()));
        }
        metadata::remove(object, "deletionTimestamp");
        metadata::remove(object, "deletionGracePeriodSeconds");
        metadata::remove(object, "selfLink");
        if self.generation == Generation::None {
            metadata::remove(object, "generation");
        } else {
            metadata::set(object, "generation", 1);
        }
        self.drop_disabled(object, None);
        (self.prepare_for_create)(object);
    }

    /// Prepares an update of the whole object, in place.
    pub fn begin_update(&self, new: &mut Value, old: &Value) {
        if self.keeps_status {
            restore(new, old, "status");
        }
        restore_system_metadata(new, old);
        self.drop_disabled(new, Some(old));
        (self.prepare_for_update)(new, old);
        let is_bumped = match self.generation {
            Generation::None => return,
            Generation::First => false,
            Generation::Spec => new.get("spec") != old.get("spec"),
            Generation::SpecAndAnnotations => {
                let annotations = |object| Metadata::of(object).get("annotations");
                new.get("spec") != old.get("spec") || !same(annotations(new), annotations(old))
            }
            Generation::Content => content(new).ne(content(old)),
            Generation::ContentAndStatus => {
                content(new).ne(content(old)) || new.get("status") != old.get("status")
            }
            Generation::ContentAndLabels => {
                let labels = |object| Metadata::of(object).get("labels");
                content(new).ne(content(old)) || !same(labels(new), labels(old))
            }
        };
        let generation = Metadata::of(old).generation() + i64::from(is_bumped);
        if generation != 0 {
            metadata::set(new, "generation", generation);
        }
    }

    /// Prepares a write to `/status`, in place: everything but `status`, managed fields and what else of the metadata
    /// the kind leaves free is as it was.
    pub fn begin_status_update(&self, new: &mut Value, old: &Value, now: Timestamp) {
        let Some(new_map) = new.as_object_mut() else { return };
        let status = new_map.remove("status");
        let sent = self.metadata_with_status(new, old);
        *new = old.clone();
        if let Some(map) = new.as_object_mut() {
            match status {
                Some(status) => map.insert("status".to_owned(), status),
                None => map.remove("status"),
            };
            map.insert("metadata".to_owned(), sent.into());
        }
        self.drop_disabled(new, Some(old));
        (self.prepare_for_status_update)(new, old, now);
    }

    fn drop_disabled(&self, new: &mut Value, old: Option<&Value>) {
        drop_disabled(self.gated, self.pod_spec, new, old);
        drop_until_on(self.until_on, new, old);
    }

    /// The metadata that a write to `/status` leaves.
    fn metadata_with_status(&self, new: &mut Value, old: &Value) -> Map<String, Value> {
        const OF_THE_WRITE: [&str; 2] = ["managedFields", "resourceVersion"];
        if self.status_metadata != StatusMetadata::Kept {
            restore_system_metadata(new, old);
        }
        let mut sent = metadata::metadata_mut(new).map(std::mem::take).unwrap_or_default();
        let kept = old.get("metadata").and_then(Value::as_object);
        match self.status_metadata {
            StatusMetadata::FreeBut(names) => {
                for name in names {
                    match kept.and_then(|kept| kept.get(*name)) {
                        Some(value) => sent.insert((*name).to_owned(), value.clone()),
                        None => sent.remove(*name),
                    };
                }
                sent
            }
            StatusMetadata::Kept => {
                let mut kept = kept.cloned().unwrap_or_default();
                kept.extend(OF_THE_WRITE.iter().filter_map(|name| sent.remove_entry(*name)));
                kept
            }
        }
    }
}

/// Whether two maps are the same, an empty one being none.
fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let entries =
        |value: Option<&Value>| value.and_then(Value::as_object).filter(|map| !map.is_empty()).cloned();
    entries(a) == entries(b)
}

/// Everything but identity, metadata and status.
fn content(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    const APART: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
    object.as_object().into_iter().flatten().filter(|(name, _)| !APART.contains(&name.as_str()))
}

fn restore(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// What only the server sets. An absent one is filled in; a different one is left for the metadata's validation to
/// refuse, apart from times that the object has, which no write changes.
///
/// Source: `BeforeUpdate` of `k8s.io/apiserver/pkg/registry/rest`.
fn restore_system_metadata(new: &mut Value, old: &Value) {
    const FILLED: [&str; 2] = ["uid", "deletionGracePeriodSeconds"];
    const FIXED: [&str; 2] = ["creationTimestamp", "deletionTimestamp"];
    let empty = Map::new();
    let old_metadata = old.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let Some(map) = metadata::metadata_mut(new) else { return };
    map.remove("selfLink");
    match old_metadata.get("generation") {
        Some(generation) => map.insert("generation".to_owned(), generation.clone()),
        None => map.remove("generation"),
    };
    for field in FILLED {
        let is_absent = map.get(field).is_none_or(Value::is_null);
        if is_absent && let Some(value) = old_metadata.get(field) {
            map.insert(field.to_owned(), value.clone());
        }
    }
    for field in FIXED {
        if let Some(value) = old_metadata.get(field) {
            map.insert(field.to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::field::{FieldError, Path};
    use serde_json::json;

    use super::*;
    use crate::resource::{Resource, Scope};

    #[test]
    fn a_new_object_starts_at_generation_one_with_an_empty_status() {
        let mut object =
            json!({"metadata": {"name": "a", "deletionTimestamp": "x"}, "spec": {}, "status": {"a": 1}});
        SPEC_AND_STATUS.begin_create(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a", "generation": 1}, "spec": {}, "status": {}}));
    }

    #[test]
    fn an_update_keeps_status_and_bumps_the_generation_with_the_spec() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "generation": 3}, "spec": {"a": 1}, "status": {"s": 1}});
        let mut new =
            json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"a": 1}, "status": {"s": 2}});
        SPEC_AND_STATUS.begin_update(&mut new, &old);
        assert_eq!(new["metadata"]["generation"], 3);
        assert_eq!(new["metadata"]["uid"], "u");
        assert_eq!(new["status"], json!({"s": 1}));
        new["spec"]["a"] = json!(2);
        SPEC_AND_STATUS.begin_update(&mut new, &old);
        assert_eq!(new["metadata"]["generation"], 4);
    }

    #[test]
    fn a_status_update_changes_nothing_else() {
        let old = json!({"metadata": {"name": "a"}, "spec": {"a": 1}, "status": {"s": 1}});
        let mut new = json!({"metadata": {"name": "a", "labels": {"x": "y"}, "resourceVersion": "5"}, "spec": {"a": 2}, "status": {"s": 2}});
        SPEC_AND_STATUS.begin_status_update(&mut new, &old, Timestamp::UNIX_EPOCH);
        assert_eq!(
            new,
            json!({"metadata": {"name": "a", "resourceVersion": "5"}, "spec": {"a": 1}, "status": {"s": 2}})
        );
    }

    #[test]
    fn the_older_kinds_take_metadata_with_their_status() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "generation": 2, "ownerReferences": [1]}, "spec": {"a": 1}});
        let mut new = json!({"metadata": {"name": "a", "generation": 3, "labels": {"x": "y"}}, "spec": {"a": 2}, "status": {"s": 2}});
        let pod =
            Strategy { status_metadata: StatusMetadata::FreeBut(&["ownerReferences"]), ..SPEC_AND_STATUS };
        pod.begin_status_update(&mut new, &old, Timestamp::UNIX_EPOCH);
        assert_eq!(
            new,
            json!({"metadata": {"name": "a", "uid": "u", "generation": 2, "labels": {"x": "y"}, "ownerReferences": [1]},
                "spec": {"a": 1}, "status": {"s": 2}})
        );
    }

    #[test]
    fn a_deletion_is_neither_moved_nor_asked_for_by_an_update() {
        let deleted =
            json!({"metadata": {"name": "a", "deletionTimestamp": "x", "deletionGracePeriodSeconds": 3}});
        let mut new = json!({"metadata": {"name": "a", "deletionTimestamp": "y"}});
        GENERIC.begin_update(&mut new, &deleted);
        assert_eq!(new, deleted);
        let mut asked = json!({"metadata": {"name": "a", "deletionTimestamp": "y"}});
        GENERIC.begin_update(&mut asked, &json!({"metadata": {"name": "a"}}));
        assert_eq!(asked["metadata"]["deletionTimestamp"], "y", "left for validation to refuse");
    }

    #[test]
    fn rules_that_are_made_at_run_time_count_beside_the_functions() {
        /// As many replicas as somebody allows.
        #[derive(Debug)]
        struct AtMost(i64);

        impl Rules for AtMost {
            fn validate_create(&self, new: &Value) -> FieldErrors {
                let replicas = new.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
                let path = Path::new("spec").child("replicas");
                let detail = format!("must be less than or equal to {}", self.0);
                match replicas > self.0 {
                    true => FieldError::invalid(&path, replicas, &detail).into(),
                    false => FieldErrors::new(),
                }
            }

            fn validate_update(&self, new: &Value, _: &Value) -> FieldErrors {
                self.validate_create(new)
            }

            fn validate_status_update(&self, _: &Value, _: &Value) -> FieldErrors {
                FieldErrors::new()
            }
        }

        let mut row = Resource::made(("example.com", "v1"), "widgets", "widget", "Widget", Scope::Namespaced);
        row.strategy = Strategy { rules: Some(Arc::new(AtMost(3))), ..SPEC }.into();
        let check = |replicas: i64| {
            let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"replicas": replicas}});
            row.validate_create(&object).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(check(3).is_empty(), "{:?}", check(3));
        assert_eq!(check(4), ["spec.replicas: Invalid value: 4: must be less than or equal to 3"]);
    }
}
