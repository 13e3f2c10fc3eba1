//! The protobuf form of an OpenAPI v2 document, as gnostic's `OpenAPIv2.proto` numbers it.
//!
//! Only what [`super::v2`] writes is translated.

use crate::proto::wire::{bytes, double, int, nested};
use serde_json::Value;

pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 << 20);
    text(&mut out, 1, &document["swagger"]);
    nested(&mut out, 2, |out| {
        text(out, 1, &document["info"]["title"]);
        text(out, 2, &document["info"]["version"]);
    });
    let mut paths = Vec::new();
    for (name, item) in entries(&document["paths"]) {
        nested(&mut paths, 2, |out| named(out, name, |out| path_item(out, item)));
    }
    bytes(&mut out, 8, &paths);
    let mut definitions = Vec::new();
    for (name, definition) in entries(&document["definitions"]) {
        nested(&mut definitions, 1, |out| named(out, name, |out| schema(out, definition)));
    }
    bytes(&mut out, 9, &definitions);
    out
}

pub(super) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn text(out: &mut Vec<u8>, number: u16, value: &Value) {
    if let Some(text) = value.as_str() {
        bytes(out, number, text.as_bytes());
    }
}

pub(super) fn flag(out: &mut Vec<u8>, number: u16, value: &Value) {
    if value.as_bool() == Some(true) {
        int(out, number, 1);
    }
}

/// The fields of a `Named...` message: name and value.
pub(super) fn named(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    bytes(out, 1, name.as_bytes());
    nested(out, 2, value);
}

/// All `x-` members as `NamedAny`, whose value is YAML; JSON is YAML.
pub(super) fn extensions(out: &mut Vec<u8>, number: u16, value: &Value) {
    for (name, value) in entries(value).filter(|(name, _)| name.starts_with("x-")) {
        nested(out, number, |out| named(out, name, |out| any(out, value)));
    }
}

fn any(out: &mut Vec<u8>, value: &Value) {
    bytes(out, 2, format!("{value}\n").as_bytes());
}

fn path_item(out: &mut Vec<u8>, item: &Value) {
    for (method, number) in [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)] {
        if let Some(value) = item.get(method) {
            nested(out, number, |out| operation(out, value));
        }
    }
    for value in items(&item["parameters"]) {
        nested(out, 9, |out| parameter(out, value));
    }
}

fn operation(out: &mut Vec<u8>, operation: &Value) {
    items(&operation["tags"]).for_each(|value| text(out, 1, value));
    text(out, 3, &operation["description"]);
    text(out, 5, &operation["operationId"]);
    items(&operation["produces"]).for_each(|value| text(out, 6, value));
    items(&operation["consumes"]).for_each(|value| text(out, 7, value));
    for value in items(&operation["parameters"]) {
        nested(out, 8, |out| parameter(out, value));
    }
    nested(out, 9, |out| {
        for (code, response) in entries(&operation["responses"]) {
            // Responses.response_code, NamedResponseValue, ResponseValue.response.
            nested(out, 1, |out| {
                named(out, code, |out| {
                    nested(out, 1, |out| {
                        text(out, 1, &response["description"]);
                        if let Some(value) = response.get("schema") {
                            nested(out, 2, |out| nested(out, 1, |out| schema(out, value)));
                        }
                    });
                });
            });
        }
    });
    items(&operation["schemes"]).for_each(|value| text(out, 10, value));
    extensions(out, 13, operation);
}

/// A `ParametersItem` with a `Parameter`.
fn parameter(out: &mut Vec<u8>, parameter: &Value) {
    nested(out, 1, |out| match parameter["in"].as_str() {
        Some("body") => nested(out, 1, |out| {
            text(out, 2, &parameter["name"]);
            text(out, 3, &parameter["in"]);
            flag(out, 4, &parameter["required"]);
            nested(out, 5, |out| schema(out, &parameter["schema"]));
        }),
        // NonBodyParameter.query_parameter_sub_schema and path_parameter_sub_schema.
        Some("query") => nested(out, 2, |out| {
            nested(out, 3, |out| {
                text(out, 2, &parameter["in"]);
                text(out, 4, &parameter["name"]);
                text(out, 6, &parameter["type"]);
            });
        }),
        _ => nested(out, 2, |out| {
            nested(out, 4, |out| {
                flag(out, 1, &parameter["required"]);
                text(out, 2, &parameter["in"]);
                text(out, 4, &parameter["name"]);
                text(out, 5, &parameter["type"]);
            });
        }),
    });
}

/// How a member of a schema is written.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Text,
    Flag,
    Int,
    Double,
    /// As YAML.
    Any,
    /// Each element as YAML.
    Each,
}

/// The members of a schema that have no parts, as OpenAPI v2 numbers them.
const MEMBERS: &[(&str, u16, Form)] = &[
    ("$ref", 1, Form::Text),
    ("format", 2, Form::Text),
    ("title", 3, Form::Text),
    ("description", 4, Form::Text),
    ("multipleOf", 6, Form::Double),
    ("maximum", 7, Form::Double),
    ("exclusiveMaximum", 8, Form::Flag),
    ("minimum", 9, Form::Double),
    ("exclusiveMinimum", 10, Form::Flag),
    ("maxLength", 11, Form::Int),
    ("minLength", 12, Form::Int),
    ("pattern", 13, Form::Text),
    ("maxItems", 14, Form::Int),
    ("minItems", 15, Form::Int),
    ("uniqueItems", 16, Form::Flag),
    ("maxProperties", 17, Form::Int),
    ("minProperties", 18, Form::Int),
    ("enum", 20, Form::Each),
    ("example", 30, Form::Any),
];

/// Writes the members that a schema has.
pub(super) fn members(out: &mut Vec<u8>, value: &Value, rows: &[(&str, u16, Form)]) {
    for (name, number, form) in rows {
        let Some(member) = value.get(name) else { continue };
        match form {
            Form::Text => text(out, *number, member),
            Form::Flag => flag(out, *number, member),
            Form::Int => member.as_i64().into_iter().for_each(|member| int(out, *number, member)),
            Form::Double => member.as_f64().into_iter().for_each(|member| double(out, *number, member)),
            Form::Any => nested(out, *number, |out| any(out, member)),
            Form::Each => items(member).for_each(|one| nested(out, *number, |out| any(out, one))),
        }
    }
}

/// `ExternalDocs`, if there are any.
pub(super) fn external_docs(out: &mut Vec<u8>, number: u16, value: &Value) {
    if let Some(docs) = value.get("externalDocs") {
        nested(out, number, |out| {
            text(out, 1, &docs["description"]);
            text(out, 2, &docs["url"]);
        });
    }
}

/// `additionalProperties`: a schema, or whether there may be any.
pub(super) fn additional(out: &mut Vec<u8>, number: u16, value: &Value, schema: fn(&mut Vec<u8>, &Value)) {
    match value.get("additionalProperties") {
        None => {}
        Some(Value::Bool(is_allowed)) => nested(out, number, |out| int(out, 2, i64::from(*is_allowed))),
        Some(values) => nested(out, number, |out| nested(out, 1, |out| schema(out, values))),
    }
}

fn schema(out: &mut Vec<u8>, value: &Value) {
    members(out, value, MEMBERS);
    external_docs(out, 29, value);
    if let Some(default) = value.get("default") {
        nested(out, 5, |out| any(out, default));
    }
    items(&value["required"]).for_each(|name| text(out, 19, name));
    additional(out, 21, value, schema);
    if let Some(ty) = value.get("type") {
        nested(out, 22, |out| text(out, 1, ty));
    }
    if let Some(items) = value.get("items") {
        nested(out, 23, |out| nested(out, 1, |out| schema(out, items)));
    }
    if let Some(properties) = value.get("properties") {
        nested(out, 25, |out| {
            for (name, property) in entries(properties) {
                nested(out, 1, |out| named(out, name, |out| schema(out, property)));
            }
        });
    }
    extensions(out, 31, value);
}
