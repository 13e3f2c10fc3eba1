//! The values that Go writes as null: times and lists that are not set where the type holds them by value or without
//! `omitempty`.
//!
//! Clients see these nulls, the rules of kinds never do: [`Nulls::fill`] puts them in when an object is written, and
//! [`Nulls::strip`] takes them out when it is read again. Parts of the schema that have none are not entered, free-form
//! JSON keeps its own.
//! Source: the struct tags of `k8s.io/api`; `Time.MarshalJSON` of `k8s.io/apimachinery/pkg/apis/meta/v1`.

use std::sync::LazyLock;

use super::reachable::Reachable;
use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Field, Schemas, Type};
use serde_json::Value;

static BUILTIN: LazyLock<Nulls> = LazyLock::new(|| Nulls::new(crate::builtin()));

/// The walk over one arena.
#[derive(Debug)]
pub struct Nulls {
    reach: Reachable,
}

#[derive(Clone, Copy)]
enum Change {
    Fill,
    Strip,
}

impl Nulls {
    /// The walk over `schemas`.
    pub fn new(schemas: &Schemas) -> Self {
        let has_some =
            |_: usize, message: &crate::rows::Message| message.fields.iter().any(Field::is_null_unset);
        Self { reach: Reachable::of(schemas, has_some) }
    }

    /// The walk over the built-in kinds.
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// Writes null for what is not set.
    pub fn fill(&self, schema: SchemaRef<'_>, value: &mut Value) {
        self.value(schema.schemas, Type::Message(schema.index), value, Change::Fill);
    }

    /// Takes out what [`Nulls::fill`] writes.
    pub fn strip(&self, schema: SchemaRef<'_>, value: &mut Value) {
        self.value(schema.schemas, Type::Message(schema.index), value, Change::Strip);
    }

    fn value(&self, schemas: &Schemas, ty: Type, value: &mut Value, change: Change) {
        if !self.reach.enters(schemas, ty) {
            return;
        }
        match (ty, value) {
            (Type::Message(index), Value::Object(object)) => self.object(schemas, index, object, change),
            (Type::List(index), Value::Array(items)) => {
                let item = schemas.item(index);
                items.iter_mut().for_each(|value| self.value(schemas, item, value, change));
            }
            (Type::Map(index), Value::Object(entries)) => {
                let ty = schemas.map(index);
                entries.values_mut().for_each(|value| self.value(schemas, ty, value, change));
            }
            _ => {}
        }
    }

    fn object(&self, schemas: &Schemas, index: u16, object: &mut Object, change: Change) {
        let Some(schema) = schemas.at(index) else { return };
        for field in schema.fields() {
            match change {
                Change::Fill if field.is_null_unset() => {
                    if !object.contains_key(&*field.name) {
                        object.insert(field.name.clone().into_owned(), Value::Null);
                    }
                }
                Change::Strip if field.is_null_unset() => {
                    if object.get(&*field.name).is_some_and(Value::is_null) {
                        object.remove(&*field.name);
                    }
                }
                Change::Fill | Change::Strip => {}
            }
            if self.reach.enters(schemas, field.ty)
                && let Some(value) = object.get_mut(&*field.name)
            {
                self.value(schemas, field.ty, value, change);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is written, and that it is read again as it was.
    fn check(kind: (&str, &str), object: Value, expect: Value) {
        let schema = crate::builtin().kind(kind.0, "v1", kind.1).expect("a kind");
        let mut written = object.clone();
        Nulls::builtin().fill(schema, &mut written);
        assert_eq!(written, expect);
        Nulls::builtin().strip(schema, &mut written);
        assert_eq!(written, object);
    }

    #[test]
    fn times_that_are_not_set_are_null_but_for_those_of_creation() {
        check(
            ("apps", "Deployment"),
            json!({"metadata": {"name": "a"}, "spec": {"selector": {}, "template": {"metadata": {}, "spec": {"containers": []}}},
                "status": {"conditions": [{"type": "Available", "lastUpdateTime": "t"}]}}),
            json!({"metadata": {"name": "a"}, "spec": {"selector": {}, "template": {"metadata": {}, "spec": {"containers": []}}},
                "status": {"conditions": [
                    {"type": "Available", "lastUpdateTime": "t", "lastTransitionTime": null}]}}),
        );
        check(
            ("", "Event"),
            json!({"reason": "r"}),
            json!({"reason": "r", "eventTime": null, "firstTimestamp": null, "lastTimestamp": null}),
        );
    }

    #[test]
    fn lists_without_omitempty_are_null() {
        check(("rbac.authorization.k8s.io", "Role"), json!({}), json!({"rules": null}));
        check(("rbac.authorization.k8s.io", "Role"), json!({"rules": []}), json!({"rules": []}));
    }

    #[test]
    fn free_form_json_keeps_its_nulls() {
        check(
            ("apps", "ControllerRevision"),
            json!({"data": {"creationTimestamp": null}}),
            json!({"data": {"creationTimestamp": null}}),
        );
    }
}
