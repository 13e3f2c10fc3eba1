//! Definitions of custom kinds: as their schemas were written, with everything within its kind; only metadata is referred
//! to. Version 2 leaves out what its clients cannot read.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder` and `openapi/v2`.

use serde_json::{Value, json};

use super::definitions::{Definitions, Flavour};
use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Schemas, Type};
use crate::rules::{Location, Rules};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
/// A built-in kind that says what the fields of all kinds are for.
const MODEL: &str = "io.k8s.api.core.v1.Pod";

impl<'a> Definitions<'a> {
    /// The definition of a kind of a run-time arena.
    pub(super) fn custom(&mut self, schema: SchemaRef<'a>, rules: &'a Rules) -> Object {
        if self.flavour == Flavour::V2 && schema.message.preserves_unknown_fields() {
            // With any property, kubectl would take all others for unknown.
            return [("type".to_owned(), "object".into())].into_iter().collect();
        }
        let mut out = self.written(rules);
        self.fields(schema, &mut out);
        out
    }

    /// What stands at a location.
    fn value_at(&mut self, schemas: &'a Schemas, ty: Type, rules: Option<&'a Rules>) -> Value {
        let mut out = rules.map(|rules| self.written(rules)).unwrap_or_default();
        let is_v2 = self.flavour == Flavour::V2;
        let preserves = out.get(PRESERVE).is_some_and(|value| *value == true);
        let is_nullable = rules.is_some_and(|rules| rules.checks.nullable);
        if is_v2 && is_nullable {
            out.remove("nullable");
        }
        let has_parts = !(is_v2 && (is_nullable || preserves));
        if is_v2 && (is_nullable || preserves && matches!(ty, Type::Message(_) | Type::List(_))) {
            out.remove("type");
        }
        match ty {
            Type::Message(index) if has_parts => match schemas.at(index) {
                Some(schema) if is_within(schema) => self.fields(schema, &mut out),
                Some(schema) => return self.described(schema, out),
                None => {}
            },
            Type::List(index) if has_parts => {
                let item = self.value_at(schemas, schemas.item(index), schemas.rules(Location::Item(index)));
                out.insert("items".into(), item);
            }
            Type::Map(index) if !out.contains_key("additionalProperties") => {
                let rules = schemas.rules(Location::Value(index));
                if is_v2 && rules.is_some_and(|rules| rules.checks.nullable) {
                    out.remove("required");
                }
                let values = self.value_at(schemas, schemas.map(index), rules);
                out.insert("additionalProperties".into(), values);
            }
            _ => {}
        }
        Value::Object(out)
    }

    /// Adds the properties of an object, and what is required of a resource.
    fn fields(&mut self, schema: SchemaRef<'a>, out: &mut Object) {
        let is_whole = schema.schemas.rules(Location::Root(schema.index)).is_some();
        let is_resource = is_whole || schema.message.is_embedded_resource();
        let mut properties = Object::new();
        let mut nullable = Vec::new();
        for (field, at) in schema.fields().iter().zip(0u16..) {
            let rules = schema.schemas.rules(Location::Field(schema.index, at));
            let property = match &*field.name {
                "apiVersion" | "kind" if is_resource => {
                    let mut property = self.about(&field.name);
                    property.insert("type".into(), "string".into());
                    Value::Object(property)
                }
                "metadata" if is_resource => {
                    // What it says of objects does not hold of lists.
                    let beside =
                        if schema.message.is_lenient() { self.about("metadata") } else { Object::new() };
                    self.reference(schema.schemas, field.ty, beside)
                }
                _ => self.value_at(schema.schemas, field.ty, rules),
            };
            if rules.is_some_and(|rules| rules.checks.nullable) {
                nullable.push(&*field.name);
            }
            properties.insert(field.name.clone().into_owned(), property);
        }
        if !properties.is_empty() {
            out.insert("properties".into(), Value::Object(properties));
        }
        let mut required: Vec<Value> =
            out.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        if self.flavour == Flavour::V2 {
            required.retain(|name| !nullable.iter().any(|nullable| name == nullable));
        }
        if schema.message.is_embedded_resource() {
            let missing =
                ["kind", "apiVersion"].into_iter().filter(|name| !required.iter().any(|known| known == name));
            required.extend(missing.map(Value::from).collect::<Vec<_>>());
        }
        out.remove("required");
        if !required.is_empty() {
            out.insert("required".into(), required.into());
        }
    }

    /// A reference, and what is said beside it.
    fn described(&mut self, schema: SchemaRef<'a>, mut beside: Object) -> Value {
        let reference = self.message(schema);
        match (self.flavour, reference) {
            (_, reference) if beside.is_empty() => reference,
            // In version 3 a reference cannot have siblings.
            (Flavour::V3, reference) => {
                beside.insert("allOf".into(), json!([reference]));
                Value::Object(beside)
            }
            (Flavour::V2, Value::Object(mut reference)) => {
                reference.append(&mut beside);
                Value::Object(reference)
            }
            (Flavour::V2, other) => other,
        }
    }

    fn reference(&mut self, schemas: &'a Schemas, ty: Type, beside: Object) -> Value {
        match ty {
            Type::Message(index) => match schemas.at(index) {
                Some(schema) => self.described(schema, beside),
                None => Value::Object(beside),
            },
            _ => Value::Object(beside),
        }
    }

    /// What a field that all kinds have is for.
    fn about(&self, field: &str) -> Object {
        let text = self.descriptions.get(MODEL, field).map(|text| ("description".to_owned(), text.into()));
        text.into_iter().collect()
    }

    /// What the author wrote of a location, with the default as it is used.
    fn written(&self, rules: &Rules) -> Object {
        let mut out = rules.written();
        if let Some(default) = &rules.default {
            out.insert("default".into(), default.clone());
        }
        if self.flavour == Flavour::V2 {
            ["allOf", "anyOf", "oneOf", "not"].iter().for_each(|name| drop(out.remove(*name)));
        }
        out
    }
}

/// Whether an object stands within its kind, rather than in a definition of its own.
fn is_within(schema: SchemaRef<'_>) -> bool {
    schema.message.is_lenient() && schema.schemas.rules(Location::Root(schema.index)).is_none()
}

#[cfg(test)]
mod tests;
