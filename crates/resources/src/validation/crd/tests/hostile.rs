//! Definitions that are to cost the server more than they cost their writer.

use std::time::{Duration, Instant};

use serde_json::Map;

use super::*;

/// How long a definition of a few megabytes may take, without optimisation and beside other tests.
const TIME_MAX: Duration = Duration::from_secs(60);
/// How much may be said of it.
const TEXT_BYTES_MAX: usize = 32 * 1024 * 1024;

fn ends(name: &str, definition: &Value) -> String {
    let start = Instant::now();
    let created = errors(definition);
    let object = prepared(definition);
    let again = shown(&row().validate_update(&updated(&object), &object));
    let warnings = (row().strategy.warnings)(&object);
    let took = start.elapsed();
    println!("{name}: {took:?}");
    assert!(took < TIME_MAX, "{name}: {took:?}");
    assert!(created.len() + again.len() < TEXT_BYTES_MAX, "{name}: {} {}", created.len(), again.len());
    assert!(warnings.len() <= 50, "{name}: {}", warnings.len());
    created
}

fn schema(schema: Value) -> Value {
    with("/spec/versions/0/schema/openAPIV3Schema", schema)
}

fn properties(count: usize, of: impl Fn(usize) -> Value) -> Value {
    let properties: Map<_, _> = (0..count).map(|n| (format!("p{n}"), of(n))).collect();
    json!({"type": "object", "properties": properties})
}

#[test]
fn many_of_something_end_in_time() {
    let long = "x".repeat(500_000);
    let below = |inner: Value| json!({"type": "object", "properties": {&long: inner}});
    ends("wrong properties below a long name", &schema(below(properties(20_000, |_| json!({})))));
    ends(
        "lists below a long name",
        &schema(below(properties(5_000, |_| json!({"type": "object", "x-kubernetes-list-type": "set"})))),
    );
    let keys: Vec<String> = (0..20_000).map(|n| format!("k{n}")).collect();
    ends(
        "keys of a list",
        &schema(
            json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": keys, "items": {"type": "object"}}}}),
        ),
    );
    let rules: Vec<Value> = (0..10_000).map(|_| json!({"rule": "true", "fieldPath": ".none"})).collect();
    let mut ruled = properties(5_000, |_| json!({"type": "string"}));
    ruled["x-kubernetes-validations"] = rules.into();
    ends("rules", &schema(ruled));
    let fields: Vec<Value> = (0..20_000).map(|n| json!({"jsonPath": format!(".p{n}")})).collect();
    let more = json!({"selectableFields": fields, "schema": {"openAPIV3Schema": properties(5_000, |_| json!({"type": "string"}))}});
    ends("selectable fields", &with("/spec/versions/0", version("v1", more)));
    ends("formats", &schema(properties(20_000, |n| json!({"type": "string", "format": format!("f{n}")}))));
    ends("defaults", &schema(properties(5_000, |n| json!({"type": "integer", "default": format!("{n}")}))));
}

#[test]
fn many_versions_end_in_time() {
    let versions: Vec<Value> =
        (0..5_000).map(|n| json!({"name": format!("v{n}"), "served": true, "storage": n == 0})).collect();
    ends("versions", &with("/spec/versions", versions.into()));
    let names: Vec<String> = (0..50_000).map(|n| format!("s{n}")).collect();
    ends("short names", &with("/spec/names/shortNames", names.into()));
}

#[test]
fn depth_is_bounded() {
    let mut deep = json!({"type": "string"});
    for _ in 0..200 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    // The decoder refuses it first; whoever comes past it is told as well.
    let mut object = prepared(&widgets());
    put(&mut object, "/spec/versions/0/schema/openAPIV3Schema", deep);
    expect![[r#"spec.validation.openAPIV3Schema: Invalid value: "": the schema has more than 128 levels; make it smaller"#]].assert_eq(&shown(&row().validate_create(&object)));
    let mut rules = json!({"required": ["a"]});
    for _ in 0..50 {
        rules = json!({"not": rules});
    }
    let name = "not not";
    assert_eq!(
        ends(name, &schema(json!({"type": "object", "properties": {"a": {"type": "object", "not": rules}}}))),
        ""
    );
}

#[test]
fn patterns_are_bounded() {
    let pattern = |pattern: &str| {
        errors(&schema(
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}),
        ))
    };
    let text = [pattern("((a{1000}){1000}){1000}"), pattern(&"(".repeat(2_000)), pattern("\\p{L}{1000}")]
        .map(|text| text.get(..text.len().min(250)).unwrap().to_owned());
    expect![[r#"
        spec.validation.openAPIV3Schema.properties[a].pattern: Invalid value: "((a{1000}){1000}){1000}": must be a valid regular expression, but isn't: error parsing regexp: expression takes more than 1048576 bytes of memory
        spec.validation.openAPIV3Schema.properties[a].pattern: Invalid value: "(((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((
        spec.validation.openAPIV3Schema.properties[a].pattern: Invalid value: "\\p{L}{1000}": must be a valid regular expression, but isn't: error parsing regexp: expression takes more than 1048576 bytes of memory"#]].assert_eq(&text.join("\n"));
}

#[test]
fn patterns_are_bounded_together() {
    let of = |count| {
        schema(properties(count, |n| json!({"type": "string", "pattern": format!("^\\w{{400}}x{n}$")})))
    };
    let text = ends("patterns", &of(3_000));
    assert!(text.contains("all patterns together take more than 33554432 bytes of memory"), "{:.300}", text);
    let same = schema(properties(
        2_000,
        |_| json!({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}),
    ));
    assert_eq!(ends("the same pattern", &same), "");
}

#[test]
fn definitions_without_sense_panic_nobody() {
    let shapes = [json!(null), json!(1), json!("x"), json!([]), json!({}), json!([{}]), json!({"a": []})];
    let pointers = [
        "/spec",
        "/spec/names",
        "/spec/versions",
        "/spec/versions/0",
        "/spec/versions/0/schema",
        "/spec/versions/0/schema/openAPIV3Schema",
        "/spec/versions/0/schema/openAPIV3Schema/properties",
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec",
        "/spec/versions/0/subresources",
        "/spec/versions/0/additionalPrinterColumns",
        "/spec/versions/0/selectableFields",
        "/spec/conversion",
        "/status",
        "/metadata",
    ];
    let good = prepared(&widgets());
    for pointer in pointers {
        for shape in &shapes {
            let mut broken = good.clone();
            put(&mut broken, pointer, shape.clone());
            let created = row().validate_create(&broken);
            let updated = row().validate_update(&broken, &good);
            let back = row().validate_update(&good, &broken);
            assert!(created.len() + updated.len() + back.len() < 1000, "{pointer} {shape}");
            drop((row().strategy.warnings)(&broken));
        }
    }
}
