use serde_json::json;

use super::*;
use crate::build::tests::arena;

/// What becomes of a `spec`, by its schema.
fn check(schema: &Value, spec: Value, expect: &Value) {
    let schemas = arena(schema);
    let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    let mut object = json!({ "spec": spec });
    apply(kind, &mut object).expect("little memory");
    assert_eq!(object["spec"], *expect);
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn defaults_fill_what_is_missing_also_within_defaults() {
    let schema = object(&json!({
        "a": {"type": "integer", "default": 1},
        "inner": {"type": "object", "default": {}, "properties": {"b": {"type": "string", "default": "x"}}},
        "absent": {"type": "object", "properties": {"c": {"type": "string", "default": "x"}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "boolean", "default": true}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"e": {"type": "number", "default": 0.5}}}},
    }));
    check(
        &schema,
        json!({"list": [{}, {"d": false}], "map": {"k": {}}}),
        &json!({"a": 1, "inner": {"b": "x"}, "list": [{"d": true}, {"d": false}], "map": {"k": {"e": 0.5}}}),
    );
    check(&schema, json!({"a": 0, "inner": {"b": ""}}), &json!({"a": 0, "inner": {"b": ""}}));
    check(&schema, json!("no object"), &json!("no object"));
    check(
        &schema,
        json!({"list": "none", "map": [1]}),
        &json!({"a": 1, "inner": {"b": "x"}, "list": "none", "map": [1]}),
    );
}

#[test]
fn nulls_meet_their_fate_by_nullable_and_default() {
    let schema = object(&json!({
        "goes": {"type": "string"},
        "becomes": {"type": "string", "default": "x"},
        "stays": {"type": "string", "nullable": true},
        "stays_too": {"type": "string", "nullable": true, "default": "x"},
        "list": {"type": "array", "items": {"type": "string"}},
        "defaulted": {"type": "array", "items": {"type": "string", "default": "x"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "filled": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
        "nullable": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
    }));
    check(
        &schema,
        json!({"goes": null, "becomes": null, "stays": null, "stays_too": null, "list": [null], "defaulted": [null],
            "map": {"k": null}, "filled": {"k": null}, "nullable": {"k": null}, "free": {"k": null}}),
        &json!({"becomes": "x", "stays": null, "stays_too": null, "list": [null], "defaulted": ["x"], "map": {},
            "filled": {"k": "x"}, "nullable": {"k": null}, "free": {"k": null}}),
    );
}

#[test]
fn defaults_lose_what_the_schema_does_not_know() {
    let inner = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "default": {"a": 1, "b": {"c": 2}}});
    check(&object(&json!({"x": inner.clone()})), json!({}), &json!({"x": {"a": 1}}));
    check(
        &object(&json!({"x": {"type": "array", "items": inner}})),
        json!({"x": [null]}),
        &json!({"x": [{"a": 1}]}),
    );
    let schemas = arena(&object(&json!({"x": {"type": "object", "default": {"b": 1}}})));
    let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    let field = kind.fields().iter().find(|field| field.name == "spec").map(|field| field.ty);
    let Some(Type::Message(spec)) = field else { panic!("no spec") };
    assert_eq!(
        schemas.at(spec).and_then(|schema| schema.field("x")).map(|field| &*field.default),
        Some("{}")
    );
}

#[test]
fn defaults_do_not_multiply_without_bound() {
    let schemas =
        arena(&object(&json!({"list": {"type": "array", "items": {"type": "object", "properties": {
        "a": {"type": "string", "default": "x".repeat(10_000)}}}}})));
    let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    let mut object = json!({"spec": {"list": vec![json!({}); 100_000]}});
    assert_eq!(apply(kind, &mut object), Err(DecodeError::TooLarge));
}
