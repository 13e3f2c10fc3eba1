//! `ObjectMeta` of any object, read and written in place on its JSON form.
//!
//! [`Metadata`] borrows; the setters change only the field that they name and keep everything else, known or not.
//! Source: `k8s.io/apimachinery/pkg/apis/meta/v1`, `ObjectMeta`.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// A view of an object's metadata. All fields of a view of an object without metadata are absent.
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'a>(Option<&'a Map<String, Value>>);

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    /// Group and version of the owner, such as `apps/v1`.
    pub api_version: &'a str,
    /// Kind of the owner.
    pub kind: &'a str,
    /// Name of the owner, in the same namespace or without one.
    pub name: &'a str,
    /// Uid of the owner.
    pub uid: &'a str,
    /// `true` if the owner is the managing controller.
    pub is_controller: bool,
    /// `true` if a foreground deletion of the owner waits for this object.
    pub blocks_owner_deletion: bool,
}

impl<'a> Metadata<'a> {
    /// The metadata of `object`.
    pub fn of(object: &'a Value) -> Self {
        Self(object.get("metadata").and_then(Value::as_object))
    }

    /// The field `name` as text; empty when absent.
    pub fn text(self, name: &str) -> &'a str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The field `name` as it is.
    pub fn get(self, name: &str) -> Option<&'a Value> {
        self.0.and_then(|map| map.get(name))
    }

    /// `metadata.name`, or empty.
    pub fn name(self) -> &'a str {
        self.text("name")
    }

    /// `metadata.generateName`, or empty.
    pub fn generate_name(self) -> &'a str {
        self.text("generateName")
    }

    /// `metadata.namespace`, or empty.
    pub fn namespace(self) -> &'a str {
        self.text("namespace")
    }

    /// `namespace/name`, or `name` without a namespace.
    pub fn key(self) -> String {
        match self.namespace() {
            "" => self.name().to_owned(),
            namespace => format!("{namespace}/{}", self.name()),
        }
    }

    /// `metadata.uid`, or empty.
    pub fn uid(self) -> &'a str {
        self.text("uid")
    }

    /// `metadata.resourceVersion`, or empty.
    pub fn resource_version(self) -> &'a str {
        self.text("resourceVersion")
    }

    /// `metadata.generation`, 0 when absent.
    pub fn generation(self) -> i64 {
        self.get("generation").and_then(Value::as_i64).unwrap_or_default()
    }

    /// `metadata.creationTimestamp`.
    pub fn creation_timestamp(self) -> Option<Timestamp> {
        self.text("creationTimestamp").parse().ok()
    }

    /// `metadata.deletionTimestamp`.
    pub fn deletion_timestamp(self) -> Option<Timestamp> {
        self.text("deletionTimestamp").parse().ok()
    }

    /// `true` if deletion was asked for.
    pub fn is_terminating(self) -> bool {
        self.get("deletionTimestamp").is_some_and(|v| !v.is_null())
    }

    /// `metadata.deletionGracePeriodSeconds`.
    pub fn deletion_grace_period_seconds(self) -> Option<i64> {
        self.get("deletionGracePeriodSeconds").and_then(Value::as_i64)
    }

    /// `metadata.finalizers`.
    pub fn finalizers(self) -> Vec<&'a str> {
        let list = self.get("finalizers").and_then(Value::as_array);
        list.map_or_else(Vec::new, |list| list.iter().filter_map(Value::as_str).collect())
    }

    /// `metadata.labels`, if there are any.
    pub fn labels(self) -> Option<&'a Map<String, Value>> {
        self.get("labels").and_then(Value::as_object)
    }

    /// The value of the label `key`.
    pub fn label(self, key: &str) -> Option<&'a str> {
        self.labels().and_then(|labels| labels.get(key)).and_then(Value::as_str)
    }

    /// `metadata.annotations`, if there are any.
    pub fn annotations(self) -> Option<&'a Map<String, Value>> {
        self.get("annotations").and_then(Value::as_object)
    }

    /// The value of the annotation `key`.
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.annotations().and_then(|annotations| annotations.get(key)).and_then(Value::as_str)
    }

    /// `metadata.ownerReferences`.
    pub fn owner_references(self) -> Vec<OwnerReference<'a>> {
        let list = self.get("ownerReferences").and_then(Value::as_array);
        list.map_or_else(Vec::new, |list| list.iter().filter_map(owner_reference).collect())
    }

    /// The owner that manages this object.
    pub fn controller(self) -> Option<OwnerReference<'a>> {
        self.owner_references().into_iter().find(|owner| owner.is_controller)
    }

    /// `metadata.managedFields`.
    pub fn managed_fields(self) -> Option<&'a Vec<Value>> {
        self.get("managedFields").and_then(Value::as_array)
    }
}

fn owner_reference(value: &Value) -> Option<OwnerReference<'_>> {
    let map = value.as_object()?;
    let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
    let flag = |name: &str| map.get(name).and_then(Value::as_bool).unwrap_or_default();
    Some(OwnerReference {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
        is_controller: flag("controller"),
        blocks_owner_deletion: flag("blockOwnerDeletion"),
    })
}

/// The metadata of `object` for writing; made if absent. `None` when `object` or its metadata is no JSON object.
pub fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

/// Sets the metadata field `name` to `value`.
pub fn set(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert(name.to_owned(), value.into());
    }
}

/// Removes the metadata field `name` and returns what was there.
pub fn remove(object: &mut Value, name: &str) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove(name)
}

/// Sets `metadata.finalizers`; an empty list removes the field.
pub fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    if finalizers.is_empty() {
        remove(object, "finalizers");
        return;
    }
    set(object, "finalizers", finalizers.to_vec());
}

/// A time as `ObjectMeta` holds it: RFC 3339, UTC, whole seconds.
pub fn time(at: Timestamp) -> String {
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
    whole.to_string()
}

/// A time as `MicroTime` holds it: RFC 3339, UTC, six decimals.
pub fn micro_time(at: Timestamp) -> String {
    format!("{at:.6}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_view_reads_what_is_there_and_finds_the_rest_absent() {
        let pod = json!({"metadata": {"name": "a", "namespace": "n", "finalizers": ["f"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]}});
        let metadata = Metadata::of(&pod);
        assert_eq!(metadata.key(), "n/a");
        assert_eq!(metadata.finalizers(), ["f"]);
        assert_eq!(metadata.controller().map(|o| o.uid), Some("u"));
        assert!(!metadata.is_terminating());
        assert_eq!(metadata.uid(), "");
        assert_eq!(Metadata::of(&Value::Null).name(), "");
    }

    #[test]
    fn setters_make_the_metadata_they_need() {
        let mut object = json!({});
        set(&mut object, "name", "a");
        set_finalizers(&mut object, &["x"]);
        set_finalizers(&mut object, &[]);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn times_have_whole_seconds_and_micro_times_six_decimals() {
        let at = Timestamp::from_microsecond(1_700_000_000_123_456).unwrap();
        assert_eq!(time(at), "2023-11-14T22:13:20Z");
        assert_eq!(micro_time(at), "2023-11-14T22:13:20.123456Z");
    }
}
