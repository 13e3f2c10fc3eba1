mod random;

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::rows::{ListKind, Type};
use crate::{SchemaRef, Shape};

fn source(schema: &Value) -> Source<'_> {
    Source {
        group: "example.com",
        version: "v1",
        kind: "Foo",
        list_kind: "FooList",
        plural: "foos",
        path: "schema",
        schema,
    }
}

/// The arena of a kind `Foo` of `example.com/v1` whose `spec` has this schema.
pub(crate) fn arena(spec: &Value) -> Schemas {
    build(&source(&json!({"type": "object", "properties": {"spec": spec}}))).expect("a structural schema")
}

/// What is wrong with a schema, a line each.
fn check(schema: &Value, expect: &Expect) {
    let text = match build(&source(schema)) {
        Ok(_) => "nothing".to_owned(),
        Err(BuildError::NotStructural(violations)) => {
            let line = |violation: &Violation| {
                let Violation { path, problem, value, detail, .. } = violation;
                format!("{path}: {problem:?} {value}: {detail}")
            };
            violations.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        Err(error) => error.to_string(),
    };
    expect.assert_eq(&text);
}

fn ty<'a>(schema: SchemaRef<'a>, path: &[&str]) -> Shape<'a> {
    let mut shape = Shape::Object(schema);
    for name in path {
        shape = match shape {
            Shape::Object(schema) => schema.field_type(name).expect("a field").shape(),
            Shape::List(item, ..) | Shape::Map(item) => item.shape(),
            _ => panic!("nothing below {name}"),
        };
    }
    shape
}

#[test]
fn a_kind_is_made_of_messages_lists_and_maps() {
    let schemas = arena(&json!({"type": "object", "required": ["keyed"], "properties": {
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b", "a"], "items":
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 1}}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "boolean"}, "x-kubernetes-map-type": "atomic"},
        "struct": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
        "either": {"x-kubernetes-int-or-string": true},
        "int": {"type": "integer", "format": "int32"}, "long": {"type": "integer"}, "float": {"type": "number"},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
    }}));
    let kind = schemas.kind("example.com", "v1", "Foo").expect("the kind");
    assert_eq!(kind.message_name(), "com.example.v1.Foo");
    assert_eq!(
        kind.fields().iter().map(|field| &*field.name).collect::<Vec<_>>(),
        ["apiVersion", "kind", "metadata", "spec"]
    );
    let Shape::Object(spec) = ty(kind, &["spec"]) else { panic!("no object") };
    let types: Vec<Type> = ["either", "int", "long", "float", "any"]
        .iter()
        .filter_map(|name| Some(spec.field(name)?.ty))
        .collect();
    assert_eq!(types, [Type::IntOrString, Type::Int32, Type::Int64, Type::Double, Type::Json]);
    let Shape::List(item, ListKind::Map, keys) = ty(spec, &["keyed"]) else { panic!("no list") };
    assert_eq!(keys.iter().collect::<Vec<_>>(), ["b", "a"]);
    let Shape::Object(item) = item.shape() else { panic!("no object") };
    assert_eq!(item.field("b").map(|field| &*field.default), Some("1"));
    assert!(matches!(ty(spec, &["set"]), Shape::List(_, ListKind::Set, _)));
    assert!(spec.field("keyed").is_some_and(|field| field.is_required()));
    assert!(["map", "struct"].iter().all(|name| spec.field(name).is_some_and(|field| field.is_atomic())));
    assert!(!kind.message().preserves_unknown_fields() && kind.message().is_lenient());
}

#[test]
fn metadata_and_lists_are_those_of_all_kinds() {
    let schemas = arena(&json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true}));
    let kind = schemas.kind("example.com", "v1", "Foo").expect("the kind");
    for path in [&["metadata", "ownerReferences", ""][..], &["spec", "metadata", "managedFields", ""]] {
        assert!(matches!(ty(kind, path), Shape::Object(_)), "{path:?}");
    }
    let Shape::Object(metadata) = ty(kind, &["metadata"]) else { panic!("no metadata") };
    let builtin = crate::builtin().message(metadata.message_name()).expect("the built-in one");
    let names = |schema: SchemaRef<'_>| {
        schema.fields().iter().map(|field| field.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(metadata), names(builtin));
    let list = schemas.kind("example.com", "v1", "FooList").expect("its list");
    let Shape::Object(item) = ty(list, &["items", ""]) else { panic!("no items") };
    assert_eq!(item.message_name(), kind.message_name());
    assert!(
        matches!(ty(list, &["metadata"]), Shape::Object(meta) if meta.message_name().ends_with("ListMeta"))
    );
    assert!(schemas.messages().map(|schema| schema.message_name()).is_sorted(), "they cannot be found");
}

#[test]
fn what_is_not_structural_is_refused_with_upstreams_words() {
    check(
        &json!({"type": "array", "additionalProperties": {"type": "foo"}, "properties": {
            "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}},
            "kind": {"type": "integer"}, "untyped": {}, "null": {"type": "null"},
            "list": {"type": "array", "items": {}},
            "embedded": {"x-kubernetes-embedded-resource": true, "type": "string"},
            "empty": {"x-kubernetes-embedded-resource": true, "type": "object"},
            "both": {"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true},
            "pattern": {"type": "string", "pattern": "(?=a)"}}}),
        &expect![[r#"
            schema.additionalProperties: Forbidden null: additionalProperties and properties are mutual exclusive
            schema.additionalProperties: Forbidden null: must not be used at the root
            schema.additionalProperties.type: NotSupported "foo": 
            schema.items: Required null: must be specified
            schema.properties[both].x-kubernetes-preserve-unknown-fields: Invalid true: must be false if x-kubernetes-int-or-string is true
            schema.properties[embedded].properties: Required null: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields
            schema.properties[embedded].type: Invalid "string": must be object if x-kubernetes-embedded-resource is true
            schema.properties[empty].properties: Required null: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields
            schema.properties[kind].type: Invalid "integer": must be string
            schema.properties[list].items.type: Required null: must not be empty for specified array items
            schema.properties[metadata]: Forbidden null: must not specify anything other than name and generateName, but metadata is implicitly specified
            schema.properties[null].type: Forbidden null: type cannot be set to null, use nullable as an alternative
            schema.properties[pattern].pattern: Invalid "(?=a)": must be a valid regular expression, but isn't: error parsing regexp: invalid or unsupported Perl syntax: `(?=`
            schema.properties[untyped].type: Required null: must not be empty for specified object fields
            schema.type: Invalid "array": must be object at the root"#]],
    );
}

#[test]
fn rules_say_nothing_of_types_and_speak_of_what_has_one() {
    check(
        &json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"type": "object", "title": "t",
            "description": "d", "default": 1, "nullable": true, "additionalProperties": {}, "properties": {
            "a": {"x-kubernetes-int-or-string": true}, "b": {}, "metadata": {}}, "items": {"pattern": "["}}],
            "not": {"x-kubernetes-list-type": "set", "x-kubernetes-validations": [{"rule": "true"}]}}),
        &expect![[r#"
            schema.anyOf[0].additionalProperties: Forbidden null: must be undefined to be structural
            schema.anyOf[0].default: Forbidden null: must be undefined to be structural
            schema.anyOf[0].description: Forbidden null: must be empty to be structural
            schema.anyOf[0].items.pattern: Invalid "[": must be a valid regular expression, but isn't: error parsing regexp: missing closing ]: `[`
            schema.anyOf[0].nullable: Forbidden null: must be false to be structural
            schema.anyOf[0].properties[a].x-kubernetes-int-or-string: Forbidden null: must be false to be structural
            schema.anyOf[0].properties[metadata]: Forbidden null: must not be specified in a nested context
            schema.anyOf[0].title: Forbidden null: must be empty to be structural
            schema.anyOf[0].type: Forbidden null: must be empty to be structural
            schema.items: Required null: because it is defined in schema.anyOf[0].items
            schema.not.x-kubernetes-list-type: Forbidden null: must be undefined to be structural
            schema.not.x-kubernetes-validations: Forbidden null: must be empty to be structural
            schema.properties[b]: Required null: because it is defined in schema.anyOf[0].properties[b]
            schema.properties[metadata]: Required null: because it is defined in schema.anyOf[0].properties[metadata]"#]],
    );
}

#[test]
fn what_has_always_been_written_of_numbers_or_texts_is_taken() {
    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    for either in [
        json!({"x-kubernetes-int-or-string": true, "anyOf": int_or_string}),
        json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": int_or_string}, {"pattern": "a"}]}),
    ] {
        check(&json!({"type": "object", "properties": {"a": either}}), &expect!["nothing"]);
    }
    check(
        &json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]}}}),
        &expect![[r#"
            schema.properties[a].anyOf[0].type: Forbidden null: must be empty to be structural
            schema.properties[a].anyOf[1].type: Forbidden null: must be empty to be structural"#]],
    );
    let named = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}});
    check(&json!({"type": "object", "properties": {"metadata": named}}), &expect!["nothing"]);
}

#[test]
fn what_is_not_supported_or_no_schema_is_refused() {
    for (schema, expect) in [
        (json!({"$ref": "x"}), expect!["OpenAPIV3Schema '$ref' is not supported"]),
        (
            json!({"properties": {"a": {"not": {"patternProperties": {"a": {}}}}}}),
            expect!["OpenAPIV3Schema 'patternProperties' is not supported"],
        ),
        (json!({"items": [{}]}), expect!["OpenAPIV3Schema 'items' must be a schema, but is an array"]),
        (
            json!({"x-kubernetes-preserve-unknown-fields": false}),
            expect!["internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"],
        ),
        (
            json!({"type": 1}),
            expect![[r#"the schema cannot be read: invalid type: integer `1`, expected a string"#]],
        ),
        (
            json!({"maximum": "x"}),
            expect![[r#"the schema cannot be read: invalid type: string "x", expected f64"#]],
        ),
        (json!([]), expect![""]),
    ] {
        if schema.is_array() {
            assert!(build(&source(&schema)).is_err());
        } else {
            check(&schema, &expect);
        }
    }
}

#[test]
fn schemas_are_bounded_in_depth_and_number() {
    let mut deep = json!({"type": "string"});
    for _ in 0..200 {
        deep = json!({"type": "array", "items": deep});
    }
    check(&deep, &expect!["the schema has more than 128 levels; make it smaller"]);
    let many: crate::Object =
        (0..66_000).map(|number| (format!("f{number}"), json!({"type": "object"}))).collect();
    check(
        &json!({"type": "object", "properties": many}),
        &expect!["the schema has more than 65535 objects, lists or maps; make it smaller"],
    );
    let ways = vec![json!({}); 5_001];
    check(
        &json!({"type": "object", "properties": {"a": {"type": "string", "anyOf": ways}}}),
        &expect!["the schema has more than 5000 schemas in allOf, anyOf and oneOf; make it smaller"],
    );
    let mut deep = json!({"type": "string"});
    for _ in 0..60 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    let run = move || build(&source(&deep)).map(drop);
    let small = std::thread::Builder::new().stack_size(512 * 1024).spawn(run).expect("a thread");
    assert_eq!(small.join().expect("no overflow"), Ok(()));
}

#[test]
fn rules_in_cel_are_kept_where_they_stand() {
    let schemas = arena(
        &json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.a > 0", "message": "m",
        "messageExpression": "'m'", "reason": "FieldValueForbidden", "fieldPath": ".a", "optionalOldSelf": true}],
        "properties": {"a": {"type": "integer"}}}),
    );
    let with_rules: Vec<_> =
        schemas.rules.iter().filter(|(_, rules)| !rules.validations.is_empty()).collect();
    let [(crate::rules::Location::Field(..), rules)] = &with_rules[..] else { panic!("{with_rules:?}") };
    assert_eq!(
        rules.validations,
        [crate::rules::Validation {
            rule: "self.a > 0".into(),
            message: "m".into(),
            message_expression: "'m'".into(),
            reason: "FieldValueForbidden".into(),
            field_path: ".a".into(),
            optional_old_self: Some(true),
        }]
    );
}
