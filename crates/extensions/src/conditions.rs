//! The status of a definition: the names that it has, whether it is established, what is wrong with it, and how far its
//! deletion is.
//!
//! Upstream has a controller for each condition, each with a write of its own; here one function says all of them at
//! once. A condition's time is that of its last change of status.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/controller/{status,establish,nonstructuralschema,apiapproval,finalizer}`.

use jiff::Timestamp;
use machinery::metadata::{self, Metadata};
use resources::definition::{Approval, approval, ca_bundle_error, is_protected_group};
use schema::rules::violation::Violation;
use serde_json::{Map, Value, json};

use crate::names::{self, Taken};

/// The finalizer of definitions whose objects are to be deleted first.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How many violations of structure are told; one who mends those is told the rest.
const VIOLATIONS_MAX: usize = 50;

/// A condition of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its names are its own.
    NamesAccepted,
    /// It is served.
    Established,
    /// Its schemas are not structural; not there otherwise.
    NonStructuralSchema,
    /// It is of a group of the community, and says whether it was reviewed.
    KubernetesApiApprovalPolicyConformant,
    /// It is being deleted.
    Terminating,
}

impl Kind {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NamesAccepted => "NamesAccepted",
            Self::Established => "Established",
            Self::NonStructuralSchema => "NonStructuralSchema",
            Self::KubernetesApiApprovalPolicyConformant => "KubernetesAPIApprovalPolicyConformant",
            Self::Terminating => "Terminating",
        }
    }
}

/// The progress of a definition's deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terminating {
    /// It was asked for.
    Pending,
    /// Objects are being deleted.
    InProgress,
    /// Objects could not be deleted, for this reason; it is tried again.
    Failed(String),
    /// It cannot be told whether there are objects, for this reason; it is tried again.
    Unconfirmed(String),
    /// There are no objects any more.
    Completed,
    /// There never were any: the kind was not served.
    NeverEstablished,
    /// The kind is a built-in one, whose objects stay.
    BuiltIn,
}

/// What a condition says.
struct Said {
    kind: Kind,
    status: &'static str,
    reason: &'static str,
    message: String,
}

fn said(kind: Kind, status: &'static str, reason: &'static str, message: impl Into<String>) -> Said {
    Said { kind, status, reason, message: message.into() }
}

/// The status that a definition is to have: its own if nothing changes.
///
/// `others` are the definitions that there are; only the names matter of those in the group. Names are whose status has
/// them first: definitions are to be planned one after the other, each with what was said of the ones before. Those that
/// lack names are to be planned again when one of their group changes or goes.
pub fn plan<'a>(definition: &'a Value, others: impl IntoIterator<Item = &'a Value>, now: Timestamp) -> Value {
    let mut status = status_of(definition);
    if let Some(said) = reviewed(definition) {
        set(&mut status, &said, now);
    }
    match structure(definition) {
        Some(said) => set(&mut status, &said, now),
        None => remove(&mut status, Kind::NonStructuralSchema),
    }
    let group = definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let name = Metadata::of(definition).name();
    let others = others.into_iter().filter(|other| Metadata::of(other).name() != name);
    let taken = Taken::of(group, others.chain([definition]));
    let given = names::give(definition, &taken);
    status.insert("acceptedNames".to_owned(), given.names);
    let is_accepted = given.conflict.is_none();
    let (status_text, (reason, message)) = match given.conflict {
        Some(conflict) => ("False", conflict),
        None => ("True", ("NoConflicts", "no conflicts found".to_owned())),
    };
    set(&mut status, &said(Kind::NamesAccepted, status_text, reason, message), now);
    if let Some(said) = established(definition, is_accepted) {
        set(&mut status, &said, now);
    }
    status.into()
}

/// `true` if a condition is there and true.
pub fn is_true(definition: &Value, kind: Kind) -> bool {
    condition(definition, kind).and_then(|found| found.get("status")).and_then(Value::as_str) == Some("True")
}

/// The status of a definition of which this is said about its deletion.
pub fn terminating(definition: &Value, how_far: Terminating, now: Timestamp) -> Value {
    let failed = "InstanceDeletionFailed";
    let (status, reason, message) = match how_far {
        Terminating::Pending => (
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
                .to_owned(),
        ),
        Terminating::InProgress => {
            ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress".to_owned())
        }
        Terminating::Failed(why) => ("True", failed, format!("could not issue all deletes: {why}")),
        Terminating::Unconfirmed(why) => (
            "True",
            "InstanceDeletionCheck",
            format!("could not confirm zero CustomResources remaining: {why}"),
        ),
        Terminating::Completed => ("False", "InstanceDeletionCompleted", "removed all instances".to_owned()),
        Terminating::NeverEstablished => {
            ("False", "NeverEstablished", "resource was never established".to_owned())
        }
        Terminating::BuiltIn => (
            "False",
            "OverlappingBuiltInResource",
            "instances overlap with built-in resources in storage".to_owned(),
        ),
    };
    let mut to = status_of(definition);
    set(&mut to, &said(Kind::Terminating, status, reason, message), now);
    to.into()
}

/// The definition after the first request to delete it: with the finalizer, and its deletion pending. One that is being
/// deleted already is as it was.
///
/// Source: `Delete` of `pkg/registry/customresourcedefinition`.
pub fn begin_deletion(definition: &mut Value, now: Timestamp) {
    if Metadata::of(definition).is_terminating() {
        return;
    }
    metadata::set(definition, "deletionTimestamp", metadata::time(now));
    let mut finalizers: Vec<String> =
        Metadata::of(definition).finalizers().into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    metadata::set_finalizers(definition, &finalizers);
    let status = terminating(definition, Terminating::Pending, now);
    if let Some(object) = definition.as_object_mut() {
        object.insert("status".to_owned(), status);
    }
}

/// `true` for a definition of built-in kinds: it would delete their objects, were it not left alone.
///
/// Source: `OverlappingBuiltInResources`.
pub fn is_built_in(definition: &Value) -> bool {
    let text = |pointer| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    matches!(
        (text("/spec/group"), text("/spec/names/plural")),
        ("apiregistration.k8s.io", "apiservices") | ("apiextensions.k8s.io", "customresourcedefinitions")
    )
}

fn status_of(definition: &Value) -> Map<String, Value> {
    definition.get("status").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn reviewed(definition: &Value) -> Option<Said> {
    let kind = Kind::KubernetesApiApprovalPolicyConformant;
    let group = definition.pointer("/spec/group")?.as_str()?;
    if !is_protected_group(group) {
        return None;
    }
    let (approval, why) = approval(definition);
    Some(match approval {
        Approval::Approved => said(kind, "True", "ApprovedAnnotation", why),
        Approval::Bypassed => said(kind, "False", "UnapprovedAnnotation", why),
        Approval::Missing => said(kind, "False", "MissingAnnotation", why),
        Approval::Invalid => said(kind, "False", "InvalidAnnotation", why),
    })
}

/// What keeps the schemas of a definition from being structural.
fn structure(definition: &Value) -> Option<Said> {
    let kind = Kind::NonStructuralSchema;
    let mut violations = Vec::new();
    if definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
        violations.push("spec.preserveUnknownFields: Invalid value: true: must be false".to_owned());
    }
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    for (index, version) in versions.into_iter().flatten().enumerate() {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema").filter(|schema| !schema.is_null())
        else {
            continue;
        };
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match schema::build::structural(schema, &path) {
            Ok(found) => violations.extend(found.into_iter().map(text)),
            Err(why) => {
                let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
                let message = format!("failed to check validation schema for version {name}: {why}");
                return Some(said(kind, "Unknown", "StructuralError", message));
            }
        }
    }
    let left_out = violations.len().saturating_sub(VIOLATIONS_MAX);
    violations.truncate(VIOLATIONS_MAX);
    if left_out > 0 {
        violations.push(format!("and {left_out} more"));
    }
    match violations.as_slice() {
        [] => None,
        [one] => Some(said(kind, "True", "Violations", one.clone())),
        all => Some(said(kind, "True", "Violations", format!("[{}]", all.join(", ")))),
    }
}

fn text(violation: Violation) -> String {
    machinery::field::FieldError::from(violation).to_string()
}

/// What is said of a definition that has or lacks its names. One that is established stays so.
fn established(definition: &Value, is_accepted: bool) -> Option<Said> {
    let kind = Kind::Established;
    let old = condition(definition, kind);
    if is_true(definition, kind) || (!is_accepted && old.is_some()) {
        return None;
    }
    if !is_accepted {
        return Some(said(kind, "False", "NotAccepted", "not all names are accepted"));
    }
    let client = definition.pointer("/spec/conversion/webhook/clientConfig");
    if client.and_then(ca_bundle_error).is_some() {
        return Some(said(kind, "False", "InvalidCABundle", "The conversion webhook CABundle is invalid"));
    }
    Some(said(kind, "True", "InitialNamesAccepted", "the initial names have been accepted"))
}

fn condition(definition: &Value, kind: Kind) -> Option<&Value> {
    let conditions = definition.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| is_of(condition, kind))
}

fn is_of(condition: &Value, kind: Kind) -> bool {
    condition.get("type").and_then(Value::as_str) == Some(kind.as_str())
}

/// Writes a condition; its time stays unless its status changes.
fn set(status: &mut Map<String, Value>, said: &Said, now: Timestamp) {
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let mut fresh = Map::new();
    fresh.insert("lastTransitionTime".to_owned(), metadata::time(now).into());
    let (at, mut condition) = match conditions.iter().position(|condition| is_of(condition, said.kind)) {
        Some(at) => (Some(at), conditions.get(at).and_then(Value::as_object).cloned().unwrap_or_default()),
        None => (None, fresh.clone()),
    };
    let is_timed = condition.get("lastTransitionTime").is_some_and(|time| !time.is_null());
    if !is_timed || condition.get("status").and_then(Value::as_str) != Some(said.status) {
        condition.extend(fresh);
    }
    condition.insert("message".to_owned(), said.message.as_str().into());
    condition.insert("reason".to_owned(), said.reason.into());
    condition.insert("status".to_owned(), said.status.into());
    condition.insert("type".to_owned(), said.kind.as_str().into());
    match at.and_then(|at| conditions.get_mut(at)) {
        Some(place) => *place = condition.into(),
        None => conditions.push(condition.into()),
    }
}

fn remove(status: &mut Map<String, Value>, kind: Kind) {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| !is_of(condition, kind));
    }
}

#[cfg(test)]
mod tests;
