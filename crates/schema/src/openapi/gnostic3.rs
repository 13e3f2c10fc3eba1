//! The protobuf form of an OpenAPI v3 document, as gnostic's `OpenAPIv3.proto` numbers it.
//!
//! Only what [`super::v3`] writes is translated.

use super::gnostic::{
    Form, additional, entries, extensions, external_docs, flag, items, members, named, text,
};
use crate::proto::wire::{bytes, double, int, nested};
use serde_json::Value;

pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 << 18);
    text(&mut out, 1, &document["openapi"]);
    nested(&mut out, 2, |out| {
        text(out, 1, &document["info"]["title"]);
        text(out, 6, &document["info"]["version"]);
    });
    nested(&mut out, 4, |out| {
        for (name, item) in entries(&document["paths"]) {
            nested(out, 1, |out| named(out, name, |out| path_item(out, item)));
        }
    });
    let components = &document["components"];
    nested(&mut out, 5, |out| {
        nested(out, 1, |out| named_schemas(out, &components["schemas"]));
        nested(out, 7, |out| {
            for (name, scheme) in entries(&components["securitySchemes"]) {
                nested(out, 1, |out| named(out, name, |out| nested(out, 1, |out| security(out, scheme))));
            }
        });
    });
    out
}

fn security(out: &mut Vec<u8>, scheme: &Value) {
    text(out, 1, &scheme["type"]);
    text(out, 2, &scheme["description"]);
    text(out, 3, &scheme["name"]);
    text(out, 4, &scheme["in"]);
}

/// The fields of `SchemasOrReferences` and of `Properties`.
fn named_schemas(out: &mut Vec<u8>, schemas: &Value) {
    for (name, value) in entries(schemas) {
        nested(out, 1, |out| named(out, name, |out| schema(out, value)));
    }
}

fn path_item(out: &mut Vec<u8>, item: &Value) {
    for (method, number) in [("get", 4), ("put", 5), ("post", 6), ("delete", 7), ("patch", 10)] {
        if let Some(value) = item.get(method) {
            nested(out, number, |out| operation(out, value));
        }
    }
    for value in items(&item["parameters"]) {
        nested(out, 13, |out| nested(out, 1, |out| parameter(out, value)));
    }
}

fn operation(out: &mut Vec<u8>, operation: &Value) {
    items(&operation["tags"]).for_each(|value| text(out, 1, value));
    text(out, 3, &operation["description"]);
    text(out, 5, &operation["operationId"]);
    for value in items(&operation["parameters"]) {
        nested(out, 6, |out| nested(out, 1, |out| parameter(out, value)));
    }
    if let Some(body) = operation.get("requestBody") {
        nested(out, 7, |out| {
            nested(out, 1, |out| {
                content(out, 2, &body["content"]);
                flag(out, 3, &body["required"]);
            });
        });
    }
    nested(out, 8, |out| {
        for (code, response) in entries(&operation["responses"]) {
            nested(out, 2, |out| {
                named(out, code, |out| {
                    nested(out, 1, |out| {
                        text(out, 1, &response["description"]);
                        content(out, 3, &response["content"]);
                    });
                });
            });
        }
    });
    extensions(out, 13, operation);
}

/// `MediaTypes`, if there are any.
fn content(out: &mut Vec<u8>, number: u16, content: &Value) {
    if content.is_null() {
        return;
    }
    nested(out, number, |out| {
        for (media_type, value) in entries(content) {
            nested(out, 1, |out| {
                named(out, media_type, |out| nested(out, 1, |out| schema(out, &value["schema"])));
            });
        }
    });
}

fn parameter(out: &mut Vec<u8>, parameter: &Value) {
    text(out, 1, &parameter["name"]);
    text(out, 2, &parameter["in"]);
    text(out, 3, &parameter["description"]);
    flag(out, 4, &parameter["required"]);
    nested(out, 10, |out| schema(out, &parameter["schema"]));
}

/// The fields of `SchemaOrReference`.
fn schema(out: &mut Vec<u8>, value: &Value) {
    match value.get("$ref") {
        Some(reference) => nested(out, 2, |out| text(out, 1, reference)),
        None => nested(out, 1, |out| plain_schema(out, value)),
    }
}

/// The members of a schema that have no parts, as OpenAPI v3 numbers them.
const MEMBERS: &[(&str, u16, Form)] = &[
    ("nullable", 1, Form::Flag),
    ("example", 7, Form::Any),
    ("title", 9, Form::Text),
    ("multipleOf", 10, Form::Double),
    ("maximum", 11, Form::Double),
    ("exclusiveMaximum", 12, Form::Flag),
    ("minimum", 13, Form::Double),
    ("exclusiveMinimum", 14, Form::Flag),
    ("maxLength", 15, Form::Int),
    ("minLength", 16, Form::Int),
    ("pattern", 17, Form::Text),
    ("maxItems", 18, Form::Int),
    ("minItems", 19, Form::Int),
    ("uniqueItems", 20, Form::Flag),
    ("maxProperties", 21, Form::Int),
    ("minProperties", 22, Form::Int),
    ("enum", 24, Form::Each),
    ("type", 25, Form::Text),
    ("description", 34, Form::Text),
    ("format", 35, Form::Text),
];

fn plain_schema(out: &mut Vec<u8>, value: &Value) {
    members(out, value, MEMBERS);
    external_docs(out, 6, value);
    items(&value["required"]).for_each(|name| text(out, 23, name));
    for (name, number) in [("allOf", 26), ("oneOf", 27), ("anyOf", 28)] {
        items(&value[name]).for_each(|one| nested(out, number, |out| schema(out, one)));
    }
    if let Some(not) = value.get("not") {
        nested(out, 29, |out| plain_schema(out, not));
    }
    if let Some(item) = value.get("items") {
        nested(out, 30, |out| nested(out, 1, |out| schema(out, item)));
    }
    if let Some(properties) = value.get("properties") {
        nested(out, 31, |out| named_schemas(out, properties));
    }
    additional(out, 32, value, schema);
    // Other defaults than these have no form.
    match &value["default"] {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            nested(out, 33, |out| double(out, 1, number));
        }
        Value::Bool(value) => nested(out, 33, |out| int(out, 2, i64::from(*value))),
        Value::String(text) => nested(out, 33, |out| bytes(out, 3, text.as_bytes())),
        _ => {}
    }
    extensions(out, 36, value);
}
